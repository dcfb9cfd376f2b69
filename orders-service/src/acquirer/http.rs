//! The acquirer over HTTP.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use chassis::flags::Endpoint;
use credentials::{CredentialsError, Watched};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{Instrument as _, Span, field::Empty, info_span};

use super::{
    Acquirer, Charge, RefundReply, Reply, Return,
    client::{self, Client, describe},
};
use crate::{operation_id::PaymentId, payment::Verdict};

/// An answer longer than this is not one of the acquirer's.
const ANSWER_MAX: usize = 64 * 1024;

/// Talks to the acquirer's REST interface.
///
/// A request is sent once: the client does not repeat it behind our back, though the ids would make that harmless. What was not
/// answered is asked for, not assumed.
#[derive(Clone, Debug)]
pub struct HttpAcquirer {
    client: Watched<Client>,
    base: String,
    host: String,
    port: u16,
}

/// The client cannot be what the flags say.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file of the authorities is no good.
    #[error(transparent)]
    Authority(#[from] CredentialsError),
    /// There would be no certificate to believe or not.
    #[error(
        "--acquirer-ca is given and --acquirer-url begins with http://: write https://, or leave --acquirer-ca out"
    )]
    Plaintext,
}

#[derive(Serialize)]
struct ChargeBody<'a> {
    amount: i64,
    currency: &'a str,
    method: &'a str,
}

#[derive(Serialize)]
struct RefundBody<'a> {
    amount: i64,
    currency: &'a str,
}

#[derive(Deserialize)]
struct PaymentAnswer {
    id: String,
    status: String,
    amount: i64,
    currency: String,
}

/// What goes over the wire.
type Ask = Request<Full<Bytes>>;

/// What came over the wire: a status and a bounded body.
struct Heard {
    status: StatusCode,
    body: Vec<u8>,
}

// === impl HttpAcquirer ===

impl HttpAcquirer {
    /// Makes a client for the acquirer at `base`. Over `https://` it must prove its host, by an authority of the file `ca` or else by a
    /// public one.
    pub fn new(base: &Endpoint, ca: Option<PathBuf>, connect_timeout: Duration) -> Result<Self, ClientError> {
        if ca.is_some() && !base.is_encrypted() {
            return Err(ClientError::Plaintext);
        }
        let client = client::open(ca, connect_timeout)?;
        Ok(Self { client, base: base.to_string(), host: base.host().to_owned(), port: base.port() })
    }

    fn payment_url(&self, payment: PaymentId) -> String {
        format!("{}/payments/{payment}", self.base)
    }

    /// The span of a call, as the conventions for HTTP clients have it. Neither the body nor the method of payment is in it.
    fn span(&self, call: &'static str, method: &'static str, payment: PaymentId) -> Span {
        info_span!(
            "acquirer call",
            otel.name = format_args!("{call} payment"),
            otel.kind = "client",
            otel.status_code = Empty,
            http.request.method = method,
            http.response.status_code = Empty,
            error.type = Empty,
            server.address = self.host,
            server.port = i64::from(self.port),
            url.full = self.payment_url(payment),
            payment.id = %payment,
        )
    }

    /// Sends a request in the current span, and notes there and in the metrics how it went.
    async fn send(&self, call: &'static str, request: Ask, patience: Duration) -> Result<Heard, String> {
        let begun = Instant::now();
        let heard = self.exchange(request, patience).await;
        metrics::histogram!("orders_acquirer_call_duration_seconds", "call" => call)
            .record(begun.elapsed().as_secs_f64());
        let span = Span::current();
        match &heard {
            Ok(heard) => {
                span.record("http.response.status_code", i64::from(heard.status.as_u16()));
                if heard.status.is_server_error() {
                    span.record("otel.status_code", "ERROR").record("error.type", heard.status.as_str());
                }
            }
            Err(_) => drop(span.record("otel.status_code", "ERROR").record("error.type", "unreachable")),
        }
        heard
    }

