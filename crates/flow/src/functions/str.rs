//! `str:` Functions on strings. Lengths and indexes count UTF-16 code units, as in Java.

use std::sync::Arc;

use super::compile_cache::CompileCache;
use super::java::java_regex::{JavaRegex, MatchMode, patterns};
use super::library::{BatchScalarFn, NamespaceRegistrar, NullPolicy, ScalarFn, ScalarResult, int, text};
use crate::columns::column::{Column, Data, StringColumn};
use crate::columns::value::{Key, OpaqueValue, Value};
use crate::expr::{ArgumentType, ColumnarValue};

/// Maximum length of the result of `repeat`, in bytes.
const REPEATED_BYTES_MAX: usize = 64 << 20;

pub(super) fn register(str: &mut NamespaceRegistrar<'_>) {
    str.add("charAt", &["string text, int index -> string"], NullPolicy::Fail, |args| {
        let index = usize::try_from(int(args, 1)?).ok();
        let unit = index.and_then(|i| text(args, 0).ok()?.encode_utf16().nth(i));
        let unit = unit.ok_or_else(|| format!("character index {} is out of bounds", args[1]))?;
        Ok(Value::text(&String::from_utf16_lossy(&[unit])))
    });
    str.add("charFrequency", &["string text, string char -> long"], NullPolicy::Fail, |args| {
        let mut units = text(args, 1)?.encode_utf16();
        let (Some(unit), None) = (units.next(), units.next()) else {
            return Err(format!("`{}` is not one character", args[1]));
        };
        Ok(Value::Long(text(args, 0)?.encode_utf16().filter(|u| *u == unit).count() as i64))
    });
    str.add("coalesce", &["T x, T more* -> T"], NullPolicy::Pass, |args| {
        Ok(args.iter().find(|a| !a.is_null()).cloned().unwrap_or_default())
    });
    str.add("concat", &["value x, value y, value more* -> string"], NullPolicy::Pass, |args| {
        let parts = args.iter().filter(|a| !a.is_null());
        Ok(Value::Str(parts.map(ToString::to_string).collect::<String>().into()))
    });
    str.add("contains", &["string text, string part -> bool"], NullPolicy::Pass, |args| {
        match (&args[0], &args[1]) {
            (Value::Null, _) => Ok(Value::Bool(false)),
            (_, Value::Null) => Err("`part` is null".into()),
            _ => {
                Ok(Value::Bool(args[0].as_str().is_some_and(|t| t.contains(args[1].as_str().unwrap_or("")))))
            }
        }
    });
    str.add("equalsIgnoreCase", &["string text, string other -> bool"], NullPolicy::Pass, |args| {
        let text = args[0].as_str().ok_or("`text` is null")?;
        Ok(Value::Bool(args[1].as_str().is_some_and(|other| equal_but_case(text, other))))
    });
    str.add(
        "fillTemplate",
        &["string template, object map -> string", "string template, value x, value more* -> string"],
        NullPolicy::Fail,
        fill_template,
    );
    str.add("hex", &["string text -> string"], NullPolicy::Fail, |args| {
        Ok(Value::text(&text(args, 0)?.encode_utf16().map(|unit| format!("{unit:02x}")).collect::<String>()))
    });
    str.add("unhex", &["string hex -> string"], NullPolicy::Fail, unhex);
    str.add("length", &["string text -> int"], NullPolicy::Fail, |args| {
        Ok(Value::Int(text(args, 0)?.encode_utf16().count() as i32))
    });
    str.add("locate", &["string part, string text, int start? -> int"], NullPolicy::Fail, locate);
    str.add("lower", &["string text -> string"], NullPolicy::Fail, |args| {
        Ok(Value::text(&text(args, 0)?.to_lowercase()))
    });
    str.add("upper", &["string text -> string"], NullPolicy::Fail, |args| {
        Ok(Value::text(&text(args, 0)?.to_uppercase()))
    });
    str.add("trim", &["string text -> string"], NullPolicy::Fail, |args| {
        Ok(Value::text(text(args, 0)?.trim_matches(|c: char| c <= ' ')))
    });
    str.add("reverse", &["string text -> string"], NullPolicy::Fail, |args| {
        Ok(Value::text(&text(args, 0)?.chars().rev().collect::<String>()))
    });
    str.add("repeat", &["string text, int times -> string"], NullPolicy::Fail, |args| {
        let (text, times) = (text(args, 0)?, usize::try_from(int(args, 1)?).unwrap_or(0));
        if text.len().saturating_mul(times) > REPEATED_BYTES_MAX {
            return Err(format!("result too long: limit of {REPEATED_BYTES_MAX} bytes"));
        }
        Ok(Value::text(&text.repeat(times)))
    });
    str.add("strcmp", &["string text, string other -> int"], NullPolicy::Fail, |args| {
        Ok(Value::Int(compare(text(args, 0)?, text(args, 1)?)))
    });
    str.build("regexp", &["string text, string regex -> bool"], NullPolicy::Fail, |args| {
        let patterns = patterns(args, 1, MatchMode::Whole)?;
        Ok(Box::new(move |args, _| {
            Ok(Value::Bool(patterns.get(text(args, 1)?)?.matches(text(args, 0)?, 0)?))
        }))
    });
    str.build_batched("replaceAll", &[REPLACE], NullPolicy::Fail, |args| replace(args, true));
    str.build_batched("replaceFirst", &[REPLACE], NullPolicy::Fail, |args| replace(args, false));
    str.build("split", &["string text, string regex, int index -> string"], NullPolicy::Fail, |args| {
        let patterns = patterns(args, 1, MatchMode::Any)?;
        Ok(Box::new(move |args, _| {
            let parts = patterns.get(text(args, 1)?)?.split(text(args, 0)?)?;
            let part = usize::try_from(int(args, 2)?).ok().and_then(|i| parts.get(i).copied());
            let missing =
                || format!("part index {} is out of bounds: the string has {} parts", args[2], parts.len());
            part.map(Value::text).ok_or_else(missing)
        }))
    });
    str.build("substr", &SUBSTR, NullPolicy::Fail, substr);
}

