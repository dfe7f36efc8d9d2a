//! Logins, and what is of one caller.

use std::sync::Arc;

use arrow_flight::sql::client::FlightSqlServiceClient;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tidemill_access::{Access, AccessFile, Grant, Verifier};
use tidemill_flight::FlightOptions;
use tidemill_gateway::TlsFiles;
use tidemill_types::Timestamp;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::fixture::{Server, assert_refused, fetch, query, show};

pub const TOKEN: &str = "token-of-the-data-directory";

/// Returns users with the user `ana`, who has these grants and the password `of ana`, and a token of hers.
pub fn access(dir: &TempDir, grants: &[&str]) -> (Arc<Access>, String) {
    let grants: Vec<Grant> = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let file = AccessFile::in_directory(dir.path());
    let made = file.update(|accounts| {
        accounts.add_user("ana", grants, Some(Verifier::new("of ana")))?;
        accounts.new_token("ana", None, Timestamp(0), None)
    });
    (Arc::new(Access::open(file).unwrap()), made.unwrap().text)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_need_a_token_or_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let (access, token) = access(&dir, &["read"]);
    let options =
        FlightOptions { token: Some(TOKEN.to_owned()), access: Some(access), ..FlightOptions::default() };
    let server = Server::with(options).await;
    let mut client = server.client().await;
    assert_refused(
        query(&mut client, "SELECT user").await,
        Code::Unauthenticated,
        "authorization: Bearer TOKEN",
    );
    for (shown, expected) in [(TOKEN.to_owned(), "admin"), (token, "ana")] {
        client.set_token(shown);
        assert_eq!(show(&query(&mut client, "SELECT user").await.unwrap()), [expected]);
    }
    client.set_token("wrong".to_owned());
    assert_refused(query(&mut client, "SELECT user").await, Code::Unauthenticated, "wrong");

    let mut client = server.client().await;
    client.handshake("ana", "of ana").await.unwrap();
    assert_eq!(show(&query(&mut client, "SELECT user").await.unwrap()), ["ana"]);
    // a ticket is of its caller
    let info = client.execute("SELECT user".to_owned(), None).await.unwrap();
    let mut admin = server.client().await;
    admin.handshake("admin", TOKEN).await.unwrap();
    assert_refused(fetch(&mut admin, info).await, Code::PermissionDenied, "another caller");
    let mut other = server.client().await;
    assert!(other.handshake("ana", "wrong").await.unwrap_err().to_string().contains("name or the password"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let file = AccessFile::in_directory(dir.path());
    file.update(|accounts| accounts.add_user("ana", vec![], Some(Verifier::new("of ana")))).unwrap();
    // a clock that lets each look at the file see its changes
    let clock = std::sync::atomic::AtomicI64::new(0);
    let now = move || Timestamp(clock.fetch_add(1_000_000, std::sync::atomic::Ordering::Relaxed));
    let access = Arc::new(Access::with_clock(AccessFile::in_directory(dir.path()), Box::new(now)).unwrap());
    let server = Server::with(FlightOptions { access: Some(access), ..FlightOptions::default() }).await;
    let mut client = server.client().await;
    client.handshake("ana", "of ana").await.unwrap();
    query(&mut client, "SELECT user").await.unwrap();
    file.update(|accounts| accounts.set_password("ana", Some(Verifier::new("another")))).unwrap();
    assert_refused(query(&mut client, "SELECT user").await, Code::Unauthenticated, "was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_can_be_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = dir.path().join("server.pem");
    std::fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let server = Server::with_tls(FlightOptions::default(), Some(TlsFiles::one(&file))).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (config, address) = (Arc::new(config), server.address);
    let connector = tower::service_fn(move |_| {
        let connector = TlsConnector::from(config.clone());
        async move {
            let stream = TcpStream::connect(address).await?;
            connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.map(TokioIo::new)
        }
    });
    let endpoint = Endpoint::new(format!("http://{address}")).unwrap();
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    let mut client = FlightSqlServiceClient::new(channel);
    assert_eq!(show(&query(&mut client, "SELECT rows 1").await.unwrap()), ["0|row 0"]);
    // a client in plain text is not served
    let mut plain = FlightSqlServiceClient::new(endpoint.connect_lazy());
    assert!(query(&mut plain, "SELECT rows 1").await.is_err());
}
