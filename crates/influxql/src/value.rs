//! Values of fields and tags, and calculations with them.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use crate::syntax::{BinaryOperator, Cast, Expr};

/// Value of a field or a tag.
#[derive(Debug, Clone, PartialEq)]
pub enum InfluxValue {
    /// 64-bit float.
    Float(f64),
    /// 64-bit integer.
    Integer(i64),
    /// Text.
    Text(Arc<str>),
    /// True or false.
    Boolean(bool),
}

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Tag: a text. The others are fields.
    Tag,
    /// True or false.
    Boolean,
    /// Text.
    Text,
    /// 64-bit integer.
    Integer,
    /// 64-bit float.
    Float,
}

impl Kind {
    /// Returns the name in `SHOW FIELD KEYS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Boolean => "boolean",
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Float => "float",
        }
    }

    /// Returns whether it is a number.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Float)
    }
}

impl InfluxValue {
    /// Returns the number as a float.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Integer(value) => Some(*value as f64),
            _ => None,
        }
    }

    /// Orders values of one type; numbers of both types together.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Boolean(a), Self::Boolean(b)) => a.cmp(b),
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => Ordering::Equal,
            },
        }
    }

    /// Returns the bytes that it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Option<Self>>() + if let Self::Text(text) = self { text.len() } else { 0 }
    }

    /// Returns the value converted to the type behind `::`; null if InfluxDB has no such conversion.
    pub(crate) fn cast(self, cast: Cast) -> Option<Self> {
        match (self, cast) {
            (Self::Integer(value), Cast::Float) => Some(Self::Float(value as f64)),
            (Self::Float(value), Cast::Integer) => Some(Self::Integer(value as i64)),
            (value @ Self::Float(_), Cast::Float | Cast::Field) => Some(value),
            (value @ Self::Integer(_), Cast::Integer | Cast::Field) => Some(value),
            (value @ Self::Text(_), Cast::String | Cast::Field | Cast::Tag) => Some(value),
            (value @ Self::Boolean(_), Cast::Boolean | Cast::Field) => Some(value),
            _ => None,
        }
    }
}

/// Scalar functions, by name, with the number of their arguments.
pub(crate) const SCALAR_FUNCTIONS: &[(&str, usize)] = &[
    ("abs", 1),
    ("acos", 1),
    ("asin", 1),
    ("atan", 1),
    ("atan2", 2),
    ("ceil", 1),
    ("cos", 1),
    ("exp", 1),
    ("floor", 1),
    ("ln", 1),
    ("log", 2),
    ("log10", 1),
    ("log2", 1),
    ("pow", 2),
    ("round", 1),
    ("sin", 1),
    ("sqrt", 1),
    ("tan", 1),
];

/// Evaluator of expressions over one row.
#[derive(Debug, Default)]
pub(crate) struct Evaluator {
    patterns: HashMap<String, Regex>,
    /// True if integers divide to whole numbers, as they do in conditions.
    is_condition: bool,
}

impl Evaluator {
    /// Creates an evaluator of a condition.
    pub fn new(expr: Option<&Expr>) -> Self {
        let mut patterns = HashMap::new();
        if let Some(expr) = expr {
            expr.walk(&mut |part| {
                // the parser has refused what does not compile
                if let Expr::Regex(pattern) = part
                    && let Ok(compiled) = crate::pattern::compile(pattern)
                {
                    patterns.insert(pattern.clone(), compiled);
                }
            });
        }
        Self { patterns, is_condition: true }
    }

    /// Returns whether a row meets a condition. `lookup` returns the value of a name.
    pub fn meets(
        &self,
        condition: &Expr,
        lookup: &dyn Fn(&str, Option<Cast>) -> Option<InfluxValue>,
    ) -> bool {
        self.value(condition, lookup) == Some(InfluxValue::Boolean(true))
    }

    /// Returns the value of an expression; `None` is null.
    pub fn value(
        &self,
        expr: &Expr,
        lookup: &dyn Fn(&str, Option<Cast>) -> Option<InfluxValue>,
    ) -> Option<InfluxValue> {
        match expr {
            Expr::Name(name, cast) => lookup(name, *cast),
            Expr::Integer(value) | Expr::Duration(value) => Some(InfluxValue::Integer(*value)),
            Expr::Float(value) => Some(InfluxValue::Float(*value)),
            Expr::Text(value) => Some(InfluxValue::Text(value.as_str().into())),
            Expr::Boolean(value) => Some(InfluxValue::Boolean(*value)),
            Expr::Paren(inner) => self.value(inner, lookup),
            Expr::Call(function, arguments) => {
                let first = self.value(arguments.first()?, lookup)?;
                let second = arguments.get(1).map(|argument| self.value(argument, lookup));
                match second {
                    None => scalar(function, &first, None),
                    Some(second) => scalar(function, &first, Some(&second?)),
                }
            }
            Expr::Binary(operator @ (BinaryOperator::Matches | BinaryOperator::MatchesNot), left, right) => {
                let (Some(InfluxValue::Text(text)), Expr::Regex(pattern)) =
                    (self.value(left, lookup), right.bare())
                else {
                    return Some(InfluxValue::Boolean(false));
                };
                let matches = self.patterns.get(pattern).is_some_and(|pattern| pattern.is_match(&text));
                Some(InfluxValue::Boolean(matches == (*operator == BinaryOperator::Matches)))
            }
            Expr::Binary(operator, left, right) => {
                let left = self.value(left, lookup);
                let is_decided = match operator {
                    BinaryOperator::And => left != Some(InfluxValue::Boolean(true)),
                    BinaryOperator::Or => left == Some(InfluxValue::Boolean(true)),
                    _ => false,
                };
                if is_decided {
                    return Some(InfluxValue::Boolean(*operator == BinaryOperator::Or));
                }
                let right = self.value(right, lookup);
                if let (
                    BinaryOperator::Divide,
                    true,
                    Some(InfluxValue::Integer(a)),
                    Some(InfluxValue::Integer(b)),
                ) = (operator, self.is_condition, &left, &right)
                {
                    return Some(InfluxValue::Integer(if *b == 0 { 0 } else { a.wrapping_div(*b) }));
                }
                binary(*operator, left, right)
            }
            Expr::Wildcard(_) | Expr::Regex(_) | Expr::Distinct(_) => None,
        }
    }
}

