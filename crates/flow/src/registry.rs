//! What queries can call by name. What comes built in is registered the same way as what a user of the library adds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidemill_types::{FieldType, did_you_mean};

use crate::batch::EventKind;
use crate::column::{Column, Data};
use crate::expr::{EvalContext, EvalError};
use crate::pattern::PatternLimits;
use crate::value::Value;
use crate::window::{Parameter, WindowConstructor, WindowInput};

/// An argument as the compiler knows it.
#[derive(Debug, Clone)]
pub struct ArgumentType {
    /// Its type.
    pub ty: FieldType,
    /// Its value, if it is a constant.
    pub constant: Option<Value>,
}

/// What a function may know besides its arguments.
#[derive(Clone, Copy)]
pub struct FunctionContext<'a> {
    /// The clock, milliseconds since 1970.
    pub now: i64,
    /// The event's timestamp.
    pub time: i64,
    /// What the app holds besides.
    pub host: &'a dyn EvalContext,
}

impl FunctionContext<'_> {
    /// 64 random bits: others at each call, and the same ones when the same inputs are replayed.
    pub fn random(&self) -> u64 {
        self.host.random_u64(self.time)
    }
}

/// An argument of many calls at once.
#[derive(Debug, Clone, Copy)]
pub enum ColumnarValue<'a> {
    /// A value for each row.
    Array(&'a Column),
    /// One value for all rows.
    Scalar(&'a Value),
}

impl<'a> ColumnarValue<'a> {
    /// Value `row` as a text; none if it is null or something else.
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

    /// Whether no value is null.
    pub fn has_no_nulls(self) -> bool {
        match self {
            Self::Scalar(value) => !value.is_null(),
            Self::Array(column) => !column.nulls().contains(&true),
        }
    }
}

/// A function: one value from the values of its arguments.
pub trait Function: fmt::Debug + Send + Sync {
    /// The value. Errors: why the event cannot be worked off.
    fn call(&self, args: &[Value], state: &FunctionContext<'_>) -> Result<Value, EvalError>;

    /// The values for `rows` rows at once, as [`Function::call`] gives them one by one. `None`: it does not do that
    /// for these arguments, or some row fails; it is then called row by row.
    ///
    /// Worth the while where values need not become [`Value`]s: a column of texts can be read where it lies.
    fn call_batch(&self, _args: &[ColumnarValue<'_>], _rows: usize) -> Option<Column> {
        None
    }

    /// Whether its values depend on the order of all calls, as random ones do: then events go through an app one by one.
    fn depends_on_order(&self) -> bool {
        false
    }
}

/// A function that was checked: what runs, and the type of its value.
pub type BoundFunction = (Arc<dyn Function>, FieldType);

/// Checks the arguments of a function. Errors: what is wrong with them.
pub type FunctionFactory = dyn Fn(&[ArgumentType]) -> Result<BoundFunction, String> + Send + Sync;

/// An aggregate over the values that a window holds.
pub trait Aggregator: Send {
    /// An event arrived. Errors: why it cannot be worked off.
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError>;
    /// An event that was added left.
    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError>;
    /// Everything left at once.
    fn reset(&mut self);
    /// The value now.
    fn value(&self) -> Value;
    /// Which of the common ones it is, if it is one: those are computed for many groups and events in one loop.
    fn builtin(&self) -> Option<BuiltinAggregate> {
        None
    }
    /// Its state, for a checkpoint.
    fn save(&self) -> serde_json::Value;
    /// Takes a saved state back. Errors: that it is none of this aggregate.
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError>;
}

/// The common aggregates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinAggregate {
    /// The sum of whole numbers, a long.
    IntegerSum,
    /// The sum of numbers, a double.
    FloatSum,
    /// The mean of numbers, a double.
    Mean,
    /// The number of events, a long.
    Count,
    /// The least number.
    Min,
    /// The greatest number.
    Max,
}

/// Makes an aggregate without events.
pub type AggregatorConstructor = Arc<dyn Fn() -> Box<dyn Aggregator> + Send + Sync>;

/// Checks the arguments of an aggregate. Errors: what is wrong with them.
pub type AggregatorFactory =
    dyn Fn(&[ArgumentType]) -> Result<(AggregatorConstructor, FieldType), String> + Send + Sync;

/// A stream function: what it adds to an event, for each event that it makes of it.
pub trait StreamFunction: fmt::Debug + Send + Sync {
    /// The values of the added attributes, once for each event that goes on. Errors: why the event cannot be worked
    /// off.
    fn call(&self, args: &[Value]) -> Result<Vec<Vec<Value>>, EvalError>;

    /// Whether each of the events that it makes goes on by itself, as a chunk of its own.
    fn emits_separate_chunks(&self) -> bool {
        false
    }

    /// The same as [`StreamFunction::call`] for a function that looks at the whole event.
    fn call_on(&self, args: &[Value], _event: &EventRef<'_>) -> Result<Vec<Vec<Value>>, EvalError> {
        self.call(args)
    }

    /// Whether it does something besides: then it cannot be called again for the same event.
    fn has_side_effects(&self) -> bool {
        false
    }
}

/// An event as a stream function sees it.
#[derive(Debug, Clone, Copy)]
pub struct EventRef<'a> {
    /// Its attributes: row `row` of these.
    pub columns: &'a [Column],
    /// Which row.
    pub row: usize,
    /// Its timestamp, milliseconds since 1970.
    pub time: i64,
}

/// A stream function that was checked: what runs, and name and type of each attribute that it adds.
pub type BoundStreamFunction = (Arc<dyn StreamFunction>, Vec<(String, FieldType)>);

/// Checks the arguments of a stream function. Errors: what is wrong with them.
pub type StreamFunctionFactory = dyn Fn(&[ArgumentType]) -> Result<BoundStreamFunction, String> + Send + Sync;

/// An event that a stream processor takes, holds or lets go.
#[derive(Debug, Clone)]
pub struct ProcessorEvent {
    /// Its timestamp, milliseconds since 1970.
    pub time: i64,
    /// Arrived or expired.
    pub kind: EventKind,
    /// Its attributes; what the processor adds comes behind them.
    pub values: Vec<Value>,
}

/// A stream processor: it has a state, may drop events, and may hold them and let them go later.
///
/// What is let go for the events of one chunk, or at one timer, is a chunk.
pub trait StreamProcessor: Send {
    /// The app starts.
    fn start(&mut self, _now: i64) {}
    /// An event arrives; `args` are its arguments. Errors: why the event cannot be worked off.
    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError>;
    /// The instant at which [`Self::on_timer`] is to be called, if it wants that.
    fn due(&self) -> Option<i64> {
        None
    }
    /// That instant was reached; the clock may be beyond it.
    fn on_timer(&mut self, _now: i64, _out: &mut Vec<ProcessorEvent>) {}
    /// Its state, for a checkpoint.
    fn save(&self) -> serde_json::Value;
    /// Takes a saved state back. Errors: that it is none of this processor.
    fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError>;
}

/// Makes a stream processor that has seen nothing.
pub type StreamProcessorConstructor = Arc<dyn Fn() -> Box<dyn StreamProcessor> + Send + Sync>;

/// A stream processor that was checked: what makes it, and name and type of each attribute that it adds.
pub type BoundStreamProcessor = (StreamProcessorConstructor, Vec<(String, FieldType)>);

/// Checks the arguments of a stream processor. Errors: what is wrong with them.
pub type StreamProcessorFactory =
    dyn Fn(&[ArgumentType]) -> Result<BoundStreamProcessor, String> + Send + Sync;

/// Checks the parameters of a window, and where its rows come from. Errors: what is wrong with them.
pub type WindowFactory =
    dyn Fn(&[Parameter], &WindowInput<'_>) -> Result<WindowConstructor, String> + Send + Sync;

/// Functions, aggregates, stream functions, stream processors and windows by name. Names heed case; extensions have a
/// namespace.
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
    /// Whether apps that are compiled from now on work events off more than once: then functions that give something
    /// else or do something the second time are refused.
    pub(crate) fn set_replayable_only(&mut self, repeating: bool) {
        self.replayable_only = repeating;
    }

    /// See [`set_repeating`](Self::set_replayable_only).
    pub(crate) fn is_replayable_only(&self) -> bool {
        self.replayable_only
    }

    /// What one pattern or sequence may hold.
    pub fn limits(&self) -> PatternLimits {
        self.limits
    }

    /// Sets what one pattern or sequence may hold, for apps that are compiled from now on.
    pub fn set_limits(&mut self, limits: PatternLimits) {
        self.limits = limits;
    }

    /// Everything that comes built in.
    pub fn standard() -> Self {
        let mut registry = Self::default();
        crate::functions::register(&mut registry);
        crate::aggregators::register(&mut registry);
        crate::stream_functions::register(&mut registry);
        crate::processor::register(&mut registry);
        crate::window::register(&mut registry);
        registry
    }

    /// Adds a function, `name` or `namespace:name`; one of that name is replaced.
    pub fn function(
        &mut self,
        name: &str,
        build: impl Fn(&[ArgumentType]) -> Result<BoundFunction, String> + Send + Sync + 'static,
    ) {
        self.functions.insert(name.to_owned(), Arc::new(build));
    }

    /// Adds an aggregate, `name` or `namespace:name`; one of that name is replaced.
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

    /// Adds a stream function, `name` or `namespace:name`; one of that name is replaced.
    pub fn stream_function(
        &mut self,
        name: &str,
        build: impl Fn(&[ArgumentType]) -> Result<BoundStreamFunction, String> + Send + Sync + 'static,
    ) {
        self.stream_functions.insert(name.to_owned(), Arc::new(build));
    }

    /// Adds a stream processor, `name` or `namespace:name`; one of that name is replaced.
    pub fn stream_processor(
        &mut self,
        name: &str,
        build: impl Fn(&[ArgumentType]) -> Result<BoundStreamProcessor, String> + Send + Sync + 'static,
    ) {
        self.stream_processors.insert(name.to_owned(), Arc::new(build));
    }

    /// Adds a window, `name` or `namespace:name`; one of that name is replaced. What is made of it holds events as
    /// [`Window`](crate::window::Window) says, in queries, joins and definitions of windows.
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

    /// The window called `name`. Errors: that there is none, with the nearest name.
    pub fn find_window(&self, name: &str) -> Result<&WindowFactory, String> {
        self.windows.get(name).map(Arc::as_ref).ok_or_else(|| {
            let hint = did_you_mean(name, self.windows.keys().map(String::as_str));
            format!("there is no window `{name}`{hint}")
        })
    }

    /// The stream processor called `name`.
    pub fn find_stream_processor(&self, name: &str) -> Option<&StreamProcessorFactory> {
        self.stream_processors.get(name).map(Arc::as_ref)
    }

    /// The stream function called `name`. Errors: that there is none, with the nearest name.
    pub fn find_stream_function(&self, name: &str) -> Result<&StreamFunctionFactory, String> {
        self.stream_functions.get(name).map(Arc::as_ref).ok_or_else(|| {
            if self.stream_processors.contains_key(name) {
                return format!(
                    "`{name}` holds events and cannot stand here: let a query before this one do it and insert into \
                     a stream, then read that"
                );
            }
            let known = self.stream_functions.keys().chain(self.stream_processors.keys());
            let hint = did_you_mean(name, known.map(String::as_str));
            format!("there is no stream function `{name}`{hint}")
        })
    }

    /// The function called `name`.
    pub fn find_function(&self, name: &str) -> Option<&FunctionFactory> {
        self.functions.get(name).map(Arc::as_ref)
    }

    /// The aggregate called `name`.
    pub fn find_aggregator(&self, name: &str) -> Option<&AggregatorFactory> {
        self.aggregators.get(name).map(Arc::as_ref)
    }

    /// What to suggest for a name that there is not.
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
