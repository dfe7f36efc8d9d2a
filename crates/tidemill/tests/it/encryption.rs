//! Encryption at rest as a user sees it: keys, restarts, rotation, wrong keys, damage, backups.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Serving, interrupt, run, serve, serve_data, sql};

/// Part of every event and document, which no file of the data directory may have.
const MARKER: &str = "marker-of-an-event";

const RULES: &str = "
    event Order { id: string, item: string, amount: long } key item id id;
    entity Total key item;
    relation Order.total(): Total by item;
    rule Next priority 1 { when { o: Order(); t: o.total(); } then { update t.n += 1; } }
    rule First { when { o: Order(); not o.total(); } then { insert Total { item: o.item, n: 1 }; } }
";
/// Small files, so that there are segments, files of ids and merged tablets.
const SETTINGS: &str = "[settings]
partitions = 2
segment_bytes = '64KiB'
dedupe_ids = 128
flush_interval = '20ms'
checkpoint_interval = '50ms'
zones.merge_tablets = 2
";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.path("app")).unwrap();
        std::fs::write(place.path("app/a.rules"), RULES).unwrap();
        place.write_settings(&format!("[settings.encryption]\nkey_file = '{}'\n", place.text("keys")));
        place
    }

    fn write_settings(&self, encryption: &str) {
        std::fs::write(self.path("app/app.toml"), format!("{SETTINGS}{encryption}")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn set_keys(&self, lines: &[&str]) {
        std::fs::write(self.path("keys"), lines.join("\n")).unwrap();
    }

    /// Runs the app until its sources have ended, which must fail, and returns the error.
    fn refused(&self) -> String {
        run(&["run", &self.text("app"), "--data", &self.text("data"), "--until-idle"], 1).1
    }

    fn check(&self, data: &str, orders: u64) {
        let data = &self.text(data);
        let number = |query: &str| sql(data, query)[0]["n"].as_u64().unwrap();
        assert_eq!(number("SELECT count(*) AS n FROM events.\"Order\" WHERE amount >= 0"), orders);
        assert_eq!(number("SELECT count(DISTINCT id) AS n FROM events.\"Order\""), orders);
        assert_eq!(number("SELECT sum(n) AS n FROM docs.\"Total\""), orders);
        let of_item = format!("SELECT count(*) AS n FROM events.\"Order\" WHERE item = '{MARKER}3'");
        assert_eq!(number(&of_item), (0..orders).filter(|order| order % 7 == 3).count() as u64);
    }
}

fn new_key(name: &str) -> String {
    run(&["keys", "new", name], 0).0.trim().to_owned()
}

fn send(server: &Serving, orders: std::ops::Range<u64>) {
    let order =
        |i: u64| json!({"id": format!("{MARKER}{i}"), "item": format!("{MARKER}{}", i % 7), "amount": i});
    for start in orders.clone().step_by(50) {
        let orders: Vec<Value> = (start..(start + 50).min(orders.end)).map(order).collect();
        let sent = ureq::post(format!("{}/api/v1/streams/Order", server.base))
            .header("authorization", format!("Bearer {}", server.token))
            .send_json(json!(orders));
        assert_eq!(sent.unwrap().status(), 200);
    }
}

fn stop(mut server: Serving) {
    interrupt(server.pid());
    assert!(server.child.wait().unwrap().success());
}

/// Returns all files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let has = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    files(dir).into_iter().filter(has).collect()
}

#[test]
fn no_file_has_what_events_have_and_keys_are_rotated() {
    let place = Place::new();
    let (first, second) = (new_key("first"), new_key("second"));
    place.set_keys(&[&first]);
    let server = serve(&place.text("app"), &place.path("data"));
    send(&server, 0..1000);
    stop(server);
    place.check("data", 1000);
    // after a crash, too
    let mut server = serve_data(&place.path("data"));
    send(&server, 900..1500);
    server.kill();
    assert_eq!(files_with(&place.path("data"), MARKER), Vec::<PathBuf>::new());
    place.check("data", 1500);
    assert_eq!(files_with(&place.path("data"), MARKER), Vec::<PathBuf>::new());
    for kind in [".seg", ".ckpt", ".parquet"] {
        assert!(
            files(&place.path("data")).iter().any(|path| path.to_str().unwrap().ends_with(kind)),
            "{kind}"
        );
    }

    place.set_keys(&[&second, &first]);
    let (out, _) = run(&["keys", "rotate", "--data", &place.text("data")], 0);
    assert!(out.contains("wrapped by `second` now") && out.contains("does not need `first`"), "{out}");
    place.set_keys(&[&second]);
    place.check("data", 1500);
    // a start rotates by itself
    place.set_keys(&[&first, &second]);
    place.check("data", 1500);
    place.set_keys(&[&first]);
    place.check("data", 1500);
    let key = first.split_once(' ').unwrap().1;
    assert_eq!(files_with(&place.path("data"), key), Vec::<PathBuf>::new());
}

