//! Data sets of any size, from a seed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use sha2::{Digest, Sha256};
use tidemill_bench_cep::random::{Random, at};

use crate::imperfections::{Damage, Fate, fate};
use crate::truck::Truck;

/// Microseconds of 2016-01-01T00:00:00Z, when every data set begins.
pub const START_US: i64 = 1_451_606_400_000_000;
/// Microseconds between two points of a truck.
pub const TICK_US: i64 = 10_000_000;
/// Ticks of a day.
const TICKS_PER_DAY: u64 = 8640;
/// Distinguishes the random numbers of arrivals from those of trucks, which are numbered from 0.
const ARRIVALS: u64 = u64::MAX;

/// Columns of the tables, as the header lines name them.
pub const READINGS: &str =
    "seq,time,tags_id,latitude,longitude,elevation,velocity,heading,grade,fuel_consumption";
/// See [`READINGS`].
pub const DIAGNOSTICS: &str = "seq,time,tags_id,fuel_state,current_load,status";
/// See [`READINGS`].
pub const TAGS: &str =
    "id,name,fleet,driver,model,device_version,load_capacity,fuel_capacity,nominal_fuel_consumption";

/// What to write, and where.
#[derive(Args)]
pub struct Options {
    /// Number of trucks.
    #[arg(long, default_value_t = 100)]
    trucks: u64,
    /// Days from 2016-01-01 on.
    #[arg(long, default_value_t = 1)]
    days: u64,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 123)]
    seed: u64,
    /// Directory for readings.csv, diagnostics.csv and tags.csv.
    #[arg(long)]
    out: PathBuf,
}

/// Writes the files and prints their rows, bytes and SHA-256.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.trucks > 0, "--trucks: expected 1 or more, found 0");
    ensure!(options.days > 0, "--days: expected 1 or more, found 0");
    std::fs::create_dir_all(&options.out).with_context(|| options.out.display().to_string())?;
    for file in write(options.trucks, options.days, options.seed, &options.out)? {
        println!("{}: {} rows, {} bytes, sha256 {}", file.name, file.rows, file.bytes, file.sha256);
    }
    Ok(())
}

/// A file that was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Its name.
    pub name: &'static str,
    /// Rows without the header.
    pub rows: u64,
    /// Its size.
    pub bytes: u64,
    /// Its digest, in hexadecimal digits.
    pub sha256: String,
}

/// Writes a data set into `out`.
///
/// Shape: each tick has the readings of all trucks, then the diagnostics of all trucks. `seq` counts both in order of arrival.
pub fn write(trucks: u64, days: u64, seed: u64, out: &Path) -> Result<[Written; 3]> {
    let mut fleet: Vec<Truck> = (0..trucks).map(|number| Truck::new(seed, number)).collect();
    let tags = write_tags(&fleet, out)?;
    let mut readings = Table::create(out, "readings.csv", READINGS, 7)?;
    let mut diagnostics = Table::create(out, "diagnostics.csv", DIAGNOSTICS, 3)?;
    let mut random = Random::new(at(seed, ARRIVALS));
    let mut seq = 0;
    for tick in 0..TICKS_PER_DAY * days {
        let time = START_US + tick as i64 * TICK_US;
        if tick > 0 {
            fleet.iter_mut().for_each(Truck::tick);
        }
        let points = fleet.iter().map(Truck::readings);
        readings.tick(time, points, &mut random, &mut seq)?;
        let points = fleet.iter().map(Truck::diagnostics);
        diagnostics.tick(time, points, &mut random, &mut seq)?;
    }
    Ok([readings.finish(&mut seq)?, diagnostics.finish(&mut seq)?, tags])
}

fn write_tags(fleet: &[Truck], out: &Path) -> Result<Written> {
    let mut file = CsvFile::create(out, "tags.csv", TAGS)?;
    for (number, truck) in fleet.iter().enumerate() {
        let tags = &truck.tags;
        let (model, load, fuel, consumption) = tags.model;
        file.line(&format!(
            "{},truck_{number},{},{},{model},{},{load},{fuel},{consumption}\n",
            number + 1,
            tags.fleet,
            tags.driver,
            tags.device_version
        ))?;
    }
    file.finish()
}

/// A table of points while it is written.
struct Table {
    file: CsvFile,
    fields: u64,
    /// Points that arrive with the next tick, just before that of their truck: the truck, and the line without `seq`.
    late: VecDeque<(usize, String)>,
}

impl Table {
    fn create(dir: &Path, name: &'static str, header: &str, fields: u64) -> Result<Self> {
        Ok(Self { file: CsvFile::create(dir, name, header)?, fields, late: VecDeque::new() })
    }

    fn tick<const N: usize>(
        &mut self,
        time: i64,
        points: impl Iterator<Item = [f64; N]>,
        random: &mut Random,
        seq: &mut u64,
    ) -> Result<()> {
        for (number, values) in points.enumerate() {
            if let Some((_, point)) = self.late.pop_front_if(|(truck, _)| *truck == number) {
                self.write(&point, seq)?;
            }
            let Fate::Arrives(damage) = fate(random, self.fields) else { continue };
            let point = point_text(time, number, &values, damage);
            match damage.late {
                true => self.late.push_back((number, point)),
                false => self.write(&point, seq)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, point: &str, seq: &mut u64) -> Result<()> {
        self.file.line(&format!("{seq},{point}\n"))?;
        *seq += 1;
        Ok(())
    }

    fn finish(mut self, seq: &mut u64) -> Result<Written> {
        for (_, point) in std::mem::take(&mut self.late) {
            self.write(&point, seq)?;
        }
        self.file.finish()
    }
}

fn point_text<const N: usize>(time: i64, number: usize, values: &[f64; N], damage: Damage) -> String {
    let mut point = match damage.nameless {
        true => format!("{time},"),
        false => format!("{time},{}", number + 1),
    };
    for (field, value) in values.iter().enumerate() {
        point.push(',');
        if damage.null_field != Some(field) {
            point.push_str(&value.to_string());
        }
    }
    point
}

/// A CSV file and the digest of what is in it.
struct CsvFile {
    out: BufWriter<File>,
    written: Written,
    digest: Sha256,
}

impl CsvFile {
    fn create(dir: &Path, name: &'static str, header: &str) -> Result<Self> {
        let path = dir.join(name);
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let written = Written { name, rows: 0, bytes: 0, sha256: String::new() };
        let mut created =
            Self { out: BufWriter::with_capacity(1 << 20, file), written, digest: Sha256::new() };
        created.line(&format!("{header}\n"))?;
        created.written.rows = 0;
        Ok(created)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        self.out.write_all(line.as_bytes()).context(self.written.name)?;
        self.digest.update(line.as_bytes());
        self.written.rows += 1;
        self.written.bytes += line.len() as u64;
        Ok(())
    }

    fn finish(mut self) -> Result<Written> {
        self.out.flush().context(self.written.name)?;
        self.written.sha256 = self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(self.written)
    }
}

#[cfg(test)]
mod tests;
