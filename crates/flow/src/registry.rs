//! Registry of everything that queries call by name. Built-in and user-defined extensions are registered
//! alike.

mod connection_settings;
mod left_out;
mod statements;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidemill_connect::Catalog;
use tidemill_lang::Span;
use tidemill_types::{FieldType, did_you_mean};

pub use crate::expr::{ArgumentType, BoundFunction, ColumnarValue, Function, FunctionContext};

use crate::columns::batch::EventKind;
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::compile::extensions_elsewhere::instead_of;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Expr, Node};
use crate::limits::PatternLimits;
use crate::models::Models;
use crate::window::WindowConstructor;

pub use connection_settings::ConnectionSettings;
pub(crate) use connection_settings::{left_open, resolve as resolve_connections};

/// Checks the arguments of a function and binds it. Errors: the arguments are invalid.
pub type FunctionFactory = dyn Fn(&[ArgumentType]) -> Result<BoundFunction, String> + Send + Sync;

/// Accumulator of an aggregate over the events of a window.
pub trait Aggregator: Send {
    /// Adds an event. Errors: the event cannot be processed.
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError>;
    /// Removes an event that was added.
    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError>;
    /// Removes all events.
    fn reset(&mut self);
    /// Returns the current value.
    fn value(&self) -> Value;
    /// Returns the equivalent built-in aggregate, if there is one; these are computed for many groups and
    /// events in one loop.
    fn builtin(&self) -> Option<BuiltinAggregate> {
        None
    }
    /// Returns the state for a checkpoint.
    fn save(&self) -> serde_json::Value;
    /// Restores a saved state. Errors: the state is not one of this aggregate.
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError>;
}

/// Aggregates with a vectorized implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinAggregate {
    /// Sum of whole numbers, a long.
    IntegerSum,
    /// Sum of numbers, a double.
    FloatSum,
    /// Mean of numbers, a double.
    Mean,
    /// Number of events, a long.
    Count,
    /// Least number.
    Min,
    /// Greatest number.
    Max,
}

/// Creates an accumulator in its initial state.
pub type AggregatorConstructor = Arc<dyn Fn() -> Box<dyn Aggregator> + Send + Sync>;

/// Checks the arguments of an aggregate and binds it. Errors: the arguments are invalid.
pub type AggregatorFactory =
    dyn Fn(&[ArgumentType]) -> Result<(AggregatorConstructor, FieldType), String> + Send + Sync;

/// Stream function: maps an event to any number of events with additional attributes.
pub trait StreamFunction: fmt::Debug + Send + Sync {
    /// Returns the values of the added attributes, once per output event. Errors: the event cannot be
    /// processed.
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError>;

    /// Returns whether each output event is a chunk of its own.
    fn emits_separate_chunks(&self) -> bool {
        false
    }

    /// Evaluates the function with access to the whole event; otherwise as [`StreamFunction::call`].
    fn call_on(&self, args: &[Value], _event: &EventRef<'_>) -> Result<Vec<Vec<Value>>, EvalError> {
        self.call(args)
    }

    /// Evaluates the function with access to the app; otherwise as [`StreamFunction::call_on`].
    fn call_in(
        &self,
        args: &[Value],
        event: &EventRef<'_>,
        _context: &dyn EvalContext,
    ) -> Result<Vec<Vec<Value>>, EvalError> {
        self.call_on(args, event)
    }

    /// Returns whether the function has side effects, so that it must not be called again for an event.
    fn has_side_effects(&self) -> bool {
        false
    }
}

/// A call of a stream function that looks at names: those of its arguments, or the attributes before it.
#[derive(Debug)]
pub struct CallSite<'a> {
    /// The arguments.
    pub args: &'a [ArgumentType],
    /// The names of those that are plain attributes.
    pub names: Vec<Option<&'a str>>,
    /// The attributes of the events, in the order of their columns.
    pub attributes: &'a [(String, FieldType)],
}

/// Checks a call of a stream function and binds it. Errors: the call is invalid.
pub type CallSiteFactory = dyn Fn(&CallSite<'_>) -> Result<BoundStreamFunction, String> + Send + Sync;

/// Input event of a stream function.
#[derive(Debug, Clone, Copy)]
pub struct EventRef<'a> {
    /// Columns of the batch that contains the event.
    pub columns: &'a [Column],
    /// Row of the event in the columns.
    pub row: usize,
    /// Timestamp, in milliseconds since 1970.
    pub time: i64,
}

