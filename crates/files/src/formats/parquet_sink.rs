//! Row groups of a Parquet file that grows.
//!
//! Row groups are encoded as files of their own. Their pages are moved into the file, and their metadata, with
//! the offsets that they have there, into its footer. The footer is written at the end whenever the file has
//! to be complete; later row groups overwrite it.

use arrow_array::RecordBatch;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
    RowGroupMetaData,
};
use tidemill_types::{Error, Result};

use crate::sink_encoder::{FileEncoder, SinkEncoder};

const MAGIC: &[u8; 4] = b"PAR1";
/// Size of the length of the metadata and the magic after it.
const FOOTER_BYTES: usize = 8;

pub(crate) struct ParquetEncoder {
    alone: FileEncoder,
    /// Metadata of a file without rows.
    file: FileMetaData,
    row_groups: Vec<RowGroupMetaData>,
}

impl ParquetEncoder {
    /// Creates the encoder of an empty file. Errors: the format does not support the stream.
    pub(crate) fn new(alone: FileEncoder) -> Result<Self> {
        let file = metadata(&alone.file(&[])?)?.0.file_metadata().clone();
        Ok(Self { alone, file, row_groups: vec![] })
    }

    /// Returns a row group whose pages are moved by `shift` bytes, without its ordinal: readers number row groups
    /// themselves, and those of one file have to agree on whether they have ordinals.
    fn moved_group(&self, group: &RowGroupMetaData, shift: i64) -> Result<RowGroupMetaData> {
        let columns = group.columns().iter().map(|column| moved(column, shift));
        RowGroupMetaData::builder(self.file.schema_descr_ptr())
            .set_num_rows(group.num_rows())
            .set_total_byte_size(group.total_byte_size())
            .set_file_offset(group.file_offset().unwrap_or(MAGIC.len() as i64) + shift)
            .set_column_metadata(columns.collect::<Result<_, _>>().map_err(failed)?)
            .build()
            .map_err(failed)
    }
}

impl SinkEncoder for ParquetEncoder {
    fn header(&mut self) -> Result<Vec<u8>> {
        Ok(MAGIC.to_vec())
    }

    fn resume(&mut self, _header: &[u8], trailer: &[u8]) -> Result<()> {
        let (metadata, _) = metadata(trailer)?;
        let groups = metadata.row_groups().iter().map(|group| self.moved_group(group, 0));
        self.row_groups = groups.collect::<Result<_>>()?;
        Ok(())
    }

    fn encode(&mut self, batches: &[RecordBatch], offset: u64, out: &mut Vec<u8>) -> Result<()> {
        let file = self.alone.file(batches)?;
        let (metadata, end) = metadata(&file)?;
        let shift = offset as i64 - MAGIC.len() as i64;
        for group in metadata.row_groups() {
            self.row_groups.push(self.moved_group(group, shift)?);
        }
        out.extend_from_slice(&file[MAGIC.len()..end]);
        Ok(())
    }

    fn trailer(&self, _length: u64) -> Result<Vec<u8>> {
        let rows = self.row_groups.iter().map(RowGroupMetaData::num_rows).sum();
        let file = FileMetaData::new(
            self.file.version(),
            rows,
            self.file.created_by().map(str::to_owned),
            self.file.key_value_metadata().cloned(),
            self.file.schema_descr_ptr(),
            self.file.column_orders().cloned(),
        );
        let all = ParquetMetaData::new(file, self.row_groups.clone());
        let mut trailer = Vec::new();
        ParquetMetaDataWriter::new(&mut trailer, &all).finish().map_err(failed)?;
        Ok(trailer)
    }

    fn wants_large_batches(&self) -> bool {
        true
    }
}

/// Returns the metadata at the end of a file, and the index at which they begin.
fn metadata(file: &[u8]) -> Result<(ParquetMetaData, usize)> {
    let bad = || Error::corrupt("the footer of a Parquet file is damaged");
    let end = file.len().checked_sub(FOOTER_BYTES).ok_or_else(bad)?;
    let (length, magic) = file[end..].split_at(4);
    let length = length.try_into().map(u32::from_le_bytes).map_err(|_| bad())? as usize;
    let begin = end.checked_sub(length).filter(|_| magic == MAGIC).ok_or_else(bad)?;
    Ok((ParquetMetaDataReader::decode_metadata(&file[begin..end]).map_err(failed)?, begin))
}

/// Moves the pages of a column by `shift` bytes. Page indexes stay behind.
fn moved(column: &ColumnChunkMetaData, shift: i64) -> Result<ColumnChunkMetaData, ParquetError> {
    column
        .clone()
        .into_builder()
        .set_data_page_offset(column.data_page_offset() + shift)
        .set_dictionary_page_offset(column.dictionary_page_offset().map(|offset| offset + shift))
        .set_offset_index_offset(None)
        .set_offset_index_length(None)
        .set_column_index_offset(None)
        .set_column_index_length(None)
        .build()
}

fn failed(e: ParquetError) -> Error {
    Error::internal("a row group cannot be added to a Parquet file").with_source(e)
}
