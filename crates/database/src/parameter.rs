//! Values of parameters: scalars, and lists of them.

use std::fmt;

use arrow_schema::DataType;
use tidemill_types::Value;

/// Maximum values of a list.
pub const LIST_ITEMS_MAX: usize = 1 << 20;

/// Value of a parameter of a statement.
#[derive(Debug, Clone)]
pub enum Parameter {
    /// A value that is not a list.
    Value(Value<'static>),
    /// A list with one dimension.
    List(ParameterList),
}

/// List of values of one type; they may be null.
#[derive(Debug, Clone)]
pub struct ParameterList {
    /// Arrow type of the values: `Boolean`, `Int64`, `Float64`, `Utf8`, or `Timestamp` in microseconds of UTC.
    pub item: DataType,
    /// Values in their order.
    pub items: Vec<Value<'static>>,
}

impl From<Value<'static>> for Parameter {
    fn from(value: Value<'static>) -> Self {
        Self::Value(value)
    }
}

impl Parameter {
    /// Returns the bytes that the value holds beside its own size.
    pub fn bytes(&self) -> usize {
        let text = |value: &Value<'_>| match value {
            Value::Str(text) => text.len(),
            _ => 0,
        };
        match self {
            Self::Value(value) => text(value),
            Self::List(ParameterList { items, .. }) => {
                size_of_val(items.as_slice()) + items.iter().map(text).sum::<usize>()
            }
        }
    }
}

impl fmt::Display for Parameter {
    /// Writes a list as `[1, null, 3]`, with its first ten values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        match self {
            Self::Value(value) => value.fmt(f),
            Self::List(ParameterList { items, .. }) => {
                f.write_str("[")?;
                for (at, item) in items.iter().take(SHOWN).enumerate() {
                    write!(f, "{}{item}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str(if items.len() > SHOWN { ", …]" } else { "]" })
            }
        }
    }
}

/// Reason why a text is not a list with one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListTextError {
    /// It is not written as PostgreSQL writes lists.
    Malformed,
    /// It has lists in it.
    Nested,
    /// It has more than [`LIST_ITEMS_MAX`] values.
    TooLong,
}

impl fmt::Display for ListTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("expected a list such as {1,2,null} or {a,\"b c\"}"),
            Self::Nested => f.write_str("lists of lists are not supported: send a list of values"),
            Self::TooLong => write!(f, "a list has at most {LIST_ITEMS_MAX} values"),
        }
    }
}

/// Returns the values of a list that is written as PostgreSQL writes it, such as `{1,null,"a \"b\""}`; `None` for null.
///
/// Errors: the text is not such a list, has lists in it, or too many values.
pub fn list_items(text: &str) -> Result<Vec<Option<String>>, ListTextError> {
    let mut text = text.trim();
    if text.starts_with('[') {
        // bounds, such as `[2:4]={a,b,c}`; a list here has no numbers of its own for its values
        let (bounds, rest) = text.split_once('=').ok_or(ListTextError::Malformed)?;
        let bounds = bounds.trim_end().strip_prefix('[').and_then(|bounds| bounds.strip_suffix(']'));
        let bounds = bounds.ok_or(ListTextError::Malformed)?;
        if bounds.contains(']') {
            return Err(ListTextError::Nested);
        }
        let mut ends = bounds.splitn(2, ':').map(|end| end.trim().parse::<i32>());
        if !matches!((ends.next(), ends.next()), (Some(Ok(_)), Some(Ok(_)))) {
            return Err(ListTextError::Malformed);
        }
        text = rest.trim_start();
    }
    let inner = text.strip_prefix('{').ok_or(ListTextError::Malformed)?;
    ItemReader { rest: inner.chars(), items: Vec::new() }.read()
}

struct ItemReader<'t> {
    rest: std::str::Chars<'t>,
    items: Vec<Option<String>>,
}

