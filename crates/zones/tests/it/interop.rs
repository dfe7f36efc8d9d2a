//! deltalake reads the tables that this crate writes.

use std::sync::Arc;

use deltalake_core::DeltaTable;
use deltalake_core::logstore::{StorageConfig, default_logstore};
use object_store::prefix::PrefixStore;
use tidemill_zones::ZonesOptions;
use url::Url;

use crate::support::{flush_all, memory, options, push, stream, zones};

#[tokio::test(flavor = "multi_thread")]
async fn deltalake_counts_the_same_rows() {
    let store = memory();
    let settings = ZonesOptions { delta_checkpoint_commits: 5, ..options() };
    let t = zones(&store, 7, settings).await.table(&stream("Flight"), 4).await.unwrap();
    for offset in 0..12 {
        push(&t, (offset % 4) as u32, offset, 100);
        flush_all(&t).await.unwrap();
    }

    let url = Url::parse("memory:///tables/Flight/").unwrap();
    let prefixed = PrefixStore::new(store.clone(), "tables/Flight");
    let log_store = default_logstore(Arc::new(prefixed), store.clone(), &url, &StorageConfig::default());
    let mut delta = DeltaTable::new(log_store.clone());
    delta.load().await.unwrap();
    let state = delta.snapshot().unwrap();
    assert_eq!(state.version() as i64, t.snapshot().version);
    let rows: usize = state.log_data().iter().map(|f| f.num_records().unwrap()).sum();
    assert_eq!((rows as u64, state.log_data().num_files()), (t.tablet_rows(), 12));
    let columns: Vec<String> = state.schema().fields().map(|f| f.name().clone()).collect();
    let ours: Vec<String> = t.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(columns, ours);
    for (app, version) in [("log/0", 8), ("log/3", 11), ("owner/2", 7)] {
        let stored = state.transaction_version(log_store.as_ref(), app).await.unwrap();
        assert_eq!(stored, Some(version), "{app}");
    }
    for file in state.log_data().iter() {
        assert!(file.min_values().is_some() && file.max_values().is_some() && file.null_counts().is_some());
    }
}
