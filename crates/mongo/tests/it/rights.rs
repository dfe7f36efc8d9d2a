//! Who may do what: a user, a command, and its reply, as text. `UPDATE_CASES=1` rewrites the replies.
//!
//! The file begins with the users and their grants: `user NAME: GRANT, …`. A case is `=== name`, lines `USER DATABASE COMMAND` in
//! Extended JSON, a line `---`, and a line for each reply: the reply as relaxed Extended JSON without the times of the log, or
//! `CODE: MESSAGE`. `admin` is the first administrator. The cases run in order on one server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Credential, ServerAddress};
use mongodb::sync::Client;
use tempfile::TempDir;
use tidemill_access::{Access, AccessFile, Grant, Verifier};
use tidemill_mongo::MongoOptions;
use tidemill_types::Timestamp;

use crate::operations::endless;
use crate::{PASSWORD, TestServer};

/// A server with users, which looks at their file whenever it is asked.
struct World {
    server: TestServer,
    users: TempDir,
    clients: BTreeMap<String, Client>,
}

impl World {
    fn new() -> Self {
        let users = tempfile::tempdir().unwrap();
        let clock = AtomicI64::new(0);
        let now = move || Timestamp(clock.fetch_add(1_000_000, Ordering::Relaxed));
        let file = AccessFile::in_directory(users.path());
        let access = Arc::new(Access::with_clock(file, Box::new(now)).unwrap());
        let options =
            MongoOptions { password: Some(PASSWORD.into()), access: Some(access), ..MongoOptions::default() };
        let server = TestServer::start_with(options);
        let clients = BTreeMap::from([("admin".to_owned(), server.client())]);
        Self { server, users, clients }
    }

    fn file(&self) -> AccessFile {
        AccessFile::in_directory(self.users.path())
    }

    fn add_user(&mut self, name: &str, grants: &str) {
        let password = format!("password of {name}");
        let grants = grants.split(", ").filter(|text| !text.is_empty());
        let grants: Vec<Grant> = grants.map(|text| text.parse().unwrap()).collect();
        let update =
            self.file().update(|accounts| accounts.add_user(name, grants, Some(Verifier::new(&password))));
        update.unwrap();
        let credential = Credential::builder().username(name.to_owned()).password(password).build();
        let port = self.server.port();
        let client = self.server.client_with(|options| {
            options.hosts = vec![ServerAddress::Tcp { host: "127.0.0.1".into(), port: Some(port) }];
            options.credential = Some(credential);
            options.server_selection_timeout = Some(Duration::from_secs(120));
        });
        self.clients.insert(name.to_owned(), client);
    }

    fn run(&self, user: &str, database: &str, command: Document) -> mongodb::error::Result<Document> {
        self.clients[user].database(database).run_command(command).run()
    }

    /// Runs a line of a case.
    fn answer(&self, line: &str) -> String {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("expected USER DATABASE COMMAND: {line}"));
        let (user, database, command) = (word(), word(), word());
        // the first field is the command, so the fields keep their order
        let command: Document = serde_json::from_str(command).unwrap_or_else(|e| panic!("{line}: {e}"));
        match self.run(user, database, command) {
            Ok(mut reply) => {
                for time in ["$clusterTime", "operationTime"] {
                    reply.remove(time);
                }
                Bson::Document(reply).into_relaxed_extjson().to_string()
            }
            Err(error) => match error.kind.as_ref() {
                mongodb::error::ErrorKind::Command(error) => format!("{}: {}", error.code, error.message),
                other => panic!("{line}: {other:?}"),
            },
        }
    }
}

