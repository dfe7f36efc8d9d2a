//! Events from XML.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_connect::{
    AttributeSource, EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper,
    SourceMapperType, resolve_attributes,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{Field, FieldType, StreamSchema};

use super::INSTANCE;
use super::path::{Node, XPath, node_text};
use super::tree::Document;
use crate::read::{mismatch, parse_value, property_value, push_event, text_of};

/// Type of the mapper of XML messages that arrive.
pub(crate) struct XmlSourceType;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("namespaces", "Prefixes of the paths with their namespaces: `a=urn:x,b=urn:y`."),
    OptionSpec::text("enclosing.element", "XPath of the element whose child elements are the events."),
    OptionSpec::flag(
        "enclosing.element.as.event",
        "false",
        "Whether the elements of `enclosing.element` are the events themselves.",
    ),
    OptionSpec::flag(
        "fail.on.missing.attribute",
        "true",
        "Whether an event that lacks an attribute is rejected; otherwise the attribute is null.",
    ),
    OptionSpec::flag(
        "extract.leaf.node.data",
        "false",
        "Whether an event element gives an event for each of its innermost elements, with the values around it.",
    ),
    OptionSpec::flag(
        "enable.streaming.xml.content",
        "false",
        "Only `false`: a message is a whole document here.",
    ),
];

impl SourceMapperType for XmlSourceType {
    fn name(&self) -> &'static str {
        "xml"
    }

    fn summary(&self) -> &'static str {
        "XML, by default `<events><event><symbol>WSO2</symbol></event></events>`, or values at XPaths."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        let error = |name: &str, message: String| OptionError::option(name, message).of_mapper();
        if options.flag("enable.streaming.xml.content") {
            let message = "a message is a whole document here; send each element as a message";
            return Err(error("enable.streaming.xml.content", message.to_owned()));
        }
        if attributes.is_empty() {
            let others =
                ["namespaces", "enclosing.element", "enclosing.element.as.event", "extract.leaf.node.data"];
            if let Some(name) = others.into_iter().find(|name| options.is_written(name)) {
                return Err(error(name, "the option needs `@attributes` with paths".to_owned()));
            }
        }
        let namespaces = parse_namespaces(options.text("namespaces")).map_err(|e| error("namespaces", e))?;
        let enclosing = options.get("enclosing.element").map(|text| XPath::parse(text, &namespaces));
        let enclosing = enclosing.transpose().map_err(|e| error("enclosing.element", e))?;
        let parse = |text: &str| {
            let path = XPath::parse(text, &namespaces)?;
            Ok(ValuePath { path, text: text.trim().to_owned() })
        };
        let attributes = match attributes.is_empty() {
            true => None,
            false => Some(resolve_attributes(attributes, schema, parse)?),
        };
        Ok(Box::new(XmlSource {
            enclosing,
            is_event: options.flag("enclosing.element.as.event"),
            complete: options.flag("fail.on.missing.attribute"),
            leaves: options.flag("extract.leaf.node.data"),
            attributes,
        }))
    }
}

fn parse_namespaces(text: &str) -> Result<BTreeMap<String, String>, String> {
    let all = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    all.map(|part| match part.split_once('=') {
        Some((prefix, uri)) => Ok((prefix.trim().to_owned(), uri.trim().to_owned())),
        None => Err(format!("expected `prefix=namespace`, found `{part}`")),
    })
    .collect()
}

struct ValuePath {
    path: XPath,
    /// Path as written; a key of the values of a leaf.
    text: String,
}

struct XmlSource {
    enclosing: Option<XPath>,
    is_event: bool,
    complete: bool,
    leaves: bool,
    attributes: Option<Vec<AttributeSource<ValuePath>>>,
}

impl SourceMapper for XmlSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let Some(text) = text_of(message, out) else { return };
        let document = match Document::parse(text) {
            Ok(document) => document,
            Err(reason) => return out.reject(message, reason, text.as_bytes()),
        };
        let before = out.len();
        match &self.attributes {
            None => self.map_default(message, &document, out),
            Some(attributes) if self.leaves => {
                for event in self.events(&document) {
                    self.map_leaves(message, &document, event, attributes, out);
                }
            }
            Some(attributes) => {
                // an absolute path leads to the same node from all events
                let absolute = attributes.iter().map(|source| match source {
                    AttributeSource::Path(ValuePath { path, .. }) if path.is_absolute() => {
                        Some(path.select(&document, Node::Document).first().copied())
                    }
                    _ => None,
                });
                let absolute: Vec<Option<Option<Node>>> = absolute.collect();
                for event in self.events(&document) {
                    self.map_paths(message, &document, event, (attributes, &absolute), out);
                }
            }
        }
        if out.len() == before {
            let reason = match (&self.attributes, &self.enclosing) {
                (None, _) => "expected `<events><event>…</event></events>`, found no such element",
                (Some(_), _) => "the path of `enclosing.element` leads to no event",
            };
            out.reject(message, reason, text.as_bytes());
        }
    }
}

