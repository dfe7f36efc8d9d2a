//! Rows of `COPY … TO STDOUT`: text, CSV and the binary format, a message for each row.

use bytes::{BufMut, BytesMut};

use crate::command::{CopyFormat, CopyOptions};
use crate::error::{PgError, Result};
use crate::messages::input::Format;
use crate::messages::output;
use crate::portal::OpenRows;
use crate::values::column::Column;
use crate::values::encode::ColumnEncoder;

/// Signature, flags and length of the extension at the beginning of the binary format.
const BINARY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Writer of the rows of a copy.
pub(crate) struct CopyWriter {
    options: CopyOptions,
    /// Columns whose texts are quoted in CSV whatever they contain.
    quoted: Vec<bool>,
    columns: usize,
    has_begun: bool,
    value: BytesMut,
}

impl CopyWriter {
    /// Begins a copy of these columns.
    ///
    /// Errors: a column that is to be quoted is not among them.
    pub fn new(options: CopyOptions, columns: &[Column], out: &mut BytesMut) -> Result<Self> {
        let force = &options.force_quote;
        let is_forced = |column: &Column| force.iter().any(|name| name == "*" || *name == column.name);
        if let Some(unknown) =
            force.iter().find(|name| *name != "*" && !columns.iter().any(|c| c.name == **name))
        {
            return Err(PgError::new("42703", format!("FORCE_QUOTE: column \"{unknown}\" does not exist")));
        }
        let quoted = columns.iter().map(is_forced).collect();
        output::copy_out(out, columns.len(), options.column_format());
        let writer =
            Self { options, quoted, columns: columns.len(), has_begun: false, value: BytesMut::new() };
        if writer.options.has_header {
            let start = output::begin(out, b'd');
            for (at, column) in columns.iter().enumerate() {
                writer.put_value(at, Some(column.name.as_bytes()), false, out);
            }
            out.put_u8(b'\n');
            output::end(out, start)?;
        }
        Ok(writer)
    }

    /// Appends the next row.
    ///
    /// Errors: a value cannot be written; nothing is appended then.
    pub fn put_row(&mut self, rows: &mut OpenRows, out: &mut BytesMut) -> Result<()> {
        let before = out.len();
        let start = output::begin(out, b'd');
        let is_binary = self.options.format == CopyFormat::Binary;
        let written = rows.write_row(|columns, row| match is_binary {
            true => self.put_binary(columns, row, out),
            false => self.put_texts(columns, row, out),
        });
        if written.is_err() {
            out.truncate(before);
        }
        written.and_then(|()| output::end(out, start))
    }

    /// Appends the end.
    pub fn finish(mut self, out: &mut BytesMut) {
        if self.options.format == CopyFormat::Binary {
            output::message(out, b'd', |out| {
                self.begin_binary(out);
                out.put_i16(-1);
            });
        }
        output::empty(out, b'c');
    }

    fn begin_binary(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.has_begun, true) {
            out.put_slice(BINARY_HEADER);
        }
    }

    fn put_binary(&mut self, columns: &[ColumnEncoder], row: usize, out: &mut BytesMut) -> Result<()> {
        self.begin_binary(out);
        // there are at most 32,767 columns
        out.put_u16(columns.len() as u16);
        columns.iter().try_for_each(|column| column.encode(row, out))
    }

    fn put_texts(&mut self, columns: &[ColumnEncoder], row: usize, out: &mut BytesMut) -> Result<()> {
        for (at, column) in columns.iter().enumerate() {
            if column.is_null(row) {
                self.put_value(at, None, false, out);
                continue;
            }
            let mut value = std::mem::take(&mut self.value);
            value.clear();
            column.encode_value(row, &mut value)?;
            let is_quoted = self.quoted.get(at).copied().unwrap_or(false);
            self.put_value(at, Some(&value), is_quoted, out);
            self.value = value;
        }
        out.put_u8(b'\n');
        Ok(())
    }

    /// Appends a value, null if it is missing, behind the delimiter.
    fn put_value(&self, at: usize, value: Option<&[u8]>, is_quoted: bool, out: &mut BytesMut) {
        let CopyOptions { format, delimiter, null, quote, escape, .. } = &self.options;
        if at > 0 {
            out.put_u8(*delimiter);
        }
        let Some(value) = value else { return out.put_slice(null.as_bytes()) };
        if *format == CopyFormat::Text {
            return put_escaped(value, *delimiter, out);
        }
        let has_special = || value.iter().any(|b| [*delimiter, *quote, b'\r', b'\n'].contains(b));
        // a line of these two characters alone would end the data
        let is_end = self.columns == 1 && value == b"\\.";
        if !is_quoted && value != null.as_bytes() && !is_end && !has_special() {
            return out.put_slice(value);
        }
        out.put_u8(*quote);
        for byte in value {
            if byte == quote || byte == escape {
                out.put_u8(*escape);
            }
            out.put_u8(*byte);
        }
        out.put_u8(*quote);
    }
}

fn put_escaped(value: &[u8], delimiter: u8, out: &mut BytesMut) {
    for byte in value {
        let letter = match byte {
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            byte if *byte == delimiter => *byte,
            byte => {
                out.put_u8(*byte);
                continue;
            }
        };
        out.put_slice(&[b'\\', letter]);
    }
}

impl CopyOptions {
    /// Returns the format of all values.
    pub fn column_format(&self) -> Format {
        match self.format {
            CopyFormat::Binary => Format::Binary,
            CopyFormat::Text | CopyFormat::Csv => Format::Text,
        }
    }
}
