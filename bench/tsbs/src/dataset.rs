//! A data set on the disk: `readings.csv`, `diagnostics.csv` and `tags.csv`, plain or with `.zst`.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::csv::ReaderBuilder;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};

use crate::generate::{DIAGNOSTICS, READINGS, TAGS};

/// A table of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Positions and movements of trucks.
    Readings,
    /// Loads and states of trucks.
    Diagnostics,
    /// The trucks.
    Tags,
}

impl Table {
    /// All tables; the trucks come first, because they are loaded first.
    pub const ALL: [Self; 3] = [Self::Tags, Self::Readings, Self::Diagnostics];

    /// Name of the table and of its stream.
    pub fn name(self) -> &'static str {
        match self {
            Self::Readings => "readings",
            Self::Diagnostics => "diagnostics",
            Self::Tags => "tags",
        }
    }

    fn header(self) -> &'static str {
        match self {
            Self::Readings => READINGS,
            Self::Diagnostics => DIAGNOSTICS,
            Self::Tags => TAGS,
        }
    }

    /// Returns the Arrow types of the columns in the file.
    fn schema(self) -> Schema {
        let field = |name: &str| {
            let ty = match name {
                "seq" | "time" => DataType::Int64,
                "id" | "tags_id" | "status" => DataType::Int32,
                "name" | "fleet" | "driver" | "model" | "device_version" => DataType::Utf8,
                _ => DataType::Float64,
            };
            Field::new(name, ty, true)
        };
        Schema::new(self.header().split(',').map(field).collect::<Vec<_>>())
    }
}

/// Rows of one table, without `seq`.
pub struct TableBatch {
    /// The table.
    pub table: Table,
    /// Its rows.
    pub rows: RecordBatch,
    /// When the last row arrived, as a count of the points of both tables.
    pub(crate) seq: i64,
}

/// A directory with a data set.
#[derive(Debug, Clone)]
pub struct Dataset {
    dir: PathBuf,
}

impl Dataset {
    /// Opens a directory.
    ///
    /// Errors: a file is missing, with the names that are possible, or its header line is another.
    pub fn open(dir: &Path) -> Result<Self> {
        let dataset = Self { dir: std::path::absolute(dir)? };
        for table in Table::ALL {
            let mut line = String::new();
            BufReader::new(dataset.reader(table)?).read_line(&mut line)?;
            ensure!(
                line.trim_end() == table.header(),
                "{}: expected the header `{}`, found `{}`",
                dataset.path(table)?.display(),
                table.header(),
                line.trim_end()
            );
        }
        Ok(dataset)
    }

    /// Returns the file of a table.
    pub fn path(&self, table: Table) -> Result<PathBuf> {
        let plain = self.dir.join(format!("{}.csv", table.name()));
        let compressed = self.dir.join(format!("{}.csv.zst", table.name()));
        match (plain.exists(), compressed.exists()) {
            (true, _) => Ok(plain),
            (false, true) => Ok(compressed),
            (false, false) => bail!(
                "{}: no such file, nor with `.zst`; `tidemill-bench-tsbs generate --out {}` writes a data set",
                plain.display(),
                self.dir.display()
            ),
        }
    }

    fn reader(&self, table: Table) -> Result<Box<dyn Read + Send>> {
        let path = self.path(table)?;
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        Ok(match path.extension().is_some_and(|extension| extension == "zst") {
            true => Box::new(zstd::Decoder::new(file)?),
            false => Box::new(file),
        })
    }

    /// Reads a table in batches of `batch_rows`.
    fn batches(&self, table: Table, batch_rows: usize) -> Result<Vec<TableBatch>> {
        let path = self.path(table)?;
        let reader = ReaderBuilder::new(Arc::new(table.schema()))
            .with_header(true)
            .with_batch_size(batch_rows)
            .build(self.reader(table)?)?;
        let batch = |batch: Result<RecordBatch, _>| -> Result<TableBatch> {
            let batch = batch?;
            if table == Table::Tags {
                return Ok(TableBatch { table, rows: batch, seq: -1 });
            }
            let seq =
                batch.column(0).as_primitive::<Int64Type>().values().last().copied().unwrap_or_default();
            Ok(TableBatch { table, rows: with_times(&batch)?, seq })
        };
        reader.map(batch).collect::<Result<_>>().with_context(|| path.display().to_string())
    }

    /// Reads all tables in batches of `batch_rows` of one table, ordered by the arrival of their last rows.
    pub fn all_batches(&self, batch_rows: usize) -> Result<Vec<TableBatch>> {
        let mut batches = Vec::new();
        for table in Table::ALL {
            batches.extend(self.batches(table, batch_rows)?);
        }
        batches.sort_by_key(|batch| batch.seq);
        Ok(batches)
    }

    /// Writes the file of a table without `seq`, as an app reads it, and returns the number of its rows.
    pub fn write_without_seq(&self, table: Table, to: &Path) -> Result<u64> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(to)?);
        let mut rows = 0;
        for (number, line) in BufReader::with_capacity(1 << 20, self.reader(table)?).lines().enumerate() {
            let line = line?;
            let kept = match table {
                Table::Tags => line.as_str(),
                _ => line.split_once(',').with_context(|| format!("line {}: one column", number + 1))?.1,
            };
            out.write_all(kept.as_bytes())?;
            out.write_all(b"\n")?;
            rows += u64::from(number > 0);
        }
        out.flush()?;
        Ok(rows)
    }
}

/// Drops `seq`, and makes `time` a time.
fn with_times(batch: &RecordBatch) -> Result<RecordBatch> {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).skip(1).map(|(field, column)| {
        let column = match field.name() == "time" {
            true => arrow::compute::cast(column, &time)?,
            false => column.clone(),
        };
        Ok((field.name().as_str(), column))
    });
    let columns: Vec<(&str, ArrayRef)> = columns.collect::<Result<_>>()?;
    Ok(RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, true)))?)
}
