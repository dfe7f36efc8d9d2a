//! Values that scripts take and return.

/// A value without references to an interpreter.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptValue {
    /// `null` or `undefined`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number: a `number` in the script up to 2^53, a `bigint` beyond.
    Int(i64),
    /// Any other number.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// A plain object, with its properties in order.
    Map(Vec<(String, Self)>),
}

impl ScriptValue {
    /// Returns what the value is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
            Self::Map(_) => "an object",
        }
    }
}
