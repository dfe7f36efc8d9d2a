//! Reads while the owner of a partition is busy: they answer from the moment before.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bson::{doc, rawdoc};
use parking_lot::Mutex;
use tidemill_docs::{DocumentCommand, FindOptions};
use tidemill_engine::{App, BodyFormat, Engine, SYSTEM_TABLES, SendOptions};
use tidemill_flow::EvalError;
use tidemill_flow::registry::{Function, FunctionContext};
use tidemill_flow::{FieldType, Registry, Value};

use crate::quiet;

/// Time after which a read counts as blocked.
const BLOCKED: Duration = Duration::from_secs(60);

/// Function that says that it runs, and returns when it is told to.
#[derive(Debug)]
struct Gate {
    entered: SyncSender<()>,
    leave: Mutex<Receiver<()>>,
}

impl Function for Gate {
    fn call(&self, args: &[Value], _: &FunctionContext<'_>) -> Result<Value, EvalError> {
        let ends = "the test holds the other ends";
        self.entered.send(()).expect(ends);
        self.leave.lock().recv().expect(ends);
        Ok(args[0].clone())
    }
}

fn insert(engine: &Engine, id: &str) {
    let docs = vec![bson::serialize_to_vec(&doc! { "id": id, "n": 1 }).unwrap().into()];
    let command = DocumentCommand::Insert { collection: "Customer".into(), docs, ordered: true };
    assert_eq!(engine.write_documents(command, None).unwrap().inserted, 1);
}

#[test]
fn a_busy_owner_holds_up_no_read_of_documents_or_system_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (entered, on_entry) = sync_channel(1);
    let (release, leave) = sync_channel(1);
    let gate = Arc::new(Gate { entered, leave: Mutex::new(leave) });
    let mut registry = Registry::standard();
    registry.function("own:gate", move |_| Ok((gate.clone(), FieldType::Int)));
    let rules = "
        event In { k: string, n: int } key k;
        entity Customer key id;
        rule Count { when { i: In(n > 0); } then { insert Customer { id: i.k, n: i.n }; } }";
    let queries = "define stream In (k string, n int); from In select own:gate(n) as n insert into Out;";
    let mut app = App::from_texts("own", Some(rules), &[("own.siddhi", queries)]).with_registry(registry);
    app.settings.partitions = 1;
    let engine = Arc::new(Engine::open(dir.path(), Some(quiet(app))).unwrap());
    insert(&engine, "before");
    let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
    engine.send_json("In", b"{\"k\":\"made\",\"n\":1}", BodyFormat::Ndjson, &options).unwrap();
    on_entry.recv_timeout(BLOCKED).expect("the record is applied");

    let (answer, answers) = sync_channel(1);
    let reader = engine.clone();
    let reads = std::thread::spawn(move || {
        let by_id = |id: &str| reader.get_document("Customer", &id.into()).unwrap().is_some();
        let all = reader.find_documents("Customer", &rawdoc! {}, &FindOptions::default()).unwrap().len();
        let listed = reader.collection_documents("Customer").unwrap().unwrap().len();
        let counted = reader.collections().unwrap()[0].documents;
        assert!(SYSTEM_TABLES.iter().all(|name| reader.system_table(name).unwrap().is_some()));
        assert!(!reader.metrics().is_empty());
        answer.send((by_id("before"), by_id("made"), all, listed, counted)).unwrap();
    });
    let answered = answers.recv_timeout(BLOCKED).expect("reads wait for the owner");
    assert_eq!(answered, (true, false, 1, 1, 1), "reads see the moment before the record");
    reads.join().unwrap();

    release.send(()).unwrap();
    engine.wait_idle();
    assert!(engine.get_document("Customer", &"made".into()).unwrap().is_some());
    assert_eq!(engine.rules().unwrap()[0].fired, 1);
}

#[test]
fn one_statement_sees_one_moment_of_all_tables_and_collections() {
    let dir = tempfile::tempdir().unwrap();
    let (entered, on_entry) = sync_channel(1);
    let (release, leave) = sync_channel(1);
    let gate = Arc::new(Gate { entered, leave: Mutex::new(leave) });
    let mut registry = Registry::standard();
    registry.function("own:gate", move |_| Ok((gate.clone(), FieldType::Int)));
    let rules = "
        event In { k: string, n: int } key k;
        event Other { k: string } key k;
        entity Customer key id;
        rule Count { when { i: In(n > 0); } then { insert Customer { id: i.k, n: i.n }; } }";
    let queries = "define stream In (k string, n int); from In select own:gate(n) as n insert into Out;";
    let mut app = App::from_texts("own", Some(rules), &[("own.siddhi", queries)]).with_registry(registry);
    app.settings.partitions = 1;
    let engine = Arc::new(Engine::open(dir.path(), Some(quiet(app))).unwrap());
    let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
    let send = |k: &str| {
        let event = format!("{{\"k\":\"{k}\",\"n\":1}}");
        engine.send_json("In", event.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
    };
    let seen = || {
        let moment = engine.moment(&["In", "Other", "Gone"], &["Customer"]).unwrap();
        let rows = |stream: usize| {
            let table = moment.streams[stream].as_ref()?;
            Some(table.tail.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>())
        };
        (rows(0), rows(1), rows(2), moment.collections[0].as_ref().map_or(0, Vec::len))
    };
    // while the owner is busy with the first record, two more arrive: it takes them as one batch
    send("a");
    on_entry.recv_timeout(BLOCKED).expect("the record is applied");
    send("b");
    send("c");
    release.send(()).unwrap();
    on_entry.recv_timeout(BLOCKED).expect("the second record is applied");
    release.send(()).unwrap();
    on_entry.recv_timeout(BLOCKED).expect("the third record is applied");
    let stored = engine.table_snapshot("In").unwrap().unwrap();
    assert_eq!(
        stored.tail.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(),
        2,
        "b is in the table"
    );
    assert_eq!(seen(), (Some(1), Some(0), None, 1), "the document of b is not shown yet, so its row is not");
    release.send(()).unwrap();
    engine.wait_idle();
    assert_eq!(seen(), (Some(3), Some(0), None, 3));
    engine.flush().unwrap();
    let moment = engine.moment(&["In", "Other"], &[]).unwrap();
    let table = moment.streams[0].as_ref().unwrap();
    assert_eq!((table.tail.len(), table.tablets.iter().map(|t| t.rows).sum::<u64>()), (0, 3));
}

#[test]
fn a_write_that_was_answered_is_visible_to_the_next_read() {
    let dir = tempfile::tempdir().unwrap();
    let engine = crate::open(dir.path());
    for n in 0..200 {
        let id = format!("c{n}");
        insert(&engine, &id);
        assert!(engine.get_document("Customer", &id.as_str().into()).unwrap().is_some(), "{id}");
        assert_eq!(engine.collections().unwrap().iter().map(|c| c.documents).sum::<u64>(), n + 1);
    }
    engine.stop().unwrap();
    drop(engine);
    let engine = crate::open(dir.path());
    assert!(engine.get_document("Customer", &"c199".into()).unwrap().is_some(), "after a restart");
}
