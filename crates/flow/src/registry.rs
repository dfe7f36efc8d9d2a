//! Registry of everything that queries call by name. Built-in and user-defined extensions are registered
//! alike.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidemill_types::{FieldType, did_you_mean};

use crate::batch::EventKind;
use crate::column::{Column, Data};
use crate::eval_error::EvalError;
use crate::expr::EvalContext;
use crate::pattern::PatternLimits;
use crate::value::Value;
use crate::window::{Parameter, WindowConstructor, WindowInput};

/// Argument at compile time.
#[derive(Debug, Clone)]
pub struct ArgumentType {
    /// Type of the argument.
    pub ty: FieldType,
    /// Value of the argument, if it is constant.
    pub constant: Option<Value>,
}

/// Context of a function call.
#[derive(Clone, Copy)]
pub struct FunctionContext<'a> {
    /// Current time of the app, in milliseconds since 1970.
    pub now: i64,
    /// Timestamp of the event, in milliseconds since 1970.
    pub time: i64,
    /// Access to the app.
    pub host: &'a dyn EvalContext,
}

impl FunctionContext<'_> {
    /// Returns 64 random bits; they differ between calls, and replaying the input yields them again.
    pub fn random(&self) -> u64 {
        self.host.random_u64(self.time)
    }
}

/// Argument of a batched function call.
#[derive(Debug, Clone, Copy)]
pub enum ColumnarValue<'a> {
    /// One value per row.
    Array(&'a Column),
    /// One value for all rows.
    Scalar(&'a Value),
}

impl<'a> ColumnarValue<'a> {
    /// Returns the value of `row` as a string; `None` if it is null or not a string.
    #[inline]
    pub fn text(self, row: usize) -> Option<&'a str> {
        match self {
            Self::Scalar(value) => value.as_str(),
            Self::Array(column) if column.is_null(row) => None,
            Self::Array(column) => match column.data() {
                Data::Str(texts) => Some(texts.get(row)),
                _ => None,
            },
        }
    }

    /// Returns whether no value is null.
    pub fn has_no_nulls(self) -> bool {
        match self {
            Self::Scalar(value) => !value.is_null(),
            Self::Array(column) => !column.nulls().contains(&true),
        }
    }
}

/// Scalar function.
pub trait Function: fmt::Debug + Send + Sync {
    /// Evaluates the function for one row. Errors: the event cannot be processed.
    fn call(&self, args: &[Value], state: &FunctionContext<'_>) -> Result<Value, EvalError>;

    /// Evaluates the function for `rows` rows, with the results of [`Function::call`] for each. `None` if
    /// these arguments are not supported or some row fails; the caller then falls back to row at a time.
    ///
    /// Worth implementing if it avoids [`Value`]s, for example by reading a string column in place.
    fn call_batch(&self, _args: &[ColumnarValue<'_>], _rows: usize) -> Option<Column> {
        None
    }

    /// Returns whether results depend on the order of all calls, as those of random functions do. An app then
    /// processes events row at a time.
    fn depends_on_order(&self) -> bool {
        false
    }
}

/// Function bound to a call site, and the type of its result.
pub type BoundFunction = (Arc<dyn Function>, FieldType);

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

    /// Returns whether the function has side effects, so that it must not be called again for an event.
    fn has_side_effects(&self) -> bool {
        false
    }
}

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
    stream_processors: BTreeMap<String, Arc<StreamProcessorFactory>>,
    windows: BTreeMap<String, Arc<WindowFactory>>,
    limits: PatternLimits,
    replayable_only: bool,
}

impl Registry {
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

    /// Creates a registry with all built-in extensions.
    pub fn standard() -> Self {
        let mut registry = Self::default();
        crate::functions::register(&mut registry);
        crate::aggregators::register(&mut registry);
        crate::stream_functions::register(&mut registry);
        crate::processor::register(&mut registry);
        crate::window::register(&mut registry);
        registry
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
            if self.stream_processors.contains_key(name) {
                return format!(
                    "`{name}` buffers events and is not allowed here: let an earlier query apply it and insert into \
                     a stream, then read that stream"
                );
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
        let names = self.functions.keys().chain(self.aggregators.keys()).map(String::as_str);
        did_you_mean(name, names)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}
