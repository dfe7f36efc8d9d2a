//! Stream functions that send statements to databases: `#rdbms:query(…)` and `#rdbms:cud(…)`.

use std::sync::Arc;

use tidemill_connect::{Catalog, DataSourceContext, TypedValue, WritePosition};
use tidemill_types::{FieldType, Timestamp, Value as ScalarValue, did_you_mean};

use super::{ConnectionSettings, EventRef, Registry, StreamFunction};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{ArgumentType, EvalContext};
use crate::statement_calls::{DataSourceRef, not_open};

/// Registers the functions for a program with databases.
pub(crate) fn register(
    registry: &mut Registry,
    catalog: &Arc<Catalog>,
    settings: &Arc<ConnectionSettings>,
    takes_open_values: bool,
) {
    if !catalog.has_data_sources() {
        return;
    }
    let (own, sources) = (settings.clone(), catalog.clone());
    registry.stream_function("rdbms:query", move |args| {
        let usage = "rdbms:query(datasource, 'name type, …', statement, parameter, …)";
        let [_, list, statement, parameters @ ..] = args else { return Err(format!("expected {usage}")) };
        let target = data_source(args, &own, &sources, usage, takes_open_values)?;
        let added = attribute_list(list.constant.as_ref())?;
        if added.iter().any(|(_, ty)| *ty == FieldType::Object) {
            return Err("rdbms:query: an attribute cannot be an object: read JSON as a string".into());
        }
        check_statement(statement, usage)?;
        let types = parameter_types(parameters)?;
        Ok((Arc::new(DatabaseQuery { target, added: added.clone(), types }), added))
    });
    let (own, sources) = (settings.clone(), catalog.clone());
    registry.stream_function("rdbms:cud", move |args| {
        let usage = "rdbms:cud(datasource, statement, parameter, …)";
        let [_, statement, parameters @ ..] = args else { return Err(format!("expected {usage}")) };
        let target = data_source(args, &own, &sources, usage, takes_open_values)?;
        check_statement(statement, usage)?;
        let types = parameter_types(parameters)?;
        Ok((Arc::new(DatabaseWrite { target, types }), vec![("numRecords".to_owned(), FieldType::Int)]))
    });
}

fn data_source(
    args: &[ArgumentType],
    settings: &ConnectionSettings,
    catalog: &Catalog,
    usage: &str,
    takes_open_values: bool,
) -> Result<DataSourceRef, String> {
    let name = args.first().and_then(|name| name.constant.as_ref()).and_then(Value::as_str);
    let name =
        name.ok_or_else(|| format!("expected {usage} with the name of a data source as a constant"))?;
    let Some(options) = settings.datasources.get(name) else {
        if takes_open_values {
            // nothing opens it: the app does not run
            return Ok(DataSourceRef { name: name.to_owned(), options: vec![] });
        }
        let hint = did_you_mean(name, settings.datasources.keys().map(String::as_str));
        return Err(format!(
            "app.toml has no datasource `{name}`{hint}: write `[datasources.{name}]` with url, username, password there"
        ));
    };
    let options: Vec<_> = options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let context = DataSourceContext { name: name.to_owned(), writer: String::new(), monitor: Arc::default() };
    catalog.create_data_source(&options, &context).map_err(|e| e.to_string())?;
    Ok(DataSourceRef { name: name.to_owned(), options })
}

fn check_statement(statement: &ArgumentType, usage: &str) -> Result<(), String> {
    match statement.ty {
        FieldType::String => Ok(()),
        other => Err(format!("expected {usage}; the statement has the type {other}")),
    }
}

fn parameter_types(parameters: &[ArgumentType]) -> Result<Vec<FieldType>, String> {
    if parameters.iter().any(|parameter| parameter.ty == FieldType::Object) {
        return Err("a statement has no parameter of the type object: convert it to a string".into());
    }
    Ok(parameters.iter().map(|parameter| parameter.ty).collect())
}

/// Returns the attributes of a list such as `name string, age int`.
pub(crate) fn attribute_list(list: Option<&Value>) -> Result<Vec<(String, FieldType)>, String> {
    let list = list
        .and_then(Value::as_str)
        .ok_or("rdbms:query: the second argument must list the attributes: 'name string, age int'")?;
    let attribute = |text: &str| {
        let (name, ty) = text.trim().split_once(char::is_whitespace)?;
        Some((name.to_owned(), FieldType::parse(&ty.trim().to_ascii_lowercase())?))
    };
    let added: Option<Vec<(String, FieldType)>> = list.split(',').map(attribute).collect();
    added.ok_or_else(|| format!("rdbms:query: `{list}` must be a list such as 'name string, age int'"))
}

