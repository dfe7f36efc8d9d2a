//! Files as source and sink: following, rotation, truncation, whole files, restarts at any point.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tidemill_connect::{ConnectorConfig, MapperConfig, NamedText};
use tidemill_types::{ErrorKind, FieldType};

use crate::helpers::{catalog, config, context, deliver, deliver_all, sink_error, source_error};
use crate::positioned::{PositionedSource, mapped};

const TEXT: &[(&str, FieldType)] = &[("text", FieldType::String)];
const WITH_FILE: &[(&str, FieldType)] =
    &[("text", FieldType::String), ("file", FieldType::String), ("eof", FieldType::String)];

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Opens a source whose attribute `text` is a whole message.
fn open(dir: &TempDir, options: &[(&str, &str)]) -> PositionedSource {
    open_with(dir, TEXT, options, &["(?s)(.*)"])
}

/// Opens a source whose attributes are a whole message, the name of its file, and whether it is the last.
fn open_with_file(dir: &TempDir, options: &[(&str, &str)]) -> PositionedSource {
    open_with(dir, WITH_FILE, options, &["(?s)(.*)", "trp:file.name", "trp:eof"])
}

fn open_with(
    dir: &TempDir,
    fields: &[(&str, FieldType)],
    options: &[(&str, &str)],
    attributes: &[&str],
) -> PositionedSource {
    let quick =
        [("file.polling.interval", "5"), ("dir.polling.interval", "5"), ("file.read.wait.timeout", "0")];
    let quick = quick.into_iter().filter(|(name, _)| options.iter().all(|(other, _)| other != name));
    let all: Vec<_> = options.iter().copied().chain(quick).collect();
    PositionedSource::open(fields, text_config(&all, attributes), dir.path())
}

fn text_config(options: &[(&str, &str)], attributes: &[&str]) -> ConnectorConfig {
    let mut config = mapped("file", options, "text", &[]);
    let mapper = config.mapper.get_or_insert_default();
    let regex = attributes.iter().find(|a| !a.starts_with("trp:")).map(|a| ("regex.A".into(), (*a).into()));
    mapper.options.extend(regex);
    let path = |a: &&str| if a.starts_with("trp:") { (*a).to_owned() } else { "A".to_owned() };
    mapper.attributes = attributes.iter().map(|a| NamedText { name: None, text: path(a) }).collect();
    config
}

/// Waits until the source has a problem with this text, and perhaps others before.
fn wait_for_problem(source: &mut PositionedSource, text: &str) {
    let found = (0..300).map(|_| {
        source.poll();
        source.wait_problem()
    });
    let all: Vec<String> = found.take_while(|problem| !problem.contains(text)).collect();
    assert!(all.len() < 300, "{:?}", all.last());
}

#[test]
fn a_growing_file_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    let mut source = open(&dir, &[("file.uri", "app.log")]);
    assert!(source.wait_problem().contains("it is read as soon as it can be"));
    append(&path, "a\nb\r\n\nc");
    assert_eq!(source.poll_rows(2), ["a", "b"]);
    append(&path, "c\n");
    assert_eq!(source.poll_rows(3), ["a", "b", "cc"]);
    source.restart();
    append(&path, "d\n");
    assert_eq!(source.poll_rows(4), ["a", "b", "cc", "d"]);
}

#[test]
fn a_renamed_file_is_read_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    append(&path, "a\n");
    let mut source = open(&dir, &[("file.uri", "file:app.log")]);
    source.poll_rows(1);
    fs::rename(&path, dir.path().join("app.log.1")).unwrap();
    append(&path, "c\n");
    source.poll_rows(2);
    // a program writes to the old file until it opens the new one
    append(&dir.path().join("app.log.1"), "b\nlast");
    assert_eq!(source.poll_rows(4), ["a", "c", "b", "last"]);
    // renamed and written to unobserved
    append(&path, "d\n");
    fs::rename(dir.path().join("app.log.1"), dir.path().join("app.log.2")).unwrap();
    fs::rename(&path, dir.path().join("app.log.1")).unwrap();
    append(&path, "e\n");
    source.restart();
    source.poll_rows(6);
    fs::remove_file(&path).unwrap();
    source.wait_problem();
    append(&path, "f\n");
    source.poll_rows(7);
    source.restart();
    append(&path, "g\n");
    assert_eq!(source.poll_rows(8)[4..], ["d", "e", "f", "g"]);
}

