//! Aggregations of SiddhiQL as tables of SQL: the same rows as on-demand queries find.

use arrow_cast::pretty::pretty_format_batches;
use serde_json::{Value, json};
use tidemill::{App, ErrorKind, Settings, Tidemill, output};

const QUERIES: &str = "
define stream Trades (symbol string, price double, size int, at long);
define table Seen (symbol string);
define aggregation Volumes from Trades select symbol, sum(size) as total, avg(price) as mean
group by symbol aggregate by at every sec ... month;
from Trades select symbol insert into Seen;
";
/// 2026-01-01T00:00:00Z in milliseconds.
const NEW_YEAR: i64 = 1_767_225_600_000;
const HOUR: i64 = 3_600_000;

fn open(dir: &tempfile::TempDir, partitions: u32) -> Tidemill {
    let mut app = App::from_texts("trade", None, &[("trade.siddhi", QUERIES)]);
    app.settings = Settings { partitions, ..app.settings };
    let tidemill = Tidemill::open_with(dir.path(), app).unwrap();
    for n in 0..60_i64 {
        let symbol = if n % 3 == 0 { "A" } else { "B" };
        let event = json!({ "symbol": symbol, "price": n as f64, "size": n, "at": NEW_YEAR + n * HOUR / 2 });
        tidemill.send("Trades", &event).unwrap();
    }
    tidemill
}

/// Returns the rows of a query as JSON, one object per row.
fn rows(tidemill: &Tidemill, query: &str) -> Vec<Value> {
    let found = tidemill.sql(query).unwrap();
    let mut writer = output::Writer::new(output::Format::Ndjson, &found.schema, Vec::new()).unwrap();
    for batch in &found.batches {
        writer.write(batch).unwrap();
    }
    let text = String::from_utf8(writer.finish().unwrap()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the rows in an order, with all numbers as doubles.
fn sorted(rows: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let plain = |value: Value| value.as_f64().map_or(value, Value::from);
    let mut rows: Vec<Vec<Value>> =
        rows.into_iter().map(|row| row.into_iter().map(plain).collect()).collect();
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}

fn text(tidemill: &Tidemill, query: &str) -> String {
    pretty_format_batches(&tidemill.sql(query).unwrap().batches).unwrap().to_string()
}

#[test]
fn an_aggregation_has_the_rows_of_on_demand_queries() {
    for partitions in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let tidemill = open(&dir, partitions);
        for per in ["sec", "hours", "days", "months"] {
            let asked = format!("from Volumes within '2026-**-** **:**:**' per '{per}' select *");
            let asked = tidemill.engine().query_on_demand(None, &asked).unwrap();
            let query = format!(
                "select (extract(epoch from AGG_TIMESTAMP) * 1000)::bigint as at, symbol, total, mean from aggregation('Volumes', '{per}')"
            );
            let found = rows(&tidemill, &query);
            let row = |row: &Value| ["at", "symbol", "total", "mean"].map(|name| row[name].clone()).to_vec();
            let found = sorted(found.iter().map(row).collect());
            assert!(!found.is_empty());
            assert_eq!(found, sorted(asked), "{per}, {partitions} partitions");
        }
        tidemill.close().unwrap();
    }
}

#[test]
fn bounds_of_the_time_keep_whole_buckets() {
    let dir = tempfile::tempdir().unwrap();
    let tidemill = open(&dir, 1);
    let days = "select * from aggregation('Volumes', 'days')";
    let all = rows(&tidemill, &format!("{days} order by 1, 2"));
    assert_eq!(all.len(), 4, "two days of two symbols");
    let second = &all[2..];
    for filter in [
        "AGG_TIMESTAMP > '2026-01-01T00:00:00Z'",
        "AGG_TIMESTAMP >= '2026-01-01T12:00:00Z'",
        "AGG_TIMESTAMP = '2026-01-02'",
        "AGG_TIMESTAMP between '2026-01-01T23:59:59Z' and '2026-01-02T00:00:00Z'",
    ] {
        assert_eq!(rows(&tidemill, &format!("{days} where {filter} order by 1, 2")), second, "{filter}");
    }
    // the first day as a whole, although the bound is in the middle of it
    let first =
        rows(&tidemill, &format!("{days} where AGG_TIMESTAMP < '2026-01-01T12:00:00Z' order by 1, 2"));
    assert_eq!(first, all[..2]);
    assert_eq!(rows(&tidemill, &format!("{days} where AGG_TIMESTAMP > '2027-01-01'")), [] as [Value; 0]);
    let joined = text(
        &tidemill,
        "select t.symbol, count(*) as trades, max(v.total) as total from events.Trades t
         join aggregation('Volumes', 'months') v on v.symbol = t.symbol group by t.symbol order by 1",
    );
    let expected = "\
+--------+--------+-------+
| symbol | trades | total |
+--------+--------+-------+
| A      | 20     | 570   |
| B      | 40     | 1200  |
+--------+--------+-------+";
    assert_eq!(joined, expected);
    tidemill.close().unwrap();
}

#[test]
fn wrong_names_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let tidemill = open(&dir, 1);
    for (call, kind, message) in [
        ("aggregation('Volume', 'days')", ErrorKind::NotFound, "Did you mean `Volumes`?"),
        ("aggregation('Seen', 'days')", ErrorKind::Invalid, "`Seen` is no aggregation"),
        ("aggregation('Volumes', 'years')", ErrorKind::Invalid, "its buckets are"),
        ("aggregation('Volumes', 'dozens')", ErrorKind::Invalid, "there are no buckets of `dozens`"),
        ("aggregation('Volumes')", ErrorKind::Invalid, "aggregation takes two texts"),
    ] {
        let error = tidemill.sql(&format!("select * from {call}")).unwrap_err();
        assert_eq!(error.kind(), kind, "{call}: {error}");
        assert!(error.message().contains(message), "{call}: {error}");
    }
    tidemill.close().unwrap();
}
