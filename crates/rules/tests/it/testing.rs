//! Tests of apps: good ones pass, bad ones say what differs, and files that are wrong say where.

use tidemill_rules::Program;
use tidemill_rules::testing::run_file;

const RULES: &str = r#"
event TakeOffEvent {
  flight_id: string, tailnum: string, sched: time, actual: time,
} key tailnum id flight_id time actual;
event FlightDelayEvent { flight_no: string, flight_id: string, delay_min: double } key flight_no;
entity Flight key id shard tailnum;
entity Insight key id replicated;
relation flight(): Flight by flight_id;
rule LateTakeOff {
  when {
    toe: TakeOffEvent(sched + 20 min < now);
    flight: toe.flight();
  } then {
    update flight.departed = true;
    update flight { on_time = false, seen.at = now };
    emit new FlightDelayEvent(flight.fl_no(), toe.flight_id, (toe.actual - toe.sched) / 1 min);
  }
}
rule New priority -1 { when { t: TakeOffEvent(); not t.flight(); } then { insert Flight { id: t.flight_id, tailnum: t.tailnum }; } }
rule Agg { aggregate { t: TakeOffEvent(); } groupby { t.tailnum } do { insert Insight { id: t.tailnum, n: count() }; } }
"#;

fn run(text: &str) -> String {
    let program = Program::from_texts([("app.rules", RULES)]).unwrap_or_else(|e| panic!("{e}"));
    match run_file(&program, "app.test", text) {
        Err(problems) => problems.iter().map(|p| format!("{p}\n")).collect(),
        Ok(results) => {
            let mut out = String::new();
            for result in results {
                out.push_str(&format!("{} {}\n", if result.passed() { "ok" } else { "FAILED" }, result.name));
                result.failures.iter().for_each(|f| out.push_str(&format!("{f}\n")));
            }
            out
        }
    }
}

#[test]
fn good_tests_pass() {
    let text = r#"
# what the README shows
test a late flight is marked
given documents Flight
{"id": "F1", "tailnum": "N1", "fl_no": "UA1"}
given events TakeOffEvent
{"flight_id": "F1", "tailnum": "N1", "sched": "2013-01-01T10:00:00Z", "actual": "2013-01-01T10:30:00Z"}
then events FlightDelayEvent
{"flight_no": "UA1", "delay_min": 30}
then documents Flight
{"id": "F1", "departed": true, "on_time": false, "seen": {"at": "2013-01-01T10:30:00Z"}, "gone": null}
then only documents Flight
{"id": "F1"}
then no documents Flight
{"on_time": true}
then fired LateTakeOff 1
then not fired New

test nothing comes of an event in time, and duplicates count once
given events TakeOffEvent
{"flight_id": "F9", "tailnum": "N1", "sched": "2013-01-01T10:00:00Z", "actual": "2013-01-01T10:10:00Z"}
{"flight_id": "F9", "tailnum": "N1", "sched": "2013-01-01T10:00:00Z", "actual": "2013-01-01T10:30:00Z"}
then no events FlightDelayEvent
then only documents Flight
{"id": "F9"}
then fired New 1
"#;
    assert_eq!(
        run(text),
        "ok a late flight is marked\nok nothing comes of an event in time, and duplicates count once\n"
    );
}

