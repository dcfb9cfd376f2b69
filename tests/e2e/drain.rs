//! An orderly stop answers everybody who was let in.

use e2e::on_both_stores;

on_both_stores! {
    async fn requests_in_flight_are_answered_before_the_world_ends(world: World) {
        let mut orders = Vec::new();
        for n in 0..20 {
            orders.push(world.place(&format!("o{n}"), 1).await);
        }
        let paying = orders.iter().enumerate().map(|(n, order)| {
            let world = world.clone();
            async move { world.pay(&format!("p{n}"), order, "pm_slow_800").await }
        });
        let stopping = async {
            world.until_key_is("p19", "in_progress").await;
            world.stop().await;
        };
        let (replies, ()) = futures::join!(futures::future::join_all(paying), stopping);
        assert!(replies.iter().all(|reply| reply.status == 201));
    }
}
