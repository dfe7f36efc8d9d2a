//! Statements that the front end answers itself, told from those of the database by their first words.

mod copy_options;
mod isolation;
mod words;

use crate::error::{PgError, Result, code};
use crate::lexer::{Token, TokenKind, tokens};
use crate::messages::input::Format;
pub(crate) use isolation::{Isolation, serializable};
use words::Words;

/// A statement, as far as the front end understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    Empty,
    /// A query of the database, with the first word of its tag.
    Query(&'static str),
    /// `DELETE` or `UPDATE`, whose result is a number of rows.
    Change(&'static str),
    Set {
        name: String,
        value: Option<String>,
        is_local: bool,
    },
    Reset(Option<String>),
    /// `None` for all.
    Show(Option<String>),
    /// `SELECT pg_advisory_unlock_all()`, which pools send to clean a session up. It has no locks.
    UnlockAll,
    DiscardAll,
    /// A statement without effect here, such as `UNLISTEN`, and its tag.
    Nothing(&'static str),
    /// `BEGIN`, with its tag and the level that it names.
    Begin(&'static str, Option<Isolation>),
    /// `SET TRANSACTION`, with the level that it names.
    SetTransaction {
        is_session: bool,
        level: Option<Isolation>,
    },
    Commit,
    Rollback,
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    Prepare {
        name: String,
        types: Vec<String>,
        text: String,
    },
    Execute {
        name: String,
        arguments: Vec<Argument>,
    },
    /// `None` for all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        is_held: bool,
        format: Format,
        text: String,
    },
    Fetch {
        cursor: String,
        count: Count,
        is_move: bool,
    },
    /// `None` for all.
    CloseCursor(Option<String>),
    CopyOut(CopyOut),
    CopyIn(CopyIn),
    /// `INSERT`, whose events are appended when the transaction ends.
    Insert,
}

/// Rows that `FETCH` and `MOVE` take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Rows(u64),
    All,
}

/// Value that `EXECUTE` has for a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Argument {
    Null,
    Text(String),
}

/// `COPY (query) TO STDOUT`, or of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyOut {
    pub text: String,
    pub options: CopyOptions,
}

/// `COPY table (columns) FROM STDIN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyIn {
    pub schema: Option<String>,
    pub table: PlacedName,
    /// `None` for all.
    pub columns: Option<Vec<PlacedName>>,
    pub options: CopyOptions,
}

