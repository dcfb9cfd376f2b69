//! Messages around four MiB: refused with what to do, nothing kept, and the connection lives on.

use idem_proto::orders::v1 as proto;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{
    on_both_stores,
    world::{Intent, Says as _, World, pay_request},
};

const MIB: usize = 1024 * 1024;

on_both_stores!(messages_around_four_mib_are_refused);

#[track_caller]
fn assert_invalid(status: &Status, field: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let details = status.get_error_details();
    let named: Vec<_> = details.bad_request().unwrap().field_violations.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(named, [field], "{status:?}");
    assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some("INVALID_FIELD"));
}

async fn messages_around_four_mib_are_refused(world: World) {
    // One channel, and so one connection, for all of it.
    let (intent, order) = (Intent::new(), world.ordered(1).await);
    for (size, field) in [(39 * MIB / 10, "venue_id"), (41 * MIB / 10, "")] {
        let refused = world.place_of(&intent, 1, &"v".repeat(size), &[("general", 1)]).await.unwrap_err();
        assert_invalid(&refused, field);
    }
    for (size, field) in [(39 * MIB / 10, "payment_method"), (41 * MIB / 10, "")] {
        let request = pay_request(&intent, 1, &order.id, &"m".repeat(size));
        assert_invalid(&world.client.clone().pay(request).await.unwrap_err(), field);
    }
    let unsigned =
        proto::HandleWebhookRequest { body: vec![b'x'; 41 * MIB / 10].into(), signature: "t=1,v1=00".into() };
    let refused = world.client.clone().handle_webhook(unsigned).await.unwrap_err();
    assert_invalid(&refused, "");
    assert!(refused.message().contains("send at most 4194304 bytes"), "{refused:?}");

    // Nothing was kept: the operation id is free for any request, and the seats are as they were.
    assert_eq!(world.stock("general").await, (0, 1, 99));
    world.place(&intent, 1, 2).await.unwrap().order();
    assert_eq!(world.stock("general").await, (0, 3, 97));
}
