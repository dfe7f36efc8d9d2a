//! The data directory, as its owner and other users of the machine see it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::{run, serve, tidemill};

const APP: &str = "event Order { id: string, amount: long } key id;
    rule Large { when { o: Order(amount > 5); } then { emit new Seen(o.id); } }
    event Seen { id: string } key id;
";

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("app")).unwrap();
        fs::write(dir.path().join("app/a.rules"), APP).unwrap();
        Self { dir }
    }

    fn settings(&self, settings: &str) {
        fs::write(self.dir.path().join("app/app.toml"), format!("[settings]\n{settings}\n")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn data(&self) -> String {
        self.text("data")
    }

    fn run(&self, code: i32) -> (String, String) {
        run(&["run", &self.text("app"), "--data", &self.data(), "--until-idle"], code)
    }

    /// Stores ten events in the log only.
    fn events_in_the_log(&self) {
        self.settings("partitions = 1\nflush_interval = '1 hour'\ncheckpoint_interval = '1 hour'\nsegment_bytes = '64KiB'");
        let mut server = serve(&self.text("app"), &self.path("data"));
        let long = "x".repeat(20_000);
        for i in 0..10 {
            let sent = ureq::post(format!("{}/api/v1/streams/Order", server.base))
                .header("authorization", format!("Bearer {}", server.token))
                .send_json(serde_json::json!({"id": format!("o{i}"), "amount": i, "note": long}));
            assert_eq!(sent.unwrap().status(), 200);
        }
        server.kill();
    }

    fn segments(&self) -> Vec<PathBuf> {
        let mut files = all(&self.path("data/log"));
        files.retain(|f| f.extension().is_some_and(|e| e == "seg"));
        files.sort();
        files
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns all files and directories below `dir`.
fn all(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], all(&path)].concat() } else { vec![path] })
        .collect()
}

#[test]
fn only_the_owner_may_read_it() {
    let place = Place::new();
    place.settings("flush_interval = '1 hour'\nzones.delta_checkpoint_commits = 2");
    let server = serve(&place.text("app"), &place.path("data"));
    let url = format!("{}/api/v1/streams/Order?wait=true", server.base);
    let bearer = format!("Bearer {}", server.token);
    let body = serde_json::json!({"id": "o1", "amount": 9});
    assert_eq!(ureq::post(url).header("authorization", bearer).send_json(body).unwrap().status(), 200);
    let server_file = place.path("data/server.json");
    assert_eq!(mode(&server_file), 0o600);
    drop(server);
    for _ in 0..3 {
        place.run(0);
        run(&["sql", "--data", &place.data(), "-c", "select 1"], 0);
    }
    assert_eq!(mode(&place.path("data")), 0o700);
    let found = all(&place.path("data"));
    for part in [
        "/log/p00000",
        ".seg",
        "newest",
        "app.json",
        "meta.json",
        ".ckpt",
        ".why",
        ".parquet",
        "_delta_log",
        "token",
    ] {
        assert!(found.iter().any(|f| f.to_str().unwrap().contains(part)), "no {part} in {found:?}");
    }
    // DataFusion creates the files in `spill`, a directory that other users cannot enter
    let spill = place.path("data/spill");
    for path in found.into_iter().filter(|path| path.parent() != Some(&spill)) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{} is {:o}", path.display(), mode(&path));
    }
}

#[test]
fn one_that_all_could_read_is_shut_and_told() {
    let place = Place::new();
    place.run(0);
    let data = place.path("data");
    for (before, after, is_told) in [(0o755, 0o700, true), (0o700, 0o700, false), (0o750, 0o750, false)] {
        set_mode(&data, before);
        let (_, err) = place.run(0);
        assert_eq!(mode(&data), after);
        assert_eq!(err.contains(&format!("(mode {before:04o})")), is_told, "{err}");
    }
}

#[test]
fn a_token_that_others_could_read_is_shut_and_told() {
    let place = Place::new();
    drop(serve(&place.text("app"), &place.path("data")));
    let token = place.path("data/token");
    set_mode(&token, 0o644);
    let listening =
        ["run", &place.text("app"), "--data", &place.data(), "--until-idle", "--listen", "127.0.0.1:0"];
    let (_, err) = run(&listening, 0);
    assert!(err.contains("token") && err.contains("(mode 0644)"), "{err}");
    assert_eq!(mode(&token), 0o600);
    let (_, err) = run(&listening, 0);
    assert!(!err.contains("token"), "{err}");
}