#[test]
fn a_truncated_file_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    append(&path, "header\n1\n2\n");
    let mut source = open(&dir, &[("file.uri", "app.log"), ("header.present", "true")]);
    source.poll_rows(2);
    fs::write(&path, "").unwrap();
    append(&path, "header\n3\n");
    source.poll_rows(3);
    // unobserved: shorter, then with another beginning
    fs::write(&path, "header\n").unwrap();
    source.restart();
    source.wait_working();
    append(&path, "4\n");
    source.poll_rows(4);
    fs::write(&path, "other header, which is longer\n5\n6\n7\n").unwrap();
    source.restart();
    assert_eq!(source.poll_rows(7), ["1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn a_file_is_read_once_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    append(&path, "name\na\nb\nTOTAL 2\n\n");
    let uri = format!("file://{}", path.display());
    let options = [("file.uri", &*uri), ("tailing", "false"), ("header.present", "true")];
    let mut source = open_with_file(&dir, &options);
    source.poll_until("the input ends", |source| source.ended);
    assert_eq!(source.rows, ["a|a.csv|false", "b|a.csv|false", "TOTAL 2|a.csv|true"]);
    source.ended = false;
    source.restart();
    source.poll_until("the input ends", |source| source.ended);
    assert_eq!(source.rows.len(), 3);
    assert!(path.exists(), "it stays");

    for (option, expected) in [
        ("read.only.header", &["name|a.csv|true"][..]),
        ("read.only.trailer", &["TOTAL 2|a.csv|true"]),
        ("skip.trailer", &["name|a.csv|false", "a|a.csv|false", "b|a.csv|true"]),
    ] {
        let mut source = open_with_file(&dir, &[("file.uri", &*uri), (option, "true")]);
        for _ in 0..2 {
            source.ended = false;
            source.poll_until("the input ends", |source| source.ended);
            if option != "skip.trailer" {
                assert_eq!(source.rows, expected);
            }
            source.restart();
        }
        assert_eq!(source.rows, expected, "{option}");
    }
}

#[test]
fn messages_are_found_by_regular_expressions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.xml");
    append(&path, "<?xml?><e>1\n</e> junk <e>2</e>\n<e>");
    let options = [("file.uri", "a.xml"), ("mode", "regex"), ("begin.regex", "<e>"), ("end.regex", "</e>")];
    let mut source = open(&dir, &options);
    assert_eq!(source.poll_rows(2), ["<e>1\n</e>", "<e>2</e>"]);
    append(&path, "3</e>");
    source.restart();
    assert_eq!(source.poll_rows(3)[2], "<e>3</e>");
}

#[test]
fn files_of_a_directory_are_read_and_moved() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("new");
    fs::create_dir_all(new.join("below")).unwrap();
    fs::write(new.join("b.txt"), "two\nlines\n").unwrap();
    fs::write(new.join("a.txt"), "one").unwrap();
    fs::write(new.join("empty.txt"), "").unwrap();
    fs::write(new.join(".hidden"), "hidden").unwrap();
    let options = [
        ("dir.uri", "file:new"),
        ("mode", "TEXT.FULL"),
        ("action.after.process", "move"),
        ("move.after.process", "file:done"),
    ];
    let mut source = open_with_file(&dir, &options);
    assert_eq!(source.poll_rows(2), ["one|a.txt|true", "two\nlines\n|b.txt|true"]);
    let names = |dir: &Path| {
        let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut all: Vec<String> = all.collect();
        all.sort();
        all
    };
    let done = dir.path().join("done");
    source.poll_until("files are moved", |_| done.exists() && names(&done).len() == 3);
    assert_eq!(
        (names(&done), names(&new)),
        (
            vec!["a.txt".to_owned(), "b.txt".to_owned(), "empty.txt".to_owned()],
            vec![".hidden".to_owned(), "below".to_owned()]
        )
    );
    // a new file of the same name is another file
    fs::write(new.join("a.txt"), "one").unwrap();
    source.poll_rows(3);
    source.poll_until("the file is moved", |_| names(&done).len() == 4);
    assert!(names(&done)[1].starts_with("a.txt-"), "{:?}", names(&done));
}

