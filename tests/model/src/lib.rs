//! The protocol of keys, tokens and payments, checked in every state that it can reach.
//!
//! A [`world::World`] is one state of everything; an [`action::Action`] is one thing that can happen; [`properties::Rule`] is what must
//! hold whatever happens, and [`mutations::Mutation`] is a rule of the protocol left out, which the checker must notice. The register's
//! decisions are the product's own `decide`; everything else is told again here, as small as may be.

pub mod acquirer;
pub mod action;
pub mod checking;
pub mod configuration;
mod finish;
pub mod gateway;
pub mod model;
pub mod mutations;
pub mod names;
pub mod network;
pub mod orders;
pub mod payment;
pub mod properties;
pub mod register;
pub mod session;
pub mod step;
pub mod witness;
pub mod world;
