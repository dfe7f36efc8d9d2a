//! Backups of a running engine, and engines that are opened from them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidemill_engine::{
    ChangeScope, ChangeStart, Engine, Verification, backup_stopped, restore, verify_backup, verify_data,
};
use tidemill_types::ErrorKind;

use crate::{app, document, ledger, open, open_app, rows, send};

fn orders(from: u64, n: u64) -> String {
    (from..from + n)
        .map(|i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 10, (i % 4) * 50))
        .collect()
}

/// Returns all files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// Flips a bit in the middle of a file and returns the former content.
fn flip(file: &Path) -> Vec<u8> {
    let good = std::fs::read(file).unwrap();
    let mut bytes = good.clone();
    bytes[good.len() / 2] ^= 0x10;
    std::fs::write(file, bytes).unwrap();
    good
}

fn assert_sound(found: &Verification) {
    assert!(found.is_sound(), "{:#?}", found.damaged);
}

/// Checks that what rules have made of `n` or more orders follows from them, and returns how many there are.
pub fn check_consistent(engine: &Engine, at_least: u64) -> u64 {
    assert_eq!(engine.recovery.warnings, Vec::<String>::new());
    check_follows(engine, at_least)
}

/// Checks as [`check_consistent`], also after a start that has warned of something.
pub fn check_follows(engine: &Engine, at_least: u64) -> u64 {
    engine.wait_idle();
    let n = rows(engine, "Order");
    assert!(n >= at_least, "{n} of {at_least} orders");
    assert_eq!(rows(engine, "Audit"), n, "{}", ledger(engine));
    let big = rows(engine, "Big");
    let total = |class: &str| -> u64 {
        let document: serde_json::Value = serde_json::from_str(&document(engine, "Total", class)).unwrap();
        document["n"].as_u64().unwrap()
    };
    assert_eq!((total("big"), total("small")), (big, n - big));
    for stream in engine.streams().unwrap() {
        assert!(stream.ledger.balances(), "{}", ledger(engine));
        assert_eq!(stream.ledger.stored, rows(engine, &stream.schema.name), "{}", ledger(engine));
    }
    n
}

/// Ends the other threads of a test, also when it fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn backups_under_load_have_what_was_acknowledged_before_once() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: String| dir.path().join(name);
    let mut app = app();
    // many segments, many runs of ids and many files of tables come and go meanwhile
    app.settings.segment_bytes = 64 << 10;
    app.settings.dedupe_ids = 128;
    app.settings.zones.merge_tablets = 2;
    app.settings.zones.removed_retention_s = 1;
    let engine = Engine::open(&place("data".into()), Some(app)).unwrap();
    let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let before: Vec<u64> = std::thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let from = sent.load(Ordering::Acquire);
                send(&engine, "Order", &orders(from, 50));
                sent.fetch_add(50, Ordering::AcqRel);
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                engine.flush().unwrap();
                engine.checkpoint().unwrap();
            }
        });
        let backup = |number: u64| {
            while sent.load(Ordering::Acquire) < 400 * (number + 1) {
                std::thread::yield_now();
            }
            let acknowledged = sent.load(Ordering::Acquire);
            let report = engine.backup(place(format!("backup{number}"))).unwrap();
            assert!(report.files > 10 && report.tables == 4, "{report:?}");
            acknowledged
        };
        (0..2).map(backup).collect()
    });
    let all = check_consistent(&engine, sent.load(Ordering::Acquire));
    drop(engine);
    for (number, acknowledged) in before.into_iter().enumerate() {
        let (backup, copy) = (place(format!("backup{number}")), place(format!("copy{number}")));
        assert_sound(&verify_backup(&backup).unwrap());
        restore(&backup, &copy).unwrap();
        let engine = Engine::open(&copy, None).unwrap();
        let stored = check_consistent(&engine, acknowledged);
        assert!(stored <= all);
        // ids are known, and what is not there is taken
        let again = send(&engine, "Order", &orders(0, all));
        assert_eq!(again.duplicates, Some(stored));
        assert_eq!(check_consistent(&engine, all), all);
        drop(engine);
        assert_sound(&verify_data(&copy, false).unwrap());
    }
}

