//! Parsing of outputs and output rate limits.

use super::super::ast::{
    Assignment, EventKind, Expr, Ident, KindClause, Output, OutputAction, RateEvents, RateKind, RateLimit,
};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Parses `output last every 3 events`; sets `done` to `output`.
    pub(super) fn rate(&mut self, done: &mut &'static str) -> Parse<RateLimit> {
        let start = self.bump();
        *done = "output";
        if self.eat_word("snapshot").is_some() {
            self.expect_word("every", "after `snapshot`")?;
            if matches!(self.token().kind, TokenKind::Int(_)) && self.is_word(1, "events") {
                let help = "write a time: `output snapshot every 1 sec`".to_owned();
                return Err(self.report_unexpected_with(&["a time"], "after `snapshot every`", Some(help)));
            }
            let every = self.time("every")?;
            return Ok(RateLimit { kind: RateKind::Snapshot { every }, span: self.span_since(start) });
        }
        let which = if self.eat_word("all").is_some() {
            Some(RateEvents::All)
        } else if self.eat_word("first").is_some() {
            Some(RateEvents::First)
        } else if self.eat_word("last").is_some() {
            Some(RateEvents::Last)
        } else {
            None
        };
        if self.eat_word("every").is_none() {
            let context =
                which.map_or("after `output`".to_owned(), |which| format!("after `{}`", which.text()));
            if matches!(self.token().kind, TokenKind::Int(_)) {
                let help = "write `every` before the number".to_owned();
                return Err(self.report_unexpected_with(&["`every`"], &context, Some(help)));
            }
            let expected: &[&str] = match which {
                Some(_) => &["every"],
                None => &["all", "first", "last", "snapshot", "every"],
            };
            return Err(self.report_unexpected_word(expected, &context));
        }
        let kind = self.round(which)?;
        Ok(RateLimit { kind, span: self.span_since(start) })
    }

    /// Parses `3 events` or `3 sec` after `every`.
    fn round(&mut self, which: Option<RateEvents>) -> Parse<RateKind> {
        if self.at_time() {
            return Ok(RateKind::Time { which, every: self.time("every")? });
        }
        let help = || Some("write `every 3 events` or `every 3 sec`".to_owned());
        let TokenKind::Int(_) = self.token().kind else {
            return Err(self.report_unexpected_with(&["a number"], "after `every`", help()));
        };
        let count_span = self.span();
        let count = self.whole_number("after `every`")?;
        if self.eat_word("events").is_some() {
            return Ok(RateKind::Events { which, count, count_span });
        }
        Err(match self.misspelling_of(&["events"]) {
            Some(_) => self.report_unexpected_word(&["events"], "after the number"),
            None => self.report_unexpected_with(&["`events`", "a unit of time"], "after the number", help()),
        })
    }

    /// Parses `all events`.
    pub(super) fn kind_clause(&mut self, context: &str) -> Parse<KindClause> {
        match self.optional_kind()? {
            Some(kind) => Ok(kind),
            None => Err(self.report_unexpected_word(&["all", "expired", "current", "events"], context)),
        }
    }

    /// Parses `all events`, if present.
    pub(super) fn optional_kind(&mut self) -> Parse<Option<KindClause>> {
        let start = self.span();
        let kind = match self.word(0).unwrap_or("").to_ascii_lowercase().as_str() {
            "all" => EventKind::All,
            "expired" => EventKind::Expired,
            "current" => EventKind::Current,
            "events" => {
                let span = self.bump();
                return Ok(Some(KindClause { kind: EventKind::Current, span }));
            }
            _ => return Ok(None),
        };
        let word = self.bump();
        if self.eat_word("events").is_none() {
            let context = format!("after `{}`", self.file.slice(word));
            return Err(self.report_unexpected_word(&["events"], &context));
        }
        Ok(Some(KindClause { kind, span: self.span_since(start) }))
    }

    /// Parses the output of a query whose previous clause is `done`.
    pub(super) fn output(&mut self, done: &str) -> Parse<Output> {
        let start = self.span();
        match self.word(0).unwrap_or("").to_ascii_lowercase().as_str() {
            "insert" => self.insert(start),
            "delete" => self.delete(start),
            "update" if self.is_word(1, "or") && self.is_word_of(2, &["insert", "into"]) => {
                self.upsert(start)
            }
            "update" => self.update(start),
            "return" => {
                self.bump();
                let kind = self.optional_kind()?;
                Ok(Output { action: OutputAction::Return, kind, span: self.span_since(start) })
            }
            _ => Err(self.report_missing_clause(next_clauses(done), done)),
        }
    }

    fn insert(&mut self, start: Span) -> Parse<Output> {
        self.bump();
        let kind = self.optional_kind()?;
        if self.eat_word("into").is_none() {
            let named =
                self.is_name(0) && !self.is_word(1, "events") && self.misspelling_of(&["into"]).is_none();
            if kind.is_none() && named {
                return Err(self.report_missing_into("insert"));
            }
            let expected: &[&str] =
                if kind.is_none() { &["into", "all", "expired", "current", "events"] } else { &["into"] };
            return Err(self.report_unexpected_word(expected, "after `insert`"));
        }
        let target = self.stream_ref("a stream, table or window")?;
        Ok(Output { action: OutputAction::Insert { target }, kind, span: self.span_since(start) })
    }

    fn report_missing_into(&mut self, verb: &str) -> SyntaxError {
        let written = self.text(self.token()).to_owned();
        self.report_unexpected_with(
            &["`into`"],
            &format!("after `{verb}`"),
            Some(format!("write `{verb} into {written}`")),
        )
    }

    fn delete(&mut self, start: Span) -> Parse<Output> {
        self.bump();
        let table = self.table("delete")?;
        let kind = self.for_kind()?;
        let ends = self.at_end() || self.is_punct_of(0, &[";", ")"]) || self.at_statement();
        let on = match ends || self.at_partition_end() {
            true => None,
            false => {
                self.needed_on(start, "`delete`")?;
                Some(self.expr()?)
            }
        };
        if self.is_word(0, "for") {
            return Err(self.report_clause_order("for", "on"));
        }
        Ok(Output { action: OutputAction::Delete { table, on }, kind, span: self.span_since(start) })
    }

    fn update(&mut self, start: Span) -> Parse<Output> {
        self.bump();
        let table = self.table("update")?;
        let (kind, set, on) = self.changes(start, "`update`")?;
        let action = OutputAction::Update { table, set, on };
        Ok(Output { action, kind, span: self.span_since(start) })
    }

    /// Parses `update or insert into T …`.
    fn upsert(&mut self, start: Span) -> Parse<Output> {
        self.bump();
        self.bump();
        self.expect_word("insert", "after `update or`")?;
        if self.eat_word("into").is_none() {
            return Err(match self.is_name(0) && self.misspelling_of(&["into"]).is_none() {
                true => self.report_missing_into("update or insert"),
                false => self.report_unexpected_word(&["into"], "after `update or insert`"),
            });
        }
        let table = self.name("a table's name")?;
        let (kind, set, on) = self.changes(start, "`update or insert`")?;
        let action = OutputAction::UpdateOrInsert { table, set, on };
        Ok(Output { action, kind, span: self.span_since(start) })
    }

    /// Parses the table after `delete` or `update`; reports `from` or `into` before it, as in other
    /// languages.
    fn table(&mut self, verb: &str) -> Parse<Ident> {
        let foreign = self.is_word_of(0, &["from", "into"]) && self.is_name(1);
        if foreign && !self.is_word_of(1, &["on", "for", "set"]) {
            let word = self.text(self.token()).to_owned();
            let table = self.text(self.nth(1)).to_owned();
            let message = format!("write the table's name directly after `{verb}`");
            self.report(
                Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message)
                    .expected(["a table's name"])
                    .help(format!("remove `{word}`: `{verb} {table} …`")),
            );
            self.bump();
        }
        self.name("a table's name")
    }

    /// Parses `for all events`, if present.
    fn for_kind(&mut self) -> Parse<Option<KindClause>> {
        match self.eat_word("for") {
            Some(_) => self.kind_clause("after `for`").map(Some),
            None => Ok(None),
        }
    }

    /// Parses `for … set … on …` of an update that began at `start`; `what` names the update in messages.
    fn changes(&mut self, start: Span, what: &str) -> Parse<(Option<KindClause>, Vec<Assignment>, Expr)> {
        let kind = self.for_kind()?;
        let set = match self.eat_word("set") {
            Some(_) => self.assignments()?,
            None => Vec::new(),
        };
        if self.is_word(0, "for") {
            return Err(self.report_clause_order("for", "set"));
        }
        self.needed_on(start, what)?;
        let on = self.expr()?;
        if self.is_word(0, "set") {
            return Err(self.report_clause_order("set", "on"));
        }
        Ok((kind, set, on))
    }

    /// Parses the assignments after `set`.
    fn assignments(&mut self) -> Parse<Vec<Assignment>> {
        let mut set = vec![self.assignment()?];
        while self.eat(",").is_some() {
            if self.is_word(0, "on") && !self.is_punct_of(1, &[".", "="]) {
                self.report_extra_comma("an assignment");
                break;
            }
            set.push(self.assignment()?);
        }
        Ok(set)
    }

    /// Parses `T.a = expr`.
    fn assignment(&mut self) -> Parse<Assignment> {
        let start = self.span();
        let column = self.attribute_ref("set")?;
        if self.eat("=").is_none() {
            let help = self.is_punct(0, "==").then(|| "an assignment needs `=`".to_owned());
            return Err(self.report_unexpected_with(&["`=`"], "after the column", help));
        }
        let value = self.expr()?;
        Ok(Assignment { column, value, span: self.span_since(start) })
    }

    /// Consumes `on`, or reports that it is missing in the clause `what`, which began at `start`.
    fn needed_on(&mut self, start: Span, what: &str) -> Parse<()> {
        if self.eat_word("on").is_some() {
            return Ok(());
        }
        if self.is_word_of(0, &["where", "when", "if"]) {
            let message = format!("`{}` is not a keyword of SiddhiQL", self.text(self.token()));
            self.report(
                Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message)
                    .expected(["`on`"])
                    .help("write `on`"),
            );
            return Err(SyntaxError::Statement);
        }
        let ends = self.at_end() || self.is_punct_of(0, &[";", ")"]) || self.at_statement();
        if !ends {
            let expected: &[&str] = if what == "`delete`" { &["for", "on"] } else { &["for", "set", "on"] };
            return Err(self.report_unexpected_word(expected, &format!("in {what}")));
        }
        let message = format!("{what} needs `on`");
        self.report(
            Diagnostic::error(diagnostic_codes::CLAUSE_MISSING, self.span_since(start), message)
                .expected(["`on`"])
                .help("select the rows: `on T.k == k`"),
        );
        Err(SyntaxError::Statement)
    }
}

/// Returns the clauses that may follow the clause `done` of a query.
fn next_clauses(done: &str) -> &'static [&'static str] {
    const ALL: [&str; 11] = [
        "select", "group", "having", "order", "limit", "offset", "output", "insert", "delete", "update",
        "return",
    ];
    const WITHOUT_SELECT: [&str; 5] = ["select", "output", "insert", "delete", "update"];
    // `return` is accepted but cannot be executed, so it is not suggested
    let from = match done {
        "from" => return &WITHOUT_SELECT,
        "select" => 1,
        "group by" => 2,
        "having" => 3,
        "order by" => 4,
        "limit" => 5,
        "offset" => 6,
        _ => 7,
    };
    &ALL[from..ALL.len() - 1]
}
