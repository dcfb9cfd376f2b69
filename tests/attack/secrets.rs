//! Secrets are planted in a purchase through the real programs, and looked for in everything that they say and keep.

use std::{fs::File, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chassis::tasks::Tasks;
use e2e::{PrivateDatabase, Process, Reply, eventually, free_address};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

const API_KEY: &str = "sk_planted_5b1c8e";
const OPERATOR_KEY: &str = "sk_planted_ops_77aa";
const SERVICE_TOKEN: &str = "st_planted_90cc1f";
const WEBHOOK_SECRET: &str = "whsec_planted_3d7e";
const ORDER_KEY: &str = "planted-order-key-41";
const PAYMENT_KEY: &str = "planted-payment-key-42";
/// A card token, as far as the sandbox has such: approved after 137 ms.
const PAYMENT_METHOD: &str = "pm_slow_137";
const VENUE: &str = "planted-venue-6f";

/// What nobody may ever say: neither a log, nor a trace, nor a metric.
const NEVER_SAID: [&str; 8] =
    [API_KEY, OPERATOR_KEY, SERVICE_TOKEN, WEBHOOK_SECRET, ORDER_KEY, PAYMENT_KEY, PAYMENT_METHOD, VENUE];
/// What is in no table.
const NEVER_KEPT: [&str; 4] = [API_KEY, OPERATOR_KEY, SERVICE_TOKEN, WEBHOOK_SECRET];

/// Takes whatever is sent over OTLP, and keeps the bytes.
struct Collector {
    at: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind(free_address()).await.unwrap();
        let (at, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = heard.clone();
        let accepting = async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(Tasks::new().spawn("export", Self::take(stream, kept.clone())));
            }
        };
        drop(Tasks::new().spawn("collector", accepting));
        Self { at, heard }
    }

    /// One export after the other: a head with a length, a body, and 200.
    async fn take(mut stream: TcpStream, kept: Arc<Mutex<Vec<u8>>>) {
        let mut heard = Vec::new();
        loop {
            let head = heard.windows(4).position(|window| window == b"\r\n\r\n");
            let length = head.map(|end| (end + 4, String::from_utf8_lossy(&heard[..end]).to_ascii_lowercase()));
            let length = length.and_then(|(end, head)| {
                let length: usize = head.split("content-length:").nth(1)?.split("\r\n").next()?.trim().parse().ok()?;
                Some(end + length)
            });
            if let Some(whole) = length.filter(|whole| heard.len() >= *whole) {
                kept.lock().await.extend(heard.drain(..whole));
                let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
                if stream.write_all(answer).await.is_err() {
                    return;
                }
                continue;
            }
            let mut buffer = [0; 16 * 1024];
            match stream.read(&mut buffer).await {
                Ok(read @ 1..) => heard.extend_from_slice(&buffer[..read]),
                _ => return,
            }
        }
    }
}

/// The four programs, talking.
struct Shop {
    processes: Vec<Process>,
    rest: SocketAddr,
    admins: Vec<SocketAddr>,
    database: PrivateDatabase,
    collector: Collector,
    http: reqwest::Client,
    files: tempfile::TempDir,
}

