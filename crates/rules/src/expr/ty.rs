//! Static types of expressions.

use std::fmt;

use tidemill_types::FieldType;

/// The type of an expression. Fields of events have their declared type, fields of documents
/// [`ExprType::Any`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExprType {
    /// Known only at run time.
    Any,
    /// The constant `null`.
    Null,
    /// True or false.
    Bool,
    /// An integer.
    Int,
    /// A float.
    Float,
    /// A string.
    Str,
    /// An instant.
    Time,
    /// A span of time.
    Span,
    /// A document.
    Object,
    /// An array.
    Array,
}

impl ExprType {
    /// Returns the type of an event field. A field of type `object` may hold any JSON.
    pub fn of_field(ty: FieldType) -> Self {
        match ty {
            FieldType::Bool => Self::Bool,
            FieldType::Int | FieldType::Long => Self::Int,
            FieldType::Float | FieldType::Double => Self::Float,
            FieldType::String => Self::Str,
            FieldType::Time => Self::Time,
            FieldType::Object => Self::Any,
        }
    }

    /// Returns whether the type is an integer or a float.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::Float)
    }

    /// Returns whether a value of this type may be of type `other` at run time.
    pub fn may_be(self, other: ExprType) -> bool {
        self == other || self == Self::Any || other == Self::Any || (self.is_number() && other.is_number())
    }

    /// Returns the type that covers values of both, or `None` if it would mix types that do not compare.
    pub fn join(self, other: ExprType) -> Option<ExprType> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Self::Null, b) => Some(b),
            (a, Self::Null) => Some(a),
            (a, b) if a.is_number() && b.is_number() => Some(Self::Float),
            (Self::Any, _) | (_, Self::Any) => Some(Self::Any),
            _ => None,
        }
    }
}

impl fmt::Display for ExprType {
    /// Writes the type with its article, as messages need it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any value",
            Self::Null => "null",
            Self::Bool => "true or false",
            Self::Int => "a whole number",
            Self::Float => "a number",
            Self::Str => "text",
            Self::Time => "a time",
            Self::Span => "a span of time",
            Self::Object => "an object",
            Self::Array => "an array",
        })
    }
}
