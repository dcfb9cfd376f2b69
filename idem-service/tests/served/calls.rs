//! Short words for calls and their answers.

use idem_proto::idem::v1 as proto;
use idem_proto::idem::v1::idempotency_service_client::IdempotencyServiceClient;
use proto::{
    abandon_response, complete_response, reclaim_response, release_response, renew_response, reserve_response,
};
use tonic::Status;
use tonic::transport::Channel;
use tonic_types::StatusExt;
use uuid::Uuid;

pub use proto::reserve_response::Outcome;

pub type Client = IdempotencyServiceClient<Channel>;

pub const SCOPE: &str = "rest/a";

pub fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

pub fn reserve_request(key: &str) -> proto::ReserveRequest {
    proto::ReserveRequest {
        scope: SCOPE.to_owned(),
        key: key.to_owned(),
        fingerprint: vec![7; 32].into(),
        attempt_id: Uuid::new_v4().to_string(),
        ..Default::default()
    }
}

pub fn stored(status: u32) -> proto::StoredResponse {
    proto::StoredResponse {
        status,
        headers: vec![proto::Header { name: "content-type".to_owned(), value: "application/json".to_owned() }],
        body: "{\"b\":1, \"a\":2.50}".into(),
        resource_id: "order-1".to_owned(),
    }
}

pub async fn send(client: &Client, request: proto::ReserveRequest) -> reserve_response::Outcome {
    client.clone().reserve(request).await.unwrap().into_inner().outcome.unwrap()
}

pub async fn reserve(client: &Client, key: &str) -> reserve_response::Outcome {
    send(client, reserve_request(key)).await
}

/// An outcome without how long its answer is still replayed, which every moment changes.
pub fn without_countdown(mut outcome: Outcome) -> Outcome {
    if let Outcome::Replay(replay) = &mut outcome {
        assert!(replay.expires_in.take().is_some(), "it says for how long");
    }
    outcome
}

pub async fn grant(client: &Client, key: &str) -> proto::Granted {
    match reserve(client, key).await {
        reserve_response::Outcome::Granted(granted) => granted,
        other => panic!("expected a grant, not {other:?}"),
    }
}

/// The four commands of a holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    Complete,
    Release,
    Abandon,
    Renew,
}

pub const COMMANDS: [Command; 4] = [Command::Complete, Command::Release, Command::Abandon, Command::Renew];

/// Carries a command out, and names what it came to: `completed`, …, or the superseding state.
pub async fn carry_out(
    client: &Client,
    command: Command,
    key: &str,
    operation_id: &str,
    fencing_token: i64,
) -> Result<String, Status> {
    let (scope, key, operation_id) = (SCOPE.to_owned(), key.to_owned(), operation_id.to_owned());
    let mut client = client.clone();
    Ok(match command {
        Command::Complete => {
            let response = Some(stored(201));
            let request =
                proto::CompleteRequest { scope, key, operation_id, fencing_token, response, ..Default::default() };
            match client.complete(request).await?.into_inner().outcome.unwrap() {
                complete_response::Outcome::Completed(completed) => {
                    assert!(completed.expires_at.is_some());
                    "completed".to_owned()
                }
                complete_response::Outcome::Superseded(superseded) => name_of(&superseded),
            }
        }
        Command::Release => {
            let request = proto::ReleaseRequest { scope, key, operation_id, fencing_token };
            match client.release(request).await?.into_inner().outcome.unwrap() {
                release_response::Outcome::Released(_) => "released".to_owned(),
                release_response::Outcome::Superseded(superseded) => name_of(&superseded),
            }
        }
        Command::Abandon => {
            let request = proto::AbandonRequest { scope, key, operation_id, fencing_token };
            match client.abandon(request).await?.into_inner().outcome.unwrap() {
                abandon_response::Outcome::Abandoned(_) => "abandoned".to_owned(),
                abandon_response::Outcome::Superseded(superseded) => name_of(&superseded),
            }
        }
        Command::Renew => {
            let request = proto::RenewRequest { scope, key, operation_id, fencing_token, lease: None };
            match client.renew(request).await?.into_inner().outcome.unwrap() {
                renew_response::Outcome::Renewed(renewed) => {
                    assert!(renewed.lease_expires_at.is_some());
                    "renewed".to_owned()
                }
                renew_response::Outcome::Superseded(superseded) => name_of(&superseded),
            }
        }
    })
}

pub async fn finish(client: &Client, command: Command, key: &str, held: &proto::Granted) -> String {
    carry_out(client, command, key, &held.operation_id, held.fencing_token).await.unwrap()
}

/// The state that superseded, and whether it brings an answer along.
fn name_of(superseded: &proto::Superseded) -> String {
    let state = superseded.state().as_str_name().trim_start_matches("STATE_").to_lowercase();
    let answer = if superseded.replay.is_some() { ", with its answer" } else { "" };
    format!("superseded by {state}{answer}")
}

pub async fn reclaim(client: &Client, key: &str, operation_id: &str, token: i64) -> reclaim_response::Outcome {
    let request = proto::ReclaimRequest {
        scope: SCOPE.to_owned(),
        key: key.to_owned(),
        operation_id: operation_id.to_owned(),
        fencing_token: token,
        attempt_id: Uuid::new_v4().to_string(),
        lease: None,
    };
    client.clone().reclaim(request).await.unwrap().into_inner().outcome.unwrap()
}

pub async fn get(client: &Client, key: &str) -> Result<proto::KeyRecord, Status> {
    let request = proto::GetRequest { scope: SCOPE.to_owned(), key: key.to_owned() };
    Ok(client.clone().get(request).await?.into_inner().record.unwrap())
}

/// The stable reason of a refusal.
pub fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!(info.domain, "idem");
    info.reason.clone()
}

/// The fields that a refusal names, in order.
pub fn fields(status: &Status) -> Vec<String> {
    let details = status.get_error_details();
    let bad_request = details.bad_request().unwrap_or_else(|| panic!("no BadRequest in {status:?}"));
    assert!(bad_request.field_violations.iter().all(|violation| !violation.description.is_empty()));
    bad_request.field_violations.iter().map(|violation| violation.field.clone()).collect()
}
