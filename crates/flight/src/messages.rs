//! Messages of session options, which are part of Flight and not of the crate that has the others.

use std::collections::HashMap;

/// A value of a session option.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SessionOptionValue {
    /// `None` to remove the option.
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub value: Option<OptionValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Texts(StringList),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StringList {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetSessionOptionsRequest {
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SetSessionOptionsResult {
    /// Options that were not set.
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, SessionOptionError>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SessionOptionError {
    #[prost(enumeration = "SessionOptionErrorKind", tag = "1")]
    pub value: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum SessionOptionErrorKind {
    Unspecified = 0,
    InvalidName = 1,
    InvalidValue = 2,
    Error = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CloseSessionResult {
    #[prost(enumeration = "CloseSessionStatus", tag = "1")]
    pub status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CloseSessionStatus {
    Unspecified = 0,
    Closed = 1,
    Closing = 2,
    NotCloseable = 3,
}