impl Shop {
    async fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, content: Value| {
            let path = files.path().join(name);
            std::fs::write(&path, content.to_string()).unwrap();
            path.display().to_string()
        };
        let api_keys =
            json!([{"tenant": "shop", "key": API_KEY}, {"tenant": "ops", "key": OPERATOR_KEY, "operator": true}]);
        let tokens = json!([{"service": "gateway", "token": SERVICE_TOKEN, "scopes": ["rest/*"],
            "rpcs": ["idem.v1.IdempotencyService/*", "idem.v1.AdminService/*", "orders.v1.OrdersService/*"]}]);
        let [api_keys, tokens] = [file("keys.json", api_keys), file("tokens.json", tokens)];
        let encryption = file("encryption.json", json!([{"id": "2026-11", "key": STANDARD.encode([7_u8; 32])}]));
        let database = PrivateDatabase::create().await;
        let collector = Collector::start().await;
        let [rest, gateway_admin, idem, idem_admin, orders, orders_admin, sandbox] = [(); 7].map(|()| free_address());
        let http = |at: SocketAddr| format!("http://{at}");
        let programs: [(&'static str, Vec<(&str, String)>); 4] = [
            (
                "acquirer-sandbox",
                vec![
                    ("--listen", sandbox.to_string()),
                    ("--webhook-url", format!("http://{rest}/webhooks/acquirer")),
                    ("--webhook-secret", WEBHOOK_SECRET.into()),
                ],
            ),
            (
                "idem-service",
                vec![
                    ("--listen", idem.to_string()),
                    ("--admin-listen", idem_admin.to_string()),
                    ("--store", database.url.clone()),
                    ("--service-tokens", tokens.clone()),
                    ("--encryption-keys", encryption),
                ],
            ),
            (
                "orders-service",
                vec![
                    ("--listen", orders.to_string()),
                    ("--admin-listen", orders_admin.to_string()),
                    ("--store", database.url.clone()),
                    ("--service-tokens", tokens),
                    ("--acquirer-url", http(sandbox)),
                    ("--webhook-secret", WEBHOOK_SECRET.into()),
                ],
            ),
            (
                "gateway",
                vec![
                    ("--listen", rest.to_string()),
                    ("--admin-listen", gateway_admin.to_string()),
                    ("--idem-endpoint", http(idem)),
                    ("--orders-endpoint", http(orders)),
                    ("--api-keys", api_keys),
                    ("--service-token", SERVICE_TOKEN.into()),
                ],
            ),
        ];
        let endpoint = http(collector.at);
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
        ];
        let processes = programs.into_iter().map(|(program, flags)| {
            let arguments: Vec<String> = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
            let log = File::create(files.path().join(format!("{program}.log"))).unwrap();
            Process::start_talking(program, &arguments, &variables, &log)
        });
        let processes = processes.collect();
        let admins = vec![gateway_admin, idem_admin, orders_admin];
        let shop = Self { processes, rest, admins, database, collector, http: reqwest::Client::new(), files };
        for admin in &shop.admins {
            eventually("a process is ready", || async {
                let answer = shop.http.get(format!("http://{admin}/readyz")).send().await.ok()?;
                answer.status().is_success().then_some(())
            })
            .await;
        }
        shop
    }

    async fn ask(&self, method: &str, path: &str, api_key: &str, key: Option<&str>, body: Value) -> Reply {
        let request = self.http.request(method.parse().unwrap(), format!("http://{}{path}", self.rest));
        let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
        Reply::read(request.bearer_auth(api_key).json(&body).send().await.unwrap()).await
    }

    /// A purchase, its retries, and what goes wrong with them.
    async fn buy(&self) -> String {
        let kind =
            json!({"venueId": VENUE, "name": "Seat", "price": {"amount": 1000, "currency": "EUR"}, "capacity": 9});
        self.ask("PUT", "/v1/ticket-types/seat", OPERATOR_KEY, None, kind).await.expect(201);
        let order = json!({"venueId": VENUE, "items": [{"ticketTypeId": "seat", "quantity": 2}]});
        let placed = self.ask("POST", "/v1/orders", API_KEY, Some(ORDER_KEY), order.clone()).await.expect(201);
        let id = placed.text("id");
        let replay = self.ask("POST", "/v1/orders", API_KEY, Some(ORDER_KEY), order).await.expect(201);
        assert!(replay.is_replay() && replay.body == placed.body, "encrypted or not, the answer is the same");
        let reuse = json!({"venueId": VENUE, "items": [{"ticketTypeId": "seat", "quantity": 3}]});
        self.ask("POST", "/v1/orders", API_KEY, Some(ORDER_KEY), reuse).await.expect(422);
        let wrong = json!({"venueId": VENUE, "items": "none"});
        self.ask("POST", "/v1/orders", API_KEY, Some("planted-order-key-41-wrong"), wrong).await.expect(400);
        let pay = json!({"orderId": id, "paymentMethod": PAYMENT_METHOD});
        eventually("it is paid", || async {
            let paid = self.ask("POST", "/v1/payments", API_KEY, Some(PAYMENT_KEY), pay.clone()).await;
            (paid.status == 201).then_some(())
        })
        .await;
        self.ask("GET", &format!("/v1/idempotency-keys/{ORDER_KEY}"), API_KEY, None, Value::Null).await.expect(200);
        self.ask("GET", &format!("/v1/orders/{id}"), &format!("{API_KEY}x"), None, Value::Null).await.expect(401);
        id
    }

    /// Every row of every table of one of the schemas, as text; bytes in hexadecimal and as they read.
    async fn dump(&self, tables: &str) -> String {
        let named = format!(
            "SELECT table_name::text FROM information_schema.tables
              WHERE table_schema = 'public' AND table_name ~ '{tables}'"
        );
        let mut dump = String::new();
        for name in self.database.texts(&named).await {
            let rows = self.database.texts(&format!("SELECT t::text FROM \"{name}\" AS t")).await.join("\n");
            dump += &legible(&rows);
        }
        assert!(!dump.is_empty(), "no rows in {tables}");
        dump
    }
}

