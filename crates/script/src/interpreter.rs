//! One QuickJS runtime with one script in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rquickjs::context::EvalOptions;
use rquickjs::{CatchResultExt, CaughtError, Context, Ctx, Function, Runtime, Value};
use tidemill_types::budget;

use crate::convert::{Reader, Unreadable, list_to_js, to_js};
use crate::{CallContext, CallFailure, MEMORY_MAX, STACK_MAX, STEPS_MAX, ScriptError, ScriptValue};

/// Prepares the realm of a script.
const PRELUDE: &str = include_str!("prelude.js");
/// Makes the built-in functions of a realm count their work.
const STEPS: &str = include_str!("steps.js");
/// Property of the global object with what the host calls; no name of an identifier.
const ENTRY: &str = "tidemill:entry";
/// Steps after which the interpreter asks whether to continue. Compiled into QuickJS, where a step is a call or a jump backwards, and as
/// many tries of a regular expression count as one question.
const STEPS_PER_CHECK: u64 = 10_000;
/// Stack that must be left when a call begins. More than [`STACK_MAX`]: reading the result takes some, too.
const STACK_NEEDED: usize = STACK_MAX + (256 << 10);
/// Characters of a message that a script throws.
const MESSAGE_CHARS_MAX: usize = 1000;
const STACK_ALLOCATED: usize = 2 << 20;

/// Limits of the current call, and the steps it has used.
#[derive(Default)]
struct CallBudget {
    steps: AtomicU64,
    steps_max: AtomicU64,
}

impl CallBudget {
    fn start(&self, steps_max: u64) {
        self.steps.store(0, Ordering::Relaxed);
        self.steps_max.store(steps_max, Ordering::Relaxed);
    }

    fn steps_are_used_up(&self) -> bool {
        self.steps.load(Ordering::Relaxed) > self.steps_max.load(Ordering::Relaxed)
    }

    /// Counts steps. Returns whether none are left.
    fn count(&self, steps: u64) -> bool {
        // one thread counts
        let before = self.steps.load(Ordering::Relaxed);
        self.steps.store(before.saturating_add(steps), Ordering::Relaxed);
        self.steps_are_used_up()
    }

    fn is_used_up(&self) -> bool {
        self.count(STEPS_PER_CHECK) || budget::current().check().is_err()
    }
}

pub(crate) struct Interpreter {
    name: String,
    context: Context,
    runtime: Runtime,
    budget: Arc<CallBudget>,
}

impl Interpreter {
    /// Creates an interpreter and compiles the script in it.
    ///
    /// Errors: the script is not JavaScript.
    pub(crate) fn new(name: &str, body: &str) -> Result<Self, ScriptError> {
        let unavailable = |e: rquickjs::Error| ScriptError {
            message: format!("the interpreter cannot be started: {e}"),
            place: None,
        };
        let runtime = Runtime::new().map_err(unavailable)?;
        runtime.set_memory_limit(MEMORY_MAX);
        runtime.set_max_stack_size(STACK_MAX);
        let budget = Arc::new(CallBudget::default());
        let asked = Arc::clone(&budget);
        runtime.set_interrupt_handler(Some(Box::new(move || asked.is_used_up())));
        // a call creates an interpreter when none is idle, so no clock decides about this either
        budget.start(STEPS_MAX);
        let context = Context::full(&runtime).map_err(unavailable)?;
        let interpreter = Self { name: name.to_owned(), context, runtime, budget };
        with_stack(|| interpreter.context.with(|ctx| interpreter.prepare(&ctx, body)))
            .map_err(|f| f.error)?;
        Ok(interpreter)
    }

