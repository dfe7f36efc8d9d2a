//! Events from texts.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fancy_regex::Regex;
use tidemill_connect::{
    AttributeSource, EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper,
    SourceMapperType, resolve_attributes,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{Field, FieldType, StreamSchema, did_you_mean};

use super::{DELIMITER, Layout, NEW_LINE};
use crate::read::{parse_value, property_value, push_event, text_of};

/// Type of the mapper of texts that arrive.
pub(crate) struct TextSourceType;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("regex.*", "Regular expression with groups, to which `@attributes` refer: `A[1]`."),
    OptionSpec::flag(
        "fail.on.missing.attribute",
        "true",
        "Whether an event that lacks an attribute is rejected; otherwise the attribute is null.",
    )
    .alias("fail.on.unknown.attribute"),
    OptionSpec::flag(
        "event.grouping.enabled",
        "false",
        "Whether a message has several events, with the delimiter between them.",
    ),
    DELIMITER,
    NEW_LINE,
];

impl SourceMapperType for TextSourceType {
    fn name(&self) -> &'static str {
        "text"
    }

    fn summary(&self) -> &'static str {
        "Lines such as `symbol:\"WSO2\",`, or groups of regular expressions."
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
        let mut regexes = vec![];
        let mut by_name = BTreeMap::new();
        for (name, text) in options.with_prefix("regex.") {
            let regex = Regex::new(text).map_err(|e| {
                let message = format!("`{text}` is not a regular expression: {e}");
                OptionError::option(&format!("regex.{name}"), message).of_mapper()
            })?;
            by_name.insert(name, regexes.len());
            regexes.push(regex);
        }
        let parse = |text: &str| Group::parse(text, &by_name, &regexes);
        let groups = match attributes {
            [] if regexes.is_empty() => None,
            [] => {
                let message = "regular expressions need `@attributes`, which say what their groups mean";
                let error = OptionError::connector(message).of_mapper();
                return Err(error.expected(["@attributes(a='A[1]', …)"]));
            }
            attributes => Some(resolve_attributes(attributes, schema, parse)?),
        };
        Ok(Box::new(TextSource {
            layout: Layout::new(options)?,
            complete: options.flag("fail.on.missing.attribute"),
            regexes,
            groups,
        }))
    }
}

/// Group of a regular expression.
struct Group {
    regex: usize,
    number: usize,
}

impl Group {
    /// Parses `A[2]`, or `A` for its first group.
    fn parse(text: &str, by_name: &BTreeMap<&str, usize>, regexes: &[Regex]) -> Result<Self, String> {
        let text = text.trim();
        let (name, number) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            None => (text, 1),
            Some((name, number)) => {
                let number = number.trim().parse().map_err(|_| {
                    format!("`{text}` is no group of a regular expression; expected one such as `A[1]`")
                })?;
                (name.trim(), number)
            }
        };
        let regex = *by_name.get(name).ok_or_else(|| {
            let hint = did_you_mean(name, by_name.keys().copied());
            format!("there is no option `regex.{name}`{hint}")
        })?;
        let groups = regexes[regex].captures_len() - 1;
        match number <= groups {
            true => Ok(Self { regex, number }),
            false => Err(format!("`regex.{name}` has {groups} groups, no group {number}")),
        }
    }
}

struct TextSource {
    layout: Layout,
    complete: bool,
    regexes: Vec<Regex>,
    groups: Option<Vec<AttributeSource<Group>>>,
}

impl SourceMapper for TextSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let Some(text) = text_of(message, out) else { return };
        if !self.layout.grouped {
            return self.map_event(message, text, out);
        }
        // also after the last event there may be a delimiter
        let last = self.layout.separator.strip_suffix(&self.layout.new_line).unwrap_or_default();
        let text = text.strip_suffix(&self.layout.separator).unwrap_or(text);
        let text = text.strip_suffix(last).unwrap_or(text);
        text.split(&self.layout.separator).for_each(|event| self.map_event(message, event, out));
    }
}

impl TextSource {
    fn map_event(&self, message: &Message, text: &str, out: &mut EventBuilder) {
        match &self.groups {
            None => self.map_lines(message, text, out),
            Some(groups) => self.map_groups(message, text, groups, out),
        }
    }

