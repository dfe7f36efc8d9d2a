//! Maps as XML, one element per entry.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::escape::{partial_escape, resolve_predefined_entity};
use quick_xml::events::{BytesRef, Event};

use super::java::number::parse_double;
use super::object::DEPTH_MAX;
use crate::columns::value::{Key, OpaqueValue, Value};

type Entries = BTreeMap<Key, Value>;

/// Writes a map as XML elements. Differs from Siddhi 5.1: escapes values, so that they can be read back.
pub(super) fn write(entries: &Entries) -> String {
    let mut out = String::new();
    for (key, value) in entries {
        let inner = match value {
            Value::Object(OpaqueValue::Map(inner)) => write(&inner.lock()),
            Value::Null => String::new(),
            other => partial_escape(other.to_string()).into_owned(),
        };
        let name = &key.0;
        out.push_str(&format!("<{name}>{inner}</{name}>"));
    }
    out
}

/// Element whose end tag has not been read.
#[derive(Default)]
struct OpenElement {
    name: String,
    text: String,
    children: Entries,
}

impl OpenElement {
    /// Returns a map if the element has children, else the value of its text.
    fn value(self) -> Value {
        if self.children.is_empty() {
            scalar(&self.text)
        } else {
            Value::Object(OpaqueValue::map(self.children))
        }
    }
}

/// Converts text to a bool, a number (a long if whole) or a string.
fn scalar(text: &str) -> Value {
    match text {
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    let number = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'e' | b'E'));
    match (text.parse(), parse_double(text)) {
        (Ok(whole), _) if number => Value::Long(whole),
        (_, Ok(n)) if number && n.fract() == 0.0 && n.abs() < 9e15 => Value::Long(n as i64),
        (_, Ok(n)) if number => Value::Double(n),
        _ => Value::text(text),
    }
}

/// Parses the children of the root element into a map; attributes are ignored.
pub(super) fn read(xml: &str) -> Result<Value, String> {
    let mut reader = Reader::from_str(xml);
    let mut open: Vec<OpenElement> = Vec::new();
    let mut root = None;
    let wrong = |e: &dyn std::fmt::Display| format!("not valid XML: {e}");
    loop {
        match reader.read_event().map_err(|e| wrong(&e))? {
            Event::Start(tag) => {
                if open.len() > DEPTH_MAX {
                    return Err(wrong(&format!("elements are nested deeper than {DEPTH_MAX} levels")));
                }
                let name = String::from_utf8_lossy(tag.local_name().as_ref()).into_owned();
                open.push(OpenElement { name, ..OpenElement::default() });
            }
            Event::Empty(tag) => {
                let name = String::from_utf8_lossy(tag.local_name().as_ref()).into_owned();
                match open.last_mut() {
                    Some(parent) => drop(parent.children.insert(Key(Value::text(&name)), Value::text(""))),
                    None => root = Some(OpenElement::default()),
                }
            }
            Event::End(_) => {
                let Some(closed) = open.pop() else { continue };
                match open.last_mut() {
                    Some(parent) => {
                        let name = Key(Value::text(&closed.name));
                        parent.children.insert(name, closed.value());
                    }
                    None => root = Some(closed),
                }
            }
            Event::Text(text) => add(&mut open, &text.xml_content().map_err(|e| wrong(&e))?),
            Event::CData(text) => add(&mut open, &text.xml_content().map_err(|e| wrong(&e))?),
            Event::GeneralRef(reference) => {
                add(&mut open, &resolve(&reference).ok_or_else(|| wrong(&"an unknown entity"))?)
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok(Value::Object(OpaqueValue::map(root.children))),
        _ => Err(wrong(&"an element is not closed, or there is no root element")),
    }
}

fn add(open: &mut [OpenElement], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

/// Returns the text of a character or of a predefined entity.
pub(crate) fn resolve(reference: &BytesRef<'_>) -> Option<String> {
    if let Ok(Some(c)) = reference.resolve_char_ref() {
        return Some(c.to_string());
    }
    resolve_predefined_entity(&reference.decode().ok()?).map(str::to_owned)
}