impl XmlSource {
    fn map_default(&self, message: &Message, document: &Document<'_>, out: &mut EventBuilder) {
        let root = document.element(0);
        if root.name.local != "events" {
            return;
        }
        for event in root.children.iter().filter(|index| document.element(**index).name.local == "event") {
            let children = &document.element(*event).children;
            push_event(message, out, document.source(*event).as_bytes(), self.complete, |_, field| {
                let named = |index: &&usize| document.element(**index).name.local == field.name;
                let mut found = children.iter().filter(named);
                let first = found.next();
                if found.next().is_some() {
                    return Err(format!("the element `{}` occurs twice", field.name));
                }
                first.map(|index| element_value(document, *index, field)).transpose()
            });
        }
    }

    /// Returns the elements that are events.
    fn events(&self, document: &Document<'_>) -> Vec<usize> {
        let Some(path) = &self.enclosing else { return vec![0] };
        let found = path.select(document, Node::Element(0)).into_iter();
        let found = found.filter_map(|node| match node {
            Node::Element(index) => Some(index),
            _ => None,
        });
        match self.is_event {
            true => found.collect(),
            false => found.flat_map(|index| document.element(index).children.clone()).collect(),
        }
    }

    fn map_paths(
        &self,
        message: &Message,
        document: &Document<'_>,
        event: usize,
        (attributes, absolute): (&[AttributeSource<ValuePath>], &[Option<Option<Node>>]),
        out: &mut EventBuilder,
    ) {
        let text = document.source(event).as_bytes();
        push_event(message, out, text, self.complete, |index, field| match &attributes[index] {
            AttributeSource::Property(name) => property_value(message, name, field),
            AttributeSource::Path(path) => {
                let element = document.element(event);
                let found = match absolute[index] {
                    Some(found) => found,
                    None => path.path.select(document, Node::Element(event)).first().copied(),
                };
                // an event element without elements inside may be the value itself
                let own = self.is_event && element.children.is_empty() && element.name.local == path.text;
                match found.or(own.then_some(Node::Element(event))) {
                    None => Ok(None),
                    Some(Node::Element(index)) => element_value(document, index, field).map(Some),
                    Some(node) => parse_value(field, node_text(document, node)).map(Some),
                }
            }
        });
    }

    fn map_leaves(
        &self,
        message: &Message,
        document: &Document<'_>,
        event: usize,
        attributes: &[AttributeSource<ValuePath>],
        out: &mut EventBuilder,
    ) {
        let text = document.source(event).as_bytes();
        let wanted = attributes.iter().filter_map(|source| match source {
            AttributeSource::Path(path) => Some(path.text.as_str()),
            AttributeSource::Property(_) => None,
        });
        let wanted: Vec<&str> = wanted.collect();
        let path = format!("/{}", document.element(event).name.local);
        let mut leaf = |values: &[(String, &str)]| {
            push_event(message, out, text, self.complete, |index, field| match &attributes[index] {
                AttributeSource::Property(name) => property_value(message, name, field),
                AttributeSource::Path(path) => {
                    let found = values.iter().rfind(|(known, _)| *known == path.text);
                    found.map(|(_, text)| parse_value(field, text)).transpose()
                }
            });
        };
        each_leaf(document, event, &path, &wanted, &mut vec![], &mut leaf);
    }
}

type LeafVisitor<'a> = dyn FnMut(&[(String, &str)]) + 'a;

/// Calls `leaf` for each element that contains no elements other than those with texts, with the wanted
/// values of it and of the elements around it by their paths. The depth of documents is limited, so recursion
/// is safe.
fn each_leaf<'d>(
    document: &'d Document<'_>,
    index: usize,
    path: &str,
    wanted: &[&str],
    values: &mut Vec<(String, &'d str)>,
    leaf: &mut LeafVisitor<'_>,
) {
    let around = values.len();
    let element = document.element(index);
    let mut add = |path: String, value| {
        if wanted.contains(&path.as_str()) {
            values.retain(|(known, _)| *known != path);
            values.push((path, value));
        }
    };
    for (name, value) in &element.attributes {
        add(format!("{path}/@{}", name.local), value);
    }
    let mut inner = vec![];
    for child in &element.children {
        let element = document.element(*child);
        let path = format!("{path}/{}", element.name.local);
        match element.children.is_empty() && !element.text.trim().is_empty() {
            true => add(path, element.text.trim()),
            false => inner.push((*child, path)),
        }
    }
    if inner.is_empty() {
        leaf(values);
    }
    for (child, path) in inner {
        each_leaf(document, child, &path, wanted, values, leaf);
    }
    values.truncate(around);
}

/// Returns the value of an element: its text, or its XML if there are elements inside.
fn element_value(document: &Document<'_>, index: usize, field: &Field) -> Result<FieldValue, String> {
    let element = document.element(index);
    let nil =
        element.attribute(|name| name.local == "nil" && (name.namespace == INSTANCE || name.prefix == "xsi"));
    if nil.is_some_and(|nil| matches!(nil.trim(), "true" | "1")) {
        return Ok(FieldValue::Missing);
    }
    match (element.children.is_empty(), field.ty) {
        (true, _) => parse_value(field, &element.text),
        (false, FieldType::String) => Ok(FieldValue::Text(document.source(index).to_owned())),
        (false, _) => Err(mismatch(field, &format!("elements in `{}`", element.name.local))),
    }
}
