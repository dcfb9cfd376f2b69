//! Listening sockets, and who may listen where.

use std::{io, net::SocketAddr};
use tokio::net::{TcpListener, TcpSocket};

/// How many connections the kernel keeps for us before we accept them: a burst of buyers must not meet a refused connection.
const BACKLOG: u32 = 1024;

/// Binds `addr` (port 0 for any free one) for `what`, an address that the operator changes with `flag`.
///
/// Call inside a runtime, before the process says that it is ready.
pub fn bind(addr: SocketAddr, what: &str, flag: &str) -> Result<TcpListener, BindError> {
    open(addr).map_err(|source| BindError { addr, what: what.to_owned(), flag: flag.to_owned(), source })
}

fn open(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted process must not wait for the connections of its predecessor to leave TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Refuses to serve strangers by accident: without authentication a server starts only on loopback, or with `--insecure`.
pub fn check_exposure(addr: SocketAddr, authenticated: bool, insecure: bool) -> Result<(), ExposureError> {
    if authenticated || addr.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !insecure {
        return Err(ExposureError { addr });
    }
    tracing::warn!(%addr, "serving without authentication beyond this machine, as --insecure says");
    Ok(())
}

/// An address that could not be listened on.
#[derive(Debug)]
pub struct BindError {
    addr: SocketAddr,
    what: String,
    flag: String,
    source: io::Error,
}

// Not thiserror: the sentence must not repeat its source, which `process::run` appends.
impl std::fmt::Display for BindError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { addr, what, flag, source } = self;
        let why = match source.kind() {
            io::ErrorKind::AddrInUse => "another process already listens there",
            io::ErrorKind::AddrNotAvailable => "this machine has no such address",
            io::ErrorKind::PermissionDenied => "this user may not use that port",
            _ => return write!(f, "cannot listen on {addr} for {what}; choose another address with {flag}"),
        };
        write!(f, "cannot listen on {addr} for {what}: {why}; choose another address with {flag}")
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The sentence says it all for the usual reasons.
        match self.source.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable | io::ErrorKind::PermissionDenied => None,
            _ => Some(&self.source),
        }
    }
}

/// A server without authentication on an address that others can reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {addr} without authentication: give --service-tokens FILE or --tls-client-ca FILE, listen on loopback, or accept anybody \
     with --insecure"
)]
pub struct ExposureError {
    addr: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn busy_port_is_one_sentence_with_address_purpose_and_flag() {
        let holder = bind("127.0.0.1:0".parse().unwrap(), "the REST API", "--listen").unwrap();
        let addr = holder.local_addr().unwrap();
        let error = bind(addr, "the admin pages", "--admin-listen").unwrap_err();
        assert_eq!(
            crate::process::sentence(&error),
            format!(
                "cannot listen on {addr} for the admin pages: another process already listens there; choose another address with --admin-listen"
            )
        );
    }

    #[tokio::test]
    async fn foreign_address_is_one_sentence_too() {
        let error = bind("192.0.2.1:0".parse().unwrap(), "the REST API", "--listen").unwrap_err();
        assert!(crate::process::sentence(&error).contains("this machine has no such address"), "{error}");
    }

    #[test]
    fn only_loopback_authentication_or_insecure_may_serve() {
        let table = [
            ("127.0.0.1:7001", false, false, true),
            ("127.8.9.1:7001", false, false, true),
            ("[::1]:7001", false, false, true),
            ("[::ffff:127.0.0.1]:7001", false, false, true),
            ("0.0.0.0:7001", false, false, false),
            ("[::]:7001", false, false, false),
            ("10.0.0.1:7001", false, false, false),
            ("0.0.0.0:7001", true, false, true),
            ("0.0.0.0:7001", false, true, true),
        ];
        for (addr, authenticated, insecure, allowed) in table {
            let verdict = check_exposure(addr.parse().unwrap(), authenticated, insecure);
            assert_eq!(verdict.is_ok(), allowed, "{addr} authenticated={authenticated} insecure={insecure}");
        }
    }
}
