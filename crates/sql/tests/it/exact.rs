//! Every acknowledged row is visible exactly once, while rows are pushed and flushed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_sql::{QueryRows, Sql};
use tidemill_types::FieldType;

use crate::fixture::{self, Fixture};

/// Rows acknowledged so far, per partition.
type Acknowledged = [AtomicU64; 2];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_are_seen_once_while_they_move() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let fixture = Fixture::empty().await;
    let fields = [("k", FieldType::String), ("n", FieldType::Long)];
    let table = fixture.declare(&fixture::stream("Moving", &fields, None)).await;
    let sql = Arc::new(Sql::new(Arc::new(fixture), fixture::options()).unwrap());
    let acknowledged: Arc<Acknowledged> = Arc::default();

    let pushers = [0_u32, 1].map(|p| {
        let (table, acknowledged) = (table.clone(), acknowledged.clone());
        tokio::task::spawn_blocking(move || {
            let mut rng = StdRng::seed_from_u64(seed ^ u64::from(p));
            for offset in 0..300 {
                let rows: Vec<String> =
                    (0..rng.random_range(1..20)).map(|r| format!(r#"{{"k":"k{r}","n":{offset}}}"#)).collect();
                let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
                fixture::push(&table, p, offset, &rows);
                acknowledged[p as usize].fetch_add(rows.len() as u64, Ordering::SeqCst);
            }
        })
    });
    let flusher = tokio::spawn({
        let table = table.clone();
        async move {
            for _ in 0..15 {
                fixture::flush(&table).await;
                tokio::task::yield_now().await;
            }
        }
    });
    for _ in 0..25 {
        check(&sql, &acknowledged).await;
    }
    for pusher in pushers {
        pusher.await.unwrap();
    }
    flusher.await.unwrap();
    check(&sql, &acknowledged).await;
}

async fn check(sql: &Sql, acknowledged: &Acknowledged) {
    let seen = || acknowledged.iter().map(|a| a.load(Ordering::SeqCst)).sum::<u64>();
    let before = seen();
    let query = "select count(*), count(distinct concat(_partition, '-', _offset, '-', _row)),
                        (select count(*) from events.moving a join events.Moving b
                         on a._partition = b._partition and a._offset = b._offset and a._row = b._row)
                 from events.Moving";
    let rows = sql.query(query).await.unwrap().collect().await.unwrap();
    let [count, distinct, joined] = [0, 1, 2].map(|c| number(&rows, c));
    // a row may be visible just before its push returns: at most one batch per partition
    assert!(before <= count && count <= seen() + 2 * 20, "{before} <= {count} <= {}", seen());
    assert_eq!((count, count), (distinct, joined));
}

fn number(rows: &QueryRows, column: usize) -> u64 {
    u64::try_from(rows.batches[0].column(column).as_primitive::<Int64Type>().value(0)).unwrap()
}
