//! Addresses of listeners as people write them.

use std::net::SocketAddr;

/// Forms of an address, for messages.
pub const ADDRESS_EXPECTED: &str = "expected HOST:PORT, for example 127.0.0.1:4700, localhost:4700 or [::1]:4700, or PORT alone for 127.0.0.1";

/// Splits `HOST:PORT`, `:PORT` or `PORT` into host and port. A missing host is empty, and an address of IPv6
/// comes without its brackets.
///
/// Errors: a text for people that names the forms.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok((address.ip().to_string(), address.port()));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port = port.parse::<u16>().ok().filter(|_| !host.contains(['/', ':', ' ']));
    port.map(|port| (host.to_owned(), port)).ok_or_else(|| ADDRESS_EXPECTED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_may_be_left_out() {
        for (text, host, port) in [
            ("127.0.0.1:5704", "127.0.0.1", 5704),
            ("db.example.com:80", "db.example.com", 80),
            (":5704", "", 5704),
            ("5704", "", 5704),
            ("[::1]:0", "::1", 0),
        ] {
            assert_eq!(host_and_port(text), Ok((host.to_owned(), port)), "{text}");
        }
        for text in
            ["", "localhost", "localhost:", "localhost:99999", "::1", "http://localhost:80", "4700x", "a b:1"]
        {
            assert_eq!(host_and_port(text), Err(ADDRESS_EXPECTED.to_owned()), "{text}");
        }
    }
}
