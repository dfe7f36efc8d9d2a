//! Tests of the engine on a real data directory.

#![expect(clippy::disallowed_methods, reason = "tests wait for threads of the engine by the machine's clock")]

mod backups;
mod blocked;
mod changes;
mod cluster;
mod connectors;
mod corrections;
mod deploys;
mod digests;
mod document_tables;
mod documents;
mod duplicates;
mod full_disk;
mod homes;
mod outages;
mod parallel;
mod power;
mod queries;
mod reads;
mod recovery;
mod rule_problems;
mod sending;
mod set_aside;
mod shared_state;
mod simulation;
mod sinks;
mod sources;
mod tables;
mod testing;
mod together;
mod transactions;
mod two_apps;

use std::path::Path;

use tidemill_engine::{App, BodyFormat, Engine, SendOptions, SendReply};

/// Rules that update a document, and emit into the same partition and into another one.
const RULES: &str = "
    event Order { id: string, customer: string, amount: double } key customer id id;
    event Big { order: string, customer: string, amount: double } key customer;
    event Audit { amount_class: string, order: string } key amount_class;
    entity Customer key id;
    entity Total key id;
    relation Order.who(): Customer by customer;
    relation Audit.total(): Total by amount_class;

    rule Count {
      when { o: Order(); c: o.who(); }
      then { update c.orders += 1; update c.spent += o.amount; }
    }
    rule BigOne {
      when { o: Order(amount >= 100); }
      then { emit Big { order: o.id, customer: o.customer, amount: o.amount }; emit Audit { amount_class: \"big\", order: o.id }; }
    }
    rule SmallOne {
      when { o: Order(amount < 100); }
      then { emit Audit { amount_class: \"small\", order: o.id }; }
    }
    rule Audited priority 1 { when { a: Audit(); t: a.total(); } then { update t.n += 1; } }
    rule FirstAudit { when { a: Audit(); not a.total(); } then { insert Total { id: a.amount_class, n: 1 }; } }
";

fn app() -> App {
    quiet(App::from_rules("shop", RULES))
}

/// Disables automatic flushes and checkpoints: tests trigger them.
fn quiet(mut app: App) -> App {
    app.settings.flush_interval = tidemill_types::Duration::seconds(3600);
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(3600);
    app
}

fn open(dir: &Path) -> Engine {
    Engine::open(dir, Some(app())).unwrap()
}

/// Opens the directory `data` in `dir` with the app in the directory `app`.
fn open_app(dir: &Path, app: &Path) -> Engine {
    let app = quiet(App::read(app, &[]).unwrap());
    Engine::open(&dir.join("data"), Some(app)).unwrap()
}

fn send(engine: &Engine, stream: &str, rows: &str) -> SendReply {
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    engine.send_json(stream, rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap()
}

/// Returns `stream received=stored+duplicate+rejected`, one line per stream with events.
fn ledger(engine: &Engine) -> String {
    let mut lines = String::new();
    for stream in engine.streams().unwrap() {
        let l = stream.ledger;
        if l.received > 0 {
            lines += &format!(
                "{} {}={}+{}+{}\n",
                stream.schema.name, l.received, l.stored, l.duplicate, l.rejected
            );
        }
    }
    lines
}

/// Returns a document as relaxed Extended JSON, or `none`.
fn document(engine: &Engine, collection: &str, id: &str) -> String {
    match engine.get_document(collection, &id.into()).unwrap() {
        Some(bytes) => {
            let doc = bson::Document::from_reader(bytes.as_ref()).unwrap();
            bson::Bson::from(doc).into_relaxed_extjson().to_string()
        }
        None => "none".into(),
    }
}

/// Returns the number of rows of a stream's table: tablets and tail.
fn rows(engine: &Engine, stream: &str) -> u64 {
    let snapshot = engine.table_snapshot(stream).unwrap().unwrap();
    let tail: usize = snapshot.tail.iter().map(|b| b.num_rows()).sum();
    snapshot.tablets.iter().map(|t| t.rows).sum::<u64>() + tail as u64
}
