//! Exceeding a limit of an app fails with a message.

use tidemill_flow::EvalError;
use tidemill_flow::limits::Limits;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Column, Registry, Value};
use tidemill_types::FieldType;

#[derive(Default)]
struct Failures(Vec<String>);

impl OutputHandler for Failures {
    fn events(&mut self, _: &str, _: &Batch) {}
    fn emission(&mut self, _: &str, _: &Batch) {}
    fn failure(&mut self, of: &str, failure: &EvalError) {
        self.0.push(format!("{of}: {}", failure));
    }
}

#[test]
fn full_tables_and_windows_say_so() {
    let app = "@app:playback define stream A (v int); define stream B (v int); define stream C (v int);
        define stream D (v int); define stream E (v int); define stream F (v int);
        define aggregation G from F select count() as n aggregate every sec;
        define table T (v int); define window W (v int) time(1 sec);
        @info(name='table') from A insert into T;
        @info(name='named') from B insert into W;
        @info(name='window') from C#window.time(1 sec) select sum(v) as total insert into Sums;
        @info(name='join') from D#window.time(1 sec) as a join A as b select a.v as v insert into Joined;
        partition with (v of E) begin
          @info(name='inside') from E#window.length(5) select v insert into Inside;
        end;";
    let plan = compile("app", app, &Registry::standard(), &|_| None).expect("an app");
    let plan =
        plan.with_limits(Limits { table_rows: 3, window_rows: 4, aggregation_rows: 2, ..Limits::default() });
    let mut app = AppRuntime::new(plan.into());
    let mut failures = Failures::default();
    app.start(0, &mut failures);
    for stream in 0..6 {
        for time in 0..5 {
            let mut column = Column::new(FieldType::Int);
            column.push(Value::Int(1));
            app.send(stream, vec![column], vec![time * if stream == 5 { 1000 } else { 1 }], &mut failures)
                .expect("a stream");
        }
    }
    let table = "table: table `T` full: limit of 3 rows".to_owned();
    let window = |of: &str| format!("{of}: window full: limit of 4 rows");
    let aggregation = "G: aggregation `G` full: limit of 2 rows".to_owned();
    let expected = [
        table.clone(),
        table,
        window("named"),
        window("window"),
        window("join"),
        window("inside"),
        aggregation.clone(),
        aggregation.clone(),
        aggregation,
    ];
    assert_eq!(failures.0, expected);
    assert_eq!(app.on_demand("from T select v").expect("rows").len(), 3);
}

#[test]
fn full_output_rates_say_so_and_go_on_after_a_beat() {
    let app = "@app:playback define stream A (v int);
        @info(name='all') from A select v output every 1 sec insert into All;
        @info(name='last') from A select v, count() as n group by v output last every 1 sec insert into Last;
        @info(name='delayed') from A#window.delay(1) select v output snapshot every 1 sec insert into Delayed;
        @info(name='held') from A#window.length(2) select v output snapshot every 1 sec insert into Held;";
    let plan = compile("app", app, &Registry::standard(), &|_| None).expect("an app");
    let plan = plan.with_limits(Limits { rate_rows: 3, ..Limits::default() });
    let mut app = AppRuntime::new(plan.into());
    let mut failures = Failures::default();
    app.start(0, &mut failures);
    let mut send = |time: i64, v: i32, failures: &mut Failures| {
        let mut column = Column::new(FieldType::Int);
        column.push(Value::Int(v));
        app.send(0, vec![column], vec![time], failures).expect("a stream");
        std::mem::take(&mut failures.0)
    };
    let full = |of: &str| format!("{of}: output rate limiter full: limit of 3 rows");
    for n in 0..3 {
        assert_eq!(send(n * 10, n as i32, &mut failures), [] as [String; 0]);
    }
    // The stream's first query fails, so that the others do not get the event; a delayed event is emitted by
    // its timer.
    assert_eq!(send(30, 3, &mut failures), [full("all")]);
    assert_eq!(send(1000, 3, &mut failures), [] as [String; 0]);
    assert_eq!(send(1010, 4, &mut failures), [full("delayed")]);
    assert_eq!(send(1020, 5, &mut failures), [full("delayed")]);
}