    fn prepare(&self, ctx: &Ctx<'_>, body: &str) -> Result<(), CallFailure> {
        let budget = Arc::clone(&self.budget);
        // a script can ask for any number of steps; a cast of more than there are gives the greatest number
        let count = Function::new(ctx.clone(), move |steps: f64| budget.count(steps as u64));
        let count = self.caught(ctx, count)?;
        let wrap: Function<'_> = self.caught(ctx, ctx.eval_with_options(STEPS, options("prelude.js")))?;
        let begin: Function<'_> = self.caught(ctx, wrap.call((count,)))?;
        let bind: Function<'_> = self.caught(ctx, ctx.eval_with_options(PRELUDE, options("prelude.js")))?;
        // the body begins on the second line, so that a line comment at its end does no harm and its first line is
        // counted from column 1
        let source = format!("(function {}(data) {{\n{body}\n}})", function_name(&self.name));
        let script: Function<'_> = self.caught(ctx, ctx.eval_with_options(source, options(&self.name)))?;
        self.caught(ctx, bind.call((script, ENTRY, begin)))
    }

    /// Calls the script, which may take `steps_max` steps.
    pub(crate) fn call(
        &self,
        args: &[ScriptValue],
        context: CallContext,
        steps_max: u64,
    ) -> Result<ScriptValue, CallFailure> {
        self.budget.start(steps_max);
        let result = with_stack(|| self.context.with(|ctx| self.call_in(&ctx, args, context)));
        if !self.runtime.is_job_pending() {
            return result;
        }
        let message = "the script started asynchronous work: a function returns its value at once, without promises, \
                       `async` and `await`";
        let error =
            result.err().map_or_else(|| ScriptError { message: message.into(), place: None }, |f| f.error);
        Err(CallFailure { error, interpreter_usable: false })
    }

    fn call_in(
        &self,
        ctx: &Ctx<'_>,
        args: &[ScriptValue],
        context: CallContext,
    ) -> Result<ScriptValue, CallFailure> {
        let called = self.caught(ctx, self.apply(ctx, args, context)).and_then(|value| {
            Reader::default().read(&value, 0).map_err(|why| match why {
                Unreadable::Thrown => self.fault(CaughtError::from_error(ctx, rquickjs::Error::Exception)),
                Unreadable::Unsupported(what) => {
                    let message = format!("the script returned {what}");
                    CallFailure { error: ScriptError { message, place: None }, interpreter_usable: true }
                }
            })
        });
        let clean = entry(ctx).and_then(|[_, is_clean]| is_clean.call::<_, bool>(()));
        match (called, clean) {
            (called, Ok(true)) => called,
            (Err(fault), _) => Err(CallFailure { interpreter_usable: false, ..fault }),
            (Ok(_), clean) => {
                let message = match clean {
                    Err(error) => self.fault(CaughtError::from_error(ctx, error)).error.message,
                    Ok(_) => {
                        "the script defined a property of the global object that cannot be removed".into()
                    }
                };
                Err(CallFailure { error: ScriptError { message, place: None }, interpreter_usable: false })
            }
        }
    }

