//! Every RPC of both services, from its descriptor: valid messages, hostile values, damaged bytes and broken frames, on one
//! connection to the real services. An answer is always a proper one, what is refused as invalid leaves nothing, and the connection
//! lives on.

use std::{cell::RefCell, collections::BTreeMap, fmt::Write as _};

use bytes::{BufMut, Bytes, BytesMut};
use e2e::{Store, World};
use fuzz::{
    Code, GrpcWire, Http1Wire, Method, Mood, Panics, Reply, Schema, Vocabulary, frame, hold_async, mangle, runtime,
};
use idem_proto::{idem::v1 as idem, orders::v1 as orders};
use proptest::prelude::*;
use prost::Message;
use rand::{SeedableRng, rngs::StdRng};

const RESERVE: &str = "/idem.v1.IdempotencyService/Reserve";
const TICKET_TYPE: &str = "/orders.v1.OrdersService/GetTicketType";

/// What callers of both services know.
fn vocabulary(orders: &[String]) -> Vocabulary {
    let ids: Vec<String> = (1..12).map(|n| uuid::Uuid::from_u128(n).to_string()).collect();
    let orders: Vec<String> = orders.iter().chain(&ids).cloned().collect();
    Vocabulary::default()
        .texts("scope", ["rest/fuzz"])
        .texts("key", (0..12).map(|n| format!("key {n}")))
        .texts("operation_id", ids.clone())
        .texts("attempt_id", ids)
        .texts("trace_context", ["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"])
        .texts("page_token", [""])
        .texts("tenant", ["demo-a"])
        .texts("venue_id", ["demo"])
        .texts("ticket_type_id", ["general", "front-row", "fuzzed"])
        .texts("TicketType.id", ["fuzzed"])
        .texts("GetTicketTypeRequest.id", ["general", "nothing"])
        .texts("GetOrderRequest.id", orders.clone())
        .texts("order_id", orders)
        .texts("payment_method", ["pm_approved", "pm_declined", "pm_pending"])
        .texts("currency", ["EUR"])
        .numbers("fencing_token", 1..4)
        .numbers("seconds", [60, 3600])
        .numbers("nanos", [0])
        .numbers("Header.status", [200])
        .numbers("status", [200, 201, 402])
        .numbers("states", 1..5)
        .numbers("page_size", [0, 1, 100])
        .numbers("limit", [0, 1, 100])
        .numbers("quantity", [1, 2])
        .numbers("capacity", [1_000_000])
        .numbers("amount", [0, 1000])
        // A Reserve that waits would only slow this down.
        .omit("wait")
}

/// One call: which RPC, how its message is made, and whether it is damaged.
#[derive(Clone, Copy, Debug)]
struct Call {
    method: prop::sample::Index,
    seed: u64,
    hostile: u32,
    is_mangled: bool,
}

fn call() -> impl Strategy<Value = Call> {
    let hostile = prop_oneof![Just(0u32), Just(10), Just(40), Just(100)];
    (any::<prop::sample::Index>(), any::<u64>(), hostile, prop::bool::weighted(0.3))
        .prop_map(|(method, seed, hostile, is_mangled)| Call { method, seed, hostile, is_mangled })
}

impl Call {
    fn message(&self, schema: &Schema, methods: &[Method], known: &Vocabulary) -> (String, Vec<u8>) {
        let method = self.method.get(methods);
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mood = Mood { hostile: self.hostile, absent: self.hostile / 3 };
        let mut message = schema.request(method, known, mood, &mut rng);
        if self.is_mangled {
            mangle(&mut message, &mut rng);
        }
        (method.path.clone(), message)
    }
}

/// Sends it. Only a Reserve may wait, and not for long.
async fn send(wire: &GrpcWire, path: &str, message: &[u8]) -> Reply {
    let limit: &[_] = if path == RESERVE { &[("grpc-timeout", "400m")] } else { &[] };
    wire.call(path, limit, frame(message)).await
}

/// Which answers are proper ones to a message in its frame.
fn judge(path: &str, reply: &Reply) -> Result<Code, TestCaseError> {
    let Some(code) = reply.code else { return Err(TestCaseError::fail(format!("no status: {reply:?}"))) };
    let is_proper = match code {
        Code::Ok | Code::NotFound | Code::FailedPrecondition | Code::Aborted => true,
        // It names the field, and the reason.
        Code::InvalidArgument => reply.has_details,
        Code::DeadlineExceeded => path == RESERVE,
        _ => false,
    };
    prop_assert!(is_proper && reply.http_status == 200, "{path}: {reply:?}");
    Ok(code)
}

