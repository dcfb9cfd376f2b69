//! The promises, one a file: each reads the case and says where it was broken.

mod availability;
mod check_ins;
mod forgery;
mod form;
mod holds;
mod key_reads;
mod liveness;
mod money;
mod one_order;
mod promises;
mod reads;
mod reuse;
mod settling;
mod stock;
mod stored_answer;
mod tenants;
mod tokens;

use super::{Case, Violation};

/// Reads a case and says where one promise was broken.
pub(super) type Rule = fn(&Case<'_>) -> Vec<Violation>;

/// Every rule with its name.
pub(super) const ALL: &[(&str, Rule)] = &[
    (stored_answer::NAME, stored_answer::check),
    (promises::NAME, promises::check),
    (reads::NAME, reads::check),
    (key_reads::NAME, key_reads::check),
    (one_order::NAME, one_order::check),
    (money::NAME, money::check),
    (stock::NAME, stock::check),
    (holds::NAME, holds::check),
    (check_ins::NAME, check_ins::check),
    (liveness::NAME, liveness::check),
    (settling::NAME, settling::check),
    (availability::NAME, availability::check),
    (tokens::NAME, tokens::check),
    (reuse::NAME, reuse::check),
    (forgery::NAME, forgery::check),
    (tenants::NAME, tenants::check),
    (form::NAME, form::check),
];
