//! Documents as trees.
//!
//! Documents come from outside: the depth is limited, and a document type is refused, because its entities can refer to
//! other files and grow without limit.

use std::borrow::Cow;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// Greatest number of elements around an element.
const DEPTH_MAX: usize = 128;

/// XML document.
pub(crate) struct Document<'t> {
    text: &'t str,
    /// Elements in the order in which they begin; the first is the root.
    elements: Vec<Element>,
}

/// Element of a document.
#[derive(Debug, Default)]
pub(crate) struct Element {
    /// Local name and namespace.
    pub(crate) name: Name,
    /// Attributes with their values.
    pub(crate) attributes: Vec<(Name, String)>,
    /// Index of the parent; the root has none.
    pub(crate) parent: Option<usize>,
    /// Indices of the elements inside.
    pub(crate) children: Vec<usize>,
    /// Text directly inside.
    pub(crate) text: String,
    range: Range<usize>,
}

/// Local name, with its prefix and the namespace that it stands for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) local: String,
    pub(crate) prefix: String,
    pub(crate) namespace: String,
}

impl<'t> Document<'t> {
    /// Parses a document.
    ///
    /// Errors: what is wrong, and at which byte.
    pub(crate) fn parse(text: &'t str) -> Result<Self, String> {
        let mut reader = Reader::from_str(text);
        let mut parser = Parser::default();
        loop {
            let start = reader.buffer_position() as usize;
            let event = reader.read_event();
            let end = reader.buffer_position() as usize;
            let at = |e: String| format!("not valid XML at byte {start}: {e}");
            let done = match event.map_err(|e| at(e.to_string()))? {
                Event::Start(tag) => parser.open(&tag, start..end).map(drop),
                Event::Empty(tag) => parser.open(&tag, start..end).map(|()| parser.close(end)),
                Event::End(_) => {
                    parser.close(end);
                    Ok(())
                }
                Event::Text(text) => {
                    text.xml10_content().map_err(|e| e.to_string()).and_then(|t| parser.text(&t))
                }
                Event::CData(text) => {
                    text.xml10_content().map_err(|e| e.to_string()).and_then(|t| parser.text(&t))
                }
                Event::GeneralRef(entity) => resolved(&entity).and_then(|text| parser.text(&text)),
                Event::DocType(_) => Err("a document type (`<!DOCTYPE …>`) is refused".to_owned()),
                Event::Decl(declaration) => match declaration.encoding() {
                    Some(Ok(encoding)) if !encoding.eq_ignore_ascii_case(b"utf-8") => {
                        Err(format!("expected UTF-8, found {}", String::from_utf8_lossy(&encoding)))
                    }
                    _ => Ok(()),
                },
                Event::Comment(_) | Event::PI(_) => Ok(()),
                Event::Eof => {
                    parser.finish().map_err(at)?;
                    return Ok(Self { text, elements: parser.elements });
                }
            };
            done.map_err(at)?;
        }
    }

    /// Returns an element.
    pub(crate) fn element(&self, index: usize) -> &Element {
        &self.elements[index]
    }

    /// Returns the text of the document from the beginning of an element to its end.
    pub(crate) fn source(&self, index: usize) -> &'t str {
        &self.text[self.elements[index].range.clone()]
    }
}

impl Element {
    /// Returns the value of an attribute.
    pub(crate) fn attribute(&self, is_it: impl Fn(&Name) -> bool) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct Parser {
    elements: Vec<Element>,
    open: Vec<usize>,
    /// Prefixes with their namespaces, and the number of elements around the one that declares them.
    namespaces: Vec<(usize, String, String)>,
}

impl Parser {
    fn open(&mut self, tag: &BytesStart<'_>, range: Range<usize>) -> Result<(), String> {
        if self.open.len() >= DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} elements are inside of one another"));
        }
        if self.open.is_empty() && !self.elements.is_empty() {
            return Err("a document has one root element, found another one".to_owned());
        }
        let mut attributes = vec![];
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|e| e.to_string())?;
            let name = utf8(attribute.key.as_ref())?;
            let value = attribute.unescape_value().map_err(|e| e.to_string())?.into_owned();
            match name.split_once(':') {
                Some(("xmlns", prefix)) => self.namespaces.push((self.open.len(), prefix.to_owned(), value)),
                None if name == "xmlns" => self.namespaces.push((self.open.len(), String::new(), value)),
                _ => attributes.push((name.to_owned(), value)),
            }
        }
        let attributes = attributes.into_iter().map(|(name, value)| match name.contains(':') {
            true => Ok((self.name(&name)?, value)),
            // the default namespace is that of elements only
            false => Ok((Name { local: name, ..Name::default() }, value)),
        });
        let element = Element {
            attributes: attributes.collect::<Result<_, String>>()?,
            name: self.name(utf8(tag.name().as_ref())?)?,
            parent: self.open.last().copied(),
            range,
            ..Element::default()
        };
        let index = self.elements.len();
        if let Some(parent) = element.parent {
            self.elements[parent].children.push(index);
        }
        self.elements.push(element);
        self.open.push(index);
        Ok(())
    }

    fn name(&self, name: &str) -> Result<Name, String> {
        let (prefix, local) = name.split_once(':').unwrap_or(("", name));
        if !is_name(local) || !(prefix.is_empty() || is_name(prefix)) {
            return Err(format!("`{name}` is no name"));
        }
        let declared = self.namespaces.iter().rev().find(|(_, known, _)| known == prefix);
        Ok(Name {
            local: local.to_owned(),
            prefix: prefix.to_owned(),
            namespace: declared.map(|(_, _, uri)| uri.clone()).unwrap_or_default(),
        })
    }

    /// Ends the innermost element. The reader has checked that there is one of the same name.
    fn close(&mut self, end: usize) {
        if let Some(index) = self.open.pop() {
            self.elements[index].range.end = end;
        }
        let depth = self.open.len();
        self.namespaces.retain(|(declared_at, ..)| *declared_at < depth);
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        match self.open.last() {
            Some(index) => self.elements[*index].text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err("there is text outside of the root element".to_owned()),
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), String> {
        match self.open.last() {
            Some(index) => Err(format!("the element `{}` has no end", self.elements[*index].name.local)),
            None if self.elements.is_empty() => Err("there is no element".to_owned()),
            None => Ok(()),
        }
    }
}

/// Returns whether a text is a name of XML, without a prefix.
pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '\u{b7}'))
}

fn utf8(name: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(name).map_err(|e| e.to_string())
}

fn resolved(entity: &BytesRef<'_>) -> Result<Cow<'static, str>, String> {
    if let Some(c) = entity.resolve_char_ref().map_err(|e| e.to_string())? {
        return Ok(Cow::Owned(c.to_string()));
    }
    let name = entity.decode().map_err(|e| e.to_string())?;
    resolve_predefined_entity(&name).map(Cow::Borrowed).ok_or_else(|| format!("unknown entity `&{name};`"))
}