    fn apply<'js>(
        &self,
        ctx: &Ctx<'js>,
        args: &[ScriptValue],
        context: CallContext,
    ) -> rquickjs::Result<Value<'js>> {
        let [call, _] = entry(ctx)?;
        let data = list_to_js(ctx, args)?;
        let now = to_js(ctx, &ScriptValue::Number(context.now_ms as f64))?;
        match context.seed {
            Some(seed) => call.call((data, now, (seed >> 32) as i32, seed as i32)),
            None => call.call((data, now)),
        }
    }

    fn caught<'js, T>(&self, ctx: &Ctx<'js>, result: rquickjs::Result<T>) -> Result<T, CallFailure> {
        result.catch(ctx).map_err(|error| self.fault(error))
    }

    /// Says what was thrown, and where.
    fn fault(&self, error: CaughtError<'_>) -> CallFailure {
        let refused = |message: String| CallFailure {
            error: ScriptError { message, place: None },
            interpreter_usable: false,
        };
        let exception = match error {
            CaughtError::Exception(exception) => exception,
            // the interpreter throws null where it has no memory left for an error
            CaughtError::Value(value) if value.is_null() => {
                return refused(format!(
                    "the script threw null, or needs more than {} MiB of memory",
                    MEMORY_MAX >> 20
                ));
            }
            CaughtError::Value(value) => {
                let shown = match Reader::default().read(&value, 0) {
                    Ok(ScriptValue::Text(text)) => one_line(&text),
                    Ok(other) => other.kind().to_owned(),
                    Err(_) => "a value".to_owned(),
                };
                let message = format!("the script threw {shown}");
                return CallFailure { error: ScriptError { message, place: None }, interpreter_usable: true };
            }
            CaughtError::Error(error) => return refused(format!("the script failed: {error}")),
        };
        let name = exception.as_object().get::<_, String>("name").unwrap_or_default();
        let message = one_line(&exception.message().unwrap_or_default());
        let place = exception.stack().and_then(|stack| place_in(&stack, &self.name));
        if name == "InternalError" {
            let message = match message.as_str() {
                "interrupted" => self.interrupted_message(),
                "out of memory" => memory_message(),
                _ => format!("{name}: {message}"),
            };
            return CallFailure { error: ScriptError { message, place }, interpreter_usable: false };
        }
        let message = match (name.is_empty(), message.is_empty()) {
            (false, false) => format!("{name}: {message}"),
            (false, true) => name,
            (true, false) => message,
            (true, true) => "the script threw an error without a message".into(),
        };
        CallFailure { error: ScriptError { message, place }, interpreter_usable: true }
    }

    fn interrupted_message(&self) -> String {
        match budget::current().stopped() {
            Some(stop) if !self.budget.steps_are_used_up() => format!("the script {stop}"),
            _ => format!(
                "the script took more than {STEPS_MAX} steps (turns of loops, calls, and the work of built-in functions) and was \
                 stopped"
            ),
        }
    }
}

fn memory_message() -> String {
    format!("the script needs more than {} MiB of memory", MEMORY_MAX >> 20)
}

/// Returns the start of a message, without line ends.
fn one_line(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Runs `work` where there is stack enough for the limit of the interpreter to be reached first.
fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK_NEEDED, STACK_ALLOCATED, work)
}

/// Returns the functions that the prelude stored: the script's, and the one that removes what it left.
fn entry<'js>(ctx: &Ctx<'js>) -> rquickjs::Result<[Function<'js>; 2]> {
    let entry: rquickjs::Array<'js> = ctx.globals().get(ENTRY)?;
    Ok([entry.get(0)?, entry.get(1)?])
}

fn options(file: &str) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(file.to_owned());
    options
}

/// Returns the name by which the script may call itself; none if JavaScript does not allow it.
fn function_name(name: &str) -> &str {
    const RESERVED: &[&str] = &[
        "break",
        "case",
        "catch",
        "class",
        "const",
        "continue",
        "debugger",
        "default",
        "delete",
        "do",
        "else",
        "enum",
        "export",
        "extends",
        "false",
        "finally",
        "for",
        "function",
        "if",
        "import",
        "in",
        "instanceof",
        "new",
        "null",
        "return",
        "super",
        "switch",
        "this",
        "throw",
        "true",
        "try",
        "typeof",
        "var",
        "void",
        "while",
        "with",
    ];
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let starts = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if plain && starts && !RESERVED.contains(&name) { name } else { "" }
}

/// Returns line and column of the first frame of a stack trace that is in the script: `at f (name:3:5)`.
fn place_in(stack: &str, name: &str) -> Option<(u32, u32)> {
    let marker = format!("{name}:");
    stack.lines().find_map(|frame| {
        let (_, at) = frame.rsplit_once(marker.as_str())?;
        let (line, column) = at.trim_end_matches(')').split_once(':')?;
        let line: u32 = line.parse().ok()?;
        // the line before the body is that of the function itself
        let line = line.checked_sub(1).filter(|line| *line > 0)?;
        Some((line, column.parse().ok()?))
    })
}