/// Calculates a scalar function.
fn scalar(function: &str, first: &InfluxValue, second: Option<&InfluxValue>) -> Option<InfluxValue> {
    if let (InfluxValue::Integer(value), "abs" | "ceil" | "floor" | "round") = (first, function) {
        return Some(InfluxValue::Integer(if function == "abs" { value.wrapping_abs() } else { *value }));
    }
    if let (InfluxValue::Integer(base), Some(InfluxValue::Integer(exponent)), "pow") =
        (first, second, function)
    {
        return Some(InfluxValue::Integer((*base as f64).powf(*exponent as f64) as i64));
    }
    let x = first.number()?;
    let y = second.map(InfluxValue::number);
    let value = match function {
        "abs" => x.abs(),
        "acos" => x.acos(),
        "asin" => x.asin(),
        "atan" => x.atan(),
        "atan2" => x.atan2(y??),
        "ceil" => x.ceil(),
        "cos" => x.cos(),
        "exp" => x.exp(),
        "floor" => x.floor(),
        "ln" => x.ln(),
        "log" => x.ln() / y??.ln(),
        "log10" => x.log10(),
        "log2" => x.log2(),
        "pow" => x.powf(y??),
        "round" => x.round(),
        "sin" => x.sin(),
        "sqrt" => x.sqrt(),
        "tan" => x.tan(),
        _ => return None,
    };
    Some(InfluxValue::Float(value)).filter(|_| value.is_finite())
}

/// Calculates an operator. A comparison of different types is false, and so is one with null; a division by zero is 0.
pub(crate) fn binary(
    operator: BinaryOperator,
    left: Option<InfluxValue>,
    right: Option<InfluxValue>,
) -> Option<InfluxValue> {
    use BinaryOperator as Op;
    if operator.is_comparison() {
        let (Some(left), Some(right)) = (left, right) else { return Some(InfluxValue::Boolean(false)) };
        return Some(InfluxValue::Boolean(compare(operator, &left, &right)));
    }
    if let (Op::And | Op::Or, left, right) = (operator, &left, &right) {
        let is_true = |value: &Option<InfluxValue>| *value == Some(InfluxValue::Boolean(true));
        let both = [is_true(left), is_true(right)];
        return Some(InfluxValue::Boolean(if operator == Op::And {
            both[0] && both[1]
        } else {
            both[0] || both[1]
        }));
    }
    match (left?, right?) {
        (InfluxValue::Integer(a), InfluxValue::Integer(b)) => Some(match operator {
            Op::Add => InfluxValue::Integer(a.wrapping_add(b)),
            Op::Subtract => InfluxValue::Integer(a.wrapping_sub(b)),
            Op::Multiply => InfluxValue::Integer(a.wrapping_mul(b)),
            Op::Divide => InfluxValue::Float(if b == 0 { 0.0 } else { a as f64 / b as f64 }),
            Op::Modulo => InfluxValue::Integer(if b == 0 { 0 } else { a.wrapping_rem(b) }),
            Op::BitAnd => InfluxValue::Integer(a & b),
            Op::BitOr => InfluxValue::Integer(a | b),
            Op::BitXor => InfluxValue::Integer(a ^ b),
            _ => return None,
        }),
        (InfluxValue::Boolean(a), InfluxValue::Boolean(b)) => Some(InfluxValue::Boolean(match operator {
            Op::BitAnd => a & b,
            Op::BitOr => a | b,
            Op::BitXor => a ^ b,
            _ => return None,
        })),
        (left, right) => {
            let (a, b) = (left.number()?, right.number()?);
            Some(InfluxValue::Float(match operator {
                Op::Add => a + b,
                Op::Subtract => a - b,
                Op::Multiply => a * b,
                Op::Divide => {
                    if b == 0.0 {
                        0.0
                    } else {
                        a / b
                    }
                }
                Op::Modulo => a % b,
                _ => return None,
            }))
        }
    }
}

fn compare(operator: BinaryOperator, left: &InfluxValue, right: &InfluxValue) -> bool {
    use BinaryOperator as Op;
    let order = match (left, right) {
        (InfluxValue::Boolean(a), InfluxValue::Boolean(b)) => {
            return match operator {
                Op::Equal => a == b,
                Op::NotEqual => a != b,
                _ => false,
            };
        }
        // texts are equal or not, and have no order
        (InfluxValue::Text(a), InfluxValue::Text(b)) => {
            return match operator {
                Op::Equal => a == b,
                Op::NotEqual => a != b,
                _ => false,
            };
        }
        (InfluxValue::Integer(a), InfluxValue::Integer(b)) => Some(a.cmp(b)),
        _ => match (left.number(), right.number()) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => return false,
        },
    };
    match (operator, order) {
        (Op::NotEqual, order) => order != Some(Ordering::Equal),
        (_, None) => false,
        (Op::Equal, Some(order)) => order.is_eq(),
        (Op::Less, Some(order)) => order.is_lt(),
        (Op::LessOrEqual, Some(order)) => order.is_le(),
        (Op::Greater, Some(order)) => order.is_gt(),
        (Op::GreaterOrEqual, Some(order)) => order.is_ge(),
        _ => false,
    }
}
