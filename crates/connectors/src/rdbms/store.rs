//! Store that keeps the rows of a table in a database.
//!
//! Each write is a transaction that also stores its position, so a record that is applied again after a crash
//! writes nothing twice.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use tidemill_connect::{
    OptionError, OptionSpec, Options, RefusedRow, StoreArithmetic, StoreComparison, StoreContext, StoreExpr,
    StoreType, StoreUpdate, TableStore, WritePosition, all_values, batch_of, values,
};
use tidemill_relational::{
    ArithmeticOperator, Column, CompareOperator, Expression, RelationalTable, STORE_OPTIONS, StoreOptions,
    TableName, TableSchema, Written,
};
use tidemill_types::{EventId, Field, FieldType, Result, StreamSchema};

use crate::stores::StoreCalls;

/// Length of strings that may have any: databases have a type without a limit for it.
const LONG_TEXT_LENGTH: u32 = 1 << 30;

/// Type of store.
#[derive(Debug, Clone, Copy)]
pub(super) struct RdbmsStoreType;

impl StoreType for RdbmsStoreType {
    fn name(&self) -> &'static str {
        "rdbms"
    }

    fn summary(&self) -> &'static str {
        "Keeps the rows of a table in PostgreSQL, MariaDB, MySQL, SQL Server, Oracle or SQLite."
    }

    fn options(&self) -> &'static [OptionSpec] {
        STORE_OPTIONS
    }

    fn table_option(&self) -> Option<&'static str> {
        Some("table.name")
    }

    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError> {
        let column = |(number, field): (usize, &Field)| {
            let length = context.long_texts.contains(&number).then_some(LONG_TEXT_LENGTH);
            Column { length, ..Column::new(&field.name, field.ty) }
        };
        let columns = context.schema.fields.iter().enumerate().map(column).collect();
        // the index of a primary key serves its first column
        let indexes = context.indexes.iter().filter(|column| context.primary_key.first() != Some(column));
        let schema = TableSchema {
            name: TableName::parse(&context.table).map_err(OptionError::connector)?,
            columns,
            primary_key: context.primary_key.clone(),
            indexes: indexes.map(|column| vec![*column]).collect(),
        };
        let options = StoreOptions::new(options, schema)?;
        let table = RelationalTable::create(options, &format!("{}/{}", context.writer, context.table));
        let table = table.map_err(|e| OptionError::connector(e.to_string()))?;
        Ok(Box::new(RdbmsStore {
            table,
            schema: context.schema.clone(),
            calls: StoreCalls { table: context.table.clone(), monitor: context.monitor.clone() },
        }))
    }
}

struct RdbmsStore {
    table: RelationalTable,
    schema: Arc<StreamSchema>,
    calls: StoreCalls,
}

impl RdbmsStore {
    fn until_reached<T>(&self, mut work: impl FnMut(&RelationalTable) -> Result<T>) -> Result<T> {
        self.calls.until_reached(|| work(&self.table))
    }

    fn write(&self, work: impl FnMut(&RelationalTable) -> Result<Written>) -> Result<Vec<RefusedRow>> {
        Ok(self.until_reached(work)?.refused)
    }
}

impl TableStore for RdbmsStore {
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        limit: Option<usize>,
    ) -> Result<RecordBatch> {
        let condition = CallTranslation::of(parameters).condition(condition);
        let given = values(parameters, 0);
        let mut rows = self.until_reached(|table| table.find(&condition, &given))?;
        rows.truncate(limit.unwrap_or(usize::MAX));
        batch_of(&self.schema, &rows)
    }

    fn insert(&mut self, rows: &RecordBatch, at: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        let rows = all_values(rows);
        self.write(|table| table.insert(&rows, at.map(event_id)))
    }

    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let condition = CallTranslation::of(parameters).condition(condition);
        let given = all_values(parameters);
        self.write(|table| table.delete(&condition, &given, at.map(event_id)))
    }

    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let at = at.map(event_id);
        let translation = CallTranslation { parameters, inserted: insert };
        let condition = translation.expression(&change.condition, None);
        let set: Vec<(usize, Expression)> = change
            .set
            .iter()
            .map(|(column, x)| (*column, translation.expression(x, Some(*column))))
            .collect();
        let mut given = all_values(parameters);
        match insert {
            None => self.write(|table| table.update(&condition, &set, &given, at)),
            Some(rows) => {
                for (row, parameters) in all_values(rows).into_iter().zip(&mut given) {
                    parameters.splice(0..0, row);
                }
                self.write(|table| table.upsert(&condition, &set, &given, at))
            }
        }
    }
}

