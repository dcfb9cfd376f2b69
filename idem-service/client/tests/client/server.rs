//! An idempotency service that answers what was scripted.

use std::{
    any::Any,
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::SystemTime,
};

use idem_client::{IdemClient, Intent, KeyId};
use idem_core::{Fingerprint, IdempotencyKey, Scope};
use idem_proto::idem::v1::{
    self as proto,
    admin_service_server::{AdminService, AdminServiceServer},
    idempotency_service_server::{IdempotencyService, IdempotencyServiceServer},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::Instant};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, metadata::MetadataMap, transport::Server};

/// What the server does with one call.
pub enum Reply {
    /// Answers with this message.
    With(Box<dyn Any + Send>),
    /// Refuses.
    Refuse(Status),
    /// Never answers.
    Hang,
    /// Answers with this message once the door is opened.
    Held(oneshot::Receiver<()>, Box<dyn Any + Send>),
    /// Looks at the message.
    Judged(Judge),
}

type Judge = Box<dyn FnOnce(&dyn Any) -> Result<Box<dyn Any + Send>, Status> + Send>;

/// The script, and what came.
#[derive(Clone, Default)]
pub struct Fake {
    script: Arc<Mutex<VecDeque<Reply>>>,
    calls: Arc<Mutex<Vec<Call>>>,
}

/// One call that came.
#[derive(Clone)]
pub struct Call {
    pub rpc: &'static str,
    pub metadata: MetadataMap,
    message: Arc<dyn Any + Send + Sync>,
}

/// A server that runs until it is stopped.
pub struct Running {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

// === impl Fake ===

impl Fake {
    pub fn will(&self, message: impl Any + Send) -> &Self {
        self.script.lock().unwrap().push_back(Reply::With(Box::new(message)));
        self
    }

    pub fn will_not(&self, reply: Reply) -> &Self {
        self.script.lock().unwrap().push_back(reply);
        self
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The one message that came under this name.
    pub fn message<M: Clone + 'static>(&self, nth: usize) -> M {
        self.calls()[nth].message.downcast_ref::<M>().unwrap().clone()
    }

