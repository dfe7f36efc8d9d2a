//! Messages to the user when files are torn, changed or missing, or the disk is full.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Serving, run, serve, sql};

const APP: &str = "
    event Order { id: string, amount: long } key id id id;
    event Big { order: string, amount: long } key order;
    entity Total key id;
    rule BigOne { when { o: Order(amount >= 50); } then { emit Big { order: o.id, amount: o.amount }; } }
";

/// One partition, without automatic flushes and checkpoints.
const SETTINGS: &str = "[settings]
partitions = 1
flush_interval = '1 hour'
checkpoint_interval = '1 hour'
";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.rules"), APP).unwrap();
        std::fs::write(dir.path().join("app.toml"), SETTINGS).unwrap();
        Self { dir }
    }

    fn app(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Sends batches of ten orders and kills the server, so that all events are in the log only.
    fn orders_then_kill(&self, batches: u64) {
        let mut server = serve(self.app(), &self.data());
        for batch in 0..batches {
            assert_eq!(send(&server, batch * 10, 10).unwrap()["durability"], json!("fsync"));
        }
        server.kill();
    }

    fn newest(&self, below: &str, extension: &str) -> PathBuf {
        let mut files: Vec<PathBuf> = walk(&self.data().join(below));
        files.retain(|f| f.extension().is_some_and(|e| e == extension));
        files.sort();
        files.pop().unwrap_or_else(|| panic!("no .{extension} below {below}"))
    }
}

