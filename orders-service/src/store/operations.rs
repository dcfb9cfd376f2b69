//! Operations: the highest token seen, and what was answered.

use std::collections::{BTreeMap, BTreeSet};

use database::{Row, Tx, params};

use crate::{
    error::OrdersError,
    operation_id::{FencingToken, Grant, OperationId},
    outcome::{Answer, Kind, Label, Outcome},
    wire,
};

/// What is known of an operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The highest token seen.
    pub token: FencingToken,
    /// For whom, once a mutation has come.
    pub identity: Option<Identity>,
    /// The token under which work of several steps last began.
    pub begun: Option<FencingToken>,
    /// The last answer given.
    pub kept: Option<Kept>,
}

/// What an operation id stands for, fixed by its first mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The integration.
    pub tenant: String,
    /// Which RPC.
    pub kind: Kind,
    /// Digest of what was asked.
    pub request: Vec<u8>,
}

/// A token to be raised.
#[derive(Clone, Debug)]
pub struct Raise {
    /// Whose.
    pub grant: Grant,
    /// What its operation id stands for.
    pub identity: Identity,
}

/// An answer kept beside its operation.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The token it was given to.
    pub token: FencingToken,
    /// What was answered for.
    pub kind: Kind,
    /// What to do with it.
    pub label: Label,
    /// What it came to.
    pub outcome: Option<Outcome>,
}

// The upsert is the fence: its guard lets no token through that is lower than one seen, and it locks the row for the rest of the
// transaction.
const RAISE: &str = "\
-- orders.operation_raise
INSERT INTO operations (id, token, created_at)
VALUES ($1, $2, $3)
    ON CONFLICT (id) DO UPDATE
   SET token = excluded.token
 WHERE operations.token <= excluded.token
RETURNING token, tenant, kind, request, begun_token, answered_token, label, result";

// The same fence for many: an operation that stands for something else is not let through either, and what it stands for is written with
// the row. The rows are locked in the order of their ids, in which they are given.
const RAISE_ALL: &str = "\
-- orders.operations_raise
INSERT INTO operations (id, token, tenant, kind, request, created_at)
{rows}
    ON CONFLICT (id) DO UPDATE
   SET token = excluded.token, tenant = excluded.tenant, kind = excluded.kind, request = excluded.request
 WHERE operations.token <= excluded.token
   AND (operations.kind IS NULL
        OR (operations.tenant = excluded.tenant
            AND operations.kind = excluded.kind
            AND operations.request = excluded.request))
RETURNING id, token, tenant, kind, request, begun_token, answered_token, label, result";

const FIND: &str = "\
-- orders.operation_find
SELECT token, tenant, kind, request, begun_token, answered_token, label, result
  FROM operations
 WHERE id = $1";

const LOCK: &str = "\
-- orders.operation_lock
SELECT token, tenant, kind, request, begun_token, answered_token, label, result
  FROM operations
 WHERE id = $1
   FOR UPDATE";

// The locks are taken above the sort, so in the order of the ids.
const LOCK_ALL: &str = "\
-- orders.operations_lock
SELECT id, token, tenant, kind, request, begun_token, answered_token, label, result
  FROM operations
 WHERE id IN ({rows})
 ORDER BY id
   FOR UPDATE";

const IDENTIFY: &str = "\
-- orders.operation_identify
UPDATE operations
   SET tenant = $2, kind = $3, request = $4
 WHERE id = $1
   AND kind IS NULL";

const BEGIN: &str = "\
-- orders.operation_begin
UPDATE operations
   SET begun_token = $2
 WHERE id = $1
   AND token = $2";

const BEGIN_ALL: &str = "\
-- orders.operations_begin
  WITH begun (id, token) AS ({rows})
UPDATE operations
   SET begun_token = begun.token
  FROM begun
 WHERE operations.id = begun.id
   AND operations.token = begun.token";

const KEEP: &str = "\
-- orders.operation_keep
UPDATE operations
   SET answered_token = $2, label = $3, result = $4
 WHERE id = $1
   AND token = $2
   AND (label IS NULL OR label <> 'final')";

const KEEP_ALL: &str = "\
-- orders.operations_keep
  WITH kept (id, token, label, result) AS ({rows})
UPDATE operations
   SET answered_token = kept.token, label = kept.label, result = kept.result
  FROM kept
 WHERE operations.id = kept.id
   AND operations.token = kept.token
   AND (operations.label IS NULL OR operations.label <> 'final')";