#[test]
fn replies_are_as_in_the_case_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/rights.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut world = World::new();
    let mut parts = text.split("=== ");
    let intro = parts.next().unwrap();
    for line in intro.lines() {
        if let Some((name, grants)) = line.strip_prefix("user ").and_then(|line| line.split_once(':')) {
            world.add_user(name, grants.trim());
        }
    }
    let (mut filled, mut wrong, mut count) = (intro.to_owned(), String::new(), 0);
    for case in parts {
        let (asked, expected) = case.split_once("\n---\n").unwrap_or((case, ""));
        let (name, lines) = asked.trim_end().split_once('\n').unwrap();
        let found: Vec<String> = lines.lines().map(|line| world.answer(line)).collect();
        let found = found.join("\n");
        if found != expected.trim_end() {
            write!(wrong, "\n{name}\nexpected:\n{}\nfound:\n{found}\n", expected.trim_end()).unwrap();
        }
        write!(filled, "=== {name}\n{lines}\n---\n{found}\n\n").unwrap();
        count += 1;
    }
    assert!(count >= 25, "only {count} cases were found");
    match std::env::var_os("UPDATE_CASES") {
        Some(_) => std::fs::write(&path, filled.trim_end().to_owned() + "\n").unwrap(),
        None => assert!(wrong.is_empty(), "{wrong}"),
    }
    world.server.stop();
}

#[test]
fn rights_of_an_open_connection_follow_the_file() {
    let mut world = World::new();
    world.add_user("ana", "read collection:docs.orders");
    let find = || doc! { "find": "orders" };
    let insert = || doc! { "insert": "orders", "documents": [{ "_id": 1 }] };
    world.run("ana", "docs", find()).unwrap();
    let refused = world.run("ana", "docs", insert()).unwrap_err();
    assert_eq!(crate::code(&refused), 13);
    world.file().update(|accounts| accounts.grant("ana", "write collection:docs.*".parse()?)).unwrap();
    world.run("ana", "docs", insert()).unwrap();
    world.file().update(|accounts| accounts.remove_user("ana")).unwrap();
    let gone = world.run("ana", "docs", find()).unwrap_err();
    // the connection is closed within a second, or asked to log in before
    assert!(gone.to_string().contains("uthenticat"), "{gone}");
    world.server.stop();
}

#[test]
fn a_new_password_ends_what_the_former_one_has_begun() {
    let mut world = World::new();
    world.add_user("ana", "write *");
    let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id }).collect();
    world.run("admin", "docs", doc! { "insert": "orders", "documents": documents }).unwrap();
    let cursor_of = |reply: Document| reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let opened = cursor_of(world.run("ana", "docs", doc! { "find": "orders", "batchSize": 2 }).unwrap());
    let follow = doc! { "aggregate": "orders", "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    let followed = cursor_of(world.run("ana", "docs", follow).unwrap());
    let waiting = std::thread::spawn({
        let ana = world.clients["ana"].clone();
        let wait = doc! { "getMore": followed, "collection": "orders", "maxTimeMS": 600_000 };
        move || ana.database("docs").run_command(wait).run()
    });
    let open_cursors = || {
        let status = world.run("admin", "admin", doc! { "serverStatus": 1 }).unwrap();
        let metrics = status.get_document("metrics").unwrap().get_document("cursor").unwrap();
        metrics.get_document("open").unwrap().get_i64("total").unwrap()
    };
    assert!(open_cursors() >= 1);
    let next = Verifier::new("next password");
    world.file().update(|accounts| accounts.set_password("ana", Some(next))).unwrap();
    assert!(waiting.join().unwrap().is_err(), "it does not wait for its ten minutes");
    // the tick of the listener comes once a second
    while open_cursors() > 0 {
        std::thread::yield_now();
    }
    let refused = world.run("ana", "docs", doc! { "find": "orders" }).unwrap_err();
    assert!(refused.to_string().contains("uthenticat"), "{refused}");
    let credential = Credential::builder().username("ana".to_owned()).password("next password".to_owned());
    let again = world.server.client_with(|options| options.credential = Some(credential.build()));
    let docs = again.database("docs");
    docs.run_command(doc! { "find": "orders" }).run().unwrap();
    let gone = docs.run_command(doc! { "getMore": opened, "collection": "orders" }).run().unwrap_err();
    assert_eq!(crate::code(&gone), 43);
    world.server.stop();
}

