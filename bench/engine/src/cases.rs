//! The apps that are measured.

use tidemill_bench_cep::trades::{BENCHES, Bench};

/// An app over trades.
#[derive(Debug, Clone)]
pub struct Case {
    /// Short name, unique.
    pub name: String,
    /// What the app does.
    pub title: String,
    /// Content of `app.siddhi`.
    pub siddhi: String,
    /// Log partitions: 1, or 4 where the stream has a key.
    pub partitions: u32,
    /// Distinct symbols among the trades.
    pub symbols: u64,
    /// Whether trades alternate between the streams `S` and `T`.
    pub two_streams: bool,
    /// SQL whose result must be equal in all runs and programs. `None` where the result depends on how the two
    /// sources interleave, or on the time at which events arrive.
    pub check: Option<&'static str>,
}

const COUNT: &str = "SELECT count(*) AS n FROM events.\"Out\"";
const STREAM: &str = "define stream S (symbol string, price double, volume long, ts long);\n";
const LENGTH: &str =
    "from S#window.length(100) select symbol, avg(price) as mean group by symbol insert into Out;";
const TOTALS: &str =
    "from S select symbol, sum(price) as total, count() as n group by symbol insert into Out;";

/// All cases, in the order in which they are shown.
pub fn all() -> Vec<Case> {
    let case = |name: &str, title: &str, body: &str| Case {
        name: name.into(),
        title: title.into(),
        siddhi: format!("{STREAM}{body}\n"),
        partitions: 1,
        symbols: 100,
        two_streams: false,
        check: Some(COUNT),
    };
    let by_key = |name: &str, title: &str, body: &str| {
        let plain = case(name, title, body);
        Case { siddhi: format!("@key('symbol')\n{}", plain.siddhi), partitions: 4, ..plain }
    };
    let partitioned = "partition with (symbol of S) begin \
         from S#window.length(100) select symbol, avg(price) as mean insert into Out; end;";
    let two = "from S[price > 20.0] select symbol, price, volume insert into Big; \
         from Big#window.length(100) select symbol, avg(price) as mean group by symbol insert into Out;";
    let mut cases = vec![
        Case { check: Some("SELECT count(*) AS n FROM events.\"S\""), ..case("store", "store only", "") },
        case("length", "`length(100)`, average by symbol", LENGTH),
        by_key("length-key", "the same with `@key`, 4 partitions", LENGTH),
        case("totals", "totals by symbol", TOTALS),
        by_key("totals-key", "the same with `@key`, 4 partitions", TOTALS),
        case("partition", "`partition with`, `length(100)`", partitioned),
        by_key("partition-key", "the same with `@key`, 4 partitions", partitioned),
        case("two", "a filter, then `length(100)` over its output", two),
    ];
    cases.extend(BENCHES.iter().map(from_bench));
    cases
}

fn from_bench(bench: &Bench) -> Case {
    Case {
        name: bench.name.into(),
        title: bench.title.into(),
        siddhi: bench.app(),
        partitions: 1,
        symbols: bench.symbols,
        two_streams: bench.two_streams,
        // matches within a second of arrival, and joins of two sources, differ from run to run
        check: (!bench.two_streams && !bench.table && bench.name != "f").then_some(COUNT),
    }
}
