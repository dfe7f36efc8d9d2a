//! Batched execution of queries: its output equals that of processing a record's events one row at a time.

use std::path::Path;

use tidemill_engine::{App, Engine};
use tidemill_types::event_json;

use crate::queries::{events, send, trades};
use crate::{quiet, rows};

/// Queries whose output has no readers, so that a record's events can be batched.
const APART: &str = "
    @app:playback
    @key('symbol')
    define stream Trades (symbol string, price double, size int, at long);

    @info(name='large') from Trades[size >= 50] select symbol, price, size insert into Large;
    @info(name='mean') from Trades#window.length(3) select symbol, avg(price) as mean, count() as n insert into Means;
    @info(name='totals') from Trades select symbol, sum(size) as total group by symbol insert into Totals;
    @info(name='spell') from Trades#window.timeBatch(5 sec) select count() as n, sum(size) as total insert into Spells;
    @info(name='four') from Trades#window.lengthBatch(4) select max(price) as top, count() as n insert into Fours;
    @info(name='rise')
    from every a=Trades[size < 20] -> b=Trades[symbol == a.symbol and price > a.price] within 1 min
    select a.symbol as symbol, a.price as low, b.price as high insert into Rises;
    @info(name='rate') from Trades select symbol, price output last every 7 events insert into Sevenths;
";

const RULES: &str = "event Trades { symbol: string, price: double, size: int, at: time } key symbol time at;";

const STREAMS: [&str; 7] = ["Large", "Means", "Totals", "Spells", "Fours", "Rises", "Sevenths"];

fn app(partitions: u32) -> App {
    let mut app = App::from_texts("apart", Some(RULES), &[("trades.siddhi", APART)]);
    app.settings.partitions = partitions;
    quiet(app)
}

fn open(dir: &Path, partitions: u32) -> Engine {
    Engine::open(dir, Some(app(partitions))).unwrap()
}

/// Returns the events of a stream in the order in which they were created.
fn in_order(engine: &Engine, stream: &str) -> Vec<String> {
    engine.wait_idle();
    let schema = engine.stream_schema(stream).unwrap().clone();
    let snapshot = engine.table_snapshot(stream).unwrap().unwrap();
    let text = |batch: &arrow_array::RecordBatch| -> Vec<String> {
        let row = |row| serde_json::Value::from(event_json(&schema, batch, row)).to_string();
        (0..batch.num_rows()).map(row).collect()
    };
    snapshot.tail.iter().flat_map(text).collect()
}

#[test]
fn together_is_as_one_after_the_other() {
    let all = |step: usize| {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), 1);
        (0..210).step_by(step).for_each(|from| send(&engine, "Trades", &trades(from, step as u64)));
        STREAMS.map(|stream| in_order(&engine, stream))
    };
    let (one, seven, many) = (all(1), all(7), all(210));
    for (stream, ((one, seven), many)) in STREAMS.iter().zip(one.iter().zip(&seven).zip(&many)) {
        assert!(one.len() > 15, "{stream}: {}", one.len());
        assert_eq!(one, seven, "{stream}");
        assert_eq!(one, many, "{stream}");
    }
}

#[test]
fn together_over_several_partitions_and_restarts() {
    let undisturbed = {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), 1);
        send(&engine, "Trades", &trades(0, 300));
        // queries over one key have equal output in any partition
        ["Large", "Totals"].map(|stream| events(&engine, stream))
    };
    for plan in ["", "flush", "checkpoint", "stop"] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), 4);
        send(&engine, "Trades", &trades(0, 150));
        engine.wait_idle();
        match plan {
            "flush" => engine.flush().unwrap(),
            "checkpoint" => engine.checkpoint().unwrap(),
            "stop" => engine.stop().unwrap(),
            _ => {}
        }
        let seen = STREAMS.map(|stream| events(&engine, stream));
        engine.abandon();
        drop(engine);
        let engine = open(dir.path(), 4);
        assert_eq!(STREAMS.map(|stream| events(&engine, stream)), seen, "{plan}");
        send(&engine, "Trades", &trades(150, 150));
        assert_eq!(["Large", "Totals"].map(|stream| events(&engine, stream)), undisturbed, "{plan}");
        assert_eq!(
            (rows(&engine, "Means"), rows(&engine, "Fours")),
            (300, 75),
            "each event came to the home of the file once"
        );
    }
}
