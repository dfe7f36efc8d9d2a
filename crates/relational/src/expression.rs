//! Conditions and values that the database computes.

use tidemill_types::{FieldType, Value};

use crate::dialect::Dialect;
use crate::existing::ExistingColumn;
use crate::param::Param;

/// Expression over a row of a table and parameters.
///
/// A condition is an expression of type `bool`. Comparisons with NULL are false, also below `Not`: `Not` of such
/// a comparison is true, as in SiddhiQL and unlike in SQL.
#[derive(Debug, Clone)]
pub enum Expression {
    /// Value of the column with this index in the declaration of the table.
    Column(usize),
    /// Parameter with this index.
    Parameter(usize, FieldType),
    /// The same value for all rows; `Missing` is NULL.
    Constant(Value<'static>, FieldType),
    /// `left operator right`.
    Arithmetic(Box<Expression>, ArithmeticOperator, Box<Expression>),
    /// `left operator right`.
    Compare(Box<Expression>, CompareOperator, Box<Expression>),
    /// True if all conditions hold, or the list is empty.
    And(Vec<Expression>),
    /// True if one of the conditions holds; false if the list is empty.
    Or(Vec<Expression>),
    /// True if the condition does not hold.
    Not(Box<Expression>),
    /// True if the value is NULL.
    IsNull(Box<Expression>),
}

/// Operator between numbers. Division of integers leaves the fraction out; division by zero is NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`, with the sign of the left side.
    Remainder,
}

/// Operator between values of comparable types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOperator {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Expression {
    /// Creates a comparison.
    pub fn compare(left: Self, operator: CompareOperator, right: Self) -> Self {
        Self::Compare(Box::new(left), operator, Box::new(right))
    }

    /// Creates a comparison of a column with a parameter.
    pub fn column_is(column: usize, parameter: usize, ty: FieldType) -> Self {
        Self::compare(Self::Column(column), CompareOperator::Equal, Self::Parameter(parameter, ty))
    }

    /// Returns whether the value depends on a column.
    pub(crate) fn uses_column(&self, column: usize) -> bool {
        match self {
            Self::Column(index) => *index == column,
            Self::Parameter(..) | Self::Constant(..) => false,
            Self::Arithmetic(left, _, right) | Self::Compare(left, _, right) => {
                left.uses_column(column) || right.uses_column(column)
            }
            Self::And(parts) | Self::Or(parts) => parts.iter().any(|part| part.uses_column(column)),
            Self::Not(inner) | Self::IsNull(inner) => inner.uses_column(column),
        }
    }

    /// Returns the pairs of column and parameter if the expression says only that columns are equal to
    /// parameters.
    pub(crate) fn equalities(&self) -> Option<Vec<(usize, usize, FieldType)>> {
        match self {
            Self::And(parts) => {
                let mut all = vec![];
                for part in parts {
                    all.extend(part.equalities()?);
                }
                Some(all)
            }
            Self::Compare(left, CompareOperator::Equal, right) => match (&**left, &**right) {
                (Self::Column(column), Self::Parameter(parameter, ty))
                | (Self::Parameter(parameter, ty), Self::Column(column)) => {
                    Some(vec![(*column, *parameter, *ty)])
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Column as SQL names it.
#[derive(Debug, Clone)]
pub struct SqlColumn {
    /// Quoted name.
    pub quoted: String,
    /// Type of its values.
    pub ty: FieldType,
    /// Its value in an expression.
    pub operand: String,
    /// Its value in a result.
    pub selected: String,
    /// Type to which a value is converted when it is assigned, if the database does not do so by itself.
    pub assigned_as: Option<String>,
}

impl SqlColumn {
    /// Returns a column of the declared type `ty`.
    pub fn new(dialect: Dialect, column: &ExistingColumn, ty: FieldType) -> Self {
        let quoted = dialect.quote(&column.name);
        let base = column.base_type.as_str();
        let is_text = ["varchar", "text", "bpchar", "name"].contains(&base);
        let is_string = matches!(ty, FieldType::String | FieldType::Object);
        let is_native = match ty {
            FieldType::Bool => base == "bool",
            FieldType::Int | FieldType::Long => ["int2", "int4", "int8"].contains(&base),
            FieldType::Float | FieldType::Double => ["float4", "float8"].contains(&base),
            FieldType::String | FieldType::Object => is_text,
            FieldType::Time => true,
        };
        let convert = |needed: bool| match needed && dialect == Dialect::PostgreSql {
            true => format!("{quoted}::{}", dialect.scalar_type(ty)),
            false => quoted.clone(),
        };
        Self {
            ty,
            operand: convert(is_string && !is_text),
            selected: convert(!is_native),
            // a conversion to varchar(n) would cut the text silently
            assigned_as: (dialect == Dialect::PostgreSql && is_string && !is_text)
                .then(|| column.sql_type.clone()),
            quoted,
        }
    }
}

/// Writes SQL with parameters.
#[derive(Debug)]
pub struct SqlWriter<'c> {
    dialect: Dialect,
    columns: &'c [SqlColumn],
    /// The statement so far.
    pub sql: String,
    params: Vec<ParamSource>,
}

/// Source of the value of a parameter of a statement.
#[derive(Debug, Clone)]
enum ParamSource {
    Parameter(usize, FieldType),
    Constant(Value<'static>, FieldType),
}

/// Statement with its parameters.
#[derive(Debug, Clone)]
pub struct SqlStatement {
    /// Statement.
    pub sql: String,
    params: Vec<ParamSource>,
}

impl SqlStatement {
    /// Returns the parameters of the statement for those of the expressions.
    ///
    /// Errors: a parameter is missing.
    pub fn params<'v>(&'v self, values: &'v [Value<'static>]) -> Result<Vec<Param<'v>>, String> {
        let param = |source: &'v ParamSource| match source {
            ParamSource::Constant(value, ty) => Ok(Param { ty: *ty, value: value.clone() }),
            ParamSource::Parameter(index, ty) => match values.get(*index) {
                Some(value) => Ok(Param { ty: *ty, value: value.clone() }),
                None => Err(format!("parameter {index} has no value; there are {}", values.len())),
            },
        };
        self.params.iter().map(param).collect()
    }

    /// Describes the parameters, for tests.
    pub fn describe_params(&self) -> Vec<String> {
        let describe = |source: &ParamSource| match source {
            ParamSource::Parameter(index, ty) => format!("parameter {index} {ty}"),
            ParamSource::Constant(value, ty) => format!("constant {value} {ty}"),
        };
        self.params.iter().map(describe).collect()
    }
}