    async fn exchange(&self, mut request: Ask, patience: Duration) -> Result<Heard, String> {
        chassis::trace::inject(request.headers_mut());
        let exchange = async {
            let answer = self.client.current().request(request).await.map_err(|error| describe(&error))?;
            let (head, mut answer) = answer.into_parts();
            let mut body = Vec::new();
            while let Some(frame) = answer.frame().await {
                let frame = frame.map_err(|error| describe(&error))?;
                body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                if body.len() > ANSWER_MAX {
                    break;
                }
            }
            Ok(Heard { status: head.status, body })
        };
        match tokio::time::timeout(patience, exchange).await {
            Ok(heard) => heard,
            Err(_) => Err("it did not answer in time".to_owned()),
        }
    }
}

#[async_trait]
impl Acquirer for HttpAcquirer {
    async fn charge(&self, charge: &Charge, patience: Duration) -> Reply {
        let body = ChargeBody {
            amount: charge.amount.amount,
            currency: charge.amount.currency.as_str(),
            method: &charge.method,
        };
        let request = ask(Method::PUT, &self.payment_url(charge.payment), Some(&body));
        let span = self.span("charge", "PUT", charge.payment);
        let reply = match self.send("charge", request, patience).instrument(span).await {
            Ok(heard) => heard.charged(charge.payment),
            Err(cause) => Reply::Unreachable(cause),
        };
        count("charge", reply.name());
        reply
    }

    async fn find(&self, payment: PaymentId, patience: Duration) -> Reply {
        let span = self.span("find", "GET", payment);
        let request = ask(Method::GET, &self.payment_url(payment), None::<&()>);
        let reply = match self.send("find", request, patience).instrument(span).await {
            Ok(heard) => heard.found(payment),
            Err(cause) => Reply::Unreachable(cause),
        };
        count("find", reply.name());
        reply
    }

    async fn refund(&self, back: &Return, patience: Duration) -> RefundReply {
        let body = RefundBody { amount: back.amount.amount, currency: back.amount.currency.as_str() };
        let url = format!("{}/refunds/{}", self.payment_url(back.payment), back.refund);
        let span = self.span("refund", "PUT", back.payment);
        let request = ask(Method::PUT, &url, Some(&body));
        let reply = match self.send("refund", request, patience).instrument(span).await {
            Ok(heard) => heard.refunded(),
            Err(cause) => RefundReply::Unreachable(cause),
        };
        count(
            "refund",
            match reply {
                RefundReply::Acknowledged => "acknowledged",
                RefundReply::Refused(_) => "refused",
                RefundReply::Unreachable(_) => "unreachable",
            },
        );
        reply
    }
}

// === impl Heard ===

impl Heard {
    /// The answer to a charge.
    fn charged(&self, id: PaymentId) -> Reply {
        match self.status {
            StatusCode::CONFLICT => Reply::Conflict,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Reply::Refused(self.told()),
            // Some acquirers say a decline with the status, too.
            status if status.is_success() || status == StatusCode::PAYMENT_REQUIRED => self.payment(id),
            _ => Reply::Unreachable(self.told()),
        }
    }

    /// The answer to a question about a payment.
    fn found(&self, id: PaymentId) -> Reply {
        match self.status {
            StatusCode::OK => self.payment(id),
            StatusCode::NOT_FOUND => Reply::NotFound,
            _ => Reply::Unreachable(self.told()),
        }
    }

    /// The answer to a refund.
    fn refunded(&self) -> RefundReply {
        if self.status.is_success() {
            return RefundReply::Acknowledged;
        }
        // Too many requests and timeouts are weather; any other 4xx needs somebody to look.
        let is_weather = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        if self.status.is_client_error() && !is_weather {
            RefundReply::Refused(self.told())
        } else {
            RefundReply::Unreachable(self.told())
        }
    }

    fn payment(&self, id: PaymentId) -> Reply {
        let Ok(answer) = serde_json::from_slice::<PaymentAnswer>(&self.body) else {
            return Reply::Unreachable(format!("its answer cannot be read ({})", self.status));
        };
        if answer.id != id.to_string() {
            return Reply::Conflict;
        }
        let verdict = match answer.status.as_str() {
            "approved" => Verdict::Approved,
            "declined" => Verdict::Declined,
            "pending" => Verdict::Pending,
            _ => return Reply::Unreachable("it knows the payment in a state we do not".to_owned()),
        };
        Reply::Known { verdict, amount: answer.amount, currency: answer.currency }
    }

