//! Results of several nodes are those of one.

use std::fmt::Write as _;
use std::sync::Arc;

use rand::Rng;
use tidemill_sql::Tables;
use tidemill_sql::output::Format;
use tidemill_types::FieldType;

use super::cluster::{TestCluster, options, rng};
use crate::cases::{parse, print};
use crate::fixture::{self, Fixture, State};

/// Statements over `readings`, and true for those of which other nodes execute a part.
const STATEMENTS: [(&str, bool); 26] = [
    ("SELECT count(*), count(v), sum(v), avg(v), min(v), max(v), sum(n), avg(n) FROM readings", true),
    ("SELECT device, count(*), sum(n), avg(v), min(label), max(at) FROM readings GROUP BY device", true),
    ("SELECT label, stddev(v), var_pop(v), corr(v, n), bool_or(n > 3) FROM readings GROUP BY label", true),
    ("SELECT count(*) FROM readings WHERE v > 10 AND label <> 'a'", true),
    ("SELECT * FROM readings WHERE n < 0 OR label IS NULL AND v BETWEEN 1 AND 5", true),
    (
        "SELECT device + 1, v * 2, upper(label) FROM readings WHERE label LIKE 'b%' AND n IN (1, 2, 3, 5, 8, 13)",
        true,
    ),
    ("SELECT at, device, n FROM readings ORDER BY at DESC, device, n LIMIT 7", true),
    (
        "SELECT date_bin(INTERVAL '10 minutes', at) AS t, CASE WHEN v > 40 THEN 'hot' ELSE label END AS c, count(*) FROM readings GROUP BY 1, 2",
        true,
    ),
    ("SELECT DISTINCT label, device % 3 FROM readings", true),
    ("SELECT count(DISTINCT label) FROM readings", true),
    (
        "SELECT device, sum(n) FILTER (WHERE v > 0), count(*) FILTER (WHERE label = 'a') FROM readings GROUP BY device HAVING count(*) > 10",
        true,
    ),
    ("SELECT repeat(label, 3), lpad(label, 4, '.'), count(*) FROM readings GROUP BY 1, 2", true),
    (
        "SELECT extract(hour FROM at) AS h, coalesce(label, 'none') AS l, sum(n) FROM readings GROUP BY 1, 2",
        true,
    ),
    (
        "SELECT a.device, a.s, b.c FROM (SELECT device, sum(n) AS s FROM readings GROUP BY device) a JOIN (SELECT device, count(*) AS c FROM readings WHERE v > 5 GROUP BY device) b ON a.device = b.device",
        true,
    ),
    ("SELECT device, n FROM readings WHERE n > (SELECT avg(n) FROM readings) AND v < 0", true),
    (
        "SELECT 'few' AS k, count(*) AS c FROM readings WHERE v < 0 UNION ALL SELECT 'all', count(v) FROM readings",
        true,
    ),
    ("SELECT device, label, count(*) FROM readings GROUP BY ROLLUP (device, label)", true),
    ("SELECT at, n, sum(n) OVER (PARTITION BY device ORDER BY at, n) FROM readings WHERE device < 3", true),
    ("SELECT device, first(v, at), last(n, at) FROM readings WHERE v IS NOT NULL GROUP BY device, at", true),
    (
        "SELECT r.device, l.name FROM readings r JOIN (VALUES (1, 'one'), (2, 'two')) AS l (id, name) ON l.id = r.device WHERE r.v > 20",
        true,
    ),
    // intermediate results that grow with the rows stay here; their conditions do not
    ("SELECT percentile(v, 0.5), string_agg(label, ',' ORDER BY label) FROM readings WHERE v > 20", true),
    ("SELECT percentile(v, 0.5), count(DISTINCT label), count(DISTINCT device) FROM readings", false),
    // few rows
    ("SELECT count(*), sum(v) FROM readings WHERE device = 3 AND v > 0", false),
    ("SELECT count(*) FROM (SELECT v FROM readings LIMIT 3)", false),
    // nothing leaves rows out
    ("SELECT device, v FROM readings", false),
    // the log of the table has the answer
    ("SELECT count(*) FROM readings", false),
];

