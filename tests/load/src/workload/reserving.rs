//! Sessions that speak gRPC: pairs of Reserve and Complete, and Reserve on keys that are completed.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use idem_client::{Finished, IdemClient, Intent, KeyId, Reserved};
use idem_core::{AttemptId, Fingerprint, IdempotencyKey, Response, Scope};
use idem_proto::idem::v1::{self as proto, idempotency_service_client::IdempotencyServiceClient};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::{
    bench::{ANSWER_BYTES, Bench},
    generator::{Answer, Session, loops, measured::Measured, pace::Plan},
    stage::system::SCOPE,
};

/// Every call has so long, as a gateway's.
const DEADLINE: Duration = Duration::from_secs(2);
/// As many connections as the typed client keeps.
const CHANNELS: usize = 2;

/// The fingerprint of all that is loaded or reserved here.
pub const FINGERPRINT: [u8; 32] = [7; 32];

/// Which key is the n-th of a session; none when it has no more.
pub type Naming = Arc<dyn Fn(usize, u64) -> Option<String> + Send + Sync>;

/// The typed client, shared by all sessions of a run as by all callers of a process.
struct Caller {
    client: IdemClient,
    names: Naming,
    session: usize,
    asked: u64,
    asks: Asks,
}

/// What is asked, and what the answer must be.
#[derive(Clone)]
enum Asks {
    /// Granted, and then completed with this answer.
    Pair(Response),
    /// Replayed.
    Replay,
}

/// Pairs over fresh keys.
pub async fn pairs(bench: &Bench, idem: SocketAddr, plan: Plan) -> anyhow::Result<Measured> {
    let run = Uuid::new_v4().simple();
    named_pairs(bench, idem, plan, Arc::new(move |session, number| Some(format!("{run}-{session}-{number}")))).await
}

/// Pairs over these keys.
pub async fn named_pairs(bench: &Bench, idem: SocketAddr, plan: Plan, names: Naming) -> anyhow::Result<Measured> {
    let body = Bytes::from(vec![b'x'; ANSWER_BYTES]);
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let response = Response::new(201, headers, body, Uuid::nil().to_string())?;
    call("pairs", bench, idem, plan, names, Asks::Pair(response)).await
}

/// Reserve on these keys, which are completed.
pub async fn replays(bench: &Bench, idem: SocketAddr, plan: Plan, names: Naming) -> anyhow::Result<Measured> {
    call("replays", bench, idem, plan, names, Asks::Replay).await
}

async fn call(
    label: &str,
    bench: &Bench,
    idem: SocketAddr,
    plan: Plan,
    names: Naming,
    asks: Asks,
) -> anyhow::Result<Measured> {
    let shared = OnceLock::new();
    let endpoint = format!("http://{idem}");
    loops::run(label, bench.settings.connections, plan, move |session| {
        let connect = || IdemClient::connect_lazy(endpoint.clone(), None).expect("an address is an endpoint");
        let client: IdemClient = shared.get_or_init(connect).clone();
        Caller { client, names: names.clone(), session, asked: 0, asks: asks.clone() }
    })
    .await
}

// === impl Caller ===

impl Session for Caller {
    async fn once(&mut self) -> Answer {
        self.asked += 1;
        let Some(name) = (self.names)(self.session, self.asked - 1) else { return Answer::Exhausted };
        let key = KeyId {
            scope: Scope::new(SCOPE).expect("a scope"),
            key: IdempotencyKey::new(name).expect("names without control characters"),
        };
        let fingerprint = Fingerprint::from_slice(&FINGERPRINT).expect("32 bytes");
        let intent = Intent::new(key, fingerprint);
        match self.ask(&intent).await {
            Ok(None) => Answer::Expected,
            Ok(Some(other)) => Answer::Unexpected(other),
            Err(error) => Answer::Unexpected(error.to_string()),
        }
    }
}

impl Caller {
    /// None when all was as expected.
    async fn ask(&self, intent: &Intent) -> Result<Option<String>, idem_client::ClientError> {
        let reserved = self.client.reserve(intent, Instant::now() + DEADLINE).await?;
        match (&self.asks, reserved) {
            (Asks::Pair(response), Reserved::Granted(granted)) => {
                let holder = (granted.grant.operation_id, granted.grant.token);
                let finished = self.client.complete(&intent.key, holder, response, Instant::now() + DEADLINE).await?;
                Ok((!matches!(finished, Finished::Done(_))).then(|| format!("{finished:?}")))
            }
            (Asks::Replay, Reserved::Replay(_)) => Ok(None),
            (_, Reserved::Replay(_)) => Ok(Some("a replay of a fresh key".to_owned())),
            (_, other) => Ok(Some(format!("{other:?}").split('(').next().unwrap_or_default().to_owned())),
        }
    }
}

// === the echo ===

/// A generated client, as tonic makes it, without anything around it.
struct BareCaller {
    client: IdempotencyServiceClient<Channel>,
    request: proto::ReserveRequest,
}

/// (f): the messages of Reserve, one by one, over as many connections.
pub async fn bare_calls(bench: &Bench, echo: SocketAddr, plan: Plan) -> anyhow::Result<Measured> {
    let shared = OnceLock::new();
    loops::run("(f)", bench.settings.connections, plan, move |session| {
        let connect = || -> Vec<Channel> {
            let endpoint = Endpoint::from_shared(format!("http://{echo}")).expect("an address is an endpoint");
            (0..CHANNELS).map(|_| endpoint.clone().tcp_nodelay(true).connect_lazy()).collect()
        };
        let channel = shared.get_or_init(connect)[session % CHANNELS].clone();
        let request = proto::ReserveRequest {
            scope: SCOPE.to_owned(),
            key: format!("{}-{session}", Uuid::nil().simple()),
            fingerprint: FINGERPRINT.to_vec().into(),
            attempt_id: AttemptId(Uuid::nil()).to_string(),
            ..proto::ReserveRequest::default()
        };
        BareCaller { client: IdempotencyServiceClient::new(channel), request }
    })
    .await
}

impl Session for BareCaller {
    async fn once(&mut self) -> Answer {
        match self.client.reserve(self.request.clone()).await.map(|answer| answer.into_inner().outcome) {
            Ok(Some(proto::reserve_response::Outcome::Replay(_))) => Answer::Expected,
            Ok(_) => Answer::Unexpected("another answer than the one there is".to_owned()),
            Err(status) => Answer::Unexpected(status.to_string()),
        }
    }
}
