use super::*;

fn limiter(limits: Limits) -> Limiter {
    Limiter::new(limits)
}

fn scope(tenant: &str) -> Scope {
    Scope::new(format!("rest/{tenant}")).unwrap()
}

fn reason(admitted: Result<Slot, Excess>) -> &'static str {
    admitted.map_or_else(Excess::reason, |_| "admitted")
}

#[tokio::test(start_paused = true)]
async fn a_tenant_over_its_rate_is_refused_alone_and_until_its_retry_after() {
    let limiter = limiter(Limits { rate: 2, burst: 3, ..Limits::default() });
    let ask = |tenant| limiter.admit(&scope(tenant), false);
    for _ in 0..3 {
        assert!(ask("a").is_ok());
    }
    let Err(excess) = ask("a") else { panic!("a fourth at once") };
    assert_eq!(excess, Excess::Rate { limit: 2, wait: Duration::from_millis(500) });
    assert!((0..3).all(|_| ask("b").is_ok()), "another tenant has a bucket of its own");
    let refused = error::respond(&excess.problem());
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &HeaderValue::from(1)));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(ask("a").is_ok());
}

#[tokio::test]
async fn what_is_in_flight_is_counted_until_its_last_holder_lets_go() {
    let limiter = limiter(Limits { in_flight: 2, ..Limits::default() });
    let ask = || limiter.admit(&scope("a"), true);
    let (first, second) = (Arc::new(ask().ok().unwrap()), ask().ok().unwrap());
    assert_eq!(reason(ask()), "in_flight");
    // A refusal has given back what it took.
    assert_eq!(reason(ask()), "in_flight");
    let operation = first.clone();
    drop(first);
    assert_eq!(reason(ask()), "in_flight", "its operation goes on");
    drop(operation);
    assert_eq!(reason(ask()), "admitted");
    drop(second);
}

#[tokio::test]
async fn a_request_without_room_uses_up_no_rate() {
    let limiter = limiter(Limits { rate: 2, in_flight: 1, ..Limits::default() });
    let ask = || limiter.admit(&scope("a"), false);
    let held = ask().ok().unwrap();
    for _ in 0..5 {
        assert_eq!(reason(ask()), "in_flight");
    }
    drop(held);
    assert_eq!(reason(ask()), "admitted");
    assert_eq!(reason(ask()), "rate");
}

#[tokio::test]
async fn live_keys_elsewhere_and_here_count_together_and_only_keyed_requests_are_refused() {
    let limiter = limiter(Limits { live_keys: 5, ..Limits::default() });
    let ask = |is_keyed| limiter.admit(&scope("a"), is_keyed);
    let here: Vec<Slot> = (0..2).map(|_| ask(true).ok().unwrap()).collect();
    // Five are reported, two of which are those.
    limiter.tenant(&scope("a")).live.set(5, 2);
    assert_eq!(reason(ask(true)), "live_keys");
    assert_eq!(reason(ask(false)), "admitted");
    assert_eq!(reason(limiter.admit(&scope("b"), true)), "admitted");
    drop(here);
    // Two have ended since, so two more may begin.
    let more: Vec<Slot> = (0..2).map(|_| ask(true).ok().unwrap()).collect();
    assert_eq!(reason(ask(true)), "live_keys");
    drop(more);
}

#[test]
fn a_wait_is_told_in_whole_seconds_and_never_as_none() {
    let table = [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (60_000, 60)];
    for (millis, seconds) in table {
        assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
    }
    let wait = Duration::from_nanos(1);
    assert_eq!(error::respond(&Excess::Rate { limit: 9, wait }.problem()).headers()["retry-after"], "1");
}

#[test]
fn limits_that_are_not_set_are_off() {
    assert!(Limits::default().are_off() && Limits { burst: 5, ..Limits::default() }.are_off());
    assert!(!Limits { live_keys: 1, ..Limits::default() }.are_off());
}