/// Stream function bound to a call site, with name and type of each added attribute.
pub type BoundStreamFunction = (Arc<dyn StreamFunction>, Vec<(String, FieldType)>);

/// Checks the arguments of a stream function and binds it. Errors: the arguments are invalid.
pub type StreamFunctionFactory = dyn Fn(&[ArgumentType]) -> Result<BoundStreamFunction, String> + Send + Sync;

/// Input or output event of a stream processor.
#[derive(Debug, Clone)]
pub struct ProcessorEvent {
    /// Timestamp, in milliseconds since 1970.
    pub time: i64,
    /// Current or expired.
    pub kind: EventKind,
    /// Values of the attributes, followed by those that the processor adds.
    pub values: Vec<Value>,
}

/// Stream processor: a stateful operator that may drop events, or buffer them and emit them later.
///
/// Events emitted for one input chunk, or by one timer, form a chunk.
pub trait StreamProcessor: Send {
    /// Called when the app starts.
    fn start(&mut self, _now: i64) {}
    /// Processes an event; `args` are the values of the arguments. Errors: the event cannot be processed.
    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError>;
    /// Processes an event with the models that the queries of the app share. Errors: the event cannot be processed.
    fn process_with_models(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        _models: Option<&Models>,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        self.process(event, args, now, out)
    }
    /// Returns the time at which to call [`Self::on_timer`], if any.
    fn due(&self) -> Option<i64> {
        None
    }
    /// Called when that time has been reached; `_now` may be later.
    fn on_timer(&mut self, _now: i64, _out: &mut Vec<ProcessorEvent>) {}
    /// Returns the state for a checkpoint.
    fn save(&self) -> serde_json::Value;
    /// Restores a saved state. Errors: the state is not one of this processor.
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError>;
}

/// Creates a stream processor in its initial state.
pub type StreamProcessorConstructor = Arc<dyn Fn() -> Box<dyn StreamProcessor> + Send + Sync>;

/// Constructor of a stream processor, with name and type of each added attribute.
pub type BoundStreamProcessor = (StreamProcessorConstructor, Vec<(String, FieldType)>);

/// Checks the arguments of a stream processor and binds it. Errors: the arguments are invalid.
pub type StreamProcessorFactory =
    dyn Fn(&[ArgumentType]) -> Result<BoundStreamProcessor, String> + Send + Sync;

/// Checks the parameters and the input of a window and binds it. Errors: they are invalid.
pub type WindowFactory =
    dyn Fn(&[Parameter], &WindowInput<'_>) -> Result<WindowConstructor, String> + Send + Sync;

/// Functions, aggregates, stream functions, stream processors and windows by name. Names are case-sensitive;
/// extensions have a namespace.
#[derive(Default, Clone)]
pub struct Registry {
    functions: BTreeMap<String, Arc<FunctionFactory>>,
    aggregators: BTreeMap<String, Arc<AggregatorFactory>>,
    stream_functions: BTreeMap<String, Arc<StreamFunctionFactory>>,
    call_site_functions: BTreeMap<String, Arc<CallSiteFactory>>,
    stream_processors: BTreeMap<String, Arc<StreamProcessorFactory>>,
    windows: BTreeMap<String, Arc<WindowFactory>>,
    limits: PatternLimits,
    replayable_only: bool,
    takes_open_values: bool,
    connectors: Connectors,
    own_stores: Arc<Catalog>,
    model_files: BTreeMap<String, u64>,
    settings: Arc<ConnectionSettings>,
}

/// Handling of `@source` and `@sink` with types that this crate does not implement.
#[derive(Debug, Default, Clone)]
pub enum Connectors {
    /// They are refused.
    #[default]
    Refused,
    /// They must be in this catalog.
    Catalog(Arc<Catalog>),
    /// All connections to the outside are left out, files included. The mappers of this catalog write the lines of
    /// logs.
    Ignored(Arc<Catalog>),
}

impl Connectors {
    /// Returns the catalog with the mappers, if there is one.
    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        match self {
            Self::Refused => None,
            Self::Catalog(catalog) | Self::Ignored(catalog) => Some(catalog),
        }
    }
}

