//! Ports that stay free until the process that asked for them listens, or ends.
//!
//! Asking the system for port 0 and closing it again gives a port that anybody may have a moment later: another test,
//! or any connection that leaves the machine. These are below what the system gives away by itself, and each is held
//! by a UDP socket of the same number, so that no two processes which ask here are given one twice.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    sync::{Mutex, PoisonError},
};

/// Above the ports that programs have by habit, below those that systems give to callers (from 32,768 on Linux).
const FIRST: u16 = 12_000;
const END: u16 = 31_000;

/// Given back when the process ends, however it ends.
static HELD: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// An address of this machine that nobody listens on.
pub fn one() -> io::Result<SocketAddr> {
    run(1)
}

/// The first of `count` neighbouring addresses that nobody listens on.
pub fn run(count: u16) -> io::Result<SocketAddr> {
    let room = (END - FIRST).saturating_sub(count);
    let somewhere = u16::try_from(RandomState::new().hash_one(count) % u64::from(room.max(1))).unwrap_or_default();
    for step in 0..room {
        let first = FIRST + (somewhere + step) % room;
        let held: io::Result<Vec<UdpSocket>> = (first..first + count).map(hold).collect();
        if let Ok(held) = held {
            HELD.lock().unwrap_or_else(PoisonError::into_inner).extend(held);
            return Ok(address(first));
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("no {count} neighbouring ports are free from {FIRST} to {END}"),
    ))
}

fn hold(port: u16) -> io::Result<UdpSocket> {
    let held = UdpSocket::bind(address(port))?;
    TcpListener::bind(address(port))?;
    Ok(held)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_can_be_listened_on() {
        let given: Vec<SocketAddr> = (0..200).map(|_| one().unwrap()).collect();
        for address in &given {
            assert_eq!(hold(address.port()).unwrap_err().kind(), io::ErrorKind::AddrInUse, "{address} is given twice");
            TcpListener::bind(address).unwrap();
        }
    }

    #[test]
    fn a_run_has_no_port_that_was_given_before() {
        let first = run(50).unwrap().port();
        let single: Vec<u16> = (0..200).map(|_| one().unwrap().port()).collect();
        assert!(single.iter().all(|port| !(first..first + 50).contains(port)), "{first} and {single:?}");
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_not_given() {
        let busy = (FIRST..END).find_map(|port| TcpListener::bind(address(port)).ok()).unwrap();
        assert!(hold(busy.local_addr().unwrap().port()).is_err());
    }

    #[test]
    fn more_ports_than_there_are_is_an_error() {
        let _busy = hold((FIRST + END) / 2);
        for count in [END - FIRST - 4, END - FIRST, u16::MAX] {
            assert_eq!(run(count).unwrap_err().kind(), io::ErrorKind::AddrInUse, "{count}");
        }
    }
}