#[test]
fn files_move_to_another_file_system() {
    use std::os::unix::fs::MetadataExt;

    let dir = tempfile::tempdir().unwrap();
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return eprintln!("SKIPPED: no /dev/shm") };
    if device(other.path()) == device(dir.path()) {
        return eprintln!("SKIPPED: /dev/shm is no other file system");
    }
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/a"), "one\n").unwrap();
    let target = format!("file:{}/done", other.path().display());
    let options = [
        ("dir.uri", "in"),
        ("tailing", "false"),
        ("action.after.process", "move"),
        ("move.after.process", &*target),
    ];
    let mut source = open(&dir, &options);
    source.poll_until("the file is moved", |_| !dir.path().join("in/a").exists());
    assert_eq!(source.rows, ["one"]);
    assert_eq!(fs::read_to_string(other.path().join("done/a")).unwrap(), "one\n");
}

#[test]
fn a_file_that_was_read_and_deleted_is_not_missed() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        [("file.uri", "a"), ("tailing", "false"), ("action.after.process", "delete"), ("mode", "REGEX")];
    let mut source = open(&dir, &options);
    assert!(source.wait_problem().contains("it is read as soon as it is there"));
    fs::write(dir.path().join("a"), "one\n").unwrap();
    source.poll_until("the input ends", |source| source.ended);
    assert!(!dir.path().join("a").exists());
    source.ended = false;
    source.restart();
    source.poll_until("the input ends", |source| source.ended);
    assert_eq!(source.rows, ["one"]);
}

/// The events are stored, the program ends before the file is deleted.
#[test]
fn a_file_is_deleted_after_a_crash_without_its_events_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    let path = dir.path().join("in/a.txt");
    fs::write(&path, "a\nb\n").unwrap();
    let keeping = [("dir.uri", "in"), ("tailing", "false")];
    let mut source = open(&dir, &keeping);
    source.poll_rows(2);
    let positions = source.positions.clone();
    drop(source);
    let deleting = [("dir.uri", "in"), ("tailing", "false"), ("action.after.process", "delete")];
    let mut source = open(&dir, &deleting);
    source.positions = positions;
    source.restart();
    source.poll_until("the file is deleted", |_| !path.exists());
    source.rows.clear();
    for _ in 0..3 {
        source.poll();
    }
    assert!(source.rows.is_empty());
}

#[test]
fn bad_files_go_where_failures_go() {
    let dir = tempfile::tempdir().unwrap();
    let (new, bad) = (dir.path().join("new"), dir.path().join("bad"));
    fs::create_dir(&new).unwrap();
    fs::write(new.join("a.txt"), "9").unwrap();
    fs::write(new.join("b.txt"), "not a number").unwrap();
    fs::write(new.join("c.txt"), "123456789").unwrap();
    let options = [
        ("dir.uri", "new"),
        ("mode", "text.full"),
        ("action.after.process", "delete"),
        ("action.after.failure", "move"),
        ("move.after.failure", "bad"),
        ("max.message.bytes", "5"),
        ("dir.polling.interval", "5"),
        ("file.read.wait.timeout", "0"),
    ];
    let config = config("file", &options);
    let mapper = MapperConfig { kind: "csv".into(), ..MapperConfig::default() };
    let config = ConnectorConfig { mapper: Some(mapper), ..config };
    let mut source = PositionedSource::open(&[("n", FieldType::Int)], config, dir.path());
    source.poll_rows(1);
    fs::write(new.join("d.txt"), "x").unwrap();
    source.poll_until("files are moved", |_| bad.join("c.txt").exists() && bad.join("d.txt").exists());
    assert_eq!(source.rows, ["9"]);
    assert!(!new.join("a.txt").exists());
    assert!(source.rejected.iter().any(|reason| reason.contains('x')), "{:?}", source.rejected);
}

