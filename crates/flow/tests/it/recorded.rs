//! Recorded runs: apps, what went in, what must come out.

use std::path::Path;

use tidemill_flow::Registry;
use tidemill_flow::replay::{Case, check};

/// The cases below `dir`, and what differs, by category.
fn differences(dir: &Path) -> Vec<(String, String, Vec<String>)> {
    let registry = Registry::standard();
    let mut all = Vec::new();
    let mut categories: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    categories.sort();
    for category in categories {
        let mut files: Vec<_> = std::fs::read_dir(&category).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let case: Case =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            let category = category.file_name().unwrap().to_string_lossy().into_owned();
            all.push((category, name, check(&case, &registry)));
        }
    }
    all
}

#[test]
#[ignore = "a report on the cases in SIDDHI_CASES"]
fn report() {
    let dir = std::env::var("SIDDHI_CASES").unwrap();
    let mut counts = std::collections::BTreeMap::<String, (usize, usize)>::new();
    for (category, name, wrong) in differences(Path::new(&dir)) {
        let count = counts.entry(category.clone()).or_default();
        count.1 += 1;
        match wrong.first() {
            None => count.0 += 1,
            Some(first) => println!("{category}/{name}: {}", first.replace('\n', " | ")),
        }
    }
    let (good, all) = counts.values().fold((0, 0), |(g, a), (x, y)| (g + x, a + y));
    counts.iter().for_each(|(category, (good, all))| println!("{category} {good}/{all}"));
    println!("{good} of {all}");
}