#[test]
fn a_copy_has_an_identity_of_its_own_and_the_original_keeps_its() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup, copy) = (dir.path().join("data"), dir.path().join("backup"), dir.path().join("copy"));
    let engine = open(&data);
    send(&engine, "Order", &orders(0, 10));
    engine.backup(&backup).unwrap();
    drop(engine);
    restore(&backup, &copy).unwrap();
    let id = |dir: &Path| -> serde_json::Value {
        let meta: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(dir.join("meta.json")).unwrap()).unwrap();
        meta["id"].clone()
    };
    assert!(id(&data).is_string() && id(&copy).is_string());
    assert_ne!(id(&data), id(&copy));
    assert_eq!(id(&data), id(&backup));
    let Err(error) = Engine::open(&backup, None) else { panic!("a backup was opened as a data directory") };
    assert!(error.message().contains("tidemill restore --from"), "{error}");
    assert_sound(&verify_backup(&backup).unwrap());
    for private in ["token", "server.json", "lock", "reserve"] {
        assert!(!copy.join(private).exists(), "{private}");
    }
}

#[test]
fn a_backup_is_not_restored_into_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (data, taken) = (dir.path().join("data"), dir.path().join("taken"));
    let engine = open(&data);
    send(&engine, "Order", &orders(0, 10));
    engine.backup(&taken).unwrap();
    let before = files(&taken);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&taken, &link).unwrap();
    for to in
        [taken.join("in"), taken.join("deep/in"), link.join("in"), taken.join("../taken/in"), taken.clone()]
    {
        let error = restore(&taken, &to).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(files(&taken), before);
    restore(&taken, &dir.path().join("taken-not")).unwrap();
}

#[test]
fn a_backup_needs_a_new_directory_outside_of_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let engine = open(&data);
    send(&engine, "Order", &orders(0, 10));
    let taken = dir.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("letter.txt"), "Dear").unwrap();
    let refused = |to: &Path| {
        let error = engine.backup(to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        error.to_string()
    };
    assert!(refused(&taken).contains("letter.txt"));
    assert!(refused(&data.join("backup")).contains("inside the data directory"));
    for place in ["/dev/null", "/dev/null/backup"] {
        assert!(refused(Path::new(place)).contains("cannot be used"), "{place}");
    }
    assert_eq!(files(&taken).len(), 1);
    // an empty directory, also where an interrupted backup has left something
    let (empty, left) = (dir.path().join("empty"), dir.path().join("empty.incomplete"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::create_dir_all(left.join("log")).unwrap();
    std::fs::write(left.join("log/part.seg"), "half a segm").unwrap();
    engine.backup(&empty).unwrap();
    assert!(!left.exists());
    assert_sound(&verify_backup(&empty).unwrap());
    let error = restore(&empty, &taken).unwrap_err();
    assert!(error.message().contains("letter.txt"), "{error}");
}

#[test]
fn what_a_crash_leaves_of_a_backup_is_not_taken_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(&dir.path().join("data"));
    send(&engine, "Order", &orders(0, 100));
    let whole = dir.path().join("whole");
    engine.backup(&whole).unwrap();
    // the manifest is written last, so all that a crash can leave lacks it
    std::fs::remove_file(whole.join("backup.json")).unwrap();
    let error = restore(&whole, &dir.path().join("copy")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.message().contains("not a finished backup"), "{error}");
    assert!(!dir.path().join("copy").exists());
    assert_eq!(verify_backup(&whole).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn damage_of_each_kind_of_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup) = (dir.path().join("data"), dir.path().join("backup"));
    let mut app = app();
    app.settings.dedupe_ids = 64;
    app.settings.partitions = 2;
    app.settings.zones.delta_checkpoint_commits = 2;
    let engine = Engine::open(&data, Some(app)).unwrap();
    let _changes = engine.watch(ChangeScope::All, ChangeStart::Now).unwrap();
    for part in 0..5 {
        send(&engine, "Order", &orders(part * 100, 100));
        engine.flush().unwrap();
        engine.checkpoint().unwrap();
    }
    send(&engine, "Order", &orders(500, 100));
    engine.backup(&backup).unwrap();
    engine.abandon();
    drop(engine);
    assert_sound(&verify_data(&data, false).unwrap());
    assert_sound(&verify_backup(&backup).unwrap());
    let mut kinds = std::collections::BTreeSet::new();
    let manifest: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(backup.join("backup.json")).unwrap()).unwrap();
    for file in manifest["files"].as_array().unwrap() {
        let name = file["path"].as_str().unwrap();
        let path = backup.join(name);
        let kind = format!("{} {:?}", name.split('/').next().unwrap(), path.extension());
        if !kinds.insert(kind) {
            continue;
        }
        let good = flip(&path);
        let found = verify_backup(&backup).unwrap();
        assert!(found.damaged.iter().any(|d| d.path == path.display().to_string()), "{name}: {found:#?}");
        let error = restore(&backup, &dir.path().join("copy")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains(name), "{error}");
        std::fs::remove_file(&path).unwrap();
        let error = restore(&backup, &dir.path().join("copy")).unwrap_err();
        assert!(error.message().contains(name) && error.message().contains("missing"), "{error}");
        assert!(!verify_backup(&backup).unwrap().is_sound());
        std::fs::write(&path, good).unwrap();
    }
    assert!(kinds.len() >= 10, "{kinds:?}");
    restore(&backup, &dir.path().join("copy")).unwrap();
    damage_of_a_data_directory_is_named(&data);
}

