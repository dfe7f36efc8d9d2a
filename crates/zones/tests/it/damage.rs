//! Missing and damaged files are reported with a remedy.

use std::sync::Arc;

use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_types::{Error, ErrorKind};
use tidemill_zones::{CheckedStore, ZonesOptions};

use crate::lifecycle::{log_files, url_path};
use crate::support::{assert_rows, flush_all, memory, options, p, push, rows_of, stream, table, zones};

async fn written() -> Arc<dyn ObjectStore> {
    let store = memory();
    let t = table(&store, 1).await;
    for offset in 0..6 {
        push(&t, 0, offset, 10);
        flush_all(&t).await.unwrap();
    }
    store
}

async fn refusal(store: &Arc<dyn ObjectStore>) -> Error {
    zones(store, 2, options()).await.table(&stream("Flight"), 4).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_and_a_short_one() {
    let store = written().await;
    let names: Vec<_> = table(&store, 1).await.snapshot().tablets.iter().map(|t| t.path.clone()).collect();
    store.delete(&names[2]).await.unwrap();
    let whole = store.get(&names[4]).await.unwrap().bytes().await.unwrap();
    store.put(&names[4], PutPayload::from(whole.slice(..100))).await.unwrap();

    let error = refusal(&store).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    for part in
        ["`Flight`", "2 of its files", "20 rows", "is missing", "has 100 bytes", "zones.open_degraded = true"]
    {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }

    let settings = ZonesOptions { open_degraded: true, ..options() };
    let t = zones(&store, 2, settings).await.table(&stream("Flight"), 4).await.unwrap();
    assert_eq!((t.missing().len(), t.tablet_rows()), (2, 60));
    assert_rows(&store, &t, 40).await;
    push(&t, 0, 6, 10);
    flush_all(&t).await.unwrap();
    assert_rows(&store, &t, 50).await;
    assert_eq!(t.committed(p(0)).unwrap().0, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_log() {
    let store = written().await;
    store.delete(&url_path("_delta_log/00000000000000000003.json")).await.unwrap();
    let error = refusal(&store).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("version 3 ") && error.to_string().contains("version 6"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_entry() {
    for (damage, shown) in [(&b"{\"txn\":"[..], "line 1"), (&b""[..], "empty")] {
        let store = written().await;
        let path = url_path("_delta_log/00000000000000000004.json");
        store.put(&path, PutPayload::from(damage.to_vec())).await.unwrap();
        let error = refusal(&store).await;
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("version 4") && error.to_string().contains(shown), "{error}");
    }
}

/// Damage that is still valid JSON but has wrong content is reported with the entry that contains it.
#[tokio::test(flavor = "multi_thread")]
async fn the_entry_that_names_what_is_not_there_is_told() {
    for (good, damaged, shown) in [
        ("\\\"numRecords\\\"", "\\\"numRecprds\\\"", "how many rows"),
        ("\"stats\":\"{", "\"stats\":\"[", "statistics"),
        ("\"size\":", "\"size\":9", "bytes instead of 9"),
        ("\"size\":", "\"size\":-", "the size of file"),
        ("\"path\":\"tablets/0/", "\"path\":\"tablets/1/", "is missing"),
        ("\"path\":\"tablets/0/", "\"path\":\"s3://x/", "does not lie below the table"),
    ] {
        let store = written().await;
        let path = url_path("_delta_log/00000000000000000004.json");
        let entry = store.get(&path).await.unwrap().bytes().await.unwrap();
        let text = String::from_utf8(entry.to_vec()).unwrap();
        assert!(text.contains(good), "{good}: {text}");
        // As another program would have written it, without our checksum.
        let damaged = text.replace(good, damaged).replace("tidemill.crc32c", "other.crc32c");
        store.put(&path, PutPayload::from(damaged)).await.unwrap();
        let error = refusal(&store).await.to_string();
        let place = "Delta log entry memory:///tables/Flight/_delta_log/00000000000000000004.json";
        assert!(error.contains(place) && error.contains(shown), "{shown}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_delta_checkpoint_matters_only_without_the_entries_before_it() {
    let store = memory();
    let settings = ZonesOptions { delta_checkpoint_commits: 3, ..options() };
    let t = zones(&store, 1, settings).await.table(&stream("Flight"), 4).await.unwrap();
    for offset in 0..7 {
        push(&t, 0, offset, 10);
        flush_all(&t).await.unwrap();
    }
    let checkpoints: Vec<_> =
        log_files(&store).await.into_iter().filter(|n| n.contains("checkpoint.")).collect();
    assert_eq!(checkpoints.len(), 2, "{checkpoints:?}");
    for name in &checkpoints {
        store.put(&url_path(&format!("_delta_log/{name}")), PutPayload::from_static(b"PAR1")).await.unwrap();
    }
    let t = table(&store, 2).await;
    assert_eq!(rows_of(&store, &t.snapshot()).await.len(), 70);

    store.delete(&url_path("_delta_log/00000000000000000000.json")).await.unwrap();
    let error = refusal(&store).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("Delta checkpoint of version 6"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn features_of_other_writers_are_refused() {
    let store = written().await;
    let entry = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}"#;
    store.put(&url_path("_delta_log/00000000000000000007.json"), PutPayload::from(entry)).await.unwrap();
    let error = refusal(&store).await;
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("deletionVectors"), "{error}");
}

/// Returns everything a table reports about itself and its rows, or the error.
async fn told(store: &Arc<dyn ObjectStore>) -> Result<String, Error> {
    let t = zones(store, 2, options()).await.table(&stream("Flight"), 4).await?;
    let snapshot = t.snapshot();
    let mut text = format!("{:?} {:?}\n", t.committed(p(0)), t.tablet_rows());
    let checked = CheckedStore::new(store.clone(), snapshot.tablets.iter().map(Arc::as_ref));
    for tablet in snapshot.tablets.iter() {
        let read = async { checked.get(&tablet.path).await?.bytes().await };
        let bytes = read.await.map_err(|e| Error::corrupt(e.to_string()))?;
        text += &format!("{} {} {:?} {bytes:?}\n", tablet.name, tablet.rows, tablet.columns);
    }
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_flipped_bit_gives_other_data_in_silence() {
    const SEED: u64 = 20_261_122;
    let store = memory();
    let settings = ZonesOptions { delta_checkpoint_commits: 3, delta_log_retention_s: 0, ..options() };
    let t = zones(&store, 1, settings).await.table(&stream("Flight"), 4).await.unwrap();
    for offset in 0..8 {
        push(&t, 0, offset, 10);
        flush_all(&t).await.unwrap();
    }
    let good = told(&store).await.unwrap();
    let mut files: Vec<_> = store.list(None).map_ok(|f| f.location).try_collect().await.unwrap();
    files.sort();
    for kind in [".json", "checkpoint.parquet", "_last_checkpoint", "_tidemill_checkpoints.json", "tablets/0"]
    {
        assert!(files.iter().any(|f| f.as_ref().contains(kind)), "{kind}: {files:?}");
    }
    let mut rng = StdRng::seed_from_u64(SEED);
    let (mut flips, mut refused) = (0, 0);
    for file in &files {
        let whole = store.get(file).await.unwrap().bytes().await.unwrap();
        for _ in 0..40 {
            let bit = rng.random_range(0..whole.len() * 8);
            let mut damaged = whole.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            store.put(file, PutPayload::from(damaged)).await.unwrap();
            flips += 1;
            match told(&store).await {
                Ok(text) => assert!(text == good, "seed {SEED}: bit {bit} of {file} gives other data"),
                Err(error) => {
                    refused += 1;
                    let name = file.filename().unwrap();
                    assert!(error.to_string().contains(name), "seed {SEED}: bit {bit} of {file}: {error}");
                }
            }
        }
        store.put(file, PutPayload::from(whole)).await.unwrap();
    }
    assert_eq!(told(&store).await.unwrap(), good);
    assert!(flips >= 500 && refused >= flips / 4, "{flips} flips, {refused} refused");
}