    fn map_groups(
        &self,
        message: &Message,
        text: &str,
        groups: &[AttributeSource<Group>],
        out: &mut EventBuilder,
    ) {
        let found: Result<Vec<_>, _> = self.regexes.iter().map(|regex| regex.captures(text)).collect();
        let found = match found {
            Ok(found) => found,
            Err(e) => {
                let reason = format!("the regular expression gives up: {e}");
                return out.reject(message, reason, text.as_bytes());
            }
        };
        push_event(message, out, text.as_bytes(), self.complete, |index, field| match &groups[index] {
            AttributeSource::Property(name) => property_value(message, name, field),
            AttributeSource::Path(group) => {
                let group = found[group.regex].as_ref().and_then(|captures| captures.get(group.number));
                group.map(|text| number_or_text(field, text.as_str())).transpose()
            }
        });
    }

    fn map_lines(&self, message: &Message, text: &str, out: &mut EventBuilder) {
        let lines = match Lines::parse(text, &self.layout) {
            Ok(lines) => lines,
            Err(reason) => return out.reject(message, reason, text.as_bytes()),
        };
        push_event(message, out, text.as_bytes(), self.complete, |_, field| {
            let found = lines.0.iter().find(|(name, _)| *name == field.name);
            Ok(match found {
                None => None,
                Some((_, Cell::Quoted { text, .. })) if field.ty == FieldType::String => {
                    Some(FieldValue::Text((*text).to_owned()))
                }
                Some((_, Cell::Quoted { all, .. })) if field.ty == FieldType::Object => {
                    Some(parse_value(field, all)?)
                }
                Some((_, Cell::Quoted { text, .. })) => Some(number_or_text(field, text)?),
                Some((_, Cell::Plain("null"))) => Some(FieldValue::Missing),
                Some((_, Cell::Plain(text))) => Some(number_or_text(field, text)?),
            })
        });
    }
}

/// Parses a value; numbers may have commas between thousands.
fn number_or_text(field: &Field, text: &str) -> Result<FieldValue, String> {
    match field.ty {
        FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double if text.contains(',') => {
            parse_value(field, &text.replace(',', ""))
        }
        _ => parse_value(field, text),
    }
}

/// Value of a line.
enum Cell<'t> {
    /// Text between quotes, and with them.
    Quoted { text: &'t str, all: &'t str },
    /// Anything else, without white space around it.
    Plain(&'t str),
}

/// Names and values of an event.
struct Lines<'t>(Vec<(&'t str, Cell<'t>)>);

impl<'t> Lines<'t> {
    /// Parses `name:value` pairs with a comma and the end of a line between them. A text ends with the quote with which
    /// it began, before a comma and the end of the line or the end of the event; other quotes belong to it.
    fn parse(text: &'t str, layout: &Layout) -> Result<Self, String> {
        let mut lines = vec![];
        let mut names = HashSet::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let line = || rest.lines().next().unwrap_or_default();
            let (name, value) =
                rest.split_once(':').ok_or_else(|| format!("expected `name:value`, found `{}`", line()))?;
            let value = value.trim_start();
            let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
            let body = &value[quote.map_or(0, char::len_utf8)..];
            let (cell, behind) = match layout.value_end(body, quote) {
                Some((end, next)) => (&body[..end], &body[next..]),
                None => match quote {
                    None => (body, ""),
                    Some(quote) => {
                        let text = body.trim_end();
                        let closed = text.strip_suffix(quote);
                        let unclosed = || format!("the text of `{}` has no quote at its end", name.trim());
                        (closed.ok_or_else(unclosed)?, "")
                    }
                },
            };
            let cell = match quote {
                // quotes are one byte
                Some(_) => Cell::Quoted { text: cell, all: &value[..cell.len() + 2] },
                None => Cell::Plain(cell.trim()),
            };
            if !names.insert(name.trim()) {
                return Err(format!("`{}` occurs twice", name.trim()));
            }
            lines.push((name.trim(), cell));
            rest = behind.trim_start();
        }
        Ok(Self(lines))
    }
}
