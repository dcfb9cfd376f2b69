//! Every payment method, as its merchant meets it.

use futures::future::join_all;
use serde_json::json;

use crate::world::{HOUR, World, charge, payment, read_to_close};

#[tokio::test]
async fn approved_and_declined_are_answered_at_once_and_again() {
    let mut world = World::start().await;
    for (method, status, charges) in [("pm_approved", "approved", 1), ("pm_declined", "declined", 0)] {
        for _repeat in 0..2 {
            assert_eq!(world.pay(method, method).await, (200, payment(method, status, method)));
        }
        assert_eq!(world.status(method).await.as_deref(), Some(status));
        assert_eq!(world.charges(method).await, charges);
        world.merchant.hears(&format!("payment.{status}"), method).await;
    }
    assert_eq!(world.get("/sandbox/totals").await.1, json!({"charges": 1, "captured": 2000, "refunded": 0}));
}

#[tokio::test]
async fn pending_stays_so_until_settled() {
    for (decision, charges) in [("approved", 1), ("declined", 0)] {
        let mut world = World::start().await;
        assert_eq!(world.pay("p", "pm_pending").await, (200, payment("p", "pending", "pm_pending")));
        assert_eq!(world.status("p").await.as_deref(), Some("pending"));
        assert_eq!(world.settle("p", decision).await.0, 200);
        assert_eq!(world.pay("p", "pm_pending").await, (200, payment("p", decision, "pm_pending")));
        assert_eq!(world.charges("p").await, charges);
        world.merchant.hears(&format!("payment.{decision}"), "p").await;
    }
}

#[tokio::test]
async fn slow_is_approved_after_its_time_and_answers_then() {
    let mut world = World::start().await;
    assert_eq!(world.pay("p", "pm_slow_50").await, (200, payment("p", "approved", "pm_slow_50")));
    assert_eq!(world.pay("p", "pm_slow_50").await, (200, payment("p", "approved", "pm_slow_50")));
    assert_eq!(world.charges("p").await, 1);
    world.merchant.hears("payment.approved", "p").await;
}

#[tokio::test]
async fn slow_is_pending_meanwhile_and_all_who_wait_get_the_decision() {
    let world = World::start().await;
    let method = format!("pm_slow_{HOUR}");
    let settled = async {
        world.taken("p").await;
        assert_eq!(world.status("p").await.as_deref(), Some("pending"));
        world.settle("p", "declined").await
    };
    let (first, second, (status, _)) = tokio::join!(world.pay("p", &method), world.pay("p", &method), settled);
    assert_eq!(status, 200);
    assert_eq!(first, (200, payment("p", "declined", &method)));
    assert_eq!(second, first);
    assert_eq!(world.charges("p").await, 0);
}

#[tokio::test]
async fn slow_is_approved_also_when_its_client_went_away() {
    let mut world = World::start().await;
    let connection = world.pay_raw("p", "pm_slow_50").await;
    world.taken("p").await;
    drop(connection);
    world.merchant.hears("payment.approved", "p").await;
    assert_eq!(world.status("p").await.as_deref(), Some("approved"));
    assert_eq!(world.charges("p").await, 1);
}