#[test]
fn parts_of_binary_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/data.bin"), "abcdefgh").unwrap();
    fs::write(dir.path().join("in/other.txt"), "no").unwrap();
    let options = [
        ("dir.uri", "in"),
        ("mode", "binary.chunked"),
        ("buffer.size", "3"),
        ("file.name.pattern", r"\w+\.bin"),
    ];
    let mut source = open_with_file(&dir, &options);
    let expected = ["abc|data.bin|false", "def|data.bin|false", "gh|data.bin|true"];
    assert_eq!(source.poll_rows(3), expected);
    source.restart();
    fs::write(dir.path().join("in/e.bin"), "x").unwrap();
    assert_eq!(source.poll_rows(4)[3], "x|e.bin|true");
}

#[test]
fn odd_names_and_links() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("in");
    fs::create_dir(&new).unwrap();
    fs::write(new.join(OsStr::from_bytes(b"\xff.txt")), "no").unwrap();
    let mut source = open_with_file(&dir, &[("dir.uri", "in"), ("tailing", "false")]);
    let problem = source.wait_problem();
    assert!(problem.contains("is not UTF-8; rename the file"), "{problem}");
    fs::remove_file(new.join(OsStr::from_bytes(b"\xff.txt"))).unwrap();

    // a link is read once, whatever its names are
    fs::write(dir.path().join("target"), "a\n").unwrap();
    std::os::unix::fs::symlink("../target", new.join("link")).unwrap();
    std::os::unix::fs::symlink("../target", new.join("link2")).unwrap();
    fs::hard_link(dir.path().join("target"), new.join("z")).unwrap();
    assert_eq!(source.poll_rows(1), ["a|link|true"]);
    std::os::unix::fs::symlink("../nothing", new.join("broken")).unwrap();
    wait_for_problem(&mut source, "symbolic link to a file that does not exist");
    fs::remove_file(new.join("broken")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(new.join("socket")).unwrap();
    fs::write(new.join("zz"), "b\n").unwrap();
    assert_eq!(source.poll_rows(2)[1], "b|zz|true");
    wait_for_problem(&mut source, "is no regular file");
    drop(listener);

    let mut source = open(&dir, &[("file.uri", "in")]);
    let problem = source.wait_problem();
    assert!(problem.contains("is a directory; write its name as `dir.uri`"), "{problem}");
}

#[test]
fn text_that_is_not_utf_8_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), b"good\n\xff\xfe\nalso good\n").unwrap();
    let mut source = open(&dir, &[("file.uri", "a")]);
    assert_eq!(source.poll_rows(2), ["good", "also good"]);
    assert_eq!(source.rejected.len(), 1, "{:?}", source.rejected);
}

#[test]
fn a_file_that_is_being_written_waits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, "one").unwrap();
    let options = [("file.uri", "a"), ("mode", "TEXT.FULL"), ("file.read.wait.timeout", "400")];
    let mut source = open(&dir, &options);
    source.poll();
    append(&path, ", two");
    assert_eq!(source.poll_rows(1), ["one, two"]);
}

#[test]
fn files_are_read_at_times_of_a_schedule() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "one\n").unwrap();
    let options = [("dir.uri", "."), ("cron.expression", "* * * * * ?"), ("action.after.process", "delete")];
    let mut source = open(&dir, &options);
    source.poll_rows(1);
    fs::write(dir.path().join("b"), "two\n").unwrap();
    assert_eq!(source.poll_rows(2), ["one", "two"]);
}

