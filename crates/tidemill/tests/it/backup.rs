//! `tidemill backup`, `restore` and `verify` as a user runs them.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::{Serving, run, serve, serve_data, sql, tidemill};

const RULES: &str = "
    event Order { id: string, item: string, amount: long } key item id id;
    event Big { order: string, amount: long } key order;
    entity Total key item;
    relation Order.total(): Total by item;
    rule BigOne { when { o: Order(amount >= 50); } then { emit Big { order: o.id, amount: o.amount }; } }
    rule Next priority 1 { when { o: Order(); t: o.total(); } then { update t.n += 1; } }
    rule First { when { o: Order(); not o.total(); } then { insert Total { item: o.item, n: 1 }; } }
";
const QUERIES: &str = "
    @key('item') define stream Order (id string, item string, amount long);
    @sink(type='file', file.uri='${out}', @map(type='csv', header='false'))
    define stream Seen (id string, n long);
    from Order select id, count() as n insert into Seen;
";
/// Small files, so that a backup has many, and checkpoints while it is taken.
const SETTINGS: &str = "[vars]
out = 'out.csv'

[settings]
partitions = 3
segment_bytes = '64KiB'
dedupe_ids = 128
flush_interval = '50ms'
checkpoint_interval = '100ms'
";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(place.path("app")).unwrap();
        for (name, text) in [("a.rules", RULES), ("q.siddhi", QUERIES), ("app.toml", SETTINGS)] {
            std::fs::write(place.path("app").join(name), text).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn serve(&self) -> Serving {
        serve(&self.text("app"), &self.path("data"))
    }

    fn backup(&self, to: &str, code: i32) -> (String, String) {
        run(&["backup", "--data", &self.text("data"), "--to", &self.text(to)], code)
    }

    fn restore(&self, from: &str, data: &str, code: i32) -> (String, String) {
        run(&["restore", "--from", &self.text(from), "--data", &self.text(data)], code)
    }
}

/// Sends 20 orders and waits until they are on the disk.
fn send(server: &Serving, first: u64) {
    let order = |i: u64| json!({"id": format!("o{i}"), "item": format!("i{}", i % 7), "amount": i % 100});
    let orders: Vec<Value> = (first..first + 20).map(order).collect();
    let sent = ureq::post(format!("{}/api/v1/streams/Order", server.base))
        .header("authorization", format!("Bearer {}", server.token))
        .send_json(json!(orders));
    assert_eq!(sent.unwrap().status(), 200);
}

fn number(data: &str, query: &str) -> u64 {
    sql(data, query)[0]["n"].as_u64().unwrap()
}

impl Place {
    /// Checks that rules, queries and documents of a data directory follow from its orders, each there once. Returns how
    /// many orders there are.
    fn check_consistent(&self, name: &str) -> u64 {
        let data = &self.text(name);
        // what partitions emit into each other arrives
        let (out, err) = run(&["run", &self.text("app"), "--data", data, "--until-idle"], 0);
        assert!(!err.contains("WARN"), "{out}{err}");
        check_tables(data)
    }
}

fn check_tables(data: &str) -> u64 {
    let orders = number(data, "SELECT count(*) AS n FROM events.\"Order\"");
    assert_eq!(number(data, "SELECT count(DISTINCT id) AS n FROM events.\"Order\""), orders);
    let big = number(data, "SELECT count(*) AS n FROM events.\"Order\" WHERE amount >= 50");
    assert_eq!(number(data, "SELECT count(*) AS n FROM events.\"Big\""), big);
    assert_eq!(number(data, "SELECT count(DISTINCT \"order\") AS n FROM events.\"Big\""), big);
    assert_eq!(number(data, "SELECT sum(n) AS n FROM docs.\"Total\""), orders);
    assert_eq!(number(data, "SELECT count(DISTINCT id) AS n FROM events.\"Seen\""), orders);
    let unbalanced =
        "SELECT count(*) AS n FROM system.ledger WHERE received <> stored + duplicate + rejected";
    assert_eq!(number(data, unbalanced), 0);
    orders
}