// The acquirer's word is final whoever holds the key now; it answers the token under which the payment was last sent.
const SETTLE: &str = "\
-- orders.operation_settle
UPDATE operations
   SET answered_token = COALESCE(begun_token, token), label = 'final', result = $2
 WHERE id = $1
   AND (label IS NULL OR label <> 'final')";

const SETTLE_ALL: &str = "\
-- orders.operations_settle
  WITH settled (operation, outcome) AS ({rows})
UPDATE operations
   SET answered_token = COALESCE(begun_token, token), label = 'final', result = settled.outcome
  FROM settled
 WHERE id = settled.operation
   AND (label IS NULL OR label <> 'final')
RETURNING id, answered_token";

/// Raises the operation's token and locks it; makes the row of an operation never seen, so that it fences from now on.
pub async fn raise(tx: &mut Tx<'_>, grant: Grant) -> Result<Operation, OrdersError> {
    let params = params![grant.operation.to_string(), grant.token.get(), tx.now()];
    #[cfg(feature = "sabotage")]
    if crate::sabotage::breaks("fence") {
        let unguarded = RAISE.replace("WHERE operations.token <= excluded.token", "");
        let row = tx.query_opt(&unguarded, &params).await?;
        return read(&row.ok_or(OrdersError::StaleToken)?);
    }
    match tx.query_opt(RAISE, &params).await? {
        Some(row) => read(&row),
        None => Err(OrdersError::StaleToken),
    }
}

/// Raises and locks many operations, given in the order of their ids, each once, and fixes what they stand for. Those that have seen a
/// higher token, or stand for something else, are not among the answered, and are locked too.
pub async fn raise_all(tx: &mut Tx<'_>, raises: &[Raise]) -> Result<BTreeMap<OperationId, Operation>, OrdersError> {
    let now = tx.now();
    let row = |raise: &Raise| {
        let (grant, identity) = (raise.grant, &raise.identity);
        let (kind, request) = (identity.kind.as_str(), &identity.request);
        params![grant.operation.to_string(), grant.token.get(), &identity.tenant, kind, request, now]
    };
    let rows: Vec<_> = raises.iter().map(row).collect();
    #[cfg(feature = "sabotage")]
    let unguarded = RAISE_ALL.replace("operations.token <= excluded.token", "1 = 1");
    #[cfg(feature = "sabotage")]
    let raised =
        tx.query_rows(if crate::sabotage::breaks("fence") { &unguarded } else { RAISE_ALL }, &[], &rows).await?;
    #[cfg(not(feature = "sabotage"))]
    let raised = tx.query_rows(RAISE_ALL, &[], &rows).await?;
    raised.iter().map(|row| Ok((super::id(row, "id", OperationId::parse)?, read(row)?))).collect()
}

/// Reads an operation without locking it.
pub async fn find(tx: &mut Tx<'_>, operation: OperationId) -> Result<Option<Operation>, OrdersError> {
    tx.query_opt(FIND, &params![operation.to_string()]).await?.as_ref().map(read).transpose()
}

/// Locks an operation that must exist.
pub async fn lock(tx: &mut Tx<'_>, operation: OperationId) -> Result<Operation, OrdersError> {
    let row = tx.query_opt(LOCK, &params![operation.to_string()]).await?;
    read(&row.ok_or(OrdersError::Corrupt("a payment without its operation"))?)
}

/// Locks operations in the order of their ids. Those that do not exist are not among them.
pub async fn lock_all(
    tx: &mut Tx<'_>,
    operations: &BTreeSet<OperationId>,
) -> Result<BTreeMap<OperationId, Operation>, OrdersError> {
    let rows: Vec<_> = operations.iter().map(|operation| params![operation.to_string()]).collect();
    let found = tx.query_rows(LOCK_ALL, &[], &rows).await?;
    found.iter().map(|row| Ok((super::id(row, "id", OperationId::parse)?, read(row)?))).collect()
}

/// Fixes what the operation id stands for.
pub async fn identify(tx: &mut Tx<'_>, operation: OperationId, identity: &Identity) -> Result<(), OrdersError> {
    let params = params![operation.to_string(), &identity.tenant, identity.kind.as_str(), &identity.request];
    super::exactly(1, tx.execute(IDENTIFY, &params).await?)
}

/// Notes that work of several steps begins under this token: a repeat of the token waits instead of acting.
pub async fn begin(tx: &mut Tx<'_>, grant: Grant) -> Result<(), OrdersError> {
    super::exactly(1, tx.execute(BEGIN, &params![grant.operation.to_string(), grant.token.get()]).await?)
}

