//! Statements that apps send to databases: `#rdbms:query(…)` and `#rdbms:cud(…)`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_connect::{Catalog, DataSource, DataSourceContext, StoreMonitor, TypedValue, WritePosition};
use tidemill_types::{Error, FieldType, Offset, PartitionId, Timestamp, Value as ScalarValue, did_you_mean};

use crate::catalog::Attributes;
use crate::eval_error::EvalError;
use crate::expr::{ArgumentType, EvalContext};
use crate::functions::json_text::{from_json, to_json};
use crate::registry::{ConnectionSettings, EventRef, Registry, StreamFunction};
use crate::value::Value;

/// Data sources of a running app, opened when a query first uses them.
#[derive(Default)]
pub struct StatementCalls(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    /// Where the app runs; without it every statement fails.
    opened: Option<Opened>,
    sources: BTreeMap<String, Box<dyn DataSource>>,
    /// The record that is being processed, and the number of statements that wrote.
    record: Option<(PartitionId, Offset, u32)>,
}

struct Opened {
    app: String,
    catalog: Arc<Catalog>,
    monitor: Arc<StoreMonitor>,
}

impl StatementCalls {
    /// Lets statements go to databases; `app` is the name under which these know the app.
    pub(crate) fn open(&mut self, app: &str, catalog: &Arc<Catalog>, monitor: &Arc<StoreMonitor>) {
        let (app, catalog, monitor) = (app.to_owned(), catalog.clone(), monitor.clone());
        self.0.get_mut().opened = Some(Opened { app, catalog, monitor });
    }

    /// Says which record the next statements belong to.
    pub(crate) fn set_record(&mut self, partition: PartitionId, offset: Offset) {
        self.0.get_mut().record = Some((partition, offset, 0));
    }

    fn with<T>(
        &self,
        target: &DataSourceRef,
        work: impl FnOnce(&mut dyn DataSource, &mut Option<(PartitionId, Offset, u32)>) -> Result<T, Error>,
    ) -> Result<T, EvalError> {
        let Calls { opened, sources, record } = &mut *self.0.lock();
        let name = &target.name;
        if !sources.contains_key(name) {
            let Some(Opened { app, catalog, monitor }) = opened else { return Err(not_open(name)) };
            let context =
                DataSourceContext { name: name.clone(), app: app.clone(), monitor: monitor.clone() };
            let source = catalog.create_data_source(&target.options, &context);
            let source = source.map_err(|e| EvalError::request(e.to_string()))?;
            sources.insert(name.clone(), source);
        }
        let source = sources.get_mut(name).ok_or_else(|| not_open(name))?;
        Ok(work(source.as_mut(), record)?)
    }
}

fn not_open(name: &str) -> EvalError {
    EvalError::request(format!("the data source `{name}` is only asked where the app runs"))
}

/// Data source as the settings describe it.
#[derive(Clone)]
struct DataSourceRef {
    name: String,
    options: Vec<(String, String)>,
}

impl std::fmt::Debug for DataSourceRef {
    /// Leaves the options out, which have a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// Registers the functions for a program with databases.
pub(crate) fn register(registry: &mut Registry, catalog: &Arc<Catalog>, settings: &Arc<ConnectionSettings>) {
    if !catalog.has_data_sources() {
        return;
    }
    let (own, sources) = (settings.clone(), catalog.clone());
    registry.stream_function("rdbms:query", move |args| {
        let usage = "rdbms:query(datasource, 'name type, …', statement, parameter, …)";
        let [_, list, statement, parameters @ ..] = args else { return Err(format!("expected {usage}")) };
        let target = data_source(args, &own, &sources, usage)?;
        let added = attribute_list(list.constant.as_ref())?;
        check_statement(statement, usage)?;
        let types = parameter_types(parameters)?;
        Ok((Arc::new(DatabaseQuery { target, added: added.clone(), types }), added))
    });
    let (own, sources) = (settings.clone(), catalog.clone());
    registry.stream_function("rdbms:cud", move |args| {
        let usage = "rdbms:cud(datasource, statement, parameter, …)";
        let [_, statement, parameters @ ..] = args else { return Err(format!("expected {usage}")) };
        let target = data_source(args, &own, &sources, usage)?;
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
) -> Result<DataSourceRef, String> {
    let name = args.first().and_then(|name| name.constant.as_ref()).and_then(Value::as_str);
    let name =
        name.ok_or_else(|| format!("expected {usage} with the name of a data source as a constant"))?;
    let Some(options) = settings.datasources.get(name) else {
        let hint = did_you_mean(name, settings.datasources.keys().map(String::as_str));
        return Err(format!(
            "app.toml has no datasource `{name}`{hint}: write `[datasources.{name}]` with url, username, password there"
        ));
    };
    let options: Vec<_> = options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let context = DataSourceContext { name: name.to_owned(), app: String::new(), monitor: Arc::default() };
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
    Ok(parameters.iter().map(|parameter| parameter.ty).collect())
}

/// Returns the attributes of a list such as `name string, age int`.
pub(crate) fn attribute_list(list: Option<&Value>) -> Result<Attributes, String> {
    let list = list
        .and_then(Value::as_str)
        .ok_or("rdbms:query: the second argument must list the attributes: 'name string, age int'")?;
    let attribute = |text: &str| {
        let (name, ty) = text.trim().split_once(char::is_whitespace)?;
        Some((name.to_owned(), FieldType::parse(&ty.trim().to_ascii_lowercase())?))
    };
    let added: Option<Attributes> = list.split(',').map(attribute).collect();
    added.ok_or_else(|| format!("rdbms:query: `{list}` must be a list such as 'name string, age int'"))
}

/// `#rdbms:query(…)`: an event for each row.
#[derive(Debug)]
struct DatabaseQuery {
    target: DataSourceRef,
    added: Attributes,
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
        other => match other.as_str() {
            Some(text) => ScalarValue::Str(text.to_owned().into()),
            None => ScalarValue::Str(to_json(other).to_string().into()),
        },
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
        (ScalarValue::Str(text), FieldType::Object) => {
            serde_json::from_str(&text).map_or(Value::Null, |json| from_json(&json))
        }
        (ScalarValue::Str(text), _) => Value::Str(text.as_ref().into()),
        (ScalarValue::Missing | ScalarValue::Null | ScalarValue::Bson(_), _) => Value::Null,
    }
}
