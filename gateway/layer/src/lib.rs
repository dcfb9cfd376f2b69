//! A tower layer that makes any HTTP service safe to retry.

pub mod ports;
