//! `#timeseries:regress`, `forecast` and `outlier`, and these with `lengthTime`: linear regression over the events so far
//! or over the latest ones.

mod regression;

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use crate::columns::batch::EventKind;
use crate::columns::value::{Value, numeric_rank};
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, Registry, StreamProcessor};
use regression::Moments;

/// Events that one processor keeps, and greatest batch.
const EVENTS_MAX: i64 = 1_000_000;
/// Batch size that stands for no limit.
const UNBOUNDED: i64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Coefficients alone.
    Regress,
    /// The value of y for another x.
    Forecast,
    /// Test of y being far from the line before.
    Outlier,
}

/// Registers the processors.
pub(super) fn register(registry: &mut Registry) {
    for (name, timed_name, kind) in [
        ("timeseries:regress", "timeseries:lengthTimeRegress", Kind::Regress),
        ("timeseries:forecast", "timeseries:lengthTimeForecast", Kind::Forecast),
        ("timeseries:outlier", "timeseries:lengthTimeOutlier", Kind::Outlier),
    ] {
        registry.stream_processor(name, move |args| build(name, kind, false, args));
        registry.stream_processor(timed_name, move |args| build(timed_name, kind, true, args));
    }
}

/// Settings of one call.
#[derive(Debug, Clone)]
struct Settings {
    name: &'static str,
    kind: Kind,
    /// Milliseconds for which events count.
    time: Option<i64>,
    /// Latest events that count.
    length: Option<usize>,
    /// Results come at each event of this number.
    interval: u64,
    /// Between 0 and 1.
    confidence: f64,
    /// Position of the argument that `forecast` and `outlier` have more.
    operand: Option<usize>,
    /// Position of y, which the xs follow.
    first: usize,
    /// Number of variables, y included.
    variables: usize,
}

fn build(
    name: &'static str,
    kind: Kind,
    timed: bool,
    args: &[ArgumentType],
) -> Result<BoundStreamProcessor, String> {
    let settings = Arc::new(settings(name, kind, timed, args)?);
    let mut added = vec![("stderr".to_owned(), FieldType::Double)];
    added.extend((0..settings.variables).map(|i| (format!("beta{i}"), FieldType::Double)));
    match kind {
        Kind::Regress => {}
        Kind::Forecast => added.push(("forecastY".to_owned(), FieldType::Double)),
        Kind::Outlier => added.push(("outlier".to_owned(), FieldType::Bool)),
    }
    Ok((Arc::new(move || Box::new(Regression::new(Arc::clone(&settings)))), added))
}

fn settings(name: &'static str, kind: Kind, timed: bool, args: &[ArgumentType]) -> Result<Settings, String> {
    let operand = match kind {
        Kind::Regress => "",
        Kind::Forecast => "next.x, ",
        Kind::Outlier => "range, ",
    };
    let xs = if kind == Kind::Regress { "x, …" } else { "x" };
    let form = match timed {
        true => format!(
            "{name}(time.window, batch.size, {operand}[calculation.interval, confidence.interval,] y, {xs})"
        ),
        false => format!("{name}([calculation.interval, batch.size, confidence.interval,] {operand}y, {xs})"),
    };
    let has_operand = usize::from(kind != Kind::Regress);
    // A constant where y or the operand could stand says that the optional arguments are there.
    let probe = if timed { 2 + has_operand } else { has_operand };
    let has_options = args.get(probe).is_some_and(|a| a.constant.is_some());
    let whole = |at: usize, what: &str, least: i64| -> Result<i64, String> {
        let value = args.get(at).filter(|a| matches!(a.ty, FieldType::Int | FieldType::Long));
        let value = value.and_then(|a| a.constant.as_ref()?.as_i64()).filter(|n| *n >= least);
        value.ok_or_else(|| format!("{form}: `{what}` must be a constant whole number from {least} on"))
    };
    let length = |at: usize, least: i64| -> Result<Option<usize>, String> {
        match whole(at, "batch.size", least)? {
            UNBOUNDED.. if !timed => Ok(None),
            n if n > EVENTS_MAX => Err(format!("{form}: `batch.size` is {EVENTS_MAX} at most")),
            n => Ok(Some(n as usize)),
        }
    };
    let confidence = |at: usize| -> Result<f64, String> {
        let value = args.get(at).and_then(|a| a.constant.as_ref()?.as_f64());
        value
            .filter(|c| (0.0..=1.0).contains(c))
            .ok_or_else(|| format!("{form}: `confidence.interval` must be a constant between 0 and 1"))
    };
    let mut found = Settings {
        name,
        kind,
        time: None,
        length: None,
        interval: 1,
        confidence: 0.95,
        operand: None,
        first: 0,
        variables: 0,
    };
    let mut at = 0;
    if timed {
        found.time = Some(whole(0, "time.window", 1)?);
        found.length = length(1, 1)?;
        at = 2;
    } else if has_options {
        found.interval = whole(0, "calculation.interval", 1)? as u64;
        found.length = length(1, 1)?;
        found.confidence = confidence(2)?;
        at = 3;
    }
    if has_operand == 1 {
        found.operand = Some(at);
        at += 1;
    }
    if timed && has_options {
        found.interval = whole(at, "calculation.interval", 1)? as u64;
        found.confidence = confidence(at + 1)?;
        at += 2;
    }
    found.first = at;
    let variables = args.get(at..).unwrap_or_default();
    found.variables = variables.len();
    if found.variables < 2 || (kind != Kind::Regress && found.variables != 2) {
        return Err(format!("expected {form}, found {} parameters", args.len()));
    }
    let operand = found.operand.and_then(|at| args.get(at));
    if let Some(wrong) = variables.iter().chain(operand).find(|a| numeric_rank(a.ty).is_none()) {
        return Err(format!("{form}: needs numbers, found {}", wrong.ty.name()));
    }
    Ok(found)
}