/// With what stands in hexadecimal written out too.
fn legible(rows: &str) -> String {
    let mut text = rows.to_owned();
    for run in rows.split("\\x").skip(1) {
        let digits: String = run.chars().take_while(char::is_ascii_hexdigit).collect();
        let bytes = hex::decode(&digits[..digits.len() / 2 * 2]).unwrap();
        text += &String::from_utf8_lossy(&bytes);
    }
    text
}

fn find(what: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        if let Some(at) = text.find(secret) {
            let begin = text[..at].rfind('\n').map_or(0, |line| line + 1).max(at.saturating_sub(300));
            let begin = (begin..=at).find(|begin| text.is_char_boundary(*begin)).unwrap();
            panic!("{what} tells {secret}: {}", &text[begin..at + secret.len()]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planted_secrets_are_in_no_log_trace_or_metric_and_answers_in_no_table_on_postgres() {
    let mut shop = Shop::start().await;
    let order = shop.buy().await;
    eventually("traces have come", || async {
        let heard = String::from_utf8_lossy(&shop.collector.heard.lock().await).into_owned();
        ["gateway", "idem-service", "orders-service"].iter().all(|name| heard.contains(name)).then_some(())
    })
    .await;
    for admin in &shop.admins {
        let metrics = shop.http.get(format!("http://{admin}/metrics")).send().await.unwrap().text().await.unwrap();
        assert!(metrics.contains("# TYPE"));
        find(&format!("/metrics of {admin}"), &metrics, &NEVER_SAID);
    }
    // The answers are in the tables of the idempotency service, and not to be read there.
    let kept = shop.dump("^idem_").await;
    assert!(kept.contains(ORDER_KEY) && kept.contains("2026-11"), "{kept}");
    find("a table of idem-service", &kept, &[VENUE, PAYMENT_METHOD, "ticketTypeId", "holdExpiresAt", &order]);
    find("a table of idem-service", &kept, &NEVER_KEPT);
    find("a table of orders-service", &shop.dump("^(?!idem_)").await, &NEVER_KEPT);

    for process in &mut shop.processes {
        process.signal("TERM");
        tokio::time::timeout(Duration::from_secs(40), process.until_ended()).await.unwrap();
    }
    let traces = String::from_utf8_lossy(&shop.collector.heard.lock().await).into_owned();
    find("a trace", &traces, &NEVER_SAID);
    for program in ["gateway", "idem-service", "orders-service", "acquirer-sandbox"] {
        let log = std::fs::read(shop.files.path().join(format!("{program}.log"))).unwrap();
        assert!(!log.is_empty(), "{program} says nothing");
        find(&format!("the log of {program}"), &String::from_utf8_lossy(&log), &NEVER_SAID);
    }
}
