//! Races and owner changes on a real object store, if one is configured:
//!
//! ```text
//! TIDEMILL_TEST_LOCATION=s3://bucket/prefix \
//! TIDEMILL_TEST_STORE_OPTIONS=endpoint=http://127.0.0.1:5000,allow_http=true,region=us-east-1,… cargo test -p tidemill-zones
//! ```

use std::sync::Arc;

use tidemill_types::ErrorKind;
use tidemill_zones::{Table, Zones, ZonesOptions};

use crate::support::{assert_rows, flush_all, options, push, stream};

struct Place {
    location: String,
    store_options: Vec<(String, String)>,
}

impl Place {
    fn named() -> Option<Self> {
        let base = std::env::var("TIDEMILL_TEST_LOCATION").ok()?;
        let options = std::env::var("TIDEMILL_TEST_STORE_OPTIONS").unwrap_or_default();
        let pairs = options.split(',').filter_map(|pair| pair.split_once('='));
        Some(Self {
            location: format!("{base}/{}", uuid::Uuid::new_v4()),
            store_options: pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        })
    }

    async fn table(&self, epoch: u64) -> (Zones, Arc<Table>) {
        let settings = ZonesOptions { delta_checkpoint_commits: 10, ..options() };
        let zones = Zones::open(&self.location, epoch, settings, &self.store_options).await.unwrap();
        let table = zones.table(&stream("Flight"), 4).await.unwrap();
        (zones, table)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_race_and_owners_change_on_an_object_store() {
    let Some(place) = Place::named() else {
        println!("TIDEMILL_TEST_LOCATION names no store: nothing tested");
        return;
    };
    let mut tasks = Vec::new();
    for n in 0..3 {
        let (_, table) = place.table(1).await;
        tasks.push(tokio::spawn(async move {
            for offset in 0..15 {
                push(&table, n, offset, 20);
                flush_all(&table).await.unwrap().unwrap();
            }
            table
        }));
    }
    let mut old = Vec::new();
    for task in tasks {
        old.push(task.await.unwrap());
    }
    let (zones, table) = place.table(2).await;
    assert_eq!((table.snapshot().version, table.tablet_rows()), (45, 900));
    push(&table, 0, 15, 20);
    flush_all(&table).await.unwrap().unwrap();
    push(&old[0], 0, 15, 20);
    assert_eq!(flush_all(&old[0]).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_rows(&zones.object_store(), &table, 920).await;
}
