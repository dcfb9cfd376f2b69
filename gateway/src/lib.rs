//! The REST gateway: makes retried requests safe and forwards them to the orders service.
