//! End-to-end tests over the running world, and the harness they share.
