//! `kf:kalmanFilter(measured [, deviation])`: estimates of a constant from noisy measurements, and
//! `kf:kalmanFilter(measured, rate, deviation, time)`: of a value that moves at a measured rate.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{add, cloning_constructor, foreign_state};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::registry::{Aggregator, Registry};

/// Variance of the estimate before the first measurement.
const INITIAL_VARIANCE: f64 = 1000.0;
/// Noise of a measurement without `deviation`.
const DEFAULT_NOISE: f64 = 0.001;

pub(super) fn register(registry: &mut Registry) {
    let forms = [
        "double measured -> double",
        "double measured, double deviation -> double",
        "double measured, double rate, double deviation, long time -> double",
    ];
    add(registry, "kf:kalmanFilter", &forms, |args| match args.len() {
        4 => cloning_constructor(MovingKalman::default()),
        _ => cloning_constructor(Kalman::default()),
    });
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

/// Filter of a value and its rate of change, both measured, without process noise.
#[derive(Clone, Default)]
struct MovingKalman {
    /// `None` before the first measurement.
    motion: Option<Motion>,
}

#[derive(Clone, Copy)]
struct Motion {
    value: f64,
    /// Change in a millisecond.
    rate: f64,
    /// Variances of the value and of the rate, with their covariance between.
    variances: [f64; 3],
    /// Milliseconds since 1970.
    time: i64,
}

impl Motion {
    /// Moves on by a number of milliseconds.
    fn predicted(self, elapsed: f64) -> Self {
        let [value, both, rate] = self.variances;
        let variances =
            [value + 2.0 * elapsed * both + elapsed * elapsed * rate, both + elapsed * rate, rate];
        Self { value: self.value + elapsed * self.rate, variances, ..self }
    }

    /// Takes in a measurement; `None` if the variances are not invertible.
    fn corrected(self, measured: f64, measured_rate: f64, noise: f64) -> Option<Self> {
        let [value, both, rate] = self.variances;
        let determinant = (value + noise) * (rate + noise) - both * both;
        if determinant == 0.0 || !determinant.is_finite() {
            return None;
        }
        // The gain is P (P + R)⁻¹, where R has the noise on its diagonal.
        let gain = [
            [(value * (rate + noise) - both * both) / determinant, both * noise / determinant],
            [both * noise / determinant, (rate * (value + noise) - both * both) / determinant],
        ];
        let (off, off_rate) = (measured - self.value, measured_rate - self.rate);
        let variances = [
            value - gain[0][0] * value - gain[0][1] * both,
            both - gain[0][0] * both - gain[0][1] * rate,
            rate - gain[1][0] * both - gain[1][1] * rate,
        ];
        Some(Self {
            value: self.value + gain[0][0] * off + gain[0][1] * off_rate,
            rate: self.rate + gain[1][0] * off + gain[1][1] * off_rate,
            variances,
            ..self
        })
    }
}

impl Aggregator for MovingKalman {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        let number = |i: usize, what: &str| {
            let number = args.get(i).and_then(Value::as_f64);
            number.ok_or_else(|| EvalError::null(format!("kf:kalmanFilter: `{what}`")))
        };
        let (measured, rate, noise) = (number(0, "measured")?, number(1, "rate")?, number(2, "deviation")?);
        let time = args.get(3).and_then(Value::as_i64);
        let time = time.ok_or_else(|| EvalError::null("kf:kalmanFilter: `time`"))?;
        let first = || Motion {
            value: measured,
            rate,
            variances: [INITIAL_VARIANCE, 0.0, INITIAL_VARIANCE],
            time: time.saturating_sub(1),
        };
        let known = self.motion.unwrap_or_else(first);
        let elapsed = time.saturating_sub(known.time) as f64;
        let corrected = known.predicted(elapsed).corrected(measured, rate, noise);
        let corrected = corrected
            .ok_or_else(|| EvalError::argument("kf:kalmanFilter: `deviation` must be greater than 0"))?;
        self.motion = Some(Motion { time, ..corrected });
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
        self.motion.map_or(Value::Null, |motion| Value::Double(motion.value))
    }

    fn save(&self) -> Json {
        json!(self.motion.map(|m| {
            let [value, both, rate] = m.variances;
            ([m.value, m.rate, value, both, rate].map(f64::to_bits), m.time)
        }))
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let saved = Option::<([u64; 5], i64)>::deserialize(state).map_err(|_| foreign_state())?;
        self.motion = saved.map(|(bits, time)| {
            let [value, rate, first, both, last] = bits.map(f64::from_bits);
            Motion { value, rate, variances: [first, both, last], time }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that Siddhi's documentation of the function gives.
    #[test]
    fn a_moving_value_is_estimated_as_documented() {
        let mut filter = MovingKalman::default();
        let mut estimate = |measured: f64, time: i64| {
            let args =
                [Value::Double(measured), Value::Double(0.003), Value::Double(0.01), Value::Long(time)];
            filter.add(&args).map(|()| filter.value().as_f64().unwrap_or(f64::NAN))
        };
        let first = estimate(-74.178444, 1_445_234_861);
        assert!(first.is_ok_and(|x| (x + 74.1784439700006).abs() < 1e-10));
        let second = estimate(-74.178444, 1_445_234_861);
        assert!(second.is_ok_and(|x| (x + 74.178444).abs() < 1e-6));
        let no_noise = [Value::Double(1.0), Value::Double(0.0), Value::Double(0.0), Value::Long(1)];
        let mut exact =
            MovingKalman { motion: Some(Motion { value: 1.0, rate: 0.0, variances: [0.0; 3], time: 0 }) };
        assert!(exact.add(&no_noise).is_err());
    }
}
