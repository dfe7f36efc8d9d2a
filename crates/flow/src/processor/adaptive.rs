//! `#reorder:akslack(ts, field, …)`: like `reorder:kslack`, but K is only as large as the required accuracy
//! of sums over `field` demands. A controller adjusts alpha, the fraction of the greatest lateness that
//! events wait.
//!
//! Source: Y. Ji et al., *Quality-driven processing of sliding window aggregates over out-of-order data
//! streams*, DEBS 2015.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::reorder::{constant_bool, constant_long, is_long, sorted_by};
use super::reorder_buffer::{ReorderBuffer, SavedReorderBuffer};
use crate::columns::value::{Value, numeric_rank};
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};

const FORM: &str = "reorder:akslack(ts, field [, batch.size [, timeout [, max.k [, discard.late \
                    [, error, confidence]]]]])";

/// Maximum number of arrivals from which the coverage of a window is computed.
const ARRIVALS_MAX: usize = 100_000;
/// Length of the window whose coverage is computed, milliseconds.
const WINDOW_MS: i64 = 10_000_000_000;
/// Gains of the controller for the error, and for its change.
const GAIN: (f64, f64) = (0.5, 0.8);

pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let fits = matches!(args.len(), 2..=6 | 8) && is_long(&args[0]) && numeric_rank(args[1].ty).is_some();
    if !fits {
        return Err(format!("expected {FORM}, where `ts` is a long attribute and `field` a number"));
    }
    let long = |i: usize| args.get(i).map(|arg| constant_long(arg, FORM)).transpose().map(Option::flatten);
    let part = |i: usize, otherwise: f64| match args.get(i) {
        None => Ok(otherwise),
        Some(arg) => {
            let value = arg.constant.as_ref().and_then(Value::as_f64).filter(|p| *p > 0.0 && *p < 1.0);
            value.ok_or_else(|| format!("{FORM}: `error` and `confidence` must be constants between 0 and 1"))
        }
    };
    let settings = AdaptiveReorderSettings {
        batch: long(2)?.unwrap_or(10_000).max(1) as usize,
        timeout: long(3)?,
        k_max: long(4)?.unwrap_or(i64::MAX),
        discard: args.get(5).map(|arg| constant_bool(arg, FORM)).transpose()?.unwrap_or(false),
        error: part(6, 0.03)?,
        critical: normal_quantile((1.0 + part(7, 0.95)?) / 2.0),
    };
    let make = move || {
        Box::new(AdaptiveReorder {
            settings,
            waiting: ReorderBuffer::default(),
            now: AdaptiveReorderState::default(),
        })
    };
    Ok((Arc::new(move || make()), vec![]))
}

#[derive(Debug, Clone, Copy)]
struct AdaptiveReorderSettings {
    /// Number of events between two adjustments of alpha.
    batch: usize,
    timeout: Option<i64>,
    k_max: i64,
    discard: bool,
    /// Maximum relative error of a sum.
    error: f64,
    /// Number of standard deviations that correspond to the requested confidence.
    critical: f64,
}

struct AdaptiveReorder {
    settings: AdaptiveReorderSettings,
    waiting: ReorderBuffer,
    now: AdaptiveReorderState,
}

#[derive(Debug, Serialize, Deserialize)]
struct AdaptiveReorderState {
    k: i64,
    alpha: f64,
    controller: Controller,
    /// Distance of the end of the covered window from the current timestamp, milliseconds.
    slack: i64,
    greatest: Option<i64>,
    least: Option<i64>,
    last_sent: Option<i64>,
    /// Number of events since alpha was last adjusted.
    count: usize,
    /// Values of `field` of these events.
    fields: Vec<f64>,
    /// Timestamps of these and earlier events, in order of arrival.
    arrivals: VecDeque<i64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Controller {
    alpha: f64,
    error: f64,
}

impl Default for AdaptiveReorderState {
    fn default() -> Self {
        Self {
            k: 0,
            alpha: 1.0,
            controller: Controller::default(),
            slack: 0,
            greatest: None,
            least: None,
            last_sent: None,
            count: 0,
            fields: vec![],
            arrivals: VecDeque::new(),
        }
    }
}

impl StreamProcessor for AdaptiveReorder {
    fn start(&mut self, now: i64) {
        self.waiting.start(now);
    }

    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        let ts = sorted_by(args, "reorder:akslack")?;
        let field = args.get(1).and_then(Value::as_f64);
        let field = field.ok_or_else(|| EvalError::null("reorder:akslack: `field`"))?;
        let Self { settings, waiting, now: state } = self;
        state.arrivals.push_back(ts);
        if state.arrivals.len() > ARRIVALS_MAX {
            state.arrivals.pop_front();
        }
        if settings.discard && state.last_sent.is_some_and(|sent| ts < sent) {
            return Ok(());
        }
        state.fields.push(field);
        waiting.add(ts, event, now);
        state.count += 1;
        if state.count > settings.batch {
            state.adapt(ts, settings);
        }
        let least = state.least.map_or(ts, |least| least.min(ts));
        if state.greatest.is_some_and(|greatest| ts <= greatest) {
            state.least = Some(least);
            return Ok(());
        }
        (state.greatest, state.least) = (Some(ts), None);
        let late = ts.saturating_sub(least);
        if late > state.k {
            let part = (late as f64 * state.alpha).round() as i64;
            state.k = if late < settings.k_max { part } else { settings.k_max };
        }
        let last = waiting.release(ts.saturating_sub(state.k), out);
        state.last_sent = last.or(state.last_sent);
        Ok(())
    }

