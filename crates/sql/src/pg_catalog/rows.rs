//! Rows of a catalog, from the values of some of its columns.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int16Array, Int16Builder, Int32Array, Int64Array,
    Int64Builder, ListBuilder, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
    new_null_array,
};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err, internal_err};

use super::definitions::{ColumnDefinition, Definition, data_type};

/// Value of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Text(Cow<'static, str>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    /// Microseconds since 1970.
    Time(i64),
}

impl From<&'static str> for Cell {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        // counts of columns, which are far below
        Self::Int(value.try_into().unwrap_or(i64::MAX))
    }
}

impl From<Vec<i64>> for Cell {
    fn from(values: Vec<i64>) -> Self {
        Self::Ints(values)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Builder of the rows of a catalog. Columns that are not named are null, or 0, false and empty where they are never null.
#[derive(Debug)]
pub(super) struct Rows<const N: usize> {
    definition: &'static Definition,
    names: [&'static str; N],
    columns: [Vec<Cell>; N],
}

impl<const N: usize> Rows<N> {
    pub fn new(definition: &'static Definition, names: [&'static str; N]) -> Self {
        Self { definition, names, columns: std::array::from_fn(|_| Vec::new()) }
    }

    pub fn push(&mut self, cells: [Cell; N]) {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
    }

    /// Returns the rows.
    ///
    /// Errors: internal: a name or a value does not fit the definition.
    pub fn finish(self) -> Result<RecordBatch> {
        let rows = self.columns.first().map_or(0, Vec::len);
        for name in self.names {
            if !self.definition.columns.iter().any(|column| column.name == name) {
                return internal_err!("{} has no column {name}", self.definition.name);
            }
        }
        let arrays = self.definition.columns.iter().map(|column| {
            match self.names.iter().position(|name| *name == column.name) {
                Some(at) => array(column, &self.columns[at]),
                None => Ok(default(column, rows)),
            }
        });
        Ok(RecordBatch::try_new(self.definition.fields.clone(), arrays.collect::<Result<_>>()?)?)
    }
}

/// Returns the rows of a catalog that has none.
pub(super) fn none(definition: &'static Definition) -> RecordBatch {
    RecordBatch::new_empty(definition.fields.clone())
}

fn default(column: &ColumnDefinition, rows: usize) -> ArrayRef {
    let ty = data_type(column.ty);
    if column.is_nullable {
        return new_null_array(&ty, rows);
    }
    match ty {
        DataType::Boolean => Arc::new(BooleanArray::from(vec![false; rows])),
        DataType::Int16 => Arc::new(Int16Array::from_value(0, rows)),
        DataType::Int32 => Arc::new(Int32Array::from_value(0, rows)),
        DataType::Int64 => Arc::new(Int64Array::from_value(0, rows)),
        DataType::Float32 => Arc::new(Float32Array::from_value(0.0, rows)),
        DataType::Float64 => Arc::new(Float64Array::from_value(0.0, rows)),
        DataType::Utf8 => Arc::new(StringArray::from_iter_values(std::iter::repeat_n("", rows))),
        DataType::List(_) if column.ty == "int2vector" || column.ty == "int2[]" => {
            let mut lists = ListBuilder::new(Int16Builder::new());
            (0..rows).for_each(|_| lists.append(true));
            Arc::new(lists.finish())
        }
        DataType::List(item) if *item.data_type() == DataType::Int64 => {
            let mut lists = ListBuilder::new(Int64Builder::new());
            (0..rows).for_each(|_| lists.append(true));
            Arc::new(lists.finish())
        }
        other => new_null_array(&other, rows),
    }
}

pub(super) fn array(column: &ColumnDefinition, cells: &[Cell]) -> Result<ArrayRef> {
    let name = column.name;
    let int = |cell: &Cell| match cell {
        Cell::Null => Ok(None),
        Cell::Int(value) => Ok(Some(*value)),
        other => exec_err!("{name}: {other:?} is not a number"),
    };
    let ints = || cells.iter().map(int).collect::<Result<Vec<Option<i64>>>>();
    // values are attributes and counts, which fit their columns
    let narrow = |value: Option<i64>| value.map(|value| value as i16);
    Ok(match data_type(column.ty) {
        DataType::Boolean => {
            let values = cells.iter().map(|cell| match cell {
                Cell::Null => Ok(None),
                Cell::Bool(value) => Ok(Some(*value)),
                other => exec_err!("{name}: {other:?} is not a boolean"),
            });
            Arc::new(values.collect::<Result<BooleanArray>>()?)
        }
        DataType::Int16 => Arc::new(Int16Array::from_iter(ints()?.into_iter().map(narrow))),
        DataType::Int32 => {
            Arc::new(Int32Array::from_iter(ints()?.into_iter().map(|value| value.map(|value| value as i32))))
        }
        DataType::Int64 => Arc::new(Int64Array::from_iter(ints()?)),
        DataType::Float32 => Arc::new(Float32Array::from_iter(
            ints()?.into_iter().map(|value| value.map(|value| value as f32)),
        )),
        DataType::Float64 => Arc::new(Float64Array::from_iter(
            ints()?.into_iter().map(|value| value.map(|value| value as f64)),
        )),
        DataType::Utf8 => {
            let values = cells.iter().map(|cell| match cell {
                Cell::Null => Ok(None),
                Cell::Text(value) => Ok(Some(value.as_ref())),
                other => exec_err!("{name}: {other:?} is not a text"),
            });
            Arc::new(values.collect::<Result<StringArray>>()?)
        }
        DataType::Timestamp(..) => {
            let values = cells.iter().map(|cell| match cell {
                Cell::Null => Ok(None),
                Cell::Time(value) => Ok(Some(*value)),
                other => exec_err!("{name}: {other:?} is not a time"),
            });
            Arc::new(values.collect::<Result<TimestampMicrosecondArray>>()?.with_timezone("UTC"))
        }
        DataType::List(item) => match item.data_type() {
            DataType::Int16 => {
                let mut lists = ListBuilder::new(Int16Builder::new());
                for cell in cells {
                    match cell {
                        Cell::Ints(values) => {
                            lists.append_value(values.iter().map(|value| narrow(Some(*value))));
                        }
                        Cell::Null => lists.append(false),
                        other => return exec_err!("{name}: {other:?} is not a list of numbers"),
                    }
                }
                Arc::new(lists.finish())
            }
            DataType::Int64 => {
                let mut lists = ListBuilder::new(Int64Builder::new());
                for cell in cells {
                    match cell {
                        Cell::Ints(values) => lists.append_value(values.iter().map(|value| Some(*value))),
                        Cell::Null => lists.append(false),
                        other => return exec_err!("{name}: {other:?} is not a list of numbers"),
                    }
                }
                Arc::new(lists.finish())
            }
            _ => {
                let mut lists = ListBuilder::new(StringBuilder::new());
                for cell in cells {
                    match cell {
                        Cell::Texts(values) => lists.append_value(values.iter().map(Some)),
                        Cell::Null => lists.append(false),
                        other => return exec_err!("{name}: {other:?} is not a list of texts"),
                    }
                }
                Arc::new(lists.finish())
            }
        },
        other => return internal_err!("{name}: there are no values of type {other}"),
    })
}
