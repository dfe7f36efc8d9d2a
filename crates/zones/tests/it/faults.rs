//! Unavailable stores and lost responses.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use object_store::{ObjectStore, ObjectStoreExt};
use tidemill_types::{ErrorKind, Offset};

use tidemill_zones::sim_store::FaultyStore;

use crate::support::{assert_rows, flush_all, memory, p, push, table};

fn faulty() -> (Arc<FaultyStore>, Arc<dyn ObjectStore>) {
    let store = FaultyStore::over(memory());
    (store.clone(), store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_no_second_commit() {
    let (faults, store) = faulty();
    let t = table(&store, 1).await;
    for offset in 0..5 {
        push(&t, 0, offset, 10);
        faults.lose_answers.store(1, SeqCst);
        let done = flush_all(&t).await.unwrap().unwrap();
        assert_eq!((done.version, done.rows), (offset as i64 + 1, 10));
    }
    assert_rows(&store, &t, 50).await;
    assert_rows(&store, &*table(&store, 2).await, 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_unknown_outcome_is_settled_by_the_next_flush() {
    let (faults, store) = faulty();
    let t = table(&store, 1).await;
    push(&t, 0, 0, 10);
    // The entry is written, the response is lost, and the store becomes unavailable.
    faults.lose_answers.store(1, SeqCst);
    faults.down_after_lost.store(true, SeqCst);
    assert_eq!(flush_all(&t).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!((t.pending_rows(), t.committed(p(0))), (10, None));
    push(&t, 0, 1, 10);
    push(&t, 1, 0, 10);
    assert_eq!(flush_all(&t).await.unwrap_err().kind(), ErrorKind::Unavailable);

    faults.down.store(false, SeqCst);
    let done = flush_all(&t).await.unwrap().unwrap();
    assert_eq!((done.version, done.rows, done.files), (2, 30, 2));
    assert_eq!(done.offsets, [(p(0), Offset(1)), (p(1), Offset(0))]);
    assert_rows(&store, &t, 30).await;
    assert_rows(&store, &*table(&store, 2).await, 30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_away_costs_nothing_but_time() {
    let (faults, store) = faulty();
    let t = table(&store, 1).await;
    push(&t, 0, 0, 10);
    faults.down.store(true, SeqCst);
    let before = faults.operations.load(SeqCst);
    let error = flush_all(&t).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.kind().is_retryable());
    assert!(faults.operations.load(SeqCst) - before <= 10, "attempts are bounded");
    push(&t, 0, 1, 10);
    assert_eq!(t.pending_rows(), 20);
    faults.down.store(false, SeqCst);
    let done = flush_all(&t).await.unwrap().unwrap();
    assert_eq!(done.rows, 20);
    assert_rows(&store, &t, 20).await;
    assert_rows(&store, &*table(&store, 2).await, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_an_unfinished_commit_are_put_again_when_they_were_cleared_away() {
    let (faults, store) = faulty();
    let t = table(&store, 1).await;
    push(&t, 0, 0, 10);
    faults.lose_answers.store(1, SeqCst);
    faults.down_after_lost.store(true, SeqCst);
    flush_all(&t).await.unwrap_err();
    faults.down.store(false, SeqCst);
    faults.down_after_lost.store(false, SeqCst);
    // Simulates a vacuum by another program.
    let log = crate::lifecycle::url_path("_delta_log/00000000000000000001.json");
    store.delete(&log).await.unwrap();
    let tablets = crate::lifecycle::url_path("tablets");
    let files: Vec<_> = futures::TryStreamExt::try_collect(store.list(Some(&tablets))).await.unwrap();
    let files: Vec<object_store::ObjectMeta> = files;
    assert_eq!(files.len(), 1);
    store.delete(&files[0].location).await.unwrap();

    flush_all(&t).await.unwrap().unwrap();
    assert_rows(&store, &t, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_is_dropped_is_finished_by_the_next() {
    let (faults, store) = faulty();
    let t = table(&store, 1).await;
    push(&t, 0, 0, 10);
    for polls in 0..200 {
        // Poll a flush a limited number of times, then drop it.
        let mut flush = Box::pin(flush_all(&t));
        let mut finished = false;
        for _ in 0..polls {
            tokio::select! {
                biased;
                outcome = &mut flush => { outcome.unwrap(); finished = true; }
                () = tokio::task::yield_now() => {}
            }
            if finished {
                break;
            }
        }
        drop(flush);
        push(&t, 0, polls + 1, 1);
    }
    flush_all(&t).await.unwrap();
    assert!(faults.operations.load(SeqCst) > 0);
    assert_eq!(t.pending_rows(), 0);
    assert_rows(&store, &t, 210).await;
    assert_rows(&store, &*table(&store, 2).await, 210).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_away_at_open_is_no_missing_table() {
    let (faults, store) = faulty();
    table(&store, 1).await;
    faults.down.store(true, SeqCst);
    let z = crate::support::zones(&store, 2, crate::support::options()).await;
    let error = z.table(&crate::support::stream("Flight"), 4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
