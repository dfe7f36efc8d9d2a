//! Tables whose rows are documents.

use bson::{Document, doc};
use tidemill_docs::{Direction, DocumentCommand, FindOptions, IndexSpec};
use tidemill_engine::{App, Engine};
use tidemill_types::ErrorKind;

use crate::queries::events;
use crate::{quiet, send};

const QUERIES: &str = "
    define stream Orders (customer string, amount int);
    define stream Renames (customer string, new_name string);
    define stream Leaves (customer string);
    define stream Lines (product string, shop int, n int);
    define stream Log (what string, n long);

    @store(type='documents', collection='customers') @primaryKey('customer') @index('level')
    define table Customers (customer string, name string, total long, level int);
    @store(type='documents') @primaryKey('product', 'shop')
    define table Stock (product string, shop int, n int);
    @store(type='documents', collection='notes')
    define table Notes (what string, n long);

    from Orders select customer, 'new' as name, convert(amount, 'long') as total, 1 as level
    update or insert into Customers
    set Customers.total = Customers.total + total, Customers.level = level + 1 on Customers.customer == customer;

    from Orders as o join Customers as c on o.customer == c.customer
    select o.customer as customer, c.name as name, c.total as total insert into Known;

    from Orders[(Customers.name == 'vip' and Customers.customer == customer) in Customers]
    select customer insert into Vips;

    from Renames select customer, new_name update Customers set Customers.name = new_name
    on Customers.customer == customer;
    from Leaves delete Customers on Customers.customer == customer;
    from Lines select product, shop, n update or insert into Stock
    on Stock.product == product and Stock.shop == shop;
    from Log select what, n insert into Notes;
";

fn app(partitions: u32) -> App {
    let mut app = App::from_texts("shop", None, &[("orders.siddhi", QUERIES)]);
    app.settings.partitions = partitions;
    quiet(app)
}

fn bytes(document: &Document) -> bytes::Bytes {
    bson::RawDocumentBuf::try_from(document).unwrap().into_bytes().into()
}

fn insert(engine: &Engine, collection: &str, documents: &[Document]) {
    let docs = documents.iter().map(bytes).collect();
    let command = DocumentCommand::Insert { collection: collection.into(), docs, ordered: true };
    let outcome = engine.write_documents(command, None).unwrap();
    assert_eq!((outcome.inserted as usize, outcome.errors.len()), (documents.len(), 0));
}

/// Returns all documents of a collection, sorted by their text.
fn documents(engine: &Engine, collection: &str) -> Vec<String> {
    let found = engine.find_documents(collection, &bson::rawdoc! {}, &FindOptions::default()).unwrap();
    let text = |document: &bytes::Bytes| {
        let raw = bson::RawDocument::from_bytes(document).unwrap();
        bson::Bson::Document(Document::try_from(raw).unwrap()).into_relaxed_extjson().to_string()
    };
    let mut all: Vec<String> = found.iter().map(text).collect();
    all.sort();
    all
}

fn rows(engine: &Engine, query: &str) -> Vec<String> {
    let mut rows: Vec<String> = engine
        .query_on_demand(None, query)
        .unwrap()
        .into_iter()
        .map(|row| serde_json::Value::Array(row).to_string())
        .collect();
    rows.sort();
    rows
}