    /// For a log line. Not what it wrote: an acquirer may repeat what it was sent, and nobody may read a card token in a log.
    fn told(&self) -> String {
        format!("it answered {}", self.status.as_u16())
    }
}

// === impl Reply ===

impl Reply {
    /// What the counter calls this reply.
    fn name(&self) -> &'static str {
        match self {
            Self::Known { verdict: Verdict::Approved, .. } => "approved",
            Self::Known { verdict: Verdict::Declined, .. } => "declined",
            Self::Known { verdict: Verdict::Pending, .. } => "pending",
            Self::NotFound => "not_found",
            Self::Refused(_) => "refused",
            Self::Conflict => "conflict",
            Self::Unreachable(_) => "unreachable",
        }
    }
}

fn count(call: &'static str, result: &'static str) {
    metrics::counter!("orders_acquirer_calls_total", "call" => call, "result" => result).increment(1);
}

fn ask(method: Method, url: &str, body: Option<&impl Serialize>) -> Ask {
    let request = Request::builder().method(method).uri(url).header(header::ACCEPT, "*/*");
    let request = match body {
        Some(_) => request.header(header::CONTENT_TYPE, "application/json"),
        None => request,
    };
    let body = body.map(|body| serde_json::to_vec(body).expect("numbers and texts make JSON")).unwrap_or_default();
    request.body(Full::from(body)).expect("an endpoint and ids make a URL")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation_id::OperationId;

    fn heard(status: u16, body: &str) -> Heard {
        Heard { status: StatusCode::from_u16(status).expect("a status"), body: body.as_bytes().to_vec() }
    }

    fn id() -> PaymentId {
        OperationId::parse("0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11").expect("a UUID").payment()
    }

    fn payment(status: &str) -> String {
        format!(r#"{{"id":"{}","status":"{status}","amount":2000,"currency":"EUR","method":"pm_approved"}}"#, id())
    }

    #[test]
    fn only_what_is_certain_is_believed() {
        for (status, body, expected) in [
            (200, payment("approved"), "approved"),
            (201, payment("declined"), "declined"),
            (202, payment("pending"), "pending"),
            (402, payment("declined"), "declined"),
            (200, payment("weird"), "unreachable"),
            (200, "<html>".to_owned(), "unreachable"),
            (200, payment("approved").replace(&id().to_string(), "another"), "conflict"),
            (400, "{}".to_owned(), "refused"),
            (422, "{}".to_owned(), "refused"),
            (409, "{}".to_owned(), "conflict"),
            (404, "{}".to_owned(), "unreachable"),
            (401, "{}".to_owned(), "unreachable"),
            (429, "{}".to_owned(), "unreachable"),
            (500, "{}".to_owned(), "unreachable"),
            (503, "{}".to_owned(), "unreachable"),
        ] {
            assert_eq!(heard(status, &body).charged(id()).name(), expected, "charge answered {status} {body}");
        }
        assert_eq!(heard(404, "{}").found(id()), Reply::NotFound);
        assert_eq!(heard(503, "{}").found(id()).name(), "unreachable");
        assert_eq!(heard(400, "{}").found(id()).name(), "unreachable");
    }

    #[test]
    fn what_the_acquirer_writes_is_in_no_word_of_ours() {
        let planted = r#"{"method":"pm_secret","error":"pm_secret"}"#;
        for status in [200, 400, 401, 409, 422, 500] {
            let heard = heard(status, planted);
            let told = format!("{:?} {:?} {:?}", heard.charged(id()), heard.found(id()), heard.refunded());
            assert!(!told.contains("pm_secret"), "{told}");
        }
        let status = payment("pm_secret");
        assert!(!format!("{:?}", heard(200, &status).charged(id())).contains("pm_secret"));
    }

    #[test]
    fn a_refund_is_acknowledged_by_success_alone() {
        assert_eq!(heard(201, "{}").refunded(), RefundReply::Acknowledged);
        assert!(matches!(heard(409, "{}").refunded(), RefundReply::Refused(_)));
        assert!(matches!(heard(429, "{}").refunded(), RefundReply::Unreachable(_)));
        assert!(matches!(heard(503, "{}").refunded(), RefundReply::Unreachable(_)));
    }
}
