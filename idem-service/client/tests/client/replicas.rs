//! One service, several replicas, and one of them is as good as dead.

use std::{any::Any, io, net::SocketAddr, sync::Arc};

use futures::future::{BoxFuture, join_all};
use idem_client::{IdemClient, Reserved, Resolve};
use idem_proto::idem::v1::{self as proto, reserve_response::Outcome};

use crate::server::{Fake, Reply, after, granted, intent, reserve};

struct Addresses(Vec<SocketAddr>);

impl Resolve for Addresses {
    fn resolve(&self, _host: String, _port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(addresses) })
    }

    fn may_change(&self, _host: &str) -> bool {
        false
    }
}

/// Grants one key, or each of many.
fn grants() -> Reply {
    Reply::Judged(Box::new(|message: &dyn Any| {
        let grant = || reserve(Outcome::Granted(granted(1, false)));
        Ok(match message.downcast_ref::<proto::ReserveManyRequest>() {
            Some(many) => {
                Box::new(proto::ReserveManyResponse { outcomes: many.items.iter().map(|_| grant()).collect() })
            }
            None => Box::new(grant()),
        })
    }))
}

#[tokio::test]
async fn a_replica_that_answers_no_call_holds_nobody_back_beyond_a_deadline_of_two_seconds() {
    let (good, silent) = (Fake::default(), Fake::default());
    for _ in 0..2000 {
        good.will_not(grants());
        silent.will_not(Reply::Hang);
    }
    let (first, second) = (good.serve().await, silent.serve().await);
    let resolver = Arc::new(Addresses(vec![first.address, second.address]));
    let client = IdemClient::builder("http://idem.test:7001").resolver(resolver).connect_lazy().unwrap();
    for round in 0..10 {
        // Folded: whoever travels with the call that hangs, and whoever waits behind it.
        let calls = (0..20).map(|_| async { client.reserve(&intent(), after(2_000)).await });
        for reserved in join_all(calls).await {
            assert!(matches!(reserved, Ok(Reserved::Granted(_))), "round {round}: {reserved:?}");
        }
    }
    let (to_good, to_silent) = (good.calls().len(), silent.calls().len());
    assert!(to_silent < to_good, "{to_silent} calls were lost at the silent one, {to_good} answered");
}
