//! Sends a request to a gateway and records it, whatever becomes of it.

use std::{collections::BTreeMap, time::Duration};

use reqwest::{Client, header::HeaderValue};
use tokio::time::timeout;

use super::{ask::Ask, pace::Pace};
use crate::{
    edge::Edge,
    history::{Answer, Call, Event, Heard, Recorder, Why},
};

/// Response headers that somebody promised something about.
const HEADERS: [&str; 10] = [
    "content-type",
    "location",
    "link",
    "content-language",
    "content-disposition",
    "idempotency-key",
    "idempotent-replayed",
    "idempotency-key-expires",
    "retry-after",
    "preference-applied",
];

/// A connection that nobody uses is closed before a fault can make it useless unnoticed.
const IDLE: Duration = Duration::from_secs(2);

/// The way to the gateways.
pub(super) struct Sender {
    pub(super) edge: Edge,
    pub(super) recorder: Recorder,
    pace: Pace,
    client: Client,
}

impl Sender {
    pub(super) fn new(edge: Edge, recorder: Recorder, pace: Pace) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().retry(reqwest::retry::never()).pool_idle_timeout(IDLE).build()?;
        Ok(Self { edge, recorder, pace, client })
    }

    /// Sends a request when its turn comes. `leave_after` is when its client hangs up.
    pub(super) async fn send(&self, ask: Ask, leave_after: Option<Duration>) -> Option<Answer> {
        self.pace.turn().await;
        let call = self.recorder.number();
        let tenant = &self.edge.tenants[ask.tenant];
        self.recorder.record(Event::Sent(Call {
            id: call,
            intent: ask.intent,
            buyer: ask.buyer,
            purpose: ask.purpose,
            gateway: ask.gateway,
            tenant: tenant.name.clone(),
            method: ask.method.to_owned(),
            path: ask.path.clone(),
            key: ask.key.as_ref().map(|(key, _)| key.clone()),
            body: ask.body.clone(),
            wait_s: ask.wait_s,
            sent_ms: self.edge.clock.now_ms(),
            done_ms: None,
            heard: None,
        }));
        let waits = Duration::from_secs(ask.wait_s.unwrap_or(0));
        let (patience, why) = match leave_after {
            Some(after) => (after, Why::Left),
            None => (self.edge.client_timeout + waits, Why::TimedOut),
        };
        let heard = match timeout(patience, self.exchange(&ask)).await {
            Ok(Ok(answer)) => Heard::Answer(answer),
            Ok(Err(error)) => Heard::Nothing(Why::Broken(causes(&error))),
            Err(_) => Heard::Nothing(why),
        };
        let answer = match &heard {
            Heard::Answer(answer) => Some(answer.clone()),
            Heard::Nothing(_) => None,
        };
        self.recorder.record(Event::Heard { call, ms: self.edge.clock.now_ms(), heard });
        answer
    }

    async fn exchange(&self, ask: &Ask) -> Result<Answer, reqwest::Error> {
        let url = format!("http://{}{}", self.edge.gateways[ask.gateway], ask.path);
        let mut request = match ask.method {
            "GET" => self.client.get(url),
            _ => self.client.post(url).header("content-type", "application/json").body(ask.body.clone()),
        };
        request = request.bearer_auth(&self.edge.tenants[ask.tenant].api_key);
        if let Some((_, line)) = &ask.key {
            let line = HeaderValue::from_bytes(line.as_bytes()).expect("the campaign's keys can be header lines");
            request = request.header("idempotency-key", line);
        }
        if let Some(wait) = ask.wait_s {
            request = request.header("prefer", format!("wait={wait}"));
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let mut headers = BTreeMap::new();
        for name in HEADERS {
            let values = response.headers().get_all(name).iter();
            let values: Vec<String> =
                values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
            if !values.is_empty() {
                headers.insert(name.to_owned(), values.join(", "));
            }
        }
        let body = String::from_utf8_lossy(&response.bytes().await?).into_owned();
        Ok(Answer { status, headers, body })
    }
}

/// An error with everything that led to it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}
