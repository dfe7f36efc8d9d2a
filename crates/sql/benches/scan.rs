//! Scans of a collection and of a stream's tail, with a year of flights out of New York.

use std::sync::Arc;

use bson::doc;
use bytes::Bytes;
use divan::Bencher;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use tidemill_sql::{Sql, SqlOptions, SystemTable, Tables};
use tidemill_zones::TableSnapshot;
use url::Url;

const DOCUMENTS: i64 = 336_776;

fn main() {
    divan::main();
}

struct Flights(Vec<Bytes>);

impl Tables for Flights {
    fn streams(&self) -> Vec<String> {
        vec![]
    }

    fn stream(&self, _: &str) -> tidemill_types::Result<Option<TableSnapshot>> {
        Ok(None)
    }

    fn collections(&self) -> Vec<String> {
        vec!["flights".into()]
    }

    fn collection(&self, name: &str) -> tidemill_types::Result<Option<Vec<Bytes>>> {
        Ok((name == "flights").then(|| self.0.clone()))
    }

    fn system_tables(&self) -> Vec<String> {
        vec![]
    }

    fn system(&self, _: &str) -> tidemill_types::Result<Option<SystemTable>> {
        Ok(None)
    }

    fn object_store(&self) -> (Url, Arc<dyn ObjectStore>) {
        (Url::parse("memory:///").expect("a valid URL"), Arc::new(InMemory::new()))
    }
}

/// Returns documents of about 300 bytes, all with the same fields.
fn flights() -> Vec<Bytes> {
    let documents = (0..DOCUMENTS).map(|n| {
        let at = bson::DateTime::from_millis(1_356_998_400_000 + n * 93_000);
        let flight = doc! {
            "_id": format!("2013-{n}"), "year": 2013, "month": n % 12 + 1, "day": n % 28 + 1, "dep_time": n % 2400,
            "sched": at, "actual": at, "carrier": (["UA", "AA", "B6"][(n % 3) as usize]), "flight": n % 6000,
            "tailnum": format!("N{}", n % 4000), "origin": "EWR", "dest": "IAH", "air_time": 227.0,
            "distance": 1400.5, "on_time": n % 5 == 0, "departed": true,
        };
        Bytes::from(bson::serialize_to_vec(&flight).expect("a valid document"))
    });
    documents.collect()
}

const QUERIES: [&str; 4] = [
    "select count(*) from docs.flights",
    "select carrier, count(*), avg(distance) from docs.flights where not on_time group by carrier",
    "select * exclude (_doc) from docs.flights",
    "select max(length(_doc)) from docs.flights",
];

#[divan::bench(args = QUERIES, sample_count = 5)]
fn documents(bencher: Bencher<'_, '_>, query: &str) {
    static SESSION: std::sync::OnceLock<Sql> = std::sync::OnceLock::new();
    let session = SESSION.get_or_init(|| {
        let options = SqlOptions { collect_bytes_max: 1 << 30, ..SqlOptions::default() };
        Sql::new(Arc::new(Flights(flights())), options).expect("a session")
    });
    bencher.bench(|| session.query_blocking(query).expect(query).num_rows());
}