#[test]
fn queries_and_clients_share_documents() {
    for partitions in [1, 4] {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Some(app(partitions))).unwrap();
        // more than a query knows of, and of all hash values
        let others = (0..20).map(|i| doc! {"_id": format!("o{i}"), "name": "other", "total": i, "level": 9});
        insert(&engine, "customers", &others.collect::<Vec<_>>());
        insert(
            &engine,
            "customers",
            &[
                doc! {"_id": "ann", "name": "vip", "total": 5_i32, "level": 7, "address": {"city": "Ulm"}},
                doc! {"_id": "odd", "name": 7, "total": "many", "level": 1.5},
            ],
        );
        send(
            &engine,
            "Orders",
            "{\"customer\":\"ann\",\"amount\":10}\n{\"customer\":\"bob\",\"amount\":3}\n",
        );
        send(&engine, "Orders", "{\"customer\":\"bob\",\"amount\":4}\n{\"customer\":\"o7\",\"amount\":1}\n");
        assert_eq!(
            events(&engine, "Known"),
            [
                r#"{"customer":"ann","name":"vip","total":15}"#,
                r#"{"customer":"bob","name":"new","total":3}"#,
                r#"{"customer":"bob","name":"new","total":7}"#,
                r#"{"customer":"o7","name":"other","total":8}"#,
            ]
        );
        assert_eq!(events(&engine, "Vips"), [r#"{"customer":"ann"}"#]);
        let all = documents(&engine, "customers");
        let has = |text: &str| assert!(all.iter().any(|document| document == text), "{text} in {all:#?}");
        has(r#"{"_id":"ann","address":{"city":"Ulm"},"level":2,"name":"vip","total":15}"#);
        has(r#"{"_id":"bob","customer":"bob","level":2,"name":"new","total":7}"#);
        has(r#"{"_id":"odd","level":1.5,"name":7,"total":"many"}"#);
        // what a column cannot have reads as null
        assert_eq!(
            rows(&engine, "from Customers on customer == 'odd' select *"),
            [r#"["odd",null,null,null]"#]
        );
        assert_eq!(
            rows(&engine, "from Customers on level == 2 and total > 7 select customer"),
            [r#"["ann"]"#, r#"["o7"]"#]
        );
        assert_eq!(
            rows(&engine, "from Customers on total < 2 or total is null select customer, total").len(),
            3
        );
        send(
            &engine,
            "Renames",
            "{\"customer\":\"ann\",\"new_name\":\"Ann\"}\n{\"customer\":\"nobody\",\"new_name\":\"x\"}\n",
        );
        send(&engine, "Leaves", "{\"customer\":\"bob\"}\n{\"customer\":\"nobody\"}\n");
        engine
            .query_on_demand(
                None,
                "select 'eve' as customer, 'Eve' as name, 1L as total, 0 as level insert into Customers",
            )
            .unwrap();
        engine.wait_idle();
        assert_eq!(documents(&engine, "customers").len(), 23);
        // a client's change is seen at once
        let update = DocumentCommand::Update {
            collection: "customers".into(),
            filter: bytes(&doc! {"_id": "eve"}),
            update: bytes(&doc! {"$set": {"total": 40_i32}}),
            multi: false,
            upsert: false,
            upsert_id: None,
        };
        assert_eq!(engine.write_documents(update, None).unwrap().modified, 1);
        assert_eq!(rows(&engine, "from Customers on customer == 'eve' select total"), ["[40]"]);
        let found = engine.collection("customers").find_one(&tidemill_types::Value::str("ann")).unwrap();
        assert!(found.is_some(), "found by its _id wherever it is");
    }
}

#[test]
fn a_replay_makes_the_same_documents() {
    for (partitions, checkpoint) in [(1, false), (4, false), (4, true)] {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Some(app(partitions))).unwrap();
        insert(&engine, "customers", &[doc! {"_id": "ann", "name": "vip", "total": 5_i64, "level": 7}]);
        for round in 0..5 {
            send(
                &engine,
                "Orders",
                "{\"customer\":\"ann\",\"amount\":10}\n{\"customer\":\"bob\",\"amount\":3}\n",
            );
            send(
                &engine,
                "Log",
                &format!("{{\"what\":\"round\",\"n\":{round}}}\n{{\"what\":\"same\",\"n\":1}}\n"),
            );
            let lines =
                "{\"product\":\"tea\",\"shop\":1,\"n\":4}\n{\"product\":\"tea\",\"shop\":2,\"n\":5}\n";
            send(&engine, "Lines", lines);
            if checkpoint && round == 2 {
                engine.checkpoint().unwrap();
            }
        }
        engine.wait_idle();
        let all = |engine: &Engine| ["customers", "notes", "Stock"].map(|name| documents(engine, name));
        let before = all(&engine);
        assert_eq!(before[1].len(), 10, "rows without a key may be equal: {:?}", before[1]);
        assert_eq!(
            before[2],
            [
                r#"{"_id":{"product":"tea","shop":1},"n":4,"product":"tea","shop":1}"#,
                r#"{"_id":{"product":"tea","shop":2},"n":5,"product":"tea","shop":2}"#,
            ]
        );
        assert!(before[0][0].contains("\"total\":55"), "{:?}", before[0]);
        engine.abandon();
        drop(engine);
        let engine = Engine::open(dir.path(), None).unwrap();
        assert_eq!(all(&engine), before);
        send(&engine, "Orders", "{\"customer\":\"ann\",\"amount\":1}\n");
        engine.wait_idle();
        assert!(documents(&engine, "customers")[0].contains("\"total\":56"));
    }
}

#[test]
fn a_collection_stays_where_its_table_reads() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app(4))).unwrap();
    let rename =
        DocumentCommand::Rename { collection: "customers".into(), to: "others".into(), drop_target: false };
    let refused = engine.write_documents(rename, None).unwrap_err().to_string();
    assert!(refused.contains("table `Customers` of orders.siddhi has its rows under this name"), "{refused}");
    // dropped by a client, and made again by its next insert
    engine.write_documents(DocumentCommand::Drop { collection: "customers".into() }, None).unwrap();
    assert_eq!(rows(&engine, "from Customers select customer"), Vec::<String>::new());
    insert(&engine, "customers", &(0..30).map(|i| doc! {"_id": i.to_string()}).collect::<Vec<_>>());
    assert_eq!(rows(&engine, "from Customers select customer").len(), 30);
    // and by the next row
    engine.write_documents(DocumentCommand::Drop { collection: "customers".into() }, None).unwrap();
    send(&engine, "Orders", "{\"customer\":\"ann\",\"amount\":1}\n");
    engine.wait_idle();
    insert(&engine, "customers", &(0..30).map(|i| doc! {"_id": i.to_string()}).collect::<Vec<_>>());
    assert_eq!(rows(&engine, "from Customers select customer").len(), 31);
    let taken = DocumentCommand::Insert {
        collection: "customers".into(),
        docs: vec![bytes(&doc! {"_id": "ann"})],
        ordered: true,
    };
    assert_eq!(engine.write_documents(taken, None).unwrap().errors.len(), 1, "an _id is there once");
    let unique = IndexSpec {
        name: "name_1".into(),
        fields: vec![("name".into(), Direction::Ascending)],
        unique: true,
        ..IndexSpec::default()
    };
    engine.gather_collection("customers", None).unwrap();
    let error = DocumentCommand::CreateIndex { collection: "customers".into(), index: unique };
    assert!(engine.write_documents(error, None).is_err(), "30 documents without a name");
}

#[test]
fn rows_that_the_collection_refuses_fail() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app(4))).unwrap();
    insert(&engine, "customers", &[doc! {"_id": "eve"}]);
    engine
        .query_on_demand(
            None,
            "update Customers set Customers.customer = 'ann' on Customers.customer == 'eve'",
        )
        .unwrap();
    assert_eq!(documents(&engine, "customers"), [r#"{"_id":"ann","customer":"ann"}"#]);
    insert(&engine, "customers", &[doc! {"_id": "eve", "age": 1}]);
    let change = "update Customers set Customers.customer = 'ann' on Customers.customer == 'eve'";
    let refused = engine.query_on_demand(None, change).unwrap_err().to_string();
    assert!(refused.contains("duplicate key"), "{refused}");
    assert_eq!(documents(&engine, "customers").len(), 2);
    let again = "select 'ann' as customer, 'x' as name, 1L as total, 1 as level insert into Customers";
    assert!(engine.query_on_demand(None, again).unwrap_err().to_string().contains("duplicate key"));
}

#[test]
fn documents_elsewhere_are_not_overlooked() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = App::from_texts(
        "shop",
        None,
        &[("a.siddhi", "define stream S (a int); from S select a insert into T;")],
    );
    before.settings.partitions = 4;
    let engine = Engine::open(dir.path(), Some(quiet(before))).unwrap();
    insert(&engine, "customers", &(0..20).map(|i| doc! {"_id": i.to_string()}).collect::<Vec<_>>());
    engine.stop().unwrap();
    drop(engine);
    let refused = Engine::open(dir.path(), Some(app(4))).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let text = refused.to_string();
    assert!(
        text.contains("table `Customers` of orders.siddhi: the collection `customers` has")
            && text.contains("documents in a partition that are spread by `_id`")
            && text.contains("the app was not deployed"),
        "{text}"
    );
    let engine = Engine::open(dir.path(), None).unwrap();
    assert_eq!(documents(&engine, "customers").len(), 20);
    engine.write_documents(DocumentCommand::Drop { collection: "customers".into() }, None).unwrap();
    engine.stop().unwrap();
    drop(engine);
    let engine = Engine::open(dir.path(), Some(app(4))).unwrap();
    assert_eq!(rows(&engine, "from Customers select customer"), Vec::<String>::new());
}

