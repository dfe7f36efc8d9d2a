//! What serves each of the thirteen queries of the IoT benchmark: `tests/plans/iot.slt`.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use tidemill_sql::Sql;
use tidemill_types::{Field, FieldType, StreamSchema};

use super::tables::answer;
use crate::cases;
use crate::fixture::{self, Fixture};

/// Returns the physical plan of a query.
pub async fn plan(sql: &Sql, query: &str) -> String {
    let rows = answer(sql, &format!("explain {query}")).await;
    let plans = rows.batches[0].column(1).as_string::<i32>();
    plans.iter().flatten().last().unwrap().to_owned()
}

/// Declares the tables of the benchmark.
pub async fn iot() -> Fixture {
    let fixture = Fixture::empty().await;
    let doubles = |names: &[&str]| -> Vec<Field> {
        names.iter().map(|name| Field::new(*name, FieldType::Double)).collect()
    };
    let keys = || vec![Field::new("time", FieldType::Time), Field::new("tags_id", FieldType::Int)];
    let measures = ["latitude", "longitude", "elevation", "velocity", "heading", "grade", "fuel_consumption"];
    let readings = [keys(), doubles(&measures)].concat();
    let status = vec![Field::new("status", FieldType::Int)];
    let diagnostics = [keys(), doubles(&["fuel_state", "current_load"]), status].concat();
    for (name, fields) in [("readings", readings), ("diagnostics", diagnostics)] {
        let stream = StreamSchema { name: name.into(), fields, key: Some(1), id: vec![], time: Some(0) };
        fixture.declare(&Arc::new(stream)).await;
    }
    let texts = ["name", "fleet", "driver", "model", "device_version"];
    let texts = texts.map(|name| Field::new(name, FieldType::String)).to_vec();
    let numbers = doubles(&["load_capacity", "fuel_capacity", "nominal_fuel_consumption"]);
    let fields = [vec![Field::new("id", FieldType::Int)], texts, numbers].concat();
    let tags = StreamSchema { name: "tags".into(), fields, key: Some(0), id: vec![], time: None };
    fixture.declare(&Arc::new(tags)).await;
    fixture
}

/// Each case is a statement and the leaves of its plan. `UPDATE_CASES=1` rewrites them.
#[tokio::test(flavor = "multi_thread")]
async fn the_queries_of_the_benchmark_are_served_from_hot_data() {
    let fixture = Arc::new(iot().await);
    let sql = Sql::new(fixture, fixture::options()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans/iot.slt");
    let text = std::fs::read_to_string(&path).unwrap();
    let (cases, after) = cases::parse(&text);
    let (mut written, mut failures) = (String::new(), String::new());
    for case in &cases {
        let plan = plan(&sql, &case.sql).await;
        let leaves =
            plan.lines().map(str::trim).filter(|l| l.contains("HotScanExec") || l.contains("DataSource"));
        let found: String = leaves.map(|line| format!("{line}\n")).collect();
        if found != case.expected {
            writeln!(failures, "{}\nexpected:\n{}found:\n{found}", case.sql, case.expected).unwrap();
        }
        write!(written, "{}{}\n{}\n----\n{found}", case.before, case.directive, case.sql).unwrap();
    }
    assert_eq!(cases.len(), 13);
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(&path, written + &after).unwrap();
        failures.clear();
    }
    assert!(failures.is_empty(), "{failures}");
}
