//! The programs with certificates: REST and gRPC over TLS, services that ask for the gateway's certificate, and files that change.

use std::{fs::File, net::SocketAddr};

use e2e::{API_KEY, OPERATOR_KEY, PrivateDatabase, Process, Reply, Server, Site, eventually, free_address};
use http::Method;
use serde_json::{Value, json};

use self::{caller::Caller, certificates::Certificates};

mod caller;
mod certificates;

/// The services and the acquirer, for whichever gateways come.
struct Sealed {
    certificates: Certificates,
    database: PrivateDatabase,
    idem: Server,
    orders: Server,
    /// What all processes say.
    log: File,
    _processes: Vec<Process>,
}

/// A gateway and where it is reached.
struct Gateway {
    rest: SocketAddr,
    admin: SocketAddr,
    _process: Process,
}

/// Whose certificates a gateway shows and believes; each is the name of an authority.
struct Papers {
    /// Signed what it shows to its callers.
    rest: &'static str,
    /// Signed what it shows to the services.
    identity: &'static str,
    /// Whom it believes to have signed the services' certificates.
    believes: &'static str,
}

// === impl Sealed ===

impl Sealed {
    /// Starts both services with certificates of authority `own`, which must have signed their callers' too.
    async fn start() -> Self {
        let certificates = Certificates::new(&["own", "other"]);
        certificates.sign("own", "service", "127.0.0.1");
        certificates.believe("callers", &["own"]);
        let grants = json!([{"service": "gateway", "certificate": "gateway.test", "scopes": ["*"], "rpcs": ["*"]}]);
        certificates.write("grants.json", &grants.to_string());
        let file = |name: &str| certificates.path(name);
        let log = File::options().create(true).append(true).open(file("log")).unwrap();
        let start = |program, flags| start(program, flags, &log);
        let database = PrivateDatabase::create().await;
        let (idem, orders, sandbox) = (Site::server(), Site::server(), free_address());
        let served = |at: Server| {
            vec![
                ("--listen", at.listen.to_string()),
                ("--admin-listen", at.admin.to_string()),
                // TLS to Postgres too, where there is no pooler before it.
                ("--store", format!("{}?sslmode=prefer", database.url)),
                ("--tls-cert", file("service.pem")),
                ("--tls-key", file("service.key")),
                ("--tls-client-ca", file("callers.pem")),
                ("--service-tokens", file("grants.json")),
            ]
        };
        let secret = ("--webhook-secret", "whsec_sealed".to_owned());
        // Webhooks go nowhere: what is paid here is decided by the answer to the charge.
        let nowhere = ("--webhook-url", format!("http://{}/webhooks/acquirer", free_address()));
        let mut flags = served(orders);
        flags.extend([("--acquirer-url", format!("http://{sandbox}")), secret.clone()]);
        let processes = vec![
            start("acquirer-sandbox", vec![("--listen", sandbox.to_string()), nowhere, secret]),
            start("idem-service", served(idem)),
            start("orders-service", flags),
        ];
        for admin in [idem.admin, orders.admin] {
            until_is(admin, "/readyz").await;
        }
        Self { certificates, database, idem, orders, log, _processes: processes }
    }

    /// Starts a gateway whose files are called after `name`, and waits until it is there; it need not be ready.
    async fn gateway(&self, name: &str, papers: Papers) -> Gateway {
        let (rest, admin) = (free_address(), free_address());
        let keys =
            json!([{"tenant": "demo-a", "key": API_KEY}, {"tenant": "ops", "key": OPERATOR_KEY, "operator": true}]);
        let certificates = &self.certificates;
        certificates.write(&format!("{name}-keys.json"), &keys.to_string());
        certificates.sign(papers.rest, &format!("{name}-rest"), "127.0.0.1");
        certificates.sign(papers.identity, &format!("{name}-identity"), "gateway.test");
        certificates.believe(&format!("{name}-services"), &[papers.believes]);
        let file = |suffix: &str| certificates.path(&format!("{name}-{suffix}"));
        let process = start(
            "gateway",
            vec![
                ("--listen", rest.to_string()),
                ("--admin-listen", admin.to_string()),
                ("--api-keys", file("keys.json")),
                ("--idem-endpoint", format!("https://{}", self.idem.listen)),
                ("--orders-endpoint", format!("https://{}", self.orders.listen)),
                ("--tls-cert", file("rest.pem")),
                ("--tls-key", file("rest.key")),
                ("--upstream-tls-ca", file("services.pem")),
                ("--upstream-tls-cert", file("identity.pem")),
                ("--upstream-tls-key", file("identity.key")),
            ],
            &self.log,
        );
        until_is(admin, "/healthz").await;
        Gateway { rest, admin, _process: process }
    }

    /// Somebody who believes an authority.
    fn caller(&self, authority: &str) -> Caller {
        Caller::believing(&self.certificates.pem(authority))
    }

    /// How many lines with all these words the processes have logged.
    fn logged(&self, words: &[&str]) -> usize {
        let log = std::fs::read_to_string(self.certificates.path("log")).unwrap();
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    async fn rows(&self, table: &str) -> i64 {
        self.database.number(&format!("SELECT count(*) FROM {table}")).await
    }
}

fn start(program: &'static str, flags: Vec<(&str, String)>, log: &File) -> Process {
    let flags: Vec<_> = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    Process::start_talking(program, &flags, &[], log)
}

async fn until_is(admin: SocketAddr, path: &str) {
    let http = reqwest::Client::new();
    eventually(&format!("{admin}{path} is well"), || async {
        let answer = http.get(format!("http://{admin}{path}")).send().await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
}

// === buying ===

async fn put_on_sale(caller: &Caller, gateway: &Gateway) {
    let body =
        json!({"venueId": "demo", "name": "General", "price": {"amount": 1000, "currency": "EUR"}, "capacity": 9});
    eventually("the ticket type is there", || async {
        let answer = caller.ask(Method::PUT, gateway.rest, "/v1/ticket-types/general", OPERATOR_KEY, None, &body).await;
        answer.ok().filter(|reply| reply.status.is_success()).map(drop)
    })
    .await;
}

async fn post(caller: &Caller, gateway: &Gateway, path: &str, key: &str, body: &Value) -> Option<Reply> {
    caller.ask(Method::POST, gateway.rest, path, API_KEY, Some(key), body).await.ok()
}

fn one_ticket() -> Value {
    json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 1}]})
}

