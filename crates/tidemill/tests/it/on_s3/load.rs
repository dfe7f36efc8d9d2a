//! `tidemill load` from an object store.

use std::process::Output;

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::place::{Place, credentials};
use crate::tidemill;

/// Writes objects below `prefix`.
fn put(place: &Place, prefix: &str, objects: &[(&str, String)]) {
    let store = AmazonS3Builder::new()
        .with_endpoint(place.endpoint())
        .with_allow_http(true)
        .with_bucket_name("tidemill")
        .with_access_key_id("tidemill")
        .with_secret_access_key("tidemill")
        .build()
        .unwrap();
    let store: &dyn ObjectStore = &store;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, text) in objects {
        let path = Path::from(format!("{prefix}/{name}"));
        runtime.block_on(store.put(&path, PutPayload::from(text.clone()))).unwrap();
    }
}

fn rows(from: u64, to: u64) -> String {
    let rows = (from..to).map(|n| format!("s{},2026-01-05T09:00:00Z,{n}\n", n % 7));
    std::iter::once("symbol,at,n\n".to_owned()).chain(rows).collect()
}

/// Loads with the variables that the page for users names, and no others.
fn load(place: &Place, url: &str, more: &[&str]) -> Output {
    let (data, app) = (place.text("data"), place.text("app"));
    let mut command = tidemill(&["load", "Trades", url, "--data", &data, "--app", &app]);
    credentials(&mut command);
    command.args(more).env("AWS_ENDPOINT", place.endpoint()).output().unwrap()
}

#[test]
fn objects_of_a_bucket_are_loaded_once() {
    let Some(place) = Place::new(&[]) else { return };
    let prefix = uuid::Uuid::new_v4().to_string();
    // Larger than a part that the client reads at a time.
    put(&place, &prefix, &[("a.csv", rows(0, 200_000)), ("b.csv", rows(200_000, 200_500))]);
    put(&place, &prefix, &[("notes.txt", "not to be loaded".to_owned())]);
    let text = |output: &Output| {
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let loaded = load(&place, &format!("s3://tidemill/{prefix}/*.csv"), &[]);
    assert!(loaded.status.success(), "{}", text(&loaded));
    assert!(text(&loaded).contains("200500 rows of 2 files loaded"), "{}", text(&loaded));
    let again = load(&place, &format!("s3://tidemill/{prefix}/a.csv"), &[]);
    assert_eq!(again.status.code(), Some(1), "{}", text(&again));
    put(&place, &prefix, &[("c.csv", rows(200_500, 200_600))]);
    let resumed = load(&place, &format!("s3://tidemill/{prefix}/"), &["--resume"]);
    assert!(resumed.status.success(), "{}", text(&resumed));
    let missing = load(&place, &format!("s3://tidemill/{prefix}/d.csv"), &[]);
    assert!(!missing.status.success() && text(&missing).contains("d.csv"), "{}", text(&missing));
    let mut server = place.run();
    server.check_exact(200_600);
    server.stop();
}