/// A program writes lines and rotates its file by renaming, and the source crashes, all at random.
#[test]
fn every_line_comes_once() {
    for seed in 1..=6u64 {
        let dir = tempfile::tempdir().unwrap();
        let by_directory = [("dir.uri", "."), ("file.name.pattern", r"app\.log.*"), ("tailing", "true")];
        let options: &[_] = if seed % 2 == 0 { &by_directory } else { &[("file.uri", "app.log")] };
        let options: Vec<_> = options.iter().copied().chain([("header.present", "true")]).collect();
        let mut source = open(&dir, &options);
        let path = dir.path().join("app.log");
        let mut state = seed;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut written, mut rotations, mut pending) = (vec![], 0, String::new());
        append(&path, "header\n");
        for _ in 0..120 {
            match random(10) {
                0 => {
                    append(&path, &std::mem::take(&mut pending));
                    if seed % 2 == 1 {
                        // a file that gets and loses its name unobserved is found in the directory only
                        for _ in 0..2 {
                            let line = format!("{} before the rotation", written.len());
                            append(&path, &format!("{line}\n"));
                            source.poll_rows(written.len());
                            written.push(line);
                        }
                    }
                    rotations += 1;
                    fs::rename(&path, dir.path().join(format!("app.log.{rotations}"))).unwrap();
                    append(&path, "header\n");
                }
                1 => source.restart(),
                2 | 3 => source.poll(),
                _ => {
                    for _ in 0..random(50) {
                        let line = format!("{} {}", written.len(), "x".repeat(random(300) as usize));
                        pending += &format!("{line}\n");
                        written.push(line);
                    }
                    // lines are often written in parts
                    let part = pending.len() - random(pending.len() as u64 + 1) as usize;
                    let rest = pending.split_off(part);
                    append(&path, &std::mem::replace(&mut pending, rest));
                }
            }
        }
        append(&path, &pending);
        for _ in 0..500 {
            if source.rows.len() < written.len() {
                source.poll();
            }
        }
        source.poll();
        let mut found = std::mem::take(&mut source.rows);
        found.sort_by_key(|line| line.split(' ').next().and_then(|n| n.parse::<usize>().ok()));
        let differs = found.iter().zip(&written).position(|(a, b)| a != b);
        let counts = (found.len(), written.len());
        assert!(
            found == written,
            "seed {seed}: {counts:?} lines, {rotations} files; from line {differs:?} on"
        );
    }
}

#[test]
fn changes_of_a_directory_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "1").unwrap();
    let fields = &[("path", FieldType::String), ("name", FieldType::String), ("status", FieldType::String)];
    let uri = format!("file:{}", dir.path().display());
    let options = [("dir.uri", &*uri), ("monitoring.interval", "5"), ("file.name.list", "a, b")];
    let plain = ConnectorConfig { mapper: None, ..config("fileeventlistener", &options) };
    let mut source = PositionedSource::open(fields, plain, dir.path());
    let event = |name: &str, status: &str| format!("{}/{name}|{name}|{status}", dir.path().display());
    assert_eq!(source.poll_rows(1), [event("a", "created")]);
    append(&dir.path().join("a"), "2");
    source.poll_rows(3);
    assert_eq!(source.rows.last(), Some(&event("a", "modifyingCompleted")));
    fs::write(dir.path().join("c"), "not watched").unwrap();
    let known = source.rows.len();
    // unobserved changes are reported afterwards, and nothing else is
    std::thread::sleep(Duration::from_millis(20));
    source.restart();
    fs::remove_file(dir.path().join("a")).unwrap();
    fs::write(dir.path().join("b"), "1").unwrap();
    source.poll_rows(known + 2);
    source.restart();
    for _ in 0..3 {
        source.poll();
    }
    assert_eq!(source.rows[known], event("a", "removed"));
    assert_eq!(source.rows[known + 1], event("b", "created"));
}

fn sink_in(dir: &TempDir, mapper: &str, options: &[(&str, &str)]) -> tidemill_connect::ConnectorSink {
    let mapper = MapperConfig { kind: mapper.into(), ..MapperConfig::default() };
    let config = ConnectorConfig { mapper: Some(mapper), ..config("file", options) };
    let context = tidemill_connect::ConnectorContext { dir: dir.path().into(), ..context("app", "S") };
    catalog().open_sink(&config, &context).unwrap_or_else(|e| panic!("{e}"))
}

fn read(dir: &TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).unwrap()
}