#[tokio::test(flavor = "multi_thread")]
async fn statements_have_the_results_of_one_node() {
    let cluster = TestCluster::with_readings(&options()).await;
    for (statement, is_distributed) in STATEMENTS {
        assert_eq!(cluster.check_equal(statement).await, is_distributed, "{statement}");
    }
    // without a tail, the scan has the whole condition
    fixture::flush(&cluster.fixture.stored("readings").unwrap()).await;
    assert!(cluster.check_equal("SELECT device, v FROM readings WHERE n > 900").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_has_nodes_and_reasons() {
    let cluster = TestCluster::with_readings(&options()).await;
    let plan = cluster.explain("SELECT device, sum(v) FROM readings WHERE n > 3 GROUP BY device").await;
    assert!(plan.contains("DistributedExec: nodes=[n2 ") && plan.contains("; n3 "), "{plan}");
    assert!(plan.contains("events.readings: at other nodes: n2 "), "{plan}");
    let fragment = plan.split("fragment=[").nth(1).unwrap();
    let at = |operator| fragment.find(operator).unwrap_or_else(|| panic!("{operator} in {fragment}"));
    assert!(at("AggregateExec: mode=Partial") < at("TabletScanExec"), "{fragment}");
    let plan = cluster.explain("SELECT v FROM readings").await;
    assert!(
        plan.contains("at this node, because nothing that other nodes could execute leaves rows out"),
        "{plan}"
    );

    // what nodes have sent
    let statement = "EXPLAIN ANALYZE SELECT device, sum(v) FROM readings GROUP BY device";
    let plan = super::cluster::rows(&cluster.sql, statement).await.unwrap().join("\n");
    for node in ["n2", "n3"] {
        let counts = plan.split(&format!("rows_of_{node}=")).nth(1).unwrap_or_else(|| panic!("{plan}"));
        assert!(counts.starts_with(|c: char| ('1'..='9').contains(&c)), "{plan}");
    }

    // files of fewer bytes than the setting says
    let tables = TestCluster::over(cluster.fixture.clone(), &options());
    let options = tidemill_sql::SqlOptions { distributed_bytes: 1 << 30, ..options() };
    let sql = tidemill_sql::Sql::new(Arc::new(tables.tables(None)), options).unwrap();
    let plan = super::cluster::rows(&sql, "EXPLAIN SELECT sum(v) FROM readings").await.unwrap().join("\n");
    assert!(plan.contains("fewer than 1073741824 (`sql.distributed_bytes`)"), "{plan}");
    assert!(!plan.contains("DistributedExec"), "{plan}");
}

/// All cases of the language, with each scan distributed, have the outputs that they have on one node.
#[tokio::test(flavor = "multi_thread")]
async fn cases_by_several_nodes() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut failures = String::new();
    // names of tablets are random, and all of the few may belong to the node that gets the statements
    let cluster = loop {
        let cluster = TestCluster::over(Arc::new(Fixture::open(State::Both).await), &options());
        if cluster.explain("select sum(distance) from TakeOffEvent").await.contains("DistributedExec") {
            break cluster;
        }
    };
    for file in std::fs::read_dir(dir).unwrap() {
        let file = file.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        if text.starts_with("only both: writes") {
            continue;
        }
        for case in parse(&text).0 {
            let text = case.sql.to_lowercase();
            // plans differ, and so does which rows come first
            let is_any = text.contains("limit") && !text.contains("order by");
            if is_any || text.contains("explain") || text.contains("system.statements") {
                continue;
            }
            let mut words = case.directive.split(' ');
            let must_fail = words.next() == Some("error");
            let format = words.next().map_or(Format::Table, |f| f.parse().unwrap());
            let found = match print(&cluster.sql, &case.sql, format).await {
                Ok(text) => text,
                Err(error) if must_fail => format!("{}: {error}\n", error.kind().name()),
                Err(error) => format!("unexpected error: {}: {error}\n", error.kind().name()),
            };
            // an error that rows of another node have names it
            let expected = |found: &str| found == case.expected;
            let without_node = ["n2", "n3"].map(|node| found.replacen(&format!("node {node}: "), "", 1));
            if !expected(&found) && !without_node.iter().any(|found| expected(found)) {
                let (sql, expected) = (&case.sql, &case.expected);
                writeln!(failures, "{}: {sql}\nexpected:\n{expected}found:\n{found}", file.display())
                    .unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(!cluster.nodes.called.lock().is_empty(), "no case was distributed");
}

/// The statements of `bench/lineitem`.
const LINEITEM: [&str; 11] = [
    include_str!("../../../../../bench/lineitem/statements/01_count_star_interval.sql"),
    include_str!("../../../../../bench/lineitem/statements/02_sum_price.sql"),
    include_str!("../../../../../bench/lineitem/statements/03_sum_all.sql"),
    include_str!("../../../../../bench/lineitem/statements/04_sum_all_year.sql"),
    include_str!("../../../../../bench/lineitem/statements/05_sum_all_filter.sql"),
    include_str!("../../../../../bench/lineitem/statements/06_top_100_parts.sql"),
    include_str!("../../../../../bench/lineitem/statements/07_top_100_parts_details.sql"),
    include_str!("../../../../../bench/lineitem/statements/08_top_100_parts_filter.sql"),
    include_str!("../../../../../bench/lineitem/statements/09_top_100_commitdate.sql"),
    include_str!("../../../../../bench/lineitem/statements/10_complex_orderkey.sql"),
    include_str!("../../../../../bench/lineitem/statements/11_complex_partkey_orderkey.sql"),
];

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_lineitem_have_the_results_of_one_node() {
    let cluster = TestCluster::over(Arc::new(Fixture::empty().await), &options());
    let fields = [
        ("l_orderkey", FieldType::Long),
        ("l_partkey", FieldType::Long),
        ("l_quantity", FieldType::Double),
        ("l_extendedprice", FieldType::Double),
        ("l_discount", FieldType::Double),
        ("l_tax", FieldType::Double),
        ("l_shipdate", FieldType::Time),
        ("l_commitdate", FieldType::Time),
        ("l_shipmode", FieldType::String),
    ];
    let table = cluster.fixture.declare(&fixture::stream("lineitem", &fields, Some(6))).await;
    let mut rng = rng();
    for part in 0..10_u64 {
        let row = |i| {
            let date = |day: u32| {
                format!("{}-{:02}-{:02}T00:00:00Z", 1992 + day / 360, day % 360 / 30 + 1, day % 28 + 1)
            };
            let ship = rng.random_range(0..2_500);
            // so few rows tie that a limit leaves out the same ones
            // sums of multiples of a power of 2 are exact in any order
            let quantity =
                f64::from(rng.random_range(1..50)) + f64::from(i) / 1_024.0 + part as f64 / 16_384.0;
            format!(
                "{{\"l_orderkey\":{},\"l_partkey\":{},\"l_quantity\":{quantity},\"l_extendedprice\":{},\"l_discount\":{},\
                 \"l_tax\":{},\"l_shipdate\":\"{}\",\"l_commitdate\":\"{}\",\"l_shipmode\":\"{}\"}}",
                rng.random_range(0..600),
                rng.random_range(0..150),
                rng.random_range(900..90_000),
                f64::from(rng.random_range(0..10)) / 64.0,
                f64::from(rng.random_range(0..9)) / 64.0,
                date(ship),
                date(ship + 20),
                ["AIR", "REG AIR", "SHIP", "RAIL"][rng.random_range(0..4)],
            )
        };
        let rows: Vec<String> = (0..200).map(row).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        fixture::push(&table, (part % 2) as u32, part, &rows);
        // the last are in the tail
        if part < 8 {
            fixture::flush(&table).await;
        }
    }
    let mut distributed = 0;
    for statement in LINEITEM {
        distributed += usize::from(cluster.check_equal(statement).await);
    }
    assert_eq!(distributed, LINEITEM.len());
}

/// The statements of `bench/tsbs`.
const TSBS: [&str; 14] = [
    include_str!("../../../../../bench/tsbs/statements/q01.sql"),
    include_str!("../../../../../bench/tsbs/statements/q02.sql"),
    include_str!("../../../../../bench/tsbs/statements/q03.sql"),
    include_str!("../../../../../bench/tsbs/statements/q04.sql"),
    include_str!("../../../../../bench/tsbs/statements/q05.sql"),
    include_str!("../../../../../bench/tsbs/statements/q06.sql"),
    include_str!("../../../../../bench/tsbs/statements/q07.sql"),
    include_str!("../../../../../bench/tsbs/statements/q08.sql"),
    include_str!("../../../../../bench/tsbs/statements/q09.sql"),
    include_str!("../../../../../bench/tsbs/statements/q10.sql"),
    include_str!("../../../../../bench/tsbs/statements/q11.sql"),
    include_str!("../../../../../bench/tsbs/statements/q12.sql"),
    include_str!("../../../../../bench/tsbs/statements/q13.sql"),
    include_str!("../../../../../bench/tsbs/statements/q14.sql"),
];

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_tsbs_have_the_results_of_one_node() {
    let cluster = TestCluster::over(Arc::new(Fixture::empty().await), &options());
    let doubles =
        |names: &[&'static str]| names.iter().map(|name| (*name, FieldType::Double)).collect::<Vec<_>>();
    let point = [("time", FieldType::Time), ("tags_id", FieldType::Int)];
    let moves =
        doubles(&["latitude", "longitude", "elevation", "velocity", "heading", "grade", "fuel_consumption"]);
    let loads =
        [("fuel_state", FieldType::Double), ("current_load", FieldType::Double), ("status", FieldType::Int)];
    let texts = ["name", "fleet", "driver", "model", "device_version"].map(|name| (name, FieldType::String));
    let sizes = doubles(&["load_capacity", "fuel_capacity", "nominal_fuel_consumption"]);
    let stream = |name, fields: &[&[(&'static str, FieldType)]], key: usize, time| {
        let schema = Arc::unwrap_or_clone(fixture::stream(name, &fields.concat(), time));
        Arc::new(tidemill_types::StreamSchema { key: Some(key), ..schema })
    };
    let readings = cluster.fixture.declare(&stream("readings", &[&point, &moves], 1, Some(0))).await;
    let diagnostics = cluster.fixture.declare(&stream("diagnostics", &[&point, &loads], 1, Some(0))).await;
    let tags =
        cluster.fixture.declare(&stream("tags", &[&[("id", FieldType::Int)], &texts, &sizes], 0, None)).await;
    let mut rng = rng();
    let truck = |id: usize| {
        format!(
            "{{\"id\":{id},\"name\":\"truck_{id}\",\"fleet\":\"{}\",\"driver\":\"d{}\",\"model\":\"m{}\",\"device_version\":\"v1\",\
             \"load_capacity\":{},\"fuel_capacity\":300,\"nominal_fuel_consumption\":{}}}",
            ["South", "West"][id % 2],
            id % 5,
            id % 3,
            1_500 + id * 100,
            10 + id
        )
    };
    push(&tags, 0, &(0..12).map(truck).collect::<Vec<_>>());
    fixture::flush(&tags).await;
    // a point of each truck for each half of an hour of two days, in files of four hours
    for part in 0..12_u64 {
        let (mut moved, mut loaded) = (Vec::new(), Vec::new());
        for id in 0..12 {
            for half in 0..8 {
                let minutes = part * 240 + half * 30 + id / 4;
                let time = format!(
                    "2016-01-0{}T{:02}:{:02}:{:02}Z",
                    1 + minutes / 1440,
                    minutes / 60 % 24,
                    minutes % 60,
                    id
                );
                let (speed, fuel) = (rng.random_range(0..768), rng.random_range(0..64));
                let (speed, fuel) = (f64::from(speed) / 64.0, f64::from(fuel) / 64.0);
                moved.push(format!(
                    "{{\"time\":\"{time}\",\"tags_id\":{id},\"latitude\":{fuel},\"longitude\":{speed},\"elevation\":1,\
                     \"velocity\":{speed},\"heading\":1,\"grade\":0,\"fuel_consumption\":{}}}",
                    speed * 3.0
                ));
                loaded.push(format!(
                    "{{\"time\":\"{time}\",\"tags_id\":{id},\"fuel_state\":{fuel},\"current_load\":{},\"status\":{}}}",
                    fuel * 3_000.0,
                    rng.random_range(0..3)
                ));
            }
        }
        for (table, rows) in [(&readings, moved), (&diagnostics, loaded)] {
            push(table, part, &rows);
            if part < 11 {
                fixture::flush(table).await;
            }
        }
    }
    let mut distributed = 0;
    for statement in TSBS {
        let statement = with_parameters(statement);
        distributed += usize::from(cluster.check_equal(&statement).await);
    }
    // the last rows of a truck, and all points beside each other, need all rows here
    assert!(distributed >= 8, "{distributed} statements were distributed");
}

fn push(table: &tidemill_zones::Table, offset: u64, rows: &[String]) {
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    fixture::push(table, (offset % 2) as u32, offset, &rows);
}

/// Returns a statement without its optional bounds, and with its parameters.
fn with_parameters(statement: &str) -> String {
    let values = [
        ("fleet_latest", "South"),
        ("fleet_window", "West"),
        ("truck", "truck_5"),
        ("q9_from", "2016-01-01 00:00:00.646325"),
        ("q9_to", "2016-01-02 00:00:00.646325"),
        ("q10_from", "2016-01-01 01:35:15.646325"),
        ("q10_to", "2016-01-01 05:35:15.646325"),
        ("q13_from", "2016-01-01 22:44:53.646325"),
        ("q13_to", "2016-01-01 23:54:53.646325"),
    ];
    let mut text = String::new();
    for (i, part) in statement.split("[[").enumerate() {
        text += if i == 0 { part } else { part.split_once("]]").unwrap().1 };
    }
    values.iter().fold(text, |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
}
