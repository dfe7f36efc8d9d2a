//! A borrowed value.

use tidemill_types::FieldType;

use crate::columns::value::{OpaqueValue, Value};

/// A value that borrows its string or object.
#[derive(Debug, Clone, Copy, Default)]
pub enum ValueRef<'a> {
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
    Str(&'a str),
    /// `object`
    Object(&'a OpaqueValue),
}

impl<'a> ValueRef<'a> {
    /// Returns whether the value is null.
    #[inline]
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    /// Returns the value as a condition; null is false.
    #[inline]
    pub fn is_true(self) -> bool {
        matches!(self, Self::Bool(true))
    }

    /// Returns a number as a double; `None` for other types.
    #[inline]
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(f64::from(n)),
            Self::Long(n) => Some(n as f64),
            Self::Float(n) => Some(f64::from(n)),
            Self::Double(n) => Some(n),
            _ => None,
        }
    }

    /// Returns a number other than a double as a float; `None` for other types.
    #[inline]
    pub(crate) fn as_f32(self) -> Option<f32> {
        match self {
            Self::Int(n) => Some(n as f32),
            Self::Long(n) => Some(n as f32),
            Self::Float(n) => Some(n),
            _ => None,
        }
    }

    /// Returns a whole number as a long; `None` for other types.
    #[inline]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(i64::from(n)),
            Self::Long(n) => Some(n),
            _ => None,
        }
    }

    /// Returns a string; `None` for other types.
    #[inline]
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns whether an attribute of type `ty` may have the value.
    #[inline]
    pub fn fits(self, ty: FieldType) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(_) => ty == FieldType::Bool,
            Self::Int(_) => ty == FieldType::Int,
            Self::Long(_) => matches!(ty, FieldType::Long | FieldType::Time),
            Self::Float(_) => ty == FieldType::Float,
            Self::Double(_) => ty == FieldType::Double,
            Self::Str(_) => matches!(ty, FieldType::String | FieldType::Object),
            Self::Object(_) => ty == FieldType::Object,
        }
    }

    /// Returns the value with a string or object of its own.
    pub fn to_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(x) => Value::Bool(x),
            Self::Int(x) => Value::Int(x),
            Self::Long(x) => Value::Long(x),
            Self::Float(x) => Value::Float(x),
            Self::Double(x) => Value::Double(x),
            Self::Str(text) => Value::text(text),
            Self::Object(object) => Value::Object(object.clone()),
        }
    }
}

impl Value {
    /// Borrows the value.
    #[inline]
    pub fn borrowed(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Bool(x) => ValueRef::Bool(*x),
            Self::Int(x) => ValueRef::Int(*x),
            Self::Long(x) => ValueRef::Long(*x),
            Self::Float(x) => ValueRef::Float(*x),
            Self::Double(x) => ValueRef::Double(*x),
            Self::Str(text) => ValueRef::Str(text),
            Self::Object(object) => ValueRef::Object(object),
        }
    }
}