/// The database of a service on SQLite, seen from a connection of its own.
struct Beside {
    connection: rusqlite::Connection,
    /// The rows, as they were at a version.
    seen: RefCell<(i64, String)>,
}

impl Beside {
    fn open(world: &World, file: &str) -> Self {
        let idem_local::Data::Directory(directory) = &world.settings().data else { panic!("not on SQLite") };
        let connection = rusqlite::Connection::open(directory.join(file)).unwrap();
        Self { connection, seen: RefCell::new((-1, String::new())) }
    }

    /// Every row of every table. Read again only when somebody has committed, which a purge does too.
    fn rows(&self) -> String {
        let version = self.connection.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap();
        let mut seen = self.seen.borrow_mut();
        if seen.0 != version {
            *seen = (version, self.read());
        }
        seen.1.clone()
    }

    fn read(&self) -> String {
        let mut tables =
            self.connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").unwrap();
        let names: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let mut all = String::new();
        for name in names {
            let mut statement = self.connection.prepare(&format!("SELECT * FROM {name}")).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let values: Vec<_> = (0..columns).map(|column| row.get_ref(column).unwrap()).collect();
                writeln!(all, "{name} {values:?}").unwrap();
            }
        }
        all
    }
}

/// Both services stay themselves.
async fn still_work(idem_wire: &GrpcWire, orders_wire: &GrpcWire) {
    let reserve = idem::ReserveRequest {
        scope: "rest/after".to_owned(),
        key: uuid::Uuid::new_v4().to_string(),
        fingerprint: vec![7; 32].into(),
        attempt_id: uuid::Uuid::new_v4().to_string(),
        ..Default::default()
    };
    let reply = idem_wire.call(RESERVE, &[], frame(&reserve.encode_to_vec())).await;
    let answer = idem::ReserveResponse::decode(reply.message_bytes()).unwrap();
    assert!(matches!(answer.outcome, Some(idem::reserve_response::Outcome::Granted(_))), "{answer:?}");
    let get = orders::GetTicketTypeRequest { id: "general".to_owned() };
    let reply = orders_wire.call(TICKET_TYPE, &[], frame(&get.encode_to_vec())).await;
    let answer = orders::GetTicketTypeResponse::decode(reply.message_bytes()).unwrap();
    assert_eq!(answer.ticket_type.map(|it| it.venue_id).as_deref(), Some("demo"));
    assert!(idem_wire.is_alive() && orders_wire.is_alive());
}

/// Nothing is ever paid here, so nothing goes on in the background: whatever changes, changed because of the call.
#[test]
fn what_is_refused_as_invalid_leaves_nothing_behind() {
    let (runtime, panics, schema) = (runtime(), Panics::watch(), Schema::load());
    let world = runtime.block_on(World::start(Store::Sqlite));
    let known = vocabulary(&[]);
    for (prefix, file, address) in
        [("/idem.v1.", "idem.db", world.addresses().idem), ("/orders.v1.", "orders.db", world.addresses().orders)]
    {
        let (beside, methods) = (Beside::open(&world, file), schema.methods(prefix));
        let wire = runtime.block_on(GrpcWire::connect(address));
        let target = format!("rpcs-{}", file.trim_end_matches(".db"));
        let seen = RefCell::new(BTreeMap::<(String, Code), usize>::new());
        hold_async(&runtime, &target, 2_500, call(), |call| {
            let (path, message) = call.message(&schema, &methods, &known);
            let (wire, beside, seen) = (&wire, &beside, &seen);
            async move {
                let before = beside.rows();
                let reply = send(wire, &path, &message).await;
                let code = judge(&path, &reply)?;
                if code == Code::InvalidArgument {
                    prop_assert!(beside.rows() == before, "{path} has written, and refused");
                }
                *seen.borrow_mut().entry((path, code)).or_default() += 1;
                Ok(())
            }
        });
        assert_both_verdicts(&methods, &seen.borrow());
        assert!(wire.is_alive());
    }
    runtime.block_on(async {
        let addresses = world.addresses();
        still_work(&GrpcWire::connect(addresses.idem).await, &GrpcWire::connect(addresses.orders).await).await;
        world.stop().await;
    });
    panics.assert_none();
}

