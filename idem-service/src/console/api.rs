//! The console's JSON API: the admin service, transcoded.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use chassis::service_auth::{Caller, Unauthenticated};
use idem_proto::idem::v1 as proto;
use proto::admin_service_server::AdminService;
use serde::Serialize;
use tonic::{Code, Request, Status};

use super::access::Access;
use super::view::{AuditPage, AuditQuery, Key, Keys, KeysQuery, OneQuery, ResolveBody, Stats, StatsQuery};
use crate::admin_rpc::AdminRpc;
use crate::engine::Engine;
use crate::status::Refusal;
use crate::wire::{record, request};

/// What the API answers from.
#[derive(Clone)]
pub(crate) struct Api {
    engine: Arc<Engine>,
    admin: AdminRpc,
    access: Access,
}

/// An answer that is not the one hoped for: a status and one sentence.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    sentence: String,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
}

pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/stats", get(stats))
        .route("/keys", get(keys))
        .route("/key", get(key))
        .route("/audit", get(audit))
        .route("/resolve", post(resolve))
        .fallback(|| async { ApiError { status: StatusCode::NOT_FOUND, sentence: "no such path".to_owned() } })
        .with_state(api)
}

async fn stats(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Result<Query<StatsQuery>, QueryRejection>,
) -> Result<Json<Stats>, ApiError> {
    let caller = api.access.admit(&headers, "Stats")?;
    let Query(query) = query?;
    let stats = api.admin.stats(as_caller(query.into(), caller)).await?;
    Ok(Json(stats.into_inner().into()))
}

async fn keys(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Result<Query<KeysQuery>, QueryRejection>,
) -> Result<Json<Keys>, ApiError> {
    let caller = api.access.admit(&headers, "List")?;
    let Query(query) = query?;
    let list = query.try_into().map_err(ApiError::invalid)?;
    let keys = api.admin.list(as_caller(list, caller)).await?;
    Ok(Json(keys.into_inner().into()))
}

/// One key by its name: the grant for List covers it, since List would find it too.
async fn key(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Result<Query<OneQuery>, QueryRejection>,
) -> Result<Json<Key>, ApiError> {
    let caller = api.access.admit(&headers, "List")?;
    let Query(OneQuery { scope, key }) = query?;
    let id = request::key_id(scope, key)?;
    if !caller.may_use_scope(id.scope.as_str()) {
        return Err(Refusal::ScopeNotGranted.into());
    }
    let snapshot = api.engine.get(&id, None).await.map_err(Refusal::from)?;
    let found = record::key_record(&id, &snapshot).ok_or(Refusal::NoRecord)?;
    Ok(Json(found.into()))
}

/// What was settled by hand.
async fn audit(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Json<AuditPage>, ApiError> {
    let caller = api.access.admit(&headers, "ListAudit")?;
    let Query(query) = query?;
    let lines = api.admin.list_audit(as_caller(query.into(), caller)).await?;
    Ok(Json(lines.into_inner().into()))
}

async fn resolve(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Result<Json<ResolveBody>, JsonRejection>,
) -> Result<Json<Key>, ApiError> {
    Access::admit_change(&headers)?;
    let caller = api.access.admit(&headers, "Resolve")?;
    let Json(body) = body?;
    let resolved = api.admin.resolve(as_caller(body.into(), caller)).await?.into_inner();
    Ok(Json(resolved.record.unwrap_or_default().into()))
}

fn as_caller<T>(message: T, caller: Caller) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller);
    request
}

// === impl Api ===

impl Api {
    pub(crate) fn new(engine: Arc<Engine>, access: Access) -> Self {
        Self { admin: AdminRpc::new(engine.clone()), engine, access }
    }
}

// === impl ApiError ===

impl ApiError {
    pub(super) fn unauthenticated(why: Unauthenticated) -> Self {
        Self { status: StatusCode::UNAUTHORIZED, sentence: why.message().to_owned() }
    }

    pub(super) fn forbidden(sentence: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, sentence }
    }

    fn invalid(sentence: String) -> Self {
        Self { status: StatusCode::BAD_REQUEST, sentence }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        let code = match status.code() {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
            Code::Unavailable | Code::DeadlineExceeded => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status: code, sentence: status.message().to_owned() }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Status::from(refusal).into()
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self { status: rejection.status(), sentence: rejection.body_text() }
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self { status: rejection.status(), sentence: rejection.body_text() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ErrorBody { error: &self.sentence })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
