//! XML: `<events><event><symbol>WSO2</symbol></event></events>`, values at XPaths, or a form of the user's own.

mod path;
mod sink;
mod source;
mod tree;

pub(crate) use self::sink::XmlSinkType;
pub(crate) use self::source::XmlSourceType;

/// Namespace of the attribute `nil`, which marks an element as null.
const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
