//! Decoders without a socket, for programs that look for inputs which they do not survive.

use bytes::Bytes;

use crate::command::Command;
use crate::input::{FirstMessage, Message, SaslStart};
use crate::lexer;
use crate::values::parameters;
use crate::values::types::ParameterType;

/// Does what a connection does with the bytes of one message before the database gets anything: the first byte is its letter.
pub fn receive(bytes: &[u8]) {
    let Some((letter, content)) = bytes.split_first() else { return };
    let content = Bytes::copy_from_slice(content);
    // messages that are refused are no findings
    let _ = FirstMessage::decode(content.clone());
    let _ = SaslStart::decode(content.clone());
    match Message::decode(*letter, content) {
        Ok(Message::Query(text) | Message::Parse { text, .. }) => {
            for (start, end) in lexer::statements(&text) {
                let _ = Command::parse(&text[start..end]);
            }
        }
        Ok(Message::Bind(bind)) => {
            let zone = jiff::tz::TimeZone::UTC;
            for (at, value) in bind.values.iter().enumerate() {
                for oid in [16, 20, 21, 23, 25, 114, 700, 701, 1082, 1083, 1114, 1184, 1186, 1700, 3802, 17] {
                    let format = crate::output::format_at(&bind.parameter_formats, at);
                    let _ = parameters::decode(1, value.as_ref(), ParameterType::of_oid(oid), format, &zone);
                }
            }
        }
        _ => {}
    }
}
