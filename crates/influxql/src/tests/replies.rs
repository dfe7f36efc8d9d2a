//! Texts of replies.

use crate::reply::{Epoch, ReplyFormat, ReplyWriter};
use crate::rows::MemoryPool;
use crate::series::{ResultSeries, SeriesRow, StatementResult};
use crate::value::InfluxValue;

#[test]
fn numbers_and_texts_are_written_as_go_writes_them() {
    let values = [
        (InfluxValue::Float(1.0), "1"),
        (InfluxValue::Float(0.5), "0.5"),
        (InfluxValue::Float(-0.0), "-0"),
        (InfluxValue::Float(1e20), "100000000000000000000"),
        (InfluxValue::Float(1e21), "1e+21"),
        (InfluxValue::Float(0.000_001), "0.000001"),
        (InfluxValue::Float(1.5e-7), "1.5e-7"),
        (InfluxValue::Float(f64::NAN), "null"),
        (InfluxValue::Float(f64::INFINITY), "null"),
        (InfluxValue::Integer(i64::MIN), "-9223372036854775808"),
        (InfluxValue::Text("a\"\\\n<é\u{1}".into()), "\"a\\\"\\\\\\n\\u003cé\\u0001\""),
        (InfluxValue::Boolean(true), "true"),
    ];
    let row =
        SeriesRow { time: Some(-1), values: values.iter().map(|(value, _)| Some(value.clone())).collect() };
    let mut series = ResultSeries::listing("m", &["time"], []);
    series.rows.push(row);
    let result = StatementResult { id: 0, series: vec![series], error: None, memory: None };
    let format = ReplyFormat { epoch: Epoch::Text, is_csv: false, is_pretty: false };
    let mut writer = ReplyWriter::new(format, None, &MemoryPool::new(1 << 20));
    assert_eq!(writer.pieces(&result).next(), None, "one reply is sent at its end");
    let expected: Vec<&str> = values.iter().map(|(_, text)| *text).collect();
    let text = writer.finish();
    let row = text.split("[[").nth(1).unwrap().split("]]").next().unwrap();
    assert_eq!(row, format!("\"1969-12-31T23:59:59.999999999Z\",{}", expected.join(",")));
    serde_json::from_str::<serde_json::Value>(&text).unwrap();
}
