//! How every mutation begins and ends: the token is raised first, the answer is kept last, both in the transaction that acts.

use database::Tx;

use crate::{
    error::OrdersError,
    operation_id::{Grant, Tenant},
    outcome::{Answer, Kind, Label},
    store::operations::{self, Identity, Kept, Operation, Raise},
};

/// Who asks for a mutation, and under which grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// On whose behalf.
    pub tenant: Tenant,
    /// Which RPC.
    pub kind: Kind,
    /// Digest of what is asked.
    pub request: Vec<u8>,
    /// None for a mutation without a key: the guards on its rows are all it needs.
    pub grant: Option<Grant>,
}

/// What is to be done with a call.
#[derive(Debug)]
pub enum Entry {
    /// It acts, and ends with [`leave`].
    Act,
    /// It was answered before.
    Answered(Answer),
    /// The same token is at work on it and has not answered.
    Running,
}

/// Raises the token of the call's operation and says whether to act. The operation stays locked for the rest of the transaction.
pub async fn enter(tx: &mut Tx<'_>, call: &Call) -> Result<Entry, OrdersError> {
    let Some(grant) = call.grant else { return Ok(Entry::Act) };
    let operation = operations::raise(tx, grant).await?;
    let identity = call.identity();
    match &operation.identity {
        None => operations::identify(tx, grant.operation, &identity).await?,
        Some(known) if *known == identity => {}
        Some(_) => return Err(OrdersError::OperationReused),
    }
    Ok(at(operation, grant))
}

/// What a grant is to do with its operation, once its token is raised.
pub fn at(operation: Operation, grant: Grant) -> Entry {
    match operation.kept {
        Some(kept) if kept.label == Label::Final || kept.token == grant.token => Entry::Answered(kept.answer(grant)),
        _ if operation.begun == Some(grant.token) => Entry::Running,
        _ => Entry::Act,
    }
}

/// Why an operation did not take a token. It is locked, so this is why it did not.
pub async fn why_not(tx: &mut Tx<'_>, raise: &Raise) -> Result<OrdersError, OrdersError> {
    let known = operations::find(tx, raise.grant.operation).await?;
    let known = known.ok_or(OrdersError::Corrupt("an operation is gone"))?;
    Ok(if known.token > raise.grant.token { OrdersError::StaleToken } else { OrdersError::OperationReused })
}

/// Keeps the answer of a call that acted. A repeat of its token is given the same.
pub async fn leave(tx: &mut Tx<'_>, call: &Call, answer: Answer) -> Result<Answer, OrdersError> {
    if let Some(grant) = call.grant
        && !operations::keep(tx, grant, call.kind, &answer).await?
    {
        return Err(OrdersError::Corrupt("an operation moved while it was locked"));
    }
    Ok(answer)
}

impl Call {
    /// What the operation id of this call stands for.
    pub fn identity(&self) -> Identity {
        Identity { tenant: self.tenant.as_str().to_owned(), kind: self.kind, request: self.request.clone() }
    }
}

impl Kept {
    /// The kept answer as `grant` is to see it: a replay unless it was this very token's.
    pub fn answer(self, grant: Grant) -> Answer {
        Answer { label: self.label, outcome: self.outcome, is_replay: self.token != grant.token }
    }
}
