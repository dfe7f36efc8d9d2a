use std::time::Instant;
use tidemill_flow::Value;
use tidemill_flow::batch::{Batch, Kind};
use tidemill_flow::store::RowStore;
use tidemill_flow::window::{self, Context, Signals, Timers};
use tidemill_types::FieldType;

#[test]
#[ignore]
fn speed() {
    for (call, chunk) in [
        ("length(1000)", 1),
        ("length(1000)", 1000),
        ("time(1000)", 1),
        ("time(1000)", 1000),
        ("externalTime(ts, 1000)", 1),
        ("externalTime(ts, 1000)", 1000),
        ("lengthBatch(1000)", 1),
        ("timeBatch(1000)", 1),
        ("timeBatch(1000)", 1000),
        ("timeLength(1000, 500)", 1),
        ("sort(100, v)", 1),
        ("session(100L, k)", 1),
        ("unique:ever(k)", 1),
        ("frequent(10, k)", 1),
        ("expression('count() <= 100')", 1),
        ("externalTimeBatch(ts, 1000)", 1),
        ("batch()", 1000),
    ] {
        for wants in [false, true] {
            let header = format!("{call} of k string, ts long, v int");
            let make = super::driver::make_of(&header).unwrap();
            let types = vec![FieldType::String, FieldType::Long, FieldType::Int];
            const ROWS: usize = 1000;
            const ROUNDS: usize = 2000;
            let mut best = f64::MAX;
            let mut push = f64::MAX;
            for _ in 0..3 {
                let mut w = make();
                let mut store = RowStore::new(types.clone());
                let mut timers = Timers::default();
                let mut out = Signals::default();
                let mut total = std::time::Duration::ZERO;
                let mut pushing = std::time::Duration::ZERO;
                let mut signals = 0usize;
                for round in 0..ROUNDS {
                    let mut batch = Batch::new(types.clone());
                    for i in 0..ROWS {
                        let t = (round * ROWS + i) as i64;
                        batch.columns[0]
                            .push(Value::text(["a", "b", "c", "d", "e", "f", "g", "h"][(i * 7 + round) % 8]));
                        batch.columns[1].push(Value::Long(t));
                        batch.columns[2].push(Value::Int((t * 7919 % 10007) as i32));
                        batch.times.push(t);
                        batch.kinds.push(Kind::Current);
                    }
                    let first = store.append(&batch, 0..ROWS);
                    let start = Instant::now();
                    out.items.clear();
                    out.ends.clear();
                    for c in 0..ROWS / chunk {
                        let from = first + (c * chunk) as u64;
                        let now = store.time(from + chunk as u64 - 1);
                        while let Some(due) = timers.take_due(now) {
                            w.timer(
                                due,
                                &mut Context {
                                    now,
                                    rows: &mut store,
                                    out: &mut out,
                                    timers: &mut timers,
                                    wants_expired: wants,
                                    searched: false,
                                },
                            )
                            .unwrap();
                        }
                        w.arrive(
                            from..from + chunk as u64,
                            &mut Context {
                                now,
                                rows: &mut store,
                                out: &mut out,
                                timers: &mut timers,
                                wants_expired: wants,
                                searched: false,
                            },
                        )
                        .unwrap();
                    }
                    total += start.elapsed();
                    signals += out.items.len();
                    let n = out.items.len();
                    let start = Instant::now();
                    let mut other = std::mem::take(&mut out);
                    other.items.clear();
                    other.ends.clear();
                    for c in 0..n {
                        other.current(c as u64, round as i64);
                        if c % 2 == 0 {
                            other.end_chunk();
                        }
                    }
                    pushing += start.elapsed();
                    out = std::hint::black_box(other);
                    window::forget(w.as_ref(), &mut store);
                }
                let events = (ROWS * ROUNDS) as f64;
                best = best.min(total.as_nanos() as f64 / events);
                push = push.min(pushing.as_nanos() as f64 / events);
                if signals == usize::MAX {
                    panic!()
                }
            }
            println!(
                "{call:40} chunk {chunk:5} wants {wants:5}: {best:6.1} ns per event, {push:5.1} of pushing signals alone"
            );
        }
    }
}
