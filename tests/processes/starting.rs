//! What a process says when it cannot start: one clear sentence, a non-zero exit, nothing served.

use std::{
    io::Read as _,
    process::{Command, Stdio},
};

use e2e::{PrivateDatabase, binary, free_address};

struct Refusal {
    code: Option<i32>,
    said: String,
}

/// Where a process would listen by default somebody else may be at work on this machine.
const ANYWHERE: [&str; 7] = [
    "IDEM_LISTEN",
    "IDEM_ADMIN_LISTEN",
    "ORDERS_LISTEN",
    "ORDERS_ADMIN_LISTEN",
    "GATEWAY_LISTEN",
    "GATEWAY_ADMIN_LISTEN",
    "ACQUIRER_LISTEN",
];

async fn refused(program: &'static str, arguments: &[&str]) -> Refusal {
    let mut child = Command::new(binary(program))
        .args(arguments)
        .envs(ANYWHERE.map(|variable| (variable, "127.0.0.1:0")))
        .env("RUST_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(15);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if tokio::time::Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{program} {arguments:?} neither refused nor ended");
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    Refusal { code: status.code(), said }
}

impl Refusal {
    #[track_caller]
    fn expect(self, words: &[&str]) {
        assert!(self.code.is_some_and(|code| code != 0), "{:?}: {}", self.code, self.said);
        for word in words {
            assert!(self.said.contains(word), "{word} in {:?}", self.said);
        }
        assert!(!self.said.contains("panicked"), "{}", self.said);
    }
}

fn api_keys(dir: &tempfile::TempDir) -> String {
    let file = dir.path().join("keys.json");
    std::fs::write(&file, r#"[{"tenant": "demo-a", "key": "sk_demo_a"}]"#).unwrap();
    file.display().to_string()
}

#[tokio::test]
async fn wrong_flags_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("sqlite:{}", dir.path().join("a.db").display());
    refused("idem-service", &["--nonsense"]).await.expect(&["--nonsense"]);
    refused("idem-service", &["--store", "mysql://x"]).await.expect(&["--store"]);
    refused("idem-service", &["--store", &db, "--listen", "0.0.0.0:0"]).await.expect(&["--insecure"]);
    refused("orders-service", &["--store", &db, "--listen", "0.0.0.0:0"]).await.expect(&["--insecure"]);
    refused("orders-service", &["--store", &db, "--acquirer-timeout", "soon"]).await.expect(&["--acquirer-timeout"]);
    let keys = api_keys(&dir);
    refused("gateway", &["--api-keys", &keys, "--lease", "5s", "--upstream-timeout", "6s"])
        .await
        .expect(&["--lease", "--upstream-timeout"]);
    refused("gateway", &["--api-keys", &keys, "--lease", "60s", "--retention", "61s"]).await.expect(&["--retention"]);
    refused("gateway", &["--api-keys", &keys, "--lease", "2h"]).await.expect(&["lease"]);
    refused("gateway", &["--api-keys", "/nowhere/keys.json"]).await.expect(&["/nowhere/keys.json"]);
    refused("gateway", &[]).await.expect(&["--api-keys"]);
    refused("idem-local", &["--acquirer-timeout", "30s"]).await.expect(&["--acquirer-timeout", "--upstream-timeout"]);
    refused("idem-local", &["--upstream-timeout", "70s"]).await.expect(&["--upstream-timeout", "--lease"]);
    refused("orders-service", &["--store", &db, "--webhook-secret", ""]).await.expect(&["--webhook-secret"]);
    refused("orders-service", &["--store", &db, "--listen", "0.0.0.0:0", "--insecure"])
        .await
        .expect(&["--webhook-secret"]);
    let leaky = refused("idem-service", &["--store", "postgres://u:sekret@h:99999/x"]).await;
    assert!(!leaky.said.contains("sekret"), "{}", leaky.said);
    leaky.expect(&["--store", "u:***@h"]);
}

#[tokio::test]
async fn a_busy_port_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("sqlite:{}", dir.path().join("a.db").display());
    let busy = std::net::TcpListener::bind(free_address()).unwrap();
    let address = busy.local_addr().unwrap().to_string();
    refused("idem-service", &["--store", &db, "--listen", &address]).await.expect(&[&address]);
    refused("gateway", &["--api-keys", &api_keys(&dir), "--listen", &address]).await.expect(&[&address]);
    refused("acquirer-sandbox", &["--listen", &address]).await.expect(&[&address]);
    let base = busy.local_addr().unwrap().port().to_string();
    refused("idem-local", &["--port-base", &base]).await.expect(&[&address, "--port-base"]);
    refused("orders-service", &["--store", &db, "--admin-listen", &address]).await.expect(&[&address]);
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_named() {
    let closed = format!("postgres://nobody@{}/none", free_address());
    for program in ["idem-service", "orders-service"] {
        refused(program, &["--store", &closed]).await.expect(&[]);
        refused(program, &["--store", "sqlite:/nowhere/at/all/a.db"]).await.expect(&["/nowhere/at/all"]);
    }
}

#[tokio::test]
async fn two_processes_never_share_one_sqlite_file() {
    let dir = tempfile::tempdir().unwrap();
    let db = format!("sqlite:{}", dir.path().join("a.db").display());
    let flags = ["--store", &db, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let arguments: Vec<String> = flags.iter().map(|f| (*f).to_owned()).collect();
    let first = e2e::Process::start("idem-service", &arguments);
    e2e::eventually("the first one has the file", || async { dir.path().join("a.db").exists().then_some(()) }).await;
    refused("idem-service", &flags).await.expect(&["a.db"]);
    drop(first);
}

#[tokio::test]
async fn an_older_schema_is_refused_with_the_command_to_run_on_postgres() {
    let database = PrivateDatabase::create().await;
    for program in ["idem-service", "orders-service"] {
        let migrate = Command::new(binary(program)).args(["migrate", "--store", &database.url]).output().unwrap();
        assert!(migrate.status.success(), "{}", String::from_utf8_lossy(&migrate.stderr));
    }
    database.look_older().await;
    for program in ["idem-service", "orders-service"] {
        let flags = ["--store", database.url.as_str(), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        refused(program, &flags).await.expect(&["migrate"]);
    }
}