/// Flips a bit in one file of each kind of a stopped data directory.
fn damage_of_a_data_directory_is_named(data: &Path) {
    // the last one is a hint for other programs, on which nothing depends
    let unread = ["lock", "log.lock", "reserve", "_last_checkpoint"];
    let mut kinds = std::collections::BTreeSet::new();
    let found = verify_data(data, false).unwrap();
    let read: Vec<&str> = found.kinds.iter().map(|kind| kind.kind.as_str()).collect();
    assert_eq!(
        read,
        ["settings", "log", "checkpoints", "ids", "why", "delta logs", "tablets", "changes"],
        "{found:#?}"
    );
    for path in files(data) {
        let name = path.strip_prefix(data).unwrap().display().to_string();
        let file_name = path.file_name().unwrap().to_str().unwrap();
        // of former versions of tables and of runs that no checkpoint names any more
        let is_live = !(name.starts_with("ids/") || name.contains("/tablets/"));
        let kind = format!("{} {:?} {is_live}", name.split('/').next().unwrap(), path.extension());
        let empty = std::fs::metadata(&path).unwrap().len() == 0;
        if unread.contains(&file_name) || empty || kinds.contains(&kind) {
            continue;
        }
        let good = flip(&path);
        let found = verify_data(data, false).unwrap();
        let named = found.damaged.iter().find(|damage| damage.path == path.display().to_string());
        if let Some(damage) = named {
            kinds.insert(kind);
            assert!(!damage.problem.is_empty() && !damage.meaning.is_empty() && !damage.remedy.is_empty());
        } else {
            assert!(!is_live, "{name} is damaged: {found:#?}");
        }
        std::fs::write(&path, good).unwrap();
    }
    assert!(kinds.iter().any(|kind| kind.starts_with("ids")), "{kinds:?}");
    assert!(kinds.iter().any(|kind| kind.contains("parquet") && kind.ends_with("false")), "{kinds:?}");
    assert_sound(&verify_data(data, false).unwrap());
}