#[test]
fn a_backup_under_load_has_what_was_acknowledged_before_it_once() {
    let place = Place::new();
    let mut server = place.serve();
    let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let before = std::thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                send(&server, sent.load(Ordering::Acquire));
                sent.fetch_add(20, Ordering::AcqRel);
            }
        });
        let mut before = Vec::new();
        for number in 0..2 {
            while sent.load(Ordering::Acquire) < 500 * (number + 1) {
                std::thread::yield_now();
            }
            before.push(sent.load(Ordering::Acquire));
            let (out, _) = place.backup(&format!("backup{number}"), 0);
            assert!(out.contains("files") && out.contains("log records"), "{out}");
            // served meanwhile and afterwards
            assert!(number_served(&server) > 0);
        }
        before
    });
    // the copies write to the same file as the original
    server.kill();
    // the newest first: a copy cuts the file to where it was, so that it is too short for those of later backups
    for (number, before) in before.into_iter().enumerate().rev() {
        let (backup, copy) = (format!("backup{number}"), format!("copy{number}"));
        let (out, _) = run(&["verify", "--from", &place.text(&backup)], 0);
        for kind in ["backup", "settings", "log", "checkpoints", "ids", "delta logs", "tablets", "sinks"] {
            let line = out.lines().find(|line| line.starts_with(kind));
            assert!(line.is_some_and(|line| line.ends_with("ok")), "{kind}: {out}");
        }
        let (out, _) = place.restore(&backup, &copy, 0);
        assert!(out.contains("q.siddhi: Seen to") && out.contains("tidemill serve --data"), "{out}");
        let data = place.text(&copy);
        let stored = place.check_consistent(&copy);
        assert!((before..=sent.load(Ordering::Acquire)).contains(&stored), "{stored} of {before}");
        // the file of the sink is cut and goes on: it has every event of the copy once
        let server = serve_data(&place.path(&copy));
        send(&server, 0);
        send(&server, 1_000_000);
        drop(stop(server));
        assert_eq!(place.check_consistent(&copy), stored + 20);
        let written = std::fs::read_to_string(place.path("app/out.csv")).unwrap();
        let ids: std::collections::BTreeSet<&str> =
            written.lines().map(|line| line.split(',').next().unwrap()).collect();
        assert_eq!((written.lines().count() as u64, ids.len() as u64), (stored + 20, stored + 20));
        run(&["verify", "--data", &data], 0);
    }
}

/// Ends the other threads of a test, also when it fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Asks a server for the number of its orders.
fn number_served(server: &Serving) -> u64 {
    let reply = ureq::post(format!("{}/api/v1/sql?format=json", server.base))
        .header("authorization", format!("Bearer {}", server.token))
        .header("content-type", "text/plain")
        .send("SELECT count(*) AS n FROM events.\"Order\"");
    let rows: Value = reply.unwrap().body_mut().read_json().unwrap();
    rows[0]["n"].as_u64().unwrap()
}

/// Ends a server as its user would, and waits for it.
fn stop(mut server: Serving) -> Serving {
    crate::interrupt(server.pid());
    assert!(server.child.wait().unwrap().success());
    server
}

#[test]
fn a_killed_backup_leaves_nothing_that_is_taken_for_one() {
    let place = Place::new();
    let mut interrupted = 0;
    for attempt in 0..8 {
        let mut server = place.serve();
        for part in 0..10 {
            send(&server, (attempt * 10 + part) * 20);
        }
        let to = format!("backup{attempt}");
        let (data, path) = (place.text("data"), place.text(&to));
        let mut command = tidemill(&["backup", "--data", &data, "--to", &path]);
        let mut backup = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let incomplete = PathBuf::from(format!("{path}.incomplete"));
        while !incomplete.join("log").exists() && backup.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        server.kill();
        let done = backup.wait().unwrap().success();
        if incomplete.join("backup.json").exists() {
            // it was whole and had only to get its name
            place.backup(&to, 0);
        } else if incomplete.exists() {
            interrupted += 1;
            assert!(!done && !Path::new(&path).exists());
            let (_, err) = place.restore(&format!("{to}.incomplete"), "copy", 1);
            assert!(err.contains("not a finished backup") && !place.path("copy").exists(), "{err}");
            let (_, err) = place.restore(&to, "copy", 1);
            assert!(err.contains("not a finished backup"), "{err}");
            // the next one of that name takes its place
            place.backup(&to, 0);
            assert!(!incomplete.exists());
        }
        run(&["verify", "--from", &path], 0);
        if interrupted > 1 {
            return;
        }
    }
    assert!(interrupted > 0, "no backup was interrupted");
}