/// A name as it is written, and its place in the statement in characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedName {
    pub name: String,
    pub position: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyOptions {
    pub format: CopyFormat,
    pub has_header: bool,
    /// True if a header that is read has to have the names of the columns.
    pub matches_header: bool,
    pub delimiter: u8,
    pub null: String,
    pub quote: u8,
    pub escape: u8,
    /// Columns whose texts are quoted always, `*` for all.
    pub force_quote: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyFormat {
    Text,
    Csv,
    Binary,
}

/// Maximum bytes of a statement that is taken apart; a token takes more memory than most of its characters.
const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Name of the function, which is that of its column.
pub(crate) const UNLOCK_ALL: &str = "pg_advisory_unlock_all";
/// Bytes above which a statement is more than a call of that function.
const UNLOCK_ALL_BYTES_MAX: usize = 100;

impl Command {
    /// Understands a statement.
    ///
    /// Errors: one that the front end answers is malformed, or asks for what it has not.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() <= UNLOCK_ALL_BYTES_MAX {
            let words = tokens(text).map(|token| text[token.start..token.end].to_ascii_lowercase());
            if words.eq(["select", UNLOCK_ALL, "(", ")"]) {
                return Ok(Self::UnlockAll);
            }
        }
        let first = tokens(text)
            .next()
            .map_or(String::new(), |token| text[token.start..token.end].to_ascii_uppercase());
        match first.as_str() {
            "" => return Ok(Self::Empty),
            "SELECT" | "WITH" | "VALUES" | "TABLE" | "FROM" | "(" => return Ok(Self::Query("SELECT")),
            "EXPLAIN" => return Ok(Self::Query("EXPLAIN")),
            "DELETE" => return Ok(Self::Change("DELETE")),
            "UPDATE" => return Ok(Self::Change("UPDATE")),
            "INSERT" => return Ok(Self::Insert),
            _ => {}
        }
        if text.len() > COMMAND_BYTES_MAX {
            return Err(PgError::new(
                code::TOO_LARGE,
                format!("a statement of {} bytes: the limit for {first} is {COMMAND_BYTES_MAX}", text.len()),
            ));
        }
        let tokens: Vec<Token> = tokens(text).collect();
        let mut words = Words { text, tokens: &tokens, at: 0 };
        match first.as_str() {
            "SET" => words.set(),
            "RESET" => {
                words.at = 1;
                if words.is("ROLE") || words.is("SESSION") && words.upper(1) == "AUTHORIZATION" {
                    return Ok(Self::Nothing("RESET"));
                }
                let name = words.setting_name()?;
                words.end()?;
                Ok(Self::Reset(Some(name).filter(|name| !name.eq_ignore_ascii_case("all"))))
            }
            "SHOW" => words.show(),
            "DISCARD" => {
                words.at = 1;
                // a session has neither plans of its own nor sequences and temporary tables
                let discarded = match words.upper(0).as_str() {
                    "ALL" => Self::DiscardAll,
                    "PLANS" => Self::Nothing("DISCARD PLANS"),
                    "SEQUENCES" => Self::Nothing("DISCARD SEQUENCES"),
                    "TEMP" | "TEMPORARY" => Self::Nothing("DISCARD TEMP"),
                    _ => return Err(words.expected("ALL, PLANS, SEQUENCES or TEMP")),
                };
                words.at = 2;
                words.end().map(|()| discarded)
            }
            "BEGIN" => {
                words.at = 1;
                words.skip(&["WORK", "TRANSACTION"]);
                words.transaction_modes().map(|level| Self::Begin("BEGIN", level))
            }
            "START" => {
                words.at = 1;
                words.keyword("TRANSACTION")?;
                words.transaction_modes().map(|level| Self::Begin("START TRANSACTION", level))
            }
            "COMMIT" | "END" => words.end_transaction(Self::Commit),
            "ABORT" => words.end_transaction(Self::Rollback),
            "ROLLBACK" => {
                words.at = 1;
                words.skip(&["WORK", "TRANSACTION"]);
                if words.take("TO") {
                    words.skip(&["SAVEPOINT"]);
                    let name = words.name()?;
                    return words.end().map(|()| Self::RollbackTo(name));
                }
                words.end_transaction(Self::Rollback)
            }
            "SAVEPOINT" => words.named(1, Self::Savepoint),
            "RELEASE" => {
                words.at = 1;
                words.skip(&["SAVEPOINT"]);
                words.named(words.at, Self::Release)
            }
            "PREPARE" => words.prepare(),
            "EXECUTE" => words.execute(),
            "DEALLOCATE" => {
                words.at = 1;
                words.skip(&["PREPARE"]);
                words.all_or_name().map(Self::Deallocate)
            }
            "DECLARE" => words.declare(),
            "FETCH" | "MOVE" => words.fetch(first == "MOVE"),
            "CLOSE" => {
                words.at = 1;
                words.all_or_name().map(Self::CloseCursor)
            }
            "COPY" => words.copy(),
            "UNLISTEN" => Ok(Self::Nothing("UNLISTEN")),
            "LISTEN" | "NOTIFY" => Err(PgError::not_supported(format!(
                "{first} is not supported: events of a stream are followed over HTTP or a sink"
            ))),
            _ => Ok(Self::Query("SELECT")),
        }
    }

    /// Returns whether the statement ends a transaction, and is therefore allowed after an error.
    pub fn ends_transaction(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::RollbackTo(_))
    }

    /// Returns whether the statement reads tables, or writes them.
    pub fn uses_tables(&self) -> bool {
        matches!(
            self,
            Self::Query(_) | Self::Insert | Self::CopyIn(_) | Self::CopyOut(_) | Self::Declare { .. }
        )
    }

    /// Returns whether the statement appends events. What it has begun to append is appended, whatever its client does.
    pub fn appends(&self) -> bool {
        matches!(self, Self::Insert | Self::CopyIn(_) | Self::Commit)
    }

    /// Returns whether the statement closes portals, its own one included.
    pub fn closes_portals(&self) -> bool {
        matches!(self, Self::Commit | Self::Rollback | Self::CloseCursor(None) | Self::DiscardAll)
    }
}

