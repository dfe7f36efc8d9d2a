//! Parsing of actions.

use tidemill_types::nearest;

use super::super::ast::{
    Action, Assign, AssignOp, DeleteAction, EmitAction, EmitArgs, Ident, InsertAction, Path, UnsetAction,
    UpdateAction,
};
use super::super::diagnostic_codes;
use super::super::keywords::ACTIONS;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Parses `{ action; … }` after `then`.
    pub(super) fn actions(&mut self, keyword: Span) -> Parse<Vec<Action>> {
        let open = self.expect("{", "after `then`")?;
        let (actions, good) = self.block(open, |p, _| {
            let action = p.action()?;
            p.semicolon("action")?;
            Ok(action)
        })?;
        if good && actions.is_empty() {
            self.report(
                Diagnostic::error(diagnostic_codes::NO_ACTIONS, keyword, "this `then` does nothing")
                    .expected(["an action"])
                    .help("write an action: `emit Stream(…);`, `update d.field = …;`"),
            );
        }
        Ok(actions)
    }

    fn action(&mut self) -> Parse<Action> {
        match self.word(0) {
            Some("update") => self.update(),
            Some("unset") => self.unset(),
            Some("insert") => self.insert().map(Action::Insert),
            Some("upsert") => self.insert().map(Action::Insert),
            Some("delete") => self.delete(),
            Some("emit") => self.emit(),
            _ => Err(self.report_not_an_action()),
        }
    }

    fn report_not_an_action(&mut self) -> SyntaxError {
        let help = match self.word(0) {
            Some(name) if self.is_punct(1, ".") || self.is_punct(1, "=") => {
                Some(format!("to change a field, write `update {name}.field = …`"))
            }
            Some("let") => Some("name the value in `when`: `let x = …;`".to_owned()),
            Some("if") => {
                Some("write the condition in `when`, or the value as `if(condition, a, b)`".to_owned())
            }
            Some(word) => action_help(&word.to_ascii_lowercase()),
            None => None,
        };
        let expected: Vec<String> = ACTIONS.iter().map(|a| format!("`{a}`")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        self.report_unexpected_with(&expected, "", help)
    }

    fn update(&mut self) -> Parse<Action> {
        let start = self.bump();
        let target = self.name("a document's name")?;
        let block = self.is_punct(0, "{");
        let assignments = if block {
            let list = self.list("{", "}", "", Self::assign)?;
            if list.is_empty() {
                let message = "this `update` changes nothing";
                let span = self.span_since(start);
                let help = format!("write a field: `update {} {{ field = … }}`", target.name);
                self.report(Diagnostic::error(diagnostic_codes::NO_ACTIONS, span, message).help(help));
                return Err(SyntaxError::Statement);
            }
            list
        } else {
            if !self.is_punct(0, ".") {
                let help =
                    format!("write `update {0}.field = …` or `update {0} {{ field = … }}`", target.name);
                return Err(self.report_unexpected_with(
                    &["`.`", "`{`"],
                    "after the document's name",
                    Some(help),
                ));
            }
            self.bump();
            vec![self.assign()?]
        };
        Ok(Action::Update(UpdateAction { target, assignments, block, span: self.span_since(start) }))
    }

    /// Parses `path = value`.
    fn assign(&mut self) -> Parse<Assign> {
        let path = self.path("a field's name")?;
        let op = self.assign_op(&path)?;
        let value = self.expr()?;
        let span = self.span_since(path.span);
        Ok(Assign { path, op, value, span })
    }

    fn assign_op(&mut self, path: &Path) -> Parse<AssignOp> {
        let op = match &self.token().kind {
            TokenKind::Punct("=") => AssignOp::Set,
            TokenKind::Punct("+=") => AssignOp::Add,
            TokenKind::Punct("-=") => AssignOp::Sub,
            TokenKind::Punct("*=") => AssignOp::Mul,
            TokenKind::Word if self.word(0) == Some("push") => AssignOp::Push,
            _ => return Err(self.report_missing_assign_op(path)),
        };
        self.bump();
        Ok(op)
    }

    fn report_missing_assign_op(&mut self, path: &Path) -> SyntaxError {
        let written = self.file.slice(path.span);
        let help = match &self.token().kind {
            TokenKind::Punct("==" | ":" | ":=" | "=>") => {
                Some(format!("to set a field, write `{written} = …`"))
            }
            TokenKind::Punct("++") => Some(format!("write `{written} += 1`")),
            TokenKind::Punct("--") => Some(format!("write `{written} -= 1`")),
            TokenKind::Punct("/=") => Some("divide with `=`: `x = d.x / 2`".to_owned()),
            TokenKind::Punct("%=") => Some("compute the remainder with `=`: `x = d.x % 2`".to_owned()),
            TokenKind::Punct("(") => Some(format!("write the field without brackets: `{written} = …`")),
            TokenKind::Word => match self.word(0) {
                Some("append" | "add") => Some(format!("write `{written} push …`")),
                _ => None,
            },
            _ => None,
        };
        self.report_unexpected_with(&["`=`", "`+=`", "`-=`", "`*=`", "`push`"], "after the field", help)
    }

    /// Parses `a.b.c`.
    pub(super) fn path(&mut self, what: &str) -> Parse<Path> {
        let mut segments = vec![self.any_name(what)?];
        while self.eat(".").is_some() {
            segments.push(self.any_name(what)?);
        }
        let span = segments[0].span.to(self.previous());
        Ok(Path { segments, span })
    }

    fn unset(&mut self) -> Parse<Action> {
        let start = self.bump();
        let target = self.name("a document's name")?;
        if !self.is_punct(0, ".") {
            let help = format!("write `unset {0}.field`; `delete {0}` deletes the document", target.name);
            return Err(self.report_unexpected_with(&["`.`"], "after the document's name", Some(help)));
        }
        self.bump();
        let path = self.path("a field's name")?;
        Ok(Action::Unset(UnsetAction { target, path, span: self.span_since(start) }))
    }

    fn delete(&mut self) -> Parse<Action> {
        let start = self.bump();
        let from = self.word(0) == Some("from") && self.is_name(1);
        if from {
            let help = "write `delete d`, where `d` is a document of the conditions".to_owned();
            return Err(self.report_unexpected_with(&["a document's name"], "", Some(help)));
        }
        let target = self.name("a document's name")?;
        if self.is_punct(0, ".") {
            let help = format!("to remove a field, write `unset {}.field`", target.name);
            return Err(self.report_unexpected_with(&["`;`"], "after the document's name", Some(help)));
        }
        Ok(Action::Delete(DeleteAction { target, span: self.span_since(start) }))
    }

    /// Parses `insert Entity { … }` or `upsert Entity { … }`.
    pub(super) fn insert(&mut self) -> Parse<InsertAction> {
        let verb = self.word(0).unwrap_or("insert");
        let start = self.bump();
        if self.word(0) == Some("into") && self.is_name(1) {
            let help = format!("write `{verb} {} {{ field: … }}`", self.text(self.nth(1)));
            return Err(self.report_unexpected_with(&["an entity's name"], "", Some(help)));
        }
        if self.word(0) == Some("new") && self.is_name(1) {
            let help = format!("write `{verb} {} {{ field: … }}`", self.text(self.nth(1)));
            return Err(self.report_unexpected_with(&["an entity's name"], "", Some(help)));
        }
        let entity = self.name("an entity's name")?;
        if !self.is_punct(0, "{") {
            let help = format!("write `{verb} {} {{ field: … }}`", entity.name);
            return Err(self.report_unexpected_with(&["`{`"], "after the entity's name", Some(help)));
        }
        let fields = self.object("")?;
        Ok(InsertAction { entity, fields, upsert: verb == "upsert", span: self.span_since(start) })
    }

    fn emit(&mut self) -> Parse<Action> {
        let start = self.bump();
        if self.word(0) == Some("new") && !self.is_punct(1, "(") && !self.is_punct(1, "{") {
            self.bump();
        }
        if !self.is_name(0) && self.word(0).is_none() {
            let help =
                "write the stream and its fields: `emit Stream(…)` or `emit Stream { field: … }`".to_owned();
            return Err(self.report_unexpected_with(&["a stream's name"], "after `emit`", Some(help)));
        }
        let stream = self.name("a stream's name")?;
        let args = self.emit_args(&stream)?;
        Ok(Action::Emit(EmitAction { stream, args, span: self.span_since(start) }))
    }

    fn emit_args(&mut self, stream: &Ident) -> Parse<EmitArgs> {
        if self.is_punct(0, "(") {
            return self.list("(", ")", "", Self::emit_arg).map(EmitArgs::Positional);
        }
        if self.is_punct(0, "{") {
            return self.object("").map(EmitArgs::Named);
        }
        let help = format!("write `emit {0}(…)` or `emit {0} {{ field: … }}`", stream.name);
        Err(self.report_unexpected_with(&["`(`", "`{`"], "after the stream's name", Some(help)))
    }

    /// Parses a positional argument; reports `name: value` with a suggestion.
    fn emit_arg(&mut self) -> Parse<super::super::ast::Expr> {
        if self.is_name(0) && self.is_punct(1, ":") {
            self.bump();
            let help = "write fields by name in braces: `emit Stream { field: … }`".to_owned();
            return Err(self.report_unexpected_with(&["`,`", "`)`"], "", Some(help)));
        }
        self.expr()
    }

    /// Parses `{ insert …; … }` after `do`.
    pub(super) fn inserts(&mut self, keyword: Span) -> Parse<Vec<InsertAction>> {
        let open = self.expect("{", "after `do`")?;
        let (inserts, good) = self.block(open, |p, _| {
            if p.word(0) != Some("insert") {
                let help =
                    "an aggregate inserts documents, which replace older ones: `insert Entity { field: … };`";
                return Err(p.report_unexpected_with(&["`insert`"], "", Some(help.to_owned())));
            }
            let insert = p.insert()?;
            p.semicolon("action")?;
            Ok(insert)
        })?;
        if good && inserts.is_empty() {
            self.report(
                Diagnostic::error(diagnostic_codes::NO_ACTIONS, keyword, "this `do` does nothing")
                    .expected(["`insert`"])
                    .help("write the document of a group: `insert Entity { field: count() };`"),
            );
        }
        Ok(inserts)
    }
}

fn action_help(lower: &str) -> Option<String> {
    let ours = match lower {
        "set" | "modify" | "change" => "update",
        "remove" | "retract" | "drop" => "delete",
        "send" | "publish" | "raise" | "fire" | "output" => "emit",
        "create" | "add" | "new" => "insert",
        "save" | "store" | "merge" | "replace" | "put" => "upsert",
        _ => nearest(lower, ACTIONS)?,
    };
    Some(format!("write `{ours}`"))
}
