//! Errors as clients get them: a code (SQLSTATE), a message, a hint and a place in the text of the statement.

use tidemill_types::ErrorKind;

/// Result of the front end.
pub(crate) type Result<T, E = PgError> = std::result::Result<T, E>;

/// Codes that the front end itself answers.
pub(crate) mod code {
    pub const WARNING: &str = "01000";
    pub const PROTOCOL_VIOLATION: &str = "08P01";
    pub const CONNECTION_FAILURE: &str = "08006";
    pub const NOT_SUPPORTED: &str = "0A000";
    pub const OUT_OF_RANGE: &str = "22003";
    pub const TIME_OUT_OF_RANGE: &str = "22008";
    pub const INVALID_VALUE: &str = "22023";
    pub const INVALID_TEXT: &str = "22P02";
    pub const INVALID_BINARY: &str = "22P03";
    pub const BAD_COPY: &str = "22P04";
    pub const UNTRANSLATABLE: &str = "22021";
    pub const COMPLETION_UNKNOWN: &str = "40003";
    pub const ACTIVE_TRANSACTION: &str = "25001";
    pub const NO_TRANSACTION: &str = "25P01";
    pub const FAILED_TRANSACTION: &str = "25P02";
    pub const IDLE_IN_TRANSACTION: &str = "25P03";
    pub const NO_STATEMENT: &str = "26000";
    pub const INVALID_PASSWORD: &str = "28P01";
    pub const NO_DATABASE: &str = "3D000";
    pub const NO_CURSOR: &str = "34000";
    pub const NO_SAVEPOINT: &str = "3B001";
    pub const SYNTAX: &str = "42601";
    pub const NO_SETTING: &str = "42704";
    pub const KNOWN_CURSOR: &str = "42P03";
    pub const KNOWN_STATEMENT: &str = "42P05";
    pub const MEMORY: &str = "53200";
    pub const CONFIGURED_LIMIT: &str = "53400";
    pub const TOO_LARGE: &str = "54000";
    pub const NOT_IN_STATE: &str = "55000";
    pub const SHUTDOWN: &str = "57P01";
    pub const CANCELLED: &str = "57014";
    pub const SNAPSHOT_TOO_OLD: &str = "72000";
    pub const INTERNAL: &str = "XX000";
}

/// Phrases in messages of the database that tell the cause of an error of kind `Invalid` or `NotFound`, and its code. The first
/// that fits counts.
const CAUSES: [(&str, &str); 34] = [
    ("no unique constraint", "42P10"),
    ("has no events", "42809"),
    ("is set by Tidemill", "428C9"),
    ("is named twice", "42701"),
    ("more expressions than target columns", code::SYNTAX),
    ("more target columns than expressions", code::SYNTAX),
    ("must all be the same length", code::SYNTAX),
    ("more than one row returned by a subquery", "21000"),
    ("is not supported", code::NOT_SUPPORTED),
    ("not supported:", code::NOT_SUPPORTED),
    // new rows of a stream
    ("is not possible over it", code::NOT_SUPPORTED),
    ("which has no new rows", code::NOT_SUPPORTED),
    ("over tail() are numbers", code::NOT_SUPPORTED),
    ("the rows of tail() have no", code::NOT_SUPPORTED),
    ("there is no column", "42703"),
    ("is in more than one of the tables", "42702"),
    ("two columns are called", "42701"),
    ("there is no function", "42883"),
    ("Invalid function", "42883"),
    ("must be in GROUP BY", "42803"),
    ("division by zero", "22012"),
    ("Divide by zero", "22012"),
    ("no interval: write", "22007"),
    ("no time to compare", "22007"),
    ("Error parsing timestamp", "22007"),
    ("regular expression", "2201B"),
    ("is not a valid identifier", code::INVALID_VALUE),
    ("verflow", code::OUT_OF_RANGE),
    ("Cannot cast", code::INVALID_TEXT),
    ("expected a value of type", code::INVALID_TEXT),
    ("parameters: expected", code::PROTOCOL_VIOLATION),
    ("nested too deeply", "54001"),
    ("expected", code::SYNTAX),
    ("Expected", code::SYNTAX),
];

/// Weight of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The statement has failed.
    Error,
    /// The connection ends.
    Fatal,
    /// Something was done, though not as the client may think.
    Warning,
    /// Something that the client may want to know.
    Notice,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
        }
    }
}

