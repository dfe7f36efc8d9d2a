//! Keys without an app.

use std::sync::Arc;

use tidemill_types::FieldType;

use super::{EventDestination, PartitionPlan, PartitionRuntime};
use crate::columns::batch::{Batch, EventKind};
use crate::columns::value::Value;
use crate::expr::NoContext;
use crate::registry::Registry;

/// Compiles the partition of an app whose first stream is `S (k string, v int)`.
fn plan(partition: &str) -> Arc<PartitionPlan> {
    let text = format!("define stream S (k string, v int); define stream R (k string); {partition}");
    let app = crate::replay::compile("app.siddhi", &text, &Registry::standard(), &|_| None).unwrap();
    app.partitions[0].clone()
}

fn event(key: &str, time: i64) -> Batch {
    let mut batch = Batch::new([FieldType::String, FieldType::Int]);
    batch.columns[0].push(Value::text(key));
    batch.columns[1].push(Value::Int(1));
    batch.times.push(time);
    batch.kinds.push(EventKind::Current);
    batch.end_chunk(time);
    batch
}

/// Sends an event. Returns the number of rows that the first query emits.
fn push(partition: &mut PartitionRuntime, key: &str, time: i64) -> usize {
    let event = event(key, time);
    let EventDestination::Runs(cuts, None) = partition.route(0, &event, time, &NoContext) else {
        panic!("no key")
    };
    assert_eq!(cuts.len(), 1);
    let id = partition.key_for_event(&cuts[0].key, time).unwrap();
    partition.push(id, 0, 0, &cuts[0].of(&event), &NoContext).unwrap().len()
}

const TIME: &str = "@purge(enable='true', interval='100 milliseconds', idle.period='250 milliseconds')
    partition with (k of S) begin from S#window.time(1 sec) select k, v insert all events into Out; end;";

#[test]
fn heads_come_by_age_then_by_key() {
    let mut partition = PartitionRuntime::new(plan(TIME));
    partition.start(0);
    for (key, time) in [("b", 10), ("a", 10), ("c", 5), ("b", 20)] {
        assert_eq!(push(&mut partition, key, time), 1);
    }
    assert_eq!(partition.next_timer(), Some(1005));
    assert_eq!(partition.pop_due(0, 1004), None);
    let mut fired = Vec::new();
    while let Some(key) = partition.pop_due(0, 1010) {
        while let Some((0, out)) = partition.fire_timer(key, 0, 1010, &NoContext) {
            fired.push(out.unwrap().columns[0].get(0).to_string());
        }
    }
    assert_eq!(fired, ["c", "b", "a"]);
    assert_eq!(partition.next_timer(), Some(1020));
}

#[test]
fn dropped_keys_leave_nothing() {
    let mut partition = PartitionRuntime::new(plan(TIME));
    partition.start(1000);
    assert_eq!(partition.next_purge(1000, None), None, "there is no key");
    push(&mut partition, "a", 1010);
    push(&mut partition, "b", 1130);
    push(&mut partition, "c", 1140);
    // a is idle for too long from 1261 on, and the next purge is at 1300
    assert_eq!(partition.next_purge(1140, None), Some(1300));
    assert_eq!(partition.next_purge(1140, Some(1150)), Some(1200), "something is due before");
    partition.purge(1300);
    assert_eq!((partition.len(), partition.find("a")), (2, None));
    push(&mut partition, "b", 1390);
    partition.purge(1400);
    assert_eq!(partition.len(), 1);
    assert_eq!(partition.next_timer(), Some(2130));
    // indexes of purged keys are used again, but the order is that of age
    push(&mut partition, "d", 1400);
    push(&mut partition, "e", 1400);
    let keys = ["b", "d", "e"].map(|key| partition.find(key).unwrap());
    assert_eq!(partition.keys(), keys);
    partition.purge(9000);
    assert_eq!(partition.len(), 0);
    assert_eq!((partition.next_timer(), partition.next_purge(9000, None)), (None, None));
}

#[test]
fn queries_are_made_when_events_reach_them() {
    let plan = plan(
        "partition with (k of S) begin
            from S[v > 5] select k insert into #Rare;
            from #Rare#window.time(5) select k insert into Out;
            from S select k output all every 1 sec insert into Out;
            from S select k output first every 1 sec insert into Out;
            from not R for 1 sec select 1 as k insert into Out2;
            from every e1=S -> e2=S select e1.k as k insert into Out;
        end;",
    );
    let at_once: Vec<bool> = plan.queries.iter().map(|q| PartitionPlan::starts_with_key(q)).collect();
    assert_eq!(at_once, [false, false, true, false, true, false]);
    let schedulers: Vec<usize> = (0..6).map(|query| plan.schedulers_of(query).len()).collect();
    assert_eq!(schedulers, [0, 1, 1, 0, 1, 0]);
}

#[test]
fn group_by_is_told() {
    let told = |text: &str| plan(text).as_group_by().is_some();
    assert!(told("partition with (k of S) begin from S select sum(v) as s insert into Out; end;"));
    assert!(told(
        "partition with (v % 3 of S) begin from S[v > 1] select k, v insert into #M;
         from #M select k, sum(v) as s group by k output last every 3 events insert into Out; end;"
    ));
    for other in [
        "partition with (v < 3 as 'x' of S) begin from S select k insert into Out; end;",
        "partition with (k of S, k of R) begin from S select k insert into Out; from R select k insert into Out; end;",
        "partition with (k of S) begin from S select k insert into Out; from R select k insert into Out; end;",
        "partition with (k of S) begin from S#window.length(2) select k insert into Out; end;",
        "partition with (k of S) begin from S[sum(v) > 5] select k insert into Out; end;",
        "partition with (k of S) begin from S select k output all every 1 sec insert into Out; end;",
        "partition with (k of S) begin from e1=S -> e2=S select e1.k as k insert into Out; end;",
        "partition with (k of S) begin from S join R#window.length(1) select S.k as k insert into Out; end;",
        "@purge(enable='true', idle.period='1 sec') partition with (k of S) begin from S select k insert into Out; end;",
    ] {
        assert!(!told(other), "{other}");
    }
}
