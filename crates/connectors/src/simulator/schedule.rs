//! When events come.

use std::time::Duration;

use tidemill_connect::{OptionError, Options};

/// Rate of the events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Schedule {
    /// As many as the engine takes.
    Unlimited,
    /// Always the same rate.
    Constant { rate: f64 },
    /// A rate that changes evenly during a period, and then stays.
    Ramp { from: f64, to: f64, period: f64 },
    /// Another rate at the beginning of each period.
    Burst { rate: f64, burst: f64, length: f64, period: f64 },
    /// A rate that swings.
    Sine { rate: f64, amplitude: f64, period: f64 },
}

impl Schedule {
    pub(super) const SHAPES: &'static [&'static str] = &["constant", "ramp", "burst", "sine"];

    pub(super) fn new(options: &Options) -> Result<Self, OptionError> {
        let shape = options.text("shape").to_ascii_lowercase();
        for (name, needed) in
            [("rate.to", "ramp"), ("burst.rate", "burst"), ("burst.length", "burst"), ("amplitude", "sine")]
        {
            if options.is_written(name) && shape != needed {
                let message = format!("it needs shape='{needed}'");
                return Err(
                    OptionError::option(name, message.clone()).expected([format!("shape='{needed}'")])
                );
            }
        }
        let is_unlimited = options.text("rate").trim().eq_ignore_ascii_case("max");
        if is_unlimited && shape != "constant" {
            return Err(OptionError::option("rate", format!("the shape `{shape}` needs a number")));
        }
        if is_unlimited {
            return Ok(Self::Unlimited);
        }
        let rate = number(options, "rate")?;
        let period = options.duration("period").unwrap_or_default().as_secs_f64();
        if period <= 0.0 {
            return Err(OptionError::option("period", "expected a time above 0"));
        }
        let required = |name: &str| match options.get(name) {
            Some(_) => number(options, name),
            None => Err(OptionError::connector(format!("the shape `{shape}` needs the option `{name}`"))
                .expected([format!("{name}='…'")])),
        };
        let schedule = match shape.as_str() {
            "ramp" => Self::Ramp { from: rate, to: required("rate.to")?, period },
            "burst" => {
                let length = options.duration("burst.length").unwrap_or_default().as_secs_f64();
                if length <= 0.0 || length >= period {
                    return Err(OptionError::option(
                        "burst.length",
                        "expected a time above 0 and below `period`",
                    ));
                }
                Self::Burst { rate, burst: required("burst.rate")?, length, period }
            }
            "sine" => {
                let amplitude =
                    if options.is_written("amplitude") { number(options, "amplitude")? } else { rate / 2.0 };
                if amplitude > rate {
                    return Err(OptionError::option("amplitude", "expected a number up to `rate`"));
                }
                Self::Sine { rate, amplitude, period }
            }
            _ => Self::Constant { rate },
        };
        match schedule.is_endless() {
            true => Ok(schedule),
            false => Err(OptionError::option("rate", "no events would come with a rate of 0")),
        }
    }

    /// Returns whether each event comes at some time.
    fn is_endless(&self) -> bool {
        match *self {
            Self::Unlimited => true,
            Self::Constant { rate } | Self::Sine { rate, .. } => rate > 0.0,
            Self::Ramp { to, .. } => to > 0.0,
            Self::Burst { rate, burst, .. } => rate > 0.0 || burst > 0.0,
        }
    }

    /// Returns how many events come in the first `seconds`. It never decreases.
    pub(super) fn count(&self, seconds: f64) -> f64 {
        match *self {
            Self::Unlimited => f64::INFINITY,
            Self::Constant { rate } => rate * seconds,
            Self::Ramp { from, to, period } => {
                let during = seconds.min(period);
                from * during + (to - from) * during * during / (2.0 * period) + to * (seconds - during)
            }
            Self::Burst { rate, burst, length, period } => {
                let (periods, rest) = ((seconds / period).floor(), seconds % period);
                let each = burst * length + rate * (period - length);
                periods * each + burst * rest.min(length) + rate * (rest - length).max(0.0)
            }
            Self::Sine { rate, amplitude, period } => {
                let turn = std::f64::consts::TAU / period;
                rate * seconds + amplitude / turn * (1.0 - (turn * seconds).cos())
            }
        }
    }

    /// Returns when event number `event` comes, counted from the first one.
    pub(super) fn time_of(&self, event: u64) -> Duration {
        let event = event as f64;
        match *self {
            Self::Unlimited => return Duration::ZERO,
            Self::Constant { rate } => return duration(event / rate),
            _ => {}
        }
        let (mut low, mut high) = (0.0, 1.0);
        while self.count(high) < event && high < 1e15 {
            high *= 2.0;
        }
        for _ in 0..80 {
            let middle = (low + high) / 2.0;
            match self.count(middle) < event {
                true => low = middle,
                false => high = middle,
            }
        }
        duration(high)
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Returns the value of an option that is a number of events in a second.
fn number(options: &Options, name: &str) -> Result<f64, OptionError> {
    let text = options.text(name).trim();
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1e9).contains(&rate) => Ok(rate),
        _ => {
            let message =
                format!("expected a number of events in a second, from 0 to 1000000000, found `{text}`");
            Err(OptionError::option(name, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [Schedule; 5] = [
        Schedule::Constant { rate: 10.0 },
        Schedule::Ramp { from: 0.0, to: 100.0, period: 10.0 },
        Schedule::Ramp { from: 100.0, to: 10.0, period: 5.0 },
        Schedule::Burst { rate: 1.0, burst: 50.0, length: 2.0, period: 10.0 },
        Schedule::Sine { rate: 20.0, amplitude: 20.0, period: 8.0 },
    ];

    #[test]
    fn counts_of_shapes() {
        for (shape, seconds, expected) in [
            (SHAPES[0], 2.5, 25.0),
            (SHAPES[1], 10.0, 500.0),
            (SHAPES[1], 12.0, 700.0),
            (SHAPES[2], 5.0, 275.0),
            (SHAPES[3], 1.0, 50.0),
            (SHAPES[3], 10.0, 108.0),
            (SHAPES[3], 21.0, 266.0),
            (SHAPES[4], 8.0, 160.0),
        ] {
            assert!((shape.count(seconds) - expected).abs() < 1e-6, "{shape:?} {seconds}");
        }
    }

    #[test]
    fn times_are_the_inverse_of_counts() {
        for shape in SHAPES {
            let mut last = Duration::ZERO;
            for event in 0..1000 {
                let time = shape.time_of(event);
                assert!(time >= last, "{shape:?} {event}");
                assert!((shape.count(time.as_secs_f64()) - event as f64).abs() < 1e-3, "{shape:?} {event}");
                last = time;
            }
        }
        assert!(SHAPES[0].time_of(u64::MAX) > Duration::from_secs(1_000_000));
        assert_eq!(Schedule::Constant { rate: 1e-300 }.time_of(1), Duration::MAX);
    }
}
