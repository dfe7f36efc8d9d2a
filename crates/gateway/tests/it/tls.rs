//! Encrypted connections, and certificates that change.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tidemill_gateway::{Clock, Encryption, ListenOptions, TlsFiles};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::lines::{Client, Lines, hex, local, start, until};

/// A certificate for this machine, and its key, as PEM.
pub struct Certificate {
    pub certificate: String,
    pub key: String,
}

impl Certificate {
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    pub fn both(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }

    fn hash(&self) -> String {
        let der = CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        hex(&Sha256::digest(&der))
    }

    /// Connects as a client that trusts this certificate and speaks the protocols `alpn`.
    async fn connect(
        &self,
        stream: TcpStream,
        alpn: &[&str],
    ) -> std::io::Result<Client<TlsStream<TcpStream>>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        Ok(Client::over(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    async fn client(&self, address: SocketAddr) -> std::io::Result<Client<TlsStream<TcpStream>>> {
        self.connect(TcpStream::connect(address).await.unwrap(), &[]).await
    }
}

/// A clock that tests advance.
#[derive(Clone, Default)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub fn clock(&self) -> Clock {
        let (start, seconds) = (Instant::now(), self.0.clone());
        Arc::new(move || start + Duration::from_secs(seconds.load(Ordering::SeqCst)))
    }

    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

pub fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    // as tools that renew certificates do it: the file is replaced as a whole
    let (new, path) = (dir.join("new"), dir.join(name));
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
}

#[tokio::test]
async fn a_protocol_knows_how_its_connection_is_encrypted() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = Certificate::new();
    let file = write(dir.path(), "server.pem", &certificate.both());
    let front_end = Lines::new();
    let options = ListenOptions { tls: Some(TlsFiles::one(file)), ..local(8) };
    let (gateway, metrics) = start(&front_end, options).await;
    let address = gateway.addresses()[0];
    let mut client = certificate.client(address).await.unwrap();
    let expected = format!("encrypted=true alpn= hash={}", certificate.hash());
    assert_eq!(client.ask("socket").await.unwrap(), expected);
    let stream = TcpStream::connect(address).await.unwrap();
    let mut client = certificate.connect(stream, &["h2", "lines/1"]).await.unwrap();
    let expected = format!("encrypted=true alpn=lines/1 hash={}", certificate.hash());
    assert_eq!(client.ask("socket").await.unwrap(), expected);
    let stream = TcpStream::connect(address).await.unwrap();
    assert!(certificate.connect(stream, &["h2"]).await.is_err(), "no protocol in common");
    // one in plain text, and one that does not trust the certificate
    assert_ne!(Client::connect(address).await.ask("ping").await.as_deref(), Some("pong"));
    assert!(Certificate::new().client(address).await.is_err());
    until(|| metrics.of("lines").refused == 3).await;
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_changed_certificate_is_used_and_a_bad_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second, third) = (Certificate::new(), Certificate::new(), Certificate::new());
    let certificate_file = write(dir.path(), "certificate.pem", &first.certificate);
    let key_file = write(dir.path(), "key.pem", &first.key);
    let clock = TestClock::default();
    let tls = Some(TlsFiles::separate(&certificate_file, &key_file));
    let options = ListenOptions { tls, clock: clock.clock(), ..local(8) };
    let (gateway, _) = start(&Lines::new(), options).await;
    let (address, problems) = (gateway.addresses()[0], gateway.problems());
    let mut old = first.client(address).await.unwrap();
    assert_eq!(old.ask("ping").await.unwrap(), "pong");

    write(dir.path(), "certificate.pem", &second.certificate);
    write(dir.path(), "key.pem", &second.key);
    clock.advance(9);
    assert!(first.client(address).await.is_ok(), "the files are not looked at yet");
    clock.advance(1);
    assert!(first.client(address).await.is_err());
    assert!(second.client(address).await.is_ok());
    assert_eq!(old.ask("ping").await.unwrap(), "pong", "open connections stay");
    assert!(problems.present().is_empty());

    // a new certificate whose key has not come yet, and files that are damaged or gone
    write(dir.path(), "certificate.pem", &third.certificate);
    for (break_it, why) in [
        (None, "key.pem: the private key cannot be used with the certificate"),
        (Some("-----BEGIN"), "certificate.pem: there is no certificate"),
    ] {
        if let Some(text) = break_it {
            write(dir.path(), "certificate.pem", text);
        }
        clock.advance(10);
        assert!(second.client(address).await.is_ok(), "the former certificate stays");
        let present = problems.present();
        assert_eq!(present.len(), 1);
        let expected = format!("lines at {address}: the former certificate stays in force: ");
        assert!(present[0].starts_with(&expected) && present[0].contains(why), "{present:?}");
    }
    std::fs::remove_file(&certificate_file).unwrap();
    clock.advance(10);
    let present = problems.present();
    assert!(present[0].contains("certificate.pem: the file cannot be read"), "{present:?}");

    write(dir.path(), "certificate.pem", &third.certificate);
    write(dir.path(), "key.pem", &third.key);
    clock.advance(10);
    assert!(problems.present().is_empty(), "asking looks at the files, too");
    assert!(third.client(address).await.is_ok());
    gateway.shutdown(Duration::ZERO).await;
    assert!(problems.present().is_empty());
}