const REPLACE: &str = "string text, string regex, string replacement -> string";

const SUBSTR: [&str; 2] =
    ["string text, int begin, int length? -> string", "string text, string regex, int group? -> string"];

fn replace(args: &[ArgumentType], all: bool) -> Result<(Box<ScalarFn>, Box<BatchScalarFn>), String> {
    let patterns = Arc::new(patterns(args, 1, MatchMode::Any)?);
    let many = patterns.clone();
    let one: Box<ScalarFn> = Box::new(move |args, _| {
        let replaced = patterns.get(text(args, 1)?)?.replace(text(args, 0)?, text(args, 2)?, all)?;
        Ok(replaced.map_or_else(|| args[0].clone(), |text| Value::text(&text)))
    });
    Ok((one, Box::new(move |args, rows| replace_batch(&many, args, rows, all))))
}

/// Replaces in all rows if the pattern and the replacement are constant. Copies nothing until the first
/// match, and no row without a match.
fn replace_batch(
    patterns: &CompileCache<JavaRegex>,
    args: &[ColumnarValue<'_>],
    rows: usize,
    all: bool,
) -> Option<Column> {
    let [
        ColumnarValue::Array(column),
        ColumnarValue::Scalar(Value::Str(pattern)),
        ColumnarValue::Scalar(Value::Str(by)),
    ] = args
    else {
        return None;
    };
    let Data::Str(texts) = column.data() else { return None };
    let pattern = patterns.get(pattern).ok()?;
    let mut out: Option<StringColumn> = None;
    for row in 0..rows {
        let text = texts.get(row);
        match (pattern.replace(text, by, all).ok()?, &mut out) {
            (None, None) => {}
            (None, Some(out)) => out.push(text),
            (Some(replaced), out) => out.get_or_insert_with(|| texts.first(row)).push(&replaced),
        }
    }
    Some(out.map_or_else(|| (*column).clone(), |texts| Column::of(Data::Str(texts))))
}

fn substr(args: &[ArgumentType]) -> Result<Box<ScalarFn>, String> {
    let patterns = patterns(args, 1, MatchMode::Any)?;
    Ok(Box::new(move |args, _| match &args[1] {
        Value::Int(begin) => {
            let text = text(args, 0)?;
            let units = text.encode_utf16().count();
            let begin = usize::try_from(*begin).ok().filter(|b| *b <= units);
            let end = match (begin, args.get(2)) {
                (Some(begin), Some(Value::Int(length))) => {
                    usize::try_from(*length).ok().map(|l| begin + l).filter(|end| *end <= units)
                }
                _ => Some(units),
            };
            let outside = || format!("the substring is out of bounds: the string has {units} characters");
            begin.zip(end).map(|(begin, end)| Value::text(&units_of(text, begin, end))).ok_or_else(outside)
        }
        _ => {
            let pattern = patterns.get(text(args, 1)?)?;
            let group = args.get(2).map_or(Ok(0), |_| int(args, 2))?;
            let Some(found) = pattern.find(text(args, 0)?, 0)? else { return Ok(Value::text("")) };
            let group = usize::try_from(group).ok().filter(|g| *g <= pattern.groups());
            let group = group.ok_or_else(|| format!("the pattern has {} groups", pattern.groups()))?;
            Ok(found.get(group).map_or(Value::Null, |m| Value::text(m.as_str())))
        }
    }))
}

/// Returns the UTF-16 code units from `begin` to below `end`; half of a surrogate pair becomes a replacement
/// character.
fn units_of(text: &str, begin: usize, end: usize) -> String {
    if text.is_ascii() {
        return text[begin..end].to_owned();
    }
    let units: Vec<u16> = text.encode_utf16().skip(begin).take(end - begin).collect();
    String::from_utf16_lossy(&units)
}

/// Returns the byte offset of the character that contains UTF-16 code unit `unit`, or `None` beyond the end.
pub(super) fn byte_of_unit(text: &str, unit: usize) -> Option<usize> {
    let mut units = 0;
    for (byte, c) in text.char_indices() {
        if units + c.len_utf16() > unit {
            return Some(byte);
        }
        units += c.len_utf16();
    }
    (units == unit).then_some(text.len())
}

/// Returns the difference of the first differing UTF-16 code units, else of the lengths.
fn compare(a: &str, b: &str) -> i32 {
    let differing = a.encode_utf16().zip(b.encode_utf16()).find(|(a, b)| a != b);
    match differing {
        Some((a, b)) => i32::from(a) - i32::from(b),
        None => a.encode_utf16().count() as i32 - b.encode_utf16().count() as i32,
    }
}

fn equal_but_case(a: &str, b: &str) -> bool {
    /// Returns the simple case folding; a character that folds to several is unchanged.
    fn fold(c: char) -> char {
        let alone = |mut cs: std::vec::IntoIter<char>| cs.next().filter(|_| cs.next().is_none());
        let upper = alone(c.to_uppercase().collect::<Vec<_>>().into_iter()).unwrap_or(c);
        alone(upper.to_lowercase().collect::<Vec<_>>().into_iter()).unwrap_or(upper)
    }
    a.eq_ignore_ascii_case(b)
        || !(a.is_ascii() && b.is_ascii()) && a.chars().map(fold).eq(b.chars().map(fold))
}

fn unhex(args: &[Value]) -> ScalarResult {
    let hex = text(args, 0)?;
    let digits = hex.chars().map(|c| c.to_digit(16)).collect::<Option<Vec<_>>>();
    let digits = digits.filter(|d| d.len().is_multiple_of(2));
    let digits = digits.ok_or_else(|| format!("`{hex}` does not consist of pairs of hexadecimal digits"))?;
    let chars = digits.chunks(2).map(|pair| char::from((pair[0] * 16 + pair[1]) as u8));
    Ok(Value::text(&chars.collect::<String>()))
}

/// Returns the index of the first occurrence, or -1. Siddhi 5.1 adds `start` even to the -1.
fn locate(args: &[Value]) -> ScalarResult {
    let (part, text) = (text(args, 0)?, text(args, 1)?);
    let start = args.get(2).map_or(Ok(0), |_| int(args, 2))?;
    let from = usize::try_from(start).ok().and_then(|s| byte_of_unit(text, s));
    let from = from.ok_or_else(|| format!("`start` is out of bounds: there is no character {start}"))?;
    let found = text[from..].find(part);
    Ok(Value::Int(found.map_or(-1, |byte| text[..from + byte].encode_utf16().count() as i32)))
}

/// Replaces `{{1}}` by argument 1, or `{{key}}` by the value of a map. A key that the map lacks remains,
/// without braces.
fn fill_template(args: &[Value]) -> ScalarResult {
    let template = text(args, 0)?;
    let map = match &args[1] {
        Value::Object(OpaqueValue::Map(map)) => Some(map.lock().clone()),
        Value::Object(other) => return Err(format!("`{other}` is not a map")),
        _ => None,
    };
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(brace) = [rest.find("{{"), rest.find("}}")].into_iter().flatten().min() {
        parts.push(&rest[..brace]);
        rest = &rest[brace + 2..];
    }
    parts.push(rest);
    let mut out = String::new();
    for (i, part) in parts.iter().enumerate() {
        if i % 2 == 0 {
            out.push_str(part);
            continue;
        }
        let key = part.trim_matches(|c: char| c <= ' ');
        if key.is_empty() && i + 1 == parts.len() {
            continue;
        }
        match &map {
            Some(map) => match map.get(&Key(Value::text(key))).filter(|v| !v.is_null()) {
                Some(value) => out.push_str(&value.to_string()),
                None => out.push_str(part),
            },
            None => {
                let place = key.parse::<usize>().ok().filter(|n| *n > 0).and_then(|n| args.get(n));
                out.push_str(
                    &place
                        .ok_or_else(|| format!("the template refers to {{{{{key}}}}}, which has no value"))?
                        .to_string(),
                );
            }
        }
    }
    Ok(Value::text(&out))
}
