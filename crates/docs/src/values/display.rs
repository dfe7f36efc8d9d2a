//! Formats values for messages, similar to the output of the MongoDB shell.

use tidemill_types::Timestamp;

use crate::values::raw::{RawValue, elements, tag};

/// Characters after which a value is truncated.
const SHOWN_MAX: usize = 200;

/// Formats the value in one line, truncated after 200 characters: `{ a: 1, b: [ "x" ] }`.
pub(crate) fn display(raw: RawValue<'_>) -> String {
    let mut out = String::new();
    write(&mut out, raw);
    if let Some((at, _)) = out.char_indices().nth(SHOWN_MAX) {
        out.truncate(at);
        out.push('…');
    }
    out
}

fn write(out: &mut String, raw: RawValue<'_>) {
    // output beyond the truncation is not needed
    if out.len() > SHOWN_MAX * 4 {
        return;
    }
    match raw.tag {
        tag::DOCUMENT => write_elements(out, raw, ['{', '}']),
        tag::ARRAY => write_elements(out, raw, ['[', ']']),
        tag::STRING | tag::SYMBOL => {
            let text: String = raw.text().unwrap_or_default().chars().take(SHOWN_MAX).collect();
            out.push_str(&format!("{text:?}"));
        }
        tag::INT32 => out.push_str(&raw.i32().to_string()),
        tag::INT64 => out.push_str(&raw.i64().to_string()),
        tag::DOUBLE => out.push_str(&format!("{:?}", raw.f64())),
        tag::BOOL => out.push_str(if raw.bytes == [1] { "true" } else { "false" }),
        tag::NULL => out.push_str("null"),
        tag::UNDEFINED => out.push_str("undefined"),
        tag::MIN_KEY => out.push_str("MinKey"),
        tag::MAX_KEY => out.push_str("MaxKey"),
        tag::DATE => out.push_str(&format!("Date({})", Timestamp(raw.i64().saturating_mul(1000)))),
        tag::OBJECT_ID => {
            out.push_str("ObjectId(");
            raw.bytes.iter().for_each(|b| out.push_str(&format!("{b:02x}")));
            out.push(')');
        }
        tag::REGEX => {
            let mut parts = raw.bytes.split(|b| *b == 0).map(String::from_utf8_lossy);
            let (pattern, options) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            out.push_str(&format!("/{pattern}/{options}"));
        }
        tag::BINARY if raw.bytes.len() > SHOWN_MAX => {
            out.push_str(&format!("BinData({} bytes)", raw.bytes.len() - 5))
        }
        _ => out.push_str(&raw.to_bson().into_relaxed_extjson().to_string()),
    }
}

fn write_elements(out: &mut String, raw: RawValue<'_>, [open, close]: [char; 2]) {
    out.push(open);
    for (i, e) in elements(raw.bytes).take(SHOWN_MAX).enumerate() {
        out.push_str(if i == 0 { " " } else { ", " });
        if raw.tag == tag::DOCUMENT {
            out.push_str(&String::from_utf8_lossy(e.name));
            out.push_str(": ");
        }
        write(out, e.value);
    }
    if out.ends_with(open) {
        out.push(close);
    } else {
        out.push(' ');
        out.push(close);
    }
}
