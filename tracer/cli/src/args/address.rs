//! Addresses to listen on: a port alone is one of this machine's own programs only.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads `PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(local, port));
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(local, port));
    }
    text.parse().map_err(|_| "expected a port, or an IP address with a port, as in `9464` or `0.0.0.0:9464`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_reach_it_only_when_told_so() {
        let read = |text| parse_address(text).map(|address| address.to_string());
        for local in ["9464", "localhost:9464", "127.0.0.1:9464"] {
            assert_eq!(read(local).as_deref(), Ok("127.0.0.1:9464"));
        }
        assert_eq!(read("0.0.0.0:80").as_deref(), Ok("0.0.0.0:80"));
        assert_eq!(read("[::1]:80").as_deref(), Ok("[::1]:80"));
        for text in ["", ":80", "::1", "127.0.0.1", "65536", "-1", "host:80", "http://127.0.0.1:80/", "80 "] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
