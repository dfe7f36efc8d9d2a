//! A single value: result of row-at-a-time evaluation, and element of objects.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::{FieldType, Timestamp};

/// A value of SiddhiQL.
#[derive(Debug, Clone, Default)]
pub enum Value {
    /// Null, of any type.
    #[default]
    Null,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i32),
    /// `long`
    Long(i64),
    /// `float`
    Float(f32),
    /// `double`
    Double(f64),
    /// `string`
    Str(Arc<str>),
    /// `object`
    Object(OpaqueValue),
}

/// A value whose content only functions access.
///
/// A function that changes an object changes it for all its holders, as in Siddhi 5.1; hence the locks.
#[derive(Debug, Clone)]
pub enum OpaqueValue {
    /// A list.
    List(Arc<Mutex<Vec<Value>>>),
    /// A map.
    Map(Arc<Mutex<BTreeMap<Key, Value>>>),
    /// A set.
    Set(Arc<Mutex<BTreeMap<Key, u64>>>),
    /// A JSON document.
    Json(Arc<serde_json::Value>),
}

impl OpaqueValue {
    /// Creates a list.
    pub fn list(items: Vec<Value>) -> Self {
        Self::List(Arc::new(Mutex::new(items)))
    }

    /// Creates a map.
    pub fn map(entries: BTreeMap<Key, Value>) -> Self {
        Self::Map(Arc::new(Mutex::new(entries)))
    }
}

/// Compares numbers; all NaNs are equal, and greater than other numbers.
#[inline]
pub(crate) fn order(a: f64, b: f64) -> Ordering {
    // arithmetic yields NaNs of either sign
    let [a, b] = [a, b].map(|x| if x.is_nan() { f64::NAN } else { x });
    a.total_cmp(&b)
}

/// A value in a map or set: ordered first by type, and equal only to a value of the same type.
#[derive(Debug, Clone)]
pub struct Key(pub Value);

impl Key {
    fn rank(&self) -> u8 {
        match self.0 {
            Value::Null => 0,
            Value::Bool(_) => 1,
            Value::Int(_) => 2,
            Value::Long(_) => 3,
            Value::Float(_) => 4,
            Value::Double(_) => 5,
            Value::Str(_) => 6,
            Value::Object(_) => 7,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Long(a), Value::Long(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => order(f64::from(*a), f64::from(*b)),
            (Value::Double(a), Value::Double(b)) => order(*a, *b),
            (Value::Str(a), Value::Str(b)) => a.cmp(b),
            (Value::Object(_), Value::Object(_)) => self.0.to_string().cmp(&other.0.to_string()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl Value {
    /// Creates a string value.
    pub fn text(text: &str) -> Self {
        Self::Str(text.into())
    }

    /// Returns whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the value as a condition; null is false.
    pub fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    /// Returns a number as a double; `None` for other types.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(f64::from(*n)),
            Self::Long(n) => Some(*n as f64),
            Self::Float(n) => Some(f64::from(*n)),
            Self::Double(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns a whole number as a long; `None` for other types.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(i64::from(*n)),
            Self::Long(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns a string; `None` for other types.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the type; `None` for null.
    pub fn ty(&self) -> Option<FieldType> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(_) => FieldType::Bool,
            Self::Int(_) => FieldType::Int,
            Self::Long(_) => FieldType::Long,
            Self::Float(_) => FieldType::Float,
            Self::Double(_) => FieldType::Double,
            Self::Str(_) => FieldType::String,
            Self::Object(_) => FieldType::Object,
        })
    }

    /// Widens a number to type `ty`, in the order int, long, float, double. Returns any other value
    /// unchanged.
    pub fn widen(self, ty: FieldType) -> Self {
        match (ty, &self) {
            (FieldType::Long, Self::Int(n)) => Self::Long(i64::from(*n)),
            (FieldType::Float, Self::Int(n)) => Self::Float(*n as f32),
            (FieldType::Float, Self::Long(n)) => Self::Float(*n as f32),
            (FieldType::Double, _) => self.as_f64().map_or(self, Self::Double),
            _ => self,
        }
    }
}

/// Formats the value as `convert(x, 'string')` does; null is `null`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(b) => b.fmt(f),
            Self::Int(n) => n.fmt(f),
            Self::Long(n) => n.fmt(f),
            Self::Float(n) => f.write_str(&decimal(f64::from(*n), &format!("{n:e}"))),
            Self::Double(n) => f.write_str(&decimal(*n, &format!("{n:e}"))),
            Self::Str(s) => f.write_str(s),
            Self::Object(o) => o.fmt(f),
        }
    }
}

impl fmt::Display for OpaqueValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(list) => {
                let items: Vec<String> = list.lock().iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Map(map) => {
                let entries: Vec<String> = map.lock().iter().map(|(k, v)| format!("{}={v}", k.0)).collect();
                write!(f, "{{{}}}", entries.join(", "))
            }
            Self::Set(set) => {
                let items: Vec<String> = set.lock().keys().map(|k| k.0.to_string()).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Json(json) => json.fmt(f),
        }
    }
}

