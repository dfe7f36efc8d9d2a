//! Writes a corpus of mails: `mails WORDS COUNT FILE`, the format by the file's name.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use tidemill_bench_cep::email;
use tidemill_bench_cep::mails::Corpus;
use tidemill_files::{EventFileWriter, Format, WriteOptions};
use tidemill_flow::column::{Data, StringColumn};
use tidemill_flow::{Column, arrow};

/// Mails that are made before they are written.
const BATCH: u64 = 500;

/// Writes a corpus of mails, the same each time.
#[derive(Parser)]
struct Args {
    /// The list of words: scripts/fetch_words.sh.
    words: PathBuf,
    /// How many mails.
    count: u64,
    /// Where to: *.avro, *.jsonl, …
    file: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let words = std::fs::read_to_string(&args.words).with_context(|| args.words.display().to_string())?;
    let corpus = Corpus::new(&words, args.count)?;
    let schema = email::mails();
    let attributes = schema.fields.iter().map(|f| (f.name.clone(), f.ty)).collect();
    let writing = WriteOptions { complete: true, ..WriteOptions::default() };
    let mut writer = EventFileWriter::create(&args.file, &Format::from_path(&args.file)?, &schema, &writing)?;
    for start in (0..args.count).step_by(BATCH as usize) {
        let mails: Vec<_> = (start..args.count.min(start + BATCH)).map(|i| corpus.mail(i)).collect();
        let times = Column::of(Data::Long(mails.iter().map(|m| m.time).collect()));
        let text = |i: usize| {
            let mut texts = StringColumn::default();
            mails.iter().for_each(|m| texts.push(&m.texts[i]));
            Column::of(Data::Str(texts))
        };
        let columns = std::iter::once(times).chain((0..6).map(text)).collect();
        writer.write(&arrow::record_batch(columns, &attributes)?)?;
    }
    writer.finish()?;
    Ok(())
}
