use proptest::prelude::*;

use super::*;

/// Group, value and aggregate of the pending events, in order.
type Model = Vec<(u8, i64, i64)>;

fn event((group, value, aggregate): (u8, i64, i64)) -> Batch {
    let mut event = Batch::new([FieldType::Long, FieldType::Long]);
    // some are null
    event.columns[0].push(if value == 0 { Value::Null } else { Value::Long(value) });
    event.columns[1].push(Value::Long(aggregate));
    event.times.push(aggregate);
    event.kinds.push(EventKind::Current);
    event.groups.push(group.to_string());
    event
}

fn shown(waiting: &PendingOutput) -> Vec<(i64, i64)> {
    let mut out = Batch::new([FieldType::Long, FieldType::Long]);
    waiting.copy_into(false, &mut out);
    let long = |c: usize, row| out.columns[c].get(row).as_i64().unwrap_or(0);
    (0..out.len()).map(|row| (long(0, row), long(1, row))).collect()
}

fn taken_back(waiting: &PendingOutput, aggregates: Vec<bool>) -> PendingOutput {
    let mut state = Vec::new();
    let mut out = SnapshotWriter::new(&mut state).unwrap();
    out.section("waiting").unwrap();
    waiting.save(&mut out).unwrap();
    out.finish().unwrap();
    let mut input = state.as_slice();
    let mut from = Reader::new(&mut input).unwrap();
    from.section("waiting").unwrap();
    let mut other = PendingOutput::new(waiting.rows.types().to_vec(), aggregates);
    other.restore(&mut from).unwrap();
    from.finish().unwrap();
    other
}

proptest! {
    /// Compares with a list that is searched from the front and rewritten.
    #[test]
    fn it_is_a_list(steps in prop::collection::vec((any::<bool>(), 0..3_u8, 0..4_i64), 0..200)) {
        let aggregates = vec![false, true];
        let mut waiting = PendingOutput::new(vec![FieldType::Long; 2], aggregates.clone());
        let mut model = Model::new();
        for (i, (arrives, group, value)) in (1..).zip(steps) {
            let input = event((group, value, i));
            if arrives {
                waiting.add(&input, 0);
                model.push((group, value, i));
            } else {
                waiting.remove(&input, 0);
                if let Some(at) = model.iter().position(|(g, v, _)| (*g, *v) == (group, value)) {
                    model.remove(at);
                }
            }
            model.iter_mut().filter(|(g, ..)| *g == group).for_each(|(.., a)| *a = i);
            let expected: Vec<_> = model.iter().map(|(_, v, a)| (*v, *a)).collect();
            prop_assert_eq!(shown(&waiting), expected);
            if i % 16 == 0 {
                waiting = taken_back(&waiting, aggregates.clone());
            }
        }
    }

    #[test]
    fn one_of_each_group_waits(steps in prop::collection::vec((0..4_u8, 0..4_u8), 0..100)) {
        let mut waiting = PendingOutput::new(vec![FieldType::Long; 2], vec![]);
        let mut model = Model::new();
        for (i, (what, group)) in (1..).zip(steps) {
            let place = model.iter().position(|(g, ..)| *g == group);
            match (what, place) {
                (0, _) => {
                    waiting.remove_group(&group.to_string());
                    model.retain(|(known, ..)| *known != group);
                }
                (_, Some(at)) => model[at] = (group, i, i),
                (_, None) => model.push((group, i, i)),
            }
            if what > 0 {
                waiting.replace(&event((group, i, i)), 0);
            }
            prop_assert_eq!(shown(&waiting), model.iter().map(|(_, v, a)| (*v, *a)).collect::<Vec<_>>());
            if i % 16 == 0 {
                waiting = taken_back(&waiting, vec![]);
            }
        }
    }
}

#[test]
fn rows_that_left_are_forgotten() {
    let mut waiting = PendingOutput::new(vec![FieldType::Long; 2], vec![false, true]);
    for i in 1..100_000 {
        waiting.add(&event((0, i, i)), 0);
        if i > 10 {
            // not the oldest
            waiting.remove(&event((0, i - 3, i)), 0);
        }
    }
    assert_eq!(waiting.order.len(), 10);
    assert!(waiting.rows.rows() < 4 * SEGMENT_ROWS, "{} rows", waiting.rows.rows());
    assert!(waiting.index.as_ref().is_some_and(|index| index.len() == 10));
}
