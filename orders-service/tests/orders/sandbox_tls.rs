//! The acquirer over TLS: the sandbox behind a terminator, which shows a certificate for localhost.

use std::{fs, net::SocketAddr, path::PathBuf, time::Duration};

use chassis::{
    tasks::Tasks,
    tls::{ServerFiles, ServerTls},
};
use database::testing::sqlite_url;
use idem_proto::orders::v1::{OrderStatus, PaymentStatus};
use orders_service::{
    acquirer::{Acquirer as _, Charge, Reply, http::HttpAcquirer},
    money::{Currency, Money},
    operation_id::PaymentId,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    sandbox::Market,
    world::{Intent, Says as _},
};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }
}

/// What the parties have of certificates.
struct Files {
    directory: tempfile::TempDir,
    /// Signs the acquirer's certificate.
    authority: Authority,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), authority: Authority::new() }
    }

    /// The authorities that the orders service believes.
    fn believed(&self, authority: &Authority) -> PathBuf {
        let path = self.directory.path().join("believed.pem");
        fs::write(&path, authority.0.pem()).unwrap();
        path
    }

    /// Ends TLS before `plain`; returns its port.
    async fn terminator(&self, plain: SocketAddr) -> u16 {
        let (cert, key) = (self.directory.path().join("acquirer.pem"), self.directory.path().join("acquirer.key"));
        let own = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        fs::write(&cert, params.signed_by(&own, &self.authority.0).unwrap().pem()).unwrap();
        fs::write(&key, own.serialize_pem()).unwrap();
        let tls = ServerTls::open(ServerFiles { cert, key, client_ca: None }).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tasks = Tasks::new();
        let lines = tasks.clone();
        drop(tasks.spawn("terminator", async move {
            while let Ok((caller, _)) = listener.accept().await {
                let tls = tls.clone();
                drop(lines.spawn("line", async move {
                    let Ok((mut caller, _)) = tls.accept(caller).await else { return };
                    let mut sandbox = TcpStream::connect(plain).await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut caller, &mut sandbox).await);
                }));
            }
        }));
        port
    }

    /// A way to the sandbox over TLS, to a host, believing an authority.
    async fn way(&self, sandbox: SocketAddr, host: &str, believed: &Authority) -> HttpAcquirer {
        let base = format!("https://{host}:{}", self.terminator(sandbox).await).parse().unwrap();
        HttpAcquirer::new(&base, Some(self.believed(believed)), Duration::from_secs(1)).unwrap()
    }
}

async fn approved(market: &Market) -> bool {
    let (order, intent) = (market.world.ordered(1).await, Intent::new());
    let answer = market.world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap();
    if answer.is_unknown() {
        return false;
    }
    assert_eq!(answer.payment().status(), PaymentStatus::Approved);
    assert_eq!(market.charges(&intent).await, 1);
    assert_eq!(market.world.order(&order.id).await.status(), OrderStatus::Paid);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquirer_is_paid_through_over_tls() {
    let files = Files::new();
    let way = async |sandbox| files.way(sandbox, "localhost", &files.authority).await;
    assert!(approved(&Market::reached_by(sqlite_url(), way).await).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_not_believed_is_unreachable_until_its_authority_is_there() {
    let files = Files::new();
    let way = async |sandbox| files.way(sandbox, "localhost", &Authority::new()).await;
    let market = Market::reached_by(sqlite_url(), way).await;
    let (order, intent) = (market.world.ordered(1).await, Intent::new());
    assert!(market.world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap().is_unknown());
    assert_eq!(market.world.lookup(&intent, 2).await.unwrap_err().code(), tonic::Code::Unavailable);
    assert_eq!(market.charges(&intent).await, 0);
    // As an operator does who has read the log: nothing is started anew.
    files.believed(&files.authority);
    market.world.eventually("the acquirer is believed", || approved(&market)).await;
}

#[tokio::test]
async fn why_it_is_not_believed_is_said_with_the_flag_to_look_at() {
    let files = Files::new();
    let sandbox = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (host, believed, sentence) in [
        (
            "localhost",
            &Authority::new(),
            "its certificate is of no authority that is believed here, see --acquirer-ca: ",
        ),
        ("127.0.0.1", &files.authority, "its certificate is not for the host of --acquirer-url: "),
    ] {
        let acquirer = files.way(sandbox, host, believed).await;
        let amount = Money { amount: 1000, currency: Currency::new("EUR").unwrap() };
        let payment = PaymentId::parse(&Intent::new().payment()).unwrap();
        let charge = Charge { payment, amount, method: "pm_secret".to_owned() };
        let Reply::Unreachable(cause) = acquirer.charge(&charge, Duration::from_secs(5)).await else {
            panic!("believed")
        };
        assert!(cause.starts_with(sentence) && !cause.contains("pm_secret"), "{cause}");
    }
}

#[test]
fn an_authority_is_of_no_use_in_plaintext() {
    let files = Files::new();
    let ca = Some(files.believed(&files.authority));
    let refused = HttpAcquirer::new(&"http://localhost:1".parse().unwrap(), ca, Duration::from_secs(1)).unwrap_err();
    assert!(refused.to_string().starts_with("--acquirer-ca is given and --acquirer-url begins with http://"));
    let missing = Some(files.directory.path().join("missing.pem"));
    let refused =
        HttpAcquirer::new(&"https://localhost:1".parse().unwrap(), missing, Duration::from_secs(1)).unwrap_err();
    assert!(refused.to_string().contains("missing.pem"), "{refused}");
}
