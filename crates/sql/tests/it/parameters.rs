//! Queries with parameters, prepared and not.

use arrow::datatypes::DataType;
use tidemill_access::Principal;
use tidemill_database::{Parameter, ParameterList, QueryRequest};
use tidemill_sql::{Prepared, QueryRows, Sql};
use tidemill_types::{Timestamp, Value};

use crate::fixture::{self, State};
use crate::hot::tables::{answer, sorted};

/// A query with parameters, their values, and the same query with the values in its text.
const CASES: [(&str, &[Value<'static>], &str); 10] = [
    (
        "select flight, gate from TakeOffEvent where carrier = $1 and distance > $2",
        &[Value::Str(std::borrow::Cow::Borrowed("UA")), Value::Int(300)],
        "select flight, gate from TakeOffEvent where carrier = 'UA' and distance > 300",
    ),
    (
        "select * from TakeOffEvent t where _time >= $1 and t._time < $2 limit 100",
        &[
            Value::Str(std::borrow::Cow::Borrowed("2013-01-01T08:00:00Z")),
            Value::Time(Timestamp(1_357_045_200_000_000)),
        ],
        "select * from TakeOffEvent where _time >= '2013-01-01T08:00:00Z' and _time < '2013-01-01T13:00:00Z'",
    ),
    (
        "select flight + $1 as f from TakeOffEvent where on_time = $2 and gate is not null",
        &[Value::Int(7), Value::Bool(true)],
        "select flight + 7 as f from TakeOffEvent where on_time = true and gate is not null",
    ),
    (
        "select count(*), sum(distance) from TakeOffEvent where carrier = $1",
        &[Value::Str(std::borrow::Cow::Borrowed("AA"))],
        "select count(*), sum(distance) from TakeOffEvent where carrier = 'AA'",
    ),
    (
        "select t.flight from TakeOffEvent t join events.Landing l on l.flight = t.flight where l.\"Gate\" = $1",
        &[Value::Null],
        "select t.flight from TakeOffEvent t join events.Landing l on l.flight = t.flight where l.\"Gate\" = null",
    ),
    (
        "select flight from TakeOffEvent where carrier in ($1, $2) order by flight desc limit 2",
        &[Value::Str(std::borrow::Cow::Borrowed("B6")), Value::Str(std::borrow::Cow::Borrowed("DL"))],
        "select flight from TakeOffEvent where carrier in ('B6', 'DL') order by flight desc limit 2",
    ),
    (
        // the subquery has no rows and is not planned, and its parameters are still the client's
        "select c.relname, (select json_build_object($1::varchar, s.seqstart) from pg_sequence s where s.seqrelid = c.oid and \
         c.relname <> $2) as options from pg_class c where c.relname = $3",
        &[
            Value::Str(std::borrow::Cow::Borrowed("start")),
            Value::Str(std::borrow::Cow::Borrowed("x")),
            Value::Str(std::borrow::Cow::Borrowed("TakeOffEvent")),
        ],
        "select relname, null::text as options from pg_class where relname = 'TakeOffEvent'",
    ),
    (
        "select flight from TakeOffEvent order by flight desc limit $1 offset $2",
        &[Value::Str(std::borrow::Cow::Borrowed("2")), Value::Int(1)],
        "select flight from TakeOffEvent order by flight desc limit 2 offset 1",
    ),
    ("select 1 as one", &[], "select 1 as one"),
    (
        "select distinct routine_name from information_schema.routines where routine_name = $1",
        &[Value::Str(std::borrow::Cow::Borrowed("time_bucket"))],
        "select 'time_bucket' as routine_name",
    ),
];

async fn with_parameters(sql: &Sql, query: &str, values: &[Value<'static>]) -> QueryRows {
    sql.run(QueryRequest::new(query, "test", Principal::system()).with_parameters(values.to_vec()))
        .await
        .unwrap()
        .collect()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_means_what_it_means_in_the_text() {
    for state in State::ALL {
        let (_fixture, sql) = fixture::sql(state, fixture::options()).await;
        for (query, values, literal) in CASES {
            let expected = sorted(&answer(&sql, literal).await);
            for _ in 0..3 {
                let rows = with_parameters(&sql, query, values).await;
                assert_eq!(sorted(&rows), expected, "{state:?} {query}");
            }
            let prepared = sql.prepare(query).await.unwrap();
            assert_eq!(prepared.parameters(), values.len());
            for _ in 0..3 {
                let rows = prepared.query_with(values).await.unwrap();
                assert_eq!(sorted(&rows), expected, "{state:?} {query}");
                assert_eq!(rows.schema.fields().len(), prepared.schema().fields().len());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_query_sees_new_rows_values_and_columns() {
    let (fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let prepared = sql.prepare("select flight from TakeOffEvent where carrier = $1").await.unwrap();
    let count = |carrier: &'static str| {
        let prepared: &Prepared = &prepared;
        async move { prepared.query_with(&[Value::str(carrier)]).await.unwrap().num_rows() }
    };
    assert_eq!((count("UA").await, count("AA").await, count("ZZ").await), (3, 3, 0));
    let table = fixture.streams.read()["TakeOffEvent"].clone();
    fixture::push(&table, 0, 9, &[r#"{"carrier":"ZZ","flight":1,"actual":"2013-01-02T00:00:00Z"}"#]);
    assert_eq!(count("ZZ").await, 1);
    fixture::flush(&table).await;
    assert_eq!((count("ZZ").await, count("UA").await), (1, 3));

    // the stream is declared again with one more field
    let mut stream = table.stream().as_ref().clone();
    stream.fields.push(tidemill_types::Field::new("pilot", tidemill_types::FieldType::String));
    fixture.declare(&std::sync::Arc::new(stream)).await;
    assert_eq!((count("ZZ").await, count("UA").await), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_is_planned_once_and_sees_new_rows_values_and_columns() {
    let (fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let text = "select * from events.\"TakeOffEvent\" where carrier = $1";
    let ask = async |carrier: &'static str| with_parameters(&sql, text, &[Value::str(carrier)]).await;
    assert_eq!(ask("UA").await.num_rows(), 3);
    let listings = || fixture.listings.load(std::sync::atomic::Ordering::Relaxed);
    let listed = listings();
    assert_eq!((ask("AA").await.num_rows(), ask("ZZ").await.num_rows()), (3, 0));
    assert_eq!(listings(), listed, "names are not looked for again");
    let table = fixture.streams.read()["TakeOffEvent"].clone();
    fixture::push(&table, 0, 9, &[r#"{"carrier":"ZZ","flight":1,"actual":"2013-01-02T00:00:00Z"}"#]);
    assert_eq!(ask("ZZ").await.num_rows(), 1);
    fixture::flush(&table).await;
    assert_eq!((ask("ZZ").await.num_rows(), ask("UA").await.num_rows()), (1, 3));

    // wrong values are refused as in a statement that is planned
    for wrong in [vec![], vec![Value::str("UA"), Value::Int(1)]] {
        let request = QueryRequest::new(text, "test", Principal::system())
            .with_parameters(wrong.into_iter().map(Parameter::Value).collect());
        let error = sql.run(request).await.map(drop).unwrap_err();
        assert!(error.to_string().contains("expected 1 values"), "{error}");
    }

    // the stream is declared again with one more field
    let columns = ask("UA").await.schema.fields().len();
    let mut stream = table.stream().as_ref().clone();
    stream.fields.push(tidemill_types::Field::new("pilot", tidemill_types::FieldType::String));
    fixture.declare(&std::sync::Arc::new(stream)).await;
    for _ in 0..2 {
        let rows = ask("UA").await;
        assert_eq!((rows.num_rows(), rows.schema.fields().len()), (3, columns + 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_kept_with_its_values_serves_no_others_and_sees_new_rows() {
    let (fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let text =
        "select carrier, $2 as asked, count(*) as n from TakeOffEvent where carrier = $1 group by carrier";
    let count = |carrier: &'static str, asked: Value<'static>| {
        let request = QueryRequest::new(text, "test", Principal::system())
            .with_parameters([Value::str(carrier), asked].map(Parameter::Value).to_vec());
        let sql = &sql;
        async move { sorted(&sql.run(request).await.unwrap().collect().await.unwrap()) }
    };
    let asks = [
        ("UA", Value::Int(1)),
        ("AA", Value::Int(1)),
        ("UA", Value::str("1")),
        ("UA", Value::Int(2)),
        ("UA", Value::Null),
    ];
    let mut answers = Vec::new();
    for (carrier, asked) in asks.iter().chain(&asks) {
        answers.push(count(carrier, asked.clone()).await);
    }
    let (first, again) = answers.split_at(asks.len());
    assert_eq!(first, again);
    let different: std::collections::HashSet<String> = first.iter().map(|rows| format!("{rows:?}")).collect();
    assert!(different.len() >= 4, "{different:?}");
    let table = fixture.streams.read()["TakeOffEvent"].clone();
    fixture::push(&table, 0, 9, &[r#"{"carrier":"UA","flight":1,"actual":"2013-01-02T00:00:00Z"}"#]);
    assert_ne!(count("UA", Value::Int(1)).await, first[0]);
    assert_eq!(count("AA", Value::Int(1)).await, first[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_query_runs_on_a_thread_without_a_runtime() {
    let (_fixture, sql) = fixture::sql(State::Tablets, fixture::options()).await;
    let rows = std::thread::spawn(move || {
        let prepared = sql.prepare_blocking("select flight from TakeOffEvent where carrier = $1").unwrap();
        prepared.query_blocking_with(&[Value::str("UA")]).unwrap().num_rows()
    });
    assert_eq!(rows.join().unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_values_are_refused() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let one = "select flight from TakeOffEvent where flight = $1";
    for (query, values, message) in [
        (one, vec![], "the query has 1 parameters: expected 1 values, found 0"),
        (one, vec![Value::Int(1), Value::Int(2)], "the query has 1 parameters: expected 1 values, found 2"),
        ("select 1", vec![Value::Int(1)], "the query has 0 parameters: expected 0 values, found 1"),
        (one, vec![Value::Float(1.5)], "parameter $1: expected a value of type int, found 1.5"),
        (one, vec![Value::Int(1 << 40)], "parameter $1: expected a value of type int, found 1099511627776"),
        (
            "select flight from TakeOffEvent where flight = $2",
            vec![Value::Int(1)],
            "has 1 parameters and no $1",
        ),
        (
            "select flight from TakeOffEvent where flight = $name",
            vec![Value::Int(1)],
            "`$name` has no number",
        ),
        ("delete from TakeOffEvent where flight = $1", vec![Value::Int(1)], "take no parameters"),
    ] {
        let error = sql
            .run(QueryRequest::new(query, "test", Principal::system()).with_parameters(values.clone()))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(message), "{query}: {error}");
        if let Ok(prepared) = sql.prepare(query).await {
            let error = prepared.query_with(&values).await.unwrap_err();
            assert!(error.to_string().contains(message), "{query}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn types_of_parameters_are_described_where_their_place_tells() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let text = "select $1, $2::bigint + 1, cast($3 as double) from TakeOffEvent where carrier = $4 and distance > $5 limit $6";
    let request = QueryRequest::new(text, "test", Principal::system());
    let described = sql.describe_request(request).await.unwrap();
    let types: Vec<String> = described
        .parameters
        .iter()
        .map(|ty| ty.as_ref().map_or("?".to_owned(), ToString::to_string))
        .collect();
    assert_eq!(types, ["?", "Int64", "Float64", "Utf8", "Float64", "Int64"]);
    assert_eq!(described.columns.fields().len(), 3);
}

fn list(item: DataType, items: Vec<Value<'static>>) -> Parameter {
    Parameter::List(ParameterList { item, items })
}

/// A condition with a list, its value, and the same condition in other words.
fn list_cases() -> Vec<(&'static str, Parameter, &'static str)> {
    let texts =
        |items: &[&'static str]| list(DataType::Utf8, items.iter().map(|item| Value::str(item)).collect());
    let ints = |items: &[i64]| list(DataType::Int64, items.iter().map(|item| Value::Int(*item)).collect());
    let with_null = || list(DataType::Utf8, vec![Value::str("UA"), Value::Null]);
    vec![
        ("carrier = any($1)", texts(&["UA", "B6"]), "carrier in ('UA', 'B6')"),
        ("carrier = any($1::text[])", texts(&["UA", "B6"]), "carrier in ('UA', 'B6')"),
        ("carrier = some(($1))", texts(&["UA"]), "carrier = 'UA'"),
        ("carrier = any($1)", texts(&[]), "false"),
        ("carrier = any($1)", Value::Null.into(), "false"),
        ("not (carrier = any($1))", texts(&["UA"]), "carrier <> 'UA'"),
        // it is not known whether a carrier is the one that is null
        ("not (carrier = any($1))", with_null(), "false"),
        ("carrier <> all($1)", texts(&["UA", "B6"]), "carrier not in ('UA', 'B6')"),
        ("carrier <> all($1)", texts(&[]), "true"),
        ("carrier <> all($1)", with_null(), "false"),
        ("carrier <> any($1)", texts(&["UA", "UA"]), "carrier <> 'UA'"),
        ("flight = any($1)", ints(&[1, 1141, 1545]), "flight in (1, 1141, 1545)"),
        ("flight = any($1::bigint[])", ints(&[1141, 1545]), "flight in (1141, 1545)"),
        ("flight = any($1::int[])", texts(&["1141", "1545"]), "flight in (1141, 1545)"),
        ("flight > all($1)", ints(&[100, 1000]), "flight > 1000"),
        ("flight >= any($1)", ints(&[100, 1000]), "flight >= 100"),
        ("distance < any($1)", list(DataType::Float64, vec![Value::Float(500.5)]), "distance < 500.5"),
        ("carrier like any($1)", texts(&["U%", "_6"]), "carrier like 'U%' or carrier like '_6'"),
        (
            "_time = any($1)",
            list(
                DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into())),
                vec![Value::Time(Timestamp(1_357_045_200_000_000))],
            ),
            "_time = '2013-01-01T13:00:00Z'",
        ),
        ("on_time = any($1)", list(DataType::Boolean, vec![Value::Bool(true)]), "on_time"),
        ("flight in (select unnest($1::int[]))", ints(&[1141, 1545]), "flight in (1141, 1545)"),
        ("array_length($1::bigint[], 1) = 2", ints(&[1, 2]), "true"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_means_what_it_means_in_the_text() {
    for state in State::ALL {
        let (_fixture, sql) = fixture::sql(state, fixture::options()).await;
        for (condition, value, literal) in list_cases() {
            let rows =
                |condition: &str| format!("select flight, carrier from TakeOffEvent where {condition}");
            let expected = sorted(&answer(&sql, &rows(literal)).await);
            let request = QueryRequest::new(rows(condition), "test", Principal::system());
            let found = sql.run(request.with_parameters(vec![value.clone()])).await;
            let found = found.unwrap_or_else(|e| panic!("{condition}: {e}")).collect().await.unwrap();
            assert_eq!(sorted(&found), expected, "{state:?} {condition} {value}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_described_and_bounded() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let text = "select $1 = any(array[1]), $2::text[], unnest($3::timestamptz[]) from TakeOffEvent t where flight = any($4) and \
                exists (select 1 from events.Landing l where l.\"Gate\" <> all($5) and t.carrier like any($6))";
    let described = sql.describe_request(QueryRequest::new(text, "test", Principal::system())).await.unwrap();
    let types: Vec<String> = described
        .parameters
        .iter()
        .map(|ty| match ty {
            Some(DataType::List(item)) => format!("[{}]", item.data_type()),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(types[1..], ["[Utf8View]", "[Timestamp(µs, \"UTC\")]", "[Int32]", "[Utf8]", "[Utf8]"]);
    let many = |count| list(DataType::Int64, (0..count).map(Value::Int).collect());
    for (condition, value, message) in [
        ("flight = any($1)", many(100_001), "a list of 100001 values behind ANY or ALL: the limit is 100000"),
        ("flight < any($1)", many(2_001), "the limit is 2000"),
        ("flight = any($1)", Value::Int(1).into(), "expected a value of type list of int, found 1"),
        ("flight = $1", many(2), "parameter $1: expected a value of type int, found [0, 1]"),
        (
            "flight = any($1)",
            list(DataType::Int64, vec![Value::Int(1 << 40)]),
            "expected a value of type list of int",
        ),
        (
            "flight = any($1)",
            list(DataType::Utf8, vec![Value::str("x")]),
            "expected a value of type list of int, found [\"x\"]",
        ),
    ] {
        let text = format!("select count(*) from TakeOffEvent where {condition}");
        let request = QueryRequest::new(text, "test", Principal::system()).with_parameters(vec![value]);
        let error = sql.run(request).await.unwrap_err().to_string();
        assert!(error.contains(message), "{condition}: {error}");
    }
}
