//! Decoding of rows of text to batches, with a reason for each row that cannot be decoded.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decode::{BatchBuilder, CellTarget, CellValue};
use crate::{Error, InterleavedBatches, Result, StreamSchema, Timestamp, did_you_mean};

/// Maximum number of bytes stored of a row that could not be decoded.
const BAD_TEXT_BYTES_MAX: usize = 64 << 10;

/// Location of a row in its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowOrigin {
    /// Row number, from 0, in the unit in which the input counts its position.
    pub number: u64,
    /// Line number, from 1; `None` in formats without lines.
    pub line: Option<u64>,
    /// Position in bytes from the start of the input, after decompression; `None` if it is not known.
    pub offset: Option<u64>,
}

impl RowOrigin {
    /// Creates the location of the row `number` in an input that reports neither lines nor byte offsets.
    pub fn of_row(number: u64) -> Self {
        Self { number, line: None, offset: None }
    }
}

/// Row, or block of rows, that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Location in the input.
    pub origin: RowOrigin,
    /// Intended stream, if known.
    pub stream: Option<String>,
    /// Reason, with the expected and the found value.
    pub message: String,
    /// Beginning of the row (64 KiB) in text formats, otherwise empty.
    pub text: String,
}

impl BadRow {
    /// Creates a bad row; `text` is cut to 64 KiB.
    pub fn new(origin: RowOrigin, stream: Option<&str>, message: impl fmt::Display, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(BAD_TEXT_BYTES_MAX)]).into_owned();
        Self { origin, stream: stream.map(str::to_owned), message: message.to_string(), text }
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.origin.line {
            write!(f, "line {line}, ")?;
        }
        match self.origin.offset {
            Some(offset) => write!(f, "byte {offset}: {}", self.message),
            None => write!(f, "row {}: {}", self.origin.number + 1, self.message),
        }
    }
}

/// Rows of one or several streams in order of arrival, and the rows that could not be decoded.
#[derive(Debug, Clone, Default)]
pub struct DecodedRows {
    /// Valid rows, with the columns of [`StreamSchema::batch_schema`].
    pub rows: InterleavedBatches,
    /// Row number of each valid row, in order of arrival; never decreases.
    pub row_numbers: Vec<u64>,
    /// Bad rows; their row numbers never decrease.
    pub rejected: Vec<BadRow>,
}

/// Decoder of single rows to batches of one or several streams.
pub struct RowDecoder {
    builders: Vec<(Arc<StreamSchema>, BatchBuilder)>,
    by_name: HashMap<String, u16>,
    stream_field: Option<String>,
    order: Vec<u16>,
    out: DecodedRows,
}

impl RowDecoder {
    /// Creates a decoder for rows of these streams (fewer than 65,536; others come by [`Self::add_stream`]). `stream_field` is the field of each
    /// JSON object that names its stream, if the rows have one.
    pub fn new(streams: &[Arc<StreamSchema>], stream_field: Option<&str>) -> Self {
        let builder = |stream: &Arc<StreamSchema>| {
            let builder = BatchBuilder::new(stream.clone());
            match stream_field {
                Some(field) => builder.without_envelope(field),
                None => builder,
            }
        };
        Self {
            by_name: (0..).zip(streams).map(|(i, stream)| (stream.name.clone(), i)).collect(),
            builders: streams.iter().map(|stream| (stream.clone(), builder(stream))).collect(),
            stream_field: stream_field.map(str::to_owned),
            order: Vec::new(),
            out: DecodedRows::default(),
        }
    }

    /// Reads fields of JSON objects under other names; see [`BatchBuilder::with_renames`].
    pub fn with_renames(mut self, renames: &[(String, String)]) -> Self {
        self.builders = self.builders.into_iter().map(|(s, b)| (s, b.with_renames(renames))).collect();
        self
    }

    /// Rejects JSON objects that lack a declared field. A field that is null counts as present.
    pub fn require_all_fields(mut self) -> Self {
        self.builders = self.builders.into_iter().map(|(s, b)| (s, b.require_all_fields())).collect();
        self
    }

    /// Decodes one JSON object: of the stream that its stream field names, or of the first stream if there is
    /// no stream field. `now` becomes the event time when the row has none.
    pub fn push_json(&mut self, origin: RowOrigin, row: &[u8], now: Timestamp) {
        let stream = match self.stream_field.as_deref().map(|field| self.stream_of(field, row)) {
            None => 0,
            Some(Ok(stream)) => stream,
            Some(Err(reason)) => {
                return self.out.rejected.push(BadRow::new(origin, None, reason, row));
            }
        };
        let (schema, builder) = &mut self.builders[usize::from(stream)];
        match builder.push_json(row, now) {
            Ok(()) => {
                self.order.push(stream);
                self.out.row_numbers.push(origin.number);
            }
            Err(e) => self.out.rejected.push(BadRow::new(origin, Some(&schema.name), e, row)),
        }
    }

    /// Adds a stream, whose rows come by [`Self::push_cells`], and returns its number. Values of other types are kept as
    /// [`BatchBuilder::set_keep_mismatches`] says if `keeps_mismatches`. `None` if there are 65,535 streams.
    pub fn add_stream(&mut self, stream: &Arc<StreamSchema>, keeps_mismatches: bool) -> Option<u16> {
        let number = u16::try_from(self.builders.len()).ok()?;
        let mut builder = BatchBuilder::new(stream.clone());
        builder.set_keep_mismatches(keeps_mismatches);
        self.by_name.insert(stream.name.clone(), number);
        self.builders.push((stream.clone(), builder));
        Some(number)
    }

