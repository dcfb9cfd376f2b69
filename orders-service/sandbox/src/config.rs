//! What the sandbox is told when it starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use chassis::flags::{self, Secret};
use clap::Parser;

use crate::sandbox::SandboxError;
use crate::webhooks;

/// Signs webhooks when no secret is given, so that a laptop needs no set-up. The orders service has the same default.
/// Everybody knows it, so it is good for loopback only.
pub const DEVELOPMENT_WEBHOOK_SECRET: &str = "whsec_demo";

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);
const WEBHOOK_URL: &str = "http://127.0.0.1:8080/webhooks/acquirer";
const DRAIN: Duration = Duration::from_secs(30);

/// An acquirer to play with: it charges once per payment id, and fails on request.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "acquirer-sandbox", version, about)]
pub struct Config {
    /// Where payments are taken.
    #[arg(long, env = "ACQUIRER_LISTEN", default_value_t = LISTEN, value_name = "IP:PORT")]
    pub listen: SocketAddr,

    /// Where approvals and declines are told.
    #[arg(
        long,
        env = "ACQUIRER_WEBHOOK_URL",
        default_value = WEBHOOK_URL,
        value_name = "URL",
        value_parser = |text: &str| webhooks::parse_url(text).map(String::from)
    )]
    pub webhook_url: Option<String>,

    /// Signs webhooks; the orders service has the same one. On loopback it is `whsec_demo` unless given.
    #[arg(long, env = "ACQUIRER_WEBHOOK_SECRET", hide_env_values = true, value_name = "SECRET")]
    pub webhook_secret: Option<Secret>,

    /// How long requests may take to end once the process was told to stop.
    #[arg(long, env = "ACQUIRER_DRAIN", default_value = "30s", value_parser = flags::duration)]
    pub drain: Duration,
}

// === impl Config ===

impl Config {
    /// Refuses what makes no sense, before anything is bound.
    pub fn checked(self) -> Result<Self, SandboxError> {
        self.secret()?;
        self.webhook_url.as_deref().map(webhooks::parse_url).transpose()?;
        Ok(self)
    }

    /// The secret given, or the development one where only this machine can listen in.
    pub(crate) fn secret(&self) -> Result<Secret, SandboxError> {
        match &self.webhook_secret {
            Some(secret) if secret.expose().is_empty() => Err(SandboxError::EmptySecret),
            Some(secret) => Ok(secret.clone()),
            None if self.listen.ip().to_canonical().is_loopback() => {
                Ok(Secret::new(DEVELOPMENT_WEBHOOK_SECRET.to_owned()))
            }
            None => Err(SandboxError::NoSecret { listen: self.listen }),
        }
    }
}

impl Default for Config {
    /// What a start without flags and environment has.
    fn default() -> Self {
        Config { listen: LISTEN, webhook_url: Some(WEBHOOK_URL.to_owned()), webhook_secret: None, drain: DRAIN }
    }
}

#[cfg(test)]
mod tests {
    use chassis::process::sentence;

    use super::*;

    fn parse(flags: &[&str]) -> Config {
        Config::try_parse_from([&["acquirer-sandbox"], flags].concat()).unwrap()
    }

    #[test]
    fn default_is_a_start_without_flags() {
        assert_eq!(parse(&[]), Config::default());
    }

    #[test]
    fn development_secret_is_for_loopback_only() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            assert_eq!(parse(&["--listen", listen]).secret().unwrap().expose(), DEVELOPMENT_WEBHOOK_SECRET);
        }
        let refused = parse(&["--listen", "0.0.0.0:8090"]).checked().unwrap_err();
        assert!(sentence(&refused).contains("--webhook-secret"), "{refused}");
        let open = parse(&["--listen", "0.0.0.0:8090", "--webhook-secret", "whsec_1"]);
        assert_eq!(open.checked().unwrap().secret().unwrap().expose(), "whsec_1");
    }

    #[test]
    fn empty_secret_is_refused() {
        assert!(Config::try_parse_from(["acquirer-sandbox", "--webhook-secret", ""]).is_err());
        let in_code = Config { webhook_secret: Some(Secret::new(String::new())), ..Config::default() };
        assert!(matches!(in_code.checked(), Err(SandboxError::EmptySecret)));
    }

    #[test]
    fn webhook_url_must_be_plain_http() {
        for url in ["https://gateway/webhooks/acquirer", "gateway:8080", "", "/webhooks"] {
            let refused = Config::try_parse_from(["acquirer-sandbox", "--webhook-url", url]).unwrap_err();
            assert!(refused.to_string().contains("http://host:port/path"), "{refused}");
        }
        assert_eq!(parse(&["--webhook-url", "http://g:1/w"]).webhook_url.as_deref(), Some("http://g:1/w"));
    }
}
