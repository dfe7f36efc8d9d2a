//! `stdDev`, `math:percentile`, `stats:median`.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{VALUES_MAX, add, check_capacity, cloning_constructor, foreign_state};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::registry::{Aggregator, Registry};

pub(super) fn register(registry: &mut Registry) {
    add(registry, "stdDev", &["number x -> double"], |_| cloning_constructor(StdDev::default()));
    add(registry, "stats:median", &["number x -> double"], |_| {
        cloning_constructor(Percentile { sorted: vec![], percent: 50.0 })
    });
    add(registry, "math:percentile", &["number x, const double percent -> double"], |args| {
        let percent = args.get(1).and_then(|a| a.constant.as_ref()).and_then(Value::as_f64);
        match percent {
            Some(percent) if percent > 0.0 && percent <= 100.0 => {
                cloning_constructor(Percentile { sorted: vec![], percent })
            }
            _ => Err("`percent` must be above 0 and at most 100".into()),
        }
    });
}

/// Population standard deviation from a running sum, mean and sum of squared deviations.
#[derive(Clone, Default)]
struct StdDev {
    count: i64,
    sum: f64,
    mean: f64,
    squares: f64,
}

impl Aggregator for StdDev {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        let Some(x) = args[0].as_f64() else { return Ok(()) };
        self.count += 1;
        if self.count == 1 {
            (self.sum, self.mean, self.squares) = (x, x, 0.0);
        } else {
            let before = self.mean;
            self.sum += x;
            self.mean = self.sum / self.count as f64;
            self.squares += (x - before) * (x - self.mean);
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        let Some(x) = args[0].as_f64() else { return Ok(()) };
        self.count -= 1;
        if self.count == 0 {
            self.reset();
        } else {
            let before = self.mean;
            self.sum -= x;
            self.mean = self.sum / self.count as f64;
            self.squares -= (x - before) * (x - self.mean);
        }
        Ok(())
    }

    fn reset(&mut self) {
        *self = Self::default();
    }

    fn value(&self) -> Value {
        match self.count {
            ..=0 => Value::Null,
            // hides the rounding error that removals leave in the squares
            1 => Value::Double(0.0),
            // rounding may also make the squares of equal values negative
            _ if self.squares < 0.0 => Value::Double(0.0),
            count => Value::Double((self.squares / count as f64).sqrt()),
        }
    }

    fn save(&self) -> Json {
        let numbers = [self.sum, self.mean, self.squares].map(f64::to_bits);
        json!([self.count, numbers])
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let (count, [sum, mean, squares]) =
            <(i64, [u64; 3])>::deserialize(state).map_err(|_| foreign_state())?;
        let [sum, mean, squares] = [sum, mean, squares].map(f64::from_bits);
        *self = Self { count, sum, mean, squares };
        Ok(())
    }
}

/// Percentile: the value at 1-based position `percent / 100 * n` of `n` sorted values, rounded half up. If
/// the position is a whole number, the mean of this value and the next one.
#[derive(Clone)]
struct Percentile {
    sorted: Vec<f64>,
    percent: f64,
}

impl Aggregator for Percentile {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some(x) = args[0].as_f64() {
            check_capacity(self.sorted.len(), VALUES_MAX)?;
            let at = self.sorted.partition_point(|held| held.total_cmp(&x).is_lt());
            self.sorted.insert(at, x);
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some(x) = args[0].as_f64()
            && let Ok(at) = self.sorted.binary_search_by(|held| held.total_cmp(&x))
        {
            self.sorted.remove(at);
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.sorted.clear();
    }

    fn value(&self) -> Value {
        let count = self.sorted.len();
        let place = self.percent * count as f64 / 100.0;
        let at = |place: usize| self.sorted.get(place.max(1) - 1).copied();
        let value = match (at(place as usize), at(place as usize + 1)) {
            (Some(one), Some(next)) if place.fract() == 0.0 => Some(f64::midpoint(one, next)),
            (last, None) => last,
            _ => at(place.round() as usize),
        };
        value.map_or(Value::Null, Value::Double)
    }

    fn save(&self) -> Json {
        self.sorted.iter().map(|x| x.to_bits()).collect()
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let bits = Vec::<u64>::deserialize(state).map_err(|_| foreign_state())?;
        self.sorted = bits.into_iter().map(f64::from_bits).collect();
        self.sorted.sort_by(f64::total_cmp);
        Ok(())
    }
}