impl Words<'_> {
    fn set(&mut self) -> Result<Command> {
        self.at = 1;
        let is_local = self.is("LOCAL") && self.upper(1) != "=" && self.upper(1) != "TO";
        if is_local || self.is("SESSION") {
            self.at += 1;
        }
        if self.is("CHARACTERISTICS") || self.is("TRANSACTION") {
            let is_session = self.take("CHARACTERISTICS");
            if is_session {
                self.keyword("AS")?;
            }
            self.keyword("TRANSACTION")?;
            let level = self.transaction_modes()?;
            return Ok(Command::SetTransaction { is_session, level });
        }
        if self.is("ROLE") || self.is("AUTHORIZATION") {
            let none = self.upper(1);
            if self.is("ROLE") && none == "NONE" || self.is("AUTHORIZATION") && none == "DEFAULT" {
                return Ok(Command::Nothing("SET"));
            }
            return Err(PgError::not_supported(
                "a session keeps the user that has logged in: log in as the other user",
            ));
        }
        let name = self.setting_name()?;
        let has_mark =
            ["NAMES", "SCHEMA"].iter().any(|word| name.eq_ignore_ascii_case(word)) || name == "TimeZone";
        if !self.take("=") && !self.take("TO") && !has_mark {
            return Err(self.expected("= or TO"));
        }
        if self.is("DEFAULT") || name == "TimeZone" && self.is("LOCAL") {
            self.at += 1;
            self.end()?;
            return Ok(Command::Set { name, value: None, is_local });
        }
        let mut value = self.value()?;
        while self.take(",") {
            value = format!("{value}, {}", self.value()?);
        }
        self.end()?;
        Ok(Command::Set { name, value: Some(value), is_local })
    }

    fn show(&mut self) -> Result<Command> {
        const OF_DATABASE: [&str; 8] =
            ["TABLES", "COLUMNS", "FUNCTIONS", "SCHEMAS", "DATABASES", "CATALOGS", "FULL", "CREATE"];
        self.at = 1;
        if OF_DATABASE.iter().any(|word| self.is(word)) || self.upper(0) == "DATAFUSION" {
            return Ok(Command::Query("SHOW"));
        }
        if self.is("TRANSACTION") {
            self.at += 1;
            self.keyword("ISOLATION")?;
            self.keyword("LEVEL")?;
            return self.end().map(|()| Command::Show(Some("transaction_isolation".to_owned())));
        }
        if self.take("SESSION") {
            self.keyword("AUTHORIZATION")?;
            return self.end().map(|()| Command::Show(Some("session_authorization".to_owned())));
        }
        let name = self.setting_name()?;
        self.end()?;
        Ok(Command::Show(Some(name).filter(|name| name != "all")))
    }

    fn end_transaction(&mut self, command: Command) -> Result<Command> {
        self.at = self.at.max(1);
        self.skip(&["WORK", "TRANSACTION"]);
        if self.is("PREPARED") {
            return Err(PgError::not_supported("transactions in two phases are not supported"));
        }
        if self.take("AND") && !self.take("NO") {
            return Err(PgError::not_supported("AND CHAIN is not supported: send BEGIN after it"));
        }
        self.skip(&["CHAIN"]);
        self.end().map(|()| command)
    }

    fn prepare(&mut self) -> Result<Command> {
        self.at = 1;
        let name = self.name()?;
        let mut types = Vec::new();
        if self.take("(") {
            loop {
                let mut ty = String::new();
                while !self.is(",") && !self.is(")") {
                    let Some(word) = self.token(0) else { return Err(self.expected(")")) };
                    ty = if ty.is_empty() { word.to_owned() } else { format!("{ty} {word}") };
                    self.at += 1;
                }
                types.push(ty);
                if !self.take(",") {
                    break;
                }
            }
            self.keyword(")")?;
        }
        self.keyword("AS")?;
        Ok(Command::Prepare { name, types, text: self.rest()?.to_owned() })
    }

    fn execute(&mut self) -> Result<Command> {
        self.at = 1;
        let name = self.name()?;
        let mut arguments = Vec::new();
        if self.take("(") && !self.take(")") {
            loop {
                arguments.push(self.argument()?);
                if !self.take(",") {
                    break;
                }
            }
            self.keyword(")")?;
        }
        self.end()?;
        Ok(Command::Execute { name, arguments })
    }

    fn argument(&mut self) -> Result<Argument> {
        let is_null = self.kind() == Some(TokenKind::Word) && self.is("NULL");
        let is_name = self.kind() == Some(TokenKind::Word)
            && !is_null
            && !self.token(0).is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            && !["TRUE", "FALSE"].iter().any(|word| self.is(word));
        let refused = || {
            PgError::not_supported("an argument of EXECUTE has to be a text, a number, true, false or null")
        };
        if is_name {
            return Err(refused());
        }
        let value = self.value()?;
        // the type of the parameter decides; a cast to it adds nothing
        while self.take(":") {
            self.keyword(":")?;
            self.name()?;
        }
        match self.token(0) {
            Some("," | ")") if is_null => Ok(Argument::Null),
            Some("," | ")") => Ok(Argument::Text(value)),
            _ => Err(refused()),
        }
    }

    fn declare(&mut self) -> Result<Command> {
        self.at = 1;
        let name = self.name()?;
        let mut format = Format::Text;
        loop {
            if self.take("BINARY") {
                format = Format::Binary;
            } else if self.is("SCROLL") {
                return Err(PgError::not_supported(
                    "cursors that move backward are not supported: leave SCROLL out",
                ));
            } else if self.take("NO") {
                self.keyword("SCROLL")?;
            } else if !self.take("INSENSITIVE") && !self.take("ASENSITIVE") {
                break;
            }
        }
        self.keyword("CURSOR")?;
        let mut is_held = false;
        if self.is("WITH") || self.is("WITHOUT") {
            is_held = self.take("WITH");
            self.skip(&["WITHOUT"]);
            self.keyword("HOLD")?;
        }
        self.keyword("FOR")?;
        Ok(Command::Declare { name, is_held, format, text: self.rest()?.to_owned() })
    }

    fn fetch(&mut self, is_move: bool) -> Result<Command> {
        self.at = 1;
        let number = |words: &mut Self| match words
            .token(0)
            .and_then(|token| token.parse::<u64>().ok())
            .filter(|count| *count > 0)
        {
            Some(count) => {
                words.at += 1;
                Some(Count::Rows(count))
            }
            None if words.take("ALL") => Some(Count::All),
            None => None,
        };
        // a cursor may have one of these names
        let others = ["BACKWARD", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "-", "0"];
        if others.iter().any(|word| self.is(word)) && self.token(1).is_some() {
            return Err(PgError::new(
                "55000",
                "cursor can only scan forward: fetch NEXT, a number of rows from 1 on, or ALL",
            ));
        }
        let count = if self.take("FORWARD") {
            number(self).unwrap_or(Count::Rows(1))
        } else if self.take("NEXT") {
            Count::Rows(1)
        } else {
            number(self).unwrap_or(Count::Rows(1))
        };
        self.skip(&["FROM", "IN"]);
        let cursor = self.name()?;
        self.end()?;
        Ok(Command::Fetch { cursor, count, is_move })
    }
}

#[cfg(test)]
mod tests;