/// Formats a floating-point number as Java does: plain from 1e-3 up to below 1e7, else scientific, always
/// with a point.
///
/// `shortest` is the shortest string that parses to the same number, in Rust's scientific form (`1.25e-7`).
fn decimal(n: f64, shortest: &str) -> String {
    if n.is_nan() {
        return "NaN".into();
    }
    if n.is_infinite() {
        return if n > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let (sign, shortest) = match shortest.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", shortest),
    };
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    // Java writes at least two digits: for the smallest numbers, which one digit identifies, the nearest two
    // digits
    let two = (digits.len() == 1 && n.abs() < 1e-40).then(|| format!("{:.1e}", n.abs()));
    let digits = match two.as_deref().and_then(|two| two.split_once('e')) {
        Some((two, power)) if power.parse() == Ok(exponent) => two.replace('.', ""),
        _ => digits,
    };
    let mut out = sign.to_owned();
    if n == 0.0 {
        out.push_str("0.0");
    } else if (-3..7).contains(&exponent) {
        let point = exponent + 1;
        if point <= 0 {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', point.unsigned_abs() as usize));
            out.push_str(&digits);
        } else {
            let point = point as usize;
            let whole: String = digits.chars().chain(std::iter::repeat('0')).take(point).collect();
            let rest = digits.get(point..).filter(|r| !r.is_empty()).unwrap_or("0");
            let _ = write!(out, "{whole}.{rest}");
        }
    } else {
        let rest = digits.get(1..).filter(|r| !r.is_empty()).unwrap_or("0");
        let _ = write!(out, "{}.{rest}E{exponent}", &digits[..1]);
    }
    out
}

/// Minimum number of milliseconds that is shown as a date, in 1973. Recorded runs often count from 0.
const DATES_MIN_MS: i64 = 100_000_000_000;

/// Formats an instant: milliseconds, or a date in UTC.
pub fn format_time(ms: i64) -> String {
    match ms.checked_mul(1000).filter(|_| ms >= DATES_MIN_MS) {
        Some(micros) => Timestamp(micros).to_string(),
        None => ms.to_string(),
    }
}

/// Returns the widening rank of a numeric type, or `None` for other types.
pub(crate) fn numeric_rank(ty: FieldType) -> Option<u8> {
    Some(match ty {
        FieldType::Int => 0,
        FieldType::Long => 1,
        FieldType::Float => 2,
        FieldType::Double => 3,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_as_java_does() {
        for (n, text) in [
            (1.0, "1.0"),
            (100.0, "100.0"),
            (1e10, "1.0E10"),
            (1e-5, "1.0E-5"),
            (12_345_678.9, "1.23456789E7"),
            (9_999_999.0, "9999999.0"),
            (0.001, "0.001"),
            (0.012, "0.012"),
            (-0.25, "-0.25"),
            (5e-324, "4.9E-324"),
            (2e23, "2.0E23"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(Value::Double(n).to_string(), text);
        }
        assert_eq!(Value::Float(0.1).to_string(), "0.1");
        assert_eq!(Value::Float(1e-45).to_string(), "1.4E-45");
        assert_eq!(Value::Float(16_777_216.0).to_string(), "1.6777216E7");
    }
}
