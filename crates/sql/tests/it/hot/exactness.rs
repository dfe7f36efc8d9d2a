//! Random tables: each rewritten statement has the answer that rows give.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_sql::SqlOptions;

use super::plans::plan as plan_of;
use super::tables::{Sessions, Shape, answer, points};
use crate::fixture;

/// Statements, and what of the table serves them if nothing prevents it.
const STATEMENTS: &[(&str, &str)] = &[
    (
        "select k, date_bin(interval '10 minutes', _time) as b, avg(v), sum(v), count(v), count(*), min(n), max(n), sum(n),
           avg(n), sum(m), max(m), count(s) from Points group by k, b",
        "aggregates",
    ),
    (
        "select date_bin(interval '10 minutes', at, timestamp '2000-01-01') as b, k, avg(v) from Points group by 1, 2",
        "aggregates",
    ),
    ("select time_bucket('7 minutes', _time) as b, k, sum(v), max(_time) from Points group by b, k", "aggregates"),
    ("select time_bucket('1 day', _time, timestamp '2020-01-01T06:00:00') as b, sum(n) from Points group by b", "aggregates"),
    (
        "select date_bin(interval '1 day', _time), date_bin(interval '1 hour', _time), k, count(*), avg(n) from Points
           group by 1, 2, 3 having avg(n) < 2.5",
        "aggregates",
    ),
    ("select k, min(v), max(v) from Points group by k", "aggregates"),
    ("select avg(v), sum(n), count(*), min(at), max(at) from Points", "aggregates"),
    ("select avg(v), count(*) from Points where _time < '2019-01-01'", "aggregates"),
    (
        "select k, count(*), avg(v) from Points where _time >= '2020-01-01T00:13:07.646325Z' and _time < '2020-01-01T00:51:00Z'
           group by k",
        "aggregates",
    ),
    (
        "select time_bucket('10 minutes', at) as b, k, count(*), sum(v) from Points
           where at > '2020-01-01T00:13:07.646325Z' and at <= '2020-01-01T23:51:00Z' group by b, k",
        "aggregates",
    ),
    ("select k, avg(m), count(*) from Points where v > 50 and n <> 2 group by k", "aggregates"),
    ("select sum(n), count(*) from Points where s like '%1'", "aggregates"),
    (
        "select time_bucket('10 minutes', _time) as b, k, avg(case when n = 0 then 1.0 else 0.0 end) >= 0.5 from Points
           group by b, k",
        "aggregates",
    ),
    (
        "select k, count(*) filter (where n = 1), sum(v) filter (where v < 20), avg(v + n) from Points where m % 2 = 0
           group by k",
        "aggregates",
    ),
    ("select time_bucket('1 hour', _time) as b, avg(v) from Points where k = 3 or k is null group by b", "aggregates"),
    ("select count(distinct n), count(*) from Points", "rows"),
    ("select k, 10 / n from Points where n > 0", "rows"),
    ("select k, sum(100 / n), count(*) from Points where n > 0 group by k", "aggregates"),
    (
        "select k, v, s from (select *, row_number() over (partition by k order by _time desc) as rn from Points) where rn = 1",
        "latest",
    ),
    (
        "select p.area, d.v from docs.places p join (select k, v, row_number() over (partition by k order by at desc) as rn
           from Points where at >= '2020-01-01T00:20:00Z') d on d.k = p._id and d.rn = 1 where p.area = 'south' and d.v > 10",
        "latest",
    ),
    (
        "select k, v from (select *, row_number() over (partition by k order by _time desc) as rn from Points
           where _time < '2020-01-01T00:30:00Z') where rn = 1",
        "rows",
    ),
    (
        "select k, v from (select *, row_number() over (partition by k order by _time desc) as rn from Points where n = 1)
           where rn = 1",
        "rows",
    ),
    ("select distinct on (k) k, v, m from Points order by k, _time desc", "latest"),
    ("select k, last(v, _time), last(n * 2, at) from Points group by k", "latest"),
    ("select k, v, s, _time from latest('events.Points') where n > 1", "latest"),
    ("select * exclude (_received, _partition, _offset, _row) from latest('Points')", "latest"),
    ("select k, v from Points where k = 2 order by _time desc limit 1", "latest"),
    ("select max(v) from (select v from Points where k = 2 and _time > '2020-01-01' order by _time desc limit 3)", "rows"),
    (
        "select p.area, r.v, r.m from docs.places p join Points r on r.k = p._id where p._id = 4 and r._time >= '2020-01-01'
           order by r._time desc limit 1",
        "latest",
    ),
    (
        "select p.area, avg(r.v), sum(r.n), count(*), count(r.v), min(r.n), max(r.m), avg(p.weight), count(p.weight),
           min(p.weight) from docs.places p join Points r on r.k = p._id where r.v > 1 and p.weight > 0 group by p.area",
        "aggregates",
    ),
    (
        "select p.area, p.weight from docs.places p join Points r on r.k = p._id
           where r._time >= '2020-01-01T00:10:01Z' and r._time < '2020-01-01T00:20:01Z' group by p.area, p.weight
           having avg(r.v) < 50",
        "aggregates",
    ),
    (
        "select a.k, a.s, b.s, l.v from (select k, sum(n) as s from Points group by k) a
           join (select k, sum(n) as s from Points where v < 50 group by k) b on a.k = b.k join latest('Points') l on l.k = a.k",
        "latest",
    ),
    (
        "select p._id, (select avg(r.v) from Points r where r.k = p._id and r._time > '2020-01-01') from docs.places p",
        "aggregates",
    ),
    (
        "select b, k, lag(a) over (partition by k order by b) from (select time_bucket('10 minutes', _time) as b, k, sum(n) as a
           from Points group by k, b)",
        "aggregates",
    ),
    (
        "select k, v from Points where k = 1 union all select k, v from latest('Points') union all select k, max(n) from Points
           group by k",
        "latest",
    ),
    ("select count(*), avg(r.v) from docs.places p join Points r on r.k = p._id where p.area = 'nowhere'", "aggregates"),
];

