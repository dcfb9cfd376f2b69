//! Every state × every command, as a table. The columns are the states that a store can judge a key to be in; a cell says the
//! answer, and behind an arrow what is written: the state and by how much the token grew. `.` writes nothing.

#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod support;

use idem_core::{Answer, Command, Deadline, FencingToken, GrantedBy, Record, State, StateName, Verdict, decide};
use support::*;

// The record: operation 1, token 5, fingerprint 1, attempt 1 (attempt 0 came before).
const TABLE: &str = "
command                   | absent              | live                     | lease over               | in doubt              | completed              | completed, over   | released              | released, over
reserve                   | granted>in_progress | in progress .            | stale lease .            | stale doubt .         | replay .               | new>in_progress+1 | granted>in_progress+1 | new>in_progress+1
reserve, same attempt     | granted>in_progress | granted .                | stale lease .            | stale doubt .         | replay .               | new>in_progress+1 | stale ended .         | new>in_progress+1
reserve, past attempt     | granted>in_progress | in progress .            | stale lease .            | stale doubt .         | replay .               | new>in_progress+1 | stale ended .         | new>in_progress+1
reserve, other request    | granted>in_progress | mismatch .               | mismatch .               | mismatch .            | mismatch .             | new>in_progress+1 | mismatch .            | new>in_progress+1
reclaim                   | absent .            | in progress .            | ask>in_progress+1        | ask>in_progress+1     | replay .               | absent .          | ask>in_progress+1     | absent .
reclaim, older token      | absent .            | in progress .            | in progress .            | in progress .         | replay .               | absent .          | in progress .         | absent .
reclaim, same attempt     | absent .            | in progress .            | ask>in_progress+1        | in progress .         | replay .               | absent .          | in progress .         | absent .
reclaim, past attempt     | absent .            | in progress .            | in progress .            | in progress .         | replay .               | absent .          | in progress .         | absent .
reclaim, other operation  | absent .            | in progress .            | in progress .            | in progress .         | in progress .          | absent .          | in progress .         | absent .
complete                  | superseded - .      | completed>completed      | completed>completed      | completed>completed   | completed .            | superseded - .    | superseded released . | superseded - .
complete, older token     | superseded - .      | superseded in_progress . | superseded in_progress . | superseded in_doubt . | superseded by it .     | superseded - .    | superseded released . | superseded - .
complete, other operation | superseded - .      | superseded in_progress . | superseded in_progress . | superseded in_doubt . | superseded completed . | superseded - .    | superseded released . | superseded - .
release                   | superseded - .      | released>released        | released>released        | superseded in_doubt . | superseded by it .     | superseded - .    | released .            | superseded - .
release, older token      | superseded - .      | superseded in_progress . | superseded in_progress . | superseded in_doubt . | superseded by it .     | superseded - .    | superseded released . | superseded - .
abandon                   | superseded - .      | abandoned>in_doubt       | abandoned>in_doubt       | abandoned .           | superseded by it .     | superseded - .    | superseded released . | superseded - .
abandon, older token      | superseded - .      | superseded in_progress . | superseded in_progress . | superseded in_doubt . | superseded by it .     | superseded - .    | superseded released . | superseded - .
renew                     | superseded - .      | renewed>in_progress      | renewed>in_progress      | superseded in_doubt . | superseded by it .     | superseded - .    | superseded released . | superseded - .
renew, older token        | superseded - .      | superseded in_progress . | superseded in_progress . | superseded in_doubt . | superseded by it .     | superseded - .    | superseded released . | superseded - .
resolve complete          | absent .            | resolved>completed+1     | resolved>completed+1     | resolved>completed+1  | already completed .    | absent .          | resolved>completed+1  | absent .
resolve release           | absent .            | resolved>released+1      | resolved>released+1      | resolved>released+1   | already completed .    | absent .          | resolved>released+1   | absent .
resolve abandon           | absent .            | resolved>in_doubt+1      | resolved>in_doubt+1      | resolved>in_doubt+1   | already completed .    | absent .          | resolved>in_doubt+1   | absent .
resolve, older token      | absent .            | token changed .          | token changed .          | token changed .       | already completed .    | absent .          | token changed .       | absent .
";

fn state(column: &str) -> Option<Record> {
    Some(match column {
        "absent" => return None,
        "live" => record(State::InProgress, Deadline::Ahead),
        "lease over" => record(State::InProgress, Deadline::Passed),
        "in doubt" => record(State::InDoubt, Deadline::Ahead),
        "completed" => record(State::Completed(response(1)), Deadline::Ahead),
        "completed, over" => record(State::Completed(response(1)), Deadline::Passed),
        "released" => record(State::Released, Deadline::Ahead),
        "released, over" => record(State::Released, Deadline::Passed),
        _ => panic!("unknown state {column}"),
    })
}

fn command(row: &str) -> Command {
    let (verb, how) = row.split_once(", ").unwrap_or((row, ""));
    let operation_id = operation(if how == "other operation" { 9 } else { 1 });
    let token = FencingToken(if how == "older token" { 4 } else { 5 });
    match verb {
        "reserve" => match how {
            "same attempt" => reserve(1, 1, 2),
            "past attempt" => reserve(1, 0, 2),
            "other request" => reserve(2, 2, 2),
            _ => reserve(1, 2, 2),
        },
        "reclaim" => {
            let tried = match how {
                "same attempt" => 1,
                "past attempt" => 0,
                _ => 2,
            };
            Command::Reclaim { operation_id, token, attempt_id: attempt(tried), lease: lease() }
        }
        "complete" => Command::Complete { operation_id, token, response: response(2) },
        "release" => Command::Release { operation_id, token },
        "abandon" => Command::Abandon { operation_id, token },
        "renew" => Command::Renew { operation_id, token, lease: lease() },
        "resolve complete" => Command::Resolve { seen: None, outcome: State::Completed(response(2)) },
        "resolve release" => Command::Resolve { seen: Some(FencingToken(5)), outcome: State::Released },
        "resolve abandon" => Command::Resolve { seen: None, outcome: State::InDoubt },
        "resolve" => Command::Resolve { seen: Some(token), outcome: State::Released },
        _ => panic!("unknown command {row}"),
    }
}

