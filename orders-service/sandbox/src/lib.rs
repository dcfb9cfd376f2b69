//! A payment acquirer to play with: charges once per id, and fails on request in every way a real one does.
//!
//! Its memory is its process: a restart forgets everything.
//!
//! # Payments
//!
//! `PUT /payments/{id}` with `{"amount": 2000, "currency": "EUR", "method": "pm_approved"}` answers 200 with the payment,
//! `{id, status, amount, currency, method}`; `status` is `approved`, `declined` or `pending`. The same id and body answer the
//! same payment, the same id with another body 409. The method says how the payment goes:
//!
//! | method | the first `PUT` | `GET` meanwhile | a repeat |
//! |---|---|---|---|
//! | `pm_approved`, `pm_declined` | answers so | | answers so |
//! | `pm_pending` | answers `pending` | `pending` until settled | answers the payment as it is |
//! | `pm_slow_<ms>` | answers `approved`, ms later | `pending` | answers when the first does |
//! | `pm_error` | 500, nothing is charged | 404 | 500 |
//! | `pm_charge_then_hang` | charges, never answers | `approved` | answers `approved` |
//! | `pm_charge_then_drop` | charges, closes the connection | `approved` | answers `approved` |
//! | `pm_drop` | closes the connection | 404 | closes the connection |
//! | `pm_pending_charge_then_hang` | never answers | `pending` until settled | answers the payment as it is |
//! | `pm_late_<ms>` | closes the connection, charges ms later | 404 | closes the connection; later answers `approved` |
//!
//! `GET /payments/{id}` answers the payment with its `refunds`, or 404. `PUT /payments/{id}/refunds/{refundId}` with
//! `{amount, currency}` gives money back once per refund id: 409 for another body under the same id or a payment that is not
//! approved, 422 for more than was captured or another currency. Refusals are JSON: `{error, message}`.
//!
//! # Webhooks
//!
//! Every approval and decline sends `{id, type, paymentId, amount, currency, occurredAt}` to the webhook URL, with
//! `Acquirer-Signature` (see [`signature`]): at once, then 1, 2, 4 and 8 s after the first try until one is answered with 2xx.
//!
//! # Control
//!
//! | route | what it does |
//! |---|---|
//! | `POST /sandbox/payments/{id}/settle` `{"status": "approved"}` or `"declined"` | decides a pending payment, and answers `{eventId}`; again: the same event id, and no second event; 409 when it was decided otherwise |
//! | `GET /sandbox/payments/{id}` | `{status, charges, queries, refunds}`: successful captures, `GET`s of merchants, number of refunds. `status` is `none` while the id is known but no payment is held |
//! | `GET /sandbox/totals` | `{charges, captured, refunded}` |
//! | `POST /sandbox/webhooks/{eventId}/redeliver` | 202, and delivers the event again, with all its tries |
//! | `POST /sandbox/webhooks` `{"enabled": false}` | loses every webhook from now on, but for those redelivered by hand; `true` ends that |
//! | `POST /sandbox/outage` `{"seconds": N}` | `/payments` answers 503 meanwhile, or 400 with `"status": 400`; 0 ends it. Payments already taken go on, and so do webhooks |

mod acquirer;
mod api;
mod background;
mod config;
mod control;
mod error;
mod event;
mod ledger;
mod method;
mod sandbox;
pub mod signature;
mod webhooks;
mod wire;

pub use config::{Config, DEVELOPMENT_WEBHOOK_SECRET};
pub use sandbox::{Sandbox, SandboxError};
