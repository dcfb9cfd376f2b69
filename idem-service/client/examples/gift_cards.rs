//! A service that issues gift cards, once per order number, however often it is asked.
//!
//! Start an idempotency service, then run this twice with the same order number, and once more with another amount:
//!
//! ```text
//! cargo run -p idem-client --example gift_cards -- http://127.0.0.1:7001 order-1 5000
//! ```
//!
//! The issuing itself is a line in a file named after the operation id, so that a run that was killed half-way can be asked what it
//! did: the system of record knows operations by their id, which is all that recovery needs.

#![allow(clippy::print_stdout, reason = "it is a program with a terminal")]

use std::{env, fs, io, path::PathBuf, time::Duration};

use anyhow::Context;
use idem_client::{Begun, Finished, IdemClient, Intent, KeyId, Reservation};
use idem_core::{Fingerprint, IdempotencyKey, OperationId, Response, Scope};
use tokio::time::Instant;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [endpoint, order, cents] = arguments.as_slice() else {
        anyhow::bail!("usage: gift_cards ENDPOINT ORDER CENTS");
    };
    let cents: u64 = cents.parse().context("CENTS must be a whole number")?;
    let idem = IdemClient::connect_lazy(endpoint, None)?;

    // One intent per order; what is asked goes into the fingerprint, so that another amount is refused and not ignored.
    let key = KeyId { scope: Scope::new("gift-cards/demo")?, key: IdempotencyKey::new(order)? };
    let asked = format!("{{\"cents\":{cents}}}");
    let intent = Intent::new(key, Fingerprint::of_request("ISSUE", "/gift-cards", "", asked.as_bytes())?);

    match idem.begin(&intent, soon()).await? {
        Begun::Held(reservation) => println!("{}", issue(reservation, cents).await?),
        Begun::Replay(replay) => println!("{} (as before)", String::from_utf8_lossy(replay.response.body())),
        Begun::InProgress { retry_after } => println!("another run is at it; ask again in {retry_after:?}"),
        Begun::Mismatch => println!("order {order} was used for another amount"),
    }
    Ok(())
}

/// Issues the card, or finds the one that a former holder issued before it died.
async fn issue(mut reservation: Reservation, cents: u64) -> anyhow::Result<String> {
    let id = reservation.operation_id();
    let found = if reservation.must_ask() { find(id)? } else { None };
    let card = match found {
        Some(card) => card,
        None => match write(id, cents) {
            Ok(card) => card,
            Err(error) => {
                // Whether the file is there is not known: the next caller asks.
                reservation.abandon(soon()).await?;
                return Err(error).context("the card may or may not have been issued");
            }
        },
    };
    let response = Response::new(201, Vec::new(), card.clone().into(), id.to_string())?;
    match reservation.complete(response, soon()).await? {
        Finished::Done(_) => Ok(card),
        // Somebody else took over while this run was slow: theirs is the answer.
        Finished::Superseded(by) => match by.replay {
            Some(replay) => Ok(String::from_utf8_lossy(replay.response.body()).into_owned()),
            None => anyhow::bail!("another run has taken over; ask again"),
        },
    }
}

fn write(id: OperationId, cents: u64) -> io::Result<String> {
    let card = format!("gift card {id} of {cents} cents");
    fs::write(path(id), &card)?;
    Ok(card)
}

fn find(id: OperationId) -> io::Result<Option<String>> {
    match fs::read_to_string(path(id)) {
        Ok(card) => Ok(Some(card)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn path(id: OperationId) -> PathBuf {
    env::temp_dir().join(format!("gift-card-{id}"))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(2)
}
