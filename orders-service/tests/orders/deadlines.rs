//! A call past its deadline does no work: every RPC, over before it arrives and overtaken while its rows are held by somebody else.

use std::{net::SocketAddr, time::Duration};

use database::StoreUrl;
use idem_proto::orders::v1 as proto;
use prost::Message;
use tokio_postgres::{Client, NoTls};
use tonic::{Code, Status};

use crate::world::{Intent, Says as _, TENANT, World, event, pay_request};

/// What the rows are: one digest a table.
const ROWS: &str = "\
SELECT string_agg(digest, ' ' ORDER BY digest) FROM (
    SELECT 'operations ' || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) AS digest FROM operations t
    UNION ALL SELECT 'types ' || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM ticket_types t
    UNION ALL SELECT 'orders ' || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM orders t
    UNION ALL SELECT 'tickets ' || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM tickets t
    UNION ALL SELECT 'payments ' || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM payments t
    UNION ALL SELECT 'refunds ' || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM refunds t
    UNION ALL SELECT 'events ' || md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM acquirer_events t
) AS digests";

/// Sessions of this database, but for our own, that do or hold something.
const BUSY: &str = "\
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";

/// The watch would ask for the open payment meanwhile, and write that down: it gets its turn later.
const LET_THE_WATCH_SLEEP: &str = "\
UPDATE payments
   SET next_ask_at = next_ask_at + 3600000000
 WHERE next_ask_at IS NOT NULL";

const TABLES: &str = "operations, ticket_types, orders, tickets, payments, refunds, acquirer_events";

/// One call, as bytes: the generated client would judge the deadline itself.
struct Call {
    rpc: &'static str,
    message: Vec<u8>,
}

fn call(rpc: &'static str, message: &impl Message) -> Call {
    Call { rpc, message: message.encode_to_vec() }
}

impl Call {
    /// Sends it; none when it was carried out.
    async fn send(&self, address: SocketAddr, timeout: &str) -> Option<Status> {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut h2, connection) = h2::client::handshake(stream).await.unwrap();
        drop(chassis::tasks::Tasks::new().spawn("h2 client", connection));
        let uri = format!("http://{address}/orders.v1.OrdersService/{}", self.rpc);
        let request = http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        let (response, mut body) =
            h2.send_request(request.header("grpc-timeout", timeout).body(()).unwrap(), false).unwrap();
        let mut frame = vec![0];
        frame.extend(u32::try_from(self.message.len()).unwrap().to_be_bytes());
        frame.extend(&self.message);
        // A refusal may close the stream before the message is on it; the answer tells.
        drop(body.send_data(frame.into(), true));
        Status::from_header_map(response.await.unwrap().headers())
    }
}

/// Every RPC with something real to do: a pending order, a paid one and its ticket, an open payment.
struct Calls {
    mutations: Vec<Call>,
    readings: Vec<Call>,
}

impl Calls {
    async fn prepare(world: &World) -> Self {
        let (pending, confirmed, cancelled) = (world.ordered(1).await, world.ordered(1).await, world.ordered(1).await);
        let (paid, paying) = world.paid(1).await;
        let (undecided, open) = (world.ordered(1).await, Intent::new());
        world.pay(&open, 1, &undecided.id, "pm_pending").await.unwrap();
        let tenant = || TENANT.to_owned();
        let operation = || Intent::new().with(1);
        let ticket_type = proto::TicketType {
            id: "general".into(),
            venue_id: "demo".into(),
            name: "renamed".into(),
            price: Some(proto::Money { amount: 7, currency: "EUR".into() }),
            capacity: 77,
            ..Default::default()
        };
        let webhook = event("evt-late", "payment.approved", &open.payment(), 1000);
        let signature = acquirer_sandbox::signature::sign("whsec_demo", chassis::clock::wall(), webhook.as_bytes());
        let mutations = vec![
            call("PutTicketType", &proto::PutTicketTypeRequest { ticket_type: Some(ticket_type) }),
            call(
                "PlaceOrder",
                &proto::PlaceOrderRequest {
                    operation: operation(),
                    venue_id: "demo".into(),
                    items: vec![proto::PlaceOrderItem { ticket_type_id: "general".into(), quantity: 2 }],
                },
            ),
            call("Pay", &pay_request(&Intent::new(), 1, &pending.id, "pm_approved")),
            call("ConfirmOrder", &proto::ConfirmOrderRequest { operation: operation(), order_id: confirmed.id }),
            call("CancelOrder", &proto::CancelOrderRequest { operation: operation(), order_id: cancelled.id }),
            call(
                "CheckInTicket",
                &proto::CheckInTicketRequest { operation: operation(), ticket_id: paid.tickets[0].id.clone() },
            ),
            call("HandleWebhook", &proto::HandleWebhookRequest { body: webhook.into(), signature }),
            call(
                "Lookup",
                &proto::LookupRequest { operation_id: open.id.clone(), fencing_token: 5, background: false },
            ),
            call("Close", &proto::CloseRequest { operation_id: open.id.clone(), fencing_token: 6 }),
        ];
        let readings = vec![
            call("GetTicketType", &proto::GetTicketTypeRequest { id: "general".into() }),
            call("GetOrder", &proto::GetOrderRequest { tenant: tenant(), id: paid.id }),
            call("GetPayment", &proto::GetPaymentRequest { tenant: tenant(), id: paying.payment() }),
            call("CreatePaymentLink", &proto::CreatePaymentLinkRequest { tenant: tenant(), order_id: pending.id }),
        ];
        Self { mutations, readings }
    }