#[test]
fn a_stopped_directory_is_copied_as_it_is_and_one_in_use_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup, copy) = (dir.path().join("data"), dir.path().join("backup"), dir.path().join("copy"));
    let engine = open(&data);
    send(&engine, "Order", &orders(0, 300));
    engine.checkpoint().unwrap();
    send(&engine, "Order", &orders(300, 300));
    assert_eq!(backup_stopped(&data, &backup).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(verify_data(&data, false).unwrap_err().kind(), ErrorKind::Conflict);
    // as after a crash
    engine.abandon();
    drop(engine);
    let before: Vec<_> =
        files(&data).iter().map(|file| (file.clone(), std::fs::read(file).unwrap())).collect();
    let report = backup_stopped(&data, &backup).unwrap();
    assert!(report.log_records > 0, "{report:?}");
    let after: Vec<_> =
        files(&data).iter().map(|file| (file.clone(), std::fs::read(file).unwrap())).collect();
    assert!(before == after, "the backup has changed the data directory");
    assert_sound(&verify_backup(&backup).unwrap());
    restore(&backup, &copy).unwrap();
    assert_eq!(check_consistent(&Engine::open(&copy, None).unwrap(), 600), 600);
    let missing = backup_stopped(&dir.path().join("nothing"), &dir.path().join("b")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
}

#[test]
fn tables_elsewhere_are_copied_and_those_of_the_original_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backup, copy) = (dir.path().join("data"), dir.path().join("backup"), dir.path().join("copy"));
    let elsewhere = dir.path().join("elsewhere");
    let with_tables = || {
        let mut app = app();
        app.settings.tables = Some(elsewhere.display().to_string());
        app
    };
    let engine = Engine::open(&data, Some(with_tables())).unwrap();
    send(&engine, "Order", &orders(0, 100));
    engine.flush().unwrap();
    let report = engine.backup(&backup).unwrap();
    assert_eq!(report.tables_location.as_deref(), elsewhere.to_str());
    send(&engine, "Order", &orders(100, 100));
    engine.flush().unwrap();
    let restored = restore(&backup, &copy).unwrap();
    assert_eq!(restored.tables_location.as_deref(), elsewhere.to_str());
    let before = files(&elsewhere);
    // both run, and the copy is told again where the tables of the original are
    let of_copy = Engine::open(&copy, Some(with_tables())).unwrap();
    assert_eq!(check_consistent(&of_copy, 100), 100);
    send(&of_copy, "Order", &orders(500, 50));
    of_copy.flush().unwrap();
    assert_eq!(files(&elsewhere), before);
    assert!(files(&copy.join("tables")).len() > 8);
    send(&engine, "Order", &orders(200, 100));
    engine.flush().unwrap();
    assert_eq!(check_consistent(&engine, 300), 300);
    drop(of_copy);
    assert_eq!(check_consistent(&Engine::open(&copy, Some(with_tables())).unwrap(), 150), 150);
}

const QUERIES: &str = "
    @sink(type='file', file.uri='out.json', @map(type='json'))
    define stream Out (id string, n long);
    define stream In (id string);
    from In select id, count() as n insert into Out;
";

#[test]
fn a_file_of_a_sink_is_cut_where_it_was_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path();
    std::fs::create_dir(place.join("app")).unwrap();
    std::fs::write(place.join("app/q.siddhi"), QUERIES).unwrap();
    let engine = open_app(place, &place.join("app"));
    let events = |from: u64, n: u64| -> String {
        (from..from + n).map(|i| format!("{{\"id\":\"e{i}\"}}\n")).collect()
    };
    send(&engine, "In", &events(0, 50));
    engine.wait_idle();
    engine.checkpoint().unwrap();
    send(&engine, "In", &events(50, 50));
    engine.backup(place.join("backup")).unwrap();
    send(&engine, "In", &events(100, 100));
    engine.wait_idle();
    engine.stop().unwrap();
    drop(engine);
    let written = || -> Vec<String> {
        let text = std::fs::read_to_string(place.join("app/out.json")).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    assert_eq!(written().len(), 200);
    // the original is lost
    std::fs::remove_dir_all(place.join("data")).unwrap();
    let restored = restore(&place.join("backup"), &place.join("data")).unwrap();
    assert_eq!(restored.sinks, ["q.siddhi: Out to out.json"]);
    let engine = Engine::open(&place.join("data"), None).unwrap();
    engine.wait_idle();
    send(&engine, "In", &events(100, 3));
    engine.wait_idle();
    let lines = written();
    assert_eq!(lines.len(), 103, "{lines:?}");
    for (n, line) in (1..).zip(&lines) {
        assert!(line.contains(&format!("\"n\":{n}")), "{n}: {line}");
    }
}
