//! TLS that the client asks for, and logins that are bound to the certificate.

use std::sync::Arc;

use tidemill_gateway::TlsFiles;
use tidemill_postgres::PostgresOptions;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::fixture::Server;
use crate::raw::{Raw, startup};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_for_tls_gets_it_and_binds_its_login() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = dir.path().join("server.pem");
    std::fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let options = PostgresOptions { password: Some("secret".to_owned()), ..PostgresOptions::default() };
    let server = Server::start_with(options, Some(TlsFiles::one(&file)), 100).await;

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(roots).with_no_client_auth();
    let tls = MakeRustlsConnect::new(tls);
    let mut config = Config::new();
    config.host("localhost").hostaddr([127, 0, 0, 1].into()).port(server.address.port());
    config.user("admin").password("secret").dbname("tidemill").ssl_mode(SslMode::Require);
    for binding in [ChannelBinding::Require, ChannelBinding::Disable] {
        let (client, connection) = config.channel_binding(binding).connect(tls.clone()).await.unwrap();
        let connection = tokio::spawn(connection);
        assert_eq!(client.query("SELECT rows 3", &[]).await.unwrap().len(), 3);
        drop(client);
        connection.await.unwrap().unwrap();
    }
    // one that does not ask is served as well, and cannot bind its login
    config.ssl_mode(SslMode::Disable).channel_binding(ChannelBinding::Prefer);
    assert!(config.connect(NoTls).await.is_ok());
    assert!(config.channel_binding(ChannelBinding::Require).connect(NoTls).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_certificate_says_so() {
    let server = Server::start(PostgresOptions::default()).await;
    let mut raw = Raw::open(server.address).await;
    raw.send(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]).await;
    let mut answer = [0];
    tokio::io::AsyncReadExt::read_exact(&mut raw.stream, &mut answer).await.unwrap();
    assert_eq!(&answer, b"N");
    raw.send(&startup(0, &[("user", "ana")])).await;
    assert_eq!(raw.until_ready().await.last().unwrap().letter, 'Z');
}