#[test]
fn events_are_appended() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = sink_in(&dir, "json", &[("file.uri", "file:out/{{text}}.json")]);
    deliver_all(&mut sink, &[("a", 1), ("b", 2), ("a", 3)]);
    deliver_all(&mut sink, &[("a", 4)]);
    assert_eq!(
        read(&dir, "out/a.json"),
        "{\"event\":{\"text\":\"a\",\"n\":1}}\n{\"event\":{\"text\":\"a\",\"n\":3}}\n{\"event\":{\"text\":\"a\",\"n\":4}}\n"
    );
    assert_eq!(read(&dir, "out/b.json").lines().count(), 1);

    // rows of CSV are lines already
    let mut sink = sink_in(&dir, "csv", &[("file.uri", "out.csv")]);
    deliver_all(&mut sink, &[("a", 1), ("b", 2)]);
    assert_eq!(read(&dir, "out.csv"), "a,1\nb,2\n");
    let mut sink = sink_in(&dir, "csv", &[("file.uri", "spaced.csv"), ("add.line.separator", "true")]);
    deliver_all(&mut sink, &[("a", 1), ("b", 2)]);
    assert_eq!(read(&dir, "spaced.csv"), "a,1\n\nb,2\n\n");
    let mut sink = sink_in(&dir, "text", &[("file.uri", "joined"), ("add.line.separator", "false")]);
    deliver_all(&mut sink, &[("a", 1), ("b", 2)]);
    assert!(!read(&dir, "joined").ends_with('\n'));
}

#[test]
fn the_last_event_replaces_the_content() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = sink_in(&dir, "csv", &[("file.uri", "state/{{text}}"), ("append", "false")]);
    deliver_all(&mut sink, &[("a", 1), ("b", 2), ("a", 3)]);
    assert_eq!((read(&dir, "state/a"), read(&dir, "state/b")), ("a,3\n".into(), "b,2\n".into()));
}

#[test]
fn full_files_are_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let options = [("file.uri", "out.csv"), ("roll.max.bytes", "10"), ("roll.keep", "2")];
    let mut sink = sink_in(&dir, "csv", &options);
    let events: Vec<(&str, i64)> = (0..11).map(|n| ("abc", n % 10)).collect();
    for some in events.chunks(4) {
        deliver_all(&mut sink, some);
    }
    let mut names: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    let texts: Vec<_> = names.iter().map(|name| read(&dir, name)).collect();
    assert_eq!(texts, ["abc,0\n", "abc,8\n", "abc,9\n"]);
}

#[test]
fn a_removed_file_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = sink_in(&dir, "csv", &[("file.uri", "out.csv")]);
    deliver_all(&mut sink, &[("a", 1)]);
    fs::rename(dir.path().join("out.csv"), dir.path().join("old.csv")).unwrap();
    deliver_all(&mut sink, &[("b", 2)]);
    assert_eq!((read(&dir, "old.csv"), read(&dir, "out.csv")), ("a,1\n".into(), "b,2\n".into()));
}

#[test]
fn values_do_not_lead_out_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut sink = sink_in(&dir, "csv", &[("file.uri", "out/x/{{text}}")]);
    let long = "l".repeat(300);
    let events =
        [("../../evil", 1), ("/etc/evil", 2), ("a/b", 3), (&*long, 4), ("nul\0", 5), ("", 6), ("ok", 7)];
    let (progress, delivered) = deliver(&mut sink, &events);
    delivered.unwrap();
    let refused: Vec<usize> = progress.refused.iter().map(|refused| refused.row).collect();
    let mut sorted = refused.clone();
    sorted.sort_unstable();
    assert_eq!((sorted, progress.delivered), (vec![0, 1, 3, 4, 5], 7), "{:?}", progress.refused);
    assert_eq!((read(&dir, "out/x/a/b"), read(&dir, "out/x/ok")), ("a/b,3\n".into(), "ok,7\n".into()));
}

#[test]
fn what_cannot_be_written_waits() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let mut sink = sink_in(&dir, "csv", &[("file.uri", "file/out.csv")]);
    let (progress, delivered) = deliver(&mut sink, &[("a", 1)]);
    let error = delivered.unwrap_err();
    assert_eq!((progress.delivered, error.kind()), (0, ErrorKind::Unavailable));
    assert!(error.message().contains("file/out.csv"), "{error}");
    fs::remove_file(dir.path().join("file")).unwrap();
    deliver_all(&mut sink, &[("a", 1)]);
    assert_eq!(read(&dir, "file/out.csv"), "a,1\n");
}