#[test]
fn a_mistyped_directory_is_not_made() {
    let place = Place::new();
    let typo = place.text("dta");
    let (_, err) = run(&["serve", "--data", &typo], 1);
    assert!(err.contains("no app is deployed") && err.contains(&typo), "{err}");
    assert!(!place.path("dta").exists());
    fs::create_dir(place.path("dta")).unwrap();
    run(&["serve", "--data", &typo], 1);
    assert_eq!(all(&place.path("dta")), Vec::<PathBuf>::new());
}

#[test]
fn a_directory_of_others_is_left_alone() {
    let place = Place::new();
    fs::create_dir(place.path("data")).unwrap();
    fs::write(place.path("data/letter.txt"), "Dear").unwrap();
    let (_, err) = place.run(1);
    assert!(err.contains("`letter.txt`") && err.contains("empty directory"), "{err}");
    assert_eq!(all(&place.path("data")), [place.path("data/letter.txt")]);
    fs::remove_file(place.path("data/letter.txt")).unwrap();
    place.run(0);
    // a directory without its meta file is still recognized
    fs::remove_file(place.path("data/meta.json")).unwrap();
    place.run(0);
}

#[test]
fn who_has_it_is_told() {
    let place = Place::new();
    let server = serve(&place.text("app"), &place.path("data"));
    let (_, err) = place.run(1);
    assert!(err.contains(&format!("process {} has this data directory open", server.pid())), "{err}");
    assert!(err.contains("tidemill sql"), "{err}");
}

#[test]
fn the_number_of_partitions_stays_and_that_is_told() {
    let place = Place::new();
    place.settings("partitions = 2");
    place.run(0);
    place.settings("partitions = 3");
    let (_, err) = place.run(0);
    assert!(err.contains("partitions = 3 is not followed") && err.contains("was made with 2"), "{err}");
    assert_eq!(err.matches("not followed").count(), 1, "said once: {err}");
}

#[test]
fn missing_segments_are_named_with_what_to_do() {
    let place = Place::new();
    place.events_in_the_log();
    place.run(0); // leaves a checkpoint
    place.events_in_the_log();
    let segments = place.segments();
    assert!(segments.len() >= 3, "{segments:?}");
    // the newest segment begins after the checkpoint's offset
    let (newest, older) = segments.split_last().unwrap();
    let kept: Vec<_> = older.iter().map(|file| fs::read(file).unwrap()).collect();
    older.iter().for_each(|file| fs::remove_file(file).unwrap());
    let (_, err) = place.run(1);
    let dir = place.text("data/log/p00000");
    for part in
        ["partition 0", &dir, "are not applied yet", newest.file_name().unwrap().to_str().unwrap(), "backup"]
    {
        assert!(err.contains(part), "{part}: {err}");
    }
    older.iter().zip(kept).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    fs::remove_file(newest).unwrap();
    let (_, err) = place.run(1);
    for part in [newest.to_str().unwrap(), "partition 0", "is missing", "log_repair = true"] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

#[test]
fn paths_are_whole() {
    let place = Place::new();
    place.events_in_the_log();
    place.run(0);
    let rows = crate::sql(&place.data(), "select path from system.tablets");
    assert!(!rows.is_empty());
    for row in rows {
        assert!(Path::new(row["path"].as_str().unwrap()).is_file(), "{row}");
    }
}

#[test]
fn log_lines_have_no_colours_in_a_file_and_no_noise_from_below() {
    let place = Place::new();
    let output = tidemill(&["-vv", "run", &place.text("app"), "--data", &place.data(), "--until-idle"])
        .env("RUST_LOG_STYLE", "always")
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains(" INFO ") && !err.contains('\u{1b}'), "{err}");
    let output = tidemill(&["run", &place.text("app"), "--data", &place.data(), "--until-idle"])
        .env("TIDEMILL_SETTING__FLUSH_INTERVAL", "1s")
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("did you mean TIDEMILL_SETTINGS__FLUSH_INTERVAL?"), "{err}");
}

#[test]
fn addresses_without_a_host_are_taken() {
    let place = Place::new();
    for address in ["localhost:0", ":0", "0"] {
        let args = ["run", &place.text("app"), "--data", &place.data(), "--until-idle", "--listen", address];
        let (out, _) = run(&args, 0);
        assert!(out.contains("Listening on http://127.0.0.1:"), "{address}: {out}");
    }
    let output = tidemill(&["serve", "--data", &place.data(), "--listen", "localhost"]).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("for example 127.0.0.1:4700"), "{err}");
}
