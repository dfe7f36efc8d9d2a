//! Who is let in.

use mongodb::bson::doc;
use mongodb::options::{ClientOptions, Compressor, Credential};
use mongodb::sync::Client;
use tidemill_mongo::{MongoOptions, serve};

use crate::{TestServer, code};

#[test]
fn only_the_token_lets_a_driver_in() {
    let server = TestServer::start(2);
    let ping = |client: Client| client.database("docs").run_command(doc! { "count": "things" }).run();
    assert!(ping(server.client()).is_ok());
    let user = |name: &str, password: &str| {
        let credential =
            Credential::builder().username(name.to_owned()).password(password.to_owned()).build();
        server.client_with(|options: &mut ClientOptions| options.credential = Some(credential))
    };
    for (name, password) in [("admin", "wrong"), ("root", crate::PASSWORD), ("admin", "")] {
        let error = ping(user(name, password)).unwrap_err().to_string();
        assert!(error.contains("uthentication"), "{error}");
    }
    let nobody = server.client_with(|options| options.credential = None);
    assert_eq!(code(&ping(nobody).unwrap_err()), 13);
}

#[test]
fn compressed_messages_are_read_and_answered() {
    let server = TestServer::start(2);
    for (number, compressor) in
        [Compressor::Snappy, Compressor::Zlib { level: None }, Compressor::Zstd { level: None }]
            .into_iter()
            .enumerate()
    {
        let client = server.client_with(|options| options.compressors = Some(vec![compressor]));
        let things = client.database("docs").collection(&format!("things{number}"));
        things.insert_many((0..100).map(|n| doc! { "_id": n, "text": "x".repeat(1000) })).run().unwrap();
        let found = things
            .find(doc! {})
            .run()
            .unwrap()
            .map(|d| d.unwrap().get_str("text").unwrap().len())
            .sum::<usize>();
        assert_eq!(found, 100_000);
    }
}

#[test]
fn connections_that_send_nothing_keep_no_driver_away() {
    let options = MongoOptions {
        password: Some(crate::PASSWORD.into()),
        connections_max: 6,
        ..MongoOptions::default()
    };
    let server = TestServer::start_with(options);
    let things = server.collection("things");
    things.insert_one(doc! { "_id": 1 }).run().unwrap();
    let connect = |_| std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let silent: Vec<_> = (0..50).map(connect).collect();
    assert!(things.find_one(doc! { "_id": 1 }).run().unwrap().is_some());
    let status = server.client().database("admin").run_command(doc! { "serverStatus": 1 }).run().unwrap();
    assert!(status.get_document("connections").unwrap().get_i32("current").unwrap() <= 6);
    drop(silent);
}

#[test]
fn an_address_that_others_reach_needs_a_password() {
    let server = TestServer::start_with(MongoOptions::default());
    let client = server.client_with(|options| options.credential = None);
    client.database("docs").collection("things").insert_one(doc! { "a": 1 }).run().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = ([0, 0, 0, 0], 0).into();
    let error = runtime.block_on(serve(address, server.engine.clone(), MongoOptions::default())).unwrap_err();
    assert!(error.to_string().contains("clients need no token or password"), "{error}");
}
