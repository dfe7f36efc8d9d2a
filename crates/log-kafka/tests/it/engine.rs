//! An engine whose log is on Kafka.

use std::path::Path;
use std::sync::Arc;

use tidemill_engine::{App, BodyFormat, Clock, Engine, LogProvider, OpenedLog, SendOptions, Settings};
use tidemill_log_kafka::{KafkaConfig, KafkaLog};
use tidemill_types::{Duration, Result};

use crate::fresh_topic;

/// An event passes through two partitions: `Audit` has another key than `Order`.
const RULES: &str = "
    event Order { id: string, customer: string, amount: double } key customer id id;
    event Audit { amount_class: string, order: string } key amount_class;
    entity Total key id;
    relation Audit.total(): Total by amount_class;
    rule BigOne { when { o: Order(amount >= 100); } then { emit Audit { amount_class: \"big\", order: o.id }; } }
    rule SmallOne { when { o: Order(amount < 100); } then { emit Audit { amount_class: \"small\", order: o.id }; } }
    rule Audited priority 1 { when { a: Audit(); t: a.total(); } then { update t.n += 1; } }
    rule FirstAudit { when { a: Audit(); not a.total(); } then { insert Total { id: a.amount_class, n: 1 }; } }
";

struct OnKafka(KafkaConfig);

impl LogProvider for OnKafka {
    fn open(&self, _: &Path, _: &Settings, partitions: u32, _: &Arc<dyn Clock>) -> Result<OpenedLog> {
        Ok(OpenedLog { log: Arc::new(KafkaLog::open(&self.0, partitions)?), warnings: Vec::new() })
    }
}

fn open(dir: &Path, config: &KafkaConfig) -> Engine {
    let mut app = App::from_rules("shop", RULES);
    app.settings.partitions = 3;
    // the test decides when tables are flushed and checkpoints taken
    app.settings.flush_interval = Duration::seconds(3600);
    app.settings.checkpoint_interval = Duration::seconds(3600);
    Engine::builder(dir).app(app).log(Arc::new(OnKafka(config.clone()))).open().expect("an engine")
}

fn send(engine: &Engine, from: usize, n: usize) {
    let row = |i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 10, (i % 4) * 50);
    let rows: String = (from..from + n).map(row).collect();
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    let reply =
        engine.send_json("Order", rows.as_bytes(), BodyFormat::Ndjson, &options).expect("accepted rows");
    assert_eq!(reply.accepted, n as u64);
}

/// Returns `stream received=stored+duplicate`, and the totals that rules keep.
fn facts(engine: &Engine) -> Vec<String> {
    engine.wait_idle();
    let ledger = engine.streams().unwrap().into_iter().filter(|s| s.ledger.received > 0).map(|s| {
        format!("{} {}={}+{}", s.schema.name, s.ledger.received, s.ledger.stored, s.ledger.duplicate)
    });
    let total = |id: &str| {
        let document = engine.get_document("Total", &id.into()).expect("an answer").expect("a total");
        let document = bson::Document::from_reader(document.as_ref()).expect("a document");
        format!("{id} {}", document.get_i32("n").expect("a count"))
    };
    ledger.chain(["big", "small"].map(total)).collect()
}

#[test]
fn crashes_and_restarts_lose_and_double_nothing() {
    for plan in ["", "flush", "checkpoint", "stop"] {
        let Some(config) = fresh_topic("") else { return };
        let dir = tempfile::tempdir().expect("a directory");
        for round in 0..3 {
            let engine = open(dir.path(), &config);
            assert_eq!(engine.recovery.warnings, Vec::<String>::new(), "{plan}");
            send(&engine, round * 100, 100);
            // the replies wait for what rules emit, so the totals are complete
            match plan {
                "flush" => engine.flush().expect("a flush"),
                "checkpoint" => engine.checkpoint().expect("a checkpoint"),
                "stop" => engine.stop().expect("a stop"),
                _ => {}
            }
            engine.abandon();
        }
        let engine = open(dir.path(), &config);
        let expected = ["Order 300=300+0", "Audit 300=300+0", "big 150", "small 150"];
        assert_eq!(facts(&engine), expected, "{plan}");
        // ids are remembered, no matter who sends them again
        send(&engine, 0, 300);
        assert_eq!(facts(&engine)[0], "Order 600=300+300", "{plan}");
        assert!(engine.health().problems.is_empty(), "{:?}", engine.health().problems);
    }
}
