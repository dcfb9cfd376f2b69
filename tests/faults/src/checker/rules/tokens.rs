//! Fencing tokens only grow, a key keeps its operation, a finished key stays finished; and the orders service has never seen a token
//! that the idempotency service has not granted.

use std::collections::BTreeMap;

use crate::{
    checker::{Case, Violation},
    history::{TokenSample, TokenStore},
};

pub(super) const NAME: &str = "tokens";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = over_time(&case.history.tokens);
    let granted: BTreeMap<&str, i64> = case.ledger.keys.iter().map(|row| (row.operation.as_str(), row.token)).collect();
    for operation in &case.ledger.operations {
        let granted = granted.get(operation.id.as_str()).copied().unwrap_or_default();
        if operation.token > granted {
            found.push(ungranted(&operation.id, operation.token, granted, case.ledger.read_ms));
        }
        if operation.answered_token.is_some_and(|answered| answered > operation.token) {
            let what = "it was answered to a token that it has not seen";
            found.push(Violation::new(NAME, what).about(&operation.id).at(case.ledger.read_ms));
        }
    }
    found
}

fn ungranted(operation: &str, token: i64, granted: i64, ms: u64) -> Violation {
    let what = format!("the orders service has seen token {token} and only {granted} was granted");
    Violation::new(NAME, what).about(operation).at(ms)
}

/// Samples of one round have the same moment, and the orders service was looked at first.
fn over_time(samples: &[TokenSample]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last = BTreeMap::<(TokenStore, &str), &TokenSample>::new();
    let mut granted = BTreeMap::<&str, i64>::new();
    for round in samples.chunk_by(|one, other| one.ms == other.ms) {
        for sample in round {
            if let Some(before) = last.insert((sample.store, &sample.name), sample)
                && let Some(what) = went_back(before, sample)
            {
                found.push(Violation::new(NAME, what).about(&sample.name).at(sample.ms));
            }
            if sample.store == TokenStore::Idem {
                granted.insert(&sample.operation, sample.token);
            }
        }
        for sample in round.iter().filter(|sample| sample.store == TokenStore::Orders) {
            let granted = granted.get(sample.operation.as_str()).copied().unwrap_or_default();
            if sample.token > granted {
                found.push(ungranted(&sample.operation, sample.token, granted, sample.ms));
            }
        }
    }
    found
}

fn went_back(before: &TokenSample, now: &TokenSample) -> Option<String> {
    if now.token < before.token {
        return Some(format!("its token went from {} to {}", before.token, now.token));
    }
    if now.operation != before.operation {
        return Some(format!("its operation went from {} to {}", before.operation, now.operation));
    }
    let is_finished = matches!(before.state.as_str(), "completed" | "final");
    (is_finished && now.state != before.state).then(|| format!("it went from {} to {:?}", before.state, now.state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::Fixture;

    fn again(change: impl FnOnce(&mut TokenSample), store: TokenStore) -> Vec<String> {
        let mut fixture = Fixture::good();
        let sample = fixture.history.tokens.iter().find(|sample| sample.store == store).unwrap();
        let mut later = TokenSample { ms: 90_000, ..sample.clone() };
        change(&mut later);
        fixture.history.tokens.push(later);
        fixture.broken(check)
    }

    #[test]
    fn what_goes_back_is_reported() {
        for store in [TokenStore::Idem, TokenStore::Orders] {
            assert_eq!(again(|_| {}, store), Vec::<String>::new());
            assert_eq!(again(|it| it.token = 0, store)[0], "its token went from 1 to 0");
            assert!(again(|it| it.operation = "other".into(), store)[0].starts_with("its operation went from"));
            assert!(again(|it| it.state = "in_progress".into(), store)[0].starts_with("it went from"));
        }
    }

    #[test]
    fn a_token_that_nobody_granted_is_reported() {
        assert_eq!(again(|it| it.token = 2, TokenStore::Idem), Vec::<String>::new());
        let found = again(|it| it.token = 2, TokenStore::Orders);
        assert_eq!(found, ["the orders service has seen token 2 and only 1 was granted"]);
        let mut fixture = Fixture::good();
        fixture.ledger.operations[0].token = 5;
        assert_eq!(fixture.broken(check), ["the orders service has seen token 5 and only 1 was granted"]);
        let mut fixture = Fixture::good();
        fixture.ledger.operations[0].answered_token = Some(2);
        assert_eq!(fixture.broken(check), ["it was answered to a token that it has not seen"]);
    }
}