fn event_id(at: WritePosition) -> EventId {
    EventId { partition: at.partition, offset: at.offset, row: at.call }
}

/// Translation of the expressions of a call.
struct CallTranslation<'b> {
    parameters: &'b RecordBatch,
    /// Rows of `update or insert`, whose columns are parameters in front of the others.
    inserted: Option<&'b RecordBatch>,
}

impl<'b> CallTranslation<'b> {
    fn of(parameters: &'b RecordBatch) -> Self {
        Self { parameters, inserted: None }
    }

    fn condition(&self, condition: Option<&StoreExpr>) -> Expression {
        condition.map_or(Expression::And(vec![]), |condition| self.expression(condition, None))
    }

    /// Translates an expression whose value belongs to a column of the table, if to any.
    fn expression(&self, x: &StoreExpr, of: Option<usize>) -> Expression {
        let part = |x: &StoreExpr| self.expression(x, None);
        let boxed = |x: &StoreExpr| Box::new(part(x));
        match x {
            StoreExpr::Column(column) => Expression::Column(*column),
            StoreExpr::Parameter(parameter) => self.parameter(*parameter, of),
            StoreExpr::Compare(operator, left, right) => {
                let column = |x: &StoreExpr| match x {
                    StoreExpr::Column(column) => Some(*column),
                    _ => None,
                };
                Expression::compare(
                    self.expression(left, column(right)),
                    compare_operator(*operator),
                    self.expression(right, column(left)),
                )
            }
            StoreExpr::Arithmetic(operator, left, right) => {
                Expression::Arithmetic(boxed(left), arithmetic_operator(*operator), boxed(right))
            }
            StoreExpr::And(left, right) => Expression::And(vec![part(left), part(right)]),
            StoreExpr::Or(left, right) => Expression::Or(vec![part(left), part(right)]),
            StoreExpr::Not(inner) => Expression::Not(boxed(inner)),
            StoreExpr::IsNull(inner) => Expression::IsNull(boxed(inner)),
        }
    }

    /// Returns a parameter. One that has the values of the inserted rows is theirs, so that the database can see that
    /// whole rows are replaced.
    fn parameter(&self, parameter: usize, of: Option<usize>) -> Expression {
        let ty = |batch: &RecordBatch, column: usize| field_type(batch.schema().field(column).data_type());
        let offset = self.inserted.map_or(0, RecordBatch::num_columns);
        if let (Some(inserted), Some(column)) = (self.inserted, of)
            && inserted.column(column).as_ref() == self.parameters.column(parameter).as_ref()
        {
            return Expression::Parameter(column, ty(inserted, column));
        }
        Expression::Parameter(offset + parameter, ty(self.parameters, parameter))
    }
}

fn field_type(ty: &DataType) -> FieldType {
    match ty {
        DataType::Boolean => FieldType::Bool,
        DataType::Int32 => FieldType::Int,
        DataType::Int64 => FieldType::Long,
        DataType::Float32 => FieldType::Float,
        DataType::Float64 => FieldType::Double,
        DataType::Timestamp(..) => FieldType::Time,
        _ => FieldType::String,
    }
}

fn compare_operator(operator: StoreComparison) -> CompareOperator {
    match operator {
        StoreComparison::Eq => CompareOperator::Equal,
        StoreComparison::Ne => CompareOperator::NotEqual,
        StoreComparison::Lt => CompareOperator::Less,
        StoreComparison::Le => CompareOperator::LessOrEqual,
        StoreComparison::Gt => CompareOperator::Greater,
        StoreComparison::Ge => CompareOperator::GreaterOrEqual,
    }
}

fn arithmetic_operator(operator: StoreArithmetic) -> ArithmeticOperator {
    match operator {
        StoreArithmetic::Add => ArithmeticOperator::Add,
        StoreArithmetic::Sub => ArithmeticOperator::Subtract,
        StoreArithmetic::Mul => ArithmeticOperator::Multiply,
        StoreArithmetic::Div => ArithmeticOperator::Divide,
        StoreArithmetic::Rem => ArithmeticOperator::Remainder,
    }
}
