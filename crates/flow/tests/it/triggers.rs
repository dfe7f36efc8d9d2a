//! Triggers after a period in which the app did not run.

use tidemill_flow::EvalError;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Registry};

const APP: &str = "define trigger Seconds at every 10 sec;
    define trigger Minutes at '0 * * * * ?';
    define trigger Start at 'Start';
    from Seconds select triggered_time insert into O;";

#[derive(Default)]
struct Fired(Vec<(String, i64)>);

impl OutputHandler for Fired {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream != "O" {
            self.0.extend(events.times.iter().map(|at| (stream.to_owned(), *at)));
        }
    }
    fn emission(&mut self, _: &str, _: &Batch) {}
    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {}", failure);
    }
}

fn fired(passes_over: bool, moves: &[i64]) -> Vec<(String, i64)> {
    let plan = compile("app.siddhi", APP, &Registry::standard(), &|_| None).unwrap();
    let mut app = AppRuntime::new(plan.into());
    let mut seen = Fired::default();
    app.start(5_000, &mut seen);
    for to in moves {
        if passes_over {
            app.skip_triggers(*to, 60_000);
        }
        app.advance(*to, &mut seen);
    }
    seen.0
}

fn at(name: &str, instants: &[i64]) -> Vec<(String, i64)> {
    instants.iter().map(|at| (name.to_owned(), *at)).collect()
}

#[test]
fn after_a_standstill_a_trigger_fires_once() {
    let of =
        |all: Vec<(String, i64)>, name: &str| all.into_iter().filter(|(n, _)| n == name).collect::<Vec<_>>();
    // after ten hours of standstill, the triggers continue on their schedule
    let moves = [36_000_000, 36_015_000, 36_061_000];
    let all = fired(true, &moves);
    let seconds = [35_995_000, 36_005_000, 36_015_000, 36_025_000, 36_035_000, 36_045_000, 36_055_000];
    assert_eq!(of(all.clone(), "Seconds"), at("Seconds", &seconds));
    assert_eq!(of(all.clone(), "Minutes"), at("Minutes", &[36_000_000, 36_060_000]));
    assert_eq!(of(all, "Start").len(), 1);
    // on event time, each period fires
    assert_eq!(of(fired(false, &moves), "Seconds").len(), 3_605);
}

#[test]
fn what_is_due_for_less_fires_each_time() {
    let moves = [20_000, 64_000, 124_999];
    assert_eq!(fired(true, &moves), fired(false, &moves));
}

#[derive(Default)]
struct Ids(Vec<String>);

impl OutputHandler for Ids {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Ids" {
            self.0.extend((0..events.len()).map(|row| format!("{:?}", events.columns[0].get(row))));
        }
    }
    fn emission(&mut self, _: &str, _: &Batch) {}
    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {failure}");
    }
}

#[test]
fn a_read_draws_no_random_number_of_the_app() {
    let text = "define trigger T at every 1 sec; define table K (k string);
        from T select 'a' as k insert into K;
        from T select UUID() as id insert into Ids;";
    let ids = |reads: bool| {
        let plan = compile("app.siddhi", text, &Registry::standard(), &|_| None).unwrap();
        let mut app = AppRuntime::new(plan.into());
        let mut seen = Ids::default();
        app.start(0, &mut seen);
        for to in [1_000, 2_000, 3_000] {
            app.advance(to, &mut seen);
            if reads {
                assert_eq!(app.on_demand("from K select UUID() as id").unwrap().len(), to as usize / 1_000);
            }
        }
        seen.0
    };
    assert_eq!(ids(false).len(), 3);
    assert_eq!(ids(true), ids(false));
}