impl ItemReader<'_> {
    fn read(mut self) -> Result<Vec<Option<String>>, ListTextError> {
        loop {
            let end = self.item()?;
            if self.items.len() > LIST_ITEMS_MAX {
                return Err(ListTextError::TooLong);
            }
            if end == '}' {
                return match self.rest.as_str().trim().is_empty() {
                    true => Ok(self.items),
                    false => Err(ListTextError::Malformed),
                };
            }
        }
    }

    /// Reads a value, and returns the character that ends it.
    fn item(&mut self) -> Result<char, ListTextError> {
        // characters up to `kept` stay when the spaces at the end are cut
        let (mut item, mut kept, mut is_quoted, mut is_closed) = (String::new(), 0, false, false);
        loop {
            let c = self.rest.next().ok_or(ListTextError::Malformed)?;
            match c {
                ',' | '}' => {
                    item.truncate(kept.max(item.trim_end().len()));
                    return match (item.is_empty(), is_quoted) {
                        // `{}` is the only list with nothing between its separators
                        (true, false) if c == '}' && self.items.is_empty() => Ok(c),
                        (true, false) => Err(ListTextError::Malformed),
                        _ => {
                            let is_null = !is_quoted && kept == 0 && item.eq_ignore_ascii_case("null");
                            self.items.push((!is_null).then_some(item));
                            Ok(c)
                        }
                    };
                }
                '{' => return Err(ListTextError::Nested),
                c if c.is_ascii_whitespace() && item.is_empty() && !is_quoted => {}
                c if is_closed && c.is_ascii_whitespace() => {}
                _ if is_closed => return Err(ListTextError::Malformed),
                '"' if !item.is_empty() => return Err(ListTextError::Malformed),
                '"' => {
                    is_quoted = true;
                    is_closed = true;
                    loop {
                        match self.rest.next().ok_or(ListTextError::Malformed)? {
                            '"' => break,
                            '\\' => item.push(self.rest.next().ok_or(ListTextError::Malformed)?),
                            c => item.push(c),
                        }
                    }
                    kept = item.len();
                }
                '\\' => {
                    item.push(self.rest.next().ok_or(ListTextError::Malformed)?);
                    kept = item.len();
                }
                c => item.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_postgresql_writes_them() {
        let read = |text: &str| {
            let items = list_items(text)?;
            Ok(items.into_iter().map(|item| item.unwrap_or_else(|| "NULL".into())).collect::<Vec<_>>())
        };
        for (text, expected) in [
            ("{}", &[][..]),
            (" { } ", &[]),
            ("{1,2}", &["1", "2"]),
            ("{ a b , NULL,null , \"null\"}", &["a b", "NULL", "NULL", "null"]),
            ("{\"\",\"a\\\"b\\\\\",\" x \" }", &["", "a\"b\\", " x "]),
            ("{\\n\\ul\\l,a\\ ,\\{}", &["null", "a ", "{"]),
            ("[2:3]={a,é}", &["a", "é"]),
        ] {
            assert_eq!(read(text), Ok(expected.iter().map(ToString::to_string).collect()), "{text}");
        }
        for text in [
            "", "1", "{", "{1", "{1,}", "{,}", "{a}b", "{\"a}", "{a\"b\"}", "{\"a\"b}", "{a\\", "[x]={1}",
            "[1:2]",
        ] {
            assert_eq!(read(text), Err(ListTextError::Malformed), "{text}");
        }
        for text in ["{{1},{2}}", "[1:1][1:2]={{1,2}}", "{1,{2}}"] {
            assert_eq!(read(text), Err(ListTextError::Nested), "{text}");
        }
        assert_eq!(read(&format!("{{{}0}}", "0,".repeat(LIST_ITEMS_MAX))), Err(ListTextError::TooLong));
    }

    #[test]
    fn a_null_that_is_escaped_is_a_text() {
        assert_eq!(list_items("{null,\\null}"), Ok(vec![None, Some("null".into())]));
    }
}