#[test]
fn a_cursor_is_of_the_user_who_opened_it() {
    let mut world = World::new();
    world.add_user("ana", "read *");
    world.add_user("eva", "admin *");
    let documents: Vec<Document> = (0..10).map(|id| doc! { "_id": id }).collect();
    world.run("admin", "docs", doc! { "insert": "orders", "documents": documents }).unwrap();
    let opened = world.run("ana", "docs", doc! { "find": "orders", "batchSize": 2 }).unwrap();
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = || doc! { "getMore": id, "collection": "orders", "batchSize": 2 };
    let close = || doc! { "killCursors": "orders", "cursors": [id] };
    for command in [more(), close()] {
        let refused = world.run("eva", "docs", command).unwrap_err();
        assert!(
            crate::code(&refused) == 13 && refused.to_string().contains("was not created by"),
            "{refused}"
        );
    }
    world.run("ana", "docs", more()).unwrap();
    world.run("ana", "docs", close()).unwrap();
    world.server.stop();
}

#[test]
fn a_cursor_is_read_with_the_present_rights() {
    let mut world = World::new();
    world.add_user("ana", "read collection:docs.*, read collection:sales.*");
    let documents: Vec<Document> = (0..4).map(|id| doc! { "_id": id }).collect();
    world.run("admin", "docs", doc! { "insert": "orders", "documents": &documents }).unwrap();
    let open = |database: &str, target: Bson, stage: Document| {
        let cursor = doc! { "batchSize": 1 };
        let command = doc! { "aggregate": target, "pipeline": [stage], "cursor": cursor };
        let opened = world.run("ana", database, command).unwrap();
        opened.get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let more = |database: &str, id: i64, collection: &str| {
        let command = doc! { "getMore": id, "collection": collection, "batchSize": 1, "maxTimeMS": 1 };
        world.run("ana", database, command)
    };
    let join = doc! { "$unionWith": { "coll": "customers" } };
    let joined = open("docs", "orders".into(), join);
    let changes = open("sales", 1.into(), doc! { "$changeStream": {} });
    more("docs", joined, "orders").unwrap();
    more("sales", changes, "$cmd.aggregate").unwrap();
    let file = world.file();
    file.update(|accounts| accounts.grant("ana", "read collection:docs.orders".parse()?)).unwrap();
    for grant in ["read collection:docs.*", "read collection:sales.*"] {
        file.update(|accounts| accounts.revoke("ana", &grant.parse()?)).unwrap();
    }
    for (database, id, collection, hidden) in [
        ("docs", joined, "orders", "collection:docs.customers"),
        ("sales", changes, "$cmd.aggregate", "collection:sales.*"),
    ] {
        let refused = more(database, id, collection).unwrap_err();
        assert_eq!(crate::code(&refused), 13, "{refused}");
        assert!(refused.to_string().contains(&format!("may not read {hidden}:")), "{refused}");
    }
    world.server.stop();
}

#[test]
fn a_session_is_of_the_user_who_began_it() {
    let mut world = World::new();
    world.add_user("ana", "write *");
    world.add_user("eva", "write *, read server");
    world.run("admin", "docs", doc! { "create": "orders" }).unwrap();
    let mut session = world.clients["ana"].start_session().run().unwrap();
    session.start_transaction().run().unwrap();
    let orders = world.clients["ana"].database("docs").collection::<Document>("orders");
    orders.insert_one(doc! { "_id": 1 }).session(&mut session).run().unwrap();
    let id = session.id().clone();
    let in_session = |mut command: Document| {
        command.extend(doc! { "lsid": id.clone(), "txnNumber": 1_i64, "autocommit": false });
        command
    };
    for (database, command) in [
        ("admin", doc! { "killSessions": [id.clone()] }),
        ("admin", doc! { "endSessions": [id.clone()] }),
        ("admin", in_session(doc! { "abortTransaction": 1 })),
        ("admin", in_session(doc! { "commitTransaction": 1 })),
        ("docs", in_session(doc! { "insert": "orders", "documents": [{ "_id": 2 }] })),
    ] {
        let refused = world.run("eva", database, command.clone()).unwrap_err();
        let message = refused.to_string();
        assert!(crate::code(&refused) == 13 && message.contains("session was not created by"), "{message}");
    }
    let lists = |user: &str| {
        let pipeline = [doc! { "$listLocalSessions": {} }, doc! { "$match": { "_id.id": id.get("id") } }];
        let command = doc! { "aggregate": 1, "pipeline": pipeline.to_vec(), "cursor": {} };
        let listed = world.run(user, "admin", command).unwrap();
        !listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap().is_empty()
    };
    assert!(lists("admin") && !lists("eva"));
    session.commit_transaction().run().unwrap();
    assert_eq!(orders.count_documents(doc! {}).run().unwrap(), 1);
    world.run("admin", "admin", doc! { "killSessions": [id.clone()] }).unwrap();
    assert!(!lists("admin"));
    world.server.stop();
}

#[test]
fn a_pipeline_lists_the_operations_of_others_for_administrators_only() {
    let mut world = World::new();
    world.add_user("ana", "read collection:docs.*");
    world.add_user("eva", "read *");
    world.run("admin", "docs", doc! { "insert": "orders", "documents": [{ "_id": 1 }] }).unwrap();
    let worker = std::thread::spawn({
        let orders = world.clients["ana"].database("docs").collection::<Document>("orders");
        move || crate::code(&orders.aggregate(endless([doc! { "$count": "n" }])).run().unwrap_err())
    });
    let listed = |user: &str| {
        let pipeline = [doc! { "$currentOp": {} }, doc! { "$match": { "ns": "docs.orders" } }];
        let command = doc! { "aggregate": 1, "pipeline": pipeline.to_vec(), "cursor": {} };
        let reply = world.run(user, "admin", command).unwrap();
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone()
    };
    let operation = loop {
        match listed("admin").first() {
            Some(operation) => break operation.as_document().unwrap().get_i32("opid").unwrap(),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert_eq!(listed("eva"), []);
    world.run("admin", "admin", doc! { "killOp": 1, "op": operation }).unwrap();
    assert_eq!(worker.join().unwrap(), 11601);
    world.server.stop();
}

#[test]
fn changes_of_the_server_are_told_to_who_follows_its_collection() {
    let mut world = World::new();
    world.add_user("ana", "read collection:*");
    let open = |user: &str, database: &str, target: Bson, options: Document| {
        let pipeline = [doc! { "$changeStream": options }];
        let opened = world.run(
            user,
            database,
            doc! { "aggregate": target, "pipeline": pipeline.to_vec(), "cursor": {} },
        );
        opened.map(|opened| opened.get_document("cursor").unwrap().get_i64("id").unwrap())
    };
    let of_database = open("ana", "docs", 1.into(), doc! {}).unwrap();
    let of_all = open("ana", "admin", 1.into(), doc! { "allChangesForCluster": true }).unwrap();
    let own = "tidemill.undelivered";
    assert_eq!(crate::code(&open("ana", "docs", own.into(), doc! {}).unwrap_err()), 13);
    let of_own = open("admin", "docs", own.into(), doc! {}).unwrap();
    for collection in [own, "orders"] {
        world.run("admin", "docs", doc! { "insert": collection, "documents": [{ "_id": 1 }] }).unwrap();
    }
    for (user, database, cursor, follows, told) in [
        ("ana", "docs", of_database, "$cmd.aggregate", "orders"),
        ("ana", "admin", of_all, "$cmd.aggregate", "orders"),
        ("admin", "docs", of_own, own, own),
    ] {
        let reply = world.run(user, database, doc! { "getMore": cursor, "collection": follows }).unwrap();
        let batch = reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
        let names = batch
            .iter()
            .map(|event| event.as_document().unwrap().get_document("ns").unwrap().get_str("coll").unwrap());
        assert_eq!(names.collect::<Vec<_>>(), [told]);
    }
    world.server.stop();
}
