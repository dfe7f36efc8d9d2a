//! The rows of a table in a state, a chunk at a time. Keys and indexes are made again.

use tidemill_types::FieldType;

use super::{RowId, Table};
use crate::snapshot::{CHUNK_ROWS, Error, Reader, RowAt, Writer};

impl Table {
    fn types(&self) -> Vec<FieldType> {
        self.plan.attributes.iter().map(|(_, ty)| *ty).collect()
    }

    /// Writes its rows with their numbers.
    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        let types = self.types();
        out.number(self.next)?;
        let mut ids: Vec<RowId> = Vec::with_capacity(CHUNK_ROWS);
        let mut rows: Vec<RowAt<'_>> = Vec::with_capacity(CHUNK_ROWS);
        let mut left = self.rows.len();
        for (id, place) in &self.rows {
            ids.push(*id);
            rows.push(self.at(*place));
            left -= 1;
            if ids.len() == CHUNK_ROWS || left == 0 {
                out.numbers(ids.drain(..))?;
                out.rows(&types, &rows)?;
                rows.clear();
            }
        }
        out.numbers([].into_iter())
    }

    /// Takes the place of what was written.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let types = self.types();
        let next = from.number()?;
        let mut table = Self::new(self.plan.clone()).with_rows_max(self.rows_max);
        loop {
            let ids = from.numbers()?;
            if ids.is_empty() {
                break;
            }
            if ids.len() > CHUNK_ROWS {
                return Err(from.damaged(format!("{} rows together", ids.len())));
            }
            let columns = from.rows(&types, ids.len())?;
            for (row, id) in ids.into_iter().enumerate() {
                if id >= next || table.rows.contains_key(&id) {
                    return Err(from.damaged(format!("row {id} where the next is {next}")));
                }
                let values: Vec<_> = columns.iter().map(|column| column.get(row)).collect();
                let place = table.write(&values);
                table.rows.insert(id, place);
                table.enter(id, &values);
            }
        }
        table.next = next;
        *self = table;
        Ok(())
    }
}
