//! The elements of an XML document, with their lines.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::functions::xml::resolve;

/// Elements inside of elements.
const DEPTH_MAX: usize = 200;

/// An element. Namespaces are left out.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub name: String,
    pub line: usize,
    attributes: Vec<(String, String)>,
    pub children: Vec<Element>,
    pub text: String,
}

impl Element {
    /// Returns an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns an attribute that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, String> {
        self.attribute(name).ok_or_else(|| self.wrong(&format!("expected the attribute `{name}`")))
    }

    /// Returns an attribute that must be a number, or `default` without it.
    pub(super) fn number(&self, name: &str, default: Option<f64>) -> Result<f64, String> {
        let Some(text) = self.attribute(name) else {
            return default.ok_or_else(|| self.wrong(&format!("expected the attribute `{name}`")));
        };
        text.trim().parse().map_err(|_| self.wrong(&format!("`{name}` is `{text}`, which is no number")))
    }

    /// Returns the first child of a name.
    pub(super) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns the children of a name.
    pub(super) fn all<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns an error about this element.
    pub(super) fn wrong(&self, what: &str) -> String {
        format!("line {}: <{}>: {what}", self.line, self.name)
    }
}

/// Parses a document. Errors: it is not valid XML, with the line.
pub(super) fn parse(text: &str) -> Result<Element, String> {
    let mut reader = Reader::from_str(text);
    // the document, then each element whose end was not read
    let mut open = vec![Element::default()];
    let (mut counted, mut line) = (0, 1);
    loop {
        let event = reader.read_event();
        let at = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX).min(text.len());
        line += text.as_bytes()[counted..at].iter().filter(|b| **b == b'\n').count();
        counted = at;
        match event.map_err(|e| format!("line {line}: {e}"))? {
            Event::Start(start) => {
                if open.len() > DEPTH_MAX {
                    return Err(format!("line {line}: more than {DEPTH_MAX} elements inside of each other"));
                }
                open.push(element(&start, line)?);
            }
            Event::Empty(start) => {
                let element = element(&start, line)?;
                push(&mut open, element)?;
            }
            Event::End(_) => {
                let element = open.pop().ok_or("an end without a beginning")?;
                push(&mut open, element)?;
            }
            Event::Text(piece) => {
                let piece = piece.decode().map_err(|e| format!("line {line}: {e}"))?;
                if let Some(element) = open.last_mut() {
                    element.text.push_str(&piece);
                }
            }
            Event::CData(piece) => {
                let piece = piece.decode().map_err(|e| format!("line {line}: {e}"))?;
                if let Some(element) = open.last_mut() {
                    element.text.push_str(&piece);
                }
            }
            Event::GeneralRef(reference) => {
                let piece = resolve(&reference).ok_or_else(|| format!("line {line}: an unknown entity"))?;
                if let Some(element) = open.last_mut() {
                    element.text.push_str(&piece);
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match open.as_mut_slice() {
        [document] => document.children.pop().ok_or_else(|| "there is no element".to_owned()),
        _ => Err(format!("line {line}: the text ends inside of an element")),
    }
}

fn push(open: &mut [Element], element: Element) -> Result<(), String> {
    open.last_mut().ok_or("an end without a beginning")?.children.push(element);
    Ok(())
}

fn element(start: &BytesStart<'_>, line: usize) -> Result<Element, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("line {line}: {e}");
    let name = String::from_utf8_lossy(start.local_name().as_ref()).into_owned();
    let mut attributes = Vec::new();
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|e| wrong(&e))?;
        let value = attribute.unescape_value().map_err(|e| wrong(&e))?.into_owned();
        attributes.push((String::from_utf8_lossy(attribute.key.local_name().as_ref()).into_owned(), value));
    }
    Ok(Element { name, line, attributes, ..Element::default() })
}
