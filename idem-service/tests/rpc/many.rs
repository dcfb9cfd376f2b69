//! Many items in one call: each is answered as if it had come alone, at the same time as the others.

use std::collections::BTreeSet;

use futures::future::join;
use idem_proto::idem::v1 as proto;
use proto::complete_response::Outcome as Completed;
use tonic::{Code, Status};
use uuid::Uuid;

use crate::calls::{
    Client, Command, Outcome as Reserved, SCOPE, fields, finish, get, grant, reason, reserve, reserve_request, seconds,
    stored, without_countdown,
};
use crate::server::Server;

async fn try_reserve_many(client: &Client, items: Vec<proto::ReserveRequest>) -> Result<Vec<Reserved>, Status> {
    let answer = client.clone().reserve_many(proto::ReserveManyRequest { items }).await?;
    Ok(answer.into_inner().outcomes.into_iter().map(|outcome| outcome.outcome.unwrap()).collect())
}

async fn reserve_many(client: &Client, items: Vec<proto::ReserveRequest>) -> Vec<Reserved> {
    let asked = items.len();
    let outcomes = try_reserve_many(client, items).await.unwrap();
    assert_eq!(outcomes.len(), asked);
    outcomes
}

async fn try_complete_many(client: &Client, items: Vec<proto::CompleteRequest>) -> Result<Vec<Completed>, Status> {
    let answer = client.clone().complete_many(proto::CompleteManyRequest { items }).await?;
    Ok(answer.into_inner().outcomes.into_iter().map(|outcome| outcome.outcome.unwrap()).collect())
}

fn complete_request(key: &str, held: &proto::Granted) -> proto::CompleteRequest {
    proto::CompleteRequest {
        scope: SCOPE.to_owned(),
        key: key.to_owned(),
        operation_id: held.operation_id.clone(),
        fencing_token: held.fencing_token,
        response: Some(stored(201)),
        ..Default::default()
    }
}

fn granted(outcome: &Reserved) -> Option<&proto::Granted> {
    if let Reserved::Granted(granted) = outcome { Some(granted) } else { None }
}

/// A test on each store.
macro_rules! on_both_stores {
    ($($scenario:ident: $sqlite:ident, $postgres:ident;)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $sqlite() {
            $scenario(Server::on_sqlite().await).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $postgres() {
            $scenario(Server::on_postgres(stringify!($scenario)).await).await;
        }
    )+};
}

on_both_stores! {
    duplicates: items_that_repeat_another_are_concurrent_duplicates_on_sqlite,
        items_that_repeat_another_are_concurrent_duplicates_on_postgres;
    opposite_orders: calls_in_opposite_orders_have_one_grant_for_each_key_on_sqlite,
        calls_in_opposite_orders_have_one_grant_for_each_key_on_postgres;
    five_hundred: five_hundred_keys_live_their_lives_in_two_calls_on_sqlite,
        five_hundred_keys_live_their_lives_in_two_calls_on_postgres;
    every_state: every_state_is_answered_as_it_would_be_alone_on_sqlite,
        every_state_is_answered_as_it_would_be_alone_on_postgres;
    superseded: a_holder_that_was_superseded_hears_it_as_it_would_alone_on_sqlite,
        a_holder_that_was_superseded_hears_it_as_it_would_alone_on_postgres;
}

async fn duplicates(server: Server) {
    let client = server.client();
    for round in 0..20 {
        let same = reserve_request(&format!("same {round}"));
        let twice = reserve_request(&format!("twice {round}"));
        let other_attempt = || proto::ReserveRequest { attempt_id: Uuid::new_v4().to_string(), ..same.clone() };
        let other_body = proto::ReserveRequest { fingerprint: vec![8; 32].into(), ..other_attempt() };
        let items = vec![other_attempt(), twice.clone(), other_body, other_attempt(), twice, other_attempt()];
        let outcomes = reserve_many(&client, items).await;
        // The same attempt is one grant, told twice.
        assert!(granted(&outcomes[1]).is_some(), "{:?}", outcomes[1]);
        assert_eq!(outcomes[1], outcomes[4]);
        let rest = [0, 2, 3, 5].map(|place| &outcomes[place]);
        let winners: Vec<usize> = (0..4).filter(|place| granted(rest[*place]).is_some()).collect();
        assert_eq!(winners.len(), 1, "{rest:?}");
        for (place, outcome) in rest.iter().enumerate().filter(|(place, _)| *place != winners[0]) {
            let same_body = (place == 1) == (winners[0] == 1);
            let expected = if same_body { "in progress" } else { "mismatch" };
            let heard = match outcome {
                Reserved::InProgress(_) => "in progress",
                Reserved::Mismatch(_) => "mismatch",
                other => panic!("{other:?}"),
            };
            assert_eq!(heard, expected, "place {place}, winner {}", winners[0]);
        }
    }
    server.stop().await;
}

