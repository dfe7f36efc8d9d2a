//! Expressions and their SQL: `tests/cases/expressions.txt`.
//!
//! A case is an expression in prefix form, `----`, and its SQL with parameters for each dialect. `set` lists assignments.
//! The table has the columns of [`columns`]. `UPDATE_CASES=1 cargo test -p tidemill-relational` rewrites the
//! results; review the difference.

use tidemill_relational::{
    ArithmeticOperator, CompareOperator, Dialect, ExistingColumn, Expression, SqlColumn, SqlWriter,
};
use tidemill_types::{FieldType, Value};

/// Names, declared types, and base types in PostgreSQL and in the others.
const COLUMNS: [(&str, FieldType, &str, &str); 7] = [
    ("symbol", FieldType::String, "varchar", "varchar"),
    ("price", FieldType::Double, "float8", "double"),
    ("volume", FieldType::Long, "int8", "bigint"),
    ("open", FieldType::Bool, "bool", "tinyint"),
    ("id", FieldType::String, "uuid", "uuid"),
    ("a \"b\" `c`", FieldType::Int, "int4", "int"),
    ("amount", FieldType::Double, "numeric", "decimal"),
];

pub fn columns(dialect: Dialect) -> Vec<SqlColumn> {
    let column = |(name, ty, postgres, mariadb): &(&str, FieldType, &str, &str)| {
        let base = if dialect == Dialect::PostgreSql { postgres } else { mariadb };
        let column = ExistingColumn {
            name: (*name).into(),
            sql_type: (*base).into(),
            base_type: (*base).into(),
            must_have_value: false,
            is_generated: false,
        };
        SqlColumn::new(dialect, &column, *ty)
    };
    COLUMNS.iter().map(column).collect()
}

use super::check_cases;

#[test]
fn expressions() {
    check_cases("expressions.txt", |head| {
        Dialect::ALL.into_iter().map(|dialect| format!("{}\n", render(dialect, head))).collect()
    });
}

fn render(dialect: Dialect, text: &str) -> String {
    let columns = columns(dialect);
    let writer = SqlWriter::new(dialect, &columns);
    let mut tokens = tokens(text);
    let statement = match tokens.first().map(String::as_str) {
        Some("set") => {
            tokens.remove(0);
            let mut set = vec![];
            let mut at = 0;
            while at < tokens.len() {
                let column = column(&tokens[at]);
                at += 1;
                set.push((column, parse(&tokens, &mut at)));
            }
            writer.assignments(&set)
        }
        _ => writer.condition(&parse(&tokens, &mut 0)),
    };
    match statement.map(SqlWriter::finish) {
        Err(e) => format!("error: {e}"),
        Ok(statement) => {
            let params: Vec<String> = statement.describe_params();
            match params.is_empty() {
                true => statement.sql,
                false => format!("{} -- {}", statement.sql, params.join(", ")),
            }
        }
    }
}

pub fn tokens(text: &str) -> Vec<String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

fn column(name: &str) -> usize {
    COLUMNS.iter().position(|(known, ..)| known.split(' ').next() == Some(name)).unwrap_or(99)
}

/// Parses `(operator operand …)`, a column, `?0:type`, a number, `'text'`, `true`, `null`.
pub fn parse(tokens: &[String], at: &mut usize) -> Expression {
    let token = tokens[*at].as_str();
    *at += 1;
    if token != "(" {
        return atom(token);
    }
    let operator = tokens[*at].clone();
    *at += 1;
    let mut operands = vec![];
    while tokens[*at] != ")" {
        operands.push(parse(tokens, at));
    }
    *at += 1;
    let first = || Box::new(operands[0].clone());
    let second = || Box::new(operands[1].clone());
    let compare = |operator| Expression::Compare(first(), operator, second());
    let arithmetic = |operator| Expression::Arithmetic(first(), operator, second());
    match operator.as_str() {
        "and" => Expression::And(operands.clone()),
        "or" => Expression::Or(operands.clone()),
        "not" => Expression::Not(first()),
        "isnull" => Expression::IsNull(first()),
        "=" => compare(CompareOperator::Equal),
        "!=" => compare(CompareOperator::NotEqual),
        "<" => compare(CompareOperator::Less),
        "<=" => compare(CompareOperator::LessOrEqual),
        ">" => compare(CompareOperator::Greater),
        ">=" => compare(CompareOperator::GreaterOrEqual),
        "+" => arithmetic(ArithmeticOperator::Add),
        "-" => arithmetic(ArithmeticOperator::Subtract),
        "*" => arithmetic(ArithmeticOperator::Multiply),
        "/" => arithmetic(ArithmeticOperator::Divide),
        "%" => arithmetic(ArithmeticOperator::Remainder),
        other => panic!("unknown operator {other}"),
    }
}

fn atom(token: &str) -> Expression {
    if let Some((index, ty)) = token.strip_prefix('?').and_then(|rest| rest.split_once(':')) {
        return Expression::Parameter(index.parse().unwrap(), FieldType::parse(ty).unwrap());
    }
    if let Some(text) = token.strip_prefix('\'') {
        let text = text.trim_end_matches('\'').to_owned();
        return Expression::Constant(Value::Str(text.into()), FieldType::String);
    }
    match token {
        "true" | "false" => Expression::Constant(Value::Bool(token == "true"), FieldType::Bool),
        "null" => Expression::Constant(Value::Missing, FieldType::Int),
        _ => match (token.parse::<i64>(), token.parse::<f64>()) {
            (Ok(n), _) => Expression::Constant(Value::Int(n), FieldType::Int),
            (_, Ok(x)) => Expression::Constant(Value::Float(x), FieldType::Double),
            _ => Expression::Column(column(token)),
        },
    }
}
