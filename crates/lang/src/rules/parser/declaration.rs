//! Parsing of declarations: events, entities, relations.

use tidemill_types::{Duration, EpochUnit, FieldType, nearest};

use super::super::ast::{EntityDecl, EventDecl, FieldDecl, Ident, IndexDecl, Path, RelationDecl, TypeName};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Parses `event NAME { … } key F id F, … time F;`.
    pub(super) fn event(&mut self) -> Parse<EventDecl> {
        let start = self.bump();
        let name = self.new_name("an event's name")?;
        if !self.is_punct(0, "{") {
            let help = format!("write `event {} {{ field: string }};`", name.name);
            return Err(self.report_unexpected_with(&["`{`"], "after the event's name", Some(help)));
        }
        let open = self.bump();
        let mut event = EventDecl {
            name,
            fields: vec![],
            key: None,
            id: vec![],
            time: None,
            relations: vec![],
            span: start,
        };
        self.event_body(open, &mut event)?;
        self.event_clauses(&mut event)?;
        event.span = self.span_since(start);
        self.semicolon("declaration")?;
        Ok(event)
    }

    fn event_body(&mut self, open: Span, event: &mut EventDecl) -> Parse<()> {
        loop {
            if self.eat("}").is_some() {
                return Ok(());
            }
            let relation = self.word(0) == Some("relation") && self.is_name(1);
            if self.at_end() || (self.at_item() && !relation) {
                self.report_unclosed(open);
                return Err(SyntaxError::Item);
            }
            let start = self.at;
            let read = if relation { self.body_relation(event) } else { self.body_field(event) };
            if read.is_err() {
                self.skip_field(start);
            }
        }
    }

    fn body_relation(&mut self, event: &mut EventDecl) -> Parse<()> {
        let relation = self.relation()?;
        if let Some(owner) = &relation.owner {
            let message = "a relation in an event's body belongs to that event";
            let help = format!("write `relation {}()`", relation.name.name);
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, owner.span, message).help(help),
            );
        }
        event.relations.push(relation);
        Ok(())
    }

    fn body_field(&mut self, event: &mut EventDecl) -> Parse<()> {
        let field = self.field_decl()?;
        match event.fields.iter().find(|f| f.name.name == field.name.name) {
            Some(first) => self.report_duplicate(&field.name, first.name.span),
            None => event.fields.push(field),
        }
        if self.eat(",").is_some() || self.eat(";").is_some() || self.is_punct(0, "}") {
            return Ok(());
        }
        let relation = self.word(0) == Some("relation") && self.is_name(1);
        if relation || self.at_end() || self.at_item() {
            return Ok(());
        }
        let place = self.previous().at_end();
        if self.token().first_on_line {
            let message = "expected `,` after the field";
            self.report(
                Diagnostic::error(diagnostic_codes::UNEXPECTED, place, message)
                    .expected(["`,`", "`}`"])
                    .help("write `,` here"),
            );
            return Ok(());
        }
        let help = self.is_name(0).then(|| "write `,` between two fields".to_owned());
        Err(self.report_unexpected_with(&["`,`", "`}`"], "after the field", help))
    }

    /// Skips to the next field after one that began at the token `start` and failed.
    fn skip_field(&mut self, start: usize) {
        if self.at == start && !self.is_punct(0, "}") {
            self.bump();
        }
        while !self.at_end() && !self.is_punct(0, "}") && !self.at_item() {
            let next = self.is_punct(0, ",") || self.is_punct(0, ";");
            if !next && self.token().first_on_line && self.is_name(0) && self.is_punct(1, ":") {
                return;
            }
            self.bump();
            if next {
                return;
            }
        }
    }

    fn field_decl(&mut self) -> Parse<FieldDecl> {
        let start = self.span();
        let name = self.name("a field's name")?;
        if !self.is_punct(0, ":") {
            let help = format!("write `{}: string`", name.name);
            return Err(self.report_unexpected_with(&["`:`"], "after the field's name", Some(help)));
        }
        self.bump();
        let ty = self.type_name()?;
        Ok(FieldDecl { name, ty, span: self.span_since(start) })
    }

    /// Parses a type name. An unknown one is reported and treated as `object`.
    fn type_name(&mut self) -> Parse<TypeName> {
        let Some(word) = self.word(0) else {
            let help = format!("the types are {}", FieldType::NAMES.map(|n| format!("`{n}`")).join(", "));
            return Err(self.report_unexpected_with(&["a type"], "", Some(help)));
        };
        let ty = FieldType::parse(word).unwrap_or_else(|| {
            self.unknown_type(word);
            FieldType::Object
        });
        let start = self.bump();
        let unit = match (self.is_punct(0, "("), ty) {
            (false, _) => None,
            (true, FieldType::Time) => self.epoch_unit()?,
            (true, _) => {
                self.type_length();
                None
            }
        };
        Ok(TypeName { ty, unit, span: self.span_since(start) })
    }

    /// Parses `(us)` after `time`.
    fn epoch_unit(&mut self) -> Parse<Option<EpochUnit>> {
        self.bump();
        let help =
            format!("write one of {}", EpochUnit::ALL.map(|u| format!("`time({})`", u.symbol())).join(", "));
        let expected = EpochUnit::ALL.map(|u| format!("`{}`", u.symbol()));
        let Some(word) = self.word(0) else {
            let expected = expected.each_ref().map(String::as_str);
            return Err(self.report_unexpected_with(&expected, "after `time(`", Some(help)));
        };
        let unit = EpochUnit::from_symbol(word);
        if unit.is_none() {
            let near = Duration::unit_micros(word).and_then(|micros| match micros {
                1 => Some(EpochUnit::Micros),
                1_000 => Some(EpochUnit::Millis),
                1_000_000 => Some(EpochUnit::Seconds),
                _ => None,
            });
            let help = near.map_or(help, |unit| format!("write `time({})`", unit.symbol()));
            let message = format!("unknown unit of time `{word}`");
            self.report(
                Diagnostic::error(diagnostic_codes::UNKNOWN_TYPE, self.span(), message)
                    .expected(expected)
                    .help(help),
            );
        }
        self.bump();
        self.expect(")", "after the unit")?;
        Ok(unit)
    }

    /// Reports a length such as `(20)` after a type.
    fn type_length(&mut self) {
        let open = self.bump();
        while !self.at_end() && !self.is_punct(0, ")") && !self.is_punct(0, "}") && !self.is_punct(0, ";") {
            self.bump();
        }
        self.eat(")");
        let span = self.span_since(open);
        self.report(
            Diagnostic::error(diagnostic_codes::UNKNOWN_TYPE, span, "types have no length")
                .help("remove the brackets"),
        );
    }

    fn unknown_type(&mut self, word: &str) {
        let lower = word.to_lowercase();
        let help = match type_of_others(&lower).or_else(|| nearest(&lower, FieldType::NAMES)) {
            Some(ours) => format!("write `{ours}`"),
            None => format!("the types are {}", FieldType::NAMES.map(|n| format!("`{n}`")).join(", ")),
        };
        let message = format!("unknown type `{word}`");
        self.report(
            Diagnostic::error(diagnostic_codes::UNKNOWN_TYPE, self.span(), message)
                .expected(FieldType::NAMES)
                .help(help),
        );
    }

    fn event_clauses(&mut self, event: &mut EventDecl) -> Parse<()> {
        loop {
            let clause = self.span();
            if self.eat_word("key").is_some() {
                let key = self.name("a field's name")?;
                if event.key.replace(key).is_some() {
                    self.report_duplicate_clause("key", clause);
                }
                self.one_field_only("key")?;
            } else if self.eat_word("id").is_some() {
                let id = self.id_fields()?;
                if !event.id.is_empty() {
                    self.report_duplicate_clause("id", clause);
                }
                event.id = id;
            } else if self.eat_word("time").is_some() {
                let time = self.name("a field's name")?;
                if event.time.replace(time).is_some() {
                    self.report_duplicate_clause("time", clause);
                }
                self.one_field_only("time")?;
            } else {
                return self.clauses_end(&["`key`", "`id`", "`time`"]);
            }
        }
    }

    /// Parses `id a, b` or `id (a, b)`.
    fn id_fields(&mut self) -> Parse<Vec<Ident>> {
        let fields = if self.is_punct(0, "(") {
            self.list("(", ")", "", |p| p.name("a field's name"))?
        } else {
            let mut fields = vec![self.name("a field's name")?];
            while self.eat(",").is_some() {
                fields.push(self.name("a field's name")?);
            }
            fields
        };
        for (i, field) in fields.iter().enumerate() {
            if let Some(first) = fields[..i].iter().find(|f| f.name == field.name) {
                self.report_duplicate(field, first.span);
            }
        }
        if fields.is_empty() {
            return Err(self.report_unexpected(&["a field's name"], "after `id`"));
        }
        Ok(fields)
    }

    fn one_field_only(&mut self, clause: &str) -> Parse<()> {
        if !self.is_punct(0, ",") {
            return Ok(());
        }
        let help = format!("`{clause}` takes a single field");
        Err(self.report_unexpected_with(&["`;`"], &format!("after the field of `{clause}`"), Some(help)))
    }

    /// Reports a word on the current line that is not one of the clauses `known`.
    fn clauses_end(&mut self, known: &[&str]) -> Parse<()> {
        let Some(word) = self.word(0).filter(|_| !self.token().first_on_line) else {
            return Ok(());
        };
        let lower = word.to_lowercase();
        let bare: Vec<&str> = known.iter().map(|k| k.trim_matches('`')).collect();
        let help = nearest(&lower, bare).map(|best| format!("write `{best}`"));
        let mut expected = known.to_vec();
        expected.push("`;`");
        Err(self.report_unexpected_with(&expected, "", help))
    }

    /// Parses `entity NAME key F [shard F] [replicated] [[unique] index …]…;`.
    pub(super) fn entity(&mut self) -> Parse<EntityDecl> {
        let start = self.bump();
        let name = self.new_name("an entity's name")?;
        if self.is_punct(0, "{") {
            let help = format!("documents have any fields; write `entity {} key FIELD;`", name.name);
            return Err(self.report_unexpected_with(&["`key`"], "after the entity's name", Some(help)));
        }
        let (mut key, mut shard, mut replicated, mut indexes) = (None, None, None, Vec::new());
        loop {
            let clause = self.span();
            if self.eat_word("key").is_some() {
                if key.replace(self.name("a field's name")?).is_some() {
                    self.report_duplicate_clause("key", clause);
                }
                self.one_field_only("key")?;
            } else if self.eat_word("shard").is_some() {
                if shard.replace(self.name("a field's name")?).is_some() {
                    self.report_duplicate_clause("shard", clause);
                }
                self.one_field_only("shard")?;
            } else if self.eat_word("replicated").is_some() {
                if replicated.replace(clause).is_some() {
                    self.report_duplicate_clause("replicated", clause);
                }
            } else if matches!(self.word(0), Some("unique" | "index")) {
                indexes.push(self.index()?);
            } else {
                self.clauses_end(&["`key`", "`shard`", "`replicated`", "`index`", "`unique`"])?;
                break;
            }
        }
        let span = self.span_since(start);
        let Some(key) = key else {
            return Err(self.entity_without_key(&name));
        };
        self.semicolon("declaration")?;
        Ok(EntityDecl { name, key, shard, replicated, indexes, span })
    }

    fn entity_without_key(&mut self, name: &Ident) -> SyntaxError {
        let message = format!("the entity `{}` has no key", name.name);
        self.report(
            Diagnostic::error(diagnostic_codes::CLAUSE_MISSING, name.span, message)
                .expected(["`key`"])
                .help(format!("name the field that identifies a document: `entity {} key id;`", name.name)),
        );
        SyntaxError::Item
    }

    /// Parses `[unique] index a` or `[unique] index (a, b)`.
    fn index(&mut self) -> Parse<IndexDecl> {
        let start = self.span();
        let unique = self.eat_word("unique").is_some();
        if self.eat_word("index").is_none() {
            let help = self.word(0).map(|field| format!("write `unique index {field}`"));
            return Err(self.report_unexpected_with(&["`index`"], "after `unique`", help));
        }
        let fields: Vec<Path> = if self.is_punct(0, "(") {
            self.list("(", ")", "", |p| p.path("a field's name"))?
        } else {
            let field = self.path("a field's name")?;
            if self.is_punct(0, ",") {
                let help = "write several fields in brackets: `index (a, b)`".to_owned();
                return Err(self.report_unexpected_with(&["`;`"], "after the index's field", Some(help)));
            }
            vec![field]
        };
        if fields.is_empty() {
            let span = self.span_since(start);
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISSING, span, "an index needs a field")
                    .help("write its fields: `index (a, b)`"),
            );
            return Err(SyntaxError::Statement);
        }
        Ok(IndexDecl { unique, fields, span: self.span_since(start) })
    }

    /// Parses `relation [OWNER.]NAME(): ENTITY by F [on F];`.
    pub(super) fn relation(&mut self) -> Parse<RelationDecl> {
        let start = self.bump();
        let first = self.name("a relation's name")?;
        let (owner, name) = if self.eat(".").is_some() {
            (Some(first), self.any_name("a relation's name")?)
        } else {
            (None, first)
        };
        if !(self.is_punct(0, "(") && self.is_punct(1, ")")) {
            let help = format!("write `relation {}(): ENTITY by FIELD;`", name.name);
            return Err(self.report_unexpected_with(&["`()`"], "after the relation's name", Some(help)));
        }
        self.bump();
        self.bump();
        self.expect(":", "after `()`")?;
        let target = self.name("an entity's name")?;
        if self.eat_word("by").is_none() {
            let help = format!("name the owner's field that holds the key of `{}`: `by FIELD`", target.name);
            return Err(self.report_unexpected_with(&["`by`"], "after the entity's name", Some(help)));
        }
        let by = self.name("a field's name")?;
        let on = match self.eat_word("on") {
            Some(_) => Some(self.name("a field's name")?),
            None => None,
        };
        let span = self.span_since(start);
        if matches!(self.token().kind, TokenKind::Word) {
            self.clauses_end(&["`on`"])?;
        }
        self.semicolon("relation")?;
        Ok(RelationDecl { owner, name, target, by, on, span })
    }
}

/// Returns the type that corresponds to a type name of other languages.
fn type_of_others(lower: &str) -> Option<&'static str> {
    Some(match lower {
        "text" | "str" | "varchar" | "char" | "uuid" | "utf8" => "string",
        "integer" | "i32" | "int32" | "short" | "smallint" | "tinyint" | "byte" => "int",
        "bigint" | "i64" | "int64" | "u64" | "u32" => "long",
        "f32" | "float32" => "float",
        "real" | "number" | "numeric" | "decimal" | "f64" | "float64" => "double",
        "boolean" => "bool",
        "timestamp" | "datetime" | "date" | "instant" => "time",
        "json" | "map" | "any" | "array" | "list" | "document" | "struct" => "object",
        _ => return None,
    })
}