async fn opposite_orders(server: Server) {
    let client = server.client();
    for round in 0..10 {
        let call = || (0..50).map(|n| reserve_request(&format!("{round} {n:02}"))).collect::<Vec<_>>();
        let (forth, mut back) = (call(), call());
        back.reverse();
        let (forth, mut back) = join(reserve_many(&client, forth), reserve_many(&client, back)).await;
        back.reverse();
        let (mut done_forth, mut done_back) = (Vec::new(), Vec::new());
        for (n, (one, other)) in forth.iter().zip(&back).enumerate() {
            let held = match (granted(one), granted(other)) {
                (Some(held), None) | (None, Some(held)) => held,
                _ => panic!("round {round}, key {n}: {one:?} {other:?}"),
            };
            let key = format!("{round} {n:02}");
            done_forth.push(complete_request(&key, held));
            let other_answer = Some(stored(202));
            done_back.push(proto::CompleteRequest { response: other_answer, ..complete_request(&key, held) });
        }
        done_back.reverse();
        // The same holder, twice at once: the first response of each key stands, and both hear that it is completed.
        let done = join(try_complete_many(&client, done_forth), try_complete_many(&client, done_back)).await;
        for outcome in done.0.unwrap().iter().chain(&done.1.unwrap()) {
            assert!(matches!(outcome, Completed::Completed(_)), "{outcome:?}");
        }
        for n in 0..50 {
            let key = format!("{round} {n:02}");
            let Reserved::Replay(replay) = reserve(&client, &key).await else { panic!("{key} is not completed") };
            let status = replay.response.unwrap().status;
            assert!(status == 201 || status == 202, "{status}");
        }
    }
    server.stop().await;
}

async fn five_hundred(server: Server) {
    let client = server.client();
    let keys: Vec<String> = (0..500).map(|n| format!("key {n}")).collect();
    let fresh: Vec<_> = keys.iter().map(|key| reserve_request(key)).collect();
    let outcomes = reserve_many(&client, fresh.clone()).await;
    let held: Vec<&proto::Granted> = outcomes.iter().map(|outcome| granted(outcome).expect("a fresh key")).collect();
    let operations: BTreeSet<&str> = held.iter().map(|held| held.operation_id.as_str()).collect();
    assert_eq!(operations.len(), 500);
    // A lost answer is given again, in the order that is asked.
    let mut backwards = fresh;
    backwards.reverse();
    let mut again = reserve_many(&client, backwards).await;
    again.reverse();
    assert_eq!(again, outcomes);
    let bodies = keys.iter().zip(&held).map(|(key, held)| {
        let response = Some(proto::StoredResponse { body: key.clone().into(), ..stored(201) });
        proto::CompleteRequest { response, ..complete_request(key, held) }
    });
    let bodies: Vec<_> = bodies.collect();
    let done = try_complete_many(&client, bodies.clone()).await.unwrap();
    assert!(done.len() == 500 && done.iter().all(|it| matches!(it, Completed::Completed(_))));
    assert_eq!(try_complete_many(&client, bodies).await.unwrap(), done);
    let replays = reserve_many(&client, keys.iter().map(|key| reserve_request(key)).collect()).await;
    for (key, outcome) in keys.iter().zip(&replays) {
        let Reserved::Replay(replay) = outcome else { panic!("{key}: {outcome:?}") };
        assert_eq!(replay.response.as_ref().unwrap().body, key.as_bytes());
    }
    server.stop().await;
}