impl SqlStatement {
    /// Returns the query of `selected` from the rows of a table for which `condition` holds, which returns `rows` rows
    /// at most. `table` and `selected` are SQL.
    ///
    /// Errors: those of [`SqlWriter::condition`].
    pub fn search(
        dialect: Dialect,
        columns: &[SqlColumn],
        table: &str,
        selected: &str,
        condition: &Expression,
        rows: usize,
    ) -> Result<Self, String> {
        let (top, end) = dialect.limit(rows);
        let writer = SqlWriter::new(dialect, columns);
        let writer = writer.text(&format!("SELECT {top}{selected} FROM {table} WHERE "));
        Ok(writer.condition(condition)?.text(&end).finish())
    }
}

impl<'c> SqlWriter<'c> {
    /// Starts a statement about a table with these columns.
    pub fn new(dialect: Dialect, columns: &'c [SqlColumn]) -> Self {
        Self { dialect, columns, sql: String::new(), params: vec![] }
    }

    /// Adds SQL.
    #[must_use]
    pub fn text(mut self, sql: &str) -> Self {
        self.sql.push_str(sql);
        self
    }

    /// Adds an expression as a value.
    ///
    /// Errors: a column that the table has not; arithmetics with other types than numbers.
    pub fn expression(mut self, expression: &Expression) -> Result<Self, String> {
        self.write(expression)?;
        Ok(self)
    }

    /// Adds an expression of type `bool` as the condition of a statement.
    ///
    /// Errors: those of [`Self::expression`].
    pub fn condition(mut self, expression: &Expression) -> Result<Self, String> {
        self.write_condition(expression)?;
        Ok(self)
    }

