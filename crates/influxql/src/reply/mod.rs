//! Replies in the forms of InfluxDB: JSON, in chunks if wanted, and CSV.

mod csv;
mod json;

use crate::rows::{MemoryPool, Reservation};
use crate::series::StatementResult;

/// Unit of times in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epoch {
    /// RFC 3339 in JSON, nanoseconds in CSV.
    Text,
    /// Numbers of so many nanoseconds since 1970.
    Number(i64),
}

impl Epoch {
    /// Returns the unit of a parameter `epoch`; `None` for one that does not exist.
    pub fn of(name: &str) -> Option<Self> {
        Some(Self::Number(match name {
            "" => return Some(Self::Text),
            "n" | "ns" => 1,
            "u" | "us" | "µ" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        }))
    }
}

/// Format of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyFormat {
    /// Unit of times.
    pub epoch: Epoch,
    /// True for CSV, else JSON.
    pub is_csv: bool,
    /// True for JSON in lines with indents.
    pub is_pretty: bool,
}

/// Writer of the results of a query, which come one after the other.
#[derive(Debug)]
pub struct ReplyWriter {
    format: ReplyFormat,
    /// Rows of a chunk; `None` for one reply.
    chunk_rows: Option<usize>,
    results: Vec<String>,
    csv: csv::CsvWriter,
    memory: Reservation,
}

impl ReplyWriter {
    /// Creates a writer. With `chunk_rows` each piece is a reply of its own with at most so many rows; else the texts of all statements
    /// are in memory.
    pub fn new(format: ReplyFormat, chunk_rows: Option<usize>, memory: &MemoryPool) -> Self {
        let chunk_rows = chunk_rows.map(|rows| rows.max(1));
        Self {
            format,
            chunk_rows,
            results: vec![],
            csv: csv::CsvWriter::default(),
            memory: memory.reservation(),
        }
    }

    /// Returns the pieces that a result makes ready.
    pub fn pieces<'r>(
        &'r mut self,
        result: &'r StatementResult,
    ) -> Box<dyn Iterator<Item = String> + Send + 'r> {
        let format = self.format;
        if let (Some(rows), false) = (self.chunk_rows, format.is_csv) {
            let chunks = json::chunks(result, format.epoch, rows);
            return Box::new(
                chunks.map(move |chunk| finished(format, &format!("{{\"results\":[{chunk}]}}"))),
            );
        }
        let mut text = self.text(result);
        if let Err(error) = self.memory.take(text.len()) {
            text = self.text(&StatementResult::failed(result.id, error.to_string()));
        }
        if format.is_csv {
            return Box::new((!text.is_empty()).then_some(text).into_iter());
        }
        self.results.push(text);
        Box::new(std::iter::empty())
    }

    fn text(&mut self, result: &StatementResult) -> String {
        match self.format.is_csv {
            true => self.csv.result(result, self.format.epoch),
            false => json::result(result, self.format.epoch),
        }
    }

    /// Returns the last piece.
    pub fn finish(self) -> String {
        if self.format.is_csv || self.chunk_rows.is_some() {
            return String::new();
        }
        match self.results.is_empty() {
            true => finished(self.format, "{}"),
            false => finished(self.format, &format!("{{\"results\":[{}]}}", self.results.join(","))),
        }
    }
}

fn finished(format: ReplyFormat, json: &str) -> String {
    let mut text = if format.is_pretty { json::pretty(json) } else { json.to_owned() };
    text.push('\n');
    text
}
