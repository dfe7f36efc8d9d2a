//! HTTP over encrypted connections.

use std::sync::Arc;
use std::time::Duration;

use tidemill_gateway::{Gateway, ListenOptions, Listener, Metrics, TlsFiles};
use tidemill_server::HttpFrontEnd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::harness::{Mill, ScriptedSql, TOKEN, options};

#[test]
fn requests_over_an_encrypted_connection_are_answered() {
    let mill = Mill::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.pem");
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    mill.block_on(async {
        let metrics = Arc::new(Metrics::default());
        let front_end =
            HttpFrontEnd::new(mill.engine.clone(), Arc::new(ScriptedSql), options(), metrics.clone()).unwrap();
        let local = ListenOptions::new(([127, 0, 0, 1], 0).into());
        let options = ListenOptions { tls: Some(TlsFiles::one(file)), ..local };
        let listener = Listener::bind(Arc::new(front_end), options).await.unwrap();
        let gateway = Gateway::start(vec![listener], metrics);
        let stream = TcpStream::connect(gateway.addresses()[0]).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config.clone())).connect(name.clone(), stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let request = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        // the end of the connection may come without that of TLS
        let _ = stream.read_to_string(&mut reply).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        for line in [
            "gateway_connections{protocol=\"http\"} 1",
            "gateway_connections_accepted_total{protocol=\"http\"} 1",
            "gateway_connections_evicted_total{protocol=\"http\"} 0",
            "http_connections 1",
        ] {
            assert!(reply.contains(line), "{line} is not in {reply}");
        }
        // one that prefers HTTP/2 gets it
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        let stream = TcpStream::connect(gateway.addresses()[0]).await.unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (mut sender, _connection) = crate::http2::handshake(stream).await;
        assert_eq!(crate::http2::get(&mut sender, "https://localhost/livez", "").await.status, 200);
        drop(sender);
        assert_eq!(gateway.shutdown(Duration::from_secs(60)).await, 0);
    });
}
