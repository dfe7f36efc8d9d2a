//! Clients that prove who they are by certificates.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tidemill_gateway::{ListenOptions, Listener, TlsFiles};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::lines::{Client, Lines, local, start, until};
use crate::tls::{Certificate, TestClock, write};

/// An authority of clients.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    fn sign(&self, names: &[&str]) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        Certificate { certificate: made.pem(), key: key.serialize_pem() }
    }
}

/// Sends a line as a client with a certificate or without one. Returns the answer; `None` if the client is refused.
async fn ask(
    address: SocketAddr,
    server: &Certificate,
    own: Option<&Certificate>,
    line: &str,
) -> Option<String> {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&server.certificate)).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate(&own.certificate)], key).unwrap()
        }
    };
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    Client::over(stream).ask(line).await
}

#[tokio::test]
async fn a_protocol_knows_the_names_of_a_client() {
    let dir = tempfile::tempdir().unwrap();
    let (server, authority, other) = (Certificate::new(), Authority::new(), Authority::new());
    let file = write(dir.path(), "server.pem", &server.both());
    let authorities = write(dir.path(), "authorities.pem", &authority.pem);
    let tls = TlsFiles::one(&file).with_client_authorities(&authorities);
    assert!(tls.requires_client_certificate());
    let (gateway, metrics) = start(&Lines::new(), ListenOptions { tls: Some(tls), ..local(8) }).await;
    let address = gateway.addresses()[0];
    let client = authority.sign(&["node-1", "127.0.0.1", "node-1.example"]);
    assert_eq!(ask(address, &server, Some(&client), "names").await.unwrap(), "node-1 node-1.example");
    assert_eq!(metrics.of("lines").refused, 0);
    assert_eq!(ask(address, &server, None, "names").await, None);
    assert_eq!(ask(address, &server, Some(&other.sign(&["node-1"])), "names").await, None);
    until(|| metrics.of("lines").refused == 2).await;
    // a listener without authorities asks for none
    let tls = Some(TlsFiles::one(&file));
    let (open, _) = start(&Lines::new(), ListenOptions { tls, ..local(8) }).await;
    assert_eq!(ask(open.addresses()[0], &server, Some(&client), "names").await.unwrap(), "none");
}

#[tokio::test]
async fn changed_authorities_are_used_and_bad_ones_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (server, first, second) = (Certificate::new(), Authority::new(), Authority::new());
    let [one, two] = [first.sign(&["a"]), second.sign(&["a"])];
    let file = write(dir.path(), "server.pem", &server.both());
    let authorities = write(dir.path(), "authorities.pem", &first.pem);
    let clock = TestClock::default();
    let tls = Some(TlsFiles::one(file).with_client_authorities(&authorities));
    let (gateway, _) = start(&Lines::new(), ListenOptions { tls, clock: clock.clock(), ..local(8) }).await;
    let (address, problems) = (gateway.addresses()[0], gateway.problems());
    let are_accepted = async || {
        let one = ask(address, &server, Some(&one), "ping").await.is_some();
        (one, ask(address, &server, Some(&two), "ping").await.is_some())
    };
    assert_eq!(are_accepted().await, (true, false));
    // both for a time, as at a change of the authority
    write(dir.path(), "authorities.pem", &format!("{}{}", first.pem, second.pem));
    clock.advance(10);
    assert_eq!(are_accepted().await, (true, true));
    write(dir.path(), "authorities.pem", &second.pem);
    clock.advance(10);
    assert_eq!(are_accepted().await, (false, true));
    for (text, why) in [
        ("", "there is no certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "a certificate cannot"),
    ] {
        write(dir.path(), "authorities.pem", text);
        clock.advance(10);
        assert_eq!(are_accepted().await, (false, true), "the former ones stay");
        let present = problems.present();
        assert!(
            present.len() == 1 && present[0].contains("authorities.pem") && present[0].contains(why),
            "{present:?}"
        );
    }
    write(dir.path(), "authorities.pem", &first.pem);
    clock.advance(10);
    assert!(problems.present().is_empty());
    assert_eq!(are_accepted().await, (true, false));
    // a start with such a file is refused
    write(dir.path(), "authorities.pem", "");
    let tls = Some(TlsFiles::one(dir.path().join("server.pem")).with_client_authorities(&authorities));
    let error =
        Listener::bind(Lines::new(), ListenOptions { tls, ..local(8) }).await.err().unwrap().to_string();
    assert!(error.contains("authorities.pem: there is no certificate; expected a PEM file with"), "{error}");
}
