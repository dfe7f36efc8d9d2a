//! Mappers of a catalog in the log and between topics.

use std::sync::Arc;

use tidemill_connect::Catalog;
use tidemill_flow::io::LogSink;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Column, Connectors, EvalError, FieldType, Registry, Value, replay};

#[derive(Default)]
struct Lines(Vec<String>);

impl OutputHandler for Lines {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Received" {
            for row in 0..events.len() {
                let values: Vec<String> = events.columns.iter().map(|c| c.get(row).to_string()).collect();
                self.0.push(format!("{} {}", events.times[row], values.join(" ")));
            }
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, of: &str, failure: &EvalError) {
        self.0.push(format!("{of}: {failure}"));
    }

    fn logged(&mut self, log: &LogSink, events: &Batch) {
        self.0.extend((0..events.len()).map(|row| log.line(events, row)));
    }
}

fn registry() -> Registry {
    let mut catalog = Catalog::default();
    tidemill_mappers::add_all(&mut catalog);
    let mut registry = Registry::standard();
    registry.set_connectors(Connectors::Catalog(Arc::new(catalog)));
    registry
}

/// Sends an event with the text `a<b` and the number 7 at time 1000 to a stream that passes it to `Out`.
fn lines(out: &str, received: &str) -> Vec<String> {
    let text = format!(
        "define stream In (s string, n long);
         {out} define stream Out (s string, n long);
         {received} define stream Received (s string, n long);
         from In select s, n insert into Out;"
    );
    let plan = match replay::compile("a.siddhi", &text, &registry(), &|_| None) {
        Ok(plan) => plan,
        Err(diagnostics) => return vec![diagnostics.lines().next().unwrap_or_default().to_owned()],
    };
    let stream = plan.catalog.find("In").unwrap();
    let mut app = AppRuntime::new(Arc::new(plan));
    let mut seen = Lines::default();
    app.start(0, &mut seen);
    let columns = [(FieldType::String, Value::text("a<b")), (FieldType::Long, Value::Long(7))];
    let columns = columns.map(|(ty, value)| {
        let mut column = Column::new(ty);
        column.push(value);
        column
    });
    app.send(stream, columns.into(), vec![1000], &mut seen).unwrap();
    seen.0
}

#[test]
fn the_log_writes_messages_of_mappers() {
    for (out, expected) in [
        (
            "@sink(type='log', prefix='P', @map(type='json', enclosing.element='$.a'))",
            r#"P : {"a":{"event":{"s":"a<b","n":7}}}"#,
        ),
        (
            "@sink(type='log', @map(type='jsonn'))",
            "error[F0615]: unknown mapper `jsonn`. Did you mean `json`? (`tidemill connectors` lists all)",
        ),
        (
            "@sink(type='log', @map(type='json', enclosing='a'))",
            "error[F0615]: `enclosing`: the mapper `json` has no such option; expected one of `enclosing.element`, \
             `event.grouping.enabled`, `validate.json`, `enable.null.attribute.value`",
        ),
    ] {
        let found = lines(out, "");
        assert!(found[0].starts_with(expected.split("; expected").next().unwrap()), "{found:?}");
    }
}

#[test]
fn topics_carry_messages() {
    let json = |options: &str| format!("@map(type='json'{options})");
    let sink = |map: &str| format!("@sink(type='inMemory', topic='t', {map})");
    let source = |map: &str| format!("@source(type='inMemory', topic='t', {map})");
    assert_eq!(lines(&sink(&json("")), &source(&json(""))), ["1000 a<b 7"]);
    let own = lines(
        &sink(r#"@map(type='json', @payload("""{"x":{"text":"{{s}}","number":{{n}}}}"""))"#),
        &source(&json(", @attributes(s='x.text', n='x.number')")),
    );
    assert_eq!(own, ["1000 a<b 7"]);
    let bad = lines(&sink("@map(type='json', @payload('{{s}}'))"), &source(&json("")));
    assert_eq!(bad.len(), 1);
    assert!(bad[0].starts_with("Received: a message of topic `t` is not read: "), "{bad:?}");
}

#[test]
fn a_topic_with_messages_needs_a_mapper_on_both_sides() {
    let found = lines(
        "@sink(type='inMemory', topic='t', @map(type='json'))",
        "@source(type='inMemory', topic='t', @map(type='passThrough'))",
    );
    assert_eq!(
        found,
        [
            "Received: topic `t` has messages, but the source reads events; write the `@map` of the sink at the source"
        ]
    );
    let found =
        lines("@sink(type='inMemory', topic='t')", "@source(type='inMemory', topic='t', @map(type='json'))");
    assert_eq!(
        found,
        [
            "Received: topic `t` has events, but the source reads messages; write `@map(type='json')` at the sink, or \
             `@map(type='passThrough')` at the source"
        ]
    );
}
