//! Sizes that a Parquet file expands to, from the headers of its pages; a decoder would allocate before it can know them.

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use tidemill_types::{Error, Result};

use super::thrift::{I32, LIST, Reader, STRUCT};

/// Maximum depth of nested columns.
const DEPTH_MAX: usize = 32;
/// Bytes at the end of a file: the length of the metadata and `PAR1`.
const TAIL_BYTES: usize = 8;
/// Bytes that a value counts beside its page: its levels.
const VALUE_BYTES: u64 = 4;
/// Encoding of texts as a length of the text before and the rest, with which few bytes become many.
const DELTA_BYTE_ARRAY: i64 = 7;

/// Checks that columns are not nested too deeply for decoders, which call themselves for each level.
///
/// Errors: `Invalid` for a file without metadata, and for one whose columns are.
pub(super) fn check_depth(body: &[u8]) -> Result<()> {
    let mut metadata = Reader::new(metadata_of(body)?);
    metadata.fields(|reader, number, ty| {
        let is_schema = number == 2 && ty == LIST;
        if is_schema {
            check_elements(reader)?;
        }
        Ok(is_schema)
    })
}

fn metadata_of(body: &[u8]) -> Result<&[u8]> {
    let cut = || Error::invalid("it has no metadata at its end");
    let (before, tail) = body.split_at_checked(body.len().wrapping_sub(TAIL_BYTES)).ok_or_else(cut)?;
    let length = tail.strip_suffix(b"PAR1").and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
    let start = length.and_then(|length| before.len().checked_sub(length as usize)).ok_or_else(cut)?;
    Ok(&before[start..])
}

/// Reads the columns, each followed by those in it.
fn check_elements(reader: &mut Reader<'_>) -> Result<()> {
    let (count, _) = reader.list()?;
    // for each level the number of columns that are still to come
    let mut levels: Vec<i64> = vec![];
    for _ in 0..count {
        let mut children = 0;
        reader.fields(|reader, number, ty| {
            let is_children = number == 5 && ty == I32;
            if is_children {
                children = reader.signed()?;
            }
            Ok(is_children)
        })?;
        if let Some(left) = levels.last_mut() {
            *left -= 1;
        }
        levels.push(children);
        if levels.len() > DEPTH_MAX {
            return Err(Error::invalid(format!("its columns are nested more than {DEPTH_MAX} deep")));
        }
        while levels.last().is_some_and(|left| *left <= 0) {
            levels.pop();
        }
    }
    Ok(())
}

/// Returns the bytes that all pages expand to.
///
/// Errors: `Invalid` for damaged pages, and for encodings and compressions without a bound.
pub(super) fn decoded_bytes(body: &[u8], metadata: &ParquetMetaData) -> Result<u64> {
    let mut sum = 0_u64;
    for group in metadata.row_groups() {
        for column in group.columns() {
            let named = |e: Error| e.context(format!("column `{}`", column.column_path().string()));
            sum = sum.saturating_add(column_bytes(body, column).map_err(named)?);
        }
    }
    Ok(sum)
}

fn column_bytes(body: &[u8], column: &ColumnChunkMetaData) -> Result<u64> {
    use parquet::basic::Compression;
    if !matches!(
        column.compression(),
        Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_) | Compression::LZ4_RAW
    ) {
        return Err(Error::invalid(format!(
            "the compression {} is not read from a body: write it with snappy, zstd, LZ4_RAW or none",
            column.compression()
        )));
    }
    let outside = || Error::invalid("its pages are outside of the file");
    let (start, length) = column.byte_range();
    let start = usize::try_from(start).map_err(|_| outside())?;
    let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
    let mut pages = body.get(start..end.ok_or_else(outside)?).ok_or_else(outside)?;
    let mut sum = 0_u64;
    while !pages.is_empty() {
        let page = PageHeader::read(pages)?;
        sum = sum.saturating_add(page.expanded).saturating_add(page.values.saturating_mul(VALUE_BYTES));
        pages = pages
            .get(page.header_bytes..)
            .and_then(|rest| rest.get(page.compressed..))
            .ok_or_else(outside)?;
    }
    Ok(sum)
}

/// Head of a page, as far as it says how large the page becomes.
#[derive(Debug, Default)]
struct PageHeader {
    header_bytes: usize,
    compressed: usize,
    expanded: u64,
    values: u64,
}

impl PageHeader {
    fn read(bytes: &[u8]) -> Result<Self> {
        let negative = |_| Error::invalid("a page has a negative size");
        let mut page = Self::default();
        let mut encoding = None;
        let mut reader = Reader::new(bytes);
        reader.fields(|reader, number, ty| {
            match (number, ty) {
                (2, I32) => page.expanded = u64::try_from(reader.signed()?).map_err(negative)?,
                (3, I32) => page.compressed = usize::try_from(reader.signed()?).map_err(negative)?,
                (5 | 7 | 8, STRUCT) => reader.fields(|reader, own, ty| {
                    let is_encoding = own == if number == 8 { 4 } else { 2 };
                    match (own, ty) {
                        (1, I32) => page.values = u64::try_from(reader.signed()?).map_err(negative)?,
                        (_, I32) if is_encoding => encoding = Some(reader.signed()?),
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if encoding == Some(DELTA_BYTE_ARRAY) {
            return Err(Error::invalid(
                "the encoding DELTA_BYTE_ARRAY is not read from a body: write it with a dictionary or plain",
            ));
        }
        page.header_bytes = reader.position();
        Ok(page)
    }
}
