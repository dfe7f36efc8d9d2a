//! Bytes: the number of events in 4 bytes, then for each event its time in 8 bytes, in milliseconds since 1970, and its
//! values one after the other, all with the highest byte first.
//!
//! A bool is one byte, 0 or 1, an int 4 and a long 8, a float 4 and a double 8 as in IEEE 754, a string its length in 4
//! bytes and UTF-8, a time 8 in microseconds since 1970. Null has no form.

mod sink;
mod source;

use tidemill_connect::OptionError;
use tidemill_types::{FieldType, StreamSchema};

pub(crate) use self::sink::BinarySinkType;
pub(crate) use self::source::BinarySourceType;

/// Errors: an attribute has a type without a form.
fn check_types(schema: &StreamSchema) -> Result<(), OptionError> {
    match schema.fields.iter().find(|field| field.ty == FieldType::Object) {
        None => Ok(()),
        Some(field) => {
            let message = format!("the attribute `{}` is an object, which has no binary form", field.name);
            Err(OptionError::connector(message).of_mapper())
        }
    }
}