impl Registry {
    /// Sets what becomes of connections to the outside. The settings that they name are set before.
    pub fn set_connectors(&mut self, connectors: Connectors) {
        match &connectors {
            Connectors::Ignored(_) => left_out::register(self),
            Connectors::Catalog(catalog) => {
                let settings = self.settings.clone();
                statements::register(self, catalog, &settings, self.takes_open_values);
            }
            Connectors::Refused => {}
        }
        self.connectors = connectors;
    }

    /// Sets whether apps compile in which values are open: data sources and settings that `app.toml` does not
    /// have, variables without values, invalid addresses. Connections that need them are left out, with a
    /// warning. Such an app is for checks: it must not run. Set before [`Self::set_connectors`].
    pub fn set_takes_open_values(&mut self, takes: bool) {
        self.takes_open_values = takes;
    }

    /// Returns the flag set by [`Self::set_takes_open_values`].
    pub fn takes_open_values(&self) -> bool {
        self.takes_open_values
    }

    /// Returns what becomes of connections to the outside.
    pub fn connectors(&self) -> &Connectors {
        &self.connectors
    }

    /// Sets the stores that the program itself is: they are there whatever becomes of connections, and the program opens
    /// them.
    pub fn set_own_stores(&mut self, stores: Arc<Catalog>) {
        self.own_stores = stores;
    }

    /// Returns the stores that the program itself is.
    pub fn own_stores(&self) -> &Arc<Catalog> {
        &self.own_stores
    }

    /// Sets what `ref` and `datasource` of connections name.
    pub fn set_connection_settings(&mut self, settings: ConnectionSettings) {
        self.settings = Arc::new(settings);
    }

    /// Returns what `ref` and `datasource` of connections name.
    pub fn connection_settings(&self) -> &ConnectionSettings {
        &self.settings
    }

    /// Sets whether apps compiled from now on may process events more than once. Functions whose results
    /// change or that have side effects are then rejected.
    pub(crate) fn set_replayable_only(&mut self, repeating: bool) {
        self.replayable_only = repeating;
    }

    /// Returns the flag set by [`Self::set_replayable_only`].
    pub(crate) fn is_replayable_only(&self) -> bool {
        self.replayable_only
    }

    /// Returns the limits on the state of one pattern or sequence.
    pub fn limits(&self) -> PatternLimits {
        self.limits
    }

    /// Sets the limits on the state of one pattern or sequence, for apps compiled from now on.
    pub fn set_limits(&mut self, limits: PatternLimits) {
        self.limits = limits;
    }

    /// Registers a function, `name` or `namespace:name`, replacing one of that name.
    pub fn function(
        &mut self,
        name: &str,
        build: impl Fn(&[ArgumentType]) -> Result<BoundFunction, String> + Send + Sync + 'static,
    ) {
        self.functions.insert(name.to_owned(), Arc::new(build));
    }

    /// Registers an aggregate, `name` or `namespace:name`, replacing one of that name.
    pub fn aggregator(
        &mut self,
        name: &str,
        build: impl Fn(&[ArgumentType]) -> Result<(AggregatorConstructor, FieldType), String>
        + Send
        + Sync
        + 'static,
    ) {
        self.aggregators.insert(name.to_owned(), Arc::new(build));
    }

    /// Registers a stream function, `name` or `namespace:name`, replacing one of that name.
    pub fn stream_function(
        &mut self,
        name: &str,
        build: impl Fn(&[ArgumentType]) -> Result<BoundStreamFunction, String> + Send + Sync + 'static,
    ) {
        self.stream_functions.insert(name.to_owned(), Arc::new(build));
    }