/// An error, or a notice, for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PgError {
    pub severity: Severity,
    /// SQLSTATE: five characters.
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
    /// Place in the text of the statement, in characters from 1.
    pub position: Option<usize>,
    /// Line and column of the data in which it occurred.
    pub context: Option<String>,
}

impl PgError {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        let (severity, message) = (Severity::Error, message.into());
        Self { severity, code, message, hint: None, position: None, context: None }
    }

    /// Creates an error after which the connection is closed.
    pub fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Fatal, ..Self::new(code, message) }
    }

    /// Creates the error for a client that does not speak the protocol.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::fatal(code::PROTOCOL_VIOLATION, message)
    }

    pub fn warning(message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(code::WARNING, message) }
    }

    pub fn notice(message: impl Into<String>) -> Self {
        Self { severity: Severity::Notice, ..Self::new("00000", message) }
    }

    pub fn not_supported(message: impl Into<String>) -> Self {
        Self::new(code::NOT_SUPPORTED, message)
    }

    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(code::SYNTAX, message)
    }

    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Returns the error with its place counted from the start of a longer text, in which the statement begins after `skipped`.
    pub fn moved(mut self, skipped: &str) -> Self {
        self.position = self.position.map(|position| position + skipped.chars().count());
        self
    }

    /// Returns whether the connection has to end.
    pub fn is_fatal(&self) -> bool {
        self.severity == Severity::Fatal
    }

    /// Returns the error of the database for the statement `text`. A place at the beginning of its message becomes a position.
    pub fn of_database(error: &tidemill_types::Error, text: &str) -> Self {
        let whole = match error.message().is_empty() {
            true => error.to_string(),
            false => error.message().to_owned(),
        };
        let (place, message) = match split_place(&whole) {
            Some((line, column, rest)) => (position(text, line, column), rest.to_owned()),
            None => (None, whole.clone()),
        };
        let message = if place.is_some() { message } else { whole };
        let hint = error.hint().trim_start_matches(['.', ' ']);
        Self {
            severity: Severity::Error,
            code: state(error.kind(), &message),
            message,
            hint: Some(hint).filter(|hint| !hint.is_empty()).map(str::to_owned),
            position: place,
            context: None,
        }
    }

    /// Returns the error with the place in the data in which it occurred.
    pub fn with_context(self, context: impl Into<String>) -> Self {
        Self { context: Some(context.into()), ..self }
    }
}

/// Returns the code of an error of the database, from its kind and, where a kind has several causes, its message.
fn state(kind: ErrorKind, message: &str) -> &'static str {
    // what follows may name objects of any kind
    let missing = message.strip_prefix("there is no ").and_then(|rest| rest.split_whitespace().next());
    if message.contains("may be stored") || message.contains("is finished all the same") {
        return code::COMPLETION_UNKNOWN;
    }
    if kind == ErrorKind::Invalid
        && let Some(code) = state_of_row(message)
    {
        return code;
    }
    let cause = || CAUSES.iter().find(|(phrase, _)| message.contains(phrase)).map(|(_, code)| *code);
    match kind {
        ErrorKind::NotFound => match missing {
            Some("function") => "42883",
            Some("column" | "field") => "42703",
            Some("catalog") => code::NO_DATABASE,
            Some("schema") => "3F000",
            Some("type" | "role") => "42704",
            _ if message.starts_with("no statement") || message.starts_with("no setting") => "42704",
            _ => "42P01",
        },
        ErrorKind::Invalid => cause().unwrap_or("42000"),
        ErrorKind::Conflict if message.contains("cancelled") => code::CANCELLED,
        ErrorKind::Conflict if message.contains("snapshot too old") => code::SNAPSHOT_TOO_OLD,
        ErrorKind::Conflict => "40001",
        ErrorKind::LimitReached if message.contains("took longer") => code::CANCELLED,
        ErrorKind::LimitReached if message.contains("REPEATABLE READ") => code::CONFIGURED_LIMIT,
        ErrorKind::LimitReached if message.contains("memory") => code::MEMORY,
        ErrorKind::LimitReached if message.contains("spill") => "53100",
        ErrorKind::LimitReached => code::TOO_LARGE,
        ErrorKind::Unavailable if message.contains("being closed") => code::SHUTDOWN,
        ErrorKind::Unavailable => "57P03",
        ErrorKind::Corrupt => "XX001",
        ErrorKind::Forbidden => "42501",
        ErrorKind::Internal => code::INTERNAL,
    }
}

