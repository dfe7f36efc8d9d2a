//! Setters of options: an action keeps its options as the fields of the command that it may become.

use std::time::Duration;

use bson::Bson;

/// Creates setters, each with the field that it sets and the conversion of its value.
macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident: $type:ty => $field:literal, $convert:expr;)*) => {
        $(
            $(#[$meta])*
            pub fn $name(mut self, value: $type) -> Self {
                self.options.insert($field, $convert(value));
                self
            }
        )*
    };
}

/// Creates the setter of the session of an action.
macro_rules! session_setter {
    () => {
        /// Runs it in the transaction of a session.
        pub fn session(mut self, session: &'a mut $crate::embedded::ClientSession) -> Self {
            self.session = Some(session);
            self
        }
    };
}

pub(super) use {session_setter, setters};

/// Converts a count.
pub(super) fn whole(count: u64) -> Bson {
    Bson::Int64(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Converts a time.
pub(super) fn milliseconds(time: Duration) -> Bson {
    Bson::Int64(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}
