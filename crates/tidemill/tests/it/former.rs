//! Compatibility with release 0.1.0 (before checksums, the outbox and deploys by difference): a data
//! directory that was killed with events after its checkpoints opens with its data. `former/expected.txt` has
//! the answers of release c40cb2e and is never rewritten.

use std::path::Path;

use crate::{copy, run};

const EXPECTED: &str = include_str!("../former/expected.txt");

/// Runs each question of the file: returns lines with a command and its argument, each followed by its
/// output.
fn asked(data: &str) -> String {
    let mut text = String::new();
    let questions = EXPECTED.lines().filter(|l| ["sql ", "query ", "why "].iter().any(|c| l.starts_with(c)));
    for question in questions {
        let (command, rest) = question.split_once(' ').unwrap();
        let mut args = vec![command, "--data", data];
        match command {
            "sql" => args.extend(["--output", "ndjson", "-c", rest]),
            "why" => args.extend(rest.split(' ')),
            _ => args.push(rest),
        }
        text += &format!("{question}\n{}\n", run(&args, 0).0);
    }
    text
}

#[test]
fn data_directory_of_the_former_release_opens_with_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/former/data"), &data);
    let data = data.to_str().unwrap();
    assert_eq!(asked(data), EXPECTED, "at the first start");
    assert_eq!(asked(data), EXPECTED, "with what the first start wrote");
}
