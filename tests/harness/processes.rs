//! The four binaries as real processes, with a proxy on each road between them.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{PrivateDatabase, Proxy, Reply, eventually};

/// One of the programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// `gateway`
    Gateway,
    /// `idem-service`
    Idem,
    /// `orders-service`
    Orders,
    /// `acquirer-sandbox`
    Sandbox,
}

/// A running process; killed when dropped.
pub struct Process {
    child: Child,
    program: &'static str,
    arguments: Vec<String>,
}

impl Process {
    /// Starts a program of this workspace.
    pub fn start(program: &'static str, arguments: &[String]) -> Self {
        Self::start_with(program, arguments, &[])
    }

    /// Starts a program of this workspace that says everything it has to say, into `log`.
    pub fn start_talking(
        program: &'static str,
        arguments: &[String],
        variables: &[(&str, &str)],
        log: &std::fs::File,
    ) -> Self {
        let into = || Stdio::from(log.try_clone().expect("a second handle"));
        let child = Command::new(binary(program))
            .args(arguments)
            .envs(variables.iter().copied())
            .env("RUST_LOG", "debug")
            .stdout(into())
            .stderr(into())
            .spawn()
            .unwrap_or_else(|e| panic!("{program} does not start ({e}): run `cargo build --workspace --bins` first"));
        Self { child, program, arguments: arguments.to_vec() }
    }

    fn start_with(program: &'static str, arguments: &[String], variables: &[(&str, &str)]) -> Self {
        let child = Command::new(binary(program))
            .args(arguments)
            .envs(variables.iter().copied())
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".into()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{program} does not start ({e}): run `cargo build --workspace --bins` first"));
        Self { child, program, arguments: arguments.to_vec() }
    }

    /// Sends a signal by name, as `kill -NAME` does.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -{name} {}", self.program);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Starts it again, as it was started first.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// Starts it again, with these variables in its environment.
    pub fn restart_with(&mut self, variables: &[(&str, &str)]) {
        self.kill();
        self.child = Self::start_with(self.program, &self.arguments, variables).into_child();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Waits until it has ended by itself, and says how.
    pub async fn until_ended(&mut self) -> ExitStatus {
        eventually("a process has ended", || {
            let ended = self.ended();
            async move { ended }
        })
        .await
    }

    /// How long it has used processors.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // After the name in parentheses: user and system time are the 12th and 13th fields, in hundredths of a second.
        let ticks = |at: usize| {
            let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace());
            fields.and_then(|mut fields| fields.nth(at)?.parse::<u64>().ok()).unwrap_or_default()
        };
        Duration::from_millis((ticks(11) + ticks(12)) * 10)
    }

    fn into_child(mut self) -> Child {
        // The placeholder has ended already, so dropping `self` kills nothing.
        let mut ended = Command::new("true").spawn().expect("true starts");
        ended.wait().ok();
        std::mem::replace(&mut self.child, ended)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the programs of this workspace are: beside the test's own directory.
pub fn binary(program: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps").join(program)
}

/// Where a process can listen, and listen again after it was killed.
pub fn free_address() -> SocketAddr {
    free_port::one().expect("a free port")
}

/// Timeouts of a fleet.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Of the gateway.
    pub lease: Duration,
    /// Of the gateway.
    pub retention: Duration,
    /// Of the gateway.
    pub upstream_timeout: Duration,
    /// Of the orders service.
    pub acquirer_timeout: Duration,
    /// Of every process.
    pub drain: Duration,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(4),
            retention: Duration::from_secs(24 * 3600),
            upstream_timeout: Duration::from_secs(2),
            acquirer_timeout: Duration::from_secs(1),
            drain: Duration::from_secs(10),
        }
    }
}

fn listening(flags: &[String], rest: SocketAddr, admin: SocketAddr) -> Vec<String> {
    let listen = ["--listen".to_owned(), rest.to_string(), "--admin-listen".to_owned(), admin.to_string()];
    flags.iter().cloned().chain(listen).collect()
}

