//! Encrypted connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{ClientOptions, ServerAddress, Tls, TlsOptions};
use mongodb::sync::Client;
use tidemill_engine::{App, Engine};
use tidemill_mongo::MongoOptions;

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
    let options = MongoOptions {
        password: Some(PASSWORD.to_owned()),
        tls_file: Some(server_file),
        ..MongoOptions::default()
    };
    let server = TestServer::start_with(options);
    let trusting = Tls::Enabled(TlsOptions::builder().ca_file_path(ca).build());
    let things = client(server.port(), Some(trusting), Duration::from_secs(120))
        .database("docs")
        .collection::<Document>("things");
    // larger than the buffers of a connection
    let text = "x".repeat(3 << 20);
    things.insert_one(doc! { "_id": 1, "text": &text }).run().unwrap();
    let found = things.find_one(doc! { "_id": 1 }).run().unwrap().unwrap();
    assert_eq!(found.get_str("text").unwrap(), text);
    for tls in [None, Some(Tls::Enabled(TlsOptions::default()))] {
        let things = client(server.port(), tls, Duration::from_secs(3))
            .database("docs")
            .collection::<Document>("things");
        assert!(things.find_one(doc! {}).run().is_err());
    }
}

#[test]
fn bad_certificates_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let (_, without_key) = certificate(dir.path());
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    let engine = Arc::new(Engine::open(&dir.path().join("data"), Some(App::from_rules("docs", ""))).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (file, why) in [
        (without_key, "there is no private key"),
        (empty, "there is no certificate"),
        (dir.path().join("missing.pem"), "No such file"),
    ] {
        let options = MongoOptions { tls_file: Some(file), ..MongoOptions::default() };
        let served =
            runtime.block_on(tidemill_mongo::serve(([127, 0, 0, 1], 0).into(), engine.clone(), options));
        let error = served.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