/// A verdict in the words of the table; also checks what the words leave out.
fn words(before: Option<&Record>, verdict: &Verdict) -> String {
    let (answer, put) = match verdict {
        Verdict::Keep(answer) => (answer, None),
        Verdict::Put(put, answer) => (answer, Some(put)),
    };
    let answer = match answer {
        Answer::Granted(grant) => {
            let fresh = before.is_some_and(|b| b.operation_id != grant.operation_id);
            let word = if fresh { "new" } else { "granted" };
            (if grant.must_ask { "ask" } else { word }).to_string()
        }
        Answer::Replay(r) => {
            assert_eq!(r, &response(1), "a replay is the first answer");
            "replay".into()
        }
        Answer::InProgress => "in progress".into(),
        Answer::Mismatch => "mismatch".into(),
        Answer::Stale(operation_id, token, reason) => {
            let before = before.unwrap();
            assert!(before.is_current(*operation_id, *token), "stale names what Reclaim must have seen");
            format!(
                "stale {}",
                match reason {
                    idem_core::StaleReason::LeaseExpired => "lease",
                    idem_core::StaleReason::InDoubt => "doubt",
                    idem_core::StaleReason::AttemptEnded => "ended",
                }
            )
        }
        Answer::Completed => "completed".into(),
        Answer::Released => "released".into(),
        Answer::Abandoned => "abandoned".into(),
        Answer::Renewed => "renewed".into(),
        Answer::SupersededBy(r) => {
            assert_eq!(r, &response(1), "the answer is the first one");
            "superseded by it".into()
        }
        Answer::Superseded(state) => format!("superseded {}", state.map_or("-", StateName::as_str)),
        Answer::Resolved => "resolved".into(),
        Answer::AlreadyCompleted => "already completed".into(),
        Answer::TokenChanged(_) => "token changed".into(),
        Answer::Absent => "absent".into(),
    };
    match put {
        None => format!("{answer} ."),
        Some(put) => {
            let grew = put.record.token.0 - before.map_or(FencingToken::FIRST, |b| b.token).0;
            let grew = if grew == 0 { String::new() } else { format!("+{grew}") };
            format!("{answer}>{}{grew}", put.record.state.name().as_str())
        }
    }
}

#[test]
fn every_command_in_every_state_does_what_the_table_says() {
    let mut lines = TABLE.trim().lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let mut cells = 0;
    for row in lines {
        for (column, expected) in columns.iter().zip(&row).skip(1) {
            let before = state(column);
            let verdict = decide(before.as_ref(), command(row[0]));
            assert_eq!(words(before.as_ref(), &verdict), *expected, "{} × {column}", row[0]);
            cells += 1;
        }
    }
    assert_eq!(cells, 22 * 8, "the table is whole");
}

#[test]
fn a_reclaim_repeated_with_its_attempt_gets_the_same_grant_while_it_holds() {
    let held = Record { granted_by: GrantedBy::Reclaim, ..record(State::InProgress, Deadline::Ahead) };
    let again =
        Command::Reclaim { operation_id: operation(1), token: FencingToken(4), attempt_id: attempt(1), lease: lease() };
    assert_eq!(words(Some(&held), &decide(Some(&held), again.clone())), "ask .");
    let over = Record { deadline: Deadline::Passed, ..held.clone() };
    assert_eq!(words(Some(&over), &decide(Some(&over), again.clone())), "in progress .");
    let by_reserve = Record { granted_by: GrantedBy::Reserve, ..held };
    assert_eq!(words(Some(&by_reserve), &decide(Some(&by_reserve), again)), "in progress .");
}

#[test]
fn a_reserve_that_repeats_a_reclaims_attempt_must_still_ask() {
    let held = Record { granted_by: GrantedBy::Reclaim, ..record(State::InProgress, Deadline::Ahead) };
    assert_eq!(words(Some(&held), &decide(Some(&held), reserve(1, 1, 2))), "ask .");
}

#[test]
fn a_new_generation_begins_its_count_and_forgets_ended_attempts() {
    let before = record(State::Released, Deadline::Passed);
    let Verdict::Put(put, Answer::Granted(grant)) = decide(Some(&before), reserve(2, 2, 2)) else { panic!() };
    assert!(put.is_new);
    assert_eq!((grant.attempts, put.record.past_attempts.len()), (1, 0));
    assert_eq!((put.record.operation_id, put.record.fingerprint), (operation(2), fingerprint(2)));
}

#[test]
fn the_list_of_ended_attempts_is_bounded_and_keeps_the_latest() {
    let mut current = record(State::Released, Deadline::Ahead);
    for n in 2..200 {
        let Verdict::Put(put, _) = decide(Some(&current), reserve(1, n, 0)) else { panic!() };
        current = Record { state: State::Released, ..put.record };
    }
    assert_eq!(current.past_attempts.len(), Record::PAST_ATTEMPTS_MAX);
    assert!(current.has_ended(attempt(198)) && current.has_ended(attempt(199)));
    assert!(!current.has_ended(attempt(2)), "the oldest are forgotten");
}
