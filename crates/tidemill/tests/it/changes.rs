//! `DELETE` and `UPDATE` of stored events.

use tidemill::{App, SendOptions, Tidemill};

const RULES: &str = "
    event Reading { sensor: string, at: time, value: double, note: string, raw: object } key sensor id sensor, at time at;
    entity Sensor key sensor;
    rule Note { when { r: Reading(); } then { upsert Sensor { sensor: r.sensor }; } }
";

fn open(dir: &std::path::Path) -> Tidemill {
    let mut app = App::from_rules("readings", RULES);
    // a statement with a hundred thousand operators takes its time on a busy machine
    app.settings.sql.query_timeout = Some(tidemill::Duration::seconds(3600));
    Tidemill::open_with(dir, app).unwrap()
}

/// Sends readings 0 to 99 of four sensors, a second apart, half of which are flushed.
fn fill(tidemill: &Tidemill) {
    for half in 0..2 {
        let rows = (half * 50..half * 50 + 50).map(|n| {
            let value = if n % 10 == 0 { "null".to_owned() } else { n.to_string() };
            format!("{{\"sensor\":\"s{}\",\"at\":{},\"value\":{value},\"more\":{n}}}\n", n % 4, n * 1_000)
        });
        let rows: String = rows.collect();
        let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
        let engine = tidemill.engine();
        engine.send_json("Reading", rows.as_bytes(), tidemill::BodyFormat::Ndjson, &options).unwrap();
        if half == 0 {
            engine.flush().unwrap();
        }
    }
}

/// Returns the only value of the result, as text.
fn value(tidemill: &Tidemill, query: &str) -> String {
    // a query may be long
    let start = |text: String| text.chars().take(1000).collect::<String>();
    let rows = tidemill.sql(query).unwrap_or_else(|e| panic!("{query:.200}: {}", start(e.to_string())));
    assert_eq!(rows.num_rows(), 1, "{query}");
    let column = rows.batches.iter().find(|batch| batch.num_rows() > 0).unwrap().column(0).clone();
    arrow_cast::display::array_value_to_string(&column, 0).unwrap()
}

#[test]
fn rows_are_deleted_where_the_condition_is_true() {
    let dir = tempfile::tempdir().unwrap();
    let tidemill = open(dir.path());
    fill(&tidemill);
    let count = || value(&tidemill, "select count(*) from events.Reading");
    assert_eq!(value(&tidemill, "delete from events.Reading where value < 20"), "18");
    // null is not less than 20
    assert_eq!(count(), "82");
    let deleted =
        value(&tidemill, "DELETE FROM Reading r WHERE r.SENSOR = 's1' AND at >= '1970-01-01T00:01:00Z'");
    assert_eq!(deleted, "10");
    assert_eq!(value(&tidemill, "delete from events.Reading where false"), "0");
    assert_eq!(value(&tidemill, "delete from events.Reading where value is null"), "10");
    assert_eq!(count(), "62");
    let balanced = "select balanced from system.ledger where stream = 'Reading'";
    assert_eq!(value(&tidemill, balanced), "true");
    assert_eq!(value(&tidemill, "select removed from system.ledger where stream = 'Reading'"), "38");
    tidemill.close().unwrap();
    let tidemill = open(dir.path());
    assert_eq!(value(&tidemill, "select count(*) from events.Reading"), "62");
    assert_eq!(value(&tidemill, "delete from events.Reading where true"), "62");
    // what was deleted is still known
    fill(&tidemill);
    assert_eq!(value(&tidemill, "select count(*) from events.Reading"), "0");
    assert_eq!(value(&tidemill, balanced), "true");
    tidemill.close().unwrap();
}

#[test]
fn values_are_changed() {
    let dir = tempfile::tempdir().unwrap();
    let tidemill = open(dir.path());
    fill(&tidemill);
    let update =
        "update events.Reading set value = value * 2, note = concat('was ', value) where value >= 50";
    assert_eq!(value(&tidemill, update), "45");
    let check = "select count(*) from events.Reading where value >= 100 and note = concat('was ', value / 2)";
    assert_eq!(value(&tidemill, check), "45");
    assert_eq!(value(&tidemill, "select sum(value) from events.Reading where note is null"), "1125.0");
    // the condition guards the division and the cast
    let guarded =
        "update events.Reading set value = 1 / cast(value as bigint) where value <> 0 and sensor = 's1'";
    assert_eq!(value(&tidemill, guarded), "25");
    assert_eq!(value(&tidemill, "update events.Reading set value = null where sensor = 's0'"), "25");
    assert_eq!(value(&tidemill, "select count(value) from events.Reading where sensor = 's0'"), "0");
    assert_eq!(
        value(&tidemill, "select count(*) from events.Reading where json_get_int(_extra, 'more') >= 0"),
        "100"
    );
    tidemill.close().unwrap();
}

#[test]
fn other_changes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tidemill = open(dir.path());
    fill(&tidemill);
    for (statement, reason) in [
        ("delete from events.Reading", "add a condition, or WHERE true"),
        ("update events.Reading set value = 1", "add a condition, or WHERE true"),
        ("delete from events.Readings where true", "Did you mean `Reading`"),
        ("delete from events.Reading where valu > 1", "Did you mean `value`"),
        ("delete from events.Reading where value", "expected true or false"),
        ("delete from events.Reading where value > (select 1)", "no queries"),
        ("delete from events.Reading where sensor in (select sensor from docs.Sensor)", "no queries"),
        ("delete from events.Reading where value > random()", "no queries"),
        ("delete from events.Reading using docs.Sensor s where true", "only `DELETE FROM"),
        ("delete from events.Reading where true returning value", "only `DELETE FROM"),
        ("delete from events.Reading where true limit 1", "only `DELETE FROM"),
        ("update events.Reading set sensor = 'x' where true", "`sensor` cannot be changed"),
        ("update events.Reading set at = now() where true", "`at` cannot be changed"),
        ("update events.Reading set _offset = 0 where true", "`_offset` cannot be changed"),
        ("update events.Reading set valu = 0 where true", "Did you mean `value`"),
        ("update events.Reading set value = 'x' where true", "does not fit its column"),
        ("update events.Reading set value = 1 from docs.Sensor where true", "only `UPDATE events"),
        ("delete from docs.Sensor where true", "through their collection"),
        ("delete from system.ledger where true", "only events are deleted"),
    ] {
        let error =
            tidemill.sql(statement).err().unwrap_or_else(|| panic!("{statement} is accepted")).to_string();
        assert!(error.contains(reason), "{statement}: {error}");
    }
    let long = format!("delete from events.Reading where value > 0{}", " + 1".repeat(100_000));
    assert_eq!(value(&tidemill, &long), "0", "a chain may be as long as the text");
    let nested =
        format!("delete from events.Reading where value > {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    let error = tidemill.sql(&nested).unwrap_err().to_string();
    assert!(error.contains("nested too deeply"), "{error}");
    assert_eq!(value(&tidemill, "select count(*) from events.Reading"), "100");
    tidemill.close().unwrap();
}
