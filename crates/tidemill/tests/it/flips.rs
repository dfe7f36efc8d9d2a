//! Bit flips in every kind of file of a data directory: it opens with the same data, or names the damaged
//! file.

use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tidemill::output::{Format, Writer};
use tidemill::{App, Tidemill};

use crate::copy;

const SEED: u64 = 11;
/// Flips per file.
const FLIPS: u64 = 6;

const RULES: &str = "
    event Order { id: string, item: string, amount: long } key item id id;
    event Big { order: string, amount: long } key order;
    entity Total key item;
    rule BigOne { when { o: Order(amount >= 50); } then { emit Big { order: o.id, amount: o.amount }; } }
";

const QUERIES: [&str; 3] = [
    "SELECT * FROM events.\"Order\" ORDER BY id",
    "SELECT item, count(*) AS n, sum(amount) AS sum FROM events.\"Order\" WHERE amount > 20 GROUP BY item ORDER BY item",
    "SELECT * FROM events.\"Big\" ORDER BY \"order\"",
];

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// Creates a directory with rows in tablets, covered by a checkpoint, and in the log only.
fn written(dir: &Path) {
    let tidemill = Tidemill::open_with(dir, App::from_rules("shop", RULES)).unwrap();
    for i in 0..60 {
        let order = json!({"id": format!("o{i}"), "item": format!("i{}", i % 7), "amount": i * 3 % 100});
        tidemill.send("Order", &order).unwrap();
        if i == 30 {
            tidemill.engine().flush().unwrap();
            tidemill.engine().checkpoint().unwrap();
        }
    }
    tidemill.engine().abandon();
}

/// Opens the directory and returns the results of all queries and the warnings of the start, or the error.
fn told(dir: &Path) -> Result<(String, Vec<String>), String> {
    let tidemill = Tidemill::open(dir).map_err(|e| e.to_string())?;
    let mut text = String::new();
    for query in QUERIES {
        let rows = tidemill.sql(query).map_err(|e| e.to_string())?;
        let mut writer = Writer::new(Format::Ndjson, &rows.schema, Vec::new()).unwrap();
        for batch in &rows.batches {
            writer.write(batch).unwrap();
        }
        text += &String::from_utf8(writer.finish().unwrap()).unwrap();
    }
    let warnings = tidemill.engine().recovery.warnings.clone();
    tidemill.engine().abandon();
    Ok((text, warnings))
}

#[test]
fn no_flipped_bit_of_a_data_directory_gives_other_data_in_silence() {
    let place = tempfile::tempdir().unwrap();
    let (whole, tried) = (place.path().join("whole"), place.path().join("tried"));
    written(&whole);
    let reset = || {
        if tried.exists() {
            std::fs::remove_dir_all(&tried).unwrap();
        }
        copy(&whole, &tried);
    };
    reset();
    let (good, _) = told(&tried).unwrap();
    let number = |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().unwrap());
    let seed = number("TIDEMILL_SEED").unwrap_or(SEED);
    let each = number("TIDEMILL_FLIPS").unwrap_or(FLIPS);
    println!("TIDEMILL_SEED={seed} TIDEMILL_FLIPS={each}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut flips, mut refused) = (0, 0);
    for file in files(&whole) {
        let below = file.strip_prefix(&whole).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        for _ in 0..if bytes.is_empty() { 0 } else { each } {
            let bit = rng.random_range(0..bytes.len() * 8);
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            reset();
            std::fs::write(tried.join(below), damaged).unwrap();
            flips += 1;
            let name = file.file_name().unwrap().to_str().unwrap();
            let place = format!("seed {seed}: bit {bit} of {}", below.display());
            match told(&tried) {
                Ok((text, _)) if text == good => {}
                Ok((_, warnings)) => {
                    assert!(warnings.iter().any(|w| w.contains(name)), "{place}: other data, {warnings:?}");
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.contains(name), "{place}: {error}");
                }
            }
        }
    }
    println!("{flips} flips, {refused} refused");
    assert!(flips >= 100 && refused >= flips / 5, "{flips} flips, {refused} refused");
}