    /// Serves on a free port.
    pub async fn serve(&self) -> Running {
        self.serve_on("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn serve_on(&self, address: SocketAddr) -> Running {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = Server::builder()
            .add_service(IdempotencyServiceServer::new(self.clone()))
            .add_service(AdminServiceServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let serving = spawn(async move {
            // Not gracefully: connections break, as when a process is killed.
            tokio::select! {
                served = server => served.unwrap(),
                // Only when it is told to: a test that never stops it drops the other end.
                Ok(()) = stopped => {}
            }
        });
        Running { address, stop, serving }
    }

    async fn reply<M, A>(&self, rpc: &'static str, request: Request<M>) -> Result<Response<A>, Status>
    where
        M: Send + Sync + 'static,
        A: 'static,
    {
        let (metadata, _, message) = request.into_parts();
        let message = Arc::new(message);
        self.calls.lock().unwrap().push(Call { rpc, metadata, message: message.clone() });
        let reply = self.script.lock().unwrap().pop_front();
        match reply.unwrap_or_else(|| panic!("nothing is scripted for {rpc}")) {
            Reply::With(message) => Ok(Response::new(*message.downcast().unwrap())),
            Reply::Refuse(status) => Err(status),
            Reply::Hang => std::future::pending().await,
            Reply::Held(door, answer) => {
                let _ = door.await;
                Ok(Response::new(*answer.downcast().unwrap()))
            }
            Reply::Judged(judge) => Ok(Response::new(*judge(&*message)?.downcast().unwrap())),
        }
    }
}

impl Running {
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn client(&self) -> IdemClient {
        IdemClient::connect_lazy(self.endpoint(), None).unwrap()
    }

    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap();
    }
}

#[tonic::async_trait]
impl IdempotencyService for Fake {
    async fn reserve(&self, it: Request<proto::ReserveRequest>) -> Result<Response<proto::ReserveResponse>, Status> {
        self.reply("Reserve", it).await
    }

    async fn reserve_many(
        &self,
        it: Request<proto::ReserveManyRequest>,
    ) -> Result<Response<proto::ReserveManyResponse>, Status> {
        self.reply("ReserveMany", it).await
    }

    async fn complete_many(
        &self,
        it: Request<proto::CompleteManyRequest>,
    ) -> Result<Response<proto::CompleteManyResponse>, Status> {
        self.reply("CompleteMany", it).await
    }

    async fn reclaim(&self, it: Request<proto::ReclaimRequest>) -> Result<Response<proto::ReclaimResponse>, Status> {
        self.reply("Reclaim", it).await
    }

    async fn complete(&self, it: Request<proto::CompleteRequest>) -> Result<Response<proto::CompleteResponse>, Status> {
        self.reply("Complete", it).await
    }

    async fn release(&self, it: Request<proto::ReleaseRequest>) -> Result<Response<proto::ReleaseResponse>, Status> {
        self.reply("Release", it).await
    }

    async fn abandon(&self, it: Request<proto::AbandonRequest>) -> Result<Response<proto::AbandonResponse>, Status> {
        self.reply("Abandon", it).await
    }

    async fn renew(&self, it: Request<proto::RenewRequest>) -> Result<Response<proto::RenewResponse>, Status> {
        self.reply("Renew", it).await
    }

    async fn get(&self, it: Request<proto::GetRequest>) -> Result<Response<proto::GetResponse>, Status> {
        self.reply("Get", it).await
    }
}

#[tonic::async_trait]
impl AdminService for Fake {
    async fn list(&self, it: Request<proto::ListRequest>) -> Result<Response<proto::ListResponse>, Status> {
        self.reply("List", it).await
    }

    async fn stats(&self, it: Request<proto::StatsRequest>) -> Result<Response<proto::StatsResponse>, Status> {
        self.reply("Stats", it).await
    }

    async fn list_audit(
        &self,
        _: Request<proto::ListAuditRequest>,
    ) -> Result<Response<proto::ListAuditResponse>, Status> {
        Err(Status::unimplemented("for operators"))
    }

    async fn count_live(
        &self,
        it: Request<proto::CountLiveRequest>,
    ) -> Result<Response<proto::CountLiveResponse>, Status> {
        self.reply("CountLive", it).await
    }

    async fn list_stale(
        &self,
        it: Request<proto::ListStaleRequest>,
    ) -> Result<Response<proto::ListStaleResponse>, Status> {
        self.reply("ListStale", it).await
    }

    async fn resolve(&self, it: Request<proto::ResolveRequest>) -> Result<Response<proto::ResolveResponse>, Status> {
        self.reply("Resolve", it).await
    }
}

// === what tests say ===

pub fn key() -> KeyId {
    KeyId { scope: Scope::new("rest/a").unwrap(), key: IdempotencyKey::new("k 1").unwrap() }
}

pub fn intent() -> Intent {
    Intent::new(key(), Fingerprint::from_slice(&[7; 32]).unwrap())
}

pub fn after(millis: u64) -> Instant {
    Instant::now() + std::time::Duration::from_millis(millis)
}

pub fn at(seconds: i64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp { seconds, nanos: 0 })
}

pub fn wall(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)
}

pub const OPERATION: &str = "0d4b5f4e-6f6c-4a62-9c5b-0d6a5b8c9e01";

pub fn granted(fencing_token: i64, must_ask: bool) -> proto::Granted {
    proto::Granted {
        operation_id: OPERATION.to_owned(),
        fencing_token,
        lease_expires_at: at(1000),
        attempts: 3,
        must_ask,
    }
}

pub fn replay() -> proto::Replay {
    let header = proto::Header { name: "location".to_owned(), value: "/things/1".to_owned() };
    let response = proto::StoredResponse {
        status: 201,
        headers: vec![header],
        body: "body".into(),
        resource_id: "thing-1".to_owned(),
    };
    proto::Replay {
        response: Some(response),
        completed_at: at(1000),
        expires_at: at(2000),
        expires_in: Some(prost_types::Duration { seconds: 1000, nanos: 0 }),
        trace_context: "00-trace-01".to_owned(),
    }
}

pub fn reserve(outcome: proto::reserve_response::Outcome) -> proto::ReserveResponse {
    proto::ReserveResponse { outcome: Some(outcome) }
}

pub fn unavailable() -> Reply {
    Reply::Refuse(Status::unavailable("the store is away"))
}

#[allow(clippy::disallowed_methods, reason = "nothing shuts down here")]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future)
}
