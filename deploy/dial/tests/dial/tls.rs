//! Both ends of TLS: who is let in, as whom, and what happens when files change.

use crate::{
    certificates::{Authority, Identity},
    server::{Named, RESERVE, RESOLVE, Replica, call},
};
use chassis::{
    service_auth::ServiceAuth,
    tls::{ClientFiles, ClientTls, ServerFiles, ServerTls},
};
use dial::{Channel, Settings};
use std::{fs, path::PathBuf, sync::Arc, time::Duration};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};
use tonic::{Code, Status};

const HOST: &str = "idem.internal";

/// A server that asks for certificates, its files, and who signs them.
struct World {
    directory: TempDir,
    authority: Authority,
    tls: ServerTls,
    auth: ServiceAuth,
    replica: Replica,
}

impl World {
    async fn start(grants: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let path = directory.path();
        let (cert, key) = authority.sign(&[HOST]).write(path, "server");
        let client_ca = Some(path.join("ca.pem"));
        fs::write(path.join("ca.pem"), authority.pem()).unwrap();
        let tls = ServerTls::open(ServerFiles { cert, key, client_ca }).unwrap();
        let grants = grants.map(|content| {
            let file = path.join("grants.json");
            fs::write(&file, content).unwrap();
            file
        });
        let auth = ServiceAuth::from_flags(grants.as_deref(), true).unwrap();
        let replica = Replica::start(&auth, Some(tls.clone()), Code::Ok).await;
        Self { directory, authority, tls, auth, replica }
    }

    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// A fresh client that shows this.
    fn client(&self, identity: Option<&Identity>) -> Channel {
        let identity = identity.map(|identity| identity.write(self.directory.path(), "client"));
        self.client_to(HOST, self.ca(), identity)
    }

    fn client_to(&self, host: &str, ca: PathBuf, identity: Option<(PathBuf, PathBuf)>) -> Channel {
        let settings = Settings {
            tls: Some(ClientTls::open(ClientFiles { ca, identity }).unwrap()),
            resolver: Arc::new(Named::new([self.replica.address])),
            connect_timeout: Duration::from_secs(10),
            ..Settings::default()
        };
        Channel::new(&format!("https://{host}:7001"), settings).unwrap()
    }
}

async fn reserve(channel: &Channel) -> Result<String, Code> {
    reserve_with(channel, None).await
}

async fn reserve_with(channel: &Channel, token: Option<&str>) -> Result<String, Code> {
    call(channel, RESERVE, token).await.map(|(caller, _)| caller).map_err(|status| status.code())
}

#[tokio::test]
async fn a_certificate_of_the_authority_is_who_calls() {
    let world = World::start(None).await;
    let known = world.client(Some(&world.authority.sign(&["gateway.internal"])));
    assert_eq!(reserve(&known).await.as_deref(), Ok("gateway.internal"));
    assert_eq!(call(&known, RESOLVE, None).await.unwrap_err().code(), Code::PermissionDenied);
    let spiffe = world.client(Some(&world.authority.sign(&["x.internal", "spiffe://shop/ns/a/sa/mailer"])));
    assert_eq!(reserve(&spiffe).await.as_deref(), Ok("spiffe://shop/ns/a/sa/mailer"));
}

