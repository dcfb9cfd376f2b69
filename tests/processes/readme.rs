//! The README's session, verbatim, against the binary that `cargo run` starts.

use std::{path::Path, process::Command};

use e2e::{Process, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_of_the_readme_holds() {
    let dir = tempfile::tempdir().unwrap();
    let base = free_port::run(7).unwrap().port().to_string();
    let data = dir.path().join("data").display().to_string();
    let flags = ["--port-base", &base, "--data-dir", &data].map(str::to_owned);
    let running = Process::start("idem-local", &flags);
    let http = reqwest::Client::new();
    eventually("the system serves the demo's ticket types", || async {
        let url = format!("http://127.0.0.1:{base}/v1/ticket-types/general");
        let answer = http.get(url).bearer_auth("sk_demo_a").send().await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("readme-session");
    let session = tokio::task::spawn_blocking(move || Command::new(script).arg(base).output().unwrap()).await.unwrap();
    let printed = String::from_utf8_lossy(&session.stdout).into_owned() + &String::from_utf8_lossy(&session.stderr);
    assert!(session.status.success(), "{printed}");
    drop(running);
}