    fn due(&self) -> Option<i64> {
        self.settings.timeout.and(self.waiting.due())
    }

    fn on_timer(&mut self, now: i64, out: &mut Vec<ProcessorEvent>) {
        if let Some(timeout) = self.settings.timeout {
            let last = self.waiting.release_expired(timeout, now, out);
            self.now.last_sent = self.now.last_sent.max(last);
        }
    }

    fn save(&self) -> Json {
        json!({ "waiting": self.waiting.save(), "progress": self.now })
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = |e: &dyn std::fmt::Display| {
            EvalError::state(format!("the saved state does not match reorder:akslack: {e}"))
        };
        let saved = SavedReorderBuffer::deserialize(&state["waiting"]).map_err(|e| wrong(&e))?;
        self.waiting.restore(&saved).ok_or_else(|| wrong(&"cannot read the buffered events"))?;
        self.now = AdaptiveReorderState::deserialize(&state["progress"]).map_err(|e| wrong(&e))?;
        Ok(())
    }
}

impl AdaptiveReorderState {
    /// Adjusts alpha towards the coverage that the fields since the last adjustment require.
    fn adapt(&mut self, ts: i64, settings: &AdaptiveReorderSettings) {
        let wanted = coverage_wanted(&self.fields, settings);
        let covered = if self.slack == 0 { 1.0 } else { self.coverage(ts) };
        let error = wanted - covered;
        let step = GAIN.0 * error + GAIN.1 * (error - self.controller.error);
        self.alpha = (self.controller.alpha + step).abs();
        self.controller = Controller { alpha: self.alpha, error };
        self.slack = ((self.alpha * self.k as f64).round() as i64).min(self.k);
        self.count = 0;
        self.fields.clear();
    }

    /// Returns the fraction of a window's events that arrived before the first event that closes the window.
    fn coverage(&self, ts: i64) -> f64 {
        let high = ts.saturating_sub(self.slack);
        let low = high.saturating_sub(WINDOW_MS);
        let (mut early, mut all, mut begun, mut closed) = (0u64, 0u64, false, false);
        for at in &self.arrivals {
            begun |= *at >= low;
            closed |= *at >= high;
            if begun && (low..=high).contains(at) {
                early += u64::from(!closed);
                all += 1;
            }
        }
        if all == 0 { 1.0 } else { early as f64 / all as f64 }
    }
}

/// Returns the least fraction of a window's events whose sum has at most the given error at the given
/// confidence: the root of `(1 + s) c² - (2 ± 2e + s) c + (1 ± e)²`, where `s` is the square of the critical
/// relative deviation.
fn coverage_wanted(fields: &[f64], settings: &AdaptiveReorderSettings) -> f64 {
    let n = fields.len() as f64;
    let mean = fields.iter().sum::<f64>() / n;
    let variance = fields.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let spread = (mean.powi(2) + variance.powi(2)) / (n * mean.powi(2));
    let s = settings.critical.powi(2) * spread;
    let least_root = |e: f64| {
        let (a, b, c) = (1.0 + s, -(2.0 + 2.0 * e + s), (1.0 + e).powi(2));
        let under = b * b - 4.0 * a * c;
        (under >= 0.0).then(|| (-b - under.sqrt()) / (2.0 * a))
    };
    match (least_root(-settings.error), least_root(settings.error)) {
        (Some(below), Some(above)) => below.min(above),
        (one, other) => one.or(other).unwrap_or(0.0),
    }
}

/// Returns the quantile of the standard normal distribution for `p` of at least one half.
fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        let reached = 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2);
        if reached < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (p, z) in [(0.975, 1.959_963_985), (0.95, 1.644_853_627), (0.5, 0.0)] {
            assert!((normal_quantile(p) - z).abs() < 1e-8, "{p}");
        }
    }

    #[test]
    fn even_fields_need_less_coverage_than_uneven_ones() {
        let settings = AdaptiveReorderSettings {
            batch: 10,
            timeout: None,
            k_max: i64::MAX,
            discard: false,
            error: 0.03,
            critical: 1.96,
        };
        let even = coverage_wanted(&[100.0; 50], &settings);
        let uneven: Vec<f64> = (0..50).map(|i| if i % 2 == 0 { 1.0 } else { 199.0 }).collect();
        let uneven = coverage_wanted(&uneven, &settings);
        assert!(
            (0.0..=1.0).contains(&even) && (0.0..=1.0).contains(&uneven) && even > uneven,
            "{even} {uneven}"
        );
    }
}
