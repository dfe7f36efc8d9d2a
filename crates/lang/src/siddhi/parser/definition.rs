//! Parsing of definitions.

use tidemill_types::{FieldType, nearest};

use super::super::ast::{
    AggregationDefinition, Annotation, Attribute, Definition, FunctionDefinition, Period, Periods,
    StreamDefinition, StreamRef, TableDefinition, Text, TriggerAt, TriggerDefinition, TypeName,
    WindowDefinition,
};
use super::super::diagnostic_codes;
use super::super::units::{advice, unit};
use super::recovery::DEFINED;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Parses `define …`; `start` is where the definition begins, annotations included.
    pub(super) fn definition(&mut self, start: Span, annotations: Vec<Annotation>) -> Parse<Definition> {
        self.bump();
        let kind = self.word(0).unwrap_or("").to_ascii_lowercase();
        if !DEFINED.contains(&kind.as_str()) {
            return Err(self.report_unexpected_word(&DEFINED, "after `define`"));
        }
        self.bump();
        match kind.as_str() {
            "stream" => {
                let (id, attributes) = self.shape("stream")?;
                let span = self.span_since(start);
                Ok(Definition::Stream(StreamDefinition { annotations, id, attributes, span }))
            }
            "table" => {
                let (id, attributes) = self.shape("table")?;
                let span = self.span_since(start);
                Ok(Definition::Table(TableDefinition { annotations, id, attributes, span }))
            }
            "window" => self.window_definition(start, annotations),
            "trigger" => self.trigger(start, annotations),
            "function" => self.function(start, &annotations),
            _ => self.aggregation(start, annotations),
        }
    }

    /// Parses `S (a int, …)`; `kind` is the kind of definition, for messages.
    fn shape(&mut self, kind: &str) -> Parse<(StreamRef, Vec<Attribute>)> {
        let id = self.stream_ref(&format!("a {kind}'s name"))?;
        let attributes = self.list(&format!("after the {kind}'s name"), "an attribute", Self::attribute)?;
        Ok((id, attributes))
    }

    /// Parses `a int`.
    fn attribute(&mut self) -> Parse<Attribute> {
        let name = self.name("an attribute")?;
        if self.is_punct(0, ":") {
            let help = format!("write `{} int`, without a colon", name.name);
            return Err(self.report_unexpected_with(&["a type"], "after the attribute", Some(help)));
        }
        let start = name.span;
        if !self.is_name(0) {
            let ty = attribute_type(&name.name).map(FieldType::name);
            let help = ty.map(|ty| format!("the name comes first: `a {ty}`"));
            return Err(self.report_unexpected_with(&["a type"], "after the attribute's name", help));
        }
        let ty = self.type_name(&name.name);
        Ok(Attribute { name, ty, span: self.span_since(start) })
    }

    /// Parses the type of the attribute `of`, or reports an unknown one; `of` is empty for a return type.
    fn type_name(&mut self, of: &str) -> TypeName {
        let span = self.span();
        let written = self.text(self.token());
        let ty = self.word(0).and_then(attribute_type);
        self.bump();
        if ty.is_none() {
            let help = match attribute_type(of) {
                Some(ty) if !of.is_empty() => format!("the name comes first: `{written} {}`", ty.name()),
                _ => type_advice(&written.to_ascii_lowercase()),
            };
            let message = format!("`{written}` is not a type");
            self.report(
                Diagnostic::error(diagnostic_codes::UNKNOWN_TYPE, span, message)
                    .expected(["a type"])
                    .help(help),
            );
        }
        TypeName { ty: ty.unwrap_or(FieldType::Object), span }
    }

    fn window_definition(&mut self, start: Span, annotations: Vec<Annotation>) -> Parse<Definition> {
        let (id, attributes) = self.shape("window")?;
        if !self.at_call() {
            let help = match self.is_punct(0, "#") {
                true => "write the kind of window alone: `length(5)`",
                false => "write the kind of window after the attributes: `length(5)`",
            };
            return Err(self.report_unexpected_with(&["a kind of window"], "", Some(help.to_owned())));
        }
        let window = self.call()?;
        let output = match self.eat_word("output") {
            Some(_) => Some(self.kind_clause("after `output`")?),
            None => None,
        };
        let span = self.span_since(start);
        Ok(Definition::Window(WindowDefinition { annotations, id, attributes, window, output, span }))
    }

    fn trigger(&mut self, start: Span, annotations: Vec<Annotation>) -> Parse<Definition> {
        let name = self.name("a trigger's name")?;
        if self.eat_word("at").is_none() {
            let help = "write `at every 5 sec`, `at 'start'`, or `at` and a cron expression in quotes";
            return Err(self.report_unexpected_with(
                &["`at`"],
                "after the trigger's name",
                Some(help.to_owned()),
            ));
        }
        let at = if self.eat_word("every").is_some() {
            TriggerAt::Every(self.time("every")?)
        } else if let TokenKind::Str(value) = &self.token().kind {
            TriggerAt::Text(Text { value: value.clone(), span: self.bump() })
        } else {
            let help = match self.at_time() {
                true => "write `at every` before a time".to_owned(),
                false => "write `at every 5 sec`, `at 'start'`, or a cron expression in quotes".to_owned(),
            };
            return Err(self.report_unexpected_with(&["`every`", "a string"], "after `at`", Some(help)));
        };
        Ok(Definition::Trigger(TriggerDefinition { annotations, name, at, span: self.span_since(start) }))
    }

    fn function(&mut self, start: Span, annotations: &[Annotation]) -> Parse<Definition> {
        if let Some(annotation) = annotations.first() {
            self.report(
                Diagnostic::error(
                    diagnostic_codes::ANNOTATION_MISPLACED,
                    annotation.span,
                    "a function cannot have annotations",
                )
                .help("remove it"),
            );
        }
        let name = self.name("a function's name")?;
        if !self.is_punct(0, "[") {
            let help = format!("write the language: `{}[javascript]`", name.name);
            return Err(self.report_unexpected_with(&["`[`"], "after the function's name", Some(help)));
        }
        self.bump();
        let language = self.name("a language")?;
        self.expect("]", "after the language")?;
        self.expect_word("return", "after the language")?;
        if !self.is_name(0) {
            return Err(self.report_unexpected(&["a type"], "after `return`"));
        }
        let result = self.type_name("");
        let TokenKind::Body(body) = &self.token().kind else {
            let help = "write the body in braces: `{ return 1; }`".to_owned();
            return Err(self.report_unexpected_with(&["`{`"], "after the type", Some(help)));
        };
        let body = Text { value: body.clone(), span: self.bump() };
        let span = self.span_since(start);
        Ok(Definition::Function(FunctionDefinition { name, language, result, body, span }))
    }

    fn aggregation(&mut self, start: Span, annotations: Vec<Annotation>) -> Parse<Definition> {
        let name = self.name("an aggregation's name")?;
        self.expect_word("from", "after the aggregation's name")?;
        let input = self.stream_input()?;
        self.expect_word("select", "after what the aggregation reads")?;
        let items = self.select_items()?;
        let group_by = self.group_by()?;
        if !self.is_word(0, "aggregate") {
            let done = if group_by.is_empty() { "select" } else { "group by" };
            if self.is_word_of(0, &["having", "order", "limit", "offset", "output"]) {
                let word = self.word(0).unwrap_or("").to_ascii_lowercase();
                let message = format!("an aggregation cannot have `{word}`");
                self.report(
                    Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, self.span(), message)
                        .help("write it where the aggregation is read"),
                );
                return Err(SyntaxError::Statement);
            }
            return Err(self.report_unexpected_word(&["aggregate"], &format!("after `{done}`")));
        }
        self.bump();
        let by = match self.eat_word("by") {
            Some(_) => Some(self.attribute_ref("aggregate by")?),
            None => None,
        };
        self.expect_word("every", "after `aggregate`")?;
        let every = self.periods()?;
        let span = self.span_since(start);
        Ok(Definition::Aggregation(Box::new(AggregationDefinition {
            annotations,
            name,
            input,
            items,
            group_by,
            by,
            every,
            span,
        })))
    }

    /// Parses `sec ... year`, `sec, hour`.
    fn periods(&mut self) -> Parse<Periods> {
        let first = self.period()?;
        if self.eat("...").is_some() {
            return Ok(Periods::Range(first, self.period()?));
        }
        if self.is_punct_of(0, &[".", "-", "->"]) {
            let help = "write a range with three dots: `sec ... year`".to_owned();
            return Err(self.report_unexpected_with(&["`...`", "`,`"], "", Some(help)));
        }
        let mut list = vec![first];
        while self.eat(",").is_some() {
            list.push(self.period()?);
        }
        Ok(Periods::List(list))
    }

    fn period(&mut self) -> Parse<Period> {
        let span = self.span();
        let Some(word) = self.word(0) else {
            let number = matches!(self.token().kind, TokenKind::Int(_));
            let help = number.then(|| "write the unit alone: `sec`".to_owned());
            return Err(self.report_unexpected_with(&["a unit of time"], "", help));
        };
        if let Some(unit) = unit(word).and_then(|(_, unit)| unit.period) {
            self.bump();
            return Ok(Period { unit, span });
        }
        let (message, help) = match unit(word) {
            Some(_) => (format!("`{word}` is too short for an aggregation"), "write `sec`".to_owned()),
            None => (format!("`{word}` is not a unit of time"), advice(word)),
        };
        self.report(
            Diagnostic::error(diagnostic_codes::UNKNOWN_UNIT, span, message)
                .expected(["a unit of time"])
                .help(help),
        );
        Err(SyntaxError::Statement)
    }
}

/// Returns the type called `word`, compared without case.
pub(super) fn attribute_type(word: &str) -> Option<FieldType> {
    FieldType::parse(&word.to_ascii_lowercase()).filter(|ty| *ty != FieldType::Time)
}

/// Returns a suggestion for the unknown type `word`, which is in lower case.
fn type_advice(word: &str) -> String {
    const NAMES: [&str; 7] = ["string", "int", "long", "float", "double", "bool", "object"];
    let ours = match word {
        "text" | "varchar" | "char" | "str" => Some("string"),
        "integer" | "int32" | "short" | "byte" => Some("int"),
        "bigint" | "int64" | "time" | "timestamp" | "date" | "datetime" => Some("long"),
        "real" | "float32" => Some("float"),
        "number" | "numeric" | "decimal" | "float64" => Some("double"),
        "boolean" => Some("bool"),
        "json" | "map" | "list" | "array" | "any" => Some("object"),
        _ => nearest(word, NAMES),
    };
    match ours {
        Some(ours) => format!("write `{ours}`"),
        None => format!("the types are `{}`", NAMES.join("`, `")),
    }
}
