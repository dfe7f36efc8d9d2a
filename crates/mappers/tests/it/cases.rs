//! Cases as text: `tests/cases/*.txt`.
//!
//! A case is `=== name`, lines `stream NAME TYPE, …`, `source TYPE OPTION=VALUE …` or `sink TYPE …`, the lines
//! `attribute NAME=PATH`, `payload NAME=TEXT`, `property NAME=VALUE` and `time TIME`, then an input line `> …` for each
//! message or event, `---`, and the output: events and rejections, or messages and refusals. Events of a sink are JSON
//! arrays. `␤` stands for the end of a line within a line and `\xHH` for a byte in messages. `UPDATE_CASES=1` rewrites
//! the outputs.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value as Json;
use tidemill_connect::{MapperConfig, Message};
use tidemill_types::Timestamp;
use tidemill_types::decode::BatchBuilder;

use crate::fixture::{mapper, named, read, schema, show, sink, source, write};

#[test]
fn cases() {
    let mut files: Vec<_> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let mut failures = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut written = String::new();
        for case in text.split("\n=== ").map(|case| case.trim_start_matches("=== ")) {
            let case = format!("{case}\n");
            let (head, expected) = case.split_once("\n---\n").unwrap_or((&case, ""));
            let (name, input) = head.split_once('\n').unwrap();
            let found = run(input);
            if found.trim_end() != expected.trim_end() {
                writeln!(failures, "{}: {name}\nexpected:\n{expected}found:\n{found}", file.display())
                    .unwrap();
            }
            write!(written, "=== {name}\n{}\n---\n{found}\n", input.trim_end()).unwrap();
        }
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(&file, written.trim_end().to_owned() + "\n").unwrap();
            failures.clear();
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn run(input: &str) -> String {
    let mut stream = schema("symbol string, price float, volume long");
    let mut config: Option<(bool, MapperConfig)> = None;
    let mut message = Message::default();
    let mut inputs = vec![];
    for line in input.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (name, text) = rest.split_once('=').unwrap_or(("", rest));
        let text = text.replace('␤', "\n");
        let current = config.as_mut().map(|(_, config)| config);
        match (word, current) {
            ("#", _) => {}
            ("stream", _) => stream = schema(rest),
            ("source" | "sink", _) => config = Some((word == "source", mapper(rest, &[]))),
            ("option", Some(config)) => config.options.push((name.to_owned(), text)),
            ("attribute", Some(config)) => config.attributes.push(named(name, &text)),
            ("payload", Some(config)) if name.is_empty() || name.contains(['{', '<', ' ', '"']) => {
                config.payload.push(named("", &rest.replace('␤', "\n")));
            }
            ("payload", Some(config)) => config.payload.push(named(name, &text)),
            ("", _) => {}
            ("property", _) => message.properties.push((name.to_owned(), text)),
            ("time", _) => message.time = Some(Timestamp::parse(rest).unwrap()),
            (">", _) => inputs.push(rest.replace('␤', "\n")),
            _ => panic!("wrong line: {line}"),
        }
    }
    let (is_source, config) = config.unwrap();
    let mut output = String::new();
    if is_source {
        let mut mapper = match source(&stream, config) {
            Ok(mapper) => mapper,
            Err(e) => return format!("error: {e}\n"),
        };
        for (number, input) in inputs.iter().enumerate() {
            let message =
                Message { payload: bytes_of(input).into(), number: number as u64, ..message.clone() };
            let (rows, rejected) = read(&stream, mapper.as_mut(), &[message]);
            for row in 0..rows.as_ref().map_or(0, |rows| rows.num_rows()) {
                writeln!(output, "{}", show(&stream, rows.as_ref().unwrap(), row)).unwrap();
            }
            for bad in rejected {
                writeln!(output, "rejected: {}: {}", bad.message, shown(bad.text.as_bytes())).unwrap();
            }
        }
    } else {
        let mut mapper = match sink(&stream, &config) {
            Ok(mapper) => mapper,
            Err(e) => return format!("error: {e}\n"),
        };
        let mut rows = BatchBuilder::new(stream.clone());
        for input in &inputs {
            let values: Vec<Json> = serde_json::from_str(input).unwrap();
            let names = stream.fields.iter().map(|field| field.name.clone());
            let event = Json::Object(names.zip(values).collect()).to_string();
            rows.push_json(event.as_bytes(), Timestamp(1_700_000_000_000_001)).unwrap();
        }
        let (payloads, refused) = write(mapper.as_mut(), &rows.finish());
        for payload in payloads {
            writeln!(output, "{}", shown(&payload.bytes)).unwrap();
        }
        for refused in refused {
            writeln!(output, "refused {}: {}", refused.row, refused.reason).unwrap();
        }
    }
    output
}

fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = vec![];
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("\\x") {
        bytes.extend(before.as_bytes());
        bytes.push(u8::from_str_radix(&behind[..2], 16).unwrap());
        rest = &behind[2..];
    }
    bytes.extend(rest.as_bytes());
    bytes
}

fn shown(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => shown.push('␤'),
                c if c.is_control() => {
                    c.to_string().bytes().for_each(|b| write!(shown, "\\x{b:02x}").unwrap())
                }
                c => shown.push(c),
            }
        }
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").unwrap();
        }
    }
    shown
}
