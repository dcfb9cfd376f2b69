//! Requests that two servers could read differently: straight at the gateway, and through a real nginx in front of it.
//!
//! What must never happen: a request inside another is executed, or a request is executed without the protection of the key that
//! its client has sent.

use std::{net::SocketAddr, path::PathBuf, process::Child};

use e2e::{Store, World, free_address};

use crate::{
    bystander::Bystander,
    wire::{exchange, statuses},
};

/// An nginx of one test's own, as an ingress would have it: HTTP/1.1 and kept connections to the gateway.
struct Nginx {
    child: Child,
    at: SocketAddr,
    _files: tempfile::TempDir,
}

const PLACES: [&str; 3] = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"];

impl Nginx {
    /// None, said aloud, only where `tests/run` could not install it and says so.
    #[allow(clippy::print_stderr, reason = "somebody must hear what was not tested")]
    async fn before(gateway: SocketAddr) -> Option<Self> {
        let Some(program) = PLACES.iter().map(PathBuf::from).find(|path| path.exists()) else {
            assert!(
                std::env::var_os("IDEM_TEST_WITHOUT_NGINX").is_some(),
                "nginx is not installed: install it, or set IDEM_TEST_WITHOUT_NGINX to go without this test"
            );
            eprintln!("NOT TESTED: smuggling through nginx, which is not installed");
            return None;
        };
        let files = tempfile::tempdir().unwrap();
        let at = free_address();
        let home = files.path().display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {home}/{kind};"))
            .join("\n");
        let configuration = format!(
            "daemon off; master_process off; pid {home}/pid; error_log {home}/error.log;
             events {{}}
             http {{
               access_log off; {paths}
               upstream gateway {{ server {gateway}; keepalive 8; }}
               server {{
                 listen {at};
                 location / {{
                   proxy_pass http://gateway;
                   proxy_http_version 1.1;
                   proxy_set_header Connection \"\";
                   proxy_set_header Host $host;
                 }}
               }}
             }}"
        );
        let file = files.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let mut command = std::process::Command::new(program);
        command.arg("-p").arg(files.path()).arg("-e").arg(files.path().join("error.log")).arg("-c").arg(&file);
        let child = command.spawn().expect("nginx starts");
        let nginx = Self { child, at, _files: files };
        e2e::eventually("nginx serves", || async {
            let url = format!("http://{at}/docs/errors");
            reqwest::get(url).await.ok().filter(|answer| answer.status().is_success()).map(drop)
        })
        .await;
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A request for one seat, with these header lines beside the usual ones.
fn order(key: Option<&str>, lines: &str, target: &str) -> String {
    let body = World::order_body(1).to_string();
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    format!(
        "POST {target} HTTP/1.1\r\nhost: shop.example\r\nauthorization: Bearer sk_demo_a\r\ncontent-type: application/json\r\n\
         {key}{lines}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An outer request, that ends where one reader thinks, and an order in what another would take for the rest.
fn carriers() -> Vec<(&'static str, String)> {
    let inner = order(Some("smuggled"), "", "/v1/orders");
    let outer = "POST /v1/orders HTTP/1.1\r\nhost: shop.example\r\nauthorization: Bearer sk_demo_a\r\n\
         content-type: application/json\r\nidempotency-key: carrier\r\n";
    let length = format!("{outer}content-length: {}\r\n", inner.len() + 5);
    let chunked = format!("0\r\n\r\n{inner}");
    vec![
        ("CL.TE", format!("{length}transfer-encoding: chunked\r\n\r\n{chunked}")),
        (
            "TE.CL",
            format!(
                "{outer}transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n{:x}\r\n{inner}\r\n0\r\n\r\n",
                inner.len()
            ),
        ),
        ("TE with a space", format!("{length}transfer-encoding : chunked\r\n\r\n{chunked}")),
        ("TE with a tab", format!("{length}transfer-encoding:\tchunked\r\n\r\n{chunked}")),
        ("TE unknown", format!("{length}transfer-encoding: xchunked\r\n\r\n{chunked}")),
        ("TE identity, chunked", format!("{length}transfer-encoding: identity, chunked\r\n\r\n{chunked}")),
        ("TE twice", format!("{length}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n{chunked}")),
        ("TE folded", format!("{length}transfer-encoding:\r\n chunked\r\n\r\n{chunked}")),
        ("TE with a bare LF", format!("{length}x: y\ntransfer-encoding: chunked\r\n\r\n{chunked}")),
        ("CL twice", format!("{outer}content-length: 5\r\ncontent-length: {}\r\n\r\n{chunked}", chunked.len())),
        ("CL with a sign", format!("{outer}content-length: +5\r\n\r\n{chunked}")),
        ("CL as a list", format!("{outer}content-length: 5, {}\r\n\r\n{chunked}", chunked.len())),
        ("chunk size too long", format!("{outer}transfer-encoding: chunked\r\n\r\n1ffffffffffffffff0\r\n{inner}")),
        ("chunk size with an extension", format!("{outer}transfer-encoding: chunked\r\n\r\n0;\n{inner}\r\n\r\n")),
        ("HTTP/1.0 with TE", format!("{length}transfer-encoding: chunked\r\n\r\n{chunked}").replacen("1.1", "1.0", 1)),
    ]
}

/// Each must end in a refusal, or in an answer to the outer request; what is inside is never executed.
async fn carry(world: &World, at: SocketAddr) {
    for (name, request) in carriers() {
        let heard = exchange(at, request.as_bytes()).await;
        let answers = statuses(&heard);
        // More than one answer is as good as a refusal when none of them is that of an order.
        assert!(!answers.contains(&201), "{name}: {heard}");
        assert!(answers.first().is_none_or(|status| (400..500).contains(status) || *status == 501), "{name}: {heard}");
        world.key_state("smuggled").await.expect(404);
    }
}

/// Spellings of the key: each is either the key, or a refusal; never an order without one.
async fn spell(world: &World, at: SocketAddr, through: &str) {
    let held = async || world.ticket_type("general").await["held"].as_u64().unwrap();
    let before = held().await;
    let refused: [(&str, String); 6] = [
        ("two lines", order(Some("k1"), "Idempotency-Key: k2\r\n", "/v1/orders")),
        ("the same twice", order(Some("k1"), "Idempotency-Key: k1\r\n", "/v1/orders")),
        ("underscores", order(None, "Idempotency_Key: k1\r\n", "/v1/orders")),
        ("a space before the colon", order(None, "Idempotency-Key : k1\r\n", "/v1/orders")),
        ("a NUL in it", order(None, "Idempotency-Key: k\0 1\r\n", "/v1/orders")),
        ("none", order(None, "", "/v1/orders")),
    ];
    for (name, request) in refused {
        let heard = exchange(at, request.as_bytes()).await;
        assert_eq!(statuses(&heard).first().copied().unwrap_or(400), 400, "{name}: {heard}");
    }
    assert_eq!(held().await, before, "nothing was executed");

    // Told to drop the key on the way, a proxy may: then it is missing, and the order refused. Kept, it protects.
    let hop = order(Some(&format!("hop-{through}")), "Connection: idempotency-key\r\n", "/v1/orders");
    let heard = exchange(at, hop.as_bytes()).await;
    assert!(matches!(statuses(&heard)[..], [201] | [400]), "{heard}");
    let kept = u64::from(statuses(&heard) == [201]);
    assert_eq!(held().await, before + kept);

    // The absolute form of a target is the same request, whatever host it names.
    let key = format!("absolute-{through}");
    let first = exchange(at, order(Some(&key), "", "/v1/orders").as_bytes()).await;
    let again = exchange(at, order(Some(&key), "", "http://elsewhere.example/v1/orders").as_bytes()).await;
    assert_eq!((statuses(&first), statuses(&again)), (vec![201], vec![201]), "{again}");
    assert!(again.to_ascii_lowercase().contains("idempotent-replayed: true"), "{again}");
    // And other spellings of a path are other paths, or nothing.
    for target in [
        "//v1/orders",
        "/v1//orders",
        "/v1/orders/",
        "/v1/./orders",
        "/V1/orders",
        "/v1/orders%00",
        "/v1/orders\\",
        "*",
    ] {
        let heard = exchange(at, order(Some(&format!("path-{through}")), "", target).as_bytes()).await;
        let answers = statuses(&heard);
        // A proxy may make the plain path of it; then it is that request, with its key.
        assert!(answers.iter().all(|status| (400..500).contains(status) || *status == 201), "{target}: {heard}");
    }
    assert!(held().await <= before + kept + 2);
}

/// Two lengths, codings and hosts: what is refused, and what counts where something is executed.
async fn judge(world: &World, at: SocketAddr) {
    let body = World::order_body(1).to_string();
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let inner = order(Some("smuggled"), "", "/v1/orders");
    let head = |key: &str, lines: &str| {
        format!(
            "POST /v1/orders HTTP/1.1\r\nauthorization: Bearer sk_demo_a\r\ncontent-type: application/json\r\n\
             idempotency-key: {key}\r\n{lines}\r\n"
        )
    };
    let (host, length) = ("host: shop.example\r\n", format!("content-length: {}\r\n", body.len()));
    let coding = "transfer-encoding: chunked\r\n";

    // The chunks count whatever the length says, and the connection is over: what follows is nobody's request.
    for (key, lines) in [
        ("cl-te", format!("{host}{length}{coding}")),
        ("te-cl", format!("{host}{coding}{length}")),
        ("te-cl-short", format!("{host}{coding}content-length: 0\r\n")),
        ("te-two-cl", format!("{host}{coding}content-length: 1\r\ncontent-length: 2\r\n")),
    ] {
        let heard = exchange(at, format!("{}{chunked}{inner}", head(key, &lines)).as_bytes()).await;
        assert_eq!(statuses(&heard), [201], "{key}: {heard}");
        assert!(heard.to_ascii_lowercase().contains("connection: close"), "{key}: {heard}");
        world.key_state("smuggled").await.expect(404);
    }
    let heard = exchange(at, format!("{}{body}", head("cl-cl", &format!("{host}{length}{length}"))).as_bytes()).await;
    assert_eq!(statuses(&heard), [201], "the same length twice: {heard}");

    for (key, lines) in [
        ("gzip", format!("{host}transfer-encoding: gzip, chunked\r\n")),
        ("gzip-line", format!("{host}transfer-encoding: gzip\r\n{coding}")),
        ("chunked-twice", format!("{host}{coding}{coding}")),
        ("no-host", coding.to_owned()),
        ("two-hosts", format!("{host}{host}{coding}")),
        ("no-host-name", format!("host: shop example\r\n{coding}")),
    ] {
        let heard = exchange(at, format!("{}{chunked}{inner}", head(key, &lines)).as_bytes()).await;
        assert_eq!(statuses(&heard), [400], "{key}: {heard}");
        assert!(heard.contains("application/problem+json") && heard.contains("ambiguous_message"), "{key}: {heard}");
        assert!(heard.to_ascii_lowercase().contains("connection: close"), "{key}: {heard}");
        world.key_state(key).await.expect(404);
        world.key_state("smuggled").await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_smuggled_into_the_gateway() {
    let world = World::start(Store::Sqlite).await;
    let bystander = Bystander::of(&world).await;
    let at = world.addresses().rest;
    carry(&world, at).await;
    judge(&world, at).await;
    spell(&world, at, "direct").await;
    bystander.was_served().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_smuggled_through_nginx() {
    let world = World::start(Store::Sqlite).await;
    let bystander = Bystander::of(&world).await;
    if let Some(nginx) = Nginx::before(world.addresses().rest).await {
        carry(&world, nginx.at).await;
        spell(&world, nginx.at, "nginx").await;
    }
    bystander.was_served().await;
    world.stop().await;
}
