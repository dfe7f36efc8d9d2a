//! Limits: the behaviour at each of them.

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use tidemill_rules::why::Selector;
use tidemill_rules::{ERRORS_MAX, Executor, MATCHES_MAX, Program, StreamPart, Trace, TraceLimits};

use crate::world::{World, batch};

fn program(text: &str) -> Program {
    Program::from_texts([("app.rules", text)]).unwrap_or_else(|e| panic!("{e}"))
}

const BASE: &str = "
event E { id: string, n: int, time: time } key id time time;
event Out { id: string, n: int } key id;
entity D key id;
entity R key id replicated index kind;
relation E.d(): D by id;
";

#[test]
fn too_many_matches_are_an_error_of_that_firing() {
    let program = program(&format!(
        "{BASE}
        rule Many {{ when {{ e: E(n == 1); a: R(kind == \"k\"); b: R(kind == \"k\"); }} then {{ emit Out {{ id: a.id }}; }} }}
        rule Fine {{ when {{ e: E(); }} then {{ emit Out {{ id: e.id }}; }} }}"
    ));
    let mut world = World::new(&program);
    let side = (MATCHES_MAX as f64).sqrt() as usize + 1;
    for i in 0..side {
        world.insert(&program, "R", &format!(r#"{{"id": "{i}", "kind": "k"}}"#));
    }
    let effects = world.events(&program, "E", &[r#"{"id": "a", "n": 1}"#, r#"{"id": "b"}"#]);
    assert_eq!(effects.emitted[0].batch.num_rows(), 2, "the other rule went on");
    assert_eq!(effects.errors.len(), 1);
    assert!(effects.errors[0].message.contains("10000 combinations"), "{}", effects.errors[0]);
}

#[test]
fn errors_are_counted_past_their_limit() {
    let program =
        program(&format!("{BASE} rule Bad {{ when {{ e: E(); }} then {{ insert D {{ id: e.id }}; }} }}"));
    let mut world = World::new(&program);
    let rows = vec![r#"{"id": "same"}"#; ERRORS_MAX + 11];
    let effects = world.events(&program, "E", &rows);
    assert_eq!((effects.errors.len(), effects.errors_more), (ERRORS_MAX, 10));
    assert_eq!(effects.changed_documents, 1);
    let counters = world.executor.counters().rule("Bad").unwrap().clone();
    assert_eq!((counters.fired, counters.errors), (1, ERRORS_MAX as u64 + 10));
    // counters can be restored into a new executor
    let text = serde_json::to_string(world.executor.counters()).unwrap();
    let restored = Executor::with_counters(&program, &serde_json::from_str(&text).unwrap());
    assert_eq!(restored.counters(), world.executor.counters());
}

#[test]
fn a_trace_keeps_the_last_events_and_no_more() {
    let program =
        program(&format!("{BASE} rule A {{ when {{ e: E(n > 5); }} then {{ emit Out {{ id: e.id }}; }} }}"));
    let mut world = World::new(&program);
    world.trace = Trace::new(TraceLimits { events_max: 10, bytes_max: 1 << 20 });
    for i in 0..20 {
        let rows: Vec<String> = (0..3).map(|k| format!(r#"{{"id": "{i}-{k}", "n": {}}}"#, k * 5)).collect();
        world.events(&program, "E", &rows.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(world.trace.events() <= 10);
    }
    let by_id = |id: &str| Selector::Fields { stream: None, fields: vec![("id".into(), id.into())] };
    assert!(world.trace.explain(&program, &by_id("19-0"), None).is_ok());
    assert!(world.trace.explain(&program, &by_id("0-0"), None).is_err());
    world.trace = Trace::new(TraceLimits { events_max: 1000, bytes_max: 100 });
    world.events(&program, "E", &[r#"{"id": "x", "n": 1}"#]);
    assert_eq!(
        (world.trace.events(), world.trace.bytes()),
        (0, 0),
        "a batch larger than the limit is not kept"
    );
}

#[test]
fn rows_that_are_not_kept_are_not_seen() {
    let program =
        program(&format!("{BASE} rule A {{ when {{ e: E(); }} then {{ emit Out {{ id: e.id }}; }} }}"));
    let mut world = World::new(&program);
    let rows: Vec<String> = (0..200).map(|i| format!(r#"{{"id": "{i}"}}"#)).collect();
    let batch = batch(&program.streams()[0], &rows.iter().map(String::as_str).collect::<Vec<_>>());
    let keep: BooleanBuffer = (0..200).map(|i| i % 3 == 0).collect();
    let effects = world.apply(&program, &[StreamPart { stream: 0, batch: &batch, keep: Some(&keep) }], None);
    let expected: Vec<u32> = (0..200).filter(|i| i % 3 == 0).collect();
    assert_eq!(effects.emitted[0].source_rows, expected);
    let asked = Selector::Id("0-0-1".parse().unwrap());
    assert!(
        world.trace.explain(&program, &asked, None).unwrap().to_string().contains("the event is a duplicate")
    );
}

/// Events of two streams that alternate are applied to documents in order of arrival.
#[test]
fn parts_interleave_in_order_of_arrival() {
    let program = program(
        "event A { id: string, n: int } key id;
         event B { id: string, n: int } key id;
         entity D key id;
         relation d(): D by id;
         rule OnA { when { e: A(); d: e.d(); } then { update d.log push \"a\" + e.n; } }
         rule OnB { when { e: B(n >= 0); d: e.d(); } then { update d.log push \"b\" + e.n; } }",
    );
    let rows = |n: usize| -> Vec<String> { (0..n).map(|i| format!(r#"{{"id": "x", "n": {i}}}"#)).collect() };
    let batch_of = |stream: usize, n: usize| -> RecordBatch {
        batch(&program.streams()[stream], &rows(n).iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (a, b) = (batch_of(0, 150), batch_of(1, 75));
    let order: Vec<u16> = (0..225).map(|i| u16::from(i % 3 == 2)).collect();
    let mut world = World::new(&program);
    world.insert(&program, "D", r#"{"id": "x", "log": []}"#);
    let parts =
        [StreamPart { stream: 0, batch: &a, keep: None }, StreamPart { stream: 1, batch: &b, keep: None }];
    world.apply(&program, &parts, Some(&order));
    let expected: Vec<String> = (0..225)
        .map(|i| if i % 3 == 2 { format!("b{}", i / 3) } else { format!("a{}", i - i / 3) })
        .collect();
    assert_eq!(world.documents("D")[0]["log"], serde_json::json!(expected));
    // row 5 of the record is the second row of B
    let asked = Selector::Id("0-0-5".parse().unwrap());
    let explanation = world.trace.explain(&program, &asked, None).unwrap();
    assert_eq!((explanation.stream.as_str(), &explanation.event["n"]), ("B", &serde_json::json!(1)));
    let wrong = world.executor.apply(
        &program,
        &mut crate::world::Nowhere,
        &parts,
        Some(&[0, 1, 2]),
        (tidemill_types::PartitionId(0), tidemill_types::Offset(0)),
        &mut Trace::off(),
    );
    assert!(wrong.unwrap_err().message().contains("the record has 2 parts, the order refers to part 2"));
}

#[test]
fn batches_of_another_schema_are_refused() {
    let program = program("event A { id: string } key id; event B { id: string, n: int };");
    let b = batch(&program.streams()[1], &[r#"{"id": "x", "n": 1}"#]);
    let mut executor = Executor::new(&program);
    let part = StreamPart { stream: 0, batch: &b, keep: None };
    let at = (tidemill_types::PartitionId(0), tidemill_types::Offset(0));
    let refused = executor.apply(&program, &mut crate::world::Nowhere, &[part], None, at, &mut Trace::off());
    assert!(refused.unwrap_err().message().contains("does not match the declared columns"));
}