#[test]
fn differences_are_shown() {
    let text = r#"test wrong in every way
given documents Flight
{"id": "F1", "tailnum": "N1", "fl_no": "UA1"}
given events TakeOffEvent
{"flight_id": "F1", "tailnum": "N1", "sched": "2013-01-01T10:00:00Z", "actual": "2013-01-01T10:25:00Z"}
{"flight_id": "F2", "tailnum": "N1", "sched": "2013-01-01T10:00:00Z", "actual": "2013-01-01T10:05:00Z"}
then events FlightDelayEvent
{"flight_no": "UA1", "delay_min": 30}
then no events FlightDelayEvent
then documents Flight
{"id": "F1", "on_time": true, "gate": 4}
{"id": "F7"}
then only documents Flight
{"id": "F1"}
then no documents Flight
{"departed": true}
then fired LateTakeOff 2
"#;
    let expected = r#"FAILED wrong in every way
app.test:8: expected a FlightDelayEvent event like this; the nearest is {"delay_min":25.0,"flight_id":"F1","flight_no":"UA1"}
  delay_min: expected 30, found 25.0
app.test:9: expected no FlightDelayEvent event, found 1: {"delay_min":25.0,"flight_id":"F1","flight_no":"UA1"}
app.test:11: expected a Flight document like this; the nearest is {"_id":"F1","departed":true,"fl_no":"UA1","id":"F1","on_time":false,"seen":{"at":"2013-01-01T10:25:00Z"},"tailnum":"N1"}
  gate: expected 4, it is missing
  on_time: expected true, found false
app.test:12: expected a Flight document like this; the nearest is {"_id":"F1","departed":true,"fl_no":"UA1","id":"F1","on_time":false,"seen":{"at":"2013-01-01T10:25:00Z"},"tailnum":"N1"}
  id: expected "F7", found "F1"
app.test:13: expected no further Flight document, found {"_id":"F2","id":"F2","tailnum":"N1"}
app.test:16: expected no Flight document like this, found {"_id":"F1","departed":true,"fl_no":"UA1","id":"F1","on_time":false,"seen":{"at":"2013-01-01T10:25:00Z"},"tailnum":"N1"}
app.test:17: expected LateTakeOff to fire 2 times, it fired once
  TakeOffEvent 0-0-1: {"actual":"2013-01-01T10:05:00Z","flight_id":"F2","sched":"2013-01-01T10:00:00Z","tailnum":"N1"}
  LateTakeOff did not fire
    condition 1, line 11: sched + 20 min < now
    sched + 20 min < now is false: sched + 20 min = 2013-01-01T10:20:00Z, now = 2013-01-01T10:05:00Z, sched = 2013-01-01T10:00:00Z
      sched + 20 min = 2013-01-01T10:20:00Z
      now = 2013-01-01T10:05:00Z
      sched = 2013-01-01T10:00:00Z
"#;
    assert_eq!(run(text), expected);
}

#[test]
fn a_rule_that_fails_fails_the_test() {
    let text = r#"test twice
given events TakeOffEvent
{"tailnum": "N1"}
{"flight_id": 5}
then fired New 0
"#;
    let expected = "FAILED twice
app.test:4: field `flight_id`: expected string (text in quotes), found 5
app.test:3: rule New failed on this event: a new Flight needs its key `id`, which is missing
";
    assert_eq!(run(text), expected);
}

#[test]
fn malformed_files_say_where() {
    let text = r#"{"early": true}
given events TakeOffEvent
test
test one
given document Flight
given events TakeOff
{"not": "reported twice"}
given documents Flight
{"tailnum": "N1"}
{"id": "x"
[1]
then events FlightDelayEvent
{"flight_noo": 1}
then fired LateTakeOf 1
then fired LateTakeOff often
then fired Agg 1
then fired LateTakeOff 1
{"x": 1}
then nothing
given events TakeOffEvent
"#;
    let expected = "app.test:2: expected `test NAME` first
app.test:3: expected a name: `test a late flight is marked`
app.test:5: expected `test`, `given`, `then` or a JSON object, found `given document Flight`
app.test:6: there is no event `TakeOff`. Known: FlightDelayEvent, TakeOffEvent
app.test:9: a Flight needs its key `id`
app.test:10: expected one JSON object on this line: EOF while parsing an object at line 1 column 10
app.test:11: expected `test`, `given`, `then` or a JSON object, found `[1]`
app.test:13: stream `FlightDelayEvent` has no field `flight_noo`. Did you mean `flight_no`?
app.test:14: there is no rule `LateTakeOf`. Did you mean `LateTakeOff`?
app.test:15: expected how often `LateTakeOff` fires, found `often`
app.test:16: `Agg` is an aggregate: it runs over everything, not in a test
app.test:18: an object must follow `given …` or `then …` with events or documents
app.test:19: expected `then events STREAM`, `then documents ENTITY` (each perhaps with `no` or `only`), or `then fired RULE 1`, found `then nothing`
app.test:20: everything given comes before the first `then`; begin another `test`
";
    assert_eq!(run(text), expected);
}
