//! Pattern inspection: partial matches, and the conditions that the last event did not satisfy.

use tidemill_flow::expr::NoContext;
use tidemill_flow::pattern::{PatternMatcher, StepStatus};
use tidemill_flow::{Batch, EventKind, Registry, Value, replay};
use tidemill_types::FieldType;

const STREAM: &str = "define stream S (symbol string, price double);\n";

/// Returns the optimized and the reference matcher, after these events of stream `S`.
fn after(query: &str, events: &[(i64, &str, f64)]) -> [PatternMatcher; 2] {
    let app = replay::compile("app", &format!("{STREAM}{query}"), &Registry::standard(), &|_| None).unwrap();
    let plan = app.queries[0].state.clone().unwrap();
    let mut machines = [PatternMatcher::new(plan.clone()), PatternMatcher::new_reference(plan)];
    for machine in &mut machines {
        machine.start(0);
        for (time, symbol, price) in events {
            let mut batch = Batch::new([FieldType::String, FieldType::Double]);
            batch.columns[0].push(Value::text(symbol));
            batch.columns[1].push(Value::Double(*price));
            batch.times.push(*time);
            batch.kinds.push(EventKind::Current);
            batch.end_chunk(*time);
            machine.process_batch(0, &batch, &NoContext).unwrap();
        }
    }
    machines
}

fn values(values: &[(String, Value)]) -> String {
    values.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
}

fn line(step: &StepStatus) -> String {
    let mut line = format!("{}: {}", step.step, step.waiting);
    if let Some(newest) = &step.newest {
        line += &format!(" newest {:?} [{}]", newest.time, values(&newest.values));
    }
    if let Some(refused) = &step.failed_condition {
        line += &format!(" refused at {}: {} [{}]", refused.time, refused.condition, values(&refused.values));
    }
    line
}

fn report(machine: &PatternMatcher) -> Vec<String> {
    machine.inspect(&NoContext).iter().map(line).collect()
}

#[test]
fn the_condition_that_failed_is_named_with_its_values() {
    let query = "from every e1=S[price > 20.0] -> e2=S[symbol == e1.symbol and price > e1.price * 2] \
        select e1.price as a, e2.price as b insert into Out;";
    for machine in after(query, &[(1, "x", 30.0), (2, "y", 40.0), (3, "x", 50.0), (4, "y", 10.0)]) {
        let [first, second] = report(&machine).try_into().unwrap();
        assert_eq!(first, "e1: 1 newest Some(3) [] refused at 4: price > 20.0 [price = 10.0]");
        let kept = second.split(" refused ").next().unwrap();
        assert!(kept.starts_with("e2: 3 newest Some(3) ["), "{kept}");
        assert!(kept.contains("e1.symbol = x") && kept.contains("e1.price = 50.0"), "{kept}");
        let refused = "refused at 4: symbol == e1.symbol [symbol = y, e1.symbol = x]";
        assert!(second.ends_with(refused), "{second}");
    }
}

#[test]
fn what_broke_a_sequence_is_named() {
    let query = "from every e1=S[price > 20.0], e2=S[price > e1.price] select e1.price as a insert into Out;";
    for machine in after(query, &[(1, "x", 30.0), (2, "x", 25.0)]) {
        let [first, second] = report(&machine).try_into().unwrap();
        assert!(first.starts_with("e1: 1 newest Some(2)"), "{first}");
        let refused = "refused at 2: price > e1.price [price = 25.0, e1.price = 30.0]";
        assert_eq!(second, format!("e2: 1 newest Some(2) [e1.price = 25.0] {refused}"));
    }
}

#[test]
fn counts_are_reported_as_well() {
    let query = "from every e1=S<2:3> -> e2=S[price > 100.0] select e1[0].price as a insert into Out;";
    for machine in after(query, &[(1, "x", 30.0), (2, "x", 25.0), (3, "x", 20.0)]) {
        let [_, second] = report(&machine).try_into().unwrap();
        assert!(second.starts_with("e2: 1 newest Some(3) [e1[0].price = 30.0]"), "{second}");
        assert!(second.ends_with("refused at 3: price > 100.0 [price = 20.0]"), "{second}");
    }
}
