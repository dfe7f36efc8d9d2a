//! Aligned columns, as psql prints them.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_types::{Error, Result};

use super::broken;

/// Rows measured before the column widths are fixed. Wider cells that come later overflow their column.
const ROWS_MEASURED: usize = 1_000;
/// Bytes of cells that are measured at most before the widths are fixed.
const BYTES_MEASURED: usize = 256 << 10;
/// Characters of a column at most. Wider cells overflow it, as spaces in all other rows would be of no use.
const WIDTH_MAX: usize = 4_096;

pub(super) struct Writer<W: Write> {
    out: W,
    names: Vec<String>,
    numeric: Vec<bool>,
    /// Rows buffered until the widths are fixed.
    buffered: Vec<Vec<String>>,
    buffered_bytes: usize,
    widths: Option<Vec<usize>>,
    rows: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(schema: &SchemaRef, out: W) -> Self {
        let names = schema.fields().iter().map(|f| f.name().replace('\n', " ")).collect();
        let numeric = schema.fields().iter().map(|f| f.data_type().is_numeric()).collect();
        Self { out, names, numeric, buffered: vec![], buffered_bytes: 0, widths: None, rows: 0 }
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let failed = |e| Error::internal("a result cannot be written as text").with_source(e);
        let options = FormatOptions::default().with_null("NULL");
        let columns = batch.columns().iter().map(|c| ArrayFormatter::try_new(c.as_ref(), &options));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|c| c.value(row).try_to_string());
            let cells = cells.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
            self.push(cells)?;
        }
        Ok(())
    }

    fn push(&mut self, cells: Vec<String>) -> Result<()> {
        self.rows += 1;
        match &self.widths {
            Some(widths) => row(&mut self.out, &cells, widths, &self.numeric),
            None => {
                self.buffered_bytes += cells.iter().map(String::len).sum::<usize>();
                self.buffered.push(cells);
                if self.buffered.len() >= ROWS_MEASURED || self.buffered_bytes >= BYTES_MEASURED {
                    self.fix_widths()
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Fixes the widths, then writes the header and the buffered rows.
    fn fix_widths(&mut self) -> Result<()> {
        let widest = |column: usize| {
            let cells =
                self.buffered.iter().flat_map(|row| row[column].lines()).map(|line| line.chars().count());
            cells.chain([self.names[column].chars().count()]).max().unwrap_or(0).min(WIDTH_MAX)
        };
        let widths: Vec<usize> = (0..self.names.len()).map(widest).collect();
        centred(&mut self.out, &self.names, &widths)?;
        let rule: Vec<String> = widths.iter().map(|w| "-".repeat(w + 2)).collect();
        writeln!(self.out, "{}", rule.join("+")).map_err(broken)?;
        for cells in std::mem::take(&mut self.buffered) {
            row(&mut self.out, &cells, &widths, &self.numeric)?;
        }
        self.widths = Some(widths);
        Ok(())
    }

    pub fn finish(mut self) -> Result<W> {
        if self.widths.is_none() {
            self.fix_widths()?;
        }
        let noun = if self.rows == 1 { "row" } else { "rows" };
        writeln!(self.out, "({} {noun})", self.rows).map_err(broken)?;
        Ok(self.out)
    }
}

fn centred(out: &mut impl Write, names: &[String], widths: &[usize]) -> Result<()> {
    let cells: Vec<String> = names.iter().zip(widths).map(|(name, w)| format!(" {name:^w$} ")).collect();
    writeln!(out, "{}", cells.join("|").trim_end()).map_err(broken)
}

/// Writes a row; cells of several lines continue on the lines below.
fn row(out: &mut impl Write, cells: &[String], widths: &[usize], right: &[bool]) -> Result<()> {
    let height = cells.iter().map(|c| c.lines().count()).max().unwrap_or(1).max(1);
    let mut lines: Vec<std::str::Lines<'_>> = cells.iter().map(|cell| cell.lines()).collect();
    for _ in 0..height {
        let columns =
            lines.iter_mut().map(|lines| lines.next().unwrap_or_default()).zip(widths.iter().zip(right));
        let parts = columns.map(|(part, (w, right))| match right {
            true => format!(" {part:>w$} "),
            false => format!(" {part:<w$} "),
        });
        let parts: Vec<String> = parts.collect();
        writeln!(out, "{}", parts.join("|").trim_end()).map_err(broken)?;
    }
    Ok(())
}
