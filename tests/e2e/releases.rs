//! Releases follow each other on one store: this one opens what the release before has left, and lives with the schema of the next.

use std::{path::Path, time::Duration};

use chassis::clock::wall;
use database::{Database, Migration, Schema, StoreUrl};
use e2e::{Holder, PrivateDatabase, Store, World, eventually};
use serde_json::{Value, json};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/release-0.1.0");

/// What this release has applied; its text is not looked at again.
const APPLIED: Migration = Migration { number: 1, name: "applied", sqlite: "", postgres: "" };

/// The next release of the idempotency service: it will write a region into every key.
const NEXT_IDEM: Schema = Schema {
    name: "idem-service",
    migrations: &[
        APPLIED,
        Migration {
            number: 2,
            name: "region",
            sqlite: "ALTER TABLE idem_keys ADD COLUMN region TEXT",
            postgres: "ALTER TABLE idem_keys ADD COLUMN region TEXT",
        },
    ],
};

/// The next release of the orders service: it will write a channel into every order, operation and payment, and look orders up by it.
const NEXT_ORDERS: Schema = Schema {
    name: "orders-service",
    migrations: &[APPLIED, Migration { number: 2, name: "channel", sqlite: CHANNEL, postgres: CHANNEL }],
};

const CHANNEL: &str = "\
ALTER TABLE orders ADD COLUMN channel TEXT;
ALTER TABLE operations ADD COLUMN channel TEXT;
ALTER TABLE payments ADD COLUMN channel TEXT;
ALTER TABLE ticket_types ADD COLUMN channel TEXT;
CREATE INDEX orders_by_channel ON orders (channel)";

/// What the next release does to old rows while this one goes on writing new ones.
const BACK_FILL: [&str; 5] = [
    "UPDATE idem_keys SET region = 'eu' WHERE region IS NULL",
    "UPDATE orders SET channel = 'web' WHERE channel IS NULL",
    "UPDATE operations SET channel = 'web' WHERE channel IS NULL",
    "UPDATE payments SET channel = 'web' WHERE channel IS NULL",
    "UPDATE ticket_types SET channel = 'web' WHERE channel IS NULL",
];

/// A store that outlives the worlds on it.
struct Place {
    store: Store,
    files: tempfile::TempDir,
    database: Option<PrivateDatabase>,
}

impl Place {
    async fn new(store: Store) -> Self {
        let database = if store == Store::Postgres { Some(PrivateDatabase::create().await) } else { None };
        Self { store, files: tempfile::tempdir().unwrap(), database }
    }

    async fn open(&self) -> World {
        let data = match &self.database {
            Some(database) => idem_local::Data::Postgres(database.url.clone()),
            None => idem_local::Data::Directory(self.files.path().to_owned()),
        };
        World::start_with(Store::Sqlite, |settings| settings.data = data).await
    }

    fn url(&self, file: &str) -> StoreUrl {
        match &self.database {
            Some(database) => database.url.parse().unwrap(),
            None => StoreUrl::Sqlite(self.files.path().join(file)),
        }
    }

    fn file(&self, sql: &str) -> std::path::PathBuf {
        self.files.path().join(if sql.contains("idem_keys") { "idem.db" } else { "orders.db" })
    }

    /// Runs SQL behind everybody's back.
    async fn run(&self, sql: &str) {
        match &self.database {
            Some(database) => database.run(sql).await,
            None => {
                // A dump names its tables before those that they refer to.
                let unchecked = format!("PRAGMA foreign_keys = OFF; {sql}");
                rusqlite::Connection::open(self.file(sql)).unwrap().execute_batch(&unchecked).unwrap();
            }
        }
    }

    async fn number(&self, sql: &str) -> i64 {
        match &self.database {
            Some(database) => database.number(sql).await,
            None => rusqlite::Connection::open(self.file(sql)).unwrap().query_row(sql, [], |row| row.get(0)).unwrap(),
        }
    }
}

