//! Calls are spread, and whoever does not answer is left out.

use crate::server::{Named, RESERVE, Replica, Road, call, channel};
use chassis::{service_auth::ServiceAuth, tasks::Tasks};
use dial::{Channel, Settings};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};
use tonic::Code;

/// Calls until each of these replicas has answered: a connection to each takes a moment.
async fn until_all_answer(channel: &Channel, replicas: &[SocketAddr]) {
    let mut missing: Vec<_> = replicas.to_vec();
    while !missing.is_empty() {
        let (_, answered) = call(channel, RESERVE, None).await.unwrap();
        missing.retain(|it| *it != answered);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn calls_are_spread_over_every_replica() {
    let replicas = [Replica::plain().await, Replica::plain().await, Replica::plain().await];
    let addresses = replicas.each_ref().map(|it| it.address);
    let channel = channel(&Named::new(addresses), 2);
    until_all_answer(&channel, &addresses).await;
    let before = replicas.each_ref().map(Replica::calls);
    for _ in 0..300 {
        call(&channel, RESERVE, None).await.unwrap();
    }
    for (replica, before) in replicas.iter().zip(before) {
        let calls = replica.calls() - before;
        assert!((60..=140).contains(&calls), "{calls} of 300 at one of three");
    }
}

#[tokio::test]
async fn replicas_that_leave_one_after_the_other_cost_no_call() {
    let mut replicas = Vec::new();
    for _ in 0..4 {
        replicas.push(Replica::plain().await);
    }
    let addresses: Vec<_> = replicas.iter().map(|it| it.address).collect();
    let channel = channel(&Named::new(addresses.clone()), 2);
    until_all_answer(&channel, &addresses).await;
    let (calling, mut done) = (channel.clone(), tokio::sync::oneshot::channel::<()>());
    let caller = Tasks::new().spawn("caller", async move {
        let mut calls = 0_u32;
        while done.1.try_recv().is_err() {
            call(&calling, RESERVE, None).await.unwrap();
            calls += 1;
        }
        calls
    });
    let last = replicas.pop().unwrap();
    for replica in replicas {
        replica.stop().await;
    }
    let before = last.calls();
    call(&channel, RESERVE, None).await.unwrap();
    assert_eq!(call(&channel, RESERVE, None).await.unwrap().1, last.address);
    done.0.send(()).unwrap();
    assert!(caller.await.unwrap() > 0 && last.calls() > before);
}

#[tokio::test]
async fn a_black_hole_gets_no_call_at_all() {
    // The kernel takes connections, and nobody ever speaks.
    let hole = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let replica = Replica::plain().await;
    let channel = channel(&Named::new([hole.local_addr().unwrap(), replica.address]), 2);
    for _ in 0..50 {
        let answered = timeout(Duration::from_secs(10), call(&channel, RESERVE, None)).await.unwrap().unwrap();
        assert_eq!(answered.1, replica.address);
    }
}

#[tokio::test]
async fn a_replica_that_freezes_costs_one_deadline_and_gets_calls_again_when_it_thaws() {
    let (first, second) = (Replica::plain().await, Replica::plain().await);
    let road = Road::to(first.address).await;
    let channel = channel(&Named::new([road.address, second.address]), 2);
    until_all_answer(&channel, &[first.address, second.address]).await;
    road.freeze(true);
    let mut lost = 0;
    for _ in 0..200 {
        // As callers do it: a deadline for each call.
        if timeout(Duration::from_secs(1), call(&channel, RESERVE, None)).await.is_err() {
            lost += 1;
        }
    }
    assert_eq!(lost, 1, "the first silence takes every connection to the replica out of use");
    road.freeze(false);
    let thawed = timeout(Duration::from_secs(30), until_all_answer(&channel, &[first.address])).await;
    assert!(thawed.is_ok(), "a replica that answers again is used again");
}

#[tokio::test]
async fn calls_do_not_line_up_behind_those_that_hear_nothing() {
    let (first, second) = (Replica::plain().await, Replica::plain().await);
    let road = Road::to(first.address).await;
    let channel = channel(&Named::new([road.address, second.address]), 1);
    until_all_answer(&channel, &[first.address, second.address]).await;
    road.freeze(true);
    // Callers with all the time in the world: nobody gives up, and still only the first few are held.
    let callers: Vec<_> = (0..4).map(|_| channel.clone()).collect();
    let tasks = Tasks::new();
    for channel in callers {
        drop(tasks.spawn("patient caller", async move { call(&channel, RESERVE, None).await }));
    }
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(call(&channel, RESERVE, None).await.unwrap().1, second.address);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_replica_that_answers_unavailable_is_used_when_there_is_no_other() {
    let open = ServiceAuth::open();
    let (good, bad) = (Replica::plain().await, Replica::start(&open, None, Code::Unavailable).await);
    let named = Named::new([good.address, bad.address]);
    let channel = channel(&named, 1);
    while bad.calls() == 0 {
        let _ = call(&channel, RESERVE, None).await;
    }
    for _ in 0..20 {
        assert_eq!(call(&channel, RESERVE, None).await.unwrap().1, good.address);
    }
    good.stop().await;
    assert_eq!(call(&channel, RESERVE, None).await.unwrap_err().code(), Code::Unavailable);
    assert!(bad.calls() >= 2);
}

#[tokio::test]
async fn a_channel_may_be_there_before_its_service_and_outlives_its_restarts() {
    let address = free_port::one().unwrap();
    let channel = channel(&Named::new([address]), 2);
    for _ in 0..3 {
        let refused = timeout(Duration::from_secs(10), call(&channel, RESERVE, None)).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(refused.message().contains("no replica of replicas.test:7001 can be reached"), "{refused}");
        let replica = Replica::start_on(address, &ServiceAuth::open(), None, Code::Ok).await;
        assert_eq!(call(&channel, RESERVE, None).await.unwrap().1, address);
        replica.stop().await;
    }
}

#[tokio::test]
async fn a_name_that_points_elsewhere_is_followed() {
    let (former, next) = (Replica::plain().await, Replica::plain().await);
    let named = Named::new([former.address]);
    let channel = channel(&named, 1);
    assert_eq!(call(&channel, RESERVE, None).await.unwrap().1, former.address);
    named.set([next.address]);
    let moved = async {
        while call(&channel, RESERVE, None).await.unwrap().1 != next.address {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), moved).await.unwrap();
    let calls = former.calls();
    for _ in 0..20 {
        call(&channel, RESERVE, None).await.unwrap();
    }
    assert_eq!(former.calls(), calls);
    // A resolver that fails changes nothing.
    named.set([]);
    former.stop().await;
    assert_eq!(call(&channel, RESERVE, None).await.unwrap().1, next.address);
}

#[tokio::test]
async fn several_addresses_of_a_host_are_tried_by_the_systems_resolver() {
    // `localhost` is often two addresses, of which one is served.
    let address = free_port::one().unwrap();
    let _replica = Replica::start_on(address, &ServiceAuth::open(), None, Code::Ok).await;
    let endpoint = format!("http://localhost:{}", address.port());
    let channel = Channel::new(&endpoint, Settings::default()).unwrap();
    for _ in 0..10 {
        assert_eq!(call(&channel, RESERVE, None).await.unwrap().1, address);
    }
}
