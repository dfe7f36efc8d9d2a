//! Values of MariaDB and MySQL, as queries and as the log have them.

use mysql_async::Value;
use mysql_async::binlog::value::BinlogValue;
use tidemill_types::{FieldType, Timestamp};

use super::super::RowWriter;
use super::table::{Form, MySqlColumn};
use crate::text_format::micros_of_civil;

/// Writes a value of the log.
pub(super) fn write_logged(
    column: &MySqlColumn,
    value: BinlogValue<'_>,
    wanted: Option<FieldType>,
    out: &mut RowWriter,
) {
    match value {
        BinlogValue::Value(value) => write_logged_value(column, value, wanted, out),
        BinlogValue::Jsonb(json) => match serde_json::Value::try_from(json) {
            Ok(json) => out.json(&json.to_string()),
            Err(_) => out.null(),
        },
        // the server logs them only if `binlog_row_value_options` says so
        BinlogValue::JsonDiff(_) => out.null(),
    }
}

fn write_logged_value(column: &MySqlColumn, value: Value, wanted: Option<FieldType>, out: &mut RowWriter) {
    match (column.form, value) {
        (Form::Integer(bits), Value::Int(n)) if column.is_unsigned && n < 0 => {
            // the log does not say which integers are unsigned
            let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
            out.number(n as u64 & mask);
        }
        (Form::Enum, Value::Int(n)) => {
            let index = usize::try_from(n).ok().and_then(|n| n.checked_sub(1));
            // 0 is the text that the server had to leave out
            out.string(index.and_then(|index| column.members.get(index)).map_or("", String::as_str));
        }
        (Form::Set, Value::Bytes(bits)) => {
            let is_set = |index: usize| bits.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
            let members = column.members.iter().enumerate().filter(|(index, _)| is_set(*index));
            let members: Vec<&str> = members.map(|(_, member)| member.as_str()).collect();
            out.string(&members.join(","));
        }
        (Form::Text | Form::Json, Value::Bytes(bytes)) => {
            let (text, _) = column.encoding.decode_without_bom_handling(&bytes);
            write_text(column, &text, wanted, out);
        }
        // the log has seconds, and a fraction if the column has
        (Form::Timestamp, Value::Int(seconds)) => time(seconds.saturating_mul(1_000_000), wanted, out),
        (Form::Timestamp, Value::Bytes(bytes)) => {
            let text = String::from_utf8_lossy(&bytes);
            let (seconds, micros) = text.split_once('.').unwrap_or((&text, "0"));
            match (seconds.parse::<i64>(), micros.parse::<i64>()) {
                (Ok(0), Ok(0)) | (Err(_), _) | (_, Err(_)) => out.null(),
                (Ok(seconds), Ok(micros)) => {
                    time(seconds.saturating_mul(1_000_000).saturating_add(micros), wanted, out);
                }
            }
        }
        (_, value) => write(column, value, wanted, out),
    }
}

/// Writes a value of a query.
pub(super) fn write(column: &MySqlColumn, value: Value, wanted: Option<FieldType>, out: &mut RowWriter) {
    match value {
        Value::NULL => out.null(),
        Value::Int(n) => out.number(n),
        Value::UInt(n) => out.number(n),
        Value::Float(x) => out.float(&format!("{x:?}")),
        Value::Double(x) => out.float(&format!("{x:?}")),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            let is_moment = matches!(column.form, Form::DateTime | Form::Timestamp);
            let wants_time = matches!(wanted, Some(FieldType::Int | FieldType::Long | FieldType::Time));
            if month == 0 || day == 0 {
                // dates such as 0000-00-00, which are not dates
                out.null();
            } else if is_moment || wants_time {
                let parts = [month, day, hour, minute, second];
                time(micros_of_civil(year, parts, micros), wanted, out);
            } else {
                out.string(&format!("{year:04}-{month:02}-{day:02}"));
            }
        }
        Value::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let sign = if is_negative { "-" } else { "" };
            let hours = u64::from(days) * 24 + u64::from(hours);
            let fraction = if micros > 0 { format!(".{micros:06}") } else { String::new() };
            out.string(&format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"));
        }
        Value::Bytes(bytes) => match column.form {
            Form::Bytes => out.bytes(&bytes),
            Form::Bits => {
                let number = bytes.iter().take(8).fold(0u64, |n, byte| n << 8 | u64::from(*byte));
                out.number(number);
            }
            Form::Decimal => out.decimal(&String::from_utf8_lossy(&bytes)),
            Form::Integer(_) | Form::Float | Form::Year => out.float(&String::from_utf8_lossy(&bytes)),
            _ => write_text(column, &String::from_utf8_lossy(&bytes), wanted, out),
        },
    }
}

/// JSON columns of MariaDB are texts, so those that shall be objects are written as what they are.
fn write_text(column: &MySqlColumn, text: &str, wanted: Option<FieldType>, out: &mut RowWriter) {
    let is_json = column.form == Form::Json || wanted == Some(FieldType::Object);
    match is_json && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        true => out.json(text),
        false => out.string(text),
    }
}

fn time(micros: i64, wanted: Option<FieldType>, out: &mut RowWriter) {
    out.time(Timestamp(micros), matches!(wanted, Some(FieldType::Int | FieldType::Long)));
}