async fn every_state(server: Server) {
    let client = server.client();
    let over = proto::ReserveRequest { lease: seconds(1), ..reserve_request("over") };
    let outcomes = reserve_many(&client, vec![over]).await;
    assert!(granted(&outcomes[0]).is_some());
    server.hand.advance(std::time::Duration::from_secs(1));
    let names = ["completed", "released", "in doubt"];
    for (key, command) in names.into_iter().zip([Command::Complete, Command::Release, Command::Abandon]) {
        let held = grant(&client, key).await;
        finish(&client, command, key, &held).await;
    }
    grant(&client, "running").await;
    let keys = ["completed", "in doubt", "running", "over", "completed"];
    let mut expected = Vec::new();
    for key in keys {
        expected.push(without_countdown(reserve(&client, key).await));
    }
    let items: Vec<_> = keys.iter().copied().chain(["fresh", "released"]).map(reserve_request).collect();
    let outcomes = reserve_many(&client, items).await;
    assert_eq!(outcomes[..5].iter().cloned().map(without_countdown).collect::<Vec<_>>(), expected);
    let fresh = granted(&outcomes[5]).expect("a fresh key is granted");
    assert_eq!((fresh.fencing_token, fresh.attempts), (1, 1));
    let released = granted(&outcomes[6]).expect("a released key is granted");
    assert_eq!((released.fencing_token, released.attempts), (2, 2));
    let others = keys.map(|key| proto::ReserveRequest { fingerprint: vec![9; 32].into(), ..reserve_request(key) });
    for outcome in reserve_many(&client, others.into()).await {
        assert_eq!(outcome, Reserved::Mismatch(proto::Mismatch {}));
    }
    server.stop().await;
}

async fn superseded(server: Server) {
    let client = server.client();
    let mut items = Vec::new();
    for (key, command) in [("completed", Command::Complete), ("released", Command::Release)] {
        let held = grant(&client, key).await;
        finish(&client, command, key, &held).await;
        let late = proto::Granted { fencing_token: held.fencing_token + 1, ..held.clone() };
        let stranger = proto::Granted { operation_id: Uuid::new_v4().to_string(), ..held.clone() };
        items.extend([held, late, stranger].map(|holder| complete_request(key, &holder)));
    }
    items.push(complete_request(
        "absent",
        &proto::Granted { operation_id: Uuid::new_v4().to_string(), ..Default::default() },
    ));
    let mut alone = Vec::new();
    for item in &items {
        alone.push(client.clone().complete(item.clone()).await.unwrap().into_inner().outcome.unwrap());
    }
    let fresh = grant(&client, "fresh").await;
    items.push(complete_request("fresh", &fresh));
    let together = try_complete_many(&client, items).await.unwrap();
    let timeless = |outcomes: &[Completed]| {
        let each = |outcome: &Completed| match outcome.clone() {
            Completed::Superseded(by) => {
                let replay = by.replay.map(|replay| proto::Replay { expires_in: None, ..replay });
                Completed::Superseded(proto::Superseded { replay, ..by })
            }
            completed => completed,
        };
        outcomes.iter().map(each).collect::<Vec<_>>()
    };
    assert_eq!(timeless(&together[..7]), timeless(&alone));
    assert!(matches!(together[7], Completed::Completed(_)), "{:?}", together[7]);
    let with_answer = |it: &Completed| matches!(it, Completed::Superseded(by) if by.replay.is_some());
    let seen: Vec<bool> = together.iter().map(with_answer).collect();
    assert_eq!(seen, [false, true, false, false, false, false, false, false]);
    server.stop().await;
}

fn assert_invalid(status: &Status, expected: &[&str]) {
    assert_eq!((status.code(), reason(status).as_str()), (Code::InvalidArgument, "INVALID_FIELD"), "{status:?}");
    assert_eq!(fields(status), expected);
}

