//! Values of fields, as expressions of the number of the event, its time, other fields and random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

use super::random::Random;

/// Value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SimValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl SimValue {
    pub(super) fn number(&self) -> f64 {
        match self {
            Self::Bool(b) => f64::from(u8::from(*b)),
            Self::Int(n) => *n as f64,
            Self::Float(x) => *x,
            Self::Text(text) => text.trim().parse().unwrap_or(f64::NAN),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Bool(b) => b.to_string(),
            Self::Int(n) => n.to_string(),
            Self::Float(x) => x.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SimExpr {
    Value(SimValue),
    /// Number of the event, from 0.
    Number,
    /// Seconds since the first event.
    Seconds,
    /// Another field, which comes before.
    Field(usize),
    Binary(Box<SimExpr>, char, Box<SimExpr>),
    Call {
        function: SimFunction,
        arguments: Vec<SimExpr>,
        /// Tells the random numbers of calls apart.
        place: usize,
    },
}

/// Functions, with the smallest and the greatest number of arguments.
macro_rules! functions {
    ($($variant:ident $name:literal $min:literal $max:literal,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum SimFunction {
            $($variant,)+
        }

        impl SimFunction {
            pub(super) const NAMES: &'static [&'static str] = &[$($name,)+];

            pub(super) fn find(name: &str) -> Option<(Self, std::ops::RangeInclusive<usize>)> {
                match name {
                    $($name => Some((Self::$variant, $min..=$max)),)+
                    _ => None,
                }
            }
        }
    };
}

functions! {
    Abs "abs" 1 1,
    Chance "chance" 0 1,
    Choice "choice" 1 1000,
    Cos "cos" 1 1,
    Floor "floor" 1 1,
    Max "max" 2 2,
    Min "min" 2 2,
    Normal "normal" 0 2,
    Now "now" 0 0,
    Round "round" 1 2,
    Sequence "sequence" 0 2,
    Sin "sin" 1 1,
    Time "time" 0 0,
    Uniform "uniform" 0 2,
    Uuid "uuid" 0 0,
    Walk "walk" 2 4,
}

/// Values that an expression refers to.
pub(super) struct SimContext<'a> {
    pub random: Random,
    /// Time of the event: seconds since the first one, and milliseconds since 1970.
    pub seconds: f64,
    pub time_ms: i64,
    /// Values of the fields before.
    pub fields: &'a [SimValue],
    pub walks: &'a mut Walks,
}

/// Values of random walks by their places, at the same event.
#[derive(Debug, Default)]
pub(super) struct Walks(std::collections::BTreeMap<usize, (u64, f64)>);

impl Walks {
    /// Returns the value of a walk at an event: from where it was, or from its start.
    fn value(&mut self, place: usize, random: Random, walk: Walk) -> f64 {
        let (mut at, mut value) = match self.0.get(&place) {
            Some((at, value)) if *at <= random.event => (*at, *value),
            _ => (0, walk.start),
        };
        while at < random.event {
            at += 1;
            let step = Random { event: at, ..random }.unit(place, 0) * 2.0 - 1.0;
            value = (value + step * walk.step).clamp(walk.min, walk.max);
        }
        self.0.insert(place, (at, value));
        value
    }
}

struct Walk {
    start: f64,
    step: f64,
    min: f64,
    max: f64,
}

impl SimExpr {
    pub(super) fn eval(&self, context: &mut SimContext<'_>) -> SimValue {
        match self {
            Self::Value(value) => value.clone(),
            Self::Number => SimValue::Int(context.random.event as i64),
            Self::Seconds => SimValue::Float(context.seconds),
            Self::Field(index) => context.fields.get(*index).cloned().unwrap_or(SimValue::Int(0)),
            Self::Binary(left, operator, right) => {
                let (left, right) = (left.eval(context), right.eval(context));
                binary(&left, *operator, &right)
            }
            Self::Call { function, arguments, place } => {
                let arguments: Vec<SimValue> = arguments.iter().map(|a| a.eval(context)).collect();
                call(*function, &arguments, *place, context)
            }
        }
    }
}

fn binary(left: &SimValue, operator: char, right: &SimValue) -> SimValue {
    use SimValue::{Float, Int, Text};
    match (left, operator, right) {
        (Text(_), '+', _) | (_, '+', Text(_)) => Text(left.text() + &right.text()),
        (Int(a), '+', Int(b)) => Int(a.wrapping_add(*b)),
        (Int(a), '-', Int(b)) => Int(a.wrapping_sub(*b)),
        (Int(a), '*', Int(b)) => Int(a.wrapping_mul(*b)),
        (Int(a), '%', Int(b)) if *b != 0 => Int(a.wrapping_rem(*b)),
        (_, '+', _) => Float(left.number() + right.number()),
        (_, '-', _) => Float(left.number() - right.number()),
        (_, '*', _) => Float(left.number() * right.number()),
        (_, '/', _) => Float(left.number() / right.number()),
        _ => Float(left.number() % right.number()),
    }
}

fn call(
    function: SimFunction,
    arguments: &[SimValue],
    place: usize,
    context: &mut SimContext<'_>,
) -> SimValue {
    use SimFunction as F;
    use SimValue::{Float, Int};
    let random = context.random;
    let number = |index: usize, default: f64| arguments.get(index).map_or(default, SimValue::number);
    match function {
        F::Abs => Float(number(0, 0.0).abs()),
        F::Chance => SimValue::Bool(random.unit(place, 0) < number(0, 0.5)),
        F::Choice => {
            let index = random.integer(place, 0, arguments.len() as i64 - 1) as usize;
            arguments.get(index).cloned().unwrap_or(Int(0))
        }
        F::Cos => Float(number(0, 0.0).cos()),
        F::Floor => Float(number(0, 0.0).floor()),
        F::Max => Float(number(0, 0.0).max(number(1, 0.0))),
        F::Min => Float(number(0, 0.0).min(number(1, 0.0))),
        F::Normal => Float(number(0, 0.0) + number(1, 1.0) * random.normal(place)),
        F::Now => Int(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as i64)),
        F::Round => {
            let factor = 10f64.powi(number(1, 0.0) as i32);
            Float((number(0, 0.0) * factor).round() / factor)
        }
        F::Sequence => match (arguments.first(), arguments.get(1)) {
            (None | Some(Int(_)), None | Some(Int(_))) => {
                let (start, step) = (number(0, 0.0) as i64, number(1, 1.0) as i64);
                Int(start.wrapping_add(step.wrapping_mul(random.event as i64)))
            }
            _ => Float(number(0, 0.0) + number(1, 1.0) * random.event as f64),
        },
        F::Sin => Float(number(0, 0.0).sin()),
        F::Time => Int(context.time_ms),
        F::Uniform => match (arguments.first(), arguments.get(1)) {
            (Some(Int(min)), Some(Int(max))) => Int(random.integer(place, *min, *max)),
            _ => {
                let (min, max) = (number(0, 0.0), number(1, 1.0));
                Float(min + (max - min) * random.unit(place, 0))
            }
        },
        F::Uuid => {
            let bits = (u128::from(random.bits(place, 0)) << 64) | u128::from(random.bits(place, 1));
            SimValue::Text(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string())
        }
        F::Walk => {
            let (min, max) = (number(2, f64::NEG_INFINITY), number(3, f64::INFINITY));
            let walk = Walk { start: number(0, 0.0), step: number(1, 1.0), min, max };
            Float(context.walks.value(place, random, walk))
        }
    }
}
