use std::sync::Arc;

use arrow_array::{Float32Array, RecordBatch, StringArray};
use tidemill_engine::{App, BodyFormat, Engine, EventSelector, SendOptions};
use tidemill_types::ErrorKind;

use crate::{document, ledger, open, rows, send};

#[test]
fn an_event_is_acted_on_before_the_reply() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    engine
        .write_documents(
            tidemill_docs::DocumentCommand::Insert {
                collection: "Customer".into(),
                docs: vec![bson::rawdoc! {"id": "c1", "orders": 0, "spent": 0.0}.into_bytes().into()],
                ordered: true,
            },
            None,
        )
        .unwrap();
    let reply = send(&engine, "Order", r#"{"id":"o1","customer":"c1","amount":250.5,"note":"gift"}"#);
    assert_eq!((reply.accepted, reply.duplicates, reply.durability.as_str()), (1, Some(0), "fsync"));
    let mut emitted: Vec<String> =
        reply.emitted.unwrap().iter().map(|e| format!("{} {}", e.stream, e.event)).collect();
    emitted.sort();
    assert_eq!(
        emitted,
        [
            r#"Audit {"amount_class":"big","order":"o1"}"#,
            r#"Big {"amount":250.5,"customer":"c1","order":"o1"}"#
        ]
    );
    assert_eq!(document(&engine, "Customer", "c1"), r#"{"_id":"c1","id":"c1","orders":1,"spent":250.5}"#);
    engine.catch_up().unwrap();
    assert_eq!(rows(&engine, "Order"), 1);
    let id = reply.events.unwrap().remove(0).unwrap();
    let why = engine.why(Some("SmallOne"), &EventSelector::Id(id.parse().unwrap())).unwrap();
    let text = why[0].to_string();
    assert!(text.contains("amount < 100") && text.contains("250.5"), "{text}");
}

#[test]
fn bad_rows_are_kept_with_their_reason_and_good_ones_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let reply = send(
        &engine,
        "Order",
        "{\"id\":\"o1\",\"customer\":\"c\",\"amount\":1}\n{\"id\":7}\nnot json\n{\"id\":\"o1\",\"amount\":2,\"customer\":\"c\"}",
    );
    assert_eq!((reply.accepted, reply.duplicates), (2, Some(1)));
    assert_eq!(reply.rejected[0].reason, "field `id`: expected string (text in quotes), found 7");
    assert_eq!(reply.rejected.iter().map(|r| r.row).collect::<Vec<_>>(), [1, 2]);
    engine.catch_up().unwrap();
    assert!(ledger(&engine).contains("Order 4=1+1+2\n"), "{}", ledger(&engine));
    let refused = engine.rejected_snapshot().unwrap();
    assert_eq!(refused.tail.iter().map(|b| b.num_rows()).sum::<usize>(), 3);
    let error = engine.send_json("Orders", b"{}", BodyFormat::Json, &SendOptions::default()).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string()),
        (ErrorKind::NotFound, "no stream `Orders`. Did you mean `Order`?".into())
    );
    let error = engine.send_json("Order", b"[{", BodyFormat::Json, &SendOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    engine.catch_up().unwrap();
    assert!(ledger(&engine).contains("Order 5=1+1+3\n"), "a body that cannot be read is in the ledger too");
}

#[test]
fn subscribers_see_what_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let big = engine.subscribe("Big").unwrap();
    send(
        &engine,
        "Order",
        "{\"id\":\"o1\",\"customer\":\"c\",\"amount\":100}\n{\"id\":\"o2\",\"customer\":\"c\",\"amount\":5}",
    );
    assert_eq!(big.recv().unwrap().num_rows(), 1);
    assert!(engine.subscribe("Bigg").is_err());
}

