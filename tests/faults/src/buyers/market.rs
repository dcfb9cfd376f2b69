//! What there is to buy: a few hot ticket types with hardly any seats, and a few roomy ones.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rand::{Rng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::edge::Edge;

/// Everything is at one venue.
pub(super) const VENUE: &str = "arena";

/// Names, prices and seats.
const ROOMY: [(&str, i64, i64); 3] =
    [("lawn", 1_500, 1_000_000), ("stand", 2_500, 1_000_000), ("terrace", 4_050, 1_000_000)];
const HOT: [(&str, i64, i64); 4] =
    [("front-1", 12_000, 5), ("front-2", 12_000, 8), ("box", 30_000, 4), ("balcony", 9_900, 14)];

/// How often an order asks for a hot type.
const HOT_SHARE: f64 = 0.25;
const TRIES: u32 = 20;

/// The ticket types of a campaign.
#[derive(Clone, Debug)]
pub struct Market;

impl Market {
    /// Puts everything up for sale.
    pub async fn open(edge: &Edge) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(edge.client_timeout).build()?;
        for (name, price, capacity) in ROOMY.iter().chain(&HOT) {
            let body = offer(name, *price, *capacity);
            let mut tries = 0;
            loop {
                tries += 1;
                let url =
                    format!("http://{}/v1/ticket-types/{name}", edge.gateways[tries as usize % edge.gateways.len()]);
                let answer = client.put(url).bearer_auth(&edge.operator_key).json(&body).send().await;
                match answer {
                    Ok(answer) if answer.status().is_success() => break,
                    _ if tries < TRIES => sleep(Duration::from_millis(500)).await,
                    answer => {
                        let answer = answer.context("ticket types cannot be put up for sale")?;
                        ensure!(answer.status().is_success(), "the gateway answered {}", answer.status());
                    }
                }
            }
        }
        Ok(Self)
    }

    /// One or two types and how many seats of each.
    pub(super) fn basket(&self, randomness: &mut StdRng) -> Vec<(&'static str, u32)> {
        let first = choose(randomness);
        let mut basket = vec![(first, randomness.random_range(1..=3))];
        if randomness.random_bool(0.3) {
            let second = choose(randomness);
            if second != first {
                basket.push((second, randomness.random_range(1..=2)));
            }
        }
        basket
    }

    /// A hot type with another capacity, which may be smaller than what is sold.
    pub(super) fn resized(&self, randomness: &mut StdRng) -> (&'static str, Value) {
        let (name, price, capacity) = HOT.choose(randomness).expect("there is something for sale");
        (name, offer(name, *price, randomness.random_range(capacity / 2..=capacity + 3)))
    }

    /// Any ticket type.
    pub(super) fn any(&self, randomness: &mut StdRng) -> &'static str {
        choose(randomness)
    }
}

fn offer(name: &str, price: i64, capacity: i64) -> Value {
    json!({
        "venueId": VENUE,
        "name": format!("The {name}"),
        "price": {"amount": price, "currency": "EUR"},
        "capacity": capacity,
    })
}

/// Is it about seats that others wait for? Those who get them often give them back, so that there is always something to fight for.
pub(super) fn is_hot(basket: &[(&str, u32)]) -> bool {
    basket.iter().any(|(name, _)| HOT.iter().any(|(hot, _, _)| hot == name))
}

fn choose(randomness: &mut StdRng) -> &'static str {
    let from: &[(&str, i64, i64)] = if randomness.random_bool(HOT_SHARE) { &HOT } else { &ROOMY };
    from.choose(randomness).expect("there is something for sale").0
}
