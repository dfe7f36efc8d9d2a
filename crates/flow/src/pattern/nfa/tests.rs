use tidemill_types::FieldType;

use super::*;
use crate::columns::value::Value;
use crate::expr::NoContext;
use crate::limits::PatternLimits;
use crate::pattern::{EventSelector, ReferenceKind, StepKind, StepPlan};
use crate::snapshot::{Error, Reader, SnapshotWriter};

/// Creates a matcher of `every a=0<min:> -> b=1`, selecting `a[0]` and `b`.
fn machine(min: usize, within: Option<i64>) -> NfaMatcher {
    let step = |stream, form, next, every| StepPlan {
        stream,
        filters: vec![],
        filter_texts: vec![],
        references: vec![],
        kind: form,
        is_first: stream == 0,
        next,
        every_end: every,
        every_in: every,
    };
    let what = ReferenceKind::Attribute(0);
    let read =
        |step| MatchReference { step, selector: EventSelector::First(0), kind: what, ty: FieldType::Int };
    let plan = PatternPlan {
        sequence: false,
        steps: vec![
            step(0, StepKind::Count { min, max: None }, Some(1), Some(0)),
            step(1, StepKind::Stream, None, None),
        ],
        within,
        columns: vec![read(0), read(1)],
        limits: PatternLimits { partial_matches_max: 100, ..PatternLimits::default() },
        ..PatternPlan::default()
    };
    NfaMatcher::new(Arc::new(plan))
}

fn send(machine: &mut NfaMatcher, stream: usize, time: i64, value: i32) -> Result<usize, EvalError> {
    let mut batch = Batch::new([FieldType::Int]);
    batch.columns[0].push(Value::Int(value));
    batch.times.push(time);
    batch.kinds.push(EventKind::Current);
    batch.end_chunk(time);
    machine.process_batch(stream, &batch, &NoContext)?;
    Ok(machine.take_matches().map_or(0, |m| m.batch.len()))
}

fn saved(machine: &NfaMatcher) -> Vec<u8> {
    let mut state = Vec::new();
    let mut out = SnapshotWriter::new(&mut state).unwrap();
    out.section("pattern").unwrap();
    machine.save(&mut out).unwrap();
    out.finish().unwrap();
    state
}

fn taken_back(machine: &mut NfaMatcher, state: &[u8]) -> Result<(), Error> {
    let mut input = state;
    let mut from = Reader::new(&mut input)?;
    from.section("pattern")?;
    machine.restore(&mut from)?;
    from.finish()
}

#[test]
fn a_saved_state_goes_on_where_it_was() {
    let mut first = machine(2, None);
    first.start(0);
    for time in 1..=3 {
        assert_eq!(send(&mut first, 0, time, 1), Ok(0));
    }
    let mut second = machine(2, None);
    second.start(0);
    taken_back(&mut second, &saved(&first)).unwrap();
    assert_eq!(saved(&second), saved(&first));
    // the complete collection advances; the one that just began needs one more event
    assert_eq!(send(&mut second, 1, 4, 2), Ok(1));
    assert_eq!(send(&mut second, 0, 5, 2), Ok(0));
    assert_eq!(send(&mut second, 1, 6, 2), Ok(1));
    let mut other = Vec::new();
    let mut out = SnapshotWriter::new(&mut other).unwrap();
    out.section("pattern").unwrap();
    // a list of one match that refers to a match not written before
    [1, 7].into_iter().for_each(|n| out.number(n).unwrap());
    out.finish().unwrap();
    assert!(matches!(taken_back(&mut second, &other), Err(Error::Damaged { .. })));
}

#[test]
fn waiting_matches_are_bounded() {
    let mut machine = machine(1, Some(10));
    machine.start(0);
    assert_eq!(send(&mut machine, 0, 1, 1), Ok(0));
    let failed = (2..100).find_map(|_| send(&mut machine, 0, 5, 1).err());
    assert!(failed.is_some_and(|failure| failure.to_string().contains("`within`")));
    // once the matches expired, new ones are accepted
    assert_eq!(send(&mut machine, 0, 20, 1), Ok(0));
    assert!(send(&mut machine, 1, 21, 1).is_ok_and(|matches| matches > 0));
}