/// Notes the same for operations that are locked and whose tokens these are.
pub async fn begin_all(tx: &mut Tx<'_>, grants: impl Iterator<Item = Grant>) -> Result<(), OrdersError> {
    let rows: Vec<_> = grants.map(|grant| params![grant.operation.to_string(), grant.token.get()]).collect();
    super::exactly(rows.len() as u64, tx.execute_rows(BEGIN_ALL, &[], &rows).await?)
}

/// Keeps the answer given to this token; false when a higher token or a final answer is there, which then stands.
pub async fn keep(tx: &mut Tx<'_>, grant: Grant, kind: Kind, answer: &Answer) -> Result<bool, OrdersError> {
    let result = answer.outcome.as_ref().map(|outcome| wire::encode(kind, outcome));
    let params = params![grant.operation.to_string(), grant.token.get(), answer.label.as_str(), result];
    Ok(tx.execute(KEEP, &params).await? == 1)
}

/// Keeps the answers given to locked operations, whose tokens these are and which have no final answer.
pub async fn keep_all<'a>(
    tx: &mut Tx<'_>,
    kind: Kind,
    answers: impl Iterator<Item = (Grant, &'a Answer)>,
) -> Result<(), OrdersError> {
    let row = |(grant, answer): (Grant, &Answer)| {
        let result = answer.outcome.as_ref().map(|outcome| wire::encode(kind, outcome));
        params![grant.operation.to_string(), grant.token.get(), answer.label.as_str(), result]
    };
    let rows: Vec<_> = answers.map(row).collect();
    super::exactly(rows.len() as u64, tx.execute_rows(KEEP_ALL, &[], &rows).await?)
}

/// Keeps what the acquirer's word made of a payment's operation, for good.
pub async fn settle(tx: &mut Tx<'_>, operation: OperationId, outcome: &Outcome) -> Result<(), OrdersError> {
    super::exactly(1, tx.execute(SETTLE, &params![operation.to_string(), wire::encode(Kind::Pay, outcome)]).await?)
}

/// Keeps what the acquirer's words made of locked operations, for good; returns what is kept.
pub async fn settle_all(
    tx: &mut Tx<'_>,
    outcomes: BTreeMap<OperationId, Outcome>,
) -> Result<BTreeMap<OperationId, Kept>, OrdersError> {
    let row = |(id, outcome): (&OperationId, &Outcome)| params![id.to_string(), wire::encode(Kind::Pay, outcome)];
    let rows: Vec<_> = outcomes.iter().map(row).collect();
    let mut tokens = BTreeMap::new();
    for row in tx.query_rows(SETTLE_ALL, &[], &rows).await? {
        tokens.insert(super::id(&row, "id", OperationId::parse)?, token(&row, "answered_token")?);
    }
    super::exactly(rows.len() as u64, tokens.len() as u64)?;
    let kept = outcomes.into_iter().map(|(id, outcome)| {
        let token = tokens.remove(&id).flatten().ok_or(OrdersError::Corrupt("answered_token"))?;
        Ok((id, Kept { token, kind: Kind::Pay, label: Label::Final, outcome: Some(outcome) }))
    });
    kept.collect()
}

fn read(row: &Row) -> Result<Operation, OrdersError> {
    Ok(Operation {
        token: token(row, "token")?.ok_or(OrdersError::Corrupt("token"))?,
        identity: identity(row)?,
        begun: token(row, "begun_token")?,
        kept: kept(row)?,
    })
}

fn identity(row: &Row) -> Result<Option<Identity>, OrdersError> {
    let parts = (row.get::<Option<String>>("tenant")?, row.get::<Option<String>>("kind")?, row.get("request")?);
    Ok(match parts {
        (Some(tenant), Some(kind), Some(request)) => Some(Identity { tenant, kind: read_kind(&kind)?, request }),
        _ => None,
    })
}

fn kept(row: &Row) -> Result<Option<Kept>, OrdersError> {
    let Some(token) = token(row, "answered_token")? else { return Ok(None) };
    let label = Label::parse(&row.get::<String>("label")?).ok_or(OrdersError::Corrupt("label"))?;
    let outcome = row.get::<Option<Vec<u8>>>("result")?.map(|bytes| wire::decode(&bytes)).transpose()?;
    let kind = read_kind(&row.get::<String>("kind")?)?;
    Ok(Some(Kept { token, kind, label, outcome }))
}

fn read_kind(word: &str) -> Result<Kind, OrdersError> {
    Kind::parse(word).ok_or(OrdersError::Corrupt("kind of operation"))
}

fn token(row: &Row, column: &'static str) -> Result<Option<FencingToken>, OrdersError> {
    row.get::<Option<i64>>(column)?
        .map(|number| FencingToken::new(number).ok_or(OrdersError::Corrupt(column)))
        .transpose()
}
