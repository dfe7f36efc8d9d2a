//! Messages for clients, appended to a buffer.

use bytes::{BufMut, BytesMut};

use crate::error::{PgError, Result, Severity, code};
use crate::messages::input::Format;
use crate::values::column::Column;

/// State of the transaction that each `ReadyForQuery` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionStatus {
    Idle,
    Open,
    Failed,
}

/// Appends a message whose content `write` appends.
pub(crate) fn message(out: &mut BytesMut, letter: u8, write: impl FnOnce(&mut BytesMut)) {
    let start = begin(out, letter);
    write(out);
    // the contents are bounded far below 2 GiB: names, texts of errors and settings
    let _ = end(out, start);
}

/// Begins a message whose length [`end`] writes. Returns the place of the length.
pub(crate) fn begin(out: &mut BytesMut, letter: u8) -> usize {
    out.put_u8(letter);
    let start = out.len();
    out.put_u32(0);
    start
}

/// Ends the message that [`begin`] has begun.
///
/// Errors: it is longer than the protocol can say; its bytes are removed.
pub(crate) fn end(out: &mut BytesMut, start: usize) -> Result<()> {
    let length = out.len() - start;
    match i32::try_from(length) {
        Ok(length) => {
            // `begin` has appended these four bytes
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        Err(_) => {
            out.truncate(start - 1);
            Err(PgError::new(
                code::TOO_LARGE,
                format!(
                    "a row of {length} bytes: the protocol has 2 GiB at most, select fewer or shorter columns"
                ),
            ))
        }
    }
}

pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    // a zero byte would end the text early and make the rest of the message unreadable
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.put_u8(0);
}

pub(crate) fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    message(out, b'S', |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

pub(crate) fn ready_for_query(out: &mut BytesMut, status: TransactionStatus) {
    let letter = match status {
        TransactionStatus::Idle => b'I',
        TransactionStatus::Open => b'T',
        TransactionStatus::Failed => b'E',
    };
    message(out, b'Z', |out| out.put_u8(letter));
}

pub(crate) fn command_complete(out: &mut BytesMut, tag: &str) {
    message(out, b'C', |out| put_text(out, tag));
}

/// Appends a message without content: `ParseComplete`, `BindComplete`, `CloseComplete`, `NoData`, `PortalSuspended`,
/// `EmptyQueryResponse`, `CopyDone`.
pub(crate) fn empty(out: &mut BytesMut, letter: u8) {
    message(out, letter, |_| {});
}

/// Appends `ErrorResponse` or `NoticeResponse`.
pub(crate) fn error(out: &mut BytesMut, error: &PgError) {
    let letter = if matches!(error.severity, Severity::Warning | Severity::Notice) { b'N' } else { b'E' };
    message(out, letter, |out| {
        let mut field = |name: u8, text: &str| {
            out.put_u8(name);
            put_text(out, text);
        };
        field(b'S', error.severity.name());
        field(b'V', error.severity.name());
        field(b'C', error.code);
        field(b'M', &error.message);
        if let Some(hint) = &error.hint {
            field(b'H', hint);
        }
        if let Some(position) = error.position {
            field(b'P', &position.to_string());
        }
        if let Some(context) = &error.context {
            field(b'W', context);
        }
        out.put_u8(0);
    });
}

pub(crate) fn parameter_description(out: &mut BytesMut, oids: &[u32]) {
    message(out, b't', |out| {
        out.put_u16(count(oids.len()));
        oids.iter().for_each(|oid| out.put_u32(*oid));
    });
}

/// Appends the columns of the rows that follow, with the format of each.
pub(crate) fn row_description(out: &mut BytesMut, columns: &[Column], formats: &[Format]) {
    message(out, b'T', |out| {
        out.put_u16(count(columns.len()));
        for (at, column) in columns.iter().enumerate() {
            put_text(out, &column.name);
            let origin = column.origin;
            out.put_u32(origin.map_or(0, |origin| origin.table));
            out.put_u16(origin.map_or(0, |origin| origin.column));
            out.put_u32(column.ty.oid());
            out.put_i16(column.ty.bytes());
            out.put_i32(column.modifier);
            out.put_u16(format_at(formats, at).number());
        }
    });
}

/// Returns the format of a column: there are formats for all, one for each of them, or none, which means text.
pub(crate) fn format_at(formats: &[Format], at: usize) -> Format {
    match formats {
        [] => Format::Text,
        [all] => *all,
        each => each.get(at).copied().unwrap_or(Format::Text),
    }
}

/// Appends the beginning of a `COPY … TO STDOUT`.
pub(crate) fn copy_out(out: &mut BytesMut, columns: usize, format: Format) {
    message(out, b'H', |out| {
        out.put_u8(u8::from(format == Format::Binary));
        out.put_u16(count(columns));
        (0..columns).for_each(|_| out.put_u16(format.number()));
    });
}

/// Appends the request for the data of a `COPY … FROM STDIN`.
pub(crate) fn copy_in(out: &mut BytesMut, columns: usize, format: Format) {
    message(out, b'G', |out| {
        out.put_u8(u8::from(format == Format::Binary));
        out.put_u16(count(columns));
        (0..columns).for_each(|_| out.put_u16(format.number()));
    });
}

pub(crate) fn authentication(out: &mut BytesMut, kind: u32, content: &[u8]) {
    message(out, b'R', |out| {
        out.put_u32(kind);
        out.put_slice(content);
    });
}

pub(crate) fn backend_key(out: &mut BytesMut, process: u32, key: &[u8]) {
    message(out, b'K', |out| {
        out.put_u32(process);
        out.put_slice(key);
    });
}

/// Appends the newest version of the protocol that is spoken, and the options of a newer one that are not known.
pub(crate) fn negotiate_version(out: &mut BytesMut, minor_version: u16, options: &[&str]) {
    message(out, b'v', |out| {
        out.put_u32((3 << 16) | u32::from(minor_version));
        out.put_u32(u32::from(count(options.len())));
        options.iter().for_each(|option| put_text(out, option));
    });
}

/// Returns a number of columns or parameters, at most 65,535: a statement with more is refused.
fn count(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
