//! Lines as rows of streams.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_types::decode::CellValue;
use tidemill_types::{DecodedRows, RowDecoder, RowOrigin, StreamSchema, Timestamp};

use super::line::{DecodedLine, LineCell};
use super::lines::lines;
use super::precision::Precision;

/// Settings of a [`LineDecoder`].
#[derive(Debug, Clone, Default)]
pub struct LineOptions {
    /// Unit of times.
    pub precision: Precision,
    /// True if a line without a time gets that of its arrival in the time field; otherwise the field is missing.
    pub fills_time: bool,
    /// True if a value that does not have the type of its field is kept among the undeclared fields, except in the key, the id and
    /// the time; otherwise its declaration decides.
    pub keeps_mismatches: bool,
    /// Names of tags and fields, and the names of the fields that they stand for.
    pub renames: Vec<(String, String)>,
}

/// Function that finds the stream of a measurement, or says why its lines are refused.
type Lookup<'l> = dyn FnMut(&str) -> Result<Arc<StreamSchema>, String> + Send + 'l;

/// Decoder of lines to rows of the streams that their measurements name.
///
/// ```
/// use std::sync::Arc;
/// use tidemill_mappers::line_protocol::{LineDecoder, LineOptions};
/// use tidemill_types::{Field, FieldType, StreamSchema, Timestamp};
///
/// let fields = vec![Field::new("at", FieldType::Time), Field::new("usage", FieldType::Double)];
/// let cpu = Arc::new(StreamSchema { name: "cpu".into(), fields, key: None, id: vec![], time: Some(0) });
/// let stream = |name: &str| if name == "cpu" { Ok(cpu.clone()) } else { Err(format!("no stream `{name}`")) };
/// let mut decoder = LineDecoder::new(LineOptions::default(), stream);
/// decoder.push_body(b"cpu usage=0.5 1451606400000000000\nmem free=1i 1\n", Timestamp(0));
/// let rows = decoder.finish();
/// assert_eq!((rows.rows.len(), rows.rejected[0].to_string().as_str()), (1, "line 2, byte 34: no stream `mem`"));
/// ```
pub struct LineDecoder<'l> {
    rows: RowDecoder,
    streams: HashMap<String, (u16, Arc<StreamSchema>)>,
    lookup: Box<Lookup<'l>>,
    options: LineOptions,
}

impl<'l> LineDecoder<'l> {
    /// Creates a decoder. `lookup` finds the stream of a measurement, or says why its lines are refused.
    pub fn new(
        options: LineOptions,
        lookup: impl FnMut(&str) -> Result<Arc<StreamSchema>, String> + Send + 'l,
    ) -> Self {
        Self { rows: RowDecoder::new(&[], None), streams: HashMap::new(), lookup: Box::new(lookup), options }
    }

