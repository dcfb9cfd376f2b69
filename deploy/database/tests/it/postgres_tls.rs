//! TLS to Postgres, against the private server, which shows a certificate for localhost and none for its address.

use std::path::{Path, PathBuf};
use std::time::Duration;

use database::testing::{Scratch, direct_postgres_url};
use database::{Clock, Database, OpenError, Options, StoreUrl, params};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_postgres::types::Type;

use crate::store::{SCHEMA, impatient, open, query};

/// What a client says that wants to know whether TLS is spoken.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// How long a change of the network or of a file may take to be noticed.
const SOON: Duration = Duration::from_secs(30);

/// A database of the private server, and where that keeps its certificates.
struct Site {
    scratch: Scratch,
    port: u16,
    database: String,
    certificates: PathBuf,
    files: tempfile::TempDir,
}

impl Site {
    async fn new(name: &str) -> Self {
        // Direct: a pooler has a certificate of its own, or none.
        let scratch = direct_postgres_url(name).await;
        let StoreUrl::Postgres(url) = scratch.url() else { panic!("not Postgres") };
        let (port, database) = (url.get_ports()[0], url.get_dbname().unwrap().to_owned());
        let shown = setting(&open(&scratch).await, "ssl_cert_file").await;
        let certificates = Path::new(&shown).parent().expect("tests/postgres makes certificates").to_owned();
        Self { scratch, port, database, certificates, files: tempfile::tempdir().unwrap() }
    }

    fn authority(&self) -> String {
        self.certificate("ca.pem")
    }

    fn certificate(&self, name: &str) -> String {
        self.certificates.join(name).display().to_string()
    }

    /// An authority that has not signed the server's certificate.
    fn stranger(&self) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let path = self.files.path().join("stranger.pem");
        std::fs::write(&path, params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()).unwrap();
        path.display().to_string()
    }

    fn url(&self, user: &str, host: &str, parameters: &str) -> StoreUrl {
        self.at(user, &format!("{host}:{}", self.port), parameters)
    }

    fn at(&self, user: &str, address: &str, parameters: &str) -> StoreUrl {
        format!("postgres://{user}@{address}/{}?{parameters}", self.database).parse().unwrap()
    }

    /// Makes a superuser, once for all databases of the server.
    async fn has_role(&self, role: &str, password: &str) {
        let sql = format!(
            "DO $$ BEGIN CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{password}'; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        );
        let Database::Postgres(postgres) = open(&self.scratch).await else { panic!("not Postgres") };
        postgres.client().await.unwrap().write(&sql, &[]).await.unwrap();
    }
}

async fn try_open(url: &StoreUrl) -> Result<Database, OpenError> {
    Database::open(url, &SCHEMA, Clock::system(), impatient()).await
}

async fn setting(db: &Database, name: &'static str) -> String {
    let rows = query(db, "SELECT current_setting($1) AS value", params![name]).await.unwrap();
    rows[0].get("value").unwrap()
}

/// What the server says of the connection: is it encrypted, and who does the certificate of this end say that it is?
async fn seen_by_server(db: &Database) -> (bool, String) {
    let sql = "SELECT ssl, COALESCE(client_dn, '') AS dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let Database::Postgres(postgres) = db else { panic!("not Postgres") };
    let rows = postgres.client().await.unwrap().read(sql, &[]).await.unwrap();
    (rows[0].get("ssl"), rows[0].get("dn"))
}

async fn is_encrypted(url: &StoreUrl) -> bool {
    seen_by_server(&try_open(url).await.unwrap()).await.0
}

/// The sentence with which an address with a password is refused.
async fn refusal(site: &Site, host: &str, parameters: &str) -> String {
    let error = try_open(&site.url("postgres:hunter2", host, parameters)).await.unwrap_err();
    assert!(matches!(error, OpenError::Unsafe { .. }), "{error:?}");
    let sentence = error.to_string();
    assert!(!sentence.contains("hunter2") && !sentence.contains('\n'), "{sentence}");
    sentence
}

// === what the modes do ===

#[tokio::test]
async fn a_connection_is_encrypted_when_the_address_says_so() {
    let site = Site::new("tls_modes").await;
    let root = site.authority();
    for (host, parameters, is_tls) in [
        ("127.0.0.1", String::new(), false),
        ("127.0.0.1", "sslmode=disable".to_owned(), false),
        ("127.0.0.1", "sslmode=prefer".to_owned(), true),
        ("127.0.0.1", "sslmode=require".to_owned(), true),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={root}"), true),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={root}"), true),
        ("localhost", format!("sslmode=verify-full&sslrootcert={root}"), true),
        ("localhost", format!("hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={root}"), true),
    ] {
        assert_eq!(is_encrypted(&site.url("postgres", host, &parameters)).await, is_tls, "{host} {parameters}");
    }
}

#[tokio::test]
async fn migrations_go_over_tls_too() {
    let site = Site::new("tls_migrate").await;
    let good = format!("sslmode=verify-full&sslrootcert={}", site.authority());
    assert!(Database::migrate(&site.url("postgres", "localhost", &good), &SCHEMA).await.is_ok());
    let bad = format!("sslmode=verify-full&sslrootcert={}", site.stranger());
    assert!(Database::migrate(&site.url("postgres", "localhost", &bad), &SCHEMA).await.is_err());
}

