//! `kf:kalmanFilter(measured [, deviation])`: estimates of a constant from noisy measurements.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{add, cloning_constructor, foreign_state};
use crate::eval_error::EvalError;
use crate::registry::{Aggregator, Registry};
use crate::value::Value;

/// Variance of the estimate before the first measurement.
const INITIAL_VARIANCE: f64 = 1000.0;
/// Noise of a measurement without `deviation`.
const DEFAULT_NOISE: f64 = 0.001;

pub(super) fn register(registry: &mut Registry) {
    let forms = ["double measured -> double", "double measured, double deviation -> double"];
    add(registry, "kf:kalmanFilter", &forms, |_| cloning_constructor(Kalman::default()));
}

/// Filter of one dimension, without process noise.
#[derive(Clone, Default)]
struct Kalman {
    /// Estimate and its variance; `None` before the first measurement.
    estimate: Option<(f64, f64)>,
}

impl Aggregator for Kalman {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        let measured = args.first().and_then(Value::as_f64);
        let measured = measured.ok_or_else(|| EvalError::null("kf:kalmanFilter: `measured`"))?;
        let noise = match args.get(1) {
            None => DEFAULT_NOISE,
            Some(noise) => noise.as_f64().ok_or_else(|| EvalError::null("kf:kalmanFilter: `deviation`"))?,
        };
        let (estimate, variance) = self.estimate.unwrap_or((measured, INITIAL_VARIANCE));
        let gain = variance / (variance + noise);
        self.estimate = Some((estimate + gain * (measured - estimate), (1.0 - gain) * variance));
        Ok(())
    }

    /// An estimate keeps what it learned from events that leave the window.
    fn remove(&mut self, _: &[Value]) -> Result<(), EvalError> {
        Ok(())
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn value(&self) -> Value {
        self.estimate.map_or(Value::Null, |(estimate, _)| Value::Double(estimate))
    }

    fn save(&self) -> Json {
        json!(self.estimate.map(|(estimate, variance)| (estimate.to_bits(), variance.to_bits())))
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let saved = Option::<(u64, u64)>::deserialize(state).map_err(|_| foreign_state())?;
        self.estimate =
            saved.map(|(estimate, variance)| (f64::from_bits(estimate), f64::from_bits(variance)));
        Ok(())
    }
}
