//! Listeners that cannot be.

use std::sync::Arc;

use tidemill_gateway::{ListenOptions, Listener, TlsFiles};
use tidemill_types::ErrorKind;

use crate::lines::{Lines, local};
use crate::tls::Certificate;

async fn refusal(front_end: Arc<Lines>, options: ListenOptions) -> (ErrorKind, String) {
    let error = Listener::bind(front_end, options).await.err().expect("it is bound");
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn a_port_that_is_taken_is_told() {
    let taken = Listener::bind(Lines::new(), local(1)).await.unwrap();
    let options = ListenOptions::new(taken.address());
    let (kind, message) = refusal(Lines::new(), options).await;
    let port = taken.address().port();
    assert_eq!(kind, ErrorKind::Conflict);
    assert_eq!(
        message,
        format!(
            "port {port} of 127.0.0.1 is taken by another process: choose another port for lines, or 0 for a free one"
        )
    );
}

#[tokio::test]
async fn an_address_of_another_machine_is_told() {
    // TEST-NET-1 of RFC 5737, which no machine has
    let front_end = Arc::new(Lines { requires_login: true, ..Arc::into_inner(Lines::new()).unwrap() });
    let (kind, message) = refusal(front_end, ListenOptions::new(([192, 0, 2, 1], 4700).into())).await;
    assert_eq!(kind, ErrorKind::Unavailable);
    assert!(
        message.contains("cannot listen on 192.0.2.1:4700: this machine has no such address"),
        "{message}"
    );
}

#[tokio::test]
async fn an_address_that_others_reach_needs_a_login() {
    for address in ["0.0.0.0:0", "[::]:0", "[::ffff:10.0.0.1]:0"] {
        let options = ListenOptions::new(address.parse().unwrap());
        let (kind, message) = refusal(Lines::new(), options).await;
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(message.contains("lines at ") && message.contains("no token or password"), "{message}");
    }
    let front_end = Arc::new(Lines { requires_login: true, ..Arc::into_inner(Lines::new()).unwrap() });
    Listener::bind(front_end, ListenOptions::new(([0, 0, 0, 0], 0).into())).await.unwrap();
}

#[tokio::test]
async fn a_listener_without_connections_is_refused() {
    let (kind, message) = refusal(Lines::new(), local(0)).await;
    assert_eq!(kind, ErrorKind::Invalid);
    assert!(message.contains("connections_max = 0: expected at least 1"), "{message}");
}

#[tokio::test]
async fn files_without_certificate_or_key_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (Certificate::new(), Certificate::new());
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let certificate = file("certificate.pem", &one.certificate);
    let key = file("key.pem", &one.key);
    let other_key = file("other.pem", &other.key);
    let empty = file("empty.pem", "nothing");
    let torn = file("torn.pem", &one.certificate.replace("-----END", "-----EN"));
    let damaged = file("damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let missing = dir.path().join("missing.pem");
    let one_file = "a PEM file with the server's certificate, those that signed it, and its private key";
    let two_files =
        "PEM files, one with the server's certificate and those that signed it, one with its private key";
    for (files, why, expected) in [
        (TlsFiles::one(&certificate), "certificate.pem: there is no private key", one_file),
        (TlsFiles::one(&empty), "empty.pem: there is no certificate", one_file),
        (TlsFiles::one(&damaged), "damaged.pem: the first certificate is damaged", one_file),
        (TlsFiles::one(&torn), "torn.pem: ", one_file),
        (TlsFiles::one(&missing), "missing.pem: the file cannot be read", "No such file"),
        (TlsFiles::one(dir.path()), ": ", "Is a directory"),
        (TlsFiles::separate(&certificate, &empty), "empty.pem: there is no private key", two_files),
        (
            TlsFiles::separate(&certificate, &other_key),
            "other.pem: the private key cannot be used with the certificate",
            two_files,
        ),
        (TlsFiles::separate(&key, &key), "key.pem: there is no certificate", one_file),
        (TlsFiles::separate(&missing, &key), "missing.pem: the file cannot be read", "No such file"),
    ] {
        let options = ListenOptions { tls: Some(files), ..local(1) };
        let (kind, message) = refusal(Lines::new(), options).await;
        assert_eq!(kind, ErrorKind::Invalid);
        assert!(
            message.starts_with("lines at 127.0.0.1:0: ")
                && message.contains(why)
                && message.contains(expected),
            "{message}"
        );
    }
}
