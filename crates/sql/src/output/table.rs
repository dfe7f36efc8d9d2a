//! Aligned columns, as psql prints them.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_types::{Error, Result};

use super::broken;

/// Rows measured before the column widths are fixed. Wider cells that come later overflow their column.
const ROWS_MEASURED: usize = 1_000;

pub(super) struct Writer<W: Write> {
    out: W,
    names: Vec<String>,
    numeric: Vec<bool>,
    /// Rows buffered until the widths are fixed.
    buffered: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
    rows: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(schema: &SchemaRef, out: W) -> Self {
        let names = schema.fields().iter().map(|f| f.name().replace('\n', " ")).collect();
        let numeric = schema.fields().iter().map(|f| f.data_type().is_numeric()).collect();
        Self { out, names, numeric, buffered: vec![], widths: None, rows: 0 }
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
                self.buffered.push(cells);
                if self.buffered.len() >= ROWS_MEASURED { self.fix_widths() } else { Ok(()) }
            }
        }
    }

    /// Fixes the widths, then writes the header and the buffered rows.
    fn fix_widths(&mut self) -> Result<()> {
        let widest = |column: usize| {
            let cells =
                self.buffered.iter().flat_map(|row| row[column].lines()).map(|line| line.chars().count());
            cells.chain([self.names[column].chars().count()]).max().unwrap_or(0)
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
    for line in 0..height {
        let part = |column: usize| cells[column].lines().nth(line).unwrap_or_default();
        let columns = widths.iter().zip(right).enumerate();
        let parts = columns.map(|(i, (w, right))| match right {
            true => format!(" {:>w$} ", part(i)),
            false => format!(" {:<w$} ", part(i)),
        });
        let parts: Vec<String> = parts.collect();
        writeln!(out, "{}", parts.join("|").trim_end()).map_err(broken)?;
    }
    Ok(())
}
