//! Lines of names and values, such as `symbol:"WSO2",` and `price:55.6`, or texts of the user's own.

mod sink;
mod source;

use tidemill_connect::{OptionError, OptionSpec, Options};

pub(crate) use self::sink::TextSinkType;
pub(crate) use self::source::TextSourceType;

const DELIMITER: OptionSpec =
    OptionSpec::text("delimiter", "Line between two events of a message.").default("~~~~~~~~~~");

const NEW_LINE: OptionSpec =
    OptionSpec::text("new.line.character", "End of a line: `\\n` or `\\r\\n`.").default("\\n");

/// Line ends, and the separator of events.
struct Layout {
    /// End of a line.
    new_line: String,
    /// Line between two events, with the end of the line before and its own.
    separator: String,
    grouped: bool,
}

impl Layout {
    /// Errors: the end of a line is empty.
    fn new(options: &Options) -> Result<Self, OptionError> {
        let new_line = unescaped(options.text("new.line.character"));
        if new_line.is_empty() {
            let error = OptionError::option("new.line.character", "a line needs an end").of_mapper();
            return Err(error.expected(["'\\n'", "'\\r\\n'"]));
        }
        let separator = format!("{new_line}{}{new_line}", options.text("delimiter"));
        Ok(Self { new_line, separator, grouped: options.flag("event.grouping.enabled") })
    }

    /// Returns the length of the end of a line at the beginning of `text`. `\n` also stands for `\r\n`.
    fn line_end(&self, text: &str) -> Option<usize> {
        match text {
            _ if text.starts_with(&self.new_line) => Some(self.new_line.len()),
            _ if self.new_line == "\n" && text.starts_with("\r\n") => Some(2),
            _ => None,
        }
    }

    /// Returns where a value ends that is not the last, and where the next line begins.
    fn value_end(&self, text: &str, quote: Option<char>) -> Option<(usize, usize)> {
        text.match_indices(quote.unwrap_or(',')).find_map(|(at, end)| {
            let mut behind = &text[at + end.len()..];
            if quote.is_some() {
                behind = behind.trim_start_matches([' ', '\t']).strip_prefix(',')?;
            }
            Some((at, text.len() - behind.len() + self.line_end(behind)?))
        })
    }
}

/// Replaces `\n`, `\r` and `\t`: texts in SiddhiQL have no escapes.
fn unescaped(text: &str) -> String {
    text.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t")
}