    fn all(&self) -> impl Iterator<Item = &Call> {
        self.mutations.iter().chain(&self.readings)
    }
}

/// A connection of the test's own, past the service, in which nobody else does anything any more.
async fn connect_in_peace(world: &World) -> Client {
    let client = connect(world).await;
    client.execute(LET_THE_WATCH_SLEEP, &[]).await.unwrap();
    until_nothing_is_busy(world, &client).await;
    client
}

/// A connection of the test's own, past the service.
async fn connect(world: &World) -> Client {
    let StoreUrl::Postgres(config) = world.store_directly() else { panic!("a server is needed") };
    let (client, connection) = config.connect(NoTls).await.unwrap();
    drop(chassis::tasks::Tasks::new().spawn("client", connection));
    client
}

async fn rows(client: &Client) -> String {
    client.query_one(ROWS, &[]).await.unwrap().get(0)
}

async fn until_nothing_is_busy(world: &World, client: &Client) {
    let idle = || async { client.query_one(BUSY, &[]).await.unwrap().get::<_, i64>(0) == 0 };
    world.eventually("no session is active or in a transaction", idle).await;
}

async fn expect_overtaken(calls: impl Iterator<Item = &Call>, address: SocketAddr, timeout: &str) {
    let sent = calls.map(|call| async move { (call.rpc, call.send(address, timeout).await) });
    for (rpc, status) in futures::future::join_all(sent).await {
        let code = status.as_ref().map(Status::code);
        assert_eq!(code, Some(Code::DeadlineExceeded), "{rpc}: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_over_when_it_arrives_does_nothing_on_postgres() {
    let world = World::on_postgres("deadline_over").await;
    let (calls, client) = (Calls::prepare(&world).await, connect_in_peace(&world).await);
    let (before, queries) = (rows(&client).await, world.script.all_calls());
    expect_overtaken(calls.all(), world.address, "0n").await;
    until_nothing_is_busy(&world, &client).await;
    assert_eq!(rows(&client).await, before);
    assert_eq!(world.script.all_calls(), queries, "the acquirer heard nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_overtaken_while_its_rows_are_held_changes_nothing_on_postgres() {
    let world = World::on_postgres("deadline_locked").await;
    let (calls, mut client) = (Calls::prepare(&world).await, connect_in_peace(&world).await);
    let watching = connect(&world).await;
    let (before, heard) = (rows(&client).await, world.script.all_calls());

    let holding = client.transaction().await.unwrap();
    for table in TABLES.split(", ") {
        holding.execute(&format!("SELECT 1 FROM {table} FOR UPDATE"), &[]).await.unwrap();
    }
    expect_overtaken(calls.mutations.iter(), world.address, "400m").await;
    holding.rollback().await.unwrap();
    until_nothing_is_busy(&world, &watching).await;
    assert_eq!(rows(&watching).await, before, "what waited for a row was rolled back when it got it");

    let holding = client.transaction().await.unwrap();
    holding.batch_execute(&format!("LOCK TABLE {TABLES}")).await.unwrap();
    expect_overtaken(calls.all(), world.address, "400m").await;
    holding.rollback().await.unwrap();
    until_nothing_is_busy(&world, &watching).await;
    assert_eq!(rows(&watching).await, before);
    assert_eq!(world.script.all_calls(), heard, "the acquirer heard nothing");

    // All of it works once the rows are free: nothing else was in the way.
    for call in calls.all() {
        let status = call.send(world.address, "10S").await;
        assert!(status.is_none(), "{}: {status:?}", call.rpc);
    }
    assert_ne!(rows(&watching).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_acquirer_gets_no_more_time_than_the_caller_has_left_on_postgres() {
    let world = World::on_postgres("deadline_acquirer").await;
    let (order, intent) = (world.ordered(1).await, Intent::new());
    let within = Duration::from_millis(1500);
    let answer = world.pay_within(within, &intent, 1, &order.id, "pm_approved").await.unwrap();
    answer.payment();
    let given = world.script.longest_patience();
    assert!(given <= within && given >= Duration::from_millis(300), "{given:?}");
}
