//! `stdDev`, `math:percentile`.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{VALUES_MAX, add, copies, foreign, has_room};
use crate::expr::Failure;
use crate::registry::{Aggregator, Registry};
use crate::value::Value;

pub(super) fn register(registry: &mut Registry) {
    add(registry, "stdDev", &["number x -> double"], |_| copies(StdDev::default()));
    add(registry, "math:percentile", &["number x, const double percent -> double"], |args| {
        let percent = args.get(1).and_then(|a| a.constant.as_ref()).and_then(Value::as_f64);
        match percent {
            Some(percent) if percent > 0.0 && percent <= 100.0 => {
                copies(Percentile { sorted: vec![], percent })
            }
            _ => Err("`percent` is to be above 0 and at most 100".into()),
        }
    });
}

/// The standard deviation of all that is held, with running mean and sum of squared distances from it.
#[derive(Clone, Default)]
struct StdDev {
    count: u64,
    sum: f64,
    mean: f64,
    squares: f64,
}

impl Aggregator for StdDev {
    fn add(&mut self, args: &[Value]) -> Result<(), Failure> {
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

    fn remove(&mut self, args: &[Value]) -> Result<(), Failure> {
        let Some(x) = args[0].as_f64() else { return Ok(()) };
        self.count = self.count.saturating_sub(1);
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
            0 => Value::Null,
            // what rounding leaves of the squares of one value is not to be seen
            1 => Value::Double(0.0),
            count => Value::Double((self.squares.max(0.0) / count as f64).sqrt()),
        }
    }

    fn save(&self) -> Json {
        json!([self.count, self.sum.to_bits(), self.mean.to_bits(), self.squares.to_bits()])
    }

    fn restore(&mut self, state: &Json) -> Result<(), Failure> {
        let [count, sum, mean, squares] = <[u64; 4]>::deserialize(state).map_err(|_| foreign())?;
        let [sum, mean, squares] = [sum, mean, squares].map(f64::from_bits);
        *self = Self { count, sum, mean, squares };
        Ok(())
    }
}

/// The value at place `percent / 100 * (n + 1)` of the `n` values held in order, between two values in proportion.
#[derive(Clone)]
struct Percentile {
    sorted: Vec<f64>,
    percent: f64,
}

impl Aggregator for Percentile {
    fn add(&mut self, args: &[Value]) -> Result<(), Failure> {
        if let Some(x) = args[0].as_f64() {
            has_room(self.sorted.len(), VALUES_MAX)?;
            let at = self.sorted.partition_point(|held| held.total_cmp(&x).is_lt());
            self.sorted.insert(at, x);
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), Failure> {
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
        let (Some(first), Some(last)) = (self.sorted.first(), self.sorted.last()) else { return Value::Null };
        let count = self.sorted.len();
        let place = self.percent / 100.0 * (count + 1) as f64;
        let below = place.floor();
        Value::Double(if below < 1.0 {
            *first
        } else if below >= count as f64 {
            *last
        } else {
            let i = below as usize;
            let (low, high) = (self.sorted[i - 1], self.sorted[i]);
            low + (place - below) * (high - low)
        })
    }

    fn save(&self) -> Json {
        self.sorted.iter().map(|x| x.to_bits()).collect()
    }

    fn restore(&mut self, state: &Json) -> Result<(), Failure> {
        let bits = Vec::<u64>::deserialize(state).map_err(|_| foreign())?;
        self.sorted = bits.into_iter().map(f64::from_bits).collect();
        self.sorted.sort_by(f64::total_cmp);
        Ok(())
    }
}
