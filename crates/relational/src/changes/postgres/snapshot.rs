//! Rows of the table as COPY sends them: columns with tabs between, `\N` for NULL, and backslashes that escape.

use super::super::{ChangeSettings, PolledRow, RowWriter, SnapshotRow};
use super::setup::{SourceColumn, SourceTable};
use super::values;
use crate::error::DbError;

/// Converts a line.
///
/// Errors: it has other columns than expected.
pub(super) fn row(
    line: &[u8],
    table: &SourceTable,
    settings: &ChangeSettings,
) -> Result<SnapshotRow, DbError> {
    let mut out = RowWriter::default();
    let mut key = None;
    let mut cells = cells(line);
    for (index, column) in table.columns.iter().enumerate() {
        let cell = cells.next().ok_or_else(|| too_short(table))?;
        if table.integer_key == Some(index) {
            key = cell.as_deref().and_then(|text| text.parse().ok());
        }
        write(column, &column.name, cell.as_deref(), settings, &mut out);
    }
    Ok(SnapshotRow { json: out.finish(), key })
}

/// Converts a line that has the value of the polled column at its end.
///
/// Errors: it has other columns than expected.
pub(super) fn polled_row(
    line: &[u8],
    table: &SourceTable,
    settings: &ChangeSettings,
) -> Result<PolledRow, DbError> {
    let mut out = RowWriter::default();
    let mut cells = cells(line);
    for column in &table.columns {
        let cell = cells.next().ok_or_else(|| too_short(table))?;
        let lower = column.name.to_lowercase();
        if lower != column.name {
            write(column, &lower, cell.as_deref(), settings, &mut out);
        }
        write(column, &column.name, cell.as_deref(), settings, &mut out);
    }
    let value = cells.next().flatten().and_then(|text| text.parse().ok());
    Ok(PolledRow { value: value.ok_or_else(|| too_short(table))?, json: out.finish() })
}

fn too_short(table: &SourceTable) -> DbError {
    DbError::unavailable(format!("a row of `{}` has fewer columns than the table", table.name))
}

fn write(
    column: &SourceColumn,
    name: &str,
    text: Option<&str>,
    settings: &ChangeSettings,
    out: &mut RowWriter,
) {
    let out = out.name("", name);
    match text {
        None => out.null(),
        Some(text) => values::write(column.type_oid, text, settings.wanted.get(name).copied(), out),
    }
}

fn cells(line: &[u8]) -> impl Iterator<Item = Option<String>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.split(|b| *b == b'\t').map(|cell| (cell != b"\\N").then(|| unescaped(cell)))
}

fn unescaped(cell: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(cell.len());
    let mut rest = cell.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => bytes.push(match rest.next() {
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b't') => b'\t',
                Some(b'v') => 11,
                Some(other) => *other,
                None => b'\\',
            }),
            other => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