#[tokio::test]
async fn an_unknown_authority_is_refused_in_one_sentence() {
    let site = Site::new("tls_stranger").await;
    let stranger = site.stranger();
    for parameters in [
        format!("sslmode=require&sslrootcert={stranger}"),
        format!("sslmode=verify-ca&sslrootcert={stranger}"),
        format!("sslmode=verify-full&sslrootcert={stranger}"),
        "sslmode=verify-full".to_owned(),
        "sslmode=verify-full&sslrootcert=system".to_owned(),
    ] {
        let sentence = refusal(&site, "localhost", &parameters).await;
        assert!(sentence.contains("of no authority that is believed here"), "{parameters}: {sentence}");
    }
}

#[tokio::test]
async fn another_host_is_refused_in_one_sentence() {
    let site = Site::new("tls_host").await;
    let sentence = refusal(&site, "127.0.0.1", &format!("sslmode=verify-full&sslrootcert={}", site.authority())).await;
    assert!(sentence.contains("is not for the host in the address") && sentence.contains("localhost"), "{sentence}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_when_tls_is_required_and_used_when_it_is_preferred() {
    let site = Site::new("tls_none").await;
    let (address, _relay) = without_tls(site.port).await;
    let error = try_open(&site.at("postgres:hunter2", &address, "sslmode=require")).await.unwrap_err();
    let sentence = error.to_string();
    assert!(matches!(error, OpenError::Unsafe { .. }) && sentence.contains("the server offers no TLS"), "{sentence}");
    assert!(!sentence.contains("hunter2"), "{sentence}");
    assert!(!is_encrypted(&site.at("postgres", &address, "sslmode=prefer")).await);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_before_anybody_is_called() {
    let site = Site::new("tls_files").await;
    for parameters in
        ["sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "sslmode=require&sslcert=/nowhere/a&sslkey=/nowhere/b"]
    {
        let error = try_open(&site.url("postgres:hunter2", "localhost", parameters)).await.unwrap_err();
        let sentence = error.to_string();
        assert!(matches!(error, OpenError::Tls { .. }) && sentence.contains("/nowhere/"), "{sentence}");
        assert!(!sentence.contains("hunter2"), "{sentence}");
    }
}

#[tokio::test]
async fn a_server_is_not_asked_for_tls_unless_the_address_says_so() {
    for (parameters, is_asked) in [("", false), ("sslmode=disable", false), ("sslmode=prefer", true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://u@{}/x?{parameters}", listener.local_addr().unwrap()).parse().unwrap();
        let hello = async {
            let mut hello = [0; 8];
            listener.accept().await.unwrap().0.read_exact(&mut hello).await.unwrap();
            hello
        };
        let (hello, refused) = tokio::join!(hello, try_open(&url));
        assert!(refused.is_err());
        assert_eq!(hello == SSL_REQUEST, is_asked, "{parameters}: {hello:?}");
    }
}

// === who one is ===

#[tokio::test]
async fn a_password_is_bound_to_the_channel() {
    let site = Site::new("tls_password").await;
    site.has_role("idem_by_password", "hunter2").await;
    // Required: without a binding the driver would not send the proof.
    let parameters = format!("sslmode=verify-full&sslrootcert={}&channel_binding=require", site.authority());
    assert!(is_encrypted(&site.url("idem_by_password:hunter2", "localhost", &parameters)).await);
    let error = try_open(&site.url("idem_by_password:hunter3", "localhost", &parameters)).await.unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter"), "{error}");
}

#[tokio::test]
async fn a_certificate_says_who_one_is() {
    let site = Site::new("tls_client").await;
    site.has_role("idem_by_certificate", "unused").await;
    let verified = format!("sslmode=verify-full&sslrootcert={}", site.authority());
    let (cert, key) = (site.certificate("client.pem"), site.certificate("client.key"));
    let shown = format!("{verified}&sslcert={cert}&sslkey={key}");
    let db = try_open(&site.url("idem_by_certificate", "localhost", &shown)).await.unwrap();
    assert_eq!(seen_by_server(&db).await, (true, "/CN=idem_by_certificate".to_owned()));
    let error = try_open(&site.url("idem_by_certificate", "localhost", &verified)).await.unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
}

// === while it runs ===

#[tokio::test(flavor = "multi_thread")]
async fn another_authority_is_believed_from_the_next_connection_on() {
    let site = Site::new("tls_rotation").await;
    let root = site.files.path().join("root.pem");
    std::fs::copy(site.authority(), &root).unwrap();
    let url = site.url("postgres", "localhost", &format!("sslmode=verify-full&sslrootcert={}", root.display()));
    let db = Database::open(&url, &SCHEMA, Clock::system(), Options { pool_size: 2, ..impatient() }).await.unwrap();
    db.ping().await.unwrap();
    let plain = open(&site.scratch).await;
    for (file, is_believed) in [(site.stranger(), false), (site.authority(), true)] {
        std::fs::copy(file, &root).unwrap();
        let noticed = async {
            loop {
                end_others(&plain, &site.database).await;
                if db.ping().await.is_ok() == is_believed {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(SOON, noticed).await.unwrap_or_else(|_| panic!("believed: {is_believed}, not noticed"));
    }
    assert!(seen_by_server(&db).await.0);
}

/// Ends all encrypted connections of a database, so that new ones must be made.
async fn end_others(db: &Database, database: &str) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND datname = $1";
    let Database::Postgres(postgres) = db else { panic!("not Postgres") };
    postgres.client().await.unwrap().read(sql, &[(&database, Type::TEXT)]).await.unwrap();
}

/// The same server at an address where no TLS is spoken: as the server itself with `ssl = off`, it says N to whoever asks for it.
async fn without_tls(port: u16) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut relays = JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            relays.spawn(async move {
                let mut hello = [0; 8];
                client.read_exact(&mut hello).await?;
                assert_eq!(hello, SSL_REQUEST);
                client.write_all(b"N").await?;
                let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (address, tasks)
}
