//! SQL of scans and aggregations.

use tidemill_types::{Field, FieldType, StreamSchema};

use crate::catalog::Measurement;
use crate::parse::{BoundValues, parse};
use crate::rows::{AggregateColumn, AggregateFunction, AggregateScan, RowScan};
use crate::sql;
use crate::syntax::InfluxStatement;
use crate::time::{Clock, Intervals, TimeBounds, split};

fn measurement() -> Measurement {
    let field = Field::new;
    Measurement::of(&StreamSchema {
        name: "od\"d".to_owned(),
        fields: vec![
            field("at", FieldType::Time),
            field("host", FieldType::String),
            field("truck", FieldType::Long),
            field("speed", FieldType::Double),
            field("lanes", FieldType::Int),
            field("up", FieldType::Bool),
            field("note", FieldType::String),
        ],
        key: Some(2),
        id: vec![0, 1],
        time: Some(0),
    })
}

#[test]
fn texts_of_key_and_id_are_tags_and_the_time_is_neither() {
    let measurement = measurement();
    let kinds: Vec<String> =
        measurement.columns.iter().map(|column| format!("{} {}", column.name, column.kind.name())).collect();
    assert_eq!(
        kinds,
        ["host tag", "lanes integer", "note string", "speed float", "truck integer", "up boolean"]
    );
}

#[test]
fn conditions_keep_their_meaning() {
    let measurement = measurement();
    let clock = Clock { now: 1_767_600_000_000_000_000, zone: jiff::tz::TimeZone::UTC };
    for (condition, expected) in [
        ("host = 'it\\'s'", "\"host\" = 'it''s'"),
        ("host != 'a'", "(\"host\" <> 'a' OR \"host\" IS NULL)"),
        ("'' = host", "(\"host\" IS NULL OR \"host\" = '')"),
        ("host != ''", "\"host\" <> ''"),
        ("host =~ /a|b/", "\"host\" ~ 'a|b'"),
        ("host =~ /a*/", "(\"host\" ~ 'a*' OR \"host\" IS NULL)"),
        ("host !~ /a/", "(\"host\" !~ 'a' OR \"host\" IS NULL)"),
        ("note !~ /a/", "\"note\" !~ 'a'"),
        ("speed =~ /a/", "false"),
        ("truck = '7'", "false"),
        ("truck = 7", "\"truck\" = 7"),
        ("host > 'a'", "false"),
        ("missing = 'a'", "false"),
        ("missing = ''", "true"),
        ("missing != 'a'", "true"),
        ("missing = 1", "false"),
        ("speed > 'x'", "false"),
        ("5 < lanes", "5 < \"lanes\""),
        (
            "speed / lanes > 2",
            "(CASE WHEN \"lanes\" = 0 THEN 0.0 ELSE CAST(\"speed\" AS DOUBLE) / \"lanes\" END) > 2",
        ),
        ("lanes / 2 > 3", "(CASE WHEN 2 = 0 THEN 0 ELSE \"lanes\" / 2 END) > 3"),
        ("speed + 1.5 * (lanes - 2) >= 1", "(\"speed\" + (CAST('1.5' AS DOUBLE) * (\"lanes\" - 2))) >= 1"),
        (
            "up = true AND (note = 'x' OR note = 'y') OR lanes != 1",
            "(\"up\" = true AND (\"note\" = 'x' OR \"note\" = 'y') OR \"lanes\" <> 1)",
        ),
        (
            "host = 'a' AND time >= '2026-01-05T08:00:00Z' AND time < now() + 1500ns",
            "\"_time\" >= '2026-01-05T08:00:00.000000Z' AND \"_time\" <= '2026-01-05T08:00:00.000001Z' AND \"host\" = 'a'",
        ),
        (
            "time > 1000 AND time <= 2999",
            "\"_time\" >= '1970-01-01T00:00:00.000002Z' AND \"_time\" <= '1970-01-01T00:00:00.000002Z'",
        ),
    ] {
        let text = format!("SELECT v FROM m WHERE {condition}");
        let InfluxStatement::Select(select) = &parse(&text, &BoundValues::new()).unwrap()[0] else {
            panic!()
        };
        let (rest, range) = split(select.condition.as_ref(), &clock).unwrap();
        let scan = RowScan {
            measurement: &measurement,
            columns: vec![],
            condition: rest.as_ref(),
            range,
            any_of: vec![],
            is_descending: false,
            limit: None,
        };
        let sql = sql::scan(&scan);
        let found = sql.split(" WHERE ").nth(1).unwrap().split(" ORDER BY ").next().unwrap();
        assert_eq!(found, expected, "{condition}");
    }
}

#[test]
fn statements_name_their_columns() {
    let measurement = measurement();
    let column = |name: &str| measurement.column(name).unwrap();
    let scan = RowScan {
        measurement: &measurement,
        columns: vec![column("speed"), column("host")],
        condition: None,
        range: TimeBounds::ALL,
        any_of: vec![column("speed"), column("up")],
        is_descending: true,
        limit: Some(3),
    };
    assert_eq!(
        sql::scan(&scan),
        "SELECT \"_time\", \"speed\", \"host\" FROM events.\"od\"\"d\" WHERE (\"speed\" IS NOT NULL OR \"up\" IS NOT NULL) \
         ORDER BY \"_time\" DESC, \"host\" DESC NULLS LAST LIMIT 3"
    );
    let intervals =
        Intervals { duration: 60_000_000_000, offset: -10_000_000_000, zone: jiff::tz::TimeZone::UTC };
    let aggregate = |function, name, has_time| AggregateColumn { function, column: column(name), has_time };
    let aggregation = AggregateScan {
        measurement: &measurement,
        condition: None,
        range: TimeBounds::ALL,
        dimensions: vec![Some(column("truck")), None],
        intervals: Some(&intervals),
        aggregates: vec![
            aggregate(AggregateFunction::Mean, "speed", false),
            aggregate(AggregateFunction::Last, "up", true),
        ],
    };
    assert_eq!(
        sql::aggregation(&aggregation),
        "SELECT coalesce(CAST(\"truck\" AS VARCHAR), ''), '', time_bucket('60000000 microseconds', \"_time\", timestamp \
         '1970-01-01T00:00:50.000000Z'), avg(\"speed\"), first_value(\"up\" ORDER BY \"_time\" DESC, \"up\" DESC) FILTER \
         (WHERE \"up\" IS NOT NULL), first_value(\"_time\" ORDER BY \"_time\" DESC, \"up\" DESC) FILTER (WHERE \"up\" IS \
         NOT NULL) FROM events.\"od\"\"d\" GROUP BY 1, 2, 3"
    );
}
