use std::sync::Arc;

use proptest::prelude::*;
use tidemill_types::{FieldType, StreamSchema, Timestamp, event_json};

use super::*;

fn stream() -> OpenStream {
    let fields = vec![Field::new("t", FieldType::String), Field::new("u", FieldType::String)];
    let schema = StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None };
    OpenStream { schema: Arc::new(schema), clock: Arc::new(|| Timestamp(0)) }
}

fn options(format: CopyFormat) -> CopyOptions {
    let is_csv = format == CopyFormat::Csv;
    CopyOptions {
        format,
        has_header: false,
        matches_header: false,
        delimiter: if is_csv { b',' } else { b'\t' },
        null: if is_csv { String::new() } else { "\\N".to_owned() },
        quote: b'"',
        escape: b'"',
        force_quote: vec![],
    }
}

/// Decodes data that arrives in pieces of these sizes. Returns the events as JSON.
fn decode(options: CopyOptions, data: &[u8], pieces: &[usize], bad_rows: BadRows) -> Result<Vec<String>> {
    let mut decoder = CopyDecoder::new(options, stream(), vec![0, 1], TimeZone::UTC, bad_rows, 1 << 20);
    let (mut rest, mut sizes) = (data, pieces.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(1).clamp(1, rest.len());
        decoder.feed(&rest[..size])?;
        rest = &rest[size..];
    }
    decoder.finish()?;
    let rows = decoder.take()?;
    let mut events = vec![];
    for (stream, batch) in &rows.rows.parts {
        events.extend(
            (0..batch.num_rows())
                .map(|row| serde_json::Value::from(event_json(stream, batch, row)).to_string()),
        );
    }
    Ok(events)
}

/// Writes rows in a format, as simply as it can be.
fn encode(format: CopyFormat, rows: &[[Option<String>; 2]]) -> Vec<u8> {
    let mut out = Vec::new();
    if format == CopyFormat::Binary {
        out.extend(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
    }
    for row in rows {
        let texts: Vec<String> = row
            .iter()
            .map(|value| match (format, value) {
                (CopyFormat::Text, None) => "\\N".to_owned(),
                (CopyFormat::Text, Some(text)) => text
                    .replace('\\', "\\\\")
                    .replace('\n', "\\n")
                    .replace('\r', "\\015")
                    .replace('\t', "\\x09"),
                (_, None) => String::new(),
                (_, Some(text)) => format!("\"{}\"", text.replace('"', "\"\"")),
            })
            .collect();
        match format {
            CopyFormat::Text => out.extend((texts.join("\t") + "\n").into_bytes()),
            CopyFormat::Csv => out.extend((texts.join(",") + "\n").into_bytes()),
            CopyFormat::Binary => {
                out.extend(2_i16.to_be_bytes());
                for value in row {
                    out.extend(value.as_ref().map_or(-1, |text| text.len() as i32).to_be_bytes());
                    out.extend(value.iter().flat_map(|text| text.bytes()));
                }
            }
        }
    }
    if format == CopyFormat::Binary {
        out.extend((-1_i16).to_be_bytes());
    }
    out
}

fn value() -> impl Strategy<Value = Option<String>> {
    let special = prop::sample::select(vec!["\\N", "\\.", "", "\"", "\r\n", "\\", "é\t", "x\\"]);
    prop::option::of(prop_oneof![special.prop_map(str::to_owned), "[a-c\"\\\\,\t\r\n€]{0,6}"])
}

fn format() -> impl Strategy<Value = CopyFormat> {
    prop::sample::select(vec![CopyFormat::Text, CopyFormat::Csv, CopyFormat::Binary])
}

proptest! {
    #[test]
    fn rows_are_the_same_however_they_are_cut(
        rows in prop::collection::vec([value(), value()], 0..6),
        pieces in prop::collection::vec(1_usize..9, 1..4),
        format in format(),
    ) {
        let data = encode(format, &rows);
        let found = decode(options(format), &data, &pieces, BadRows::Refuse);
        let expected: Vec<String> = rows
            .iter()
            .map(|[t, u]| {
                let mut object = serde_json::Map::new();
                t.iter().for_each(|t| { object.insert("t".into(), t.as_str().into()); });
                u.iter().for_each(|u| { object.insert("u".into(), u.as_str().into()); });
                serde_json::Value::Object(object).to_string()
            })
            .collect();
        let found: Vec<String> = found
            .unwrap_or_else(|error| panic!("{error:?}"))
            .iter()
            .map(|event| serde_json::from_str::<serde_json::Value>(event).unwrap().to_string())
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(
        data: Vec<u8>,
        pieces in prop::collection::vec(1_usize..9, 1..4),
        format in format(),
        signed: bool,
    ) {
        let start: &[u8] = if signed && format == CopyFormat::Binary { b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0" } else { b"" };
        let data = [start, &data].concat();
        for bad_rows in [BadRows::Refuse, BadRows::Keep] {
            let _ = decode(options(format), &data, &pieces, bad_rows);
        }
    }
}

#[test]
fn a_row_without_an_end_is_refused_before_it_fills_the_memory() {
    let mut decoder =
        CopyDecoder::new(options(CopyFormat::Csv), stream(), vec![0], TimeZone::UTC, BadRows::Keep, 1_000);
    let error = (0..100).find_map(|_| decoder.feed(&[b'"'; 51]).err()).unwrap();
    assert_eq!(error.code, code::TOO_LARGE);
    assert_eq!(error.context.as_deref(), Some("COPY S, line 1"));
}
