//! Decoders without a socket, for programs that look for inputs which they do not survive.

use std::sync::Arc;

use bytes::Bytes;
use tidemill_database::{BadRows, OpenStream};
use tidemill_types::{Field, FieldType, StreamSchema, Timestamp};

use crate::command::Command;
use crate::copy_in::CopyDecoder;
use crate::lexer;
use crate::messages::input::{FirstMessage, Message, SaslStart};
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
                    let format = crate::messages::output::format_at(&bind.parameter_formats, at);
                    let _ = parameters::decode(1, value.as_ref(), ParameterType::of_oid(oid), format, &zone);
                }
            }
        }
        Ok(Message::CopyData(data)) => {
            for format in ["text", "csv", "binary"] {
                copy_in(format, &data);
            }
        }
        _ => {}
    }
}

/// Decodes data of a copy that arrives in two messages.
fn copy_in(format: &str, data: &[u8]) {
    let Ok(Command::CopyIn(copy)) = Command::parse(&format!("COPY s FROM STDIN (FORMAT {format})")) else {
        return;
    };
    let types = [FieldType::String, FieldType::Int, FieldType::Double, FieldType::Time, FieldType::Object];
    let fields = types.map(|ty| Field::new(ty.name(), ty)).to_vec();
    let columns = (0..fields.len()).collect();
    let schema = Arc::new(StreamSchema { name: "s".into(), fields, key: None, id: vec![], time: None });
    let stream = OpenStream { schema, clock: Arc::new(|| Timestamp(0)) };
    let zone = jiff::tz::TimeZone::UTC;
    let mut decoder = CopyDecoder::new(copy.options, stream, columns, zone, BadRows::Keep, 1 << 20);
    let (first, rest) = data.split_at(data.len() / 2);
    let fed = decoder.feed(first).and_then(|()| decoder.feed(rest)).and_then(|()| decoder.finish());
    let _ = fed.and_then(|()| decoder.take());
}
