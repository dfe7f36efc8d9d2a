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
            for options in COPY_OPTIONS {
                for bad_rows in [BadRows::Keep, BadRows::Refuse] {
                    let whole = copy_in(options, bad_rows, &data, data.len());
                    let parts = copy_in(options, bad_rows, &data, 3);
                    assert_eq!(whole, parts, "{options}: data in parts is other data");
                }
            }
        }
        _ => {}
    }
}

/// Options of the copies that get the data.
const COPY_OPTIONS: [&str; 5] = [
    "FORMAT text",
    "FORMAT text, HEADER match, DELIMITER '|', NULL ''",
    "FORMAT csv",
    "FORMAT csv, HEADER, DELIMITER ';', QUOTE '''', ESCAPE '\\', NULL 'x'",
    "FORMAT binary",
];

/// Decodes data of a copy that arrives in parts. Returns the numbers of rows that fit and that do not, or the error.
fn copy_in(options: &str, bad_rows: BadRows, data: &[u8], part: usize) -> Result<(usize, usize), String> {
    let Ok(Command::CopyIn(copy)) = Command::parse(&format!("COPY s FROM STDIN ({options})")) else {
        panic!("COPY does not know {options}");
    };
    let fields: Vec<Field> =
        FieldType::NAMES.iter().filter_map(|name| Some(Field::new(*name, FieldType::parse(name)?))).collect();
    let columns = (0..fields.len()).collect();
    let schema = Arc::new(StreamSchema { name: "s".into(), fields, key: None, id: vec![], time: None });
    let stream = OpenStream { schema, clock: Arc::new(|| Timestamp(0)) };
    let zone = jiff::tz::TimeZone::UTC;
    let mut decoder = CopyDecoder::new(copy.options, stream, columns, zone, bad_rows, 1 << 20);
    let mut parts = data.chunks(part.max(1));
    let fed = parts.try_for_each(|part| decoder.feed(part)).and_then(|()| decoder.finish());
    let rows = fed.and_then(|()| decoder.take()).map_err(|error| error.message)?;
    Ok((rows.rows.parts.iter().map(|(_, batch)| batch.num_rows()).sum(), rows.rejected.len()))
}