    /// Adds assignments, which all see the values from before.
    ///
    /// Errors: those of [`Self::expression`]; MariaDB and MySQL cannot exchange columns.
    pub fn assignments(mut self, set: &[(usize, Expression)]) -> Result<Self, String> {
        // MariaDB and MySQL assign one after the other: a column is assigned after those that are computed from it
        let mut rest: Vec<&(usize, Expression)> = set.iter().collect();
        let mut is_first = true;
        while !rest.is_empty() {
            let is_needed = |at: usize| {
                let (column, _) = rest[at];
                rest.iter().enumerate().any(|(other, (_, value))| other != at && value.uses_column(*column))
            };
            let next = match self.dialect {
                Dialect::PostgreSql | Dialect::Sqlite | Dialect::SqlServer | Dialect::Oracle => 0,
                Dialect::MySql => (0..rest.len()).find(|at| !is_needed(*at)).ok_or_else(|| {
                    format!("{} cannot compute columns from each other in one statement", self.dialect)
                })?,
            };
            let (column, value) = rest.remove(next);
            let SqlColumn { quoted, assigned_as, .. } = self.column(*column)?.clone();
            self.sql.push_str(if is_first { "" } else { ", " });
            is_first = false;
            self.sql.push_str(&format!("{quoted} = "));
            match assigned_as {
                Some(ty) => {
                    self.sql.push_str("CAST(");
                    self.write(value)?;
                    self.sql.push_str(&format!(" AS {ty})"));
                }
                None => self.write(value)?,
            }
        }
        Ok(self)
    }

    /// Ends the statement.
    pub fn finish(self) -> SqlStatement {
        SqlStatement { sql: self.sql, params: self.params }
    }

    fn parameter(&mut self, source: ParamSource, ty: FieldType) {
        self.sql.push_str(&self.dialect.parameter(self.params.len(), ty));
        self.params.push(source);
    }

    /// Writes a value. Where conditions are not values they become 1 or 0.
    fn write(&mut self, expression: &Expression) -> Result<(), String> {
        let is_condition = !matches!(
            expression,
            Expression::Column(_)
                | Expression::Parameter(..)
                | Expression::Constant(..)
                | Expression::Arithmetic(..)
        );
        if is_condition && !self.dialect.has_boolean_values() {
            self.sql.push_str("CASE WHEN ");
            self.write_condition(expression)?;
            self.sql.push_str(" THEN 1 ELSE 0 END");
            return Ok(());
        }
        match expression {
            Expression::Column(index) => {
                let column = self.column(*index)?.operand.clone();
                self.sql.push_str(&column);
            }
            Expression::Parameter(index, ty) => self.parameter(ParamSource::Parameter(*index, *ty), *ty),
            Expression::Constant(Value::Missing | Value::Null, _) => self.sql.push_str("NULL"),
            Expression::Constant(Value::Bool(b), _) => {
                let (yes, no) =
                    if self.dialect.has_boolean_values() { ("TRUE", "FALSE") } else { ("1", "0") };
                self.sql.push_str(if *b { yes } else { no });
            }
            Expression::Constant(value, ty) => {
                self.parameter(ParamSource::Constant(value.clone(), *ty), *ty);
            }
            Expression::Arithmetic(left, operator, right) => self.arithmetic(left, *operator, right)?,
            _ => self.write_condition(expression)?,
        }
        Ok(())
    }

    /// Writes what may stand behind WHERE.
    fn write_condition(&mut self, expression: &Expression) -> Result<(), String> {
        let has_values = self.dialect.has_boolean_values();
        match expression {
            Expression::Column(_)
            | Expression::Parameter(..)
            | Expression::Constant(..)
            | Expression::Arithmetic(..)
                if has_values =>
            {
                self.write(expression)?;
            }
            Expression::Constant(value, _) => {
                let holds = matches!(value, Value::Bool(true));
                self.sql.push_str(if holds { "(1 = 1)" } else { "(1 = 0)" });
            }
            Expression::Column(_) | Expression::Parameter(..) | Expression::Arithmetic(..) => {
                self.sql.push('(');
                self.write(expression)?;
                self.sql.push_str(" = 1)");
            }
            Expression::Compare(left, operator, right) => {
                let operator = match operator {
                    CompareOperator::Equal => " = ",
                    CompareOperator::NotEqual => " <> ",
                    CompareOperator::Less => " < ",
                    CompareOperator::LessOrEqual => " <= ",
                    CompareOperator::Greater => " > ",
                    CompareOperator::GreaterOrEqual => " >= ",
                };
                self.sql.push('(');
                self.write(left)?;
                self.sql.push_str(operator);
                self.write(right)?;
                self.sql.push(')');
            }
            Expression::And(parts) => {
                self.list(parts, " AND ", if has_values { "TRUE" } else { "(1 = 1)" })?
            }
            Expression::Or(parts) => {
                self.list(parts, " OR ", if has_values { "FALSE" } else { "(1 = 0)" })?
            }
            Expression::Not(inner) if !has_values => {
                self.sql.push_str("(CASE WHEN ");
                self.write_condition(inner)?;
                self.sql.push_str(" THEN 0 ELSE 1 END = 1)");
            }
            Expression::Not(inner) => {
                self.sql.push_str("(NOT coalesce(");
                self.write(inner)?;
                self.sql.push_str(", FALSE))");
            }
            Expression::IsNull(inner) => {
                self.sql.push('(');
                self.write(inner)?;
                self.sql.push_str(" IS NULL)");
            }
        }
        Ok(())
    }