#[tokio::test]
async fn slow_in_flight_is_answered_while_the_sandbox_drains() {
    let world = World::start().await;
    let waiting = world.pay_raw("p", "pm_slow_200").await;
    world.taken("p").await;
    world.begin_shutdown();
    let answer = String::from_utf8(read_to_close(waiting).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains(r#""status":"approved""#), "{answer}");
    assert!(world.stopped().await.in_time);
}

#[tokio::test]
async fn error_charges_nothing_and_keeps_nothing() {
    let world = World::start().await;
    let (status, body) = world.pay("p", "pm_error").await;
    assert_eq!((status, &body["error"]), (500, &json!("internal_error")));
    assert_eq!(world.status("p").await, None);
    assert_eq!(world.charges("p").await, 0);
    assert_eq!(world.pay("p", "pm_approved").await.0, 200);
}

#[tokio::test]
async fn charge_then_hang_charges_and_never_answers_until_the_shutdown_closes_it() {
    let mut world = World::start().await;
    let hanging = world.pay_raw("p", "pm_charge_then_hang").await;
    world.merchant.hears("payment.approved", "p").await;
    assert_eq!(world.status("p").await.as_deref(), Some("approved"));
    let repeat = world.pay("p", "pm_charge_then_hang").await;
    assert_eq!(repeat, (200, payment("p", "approved", "pm_charge_then_hang")));
    assert_eq!(world.charges("p").await, 1);
    world.begin_shutdown();
    assert_eq!(read_to_close(hanging).await, b"");
    assert!(world.stopped().await.in_time);
}

#[tokio::test]
async fn pending_charge_then_hang_is_pending_and_never_answers() {
    let mut world = World::start().await;
    let method = "pm_pending_charge_then_hang";
    let hanging = world.pay_raw("p", method).await;
    world.taken("p").await;
    assert_eq!(world.status("p").await.as_deref(), Some("pending"));
    assert_eq!(world.pay("p", method).await, (200, payment("p", "pending", method)));
    world.settle("p", "approved").await;
    world.merchant.hears("payment.approved", "p").await;
    assert_eq!(world.pay("p", method).await, (200, payment("p", "approved", method)));
    assert_eq!(world.charges("p").await, 1);
    world.begin_shutdown();
    assert_eq!(read_to_close(hanging).await, b"");
    assert!(world.stopped().await.in_time);
}

#[tokio::test]
async fn charge_then_drop_charges_and_closes_without_a_byte() {
    let mut world = World::start().await;
    assert_eq!(read_to_close(world.pay_raw("p", "pm_charge_then_drop").await).await, b"");
    world.merchant.hears("payment.approved", "p").await;
    let repeat = world.pay("p", "pm_charge_then_drop").await;
    assert_eq!(repeat, (200, payment("p", "approved", "pm_charge_then_drop")));
    assert_eq!(world.charges("p").await, 1);
}

#[tokio::test]
async fn drop_closes_each_time_and_charges_nothing() {
    let world = World::start().await;
    for _repeat in 0..2 {
        assert_eq!(read_to_close(world.pay_raw("p", "pm_drop").await).await, b"");
        let error = world.try_pay("p", "pm_drop").await.unwrap_err();
        assert!(error.is_request() && error.status().is_none(), "{error:?}");
        assert_eq!(world.status("p").await, None);
    }
    assert_eq!(world.charges("p").await, 0);
}

#[tokio::test]
async fn late_is_unknown_meanwhile_and_a_repeat_is_closed_too() {
    let world = World::start().await;
    let method = format!("pm_late_{HOUR}");
    for _repeat in 0..2 {
        assert_eq!(read_to_close(world.pay_raw("p", &method).await).await, b"");
        assert_eq!(world.status("p").await, None);
    }
    assert_eq!(world.settle("p", "approved").await.0, 404);
    assert_eq!(world.pay("p", "pm_approved").await.0, 409);
    assert_eq!(world.charges("p").await, 0);
}

#[tokio::test]
async fn late_lands_once_however_often_it_was_sent() {
    let mut world = World::start().await;
    let sent = (0..5).map(|_| async { read_to_close(world.pay_raw("p", "pm_late_200").await).await });
    join_all(sent).await;
    world.merchant.hears("payment.approved", "p").await;
    assert_eq!(world.pay("p", "pm_late_200").await, (200, payment("p", "approved", "pm_late_200")));
    assert_eq!(world.charges("p").await, 1);
    assert_eq!(world.get("/sandbox/totals").await.1["captured"], json!(2000));
}

#[tokio::test]
async fn fifty_concurrent_payments_under_one_id_are_one_charge_and_one_event() {
    let mut world = World::start().await;
    for method in ["pm_approved", "pm_slow_50"] {
        let answers = join_all((0..50).map(|_| world.pay(method, method))).await;
        assert!(answers.iter().all(|answer| *answer == (200, payment(method, "approved", method))));
        assert_eq!(world.charges(method).await, 1);
        world.merchant.hears("payment.approved", method).await;
    }
    assert_eq!(world.get("/sandbox/totals").await.1["charges"], json!(2));
}

#[tokio::test]
async fn another_body_under_one_id_is_a_conflict() {
    let world = World::start().await;
    world.pay("p", "pm_approved").await;
    let others = [
        json!({"amount": 2001, "currency": "EUR", "method": "pm_approved"}),
        json!({"amount": 2000, "currency": "USD", "method": "pm_approved"}),
        charge("pm_declined"),
    ];
    for other in others {
        let (status, body) = world.put("/payments/p", other).await;
        assert_eq!((status, &body["error"]), (409, &json!("payment_id_reuse")));
    }
    assert_eq!(world.get("/sandbox/totals").await.1["captured"], json!(2000));
}

#[tokio::test]
async fn bad_input_is_refused_in_json_and_keeps_nothing() {
    let world = World::start().await;
    let bad = [
        "",
        "{",
        "[]",
        r#"{"amount": 2000, "currency": "EUR"}"#,
        r#"{"amount": -1, "currency": "EUR", "method": "pm_approved"}"#,
        r#"{"amount": 20.5, "currency": "EUR", "method": "pm_approved"}"#,
        r#"{"amount": "2000", "currency": "EUR", "method": "pm_approved"}"#,
        r#"{"amount": 2000, "currency": "eur", "method": "pm_approved"}"#,
        r#"{"amount": 2000, "currency": "EURO", "method": "pm_approved"}"#,
        r#"{"amount": 2000, "currency": "EUR", "method": "pm_approved", "tip": 5}"#,
        r#"{"amount": 2000, "amount": 1, "currency": "EUR", "method": "pm_approved"}"#,
    ];
    for body in bad {
        let (status, answer) = world.call(reqwest::Method::PUT, "/payments/p", Some(body)).await.unwrap();
        assert_eq!((status, &answer["error"]), (400, &json!("invalid_request")), "{body}");
    }
    let (status, answer) = world.pay("p", "pm_unheard_of").await;
    assert_eq!((status, &answer["error"]), (400, &json!("unknown_method")));
    let (status, answer) = world.put("/payments/%FF", charge("pm_approved")).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_request")));
    assert_eq!(world.get("/sandbox/payments/p").await.0, 404);
    assert_eq!(world.get("/nowhere").await.1["error"], json!("not_found"));
    assert_eq!(world.post("/payments/p", json!({})).await.1["error"], json!("method_not_allowed"));
}

#[tokio::test]
async fn body_that_is_too_long_is_refused_in_json() {
    let world = World::start().await;
    let (status, answer) = world.put("/payments/p", json!({"method": "x".repeat(70_000)})).await;
    assert_eq!((status, &answer["error"]), (413, &json!("invalid_request")));
}