/// A little of everything that this release does, on whatever schema is there.
async fn sell(world: &World, name: &str) {
    let order = world.place(&format!("{name}-order"), 1).await;
    world.pay(&format!("{name}-payment"), &order, "pm_approved").await.expect(201);
    let ticket = world.order(&order).await["tickets"][0]["id"].as_str().unwrap().to_owned();
    world.post_bare(&format!("/v1/tickets/{ticket}/check-in")).await.expect(200);
    let other = world.place(&format!("{name}-other"), 2).await;
    world.pay(&format!("{name}-declined"), &other, "pm_declined").await.expect(402);
    world.post_bare(&format!("/v1/orders/{other}/cancel")).await.expect(200);
    let replay = world.post("/v1/orders", &format!("{name}-order"), World::order_body(1)).await;
    assert!(replay.expect(201).is_replay());
    world.post("/v1/orders", &format!("{name}-order"), World::order_body(2)).await.expect(422);
}

async fn this_release_lives_with_the_schema_of_the_next(store: Store) {
    let place = Place::new(store).await;
    let mut world = place.open().await;
    sell(&world, "before").await;
    let body = World::order_body(3);
    let mut holder = Holder::reserve(&world, "held", "/v1/orders", &body).await;

    // Expand: on Postgres under our feet, a SQLite file must be free.
    let is_live = place.store == Store::Postgres;
    if !is_live {
        world.stop().await;
    }
    for (file, next) in [("idem.db", &NEXT_IDEM), ("orders.db", &NEXT_ORDERS)] {
        let migrated = Database::migrate(&place.url(file), next).await.unwrap();
        assert_eq!((migrated.version, migrated.applied.len()), (2, 1));
    }
    if !is_live {
        world = place.open().await;
        holder = holder.of(&world).await;
    }
    sell(&world, "expanded").await;
    assert_eq!(holder.place(3).await.unwrap().label(), idem_proto::orders::v1::Label::Final);

    // Migrate: the next release fills in what is old, while this one writes.
    let filling = async {
        for sql in BACK_FILL {
            if is_live {
                place.run(sql).await;
            }
        }
    };
    let (..) = tokio::join!(filling, sell(&world, "filling"));
    sell(&world, "filled").await;
    let completed = holder.complete(201, "{}").await.outcome;
    assert!(matches!(completed, Some(idem_proto::idem::v1::complete_response::Outcome::Completed(_))), "{completed:?}");

    // A process of this release that starts now is not refused, and finds all of it.
    world.stop().await;
    if !is_live {
        for sql in BACK_FILL {
            place.run(sql).await;
        }
    }
    let world = place.open().await;
    sell(&world, "restarted").await;
    for name in ["before", "expanded", "filling", "filled"] {
        let replay = world.post("/v1/orders", &format!("{name}-order"), World::order_body(1)).await;
        assert!(replay.expect(201).is_replay(), "{name}");
    }
    world.stop().await;
    // What was filled in stays, also where this release has written the row since; what is new waits for the next round.
    assert!(place.number("SELECT count(*) FROM orders WHERE channel = 'web'").await >= 4);
    assert!(place.number("SELECT count(*) FROM idem_keys WHERE region = 'eu'").await >= 8);
    assert!(place.number("SELECT count(*) FROM orders WHERE channel IS NULL").await >= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_release_lives_with_the_schema_of_the_next_on_sqlite() {
    this_release_lives_with_the_schema_of_the_next(Store::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_release_lives_with_the_schema_of_the_next_on_postgres() {
    this_release_lives_with_the_schema_of_the_next(Store::Postgres).await;
}

/// Instants of the idempotency service's rows; of another type in each engine.
const IDEM_TIMES: [&str; 6] =
    ["lease_until", "completed_at", "expires_at", "created_at", "updated_at", "handed_out_until"];

/// Instants of the orders service's rows, microseconds in both engines.
const ORDERS_TIMES: [(&str, &[&str]); 5] = [
    ("operations", &["created_at"]),
    ("orders", &["created_at", "hold_expires_at", "hold_until"]),
    ("payments", &["created_at", "closed_at", "next_ask_at"]),
    ("refunds", &["created_at", "next_try_at", "acknowledged_at"]),
    ("acquirer_events", &["received_at", "applied_at"]),
];

/// Lays the fixture out as if it had been written just now: what was kept for a day must not be over because the file is older.
async fn lay_out(place: &Place) {
    let read = |name: &str| std::fs::read_to_string(Path::new(FIXTURE).join(name)).unwrap();
    let (name, dumps) = match place.store {
        Store::Postgres => ("postgres", vec!["postgres.sql"]),
        Store::Sqlite => ("sqlite", vec!["idem.sqlite.sql", "orders.sqlite.sql"]),
    };
    for dump in dumps {
        place.run(&read(dump)).await;
    }
    let written: i64 = read(&format!("{name}.written")).trim().parse().unwrap();
    let now = i64::try_from(wall().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let micros = (now - written) * 1_000_000;
    let shift = |column: &str, by: &str| format!("{column} = {column} + {by}");
    let by = match place.store {
        Store::Postgres => format!("INTERVAL '1 microsecond' * {micros}"),
        Store::Sqlite => micros.to_string(),
    };
    let shifts: Vec<_> = IDEM_TIMES.map(|column| shift(column, &by)).into();
    place.run(&format!("UPDATE idem_keys SET {}", shifts.join(", "))).await;
    for (table, columns) in ORDERS_TIMES {
        let shifts: Vec<_> = columns.iter().map(|column| shift(column, &micros.to_string())).collect();
        place.run(&format!("UPDATE {table} SET {}", shifts.join(", "))).await;
    }
}

async fn what_the_release_before_has_left_is_honoured(store: Store) {
    let place = Place::new(store).await;
    lay_out(&place).await;
    let answers: Value =
        serde_json::from_str(&std::fs::read_to_string(Path::new(FIXTURE).join("answers.json")).unwrap()).unwrap();
    let kept = &answers[if store == Store::Postgres { "postgres" } else { "sqlite" }];
    let kept = |key: &str| kept[key].as_str().unwrap().to_owned();
    let id = |key: &str| serde_json::from_str::<Value>(&kept(key)).unwrap()["id"].as_str().unwrap().to_owned();
    let world = place.open().await;

    // What was answered is answered again, byte for byte; the key is bound to its request.
    for (key, status, body) in [("kept-order", 201, World::order_body(2)), ("paid-order", 201, World::order_body(1))] {
        let replay = world.post("/v1/orders", key, body).await.expect(status);
        assert!(replay.is_replay() && replay.body == kept(key), "{key}: {replay:?}");
        world.post("/v1/orders", key, World::order_body(9)).await.expect(422);
    }
    let replay = world.pay("paid-payment", &id("paid-order"), "pm_approved").await.expect(201);
    assert!(replay.is_replay() && replay.body == kept("paid-payment"), "{replay:?}");
    assert_eq!(world.order_status(&id("kept-order")).await, "pending");
    let replay = world.key_state("declined-payment").await.expect(200).json();
    assert_eq!((&replay["state"], &replay["statusCode"]), (&json!("completed"), &json!(402)));
    assert_eq!(world.acquirer_totals().await["charges"], 0, "nothing was charged again");

    // What was released executes, under the operation id that it had.
    assert_eq!(world.key_state("sold-out").await.expect(200).text("state"), "released");
    let stock = world.ticket_type("front-row").await;
    assert_eq!((&stock["sold"], &stock["held"]), (&json!(0), &json!(0)));
    world.post("/v1/orders", "sold-out", World::order_body_of("front-row", 5)).await.expect(409);

    // What was there can be paid, used and cancelled.
    world.pay("late-payment", &id("kept-order"), "pm_approved").await.expect(201);
    assert_eq!(world.order_status(&id("kept-order")).await, "paid");
    let ticket = world.order(&id("paid-order")).await["tickets"][0]["id"].as_str().unwrap().to_owned();
    world.post_bare(&format!("/v1/tickets/{ticket}/check-in")).await.expect(200);

    // What was in doubt or in progress is settled: this acquirer has never heard of those payments.
    for key in ["pending-payment", "slow-payment"] {
        eventually("an unfinished key is settled", || async {
            world.advance(Duration::from_secs(61));
            (world.key_state(key).await.expect(200).text("state") == "released").then_some(())
        })
        .await;
    }
    sell(&world, "new").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_release_before_has_left_is_honoured_on_sqlite() {
    what_the_release_before_has_left_is_honoured(Store::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_release_before_has_left_is_honoured_on_postgres() {
    what_the_release_before_has_left_is_honoured(Store::Postgres).await;
}