#[test]
fn rules_share_the_documents_of_one_partition() {
    let rules = "event Bonus { customer: string, amount: int } key customer;
        entity customers key customer;
        relation Bonus.who(): customers by customer;
        rule Pay { when { b: Bonus(); c: b.who(); } then { update c.total += b.amount; } }";
    let with_rules = |partitions: u32| {
        let mut app = App::from_texts("shop", Some(rules), &[("orders.siddhi", QUERIES)]);
        app.settings.partitions = partitions;
        quiet(app)
    };
    let dir = tempfile::tempdir().unwrap();
    let refused = Engine::open(&dir.path().join("several"), Some(with_rules(4))).err().unwrap().to_string();
    assert!(refused.contains("set partitions = 1"), "{refused}");
    let engine = Engine::open(&dir.path().join("one"), Some(with_rules(1))).unwrap();
    send(&engine, "Orders", "{\"customer\":\"ann\",\"amount\":10}\n");
    send(&engine, "Bonus", "{\"customer\":\"ann\",\"amount\":5}\n");
    send(&engine, "Orders", "{\"customer\":\"ann\",\"amount\":1}\n");
    engine.wait_idle();
    assert_eq!(
        documents(&engine, "customers"),
        [r#"{"_id":"ann","customer":"ann","level":2,"name":"new","total":16}"#]
    );
}

#[test]
fn wrong_tables_are_refused() {
    let compile = |definition: &str| {
        let app = App::from_texts("shop", None, &[("t.siddhi", definition)]);
        tidemill_engine::compile(&app).err().map_or_else(String::new, |e| e.to_string())
    };
    for (definition, message) in [
        ("@store(type='documents', colection='x') define table T (a int);", "colection"),
        ("@store(type='documents', collection='a$b') define table T (a int);", "without `$`"),
        ("@store(type='documents', @cache(size='10')) define table T (a int);", "has no cache"),
        ("@store(type='documents') define table T (_id string);", "the primary key is the `_id`"),
        (
            "@store(type='documents', collection='c') @primaryKey('a') define table T (a int);
             @store(type='documents', collection='c') define table U (a int);",
            "the same collection `c` with another primary key",
        ),
        (
            "define stream S (a string); @store(type='documents') define table T (a string);
             from S delete T on str:upper(T.a) == a;",
            "F0816",
        ),
    ] {
        let found = compile(definition);
        assert!(found.contains(message), "{definition}: {found}");
    }
}
