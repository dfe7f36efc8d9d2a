//! A data directory of the former release (0.1.0 before checksums, the outbox and deploys by difference), killed with
//! events behind its checkpoints: it opens with its data. What release c40cb2e answered is in `former/expected.txt`; it
//! is never filled anew.

use std::path::Path;

use crate::{copy, run};

const EXPECTED: &str = include_str!("../former/expected.txt");

/// Asks each question of the file: a line with a command and its argument, then what it printed.
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
