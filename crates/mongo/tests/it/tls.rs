//! Encrypted connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress, Tls, TlsOptions};
use mongodb::sync::Client;
use tidemill_gateway::{Gateway, ListenOptions, Listener, TlsFiles};
use tidemill_mongo::{MongoFrontEnd, MongoOptions};

use crate::{PASSWORD, TestServer};

/// Writes a certificate for the loopback address, and its key. Returns the file with both, and one with the certificate alone.
fn certificate(dir: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (both, alone) = (dir.join("server.pem"), dir.join("ca.pem"));
    std::fs::write(&both, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    std::fs::write(&alone, made.cert.pem()).unwrap();
    (both, alone)
}

/// Returns a client that gives up after `patience`.
fn client(port: u16, tls: Option<Tls>, patience: Duration) -> Client {
    let mut options = ClientOptions::builder()
        .hosts(vec![ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(port) }])
        .server_selection_timeout(patience)
        .build();
    options.tls = tls;
    options.credential = Some(
        mongodb::options::Credential::builder()
            .username("admin".to_owned())
            .password(PASSWORD.to_owned())
            .build(),
    );
    Client::with_options(options).unwrap()
}

#[test]
fn drivers_that_trust_the_certificate_connect() {
    let dir = tempfile::tempdir().unwrap();
    let (server_file, ca) = certificate(dir.path());
    let server = TestServer::start(2);
    let options = MongoOptions { password: Some(PASSWORD.to_owned()), ..MongoOptions::default() };
    let front_end = Arc::new(MongoFrontEnd::new(server.engine.clone(), options));
    let tls = Some(TlsFiles::one(server_file));
    let options = ListenOptions { tls, ..ListenOptions::new(([127, 0, 0, 1], 0).into()) };
    let gateway = server.runtime.block_on(async {
        let listener = Listener::bind(front_end, options).await.unwrap();
        Gateway::start(vec![listener], Arc::default())
    });
    let port = gateway.addresses()[0].port();
    let trusting = Tls::Enabled(TlsOptions::builder().ca_file_path(ca).build());
    let things = client(port, Some(trusting), Duration::from_secs(120))
        .database("docs")
        .collection::<Document>("things");
    // larger than the buffers of a connection
    let text = "x".repeat(3 << 20);
    things.insert_one(doc! { "_id": 1, "text": &text }).run().unwrap();
    let found = things.find_one(doc! { "_id": 1 }).run().unwrap().unwrap();
    assert_eq!(found.get_str("text").unwrap(), text);
    for tls in [None, Some(Tls::Enabled(TlsOptions::default()))] {
        let things =
            client(port, tls, Duration::from_secs(3)).database("docs").collection::<Document>("things");
        assert!(things.find_one(doc! {}).run().is_err());
    }
    server.runtime.block_on(gateway.shutdown(Duration::from_secs(10)));
}
