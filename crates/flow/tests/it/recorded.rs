//! Runs recorded from Siddhi 5.1: apps, inputs and outputs.
//!
//! `cases/recorded/<category>/<name>.json`; cases with another outcome here are listed in `exceptions.txt`
//! with the reason. The ignored test prints a report on the cases in the directory `SIDDHI_CASES` (`--
//! --ignored --nocapture`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidemill_flow::Registry;
use tidemill_flow::replay::{Case, check};

/// Returns the differences of each case below `dir`, by `category/name`.
fn differences(dir: &Path) -> BTreeMap<String, Vec<String>> {
    let registry = Registry::standard();
    let entries =
        |dir: &Path| -> Vec<PathBuf> { std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect() };
    let mut all = BTreeMap::new();
    for file in entries(dir).iter().filter(|c| c.is_dir()).flat_map(|c| entries(c)) {
        let text = std::fs::read_to_string(&file).unwrap();
        let case: Case = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let name = file.strip_prefix(dir).unwrap().with_extension("");
        all.insert(name.to_string_lossy().into_owned(), check(&case, &registry));
    }
    all
}

#[test]
fn recorded_runs_come_out_as_recorded() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/recorded");
    let text = std::fs::read_to_string(dir.join("exceptions.txt")).unwrap();
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let exceptions: BTreeMap<&str, &str> = lines.map(|l| l.split_once(": ").unwrap()).collect();
    let all = differences(&dir);
    let mut wrong = Vec::new();
    for (name, differences) in &all {
        match (differences.first(), exceptions.get(name.as_str())) {
            (Some(first), None) => wrong.push(format!("{name}: {first}")),
            (None, Some(_)) => {
                wrong.push(format!("{name}: comes out as recorded, take it off exceptions.txt"))
            }
            _ => {}
        }
    }
    wrong.extend(exceptions.keys().filter(|e| !all.contains_key(**e)).map(|e| format!("{e}: no such case")));
    assert!(all.len() > 500, "{} cases", all.len());
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
#[ignore = "a report on the cases in SIDDHI_CASES"]
fn report() {
    let dir = std::env::var("SIDDHI_CASES").unwrap();
    let mut counts = BTreeMap::<String, (usize, usize)>::new();
    for (name, differences) in differences(Path::new(&dir)) {
        let category = name.split_once('/').map_or("", |(c, _)| c).to_owned();
        let count = counts.entry(category).or_default();
        count.1 += 1;
        match differences.first() {
            None => count.0 += 1,
            Some(first) => println!("{name}: {}", first.replace('\n', " | ")),
        }
    }
    let (good, all) = counts.values().fold((0, 0), |(g, a), (x, y)| (g + x, a + y));
    counts.iter().for_each(|(category, (good, all))| println!("{category} {good}/{all}"));
    println!("{good} of {all}");
}
