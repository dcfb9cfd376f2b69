//! The whole system in one process, over real loopback ports.