#[test]
fn keys_that_all_can_read_are_told() {
    let place = Place::new();
    place.set_keys(&[&new_key("first")]);
    let start = |mode| {
        std::fs::set_permissions(place.path("keys"), std::fs::Permissions::from_mode(mode)).unwrap();
        run(&["run", &place.text("app"), "--data", &place.text("data"), "--until-idle"], 0).1
    };
    let told = start(0o644);
    assert!(told.contains("all users of this machine can read the keys (mode 0644)"), "{told}");
    assert!(!start(0o600).contains("can read the keys"));
}

#[test]
fn the_log_does_not_have_what_a_sink_refuses() {
    let place = Place::new();
    place.set_keys(&[&new_key("first")]);
    let other = Place::new();
    other.set_keys(&[&new_key("first")]);
    let refusing = serve(&other.text("app"), &other.path("data"));
    let queries = format!(
        "@key('item') define stream Order (id string, item string, amount long);
        @sink(type='http', publisher.url='{}/api/v1/streams/Unknown', on.error='LOG', @map(type='json'))
        define stream Sent (id string);
        from Order select id insert into Sent;",
        refusing.base
    );
    std::fs::write(place.path("app/q.siddhi"), queries).unwrap();
    let input = format!("{{\"id\":\"{MARKER}1\",\"item\":\"{MARKER}\",\"amount\":1}}\n");
    std::fs::write(place.path("orders.ndjson"), input).unwrap();
    run(&["run", &place.text("app"), "--data", &place.text("data"), "--until-idle"], 0);
    let loaded = run(&["load", "--data", &place.text("data"), "Order", &place.text("orders.ndjson")], 0);
    let ran = run(&["run", &place.text("app"), "--data", &place.text("data"), "--until-idle"], 0);
    let told = [loaded.0, loaded.1, ran.0, ran.1].concat();
    assert!(told.contains("events were refused") && !told.contains(MARKER), "{told}");
}

#[test]
fn wrong_and_missing_keys_are_refused() {
    let place = Place::new();
    let first = new_key("first");
    place.set_keys(&[&first]);
    let server = serve(&place.text("app"), &place.path("data"));
    send(&server, 0..100);
    stop(server);
    let key = first.split_once(' ').unwrap().1;
    for (lines, expected) in [
        (vec![new_key("first")], "the key `first` does not open"),
        (
            vec![new_key("other")],
            "is wrapped by the key `first`, which is not among the given ones (`other`)",
        ),
        (vec![format!("first {}", &key[8..])], "line 1: the key `first` is not 32 bytes"),
        (vec![], "there is no key"),
    ] {
        place.set_keys(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let error = place.refused();
        assert!(error.contains(expected) && !error.contains(&key[8..]), "{error}");
    }
    std::fs::remove_file(place.path("keys")).unwrap();
    assert!(place.refused().contains("keys cannot be opened"));
    place.write_settings("");
    assert!(place.refused().contains("is encrypted, and no key is set: set key_file"));
    place.write_settings("encryption.key_file = 'keys'\nencryption.key_command = ['cat', 'keys']\n");
    assert!(place.refused().contains("encryption.key_file and encryption.key_command are both there"));
    place.set_keys(&[&first]);
    place.write_settings(&format!("encryption.key_command = ['cat', '{}']\n", place.text("keys")));
    std::fs::rename(place.path("data/keys.json"), place.path("ring")).unwrap();
    assert!(place.refused().contains("keys.json: is missing"));
    std::fs::rename(place.path("ring"), place.path("data/keys.json")).unwrap();
    run(&["run", &place.text("app"), "--data", &place.text("data"), "--until-idle"], 0);
    place.check("data", 100);
}

#[test]
fn data_from_before_stays_readable_and_backups_and_damage_are_as_without_encryption() {
    let place = Place::new();
    place.set_keys(&[&new_key("first")]);
    place.write_settings("");
    let server = serve(&place.text("app"), &place.path("data"));
    send(&server, 0..100);
    stop(server);
    assert!(!files_with(&place.path("data"), MARKER).is_empty());
    place.write_settings(&format!("encryption.key_file = '{}'\n", place.text("keys")));
    let server = serve(&place.text("app"), &place.path("data"));
    send(&server, 100..600);
    let (backup, copy) = (place.text("backup"), place.text("copy"));
    run(&["backup", "--data", &place.text("data"), "--to", &backup], 0);
    stop(server);
    place.check("data", 600);
    run(&["verify", "--data", &place.text("data")], 0);
    run(&["verify", "--from", &backup], 0);
    run(&["restore", "--from", &backup, "--data", &copy], 0);
    place.check("copy", 600);

    for kind in [".ckpt", ".parquet"] {
        let found = files(&place.path("data")).into_iter();
        let mut found: Vec<PathBuf> = found.filter(|path| path.to_str().unwrap().ends_with(kind)).collect();
        found.retain(|path| !path.to_str().unwrap().contains("_delta_log"));
        let newest = found.iter().max().unwrap();
        let sound = std::fs::read(newest).unwrap();
        let mut damaged = sound.clone();
        damaged[sound.len() / 2] ^= 1;
        std::fs::write(newest, &damaged).unwrap();
        let (out, _) = run(&["verify", "--data", &place.text("data")], 1);
        assert!(out.contains(newest.to_str().unwrap()), "{kind}: {out}");
        std::fs::write(newest, sound).unwrap();
    }
    run(&["verify", "--data", &place.text("data")], 0);
}