/// Numeric times are in the declared unit, in JSON and in CSV, also for an app that is read from the data
/// directory.
#[test]
fn times_are_read_in_the_unit_that_the_deployed_app_declares() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "event Tick { s: time(s), ms: time, us: time(us), ns: time(ns) } time us;";
    let csv = "s,ms,us,ns\n1357035420,1357035420000,1357035420000001,1357035420000001999\n1,2,3,4\n";
    for app in [Some(App::from_rules("ticks", rules)), None] {
        let engine = Engine::open(dir.path(), app).unwrap();
        let rows = engine.subscribe("Tick").unwrap();
        let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
        let reply = engine.send_json("Tick", csv.as_bytes(), BodyFormat::Csv, &options).unwrap();
        assert_eq!(reply.accepted, 2, "{reply:?}");
        let batch = rows.recv().unwrap();
        let row = |row: usize| {
            (0..4).map(|c| tidemill_types::row_value(&batch, c, row).to_string()).collect::<Vec<_>>()
        };
        let moment = "2013-01-01T10:17:00Z";
        let micro = "2013-01-01T10:17:00.000001Z";
        assert_eq!(row(0), [moment, moment, micro, micro]);
        let early = ["1970-01-01T00:00:01Z", "1970-01-01T00:00:00.002Z", "1970-01-01T00:00:00.000003Z"];
        assert_eq!(row(1)[..3], early);
        assert_eq!(row(1)[3], "1970-01-01T00:00:00Z");
        let types: Vec<String> = engine.streams().unwrap()[0].fields().map(|(_, ty)| ty).collect();
        assert_eq!(types, ["time(s)", "time", "time(us)", "time(ns)"]);
        engine.stop().unwrap();
    }
}

#[test]
fn ids_are_in_the_order_of_the_rows_sent() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let orders = engine.subscribe("Order").unwrap();
    let row = |n: u32| format!("{{\"id\":\"o{n}\",\"customer\":\"c{}\",\"amount\":1}}", n % 37);
    // more rows than fit into one record, with one bad row and one duplicate
    let mut rows: Vec<String> = (0..20_000).map(row).collect();
    rows.insert(3, "not json".to_owned());
    rows.insert(7, row(5));
    let reply = send(&engine, "Order", &rows.join("\n"));
    let events = reply.events.unwrap();
    assert_eq!((reply.accepted, reply.duplicates, reply.rejected.len()), (20_001, Some(1), 1));
    let mut by_id = std::collections::HashMap::new();
    for batch in orders.try_iter() {
        let stream = engine.stream_schema("Order").unwrap();
        let place = |name: &str, row| {
            let column = batch.schema_ref().index_of(name).unwrap();
            tidemill_types::row_value(&batch, column, row).to_string()
        };
        for row in 0..batch.num_rows() {
            let id = ["_partition", "_offset", "_row"].map(|name| place(name, row)).join("-");
            by_id.insert(id, tidemill_types::event_json(stream, &batch, row)["id"].clone());
        }
    }
    let found: Vec<Option<String>> =
        events.iter().map(|id| id.as_ref().map(|id| by_id[id].as_str().unwrap().to_owned())).collect();
    let mut expected: Vec<Option<String>> = (0..20_000).map(|n| Some(format!("o{n}"))).collect();
    expected.insert(6, None);
    assert_eq!(found, expected);
}

#[test]
fn batches_have_columns_of_fields_and_are_split_by_key() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let ids: Vec<String> = (0..40).map(|n| format!("o{n}")).collect();
    let customers: Vec<String> = (0..40).map(|n| format!("c{n}")).collect();
    let columns = [
        ("amount", Arc::new(Float32Array::from(vec![1.5; 40])) as _),
        ("customer", Arc::new(StringArray::from(customers)) as _),
        ("id", Arc::new(StringArray::from(ids)) as _),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    let reply = engine.send_batch("Order", batch.clone(), &options).unwrap();
    assert_eq!((reply.accepted, reply.duplicates, reply.durability.as_str()), (40, Some(0), "fsync"));
    let events = reply.events.unwrap();
    let partitions: std::collections::BTreeSet<&str> =
        events.iter().flatten().filter_map(|id| id.split('-').next()).collect();
    assert!(events.iter().all(Option::is_some) && partitions.len() > 1, "{partitions:?}");
    let again = engine.send_batch("Order", batch.clone(), &options).unwrap();
    assert_eq!(again.duplicates, Some(40));
    assert!(ledger(&engine).contains("Order 80=40+40+0"), "{}", ledger(&engine));
    let error = engine.send_batch("Big", batch, &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("no field for the column `id`"), "{error}");
}
