//! Resident bytes of documents, against the bytes of their BSON.

use anyhow::{Context, Result};
use bson::RawDocumentBuf;
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_docs::{Direction, DocumentCommand, IndexSpec};
use tidemill_engine::Engine;

use crate::{Level, open, workload};

/// Documents of one insert.
const BATCH: u64 = 1000;

#[derive(Args)]
pub struct Options {
    /// Documents.
    #[arg(long, default_value_t = 300_000)]
    records: u64,
    /// Measures one shape of documents, in a process of its own.
    #[arg(long, hide = true)]
    shape: Option<String>,
}

pub fn measure(options: &Options) -> Result<()> {
    if let Some(shape) = &options.shape {
        return measure_shape(shape, options.records);
    }
    println!("| documents | BSON, bytes each | resident, bytes each | ratio | with one index | ratio |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    // memory that a process gave back to its allocator would count for the next shape
    for shape in ["ycsb", "flight", "small"] {
        let status = std::process::Command::new(std::env::current_exe()?)
            .args(["memory", "--records", &options.records.to_string(), "--shape", shape])
            .status()?;
        anyhow::ensure!(status.success(), "{shape} failed");
    }
    Ok(())
}

fn measure_shape(shape: &str, records: u64) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let engine = open(dir.path(), Level::Os, 1)?;
    let mut rng = StdRng::seed_from_u64(1);
    let empty = resident()?;
    let mut bytes = 0;
    for start in (0..records).step_by(BATCH as usize) {
        let documents = (start..(start + BATCH).min(records)).map(|n| document(shape, n, &mut rng));
        let documents: Vec<bytes::Bytes> = documents.map(|d| d.into_bytes().into()).collect();
        bytes += documents.iter().map(bytes::Bytes::len).sum::<usize>();
        engine.collection("Measured").insert(documents, None)?;
    }
    let filled = settled(&engine)? - empty;
    let fields = vec![("indexed".to_owned(), Direction::Ascending)];
    let index = IndexSpec { name: "indexed_1".to_owned(), fields, ..IndexSpec::default() };
    engine.write_documents(DocumentCommand::CreateIndex { collection: "Measured".into(), index }, None)?;
    let indexed = settled(&engine)? - empty;
    let each = |total: usize| total as f64 / records as f64;
    let ratio = |total: usize| total as f64 / bytes as f64;
    println!(
        "| {shape} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} |",
        each(bytes),
        each(filled),
        ratio(filled),
        each(indexed),
        ratio(indexed)
    );
    Ok(())
}

/// Returns the resident bytes after what is only needed for a while is gone.
fn settled(engine: &Engine) -> Result<usize> {
    engine.checkpoint()?;
    std::thread::sleep(std::time::Duration::from_secs(2));
    resident()
}

/// Returns the resident bytes of this process.
fn resident() -> Result<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = pages.split_whitespace().nth(1).context("resident pages")?.parse()?;
    Ok(pages * 4096)
}

fn document(shape: &str, number: u64, rng: &mut StdRng) -> RawDocumentBuf {
    let mut document = match shape {
        "ycsb" => workload::record(number, rng),
        "flight" => bson::rawdoc! {
            "_id": format!("2013-{:03}-UA-{number}", number % 365), "carrier": "UA", "flight": (number % 2000) as i32,
            "tailnum": format!("N{:05}", number % 4000), "origin": "EWR", "dest": "LAX",
            "sched": bson::DateTime::from_millis(1_357_000_000_000 + number as i64 * 60_000),
            "departed": true, "on_time": rng.random_bool(0.7), "delay_min": rng.random_range(0.0..90.0),
        },
        _ => bson::rawdoc! { "_id": number as i64, "n": number as i32 },
    };
    document.append(bson::cstr!("indexed"), rng.random_range(0..1_000_000_i64));
    document
}
