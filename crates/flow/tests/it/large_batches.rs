//! Batches large enough for the code paths of large batches: the output equals that of one event per call,
//! also when the app is saved and restored between two batches.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value as Json, json};
use tidemill_flow::Registry;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::AppRuntime;
use tidemill_flow::snapshot::RestoreMode;

use crate::fed::{Told, parts};

const EVENTS: usize = 1_500;

const QUERIES: [&str; 32] = [
    "from e1=S, e2=S[x > 0.0] within 3 sec select e1.k as a, e2.x as b insert into Out;",
    "from e1=S[n > 2] -> e2=S[x > e1.x] select e1.k as a, e2.x as b insert into Out;",
    "from every e1=S[x > 20.0] -> e2=S[x > e1.x] select e1.k as a, e1.x as b, e2.x as c, e2.n as d insert into Out;",
    "from every e1=S[x > 20.0] -> e2=S[x > e1.x] within 30 millisec select e1.k as a, e2.x as c insert into Out;",
    "from every e1=S -> e2=S[x >= e1.x] select e1.x as b, e2.x as c, e1.k as k insert into Out;",
    "from every e1=S[n > 3] -> e2=S[n < e1.n] within 50 millisec select e1.n as b, e2.n as c insert into Out;",
    "from every e1=S -> e2=S[n <= e1.n] select e1.n as b, e2.n as c, e2.k as k insert into Out;",
    "from every e1=S[x > 50.0] -> e2=S[x > e1.x and n > 4] select e1.n as b, e2.n as c insert into Out;",
    "from every e1=S, e2=S[x > e1.x] select e1.x as a, e2.x as b, e2.k as k insert into Out;",
    "from every e1=S[x > 30.0], e2=S[x > e1.x], e3=S[x > e2.x] select e1.k as k, e2.n as n, e3.x as x insert into Out;",
    "from every e1=S, e2=S[n >= e1.n and x < e1.x], e3=S[n != e1.n] select e1.k as k, e3.k as l insert into Out;",
    "from every e1=S[k == 'a'], e2=S[k == 'b'] select e1.x as x, e2.n as n insert into Out;",
    "from every e1=S, e2=S[x > e1.x] within 5 millisec select e1.x as a, e2.x as b insert into Out;",
    "from S#window.length(20) select k, sum(x) as s, avg(n) as a, count() as c group by k insert into Out;",
    "from S#window.length(300) select sum(n) as s, count() as c insert into Out;",
    "from S[n > 2]#window.length(7) select k, x, sum(n) as s group by k having s > 10 insert into Out;",
    "from S#window.length(0) select k, sum(n) as s insert into Out;",
    "from S#window.length(20)[x > 10.0] select k, sum(x) as s group by k insert into Out;",
    "from S#window.length(20) select k, max(x) as s group by k insert into Out;",
    "from S#window.length(20) select k, sum(x) as s group by k insert all events into Out;",
    "from S#window.time(40 millisec) select k, sum(x * 2) as s, count() as c group by k insert into Out;",
    "from S[x > 60.0]#window.time(15 millisec) select sum(n) as s insert into Out;",
    "from S#window.externalTime(at, 25 millisec) select k, n, sum(x) as s, avg(x) as a group by k, n insert into Out;",
    "from S#window.lengthBatch(70) select k, sum(x) as s, count() as c group by k insert into Out;",
    "from S#window.lengthBatch(64) select sum(x) as s, max(n) as m insert into Out;",
    "from S#window.lengthBatch(100) select k, x insert into Out;",
    "from S#window.lengthBatch(65) select k, x order by x desc limit 3 insert into Out;",
    "from S#window.length(30) as l join T#window.length(20) as r on l.k == r.k and l.n < r.n select l.x as x, r.x as y insert into Out;",
    "from S#window.length(30) as l left outer join T#window.externalTime(at, 20 millisec) as r on l.n == r.n select l.k as x, r.k as y insert into Out;",
    "from S#window.length(9) as l unidirectional join T#window.length(40) as r on l.k == r.k select l.at as x, r.at as y insert into Out;",
    "from S#window.length(9) as l join T#window.length(40) as r on l.k == r.k select l.k as k, count() as c group by l.k insert into Out;",
    "partition with (k of S) begin from S select k, sum(x) as s, max(x) as m, min(n) as l insert into Out; end;",
];