#[test]
fn wrong_options_are_refused() {
    for (options, expected) in [
        (&[][..], "needs `file.uri` or `dir.uri`"),
        (&[("file.uri", "a"), ("dir.uri", "b")], "not both"),
        (&[("file.uri", "sftp://u:hunter2@h/a")], "files are not read or written over `sftp`"),
        (&[("dir.uri", "a"), ("mode", "TEXT.FULL"), ("tailing", "true")], "only lines and matches"),
        (&[("dir.uri", "a"), ("begin.regex", "x")], "it needs mode='REGEX'"),
        (&[("dir.uri", "a"), ("mode", "REGEX"), ("begin.regex", "x*")], "matches the empty text"),
        (&[("dir.uri", "a"), ("mode", "REGEX"), ("end.regex", "(?=x)")], "look-around"),
        (
            &[("dir.uri", "a"), ("tailing", "false"), ("action.after.process", "move")],
            "needs the option `move",
        ),
        (&[("dir.uri", "a"), ("move.after.process", "b")], "it needs action.after.process='MOVE'"),
        (
            &[
                ("dir.uri", "a"),
                ("tailing", "false"),
                ("action.after.process", "move"),
                ("move.after.process", "a"),
            ],
            "another directory",
        ),
        (
            &[("dir.uri", "a"), ("action.after.process", "move"), ("move.after.process", "b")],
            "tailing='false'",
        ),
        (&[("dir.uri", "a"), ("cron.expression", "never")], "a schedule needs six or seven"),
        (&[("dir.uri", "a"), ("skip.trailer", "true"), ("read.only.header", "true")], "together with"),
        (&[("file.uri", "a"), ("file.name.pattern", "x")], "for the files of a directory"),
        (&[("file.uri", "a"), ("mode", "BINARY.FULL"), ("header.present", "true")], "has no lines"),
    ] {
        let error = source_error("file", options);
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
    for (options, expected) in [
        (&[("file.uri", "ftp://u:hunter2@h/{{text}}")][..], "files are not read or written over `ftp`"),
        (&[("file.uri", "a/{{x}}")], "no attribute `x`"),
        (&[("file.uri", "a/")], "found a directory"),
        (&[("file.uri", "a"), ("add.line.separator", "maybe")], "expected `true` or `false`"),
        (&[("file.uri", "a"), ("append", "false"), ("roll.interval", "1 hour")], "it needs append='true'"),
        (&[("file.uri", "a"), ("roll.keep", "3")], "it needs `roll.max.bytes` or `roll.interval`"),
    ] {
        let error = sink_error("file", options);
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
    let error = source_error("fileeventlistener", &[("dir.uri", "a")]);
    assert!(error.contains("three attributes of type string"), "{error}");
}

#[test]
fn processes_that_share_partitions_write_a_file_for_each() {
    let dir = tempfile::tempdir().unwrap();
    let open = |uri: &str| {
        let mapper = MapperConfig { kind: "json".into(), ..MapperConfig::default() };
        let config = ConnectorConfig { mapper: Some(mapper), ..config("file", &[("file.uri", uri)]) };
        let context = tidemill_connect::ConnectorContext {
            dir: dir.path().into(),
            shares_partitions: true,
            ..context("app", "S")
        };
        catalog().open_sink(&config, &context)
    };
    let error = open("file:out/{{text}}.json").err().unwrap().to_string();
    assert!(error.contains("several processes own the partitions"), "{error}");
    assert!(error.contains("`{{text}}-{partition}.json`"), "{error}");
    let mut sink = open("file:out/{{text}}-{partition}.json").unwrap();
    deliver_all(&mut sink, &[("a", 1), ("b", 2), ("a", 3)]);
    assert_eq!(
        read(&dir, "out/a-0.json"),
        "{\"event\":{\"text\":\"a\",\"n\":1}}\n{\"event\":{\"text\":\"a\",\"n\":3}}\n"
    );
    assert_eq!(read(&dir, "out/b-0.json"), "{\"event\":{\"text\":\"b\",\"n\":2}}\n");
    // an event does not choose the partition
    let (progress, delivered) = deliver(&mut sink, &[("{partition}", 4)]);
    delivered.unwrap();
    assert_eq!(progress.refused.len(), 1);
}
