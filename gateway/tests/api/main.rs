//! The gateway from outside, between scripted services.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails")]

mod fake_idem;
mod fake_orders;
mod keyed;
mod limits;
mod preflights;
mod reconciler;
mod world;