/// `POST path` until the answer is 201: a key makes repeating safe.
async fn until_made(caller: &Caller, gateway: &Gateway, path: &str, key: &str, body: &Value) -> Reply {
    eventually(&format!("POST {path} with {key} is 201"), || async {
        post(caller, gateway, path, key, body).await.filter(|reply| reply.status == 201)
    })
    .await
}

#[tokio::test]
async fn an_order_is_sold_over_tls_from_the_buyer_to_the_rows() {
    let site = Sealed::start().await;
    let gateway = site.gateway("ours", Papers { rest: "own", identity: "own", believes: "own" }).await;
    until_is(gateway.admin, "/readyz").await;
    let buyer = site.caller("own");
    put_on_sale(&buyer, &gateway).await;
    let order = until_made(&buyer, &gateway, "/v1/orders", "order", &one_ticket()).await;
    let body = json!({"orderId": order.text("id"), "paymentMethod": "pm_approved"});
    let payment = until_made(&buyer, &gateway, "/v1/payments", "payment", &body).await;
    assert_eq!(payment.text("status"), "approved");
    let again = post(&buyer, &gateway, "/v1/payments", "payment", &body).await.unwrap();
    assert!(again.is_replay(), "{again:?}");
    again.expect_same_as(&payment);
    assert_eq!(site.database.number("SELECT sold FROM ticket_types").await, 1);

    // In plaintext there is nothing to hear on this port.
    assert!(reqwest::get(format!("http://{}/v1/orders", gateway.rest)).await.is_err());
}

#[tokio::test]
async fn a_gateway_of_another_authority_is_refused_until_the_services_believe_it() {
    let site = Sealed::start().await;
    let ours = site.gateway("ours", Papers { rest: "own", identity: "own", believes: "own" }).await;
    let stranger = site.gateway("stranger", Papers { rest: "own", identity: "other", believes: "own" }).await;
    let buyer = site.caller("own");
    put_on_sale(&buyer, &ours).await;
    for _ in 0..3 {
        let refused = post(&buyer, &stranger, "/v1/orders", "order", &one_ticket()).await.unwrap();
        refused.expect_problem(503, "idempotency_unavailable", None, true);
    }
    assert_eq!((site.rows("orders").await, site.rows("idem_keys").await), (0, 0));

    // The services look at their file again; nobody is started anew.
    site.certificates.believe("callers", &["own", "other"]);
    until_made(&buyer, &stranger, "/v1/orders", "order", &one_ticket()).await;
    assert_eq!(site.rows("orders").await, 1);
}

#[tokio::test]
async fn certificates_that_are_replaced_are_shown_without_a_restart() {
    let site = Sealed::start().await;
    let ours = site.gateway("ours", Papers { rest: "own", identity: "own", believes: "own" }).await;
    let (buyer, other) = (site.caller("own"), site.caller("other"));
    put_on_sale(&buyer, &ours).await;

    // The gateway's own certificate.
    assert!(post(&other, &ours, "/v1/orders", "order", &one_ticket()).await.is_none(), "it is not believed");
    site.certificates.sign("other", "ours-rest", "127.0.0.1");
    until_made(&other, &ours, "/v1/orders", "order", &one_ticket()).await;
    let newcomer = site.caller("own");
    assert!(
        post(&newcomer, &ours, "/v1/orders", "order", &one_ticket()).await.is_none(),
        "the former one is not shown"
    );

    // Both services' certificate, which a gateway that believes the other authority alone waits for.
    let waiting = site.gateway("waiting", Papers { rest: "other", identity: "own", believes: "other" }).await;
    let refused = post(&other, &waiting, "/v1/orders", "second", &one_ticket()).await.unwrap();
    refused.expect_problem(503, "idempotency_unavailable", None, true);
    site.certificates.sign("other", "service", "127.0.0.1");
    until_made(&other, &waiting, "/v1/orders", "second", &one_ticket()).await;
    assert_eq!(site.rows("orders").await, 2);

    // A broken file changes nothing but the log.
    site.certificates.write("service.pem", "nonsense");
    site.certificates.write("ours-rest.pem", "nonsense");
    eventually("both services and the gateway say that their files are broken", || async {
        let complaints = |file: &str| site.logged(&["a changed file is not used", file]);
        (complaints("/service.pem") == 2 && complaints("/ours-rest.pem") == 1).then_some(())
    })
    .await;
    let page = reqwest::get(format!("http://{}/metrics", ours.admin)).await.unwrap().text().await.unwrap();
    for result in ["used", "refused"] {
        let counted = format!("credentials_reloads_total{{what=\"the TLS certificate and key\",result=\"{result}\"}}");
        assert!(page.contains(&counted), "{counted} in {page}");
    }

    let late = site.gateway("late", Papers { rest: "other", identity: "own", believes: "other" }).await;
    until_made(&site.caller("other"), &late, "/v1/orders", "third", &one_ticket()).await;
    until_made(&site.caller("other"), &ours, "/v1/orders", "fourth", &one_ticket()).await;
}