#[tokio::test]
async fn nobody_is_served_without_a_good_certificate() {
    let world = World::start(None).await;
    assert_eq!(reserve(&world.client(None)).await, Err(Code::Unauthenticated));
    let stranger = Authority::new();
    for bad in [stranger.sign(&["gateway.internal"]), world.authority.sign_expired(&["gateway.internal"])] {
        assert_eq!(reserve(&world.client(Some(&bad))).await, Err(Code::Unavailable), "the handshake fails");
    }
    assert_eq!(world.replica.calls(), 0);
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_is_not_called() {
    let world = World::start(None).await;
    let identity = || Some(world.authority.sign(&["gateway.internal"]).write(world.directory.path(), "client"));
    let elsewhere = world.client_to("orders.internal", world.ca(), identity());
    assert_eq!(reserve(&elsewhere).await, Err(Code::Unavailable));
    let other = world.directory.path().join("other-ca.pem");
    fs::write(&other, Authority::new().pem()).unwrap();
    assert_eq!(reserve(&world.client_to(HOST, other, identity())).await, Err(Code::Unavailable));
    assert_eq!(world.replica.calls(), 0);
    assert!(reserve(&world.client_to(HOST, world.ca(), identity())).await.is_ok());
}

#[tokio::test]
async fn grants_are_given_by_name_and_end() {
    let world = World::start(Some(
        r#"[
        {"service": "gateway", "certificate": "gateway.internal", "scopes": ["rest/*"], "rpcs": ["*"]},
        {"service": "operator", "certificate": "spiffe://shop/operator", "scopes": ["*"], "rpcs": ["AdminService/*"]},
        {"service": "former", "certificate": "former", "scopes": ["*"], "rpcs": ["*"], "expiresAt": "2020-01-01T00:00:00Z"},
        {"service": "script", "token": "tok_script", "scopes": ["*"], "rpcs": ["*"]}
    ]"#,
    ))
    .await;
    let as_ = |names: &[&str]| world.client(Some(&world.authority.sign(names)));
    assert_eq!(reserve(&as_(&["gateway.internal"])).await.as_deref(), Ok("gateway"));
    assert_eq!(reserve(&as_(&["spiffe://shop/operator"])).await, Err(Code::PermissionDenied));
    let operator = as_(&["spiffe://shop/operator"]);
    assert_eq!(call(&operator, RESOLVE, None).await.unwrap().0, "operator");
    assert_eq!(reserve(&as_(&["former"])).await, Err(Code::Unauthenticated));
    assert_eq!(reserve(&as_(&["unknown.internal"])).await, Err(Code::PermissionDenied));
    // A token is judged instead of the name, and never makes up for a certificate that is missing.
    assert_eq!(reserve_with(&as_(&["unknown.internal"]), Some("tok_script")).await.as_deref(), Ok("script"));
    assert_eq!(reserve_with(&as_(&["gateway.internal"]), Some("tok_wrong")).await, Err(Code::Unauthenticated));
    assert_eq!(reserve_with(&world.client(None), Some("tok_script")).await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn a_rotated_certificate_is_shown_from_the_next_handshake_on_and_connections_live_on() {
    let world = World::start(None).await;
    let gateway = world.authority.sign(&["gateway.internal"]);
    let old = world.client(Some(&gateway));
    assert!(reserve(&old).await.is_ok());

    // Half a rotation, or nonsense, changes nothing.
    let path = world.directory.path();
    let next_authority = Authority::new();
    let next = next_authority.sign(&[HOST]);
    for broken in [next.cert.as_str(), "-----BEGIN CERTIFICATE-----\nnonsense", ""] {
        fs::write(path.join("server.pem"), broken).unwrap();
        world.tls.look();
        assert!(reserve(&world.client(Some(&gateway))).await.is_ok(), "{broken}");
    }

    // Both authorities are believed meanwhile, on both sides; then the server shows the new one's.
    fs::write(world.ca(), format!("{}{}", world.authority.pem(), next_authority.pem())).unwrap();
    next.write(path, "server");
    world.tls.look();
    let only_next = path.join("next-ca.pem");
    fs::write(&only_next, next_authority.pem()).unwrap();
    let fresh = next_authority.sign(&["gateway.internal"]).write(path, "fresh");
    assert!(reserve(&world.client_to(HOST, only_next.clone(), Some(fresh))).await.is_ok());
    assert!(reserve(&old).await.is_ok(), "an open connection lives on");

    // The former authority is believed no more.
    fs::write(world.ca(), next_authority.pem()).unwrap();
    world.tls.look();
    assert_eq!(
        reserve(&world.client_to(HOST, only_next, Some(gateway.write(path, "former")))).await,
        Err(Code::Unavailable)
    );
}

#[tokio::test]
async fn a_client_shows_its_rotated_certificate_when_it_connects_again() {
    let world = World::start(None).await;
    let path = world.directory.path();
    let identity = world.authority.sign(&["first.internal"]).write(path, "client");
    let tls = ClientTls::open(ClientFiles { ca: world.ca(), identity: Some(identity) }).unwrap();
    let channel = |tls: &ClientTls| {
        let resolver = Arc::new(Named::new([world.replica.address]));
        let settings = Settings {
            tls: Some(tls.clone()),
            resolver,
            connect_timeout: Duration::from_secs(10),
            ..Settings::default()
        };
        Channel::new(&format!("https://{HOST}:7001"), settings).unwrap()
    };
    assert_eq!(reserve(&channel(&tls)).await.as_deref(), Ok("first.internal"));
    world.authority.sign(&["second.internal"]).write(path, "client");
    tls.look();
    assert_eq!(reserve(&channel(&tls)).await.as_deref(), Ok("second.internal"));
    assert!(world.auth.is_authenticated());
}

#[tokio::test]
async fn a_stalled_handshake_keeps_neither_others_waiting_nor_the_drain() {
    let world = World::start(None).await;
    let mut stalled = Vec::new();
    for _ in 0..50 {
        stalled.push(TcpStream::connect(world.replica.address).await.unwrap());
    }
    let client = world.client(Some(&world.authority.sign(&["gateway.internal"])));
    assert!(timeout(Duration::from_secs(10), reserve(&client)).await.unwrap().is_ok());
    drop(client);
    timeout(Duration::from_secs(4), world.replica.stop()).await.expect("the drain does not wait for them");
    for mut stalled in stalled {
        assert!(matches!(stalled.read(&mut [0; 1]).await, Ok(0) | Err(_)), "they are told to go");
    }
}

#[tokio::test]
async fn guessed_tokens_are_all_answered_alike() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), r#"[{"service": "a", "token": "tok_right", "scopes": ["*"], "rpcs": ["*"]}]"#).unwrap();
    let replica = Replica::start(&ServiceAuth::load(file.path()).unwrap(), None, Code::Ok).await;
    let channel = crate::server::channel(&Named::new([replica.address]), 1);
    let mut told: Vec<(Code, String)> = Vec::new();
    let told_of = |status: Status| (status.code(), status.message().to_owned());
    for guess in ["tok_righ", "tok_right1", "tok_wrong", "x", &"y".repeat(4000)] {
        told.push(told_of(call(&channel, RESERVE, Some(guess)).await.unwrap_err()));
    }
    told.dedup();
    assert_eq!(told, [(Code::Unauthenticated, "the service token is not known".to_owned())]);
    assert_eq!(call(&channel, RESERVE, Some("tok_right")).await.unwrap().0, "a");
}