    /// Decodes the lines of a body, whose numbers begin with 0. Lines that are not UTF-8 are rejected by themselves. `now` is the time of
    /// lines without one.
    pub fn push_body(&mut self, body: &[u8], now: Timestamp) {
        let (mut at, mut number) = (0, 0);
        while at < body.len() {
            let rest = &body[at..];
            let valid = match std::str::from_utf8(rest) {
                Ok(text) => return self.push_text(text, (number, at), now),
                Err(e) => e.valid_up_to(),
            };
            let begin = rest[..valid].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let end = rest[valid..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(rest.len(), |end| valid + end + 1);
            // bytes up to `valid` are UTF-8
            self.push_text(std::str::from_utf8(&rest[..begin]).unwrap_or_default(), (number, at), now);
            number += rest[..begin].iter().filter(|byte| **byte == b'\n').count() as u64;
            let reason =
                format!("the line is not UTF-8: its byte {} is 0x{:02x}", valid - begin + 1, rest[valid]);
            self.rows.reject_of(origin(number, at + begin), None, reason, rest[begin..end].trim_ascii());
            number += 1;
            at += end;
        }
    }

    fn push_text(&mut self, text: &str, (number, offset): (u64, usize), now: Timestamp) {
        for line in lines(text) {
            self.push_line(origin(number + line.number, offset + line.offset), line.text, now);
        }
    }

    /// Decodes a line; empty lines and comments do not make rows. `now` is the time of a line without one.
    pub fn push_line(&mut self, origin: RowOrigin, line: &str, now: Timestamp) {
        match DecodedLine::parse(line) {
            Ok(Some(parsed)) => self.push_parsed(origin, &parsed, now, line),
            Ok(None) => {}
            Err(reason) => self.rows.reject_of(origin, None, reason, line.as_bytes()),
        }
    }

    /// Rejects a line that could not be read.
    pub fn reject(&mut self, origin: RowOrigin, reason: &str, line: &[u8]) {
        self.rows.reject_of(origin, None, reason, line);
    }

    fn push_parsed(&mut self, origin: RowOrigin, line: &DecodedLine<'_>, now: Timestamp, text: &str) {
        let (number, stream) = match self.stream(line.measurement()) {
            Ok(stream) => stream,
            Err(reason) => return self.rows.reject_of(origin, None, reason, text.as_bytes()),
        };
        match event_time(line, self.options.precision) {
            Ok(time) => {
                let given = if self.options.fills_time { Some(time.unwrap_or(now)) } else { time };
                let renames = &self.options.renames;
                let renamed =
                    |name| renames.iter().find(|(from, _)| from == name).map_or(name, |(_, to)| to.as_str());
                let cells = line.cells();
                let cells = with_time(&cells, &stream, given).map(|(name, value)| (renamed(name), value));
                self.rows.push_cells(origin, number, cells, time.unwrap_or(now), text.as_bytes());
            }
            Err(reason) => self.rows.reject_of(origin, Some(&stream.name), reason, text.as_bytes()),
        }
    }

    fn stream(&mut self, measurement: &str) -> Result<(u16, Arc<StreamSchema>), String> {
        if let Some(known) = self.streams.get(measurement) {
            return Ok(known.clone());
        }
        let stream = (self.lookup)(measurement)?;
        let number = self.rows.add_stream(&stream, self.options.keeps_mismatches);
        let number = number.ok_or("the lines have more than 65,535 measurements: send them in parts")?;
        self.streams.insert(measurement.to_owned(), (number, stream.clone()));
        Ok((number, stream))
    }

    /// Returns the number of good and bad rows since the last [`Self::finish`].
    pub fn rows_read(&self) -> usize {
        self.rows.rows_read()
    }

    /// Returns the rows decoded since the last call. Rejected lines of an unknown measurement, and those that are not line protocol,
    /// have no stream.
    pub fn finish(&mut self) -> DecodedRows {
        self.rows.finish()
    }
}

fn origin(number: u64, offset: usize) -> RowOrigin {
    RowOrigin { number, line: Some(number + 1), offset: Some(offset as u64) }
}

/// Returns the instant of a line.
///
/// Errors: it is outside of the range of times.
pub(super) fn event_time(line: &DecodedLine<'_>, precision: Precision) -> Result<Option<Timestamp>, String> {
    let time = |number| {
        precision
            .timestamp(number)
            .ok_or_else(|| format!("the time {number} is not in the years -9999 to 9999"))
    };
    line.time().map(time).transpose()
}

/// Returns the cells of a line, and `time` as the time field of the stream.
pub(super) fn with_time<'p>(
    cells: &'p [LineCell<'p>],
    stream: &'p StreamSchema,
    time: Option<Timestamp>,
) -> impl Iterator<Item = LineCell<'p>> {
    let time_field = stream.time.map(|index| stream.fields[index].name.as_str());
    cells.iter().copied().chain(time_field.zip(time.map(CellValue::Time)))
}

#[cfg(test)]
mod tests;
