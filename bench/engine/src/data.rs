//! The trades as CSV files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tidemill_bench_cep::trades::trade;

/// Header line of every file and request.
pub const HEADER: &str = "symbol,price,volume,ts";

/// Appends trade number `i` as a line.
pub fn write_line(out: &mut impl Write, i: u64, symbols: u64) -> std::io::Result<()> {
    let (symbol, price, volume, ts) = trade(i, symbols);
    writeln!(out, "{symbol},{price},{volume},{ts}")
}

/// Writes the trades of `streams` streams, `events` in all, each stream's into a file of its own. Existing files are kept.
pub fn files(dir: &Path, symbols: u64, streams: u64, events: u64) -> anyhow::Result<Vec<PathBuf>> {
    let names = (0..streams).map(|s| dir.join(format!("trades-{symbols}-{events}-{s}-of-{streams}.csv")));
    let names: Vec<PathBuf> = names.collect();
    for (stream, name) in names.iter().enumerate().filter(|(_, name)| !name.exists()) {
        let part = name.with_extension("part");
        let mut out = BufWriter::new(File::create(&part)?);
        writeln!(out, "{HEADER}")?;
        (stream as u64..events)
            .step_by(streams as usize)
            .try_for_each(|i| write_line(&mut out, i, symbols))?;
        out.into_inner().map_err(|e| e.into_error())?;
        std::fs::rename(part, name)?;
    }
    Ok(names)
}