/// Returns the code of a row that does not fit: `row 2: field `a`: expected int (…), found "x"`. `None` for another message.
fn state_of_row(message: &str) -> Option<&'static str> {
    let rest = message.strip_prefix("row ").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let rest = rest.and_then(|rest| rest.strip_prefix(": field `"));
    let rest =
        rest.or_else(|| message.strip_prefix("field `").filter(|rest| rest.contains("`: expected ")))?;
    let Some((expected, found)) = rest.split_once(", found ") else { return Some("22023") };
    let is_number = found.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let wants_number = ["int (", "long (", "float (", "double ("]
        .iter()
        .any(|ty| expected.contains(&format!("expected {ty}")));
    Some(match () {
        () if found.starts_with('"') && expected.contains("expected time") => "22007",
        () if found.starts_with('"') => code::INVALID_TEXT,
        () if is_number && wants_number => code::OUT_OF_RANGE,
        () => "42804",
    })
}

/// Splits `line 1, column 8 (…): message` into line, column and message.
fn split_place(message: &str) -> Option<(usize, usize, &str)> {
    let rest = message.strip_prefix("line ")?;
    let (line, rest) = rest.split_once(", column ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit())?;
    let (column, rest) = rest.split_at(digits);
    let rest = match rest.strip_prefix(" (`") {
        Some(quoted) => quoted.split_once("`): ")?.1,
        None => rest.strip_prefix(": ")?,
    };
    Some((line.parse().ok()?, column.parse().ok()?, rest))
}

/// Returns the place of a line and a column, both from 1, as a number of characters from 1.
fn position(text: &str, line: usize, column: usize) -> Option<usize> {
    let before = text.split_inclusive('\n').take(line.checked_sub(1)?);
    let before: usize = before.map(|line| line.chars().count()).sum();
    let position = before + column;
    (column > 0 && position <= text.chars().count() + 1).then_some(position)
}

#[cfg(test)]
mod tests {
    use tidemill_types::Error;

    use super::*;

    #[test]
    fn a_place_becomes_a_position_in_characters() {
        let text = "SELECT 'é',\n  speeed FROM r";
        let error = Error::invalid("line 2, column 3 (`speeed FROM r`): there is no column `speeed`")
            .with_hint(". Did you mean `speed`?");
        let error = PgError::of_database(&error, text);
        assert_eq!((error.position, error.code), (Some(15), "42703"));
        assert_eq!(error.message, "there is no column `speeed`");
        assert_eq!(error.hint.as_deref(), Some("Did you mean `speed`?"));
        assert_eq!(error.moved("SELECT 1; ").position, Some(25));
    }

    #[test]
    fn a_place_outside_of_the_text_stays_in_the_message() {
        let error = PgError::of_database(&Error::invalid("line 9, column 3: expected )"), "SELECT (");
        assert_eq!((error.position, error.message.as_str()), (None, "line 9, column 3: expected )"));
        assert_eq!(error.code, "42601");
    }

    #[test]
    fn each_kind_has_a_code_of_five_characters() {
        for kind in ErrorKind::ALL {
            assert_eq!(state(kind, "").len(), 5, "{kind:?}");
        }
        assert!(CAUSES.iter().all(|(_, code)| code.len() == 5));
        for (message, code) in [
            ("row 2: field `a`: expected int (a whole number of 32 bits), found \"x\"", code::INVALID_TEXT),
            ("row 1: field `a`: expected long (a whole number of 64 bits), found 1e30", code::OUT_OF_RANGE),
            ("row 1: field `a`: expected string (text in quotes), found 5", "42804"),
            ("row 9: field `a`: expected time (RFC 3339 …), found \"soon\"", "22007"),
            ("row 9: field `a.b` occurs twice", "22023"),
            ("field `a`: expected a value of type int, found lists or objects", "42804"),
            ("some of the events may be stored: the log is full", code::COMPLETION_UNKNOWN),
        ] {
            assert_eq!(state(ErrorKind::Invalid, message), code, "{message}");
        }
        let known = "there is no table `functions`. Known: system.statements";
        assert_eq!(state(ErrorKind::NotFound, known), "42P01");
    }
}
