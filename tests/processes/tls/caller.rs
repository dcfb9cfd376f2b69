//! Somebody who calls by HTTPS and believes one authority, with a new connection for every request.

use std::net::SocketAddr;

use bytes::Bytes;
use credentials::{Authorities, ClientEnd, Proof};
use e2e::Reply;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

pub struct Caller {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Caller {
    pub fn believing(authority: &str) -> Self {
        let proof = Proof::Host(Authorities::File("authority.pem".into()));
        let end = ClientEnd { proof, identity: None, protocols: Vec::new() };
        let tls = end.configure(&[authority.as_bytes().to_vec()]).unwrap();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        Self { http: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector) }
    }

    /// An answer, or why there is none.
    pub async fn ask(
        &self,
        method: Method,
        at: SocketAddr,
        path: &str,
        api_key: &str,
        key: Option<&str>,
        body: &Value,
    ) -> Result<Reply, hyper_util::client::legacy::Error> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{at}{path}"))
            .header("authorization", format!("Bearer {api_key}"))
            .header("content-type", "application/json");
        let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
        let answer = self.http.request(request.body(Full::from(body.to_string())).unwrap()).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("the body arrives whole").to_bytes();
        Ok(Reply { status: head.status, headers: head.headers, body })
    }
}
