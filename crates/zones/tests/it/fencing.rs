//! Several writers on one table.

use tidemill_types::{ErrorKind, Offset};

use crate::support::{assert_rows, flush_all, memory, options, p, push, rows_of, stream, table, zones};

#[tokio::test(flavor = "multi_thread")]
async fn a_later_owner_fences_an_earlier_one() {
    let store = memory();
    let old = table(&store, 1).await;
    push(&old, 0, 0, 10);
    flush_all(&old).await.unwrap();

    let new = table(&store, 2).await;
    for offset in 1..3 {
        push(&old, 0, offset, 10);
        push(&new, 0, offset, 10);
    }
    push(&old, 1, 0, 10);
    flush_all(&new).await.unwrap();
    let files = new.snapshot().tablets.len();
    let error = flush_all(&old).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("owner epoch 2 took over partition 0"), "{error}");
    // The partition that was not taken over continues.
    old.flush(&[(p(1), Offset(0))]).await.unwrap().unwrap();
    assert_rows(&store, &old, 40).await;
    // The other partition stays rejected.
    push(&old, 0, 3, 10);
    assert_eq!(flush_all(&old).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(flush_all(&old).await.unwrap_err().kind(), ErrorKind::Conflict);

    new.refresh().await.unwrap();
    assert_rows(&store, &new, 40).await;
    assert_eq!(new.snapshot().tablets.len(), files + 1, "refused files are removed and never seen");

    let error = zones(&store, 1, options()).await.table(&stream("Flight"), 4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("owner epoch 2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_twin_with_the_same_epoch_is_noticed() {
    let store = memory();
    let (a, b) = (table(&store, 1).await, table(&store, 1).await);
    for t in [&a, &b] {
        push(t, 0, 0, 10);
        push(t, 0, 1, 10);
    }
    a.flush(&[(p(0), Offset(0))]).await.unwrap();
    let error = flush_all(&b).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("another writer committed offset 0"), "{error}");
    // Rows that the other writer committed have left our tail, so none is duplicated.
    assert_rows(&store, &b, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_different_partitions_share_the_log() {
    let store = memory();
    let tables = [table(&store, 1).await, table(&store, 1).await, table(&store, 1).await];
    let mut tasks = Vec::new();
    for (n, t) in tables.into_iter().enumerate() {
        tasks.push(tokio::spawn(async move {
            for offset in 0..20 {
                push(&t, n as u32, offset, 5);
                t.flush(&[(p(n as u32), Offset(offset))]).await.unwrap().unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let t = table(&store, 2).await;
    assert_eq!((t.snapshot().version, t.tablet_rows()), (60, 300));
    assert_rows(&store, &t, 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_not_taken_away() {
    let store = memory();
    let t = table(&store, 1).await;
    push(&t, 3, 0, 1);
    flush_all(&t).await.unwrap();
    let z = zones(&store, 2, options()).await;
    assert_eq!(z.table(&stream("Flight"), 3).await.unwrap_err().kind(), ErrorKind::Invalid);
    let t = z.table(&stream("Flight"), 8).await.unwrap();
    assert_eq!(rows_of(&store, &t.snapshot()).await.len(), 1);
}