    /// Decodes one row of named values of the stream with this number. `text` is the row as it was sent.
    ///
    /// Time: as [`BatchBuilder::push_cells`].
    pub fn push_cells<'c>(
        &mut self,
        origin: RowOrigin,
        stream: u16,
        cells: impl IntoIterator<Item = (&'c str, CellValue<'c>)>,
        time: Timestamp,
        text: &[u8],
    ) {
        if let Err(e) = self.try_push_cells(origin, stream, cells, time) {
            let (schema, _) = &self.builders[usize::from(stream)];
            self.out.rejected.push(BadRow::new(origin, Some(&schema.name), e, text));
        }
    }

    /// Decodes one row as [`Self::push_cells`] does. The caller rejects a row that does not fit, with its text.
    ///
    /// Errors: those of [`BatchBuilder::push_cells`].
    pub fn try_push_cells<'c>(
        &mut self,
        origin: RowOrigin,
        stream: u16,
        cells: impl IntoIterator<Item = (&'c str, CellValue<'c>)>,
        time: Timestamp,
    ) -> Result<()> {
        let (_, builder) = &mut self.builders[usize::from(stream)];
        builder.push_cells(cells, time)?;
        self.order.push(stream);
        self.out.row_numbers.push(origin.number);
        Ok(())
    }

    fn stream_of(&self, field: &str, row: &[u8]) -> Result<u16, String> {
        let name = match leading_field(field, row) {
            Some(name) => Cow::Borrowed(name),
            None => {
                let all: HashMap<String, &RawValue> =
                    serde_json::from_slice(row).map_err(|e| e.to_string())?;
                let raw =
                    all.get(field).ok_or_else(|| format!("no field `{field}`, which names the stream"))?;
                let name = String::deserialize(*raw)
                    .map_err(|_| format!("field `{field}`: expected a stream's name in quotes"))?;
                Cow::Owned(name)
            }
        };
        self.by_name.get(name.as_ref()).copied().ok_or_else(|| {
            let known = self.by_name.keys().map(String::as_str);
            format!("no stream `{name}`{}", did_you_mean(&name, known))
        })
    }

    /// Decodes one row of `found` text cells of the first stream; there must be as many as `columns`.
    pub fn push_text<'c>(
        &mut self,
        origin: RowOrigin,
        columns: &[CellTarget],
        found: usize,
        cells: impl Iterator<Item = &'c str> + Clone,
        now: Timestamp,
    ) {
        let (schema, builder) = &mut self.builders[0];
        let result = if found == columns.len() {
            builder.push_text(columns.iter().zip(cells.clone()), now)
        } else {
            let expected = columns.len();
            Err(Error::invalid(format!("expected {expected} cells as in the header, found {found}")))
        };
        match result {
            Ok(()) => {
                self.order.push(0);
                self.out.row_numbers.push(origin.number);
            }
            Err(e) => {
                let text = cells.collect::<Vec<_>>().join(",");
                self.out.rejected.push(BadRow::new(origin, Some(&schema.name), e, text.as_bytes()));
            }
        }
    }

    /// Rejects a row that could not be split into fields or cells. It belongs to the first stream, unless the
    /// rows name their streams.
    pub fn reject(&mut self, origin: RowOrigin, reason: impl fmt::Display, text: &[u8]) {
        let only = self.stream_field.is_none().then(|| self.builders.first()).flatten();
        let only = only.map(|(schema, _)| schema.name.clone());
        self.reject_of(origin, only.as_deref(), reason, text);
    }

    /// Rejects a row of the stream with this name, if it is known.
    pub fn reject_of(
        &mut self,
        origin: RowOrigin,
        stream: Option<&str>,
        reason: impl fmt::Display,
        text: &[u8],
    ) {
        self.out.rejected.push(BadRow::new(origin, stream, reason, text));
    }

    /// Returns the number of good and bad rows since the last [`Self::finish`].
    pub fn rows_read(&self) -> usize {
        self.order.len() + self.out.rejected.len()
    }

    /// Returns the rows decoded since the last call.
    pub fn finish(&mut self) -> DecodedRows {
        let mut out = std::mem::take(&mut self.out);
        let order = std::mem::take(&mut self.order);
        let mut renumber = vec![0_u16; self.builders.len()];
        for (i, (schema, builder)) in self.builders.iter_mut().enumerate() {
            if !builder.is_empty() {
                renumber[i] = out.rows.parts.len() as u16;
                out.rows.parts.push((schema.clone(), builder.finish()));
            }
        }
        if out.rows.parts.len() > 1 {
            out.rows.order = Some(order.into_iter().map(|i| renumber[usize::from(i)]).collect());
        }
        out
    }
}

/// Returns the value of `field` if it is the object's first field and a string without escapes:
/// `{"stream":"TakeOffEvent",…`.
fn leading_field<'r>(field: &str, row: &'r [u8]) -> Option<&'r str> {
    let rest = row.strip_prefix(b"{\"")?.strip_prefix(field.as_bytes())?.strip_prefix(b"\":")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"")?;
    let end = rest.iter().position(|b| *b == b'"')?;
    let name = std::str::from_utf8(&rest[..end]).ok()?;
    (!name.contains('\\')).then_some(name)
}