/// Returns all files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

#[test]
fn damaged_files_are_named_with_what_to_do() {
    let place = Place::new();
    let server = place.serve();
    (0..20).for_each(|part| send(&server, part * 20));
    place.backup("backup", 0);
    let (_, err) = run(&["verify", "--data", &place.text("data")], 1);
    assert!(err.contains("has this data directory open") && err.contains("tidemill verify --from"), "{err}");
    drop(stop(server));
    let mut kinds = std::collections::BTreeSet::new();
    for path in files(&place.path("backup")) {
        let name = path.strip_prefix(place.path("backup")).unwrap().display().to_string();
        if !kinds
            .insert((name.split('/').next().unwrap().to_owned(), path.extension().map(ToOwned::to_owned)))
        {
            continue;
        }
        let good = std::fs::read(&path).unwrap();
        let mut bytes = good.clone();
        bytes[good.len() / 2] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let (out, err) = run(&["verify", "--from", &place.text("backup")], 1);
        let told = format!("{out}{err}");
        assert!(told.contains(&name), "{name}: {told}");
        let (_, err) = place.restore("backup", "copy", 1);
        assert!(err.contains(&name) && !place.path("copy").exists(), "{name}: {err}");
        std::fs::write(&path, good).unwrap();
    }
    assert!(kinds.len() >= 8, "{kinds:?}");
    let (out, _) = run(&["verify", "--data", &place.text("data")], 0);
    assert!(out.lines().all(|line| line.ends_with("ok")), "{out}");
    let tablets = files(&place.path("data/tables/Order/tablets"));
    for tablet in &tablets {
        std::fs::remove_file(tablet).unwrap();
    }
    let (out, _) = run(&["verify", "--data", &place.text("data")], 1);
    assert!(out.contains("it is missing, with") && out.contains("What to do: "), "{out}");
    let (out, _) = run(&["verify", "--json", "--data", &place.text("data")], 1);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["damaged"][0]["kind"], json!("tablets"), "{out}");
}

#[test]
fn a_stopped_directory_is_copied_without_a_server() {
    let place = Place::new();
    let mut server = place.serve();
    (0..10).for_each(|part| send(&server, part * 20));
    server.kill();
    let (out, _) =
        run(&["backup", "--json", "--data", &place.text("data"), "--to", &place.text("deep/er/backup")], 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["path"], json!(place.text("deep/er/backup")));
    place.restore("deep/er/backup", "copy", 0);
    assert_eq!(place.check_consistent("copy"), 200);
    let (_, err) = place.restore("deep/er/backup", "copy", 1);
    assert!(err.contains("is not empty"), "{err}");
    // a backup does not change
    for inside in ["deep/er/backup/copy", "deep/er/../er/backup/a/b", "link/copy"] {
        let backup = place.path("deep/er/backup");
        let _ = std::os::unix::fs::symlink(&backup, place.path("link"));
        let before = std::fs::read_dir(&backup).unwrap().count();
        let (_, err) = place.restore("deep/er/backup", inside, 1);
        assert!(err.contains("lies inside the backup"), "{inside}: {err}");
        assert_eq!(std::fs::read_dir(&backup).unwrap().count(), before);
    }
    run(&["verify", "--from", &place.text("deep/er/backup")], 0);
    let (_, err) = run(&["serve", "--data", &place.text("deep/er/backup")], 1);
    assert!(err.contains("tidemill restore --from"), "{err}");
    let (_, err) = run(&["backup", "--data", &place.text("dta"), "--to", &place.text("b")], 1);
    assert!(err.contains("is no data directory") && !place.path("b").exists(), "{err}");
}