#[tokio::test]
async fn the_first_item_that_is_out_of_bounds_refuses_the_call_and_nothing_is_done() {
    type Change = fn(&mut proto::ReserveRequest);
    let server = Server::on_sqlite().await;
    let client = server.client();
    let table: [(&[&str], Change); 4] = [
        (&["items[3].key"], |it| it.key.clear()),
        (&["items[3].scope", "items[3].fingerprint"], |it| (it.scope, it.fingerprint) = <_>::default()),
        (&["items[3].wait"], |it| it.wait = seconds(1)),
        (&["items[3].trace_context"], |it| it.trace_context = "t".repeat(129)),
    ];
    for (expected, change) in table {
        let mut items: Vec<_> = (0..6).map(|n| reserve_request(&n.to_string())).collect();
        change(&mut items[3]);
        // Another one after it is not named too.
        items[5].key.clear();
        assert_invalid(&try_reserve_many(&client, items).await.unwrap_err(), expected);
    }
    let held = grant(&client, "held").await;
    let mut items = vec![complete_request("held", &held); 2];
    items[1].response.as_mut().unwrap().body = vec![0; 1024 * 1024 + 1].into();
    assert_invalid(&try_complete_many(&client, items.clone()).await.unwrap_err(), &["items[1].response.body"]);
    items[1] = proto::CompleteRequest { trace_context: "é".to_owned(), ..complete_request("held", &held) };
    assert_invalid(&try_complete_many(&client, items).await.unwrap_err(), &["items[1].trace_context"]);
    assert_eq!(get(&client, "held").await.unwrap().state(), proto::State::InProgress);
    for key in ["0", "1", "2", "4"] {
        assert_eq!(get(&client, key).await.unwrap_err().code(), Code::NotFound, "{key}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_call_has_five_hundred_items_at_most_and_may_have_none() {
    let server = Server::on_sqlite().await;
    let client = server.client();
    assert_eq!(reserve_many(&client, Vec::new()).await, []);
    assert_eq!(try_complete_many(&client, Vec::new()).await.unwrap(), []);
    let items: Vec<_> = (0..501).map(|n| reserve_request(&n.to_string())).collect();
    assert_invalid(&try_reserve_many(&client, items).await.unwrap_err(), &["items"]);
    let items = vec![proto::CompleteRequest::default(); 501];
    assert_invalid(&try_complete_many(&client, items).await.unwrap_err(), &["items"]);
    assert_eq!(get(&client, "0").await.unwrap_err().code(), Code::NotFound);
    // A wait of nothing is none.
    let item = proto::ReserveRequest { wait: seconds(0), ..reserve_request("k") };
    assert!(granted(&reserve_many(&client, vec![item]).await[0]).is_some());
    server.stop().await;
}

#[tokio::test]
async fn answers_too_large_for_one_message_are_asked_for_in_smaller_calls() {
    const MIB: usize = 1024 * 1024;
    let server = Server::on_sqlite().await;
    let client = server.client().max_decoding_message_size(32 * MIB);
    let large = |key: &str, held: &proto::Granted| {
        let response = proto::StoredResponse { body: vec![b'x'; MIB].into(), ..stored(200) };
        proto::CompleteRequest { response: Some(response), ..complete_request(key, held) }
    };
    let keys: Vec<String> = (0..16).map(|n| n.to_string()).collect();
    for key in &keys {
        let held = grant(&client, key).await;
        client.clone().complete(large(key, &held)).await.unwrap();
    }
    let items = |keys: &[String]| keys.iter().map(|key| reserve_request(key)).collect::<Vec<_>>();
    let mut with_fresh = items(&keys);
    let fresh = reserve_request("fresh");
    with_fresh.push(fresh.clone());
    let refused = try_reserve_many(&client, with_fresh).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::ResourceExhausted, "ANSWER_TOO_LARGE"));
    // What was carried out is answered again.
    let mut smaller = items(&keys[..15]);
    smaller.push(fresh);
    let outcomes = reserve_many(&client, smaller).await;
    assert_eq!(granted(&outcomes[15]).map(|held| held.attempts), Some(1));
    assert!(outcomes[..15].iter().all(|outcome| matches!(outcome, Reserved::Replay(_))));
    // So is a request: four bodies of a mebibyte are more than four.
    let held = grant(&client, "held").await;
    let refused = try_complete_many(&client, vec![large("held", &held); 4]).await.unwrap_err();
    assert_invalid(&refused, &[""]);
    assert_eq!(get(&client, "held").await.unwrap().state(), proto::State::InProgress);
    server.stop().await;
}