type Event = (&'static str, i64, Vec<Json>);

/// Returns events of two streams; some values are null, some strings long.
fn events(rng: &mut StdRng, late: bool) -> Vec<Event> {
    let mut time = 1_000;
    let event = |_| {
        time += rng.random_range(0..3);
        let at = if late && rng.random_bool(0.05) { time - rng.random_range(0..60) } else { time };
        let k = match rng.random_range(0..20) {
            0 => Json::Null,
            1 => json!("a name of more than twelve bytes"),
            _ => json!(["a", "b", "c", "seven77", "eight888"][rng.random_range(0..5)]),
        };
        let x = if late && rng.random_bool(0.02) {
            Json::Null
        } else {
            json!(f64::from(rng.random_range(0..400)) / 4.0)
        };
        let stream = if rng.random_bool(0.7) { "S" } else { "T" };
        (stream, at, vec![k, x, json!(rng.random_range(0..12)), json!(at)])
    };
    (0..EVENTS).map(event).collect()
}

fn run(plan: &Arc<AppPlan>, events: &[Event], together: usize, saved: bool) -> Told {
    let mut told = Told::default();
    let mut app = AppRuntime::new(plan.clone());
    app.start(0, &mut told);
    for (number, chunk) in events.chunks(together).enumerate() {
        let chunk: Vec<_> =
            chunk.iter().map(|(stream, time, data)| (*stream, *time, data.as_slice())).collect();
        let (parts, order) = parts(&app, &chunk).unwrap();
        // a batch of a single stream takes another code path
        match number % 3 == 2 && parts.len() == 1 {
            true => app.send_batch(parts, None, &mut told).unwrap(),
            false => app.send_batch(parts, Some(&order), &mut told).unwrap(),
        }
        if saved && number % 2 == 0 {
            let mut state = Vec::new();
            app.save(&mut state).unwrap();
            app = AppRuntime::new(plan.clone());
            app.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap();
        }
    }
    told
}

#[test]
fn large_batches_give_what_single_events_do() {
    let seed = std::env::var("TIDEMILL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7_401);
    println!("TIDEMILL_SEED={seed}");
    let registry = Registry::standard();
    let streams = "define stream S (k string, x double, n int, at long);
        define stream T (k string, x double, n int, at long);";
    for (number, query) in QUERIES.iter().enumerate() {
        let plan = Arc::new(compile("app", &format!("{streams} {query}"), &registry, &|_| None).unwrap());
        for (late, one_stream) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut rng = StdRng::seed_from_u64(seed + number as u64);
            let mut events = events(&mut rng, late);
            if one_stream {
                events.retain(|(stream, ..)| *stream == "S");
            }
            let one_by_one = run(&plan, &events, 1, false);
            assert!(
                one_stream && query.contains(" T#") || one_by_one.0.contains_key("Out"),
                "nothing comes out of {query}"
            );
            for (together, saved) in [(100, false), (100, true), (700, false), (1500, false)] {
                let fed = run(&plan, &events, together, saved);
                for (list, rows) in &one_by_one.0 {
                    let found = fed.0.get(list).map_or(&[][..], Vec::as_slice);
                    let at = (0..rows.len().max(found.len())).find(|i| rows.get(*i) != found.get(*i));
                    if let Some(at) = at {
                        panic!(
                            "{query}\n{together} together, late {late}, saved {saved}: {list}, row {at}\n one by one {:?}\n together   {:?}",
                            rows.get(at),
                            found.get(at)
                        );
                    }
                }
            }
        }
    }
}
