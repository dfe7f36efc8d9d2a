//! Messages of the plug-in `pgoutput`, version 1, which describe the changes of tables.

use bytes::{Buf, Bytes};

use crate::error::DbError;

/// Value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ColumnValue {
    /// NULL.
    Null,
    /// A large value that the statement did not change, and that the log does not have.
    Unchanged,
    /// Text form.
    Text(Bytes),
}

/// Values of the columns of a row.
pub(super) type Cells = Vec<ColumnValue>;

/// Values before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Before {
    /// Those of the replica identity's columns; the others are NULL.
    Key(Cells),
    /// All.
    Row(Cells),
}

/// Column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// Name.
    pub(super) name: String,
    /// Number of its type.
    pub(super) type_oid: u32,
    /// True if it belongs to the replica identity.
    pub(super) is_key: bool,
}

/// Description of a table, sent before the first of its changes, and anew after it was altered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelationMessage {
    pub(super) oid: u32,
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplicationMessage {
    /// `commit` is the position of the transaction's commit; `micros` its time, in microseconds since 2000.
    Begin {
        commit: u64,
        micros: i64,
    },
    /// `end` is the position behind the commit.
    Commit {
        end: u64,
    },
    Relation(RelationMessage),
    Insert {
        relation: u32,
        after: Cells,
    },
    Update {
        relation: u32,
        before: Option<Before>,
        after: Cells,
    },
    Delete {
        relation: u32,
        before: Before,
    },
    /// Anything that does not matter: types, origins, truncations.
    Other,
}

fn broken() -> DbError {
    DbError::unavailable("the server sent a change that cannot be read: is its version 10 or later?")
}

/// Parses a message.
///
/// Errors: the bytes are not a message.
pub(super) fn parse(mut bytes: Bytes) -> Result<ReplicationMessage, DbError> {
    let bytes = &mut bytes;
    Ok(match u8_of(bytes)? {
        b'B' => ReplicationMessage::Begin { commit: u64_of(bytes)?, micros: u64_of(bytes)? as i64 },
        b'C' => {
            u8_of(bytes)?;
            u64_of(bytes)?;
            ReplicationMessage::Commit { end: u64_of(bytes)? }
        }
        b'R' => ReplicationMessage::Relation(relation(bytes)?),
        b'I' => {
            let relation = u32_of(bytes)?;
            expect(bytes, b'N')?;
            ReplicationMessage::Insert { relation, after: cells(bytes)? }
        }
        b'U' => {
            let relation = u32_of(bytes)?;
            let before = match u8_of(bytes)? {
                b'N' => None,
                kind => {
                    let before = before(bytes, kind)?;
                    expect(bytes, b'N')?;
                    Some(before)
                }
            };
            ReplicationMessage::Update { relation, before, after: cells(bytes)? }
        }
        b'D' => {
            let relation = u32_of(bytes)?;
            let kind = u8_of(bytes)?;
            ReplicationMessage::Delete { relation, before: before(bytes, kind)? }
        }
        _ => ReplicationMessage::Other,
    })
}

fn before(bytes: &mut Bytes, kind: u8) -> Result<Before, DbError> {
    match kind {
        b'K' => cells(bytes).map(Before::Key),
        b'O' => cells(bytes).map(Before::Row),
        _ => Err(broken()),
    }
}

fn relation(bytes: &mut Bytes) -> Result<RelationMessage, DbError> {
    let oid = u32_of(bytes)?;
    let (schema, name) = (text(bytes)?, text(bytes)?);
    // replica identity
    u8_of(bytes)?;
    let count = u16_of(bytes)?;
    let mut columns = Vec::with_capacity(count.into());
    for _ in 0..count {
        let is_key = u8_of(bytes)? & 1 == 1;
        let name = text(bytes)?;
        let type_oid = u32_of(bytes)?;
        u32_of(bytes)?;
        columns.push(Column { name, type_oid, is_key });
    }
    Ok(RelationMessage { oid, schema, name, columns })
}

fn cells(bytes: &mut Bytes) -> Result<Cells, DbError> {
    let count = u16_of(bytes)?;
    let mut cells = Vec::with_capacity(count.into());
    for _ in 0..count {
        cells.push(match u8_of(bytes)? {
            b'n' => ColumnValue::Null,
            b'u' => ColumnValue::Unchanged,
            b't' => {
                let length = u32_of(bytes)? as usize;
                if bytes.len() < length {
                    return Err(broken());
                }
                ColumnValue::Text(bytes.split_to(length))
            }
            _ => return Err(broken()),
        });
    }
    Ok(cells)
}

fn expect(bytes: &mut Bytes, expected: u8) -> Result<(), DbError> {
    if u8_of(bytes)? == expected { Ok(()) } else { Err(broken()) }
}

fn text(bytes: &mut Bytes) -> Result<String, DbError> {
    let end = bytes.iter().position(|b| *b == 0).ok_or_else(broken)?;
    let text = bytes.split_to(end);
    bytes.advance(1);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn u8_of(bytes: &mut Bytes) -> Result<u8, DbError> {
    bytes.try_get_u8().map_err(|_| broken())
}

fn u16_of(bytes: &mut Bytes) -> Result<u16, DbError> {
    bytes.try_get_u16().map_err(|_| broken())
}

fn u32_of(bytes: &mut Bytes) -> Result<u32, DbError> {
    bytes.try_get_u32().map_err(|_| broken())
}

fn u64_of(bytes: &mut Bytes) -> Result<u64, DbError> {
    bytes.try_get_u64().map_err(|_| broken())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_messages_are_refused() {
        let mut update = b"U\0\0\0\x07K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012u".to_vec();
        let parsed = parse(Bytes::from(update.clone())).unwrap();
        let text = |text: &'static [u8]| ColumnValue::Text(Bytes::from_static(text));
        let expected = ReplicationMessage::Update {
            relation: 7,
            before: Some(Before::Key(vec![text(b"1"), ColumnValue::Null])),
            after: vec![text(b"2"), ColumnValue::Unchanged],
        };
        assert_eq!(parsed, expected);
        while update.pop().is_some() {
            assert!(parse(Bytes::from(update.clone())).is_err(), "{update:?}");
        }
    }
}
