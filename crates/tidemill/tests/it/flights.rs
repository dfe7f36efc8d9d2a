//! The flights of January 2013, uninterrupted and interrupted.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::{root, run, serve, sql, tidemill};

/// Returns the counts that the script that built the data took from the CSV itself.
fn expected() -> Value {
    let text = std::fs::read_to_string(root().join("examples/flights/data/expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Checks the counts, which must not depend on interruptions.
fn check(data: &str) {
    let expected = expected();
    let count =
        |stream: &str| sql(data, &format!("SELECT count(*) AS n FROM events.\"{stream}\""))[0]["n"].clone();
    assert_eq!(count("TakeOffEvent"), expected["events"]["TakeOffEvent"]);
    assert_eq!(count("LandingEvent"), expected["events"]["LandingEvent"]);
    assert_eq!(count("CancelEvent"), expected["events"]["CancelEvent"]);
    assert_eq!(count("FlightDelayEvent"), json!(4269));
    let late = "SELECT count(*) AS n FROM docs.\"Flight\" WHERE on_time = false";
    assert_eq!(sql(data, late)[0]["n"], json!(4269));
    let insight = sql(data, "SELECT sum(late) AS late, sum(flights) AS flights FROM docs.\"FlightInsight\"");
    assert_eq!(insight[0]["late"].as_f64(), Some(4269.0));
    assert_eq!(insight[0]["flights"].as_f64(), Some(26483.0));
    let records = sql(data, "SELECT sum(late) AS late FROM docs.\"DelayRecord\"");
    assert_eq!(records[0]["late"].as_f64(), Some(4269.0), "counted across partitions, one by one");
    let fired = sql(data, "SELECT fired FROM system.rules WHERE rule = 'LateTakeOff'");
    assert_eq!(fired[0]["fired"], json!(4269));
    check_queries(data);
    for line in sql(data, "SELECT * FROM system.ledger") {
        assert_eq!((&line["balanced"], &line["duplicate"]), (&json!(true), &json!(0)), "{line}");
    }
}

/// Checks the output of the queries against SQL over their input.
fn check_queries(data: &str) {
    let late = "(CAST(actual AS BIGINT) - CAST(sched AS BIGINT)) / 1000";
    let always = format!(
        "SELECT count(*) AS n FROM (
           SELECT avg(late) OVER w AS mean, count(*) OVER w AS n FROM (
             SELECT tailnum, _partition, _offset, _row, {late} AS late
             FROM events.\"TakeOffEvent\" WHERE tailnum IS NOT NULL)
           WINDOW w AS (PARTITION BY tailnum ORDER BY _partition, _offset, _row ROWS BETWEEN 9 PRECEDING AND CURRENT ROW))
         WHERE n = 10 AND mean / 60000.0 > 60.0"
    );
    let again = format!(
        "SELECT count(*) AS n FROM (
           SELECT kind, late, time, first_value(CASE WHEN kind = 1 AND late > 1200000 THEN time END) IGNORE NULLS OVER (
             PARTITION BY tailnum ORDER BY _partition, _offset, _row ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next
           FROM (
             SELECT 0 AS kind, tailnum, _partition, _offset, _row, _time AS time, {late} AS late FROM events.\"LandingEvent\"
             UNION ALL
             SELECT 1, tailnum, _partition, _offset, _row, _time, {late} FROM events.\"TakeOffEvent\")
           WHERE tailnum IS NOT NULL)
         WHERE kind = 0 AND late > 3600000 AND next - time <= INTERVAL '12 hours'"
    );
    for (stream, query) in [("AlwaysLateEvent", always), ("LateAgainEvent", again)] {
        let put_out = sql(data, &format!("SELECT count(*) AS n FROM events.\"{stream}\""));
        assert!(put_out[0]["n"].as_i64().unwrap() > 10, "{stream}");
        assert_eq!(put_out, sql(data, &query), "{stream}");
    }
}

#[test]
fn january_comes_out_as_counted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let (out, err) = run(&["run", "examples/flights", "--data", data, "--until-idle"], 0);
    assert!(
        out.contains("events/s") && out.contains("LateTakeOff") && out.contains("Ledger"),
        "{out}\n{err}"
    );
    check(data);
    let (out, _) = run(&["run", "examples/flights", "--data", data, "--until-idle"], 0);
    assert!(out.starts_with("0 events applied"), "nothing is read twice: {out}");
    check(data);
    let (why, _) =
        run(&["why", "LateTakeOff", "--data", data, "--event", "flight_id=2013-01-31/UA695/LGA"], 0);
    assert!(why.contains("fired"), "explained after two restarts: {why}");
    assert!(!why.contains("evaluated again"), "it is kept what rules did with it: {why}");
    let (why, _) =
        run(&["why", "LateTakeOff", "--data", data, "--event", "flight_id=2013-01-09/HA51/JFK"], 0);
    assert!(why.contains("LateTakeOff fired") && why.contains("evaluated again over"), "{why}");
    assert!(why.contains("exactly the documents of"), "{why}");
    let (why, _) =
        run(&["why", "UnusualDelay", "--data", data, "--event", "flight_id=2013-01-09/HA51/JFK"], 0);
    assert!(why.contains("FlightInsight documents come neither from events nor from files"), "{why}");
}

#[test]
fn killed_at_random_moments_it_comes_out_the_same() {
    let seed: u64 = std::env::var("TIDEMILL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20130101);
    println!("TIDEMILL_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    for _ in 0..4 {
        let mut child = tidemill(&["run", "examples/flights", "--data", data, "--until-idle"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moment = Duration::from_millis(random.random_range(50..6000));
        let start = Instant::now();
        while start.elapsed() < moment && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    run(&["run", "examples/flights", "--data", data, "--until-idle"], 0);
    check(data);
}

#[test]
fn a_live_system_answers() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let server = serve("examples/flights", dir.path());
    check(data);
    let event = json!({"flight_id": "2013-01-09/HA51/JFK", "tailnum": "N384HA", "fl_no": "HA51",
        "sched": "2013-02-09T14:00:00Z", "actual": "2013-02-09T15:00:00Z"});
    let reply: Value = ureq::post(format!("{}/api/v1/streams/LandingEvent?wait=true", server.base))
        .header("authorization", format!("Bearer {}", server.token))
        .send_json(&event)
        .unwrap()
        .body_mut()
        .read_json()
        .unwrap();
    assert_eq!(reply["duplicates"], json!(1), "this flight has landed already: {reply}");
    let (none, _) = run(&["sql", "--data", data, "-o", "ndjson", "-c", "SELECT 1 AS x WHERE false"], 0);
    assert_eq!(none, "", "a result of no bytes");
    let rejected = sql(data, "SELECT kind, reason FROM system.rejected");
    assert_eq!(rejected[0]["kind"], json!("duplicate"));
    let (why, _) =
        run(&["why", "LateTakeOff", "--data", data, "--event", "flight_id=2013-01-31/UA695/LGA"], 0);
    assert!(why.contains("LateTakeOff") && why.contains("fired"), "{why}");
    let (why, _) =
        run(&["why", "NormalTakeOff", "--data", data, "--event", "flight_id=2013-01-31/UA695/LGA"], 0);
    assert!(why.contains("sched + 20 min >= now"), "{why}");
}