async fn until_admin_is_ready(http: &reqwest::Client, admin: SocketAddr) {
    eventually("a process is ready", || async {
        let answer = http.get(format!("http://{admin}/readyz")).send().await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
}

/// Another gateway on the same services, reached without a proxy of its own.
pub struct SecondGateway {
    _process: Process,
    rest: SocketAddr,
    http: reqwest::Client,
}

impl SecondGateway {
    /// `POST path` with a key; none when no answer came.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Option<Reply> {
        post(&self.http, self.rest, path, key, body).await
    }
}

async fn post(http: &reqwest::Client, rest: SocketAddr, path: &str, key: &str, body: &Value) -> Option<Reply> {
    let request = http.post(format!("http://{rest}{path}")).bearer_auth("sk_demo_a");
    Some(Reply::read(request.header("idempotency-key", key).json(body).send().await.ok()?).await)
}

/// The four programs on Postgres, each reached through a proxy.
pub struct Fleet {
    /// The program, to kill.
    pub gateway: Process,
    /// The program, to kill.
    pub idem: Process,
    /// The program, to kill.
    pub orders: Process,
    /// The program, to kill.
    pub sandbox: Process,
    /// Gateway to idempotency service.
    pub to_idem: Proxy,
    /// Gateway to orders service.
    pub to_orders: Proxy,
    /// Orders service to acquirer.
    pub to_acquirer: Proxy,
    database: PrivateDatabase,
    addresses: Addresses,
    http: reqwest::Client,
    gateway_flags: Vec<String>,
    _files: tempfile::TempDir,
}

#[derive(Clone)]
struct Addresses {
    rest: SocketAddr,
    gateway_admin: SocketAddr,
    idem_admin: SocketAddr,
    orders_admin: SocketAddr,
    sandbox: SocketAddr,
}

impl Fleet {
    /// Starts the four programs and waits until they serve; sells `general` tickets of venue `demo`.
    pub async fn start(settings: FleetSettings) -> Self {
        let database = PrivateDatabase::create().await;
        let files = tempfile::tempdir().expect("a temporary directory");
        let keys = files.path().join("keys.json");
        let entries = json!([
            {"tenant": "demo-a", "key": "sk_demo_a"}, {"tenant": "ops", "key": "sk_demo_ops", "operator": true}
        ]);
        std::fs::write(&keys, entries.to_string()).expect("the keys are written");
        let [rest, gateway_admin, idem, idem_admin, orders, orders_admin, sandbox] = [(); 7].map(|()| free_address());
        let (to_idem, to_orders, to_acquirer) =
            (Proxy::to(idem).await, Proxy::to(orders).await, Proxy::to(sandbox).await);
        let secs = |duration: Duration| format!("{}ms", duration.as_millis());
        let flags =
            |pairs: &[(&str, String)]| pairs.iter().flat_map(|(k, v)| [(*k).to_owned(), v.clone()]).collect::<Vec<_>>();
        let start = |program, pairs: &[(&str, String)]| Process::start(program, &flags(pairs));
        let gateway_flags = flags(&[
            ("--idem-endpoint", format!("http://{}", to_idem.address())),
            ("--orders-endpoint", format!("http://{}", to_orders.address())),
            ("--api-keys", keys.display().to_string()),
            ("--lease", secs(settings.lease)),
            ("--retention", secs(settings.retention)),
            ("--upstream-timeout", secs(settings.upstream_timeout)),
            ("--drain", secs(settings.drain)),
        ]);
        let fleet = Self {
            sandbox: start(
                "acquirer-sandbox",
                &[
                    ("--listen", sandbox.to_string()),
                    ("--webhook-url", format!("http://{rest}/webhooks/acquirer")),
                    ("--webhook-secret", "whsec_fleet".into()),
                ],
            ),
            idem: start(
                "idem-service",
                &[
                    ("--listen", idem.to_string()),
                    ("--admin-listen", idem_admin.to_string()),
                    ("--store", database.url.clone()),
                    ("--drain", secs(settings.drain)),
                ],
            ),
            orders: start(
                "orders-service",
                &[
                    ("--listen", orders.to_string()),
                    ("--admin-listen", orders_admin.to_string()),
                    ("--store", database.url.clone()),
                    ("--acquirer-url", format!("http://{}", to_acquirer.address())),
                    ("--acquirer-timeout", secs(settings.acquirer_timeout)),
                    ("--webhook-secret", "whsec_fleet".into()),
                    ("--drain", secs(settings.drain)),
                ],
            ),
            gateway: Process::start("gateway", &listening(&gateway_flags, rest, gateway_admin)),
            database,
            gateway_flags,
            to_idem,
            to_orders,
            to_acquirer,
            addresses: Addresses { rest, gateway_admin, idem_admin, orders_admin, sandbox },
            http: reqwest::Client::builder()
                .pool_max_idle_per_host(0)
                .timeout(Duration::from_secs(30))
                .build()
                .expect("a client"),
            _files: files,
        };
        fleet.until_ready().await;
        let body = json!({"venueId": "demo", "name": "General", "price": {"amount": 1000, "currency": "EUR"}, "capacity": 100});
        eventually("the ticket type is there", || async {
            let request = fleet.http.put(fleet.url("/v1/ticket-types/general")).bearer_auth("sk_demo_ops").json(&body);
            request.send().await.ok().filter(|r| r.status().is_success()).map(drop)
        })
        .await;
        fleet
    }

    /// Waits until every process says that it is ready.
    pub async fn until_ready(&self) {
        let admins = [self.addresses.gateway_admin, self.addresses.idem_admin, self.addresses.orders_admin];
        for admin in admins {
            until_admin_is_ready(&self.http, admin).await;
        }
    }

    /// The process of a role.
    pub fn process(&mut self, role: Role) -> &mut Process {
        match role {
            Role::Gateway => &mut self.gateway,
            Role::Idem => &mut self.idem,
            Role::Orders => &mut self.orders,
            Role::Sandbox => &mut self.sandbox,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses.rest)
    }

    /// Where the gateway listens.
    pub fn rest(&self) -> SocketAddr {
        self.addresses.rest
    }

    /// `GET path` as tenant `demo-a`; none when no answer came.
    pub async fn get(&self, path: &str) -> Option<Reply> {
        let answer = self.http.get(self.url(path)).bearer_auth("sk_demo_a").send().await.ok()?;
        Some(Reply::read(answer).await)
    }

    /// `POST path` with a key; none when no answer came.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Option<Reply> {
        post(&self.http, self.addresses.rest, path, key, body).await
    }

    /// `POST path` without key or body.
    pub async fn post_bare(&self, path: &str) -> Option<Reply> {
        let request = self.http.post(self.url(path)).bearer_auth("sk_demo_a");
        Some(Reply::read(request.send().await.ok()?).await)
    }

    /// Starts another gateway on the same services, and waits until it is ready.
    pub async fn second_gateway(&self) -> SecondGateway {
        let (rest, admin) = (free_address(), free_address());
        let process = Process::start("gateway", &listening(&self.gateway_flags, rest, admin));
        until_admin_is_ready(&self.http, admin).await;
        SecondGateway { _process: process, rest, http: self.http.clone() }
    }

    /// Seats held, read from the database behind everybody's back.
    pub async fn held_in_database(&self) -> i64 {
        self.database.number("SELECT coalesce(sum(held), 0)::bigint FROM ticket_types").await
    }

    /// Seats sold, read from the database behind everybody's back.
    pub async fn sold_in_database(&self) -> i64 {
        self.database.number("SELECT coalesce(sum(sold), 0)::bigint FROM ticket_types").await
    }

    /// How many payments the acquirer has heard of, by asking it for each that the orders service has recorded.
    pub async fn payments_at_acquirer(&self) -> usize {
        let mut known = 0;
        for id in self.database.texts("SELECT id FROM payments").await {
            let url = format!("http://{}/sandbox/payments/{id}", self.addresses.sandbox);
            let reply = self.http.get(url).send().await.expect("the sandbox answers");
            known += usize::from(reply.status().is_success());
        }
        known
    }

    /// Retries as a client does, until the answer is final.
    pub async fn until_answered(&self, path: &str, key: &str, body: &Value) -> Reply {
        eventually(&format!("{key} is answered"), || async {
            let reply = self.post(path, key, body).await?;
            let may_retry =
                reply.status.is_server_error() || (reply.status == 409 && reply.json()["retryable"] == true);
            (!may_retry).then_some(reply)
        })
        .await
    }

    /// The state of a key, when the gateway can say.
    pub async fn key_state(&self, key: &str) -> Option<String> {
        let reply = self.get(&format!("/v1/idempotency-keys/{key}")).await?;
        (reply.status == 200).then(|| reply.text("state"))
    }

    /// What the acquirer counts in all.
    pub async fn acquirer_totals(&self) -> Value {
        let url = format!("http://{}/sandbox/totals", self.addresses.sandbox);
        self.http.get(url).send().await.expect("the sandbox answers").json().await.expect("totals")
    }

    /// Seats held and sold of `general`, asked of the orders service when it can be reached.
    pub async fn taken(&self) -> Option<(u64, u64)> {
        let reply = self.get("/v1/ticket-types/general").await.filter(|r| r.status == 200)?.json();
        Some((reply["held"].as_u64()?, reply["sold"].as_u64()?))
    }
}