/// A target that only ever refuses, or never does, tries nothing.
fn assert_both_verdicts(methods: &[Method], seen: &BTreeMap<(String, Code), usize>) {
    for Method { path, .. } in methods {
        let count = |code| seen.get(&(path.clone(), code)).copied().unwrap_or_default();
        // These two take any text as a name under which nothing is found, or as a delivery that is not believed.
        let is_lenient = ["GetTicketType", "HandleWebhook"].iter().any(|name| path.ends_with(name));
        assert!(count(Code::InvalidArgument) > 0, "{path} never refused: {seen:?}");
        assert!(
            is_lenient || seen.iter().any(|((of, code), _)| of == path && *code != Code::InvalidArgument),
            "{path}: {seen:?}"
        );
    }
}

/// Calls that once were a fault of a service, or nearly, and what they are answered.
fn rows() -> Vec<(&'static str, Vec<u8>, Code)> {
    let list = |change: fn(&mut idem::ListRequest)| {
        let mut request = idem::ListRequest::default();
        change(&mut request);
        ("/idem.v1.AdminService/List", request.encode_to_vec(), Code::InvalidArgument)
    };
    let ok = |(path, message, _): (_, _, _)| (path, message, Code::Ok);
    let age = |seconds| prost_types::Duration { seconds, nanos: 0 };
    vec![
        // Ten thousand years ago is no time for Postgres.
        ok(list(|it| it.older_than = Some(prost_types::Duration { seconds: 315_576_000_000, nanos: 999_999_999 }))),
        list(|it| it.older_than = Some(prost_types::Duration { seconds: 315_576_000_001, nanos: 0 })),
        // Nor are these, which look like page tokens.
        list(|it| it.page_token = "01ffffffffffffffff016162".to_owned()),
        list(|it| it.page_token = "017fffffffffffffff016162".to_owned()),
        ok(list(|it| it.page_token = "010000000000000000016162".to_owned())),
        (
            "/idem.v1.AdminService/ListStale",
            idem::ListStaleRequest { recovery_lease: Some(age(i64::MIN)), ..Default::default() }.encode_to_vec(),
            Code::InvalidArgument,
        ),
        // Text that is none, in the first field, a string.
        ("/orders.v1.OrdersService/GetTicketType", b"\x0a\x01\xff".to_vec(), Code::InvalidArgument),
        ("/orders.v1.OrdersService/GetOrder", b"\x0a\x01\xff".to_vec(), Code::InvalidArgument),
        ("/idem.v1.IdempotencyService/Get", b"\x0a\x01\xff".to_vec(), Code::InvalidArgument),
        // A length beyond the end, and groups in groups.
        ("/orders.v1.OrdersService/PlaceOrder", b"\x0a\x7f".to_vec(), Code::InvalidArgument),
        ("/orders.v1.OrdersService/Lookup", [0x0b; 300].to_vec(), Code::InvalidArgument),
    ]
}

/// On orders that exist and payments that are made: whatever comes, an answer.
fn calls_on_living_orders_are_answered(store: Store, target: &str) {
    let (runtime, panics, schema) = (runtime(), Panics::watch(), Schema::load());
    let world = runtime.block_on(World::start(store));
    let placed = runtime.block_on(async {
        let mut placed = Vec::new();
        for n in 0..10 {
            placed.push(world.place(&format!("placed {n}"), 1).await);
        }
        placed
    });
    let known = vocabulary(&placed);
    let methods: Vec<Method> = ["/idem.v1.", "/orders.v1."].iter().flat_map(|prefix| schema.methods(prefix)).collect();
    let addresses = *world.addresses();
    let (idem_wire, orders_wire) = runtime
        .block_on(async { (GrpcWire::connect(addresses.idem).await, GrpcWire::connect(addresses.orders).await) });
    for (path, message, expected) in rows() {
        let wire = if path.starts_with("/idem") { &idem_wire } else { &orders_wire };
        let reply = runtime.block_on(send(wire, path, &message));
        assert_eq!(reply.code, Some(expected), "{path} {}: {reply:?}", message.escape_ascii());
        judge(path, &reply).unwrap();
    }
    hold_async(&runtime, target, 1_500, call(), |call| {
        let (path, message) = call.message(&schema, &methods, &known);
        let wire = if path.starts_with("/idem") { &idem_wire } else { &orders_wire };
        async move {
            let reply = send(wire, &path, &message).await;
            judge(&path, &reply).map(drop)
        }
    });
    runtime.block_on(async {
        still_work(&idem_wire, &orders_wire).await;
        world.stop().await;
    });
    panics.assert_none();
}

#[test]
fn calls_on_living_orders_are_answered_on_sqlite() {
    calls_on_living_orders_are_answered(Store::Sqlite, "rpcs-living");
}