/// `#rdbms:query(…)`: an event for each row.
#[derive(Debug)]
struct DatabaseQuery {
    target: DataSourceRef,
    added: Vec<(String, FieldType)>,
    types: Vec<FieldType>,
}

impl StreamFunction for DatabaseQuery {
    fn call(&self, _: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        Err(not_open(&self.target.name))
    }

    fn call_in(
        &self,
        args: &[Value],
        _event: &EventRef<'_>,
        context: &dyn EvalContext,
    ) -> Result<Vec<Vec<Value>>, EvalError> {
        let calls = context.statements().ok_or_else(|| not_open(&self.target.name))?;
        let statement = statement_of(args.get(2))?;
        let given = typed(args.get(3..).unwrap_or_default(), &self.types);
        let columns: Vec<FieldType> = self.added.iter().map(|(_, ty)| *ty).collect();
        let rows = calls.with(&self.target, |source, _| source.query(statement, &given, &columns))?;
        let value = |(cell, ty): (ScalarValue<'static>, &FieldType)| from_scalar(cell, *ty);
        Ok(rows.into_iter().map(|row| row.into_iter().zip(&columns).map(value).collect()).collect())
    }

    fn has_side_effects(&self) -> bool {
        true
    }
}

/// `#rdbms:cud(…)`: writes, and adds the number of rows.
#[derive(Debug)]
struct DatabaseWrite {
    target: DataSourceRef,
    types: Vec<FieldType>,
}

impl StreamFunction for DatabaseWrite {
    fn call(&self, _: &[Value]) -> Result<Vec<Vec<Value>>, EvalError> {
        Err(not_open(&self.target.name))
    }

    fn call_in(
        &self,
        args: &[Value],
        _event: &EventRef<'_>,
        context: &dyn EvalContext,
    ) -> Result<Vec<Vec<Value>>, EvalError> {
        let calls = context.statements().ok_or_else(|| not_open(&self.target.name))?;
        let statement = statement_of(args.get(1))?;
        let given = typed(args.get(2..).unwrap_or_default(), &self.types);
        let rows = calls.with(&self.target, |source, record| {
            let at = record.as_mut().map(|(partition, offset, call)| {
                *call += 1;
                WritePosition { partition: *partition, offset: *offset, call: *call - 1 }
            });
            source.execute(statement, &given, at)
        })?;
        let rows = rows.map_or(Value::Null, |rows| Value::Int(i32::try_from(rows).unwrap_or(i32::MAX)));
        Ok(vec![vec![rows]])
    }

    fn has_side_effects(&self) -> bool {
        true
    }
}

fn statement_of(value: Option<&Value>) -> Result<&str, EvalError> {
    value.and_then(Value::as_str).ok_or_else(|| EvalError::null("the statement"))
}

fn typed(values: &[Value], types: &[FieldType]) -> Vec<TypedValue> {
    values.iter().zip(types).map(|(value, ty)| (*ty, to_scalar(value, *ty))).collect()
}

fn to_scalar(value: &Value, ty: FieldType) -> ScalarValue<'static> {
    match value {
        Value::Null => ScalarValue::Missing,
        Value::Bool(b) => ScalarValue::Bool(*b),
        Value::Int(n) => ScalarValue::Int(i64::from(*n)),
        Value::Long(n) if ty == FieldType::Time => ScalarValue::Time(Timestamp(n.saturating_mul(1000))),
        Value::Long(n) => ScalarValue::Int(*n),
        Value::Float(x) => ScalarValue::Float(f64::from(*x)),
        Value::Double(x) => ScalarValue::Float(*x),
        Value::Str(text) => ScalarValue::Str(text.to_string().into()),
        // refused by the compiler
        Value::Object(_) => ScalarValue::Missing,
    }
}

fn from_scalar(value: ScalarValue<'static>, ty: FieldType) -> Value {
    match (value, ty) {
        (ScalarValue::Bool(b), _) => Value::Bool(b),
        (ScalarValue::Int(n), FieldType::Int) => i32::try_from(n).map_or(Value::Null, Value::Int),
        (ScalarValue::Int(n), FieldType::Float) => Value::Float(n as f32),
        (ScalarValue::Int(n), FieldType::Double) => Value::Double(n as f64),
        (ScalarValue::Int(n), _) => Value::Long(n),
        (ScalarValue::Float(x), FieldType::Float) => Value::Float(x as f32),
        (ScalarValue::Float(x), _) => Value::Double(x),
        (ScalarValue::Time(time), _) => Value::Long(time.0.div_euclid(1000)),
        (ScalarValue::Str(text), _) => Value::Str(text.as_ref().into()),
        (ScalarValue::Missing | ScalarValue::Null | ScalarValue::Bson(_), _) => Value::Null,
    }
}