#[tokio::test]
async fn a_protocol_may_begin_the_encryption_itself() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = Certificate::new();
    let file = write(dir.path(), "server.pem", &certificate.both());
    let options = ListenOptions { tls: Some(TlsFiles::one(file)), ..local(8) };
    let (gateway, _) = start(&Lines::with("lines", Encryption::OnRequest), options).await;
    let mut plain = Client::connect(gateway.addresses()[0]).await;
    assert_eq!(plain.ask("socket").await.unwrap(), "encrypted=false alpn= hash=");
    assert_eq!(plain.ask("encrypt").await.unwrap(), "go");
    let mut encrypted = certificate.connect(plain.into_inner(), &[]).await.unwrap();
    let expected = format!("encrypted=true alpn= hash={}", certificate.hash());
    assert_eq!(encrypted.ask("socket").await.unwrap(), expected);
    gateway.shutdown(Duration::ZERO).await;
}

/// The time of the runtime is advanced whenever all tasks wait, so that ten seconds go by at once.
#[tokio::test(start_paused = true)]
async fn handshakes_that_are_not_finished_are_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "server.pem", &Certificate::new().both());
    let options = ListenOptions { tls: Some(TlsFiles::one(file)), ..local(8) };
    let (gateway, metrics) = start(&Lines::new(), options).await;
    let mut half_open = TcpStream::connect(gateway.addresses()[0]).await.unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(half_open.read(&mut [0; 64]).await.unwrap_or(0), 0, "it is closed");
    assert!(begun.elapsed() >= Duration::from_secs(10));
    assert_eq!(metrics.of("lines").refused, 1);
    gateway.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn handshakes_that_are_not_finished_keep_no_client_away() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = Certificate::new();
    let file = write(dir.path(), "server.pem", &certificate.both());
    let options = ListenOptions { tls: Some(TlsFiles::one(file)), ..local(4) };
    let (gateway, metrics) = start(&Lines::new(), options).await;
    let address = gateway.addresses()[0];
    let mut half_open = vec![];
    for _ in 0..50 {
        half_open.push(TcpStream::connect(address).await.unwrap());
    }
    let mut client = certificate.client(address).await.unwrap();
    assert_eq!(client.ask("ping").await.unwrap(), "pong");
    assert!(metrics.of("lines").open <= 4);
    // a drain does not wait for them either
    assert_eq!(gateway.shutdown(Duration::from_secs(60)).await, 0);
}
