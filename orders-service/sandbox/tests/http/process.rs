//! The sandbox as a process of its own.

use std::process::Command;

fn run(flags: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_acquirer-sandbox")).args(flags).env_clear().output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn wrong_flags_and_a_busy_port_are_one_sentence_and_an_exit_code() {
    let (code, said) = run(&["--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("--webhook-secret") && said.lines().count() == 1, "{said}");
    let (code, said) = run(&["--webhook-url", "nowhere"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("http://host:port/path"), "{said}");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, said) = run(&["--listen", &busy.local_addr().unwrap().to_string()]);
    assert_eq!(code, Some(1));
    assert!(said.contains("another process already listens there") && said.lines().count() == 1, "{said}");
}