    /// Registers a stream function that looks at names, replacing one of that name.
    pub(crate) fn call_site_function(
        &mut self,
        name: &str,
        build: impl Fn(&CallSite<'_>) -> Result<BoundStreamFunction, String> + Send + Sync + 'static,
    ) {
        self.call_site_functions.insert(name.to_owned(), Arc::new(build));
    }

    /// Returns the stream function `name` that looks at names.
    pub(crate) fn find_call_site_function(&self, name: &str) -> Option<&CallSiteFactory> {
        self.call_site_functions.get(name).map(Arc::as_ref)
    }

    /// Returns the paths of the files of models with a hash of what they have.
    pub fn model_files(&self) -> &BTreeMap<String, u64> {
        &self.model_files
    }

    pub(crate) fn note_model_files(&mut self, files: BTreeMap<String, u64>) {
        self.model_files = files;
    }

    /// Registers a stream processor, `name` or `namespace:name`, replacing one of that name.
    pub fn stream_processor(
        &mut self,
        name: &str,
        build: impl Fn(&[ArgumentType]) -> Result<BoundStreamProcessor, String> + Send + Sync + 'static,
    ) {
        self.stream_processors.insert(name.to_owned(), Arc::new(build));
    }

    /// Registers a window, `name` or `namespace:name`, replacing one of that name. It can be used in queries,
    /// joins and window definitions; see [`Window`](crate::window::Window).
    pub fn window(
        &mut self,
        name: &str,
        build: impl Fn(&[Parameter], &WindowInput<'_>) -> Result<WindowConstructor, String>
        + Send
        + Sync
        + 'static,
    ) {
        self.windows.insert(name.to_owned(), Arc::new(build));
    }

    /// Returns the window `name`. Errors: it is unknown; suggests a similar name.
    pub fn find_window(&self, name: &str) -> Result<&WindowFactory, String> {
        self.windows.get(name).map(Arc::as_ref).ok_or_else(|| {
            if let Some(instead) = instead_of(name) {
                return format!("there is no window `{name}` here: {instead}");
            }
            let hint = did_you_mean(name, self.windows.keys().map(String::as_str));
            format!("there is no window `{name}`{hint}")
        })
    }

    /// Returns the stream processor `name`.
    pub fn find_stream_processor(&self, name: &str) -> Option<&StreamProcessorFactory> {
        self.stream_processors.get(name).map(Arc::as_ref)
    }

    /// Returns the stream function `name`. Errors: it is unknown; suggests a similar name.
    pub fn find_stream_function(&self, name: &str) -> Result<&StreamFunctionFactory, String> {
        self.stream_functions.get(name).map(Arc::as_ref).ok_or_else(|| {
            if self.call_site_functions.contains_key(name) {
                return format!(
                    "`{name}` is not allowed here: let an earlier query apply it and insert into a stream, then read \
                     that stream"
                );
            }
            if self.stream_processors.contains_key(name) {
                return format!(
                    "`{name}` buffers events and is not allowed here: let an earlier query apply it and insert into \
                     a stream, then read that stream"
                );
            }
            if let Some(instead) = instead_of(name) {
                return format!("there is no stream function `{name}` here: {instead}");
            }
            let known = self.stream_functions.keys().chain(self.stream_processors.keys());
            let hint = did_you_mean(name, known.map(String::as_str));
            format!("there is no stream function `{name}`{hint}")
        })
    }

    /// Returns the function `name`.
    pub fn find_function(&self, name: &str) -> Option<&FunctionFactory> {
        self.functions.get(name).map(Arc::as_ref)
    }

    /// Returns the aggregate `name`.
    pub fn find_aggregator(&self, name: &str) -> Option<&AggregatorFactory> {
        self.aggregators.get(name).map(Arc::as_ref)
    }

    /// Returns a suggestion for an unknown function or aggregate.
    pub fn suggestion(&self, name: &str) -> String {
        if let Some(instead) = instead_of(name) {
            return format!(" here: {instead}");
        }
        let names = self.functions.keys().chain(self.aggregators.keys()).map(String::as_str);
        did_you_mean(name, names)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

/// A parameter of a window.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Expression evaluated on a row, which is slot 0.
    pub expr: Expr,
    /// Attribute name if the parameter is a plain attribute.
    pub attribute: Option<String>,
    /// Source text, for errors.
    pub text: String,
}

impl Parameter {
    fn wrong<T>(&self, what: &str, wanted: &str) -> Result<T, String> {
        Err(format!("{what} must be {wanted}, found `{}`", self.text))
    }

    /// Returns a constant int or long of at least 0: a time span in milliseconds.
    pub fn span(&self, what: &str) -> Result<i64, String> {
        match self.expr.as_const().and_then(Value::as_i64) {
            Some(span) if span >= 0 => Ok(span),
            _ => self.wrong(what, "a constant time or number of milliseconds, 0 or more"),
        }
    }

    /// Returns a span as [`Self::span`] does; `None` for 0 and -1. Errors: other negative values.
    pub fn span_or_none(&self, what: &str) -> Result<Option<i64>, String> {
        match self.expr.as_const().and_then(Value::as_i64) {
            Some(0 | -1) => Ok(None),
            Some(span) if span > 0 => Ok(Some(span)),
            _ => self.wrong(what, "a constant time or number of milliseconds above 0, or -1 for none"),
        }
    }

    /// Returns a span greater than 0, for spans that repeat.
    pub fn period(&self, what: &str) -> Result<i64, String> {
        match self.span(what)? {
            0 => self.wrong(what, "a constant time or number of milliseconds above 0"),
            span => Ok(span),
        }
    }

    /// Returns a constant int of at least 0.
    pub fn count(&self, what: &str) -> Result<u64, String> {
        match self.expr.as_const() {
            Some(Value::Int(n)) if *n >= 0 => Ok(u64::from(n.unsigned_abs())),
            _ => self.wrong(what, "a constant int, 0 or more"),
        }
    }

    /// Returns a constant int or long as an instant.
    pub fn instant(&self, what: &str) -> Result<i64, String> {
        match self.expr.as_const().and_then(Value::as_i64) {
            Some(instant) => Ok(instant),
            None => self.wrong(what, "a constant number of milliseconds"),
        }
    }

    /// Returns a constant bool.
    pub fn flag(&self, what: &str) -> Result<bool, String> {
        match self.expr.as_const() {
            Some(Value::Bool(flag)) => Ok(*flag),
            _ => self.wrong(what, "a constant, true or false"),
        }
    }

    /// Returns a constant double from 0 to 1.
    pub fn share(&self, what: &str) -> Result<f64, String> {
        match self.expr.as_const() {
            Some(Value::Double(share)) if (0.0..=1.0).contains(share) => Ok(*share),
            _ => self.wrong(what, "a constant double from 0.0 to 1.0"),
        }
    }

    /// Returns a constant string.
    pub fn constant_text(&self, what: &str) -> Result<&str, String> {
        match self.expr.as_const().and_then(Value::as_str) {
            Some(text) => Ok(text),
            None => self.wrong(what, "a constant string"),
        }
    }

    /// Returns the column of an attribute that has one of these types.
    pub fn column(&self, what: &str, types: &[FieldType]) -> Result<usize, String> {
        match self.expr.node {
            Node::Column { slot: 0, column } if types.contains(&self.expr.ty) => Ok(column),
            _ => {
                let names: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
                self.wrong(what, &format!("an attribute of type {}", names.join(" or ")))
            }
        }
    }
}

/// An attribute of a window's input rows.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// Attribute name.
    pub name: String,
    /// Attribute type.
    pub ty: FieldType,
    /// Column index in the [`RowStore`](crate::store::RowStore).
    pub column: usize,
}

/// Description of a window's input, for the construction of the window.
#[derive(Clone, Copy)]
pub struct WindowInput<'a> {
    /// Names that may qualify an attribute: the stream's name and its alias.
    pub names: &'a [&'a str],
    /// Attributes in order.
    pub attributes: &'a [Attribute],
    /// Columns that the query selects as plain attributes; `None` if it selects all.
    pub selected: Option<&'a [usize]>,
    /// Functions and aggregates that conditions may call.
    pub registry: &'a Registry,
}

/// Aggregate call in an expression; computed separately and read as a column.
#[derive(Clone)]
pub struct AggregateCall {
    /// Name of the aggregate: `name` or `namespace:name`.
    pub name: String,
    /// Creates the accumulator.
    pub make: AggregatorConstructor,
    /// Arguments, evaluated on each input event.
    pub args: Vec<Expr>,
    /// Type of the value.
    pub ty: FieldType,
    /// Source range of the call.
    pub span: Span,
}