#[test]
fn calls_on_living_orders_are_answered_on_postgres() {
    calls_on_living_orders_are_answered(Store::Postgres, "rpcs-postgres");
}

type Headers<'a> = &'a [(&'a str, &'a str)];

/// A frame with any flag and any length in front of it.
fn framed(flag: u8, length: u32, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(length);
    frame.put_slice(message);
    frame.freeze()
}

#[test]
fn broken_frames_are_refused_on_every_rpc_and_the_connection_lives_on() {
    let (runtime, panics, schema) = (runtime(), Panics::watch(), Schema::load());
    runtime.block_on(async {
        let world = World::start(Store::Sqlite).await;
        let addresses = *world.addresses();
        let (idem_wire, orders_wire) =
            (GrpcWire::connect(addresses.idem).await, GrpcWire::connect(addresses.orders).await);
        let gzip: Headers<'_> = &[("grpc-encoding", "gzip")];
        // The gRPC specification has INTERNAL for a frame that is broken, UNIMPLEMENTED for a compression that is not spoken.
        let table: [(&str, Bytes, Headers<'_>, Code); 12] = [
            ("nothing", Bytes::new(), &[], Code::Internal),
            ("half a head", Bytes::from_static(&[0, 0]), &[], Code::Internal),
            ("a head alone", framed(0, 5, b""), &[], Code::Internal),
            ("cut off", framed(0, 5, b"abc"), &[], Code::Internal),
            ("flag without a compression", framed(1, 3, b"abc"), &[], Code::Internal),
            ("flag 2", framed(2, 3, b"abc"), &[], Code::Internal),
            ("flag 255", framed(255, 0, b""), &[], Code::Internal),
            ("4 MiB and a byte", framed(0, 4 * 1024 * 1024 + 1, b"abc"), &[], Code::InvalidArgument),
            ("2 GiB", framed(0, i32::MAX as u32, b"abc"), &[], Code::InvalidArgument),
            ("4 GiB", framed(0, u32::MAX, b""), &[], Code::InvalidArgument),
            ("gzip that is none", framed(1, 3, b"abc"), gzip, Code::Unimplemented),
            ("an unknown compression", framed(0, 0, b""), &[("grpc-encoding", "zip")], Code::Unimplemented),
        ];
        for (wire, prefix) in [(&idem_wire, "/idem.v1."), (&orders_wire, "/orders.v1.")] {
            for Method { path, .. } in schema.methods(prefix) {
                for (what, body, headers, expected) in &table {
                    let reply = wire.call(&path, headers, body.clone()).await;
                    assert_eq!((reply.http_status, reply.code), (200, Some(*expected)), "{what} to {path}: {reply:?}");
                }
                // What a page elsewhere can make a browser send: anything, but not under this name.
                for other in
                    ["text/plain", "application/json", "application/x-www-form-urlencoded", "application/grpcish"]
                {
                    let reply = wire.call(&path, &[("content-type", other)], frame(b"")).await;
                    assert_eq!((reply.http_status, reply.code), (415, None), "{other} to {path}: {reply:?}");
                }
            }
            for path in [
                "/",
                "/idem.v1.IdempotencyService",
                "/idem.v1.IdempotencyService/",
                "/nobody/Nothing",
                "/idem.v1.AdminService/%00",
            ] {
                let reply = wire.call(path, &[], frame(b"")).await;
                assert_eq!(reply.code, Some(Code::Unimplemented), "{path}: {reply:?}");
            }
        }
        still_work(&idem_wire, &orders_wire).await;
        world.stop().await;
    });
    panics.assert_none();
}

/// A browser speaks HTTP/1 to a loopback port without asking it, as long as the content type is one that a form could send.
#[test]
fn a_page_elsewhere_cannot_make_a_browser_reserve_a_key() {
    let runtime = runtime();
    runtime.block_on(async {
        let world = World::start(Store::Sqlite).await;
        let reserve = idem::ReserveRequest {
            scope: "rest/demo-a".to_owned(),
            key: "forged".to_owned(),
            fingerprint: vec![7; 32].into(),
            attempt_id: uuid::Uuid::new_v4().to_string(),
            ..Default::default()
        };
        let mut wire = Http1Wire::to(world.addresses().idem);
        let headers: [(&str, &[u8]); 2] = [("origin", b"https://elsewhere.example"), ("content-type", b"text/plain")];
        let answer = wire.send("POST", RESERVE, &headers, &frame(&reserve.encode_to_vec())).await;
        assert_eq!(answer.status, 415);
        assert_eq!(world.key_state("forged").await.status, 404);
        world.stop().await;
    });
}