struct Regression {
    settings: Arc<Settings>,
    /// Events so far.
    seen: u64,
    /// Sums over all events, where nothing bounds them.
    all: Moments,
    /// Time and values of the events that count, where something bounds them.
    kept: VecDeque<(i64, Vec<f64>)>,
    /// The last result, for `outlier`.
    last: Option<Vec<f64>>,
}

impl Regression {
    fn new(settings: Arc<Settings>) -> Self {
        let all = Moments::new(settings.variables);
        Self { settings, seen: 0, all, kept: VecDeque::new(), last: None }
    }

    /// Takes in an event; returns the result if this is an event that has one.
    fn add(&mut self, values: Vec<f64>, now: i64) -> Option<Vec<f64>> {
        let Settings { time, length, interval, confidence, variables, .. } = *self.settings;
        self.seen += 1;
        let has_result = self.seen.is_multiple_of(interval);
        if time.is_none() && length.is_none() {
            self.all.add(&values);
            return has_result.then(|| self.all.fit(confidence));
        }
        self.kept.push_back((now, values));
        while length.is_some_and(|length| self.kept.len() > length) {
            self.kept.pop_front();
        }
        let is_old = |at: i64| time.is_some_and(|time| at.saturating_add(time) <= now);
        while self.kept.front().is_some_and(|(at, _)| is_old(*at)) {
            self.kept.pop_front();
        }
        let kept = self.kept.iter().map(|(_, values)| values.as_slice());
        has_result.then(|| Moments::of(variables, kept).fit(confidence))
    }
}

impl StreamProcessor for Regression {
    fn process(
        &mut self,
        mut event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        if event.kind != EventKind::Current {
            return Ok(());
        }
        let settings = Arc::clone(&self.settings);
        let number = |at: usize, what: &str| {
            let number = args.get(at).and_then(Value::as_f64);
            number.ok_or_else(|| EvalError::null(format!("{}: `{what}`", settings.name)))
        };
        let operand = settings.operand.map(|at| number(at, "the number before y")).transpose()?;
        let values: Vec<f64> = (0..settings.variables)
            .map(|i| number(settings.first + i, if i == 0 { "y" } else { "x" }))
            .collect::<Result<_, _>>()?;
        let (y, x) = (values[0], values[1]);
        let is_outlier = self.last.as_deref().is_some_and(|last| match (last, operand) {
            ([error, intercept, slope], Some(range)) => (y - (intercept + slope * x)).abs() > range * error,
            _ => false,
        });
        let Some(result) = self.add(values, now) else { return Ok(()) };
        event.values.extend(result.iter().map(|x| Value::Double(*x)));
        match (settings.kind, operand, result.as_slice()) {
            (Kind::Forecast, Some(next), [_, intercept, slope]) => {
                event.values.push(Value::Double(intercept + slope * next));
            }
            (Kind::Outlier, ..) => {
                event.values.push(Value::Bool(is_outlier));
                self.last = Some(result);
            }
            _ => {}
        }
        out.push(event);
        Ok(())
    }

    fn save(&self) -> Json {
        let bits = |numbers: &[f64]| -> Vec<u64> { numbers.iter().map(|x| x.to_bits()).collect() };
        let kept: Vec<(i64, Vec<u64>)> = self.kept.iter().map(|(at, values)| (*at, bits(values))).collect();
        json!({
            "seen": self.seen,
            "count": self.all.count,
            "means": bits(&self.all.means),
            "products": bits(&self.all.products),
            "kept": kept,
            "last": self.last.as_deref().map(bits),
        })
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = || EvalError::state(format!("the saved state does not match {}", self.settings.name));
        let saved = SavedSeries::deserialize(state).map_err(|_| wrong())?;
        let numbers = |bits: Vec<u64>| -> Vec<f64> { bits.into_iter().map(f64::from_bits).collect() };
        let all =
            Moments { count: saved.count, means: numbers(saved.means), products: numbers(saved.products) };
        let variables = self.settings.variables;
        let fits = all.means.len() == variables
            && all.products.len() == variables * variables
            && saved.kept.iter().all(|(_, values)| values.len() == variables);
        if !fits {
            return Err(wrong());
        }
        self.seen = saved.seen;
        self.all = all;
        self.kept = saved.kept.into_iter().map(|(at, values)| (at, numbers(values))).collect();
        self.last = saved.last.map(numbers);
        Ok(())
    }
}

#[derive(Deserialize)]
struct SavedSeries {
    seen: u64,
    count: u64,
    means: Vec<u64>,
    products: Vec<u64>,
    kept: Vec<(i64, Vec<u64>)>,
    last: Option<Vec<u64>>,
}