/// Flips a bit in the middle of the file and returns the original contents.
fn flip_a_byte(file: &Path) -> Vec<u8> {
    let good = std::fs::read(file).unwrap();
    let mut bytes = good.clone();
    bytes[good.len() / 2] ^= 0x10;
    std::fs::write(file, bytes).unwrap();
    good
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Sends orders. Returns the reply, or the status and the error.
fn send(server: &Serving, first: u64, n: u64) -> Result<Value, (u16, String)> {
    let rows: Vec<Value> = (first..first + n).map(|i| json!({"id": format!("o{i}"), "amount": i})).collect();
    let sent = ureq::post(format!("{}/api/v1/streams/Order", server.base))
        .config()
        .http_status_as_error(false)
        .build()
        .header("authorization", format!("Bearer {}", server.token))
        .send_json(json!(rows));
    let mut reply = sent.unwrap();
    let text = reply.body_mut().read_to_string().unwrap();
    match reply.status().as_u16() {
        200..300 => Ok(serde_json::from_str(&text).unwrap()),
        status => Err((status, text)),
    }
}

fn count(data: &Path, stream: &str) -> Value {
    sql(data.to_str().unwrap(), &format!("SELECT count(*) AS n FROM events.\"{stream}\""))[0]["n"].clone()
}

#[test]
fn a_torn_tail_is_cut_and_told() {
    let place = Place::new();
    place.orders_then_kill(3);
    let segment = place.newest("log", "seg");
    let bytes = std::fs::read(&segment).unwrap();
    // the head of another record, as a write that a power failure interrupted leaves it
    let torn = [bytes.as_slice(), &[60, 1, 0, 0, 0xaa, 0xbb]].concat();
    std::fs::write(&segment, torn).unwrap();
    let (out, err) = run(&["run", place.app(), "--data", place.data().to_str().unwrap(), "--until-idle"], 0);
    let told = format!("{out}{err}");
    assert!(told.contains("cut"), "{told}");
    assert_eq!((count(&place.data(), "Order"), count(&place.data(), "Big")), (json!(30), json!(0)));
}

#[test]
fn a_flipped_byte_in_the_middle_stops_the_start_and_is_named() {
    let place = Place::new();
    place.orders_then_kill(3);
    let segment = place.newest("log", "seg");
    let good = flip_a_byte(&segment);
    let data = place.data();
    let data = data.to_str().unwrap();
    let (_, err) = run(&["run", place.app(), "--data", data, "--until-idle"], 1);
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(err.contains(name) && err.contains("byte") && err.contains("Restore the log"), "{err}");
    // with the file restored from a backup, all data is there again
    std::fs::write(&segment, good).unwrap();
    run(&["run", place.app(), "--data", data, "--until-idle"], 0);
    assert_eq!(count(&place.data(), "Order"), json!(30));
}

#[test]
fn a_damaged_log_without_a_backup_is_repaired_when_asked_to() {
    let place = Place::new();
    place.orders_then_kill(3);
    let segment = place.newest("log", "seg");
    flip_a_byte(&segment);
    let data = place.data();
    let data = data.to_str().unwrap();
    let (_, err) = run(&["run", place.app(), "--data", data, "--until-idle"], 1);
    assert!(err.contains("log_repair = true"), "{err}");
    std::fs::write(place.dir.path().join("app.toml"), format!("{SETTINGS}log_repair = true\n")).unwrap();
    let (out, err) = run(&["run", place.app(), "--data", data, "--until-idle"], 0);
    assert!(format!("{out}{err}").contains("records went"), "{out}{err}");
    assert_eq!(count(&place.data(), "Order"), json!(10), "what lies before the damage");
    assert!(place.newest("log", "lost").exists(), "the rest is set aside");
}

#[test]
fn missing_table_files_are_named() {
    let place = Place::new();
    place.orders_then_kill(3);
    let data = place.data();
    let data = data.to_str().unwrap();
    run(&["run", place.app(), "--data", data, "--until-idle"], 0);
    let tablet = place.newest("tables/Order", "parquet");
    let kept = std::fs::read(&tablet).unwrap();
    std::fs::remove_file(&tablet).unwrap();
    let (_, err) = run(&["sql", "--data", data, "-c", "SELECT sum(amount) FROM events.\"Order\""], 1);
    assert!(err.contains(tablet.file_name().unwrap().to_str().unwrap()) && err.contains("30 rows"), "{err}");
    assert!(err.contains("open_degraded = true"), "{err}");
    // continuing without these rows is the operator's decision
    let settings = format!("{SETTINGS}zones.open_degraded = true\n");
    std::fs::write(place.dir.path().join("app.toml"), settings).unwrap();
    let (out, err) = run(&["run", place.app(), "--data", data, "--until-idle"], 0);
    assert!(format!("{out}{err}").contains("30 rows"), "{out}{err}");
    assert_eq!(count(&place.data(), "Order"), json!(0));
    std::fs::write(&tablet, kept).unwrap();
    assert_eq!(count(&place.data(), "Order"), json!(30));
    let commit = place.newest("tables/Order/_delta_log", "json");
    let earlier = commit.with_file_name(format!("{:020}.json", 0));
    assert_ne!(commit, earlier);
    let kept = std::fs::read(&earlier).unwrap();
    std::fs::remove_file(&earlier).unwrap();
    let (_, err) = run(&["sql", "--data", data, "-c", "SELECT 1"], 1);
    assert!(err.contains("Order") && err.contains(&format!("{:020}", 0)), "{err}");
    std::fs::write(&earlier, kept).unwrap();
    assert_eq!(count(&place.data(), "Order"), json!(30));
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let place = Place::new();
    let data = place.data();
    std::fs::create_dir(&data).unwrap();
    let mount = |args: &[&str]| {
        let done = std::process::Command::new(args[0]).args(&args[1..]).arg(&data).output();
        done.is_ok_and(|o| o.status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs"]) {
        eprintln!("skipped: a tmpfs can be mounted by root only");
        return;
    }
    let tried = std::panic::catch_unwind(|| {
        let server = serve(place.app(), &data);
        send(&server, 0, 10).unwrap();
        let ballast = data.join("ballast");
        let mut filled = 7 << 20;
        while std::fs::write(&ballast, vec![7; filled]).is_err() {
            filled -= 64 << 10;
        }
        let mut first = 10;
        let (status, text) = loop {
            match send(&server, first, 500) {
                Ok(_) => first += 500,
                Err(refused) => break refused,
            }
        };
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("disk full") && text.contains("\"retryable\":true"), "{text}");
        std::fs::remove_file(&ballast).unwrap();
        // rejected events are not stored: the same ids are accepted once the log has retried the disk
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        let sent = loop {
            match send(&server, first, 500) {
                Ok(sent) => break sent,
                Err((503, _)) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                Err(refused) => panic!("{refused:?}"),
            }
        };
        assert_eq!(sent["accepted"], json!(500), "{sent}");
        drop(server);
        run(&["run", place.app(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
        assert_eq!(count(&data, "Order"), json!(first + 500));
    });
    assert!(mount(&["umount"]));
    if let Err(panic) = tried {
        std::panic::resume_unwind(panic);
    }
}