    fn column(&self, index: usize) -> Result<&SqlColumn, String> {
        self.columns.get(index).ok_or_else(|| format!("the table has no column with the index {index}"))
    }

    fn list(&mut self, parts: &[Expression], between: &str, none: &str) -> Result<(), String> {
        if parts.is_empty() {
            self.sql.push_str(none);
            return Ok(());
        }
        self.sql.push('(');
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.sql.push_str(between);
            }
            self.write_condition(part)?;
        }
        self.sql.push(')');
        Ok(())
    }

    fn arithmetic(
        &mut self,
        left: &Expression,
        operator: ArithmeticOperator,
        right: &Expression,
    ) -> Result<(), String> {
        let is_integer = match (self.is_integer(left)?, self.is_integer(right)?) {
            (Some(left), Some(right)) => left && right,
            _ => return Err("arithmetics need numbers on both sides".into()),
        };
        use ArithmeticOperator::{Add, Divide, Multiply, Remainder, Subtract};
        if self.dialect == Dialect::Oracle && (operator == Remainder || (operator == Divide && is_integer)) {
            self.sql.push_str(if operator == Remainder { "mod(" } else { "trunc(" });
            self.write(left)?;
            self.sql.push_str(if operator == Remainder { ", nullif(" } else { " / nullif(" });
            self.write(right)?;
            self.sql.push_str(", 0))");
            return Ok(());
        }
        let truncate = match self.dialect {
            Dialect::PostgreSql => Some((" * trunc(", "")),
            Dialect::Sqlite => Some((" * cast(", " AS integer")),
            // the last 1 means that the fraction is cut off
            Dialect::SqlServer => Some((" * round(", ", 0, 1")),
            Dialect::MySql | Dialect::Oracle => None,
        };
        if operator == Remainder
            && !is_integer
            && let Some((truncate, end)) = truncate
        {
            // these have `%` for exact numbers only: a - b * trunc(a / b)
            self.sql.push('(');
            self.write(left)?;
            self.sql.push_str(" - ");
            self.write(right)?;
            self.sql.push_str(truncate);
            self.write(left)?;
            self.sql.push_str(" / nullif(");
            self.write(right)?;
            self.sql.push_str(&format!(", 0){end}))"));
            return Ok(());
        }
        self.sql.push('(');
        self.write(left)?;
        self.sql.push_str(match (operator, self.dialect) {
            (Add, _) => " + ",
            (Subtract, _) => " - ",
            (Multiply, _) => " * ",
            (Divide, Dialect::MySql) if is_integer => " DIV ",
            (Divide, _) => " / ",
            (Remainder, _) => " % ",
        });
        match operator {
            Divide | Remainder => {
                self.sql.push_str("nullif(");
                self.write(right)?;
                self.sql.push_str(", 0)");
            }
            Add | Subtract | Multiply => self.write(right)?,
        }
        self.sql.push(')');
        Ok(())
    }

    /// Returns true if an expression has an integer type; `None` if it is not a number.
    fn is_integer(&self, expression: &Expression) -> Result<Option<bool>, String> {
        let of_type = |ty: FieldType| match ty {
            FieldType::Int | FieldType::Long => Some(true),
            FieldType::Float | FieldType::Double => Some(false),
            _ => None,
        };
        Ok(match expression {
            Expression::Column(index) => of_type(self.column(*index)?.ty),
            Expression::Parameter(_, ty) | Expression::Constant(_, ty) => of_type(*ty),
            Expression::Arithmetic(left, _, right) => {
                match (self.is_integer(left)?, self.is_integer(right)?) {
                    (Some(left), Some(right)) => Some(left && right),
                    _ => None,
                }
            }
            _ => None,
        })
    }
}