#[tokio::test(flavor = "multi_thread")]
async fn hot_data_gives_the_answers_of_rows() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 0..4 {
        let shape = Shape::random(&mut rng);
        let mut sessions = Sessions::open(shape, fixture::options()).await;
        for step in 0..3 {
            // tablets of any size, then a tail of small batches and sometimes one that is large
            for _ in 0..rng.random_range(0..3) {
                for _ in 0..rng.random_range(1..3) {
                    let rows = rng.random_range(1..3_000);
                    sessions.push(shape, &mut rng, rows);
                }
                fixture::flush(&sessions.table).await;
            }
            for _ in 0..rng.random_range(0..4) {
                let rows = if rng.random_bool(0.2) { 5_000 } else { rng.random_range(1..200) };
                sessions.push(shape, &mut rng, rows);
            }
            // which of several numbers is the smallest depends on their order if one is NaN
            let defined = |query: &str| !(shape.not_finite && query.contains("min(v)"));
            for (query, _) in STATEMENTS.iter().filter(|(query, _)| defined(query)) {
                let context = format!("SEED={seed}, round {round}, step {step}, {shape:?}");
                sessions.compare(query, &context).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_served_as_expected() {
    let shape = Shape { seed: 1, keys: 5, span: 3_600_000_000, lacks_times: false, not_finite: false };
    let mut sessions = Sessions::open(shape, fixture::options()).await;
    sessions.push(shape, &mut StdRng::seed_from_u64(1), 2_000);
    fixture::flush(&sessions.table).await;
    for (query, served) in STATEMENTS {
        let plan = plan_of(&sessions.hot, query).await;
        assert!(plan.contains(&format!("HotScanExec: {served}")), "expected {served}: {query}\n{plan}");
        let off = plan_of(&sessions.cold, query).await;
        assert!(!off.contains("HotScanExec"), "{query}\n{off}");
    }
}

/// Blocks beyond the limit are dropped, and a table that does not fit is read row by row.
#[tokio::test(flavor = "multi_thread")]
async fn little_memory_changes_no_answer() {
    for hot_bytes in [1, 20_000, 100_000, 400_000] {
        let shape = Shape { seed: 2, keys: 5, span: 3_600_000_000, lacks_times: false, not_finite: false };
        let options = SqlOptions { hot_bytes, ..fixture::options() };
        let mut sessions = Sessions::open(shape, options).await;
        let mut rng = StdRng::seed_from_u64(2);
        for _ in 0..4 {
            sessions.push(shape, &mut rng, 1_500);
            fixture::flush(&sessions.table).await;
            for (query, _) in STATEMENTS {
                sessions.compare(query, &format!("hot_bytes = {hot_bytes}")).await;
            }
        }
    }
}

/// An empty table and one whose declaration lost its key.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_without_rows_or_key_is_served_too() {
    let shape = Shape { seed: 3, keys: 3, span: 3_600_000_000, lacks_times: false, not_finite: false };
    let mut sessions = Sessions::open(shape, fixture::options()).await;
    for (query, _) in STATEMENTS {
        sessions.compare(query, "no rows").await;
    }
    sessions.push(shape, &mut StdRng::seed_from_u64(3), 500);
    fixture::flush(&sessions.table).await;
    sessions.declare(&points(None)).await;
    sessions.push(shape, &mut StdRng::seed_from_u64(4), 500);
    for query in [
        "select v, s from latest('Points')",
        "select v, s from Points order by at desc limit 1",
        "select time_bucket('10 minutes', _time) as b, sum(v) from Points group by b",
        "select k, sum(v) from Points group by k",
    ] {
        sessions.compare(query, "no key").await;
    }
    let plan = plan_of(&sessions.hot, "select v from latest('Points')").await;
    assert!(plan.contains("HotScanExec: latest rows"), "{plan}");
    assert_eq!(answer(&sessions.hot, "select v from latest('Points')").await.num_rows(), 1);
}
