//! Who may use the console's API.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, header};
use chassis::listen::check_exposure;
use chassis::service_auth::{Caller, ServiceAuth};

use super::api::ApiError;

/// A page elsewhere can make a browser send a form, but not this header: not without asking, and nobody here says yes.
const CONSOLE_HEADER: &str = "x-idem-console";

/// Who may use the console's API.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Whoever holds a service token whose grant covers the admin RPC.
    Tokens(ServiceAuth),
    /// Anybody on this machine: nobody else reaches the port.
    Loopback,
    /// Anybody: the operator said `--insecure`.
    Anybody,
    /// Nobody: others can reach the port, and nothing tells them apart.
    Nobody,
}

// === impl Access ===

impl Access {
    /// The rule of the gRPC port, for the admin port at `addr`; here a forbidden exposure closes the API, not the process,
    /// since health and metrics may be public.
    pub(crate) fn for_listener(addr: SocketAddr, auth: &ServiceAuth, insecure: bool) -> Self {
        if auth.is_authenticated() {
            Self::Tokens(auth.clone())
        } else if check_exposure(addr, false, false).is_ok() {
            Self::Loopback
        } else if insecure {
            Self::Anybody
        } else {
            Self::Nobody
        }
    }

    /// Who asks, if they may call `rpc` of the admin service.
    pub(super) fn admit(&self, headers: &HeaderMap, rpc: &str) -> Result<Caller, ApiError> {
        match self {
            Self::Tokens(auth) => {
                let caller = auth.authenticate(headers).map_err(ApiError::unauthenticated)?;
                let is_granted = caller.may_call(&format!("/idem.v1.AdminService/{rpc}"));
                if is_granted {
                    Ok(caller)
                } else {
                    Err(ApiError::forbidden(format!("this token does not grant {rpc}")))
                }
            }
            // A name that somebody else's DNS points here would let their page read the answers.
            Self::Loopback if !is_local_host(headers) => {
                Err(ApiError::forbidden("open the console under localhost or an address".to_owned()))
            }
            Self::Loopback | Self::Anybody => Ok(Caller::anonymous()),
            Self::Nobody => Err(ApiError::forbidden(
                "the console is off: this port is reachable by others and no --service-tokens are given".to_owned(),
            )),
        }
    }

    /// Refuses what a form on another page could send.
    pub(super) fn admit_change(headers: &HeaderMap) -> Result<(), ApiError> {
        match headers.contains_key(CONSOLE_HEADER) {
            true => Ok(()),
            false => Err(ApiError::forbidden(format!("send the header {CONSOLE_HEADER}: 1"))),
        }
    }
}

/// `localhost`, or an address, with or without a port.
fn is_local_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_not_this_machine() {
        let table = [
            ("127.0.0.1:7002", true),
            ("localhost:7002", true),
            ("LOCALHOST", true),
            ("[::1]:7002", true),
            ("[::1]", true),
            ("attacker.example:7002", false),
            ("127.0.0.1.attacker.example", false),
            ("localhost.attacker.example:7002", false),
        ];
        for (host, is_local) in table {
            let headers = [(header::HOST, host.parse().unwrap())].into_iter().collect();
            assert_eq!(is_local_host(&headers), is_local, "{host}");
        }
    }

    #[test]
    fn exposure_without_authentication_closes_the_api_unless_said_aloud() {
        let open = ServiceAuth::open();
        let public = "0.0.0.0:7002".parse().unwrap();
        assert!(matches!(Access::for_listener(public, &open, false), Access::Nobody));
        assert!(matches!(Access::for_listener(public, &open, true), Access::Anybody));
        assert!(matches!(Access::for_listener("[::1]:7002".parse().unwrap(), &open, false), Access::Loopback));
        assert!(Access::Nobody.admit(&HeaderMap::new(), "List").is_err());
    }
}
