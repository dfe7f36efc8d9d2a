//! Formatting of definitions.

use super::super::ast::{
    AggregationDefinition, Attribute, Definition, Expr, FunctionDefinition, KindClause, Periods, StreamRef,
    TriggerAt, TriggerDefinition, WindowDefinition,
};
use super::super::parser::Precedence;
use super::Printer;
use super::inline::{callee, name, quoted};
use crate::printer::LINE_CHARS_MAX;
use crate::source::Span;

impl Printer<'_> {
    /// Formats `definition` on one line. Returns `None` if it does not fit or has annotations.
    pub(super) fn short_definition(&self, definition: &Definition) -> Option<String> {
        if !definition.annotations().is_empty() {
            return None;
        }
        let room = LINE_CHARS_MAX - 1;
        let text = match definition {
            Definition::Stream(d) => self.short_shape("stream", &d.id, &d.attributes)?,
            Definition::Table(d) => self.short_shape("table", &d.id, &d.attributes)?,
            Definition::Window(d) => {
                let shape = self.short_shape("window", &d.id, &d.attributes)?;
                let call = self.inline_within(room, |flat| flat.call(&d.window))?;
                format!("{shape} {call}{}", output(d.output))
            }
            // these cannot be broken into lines
            Definition::Trigger(d) => return Some(trigger(d)),
            Definition::Function(d) => return Some(function(d)).filter(|text| !text.contains('\n')),
            Definition::Aggregation(_) => return None,
        };
        (text.chars().count() <= room).then_some(text)
    }

    fn short_shape(&self, kind: &str, id: &StreamRef, attributes: &[Attribute]) -> Option<String> {
        let list = self.short_list(self.bracket_from(id.span.end, "("), attributes, LINE_CHARS_MAX)?;
        Some(format!("{} {list}", self.head(kind, id)))
    }

    /// Formats the head, such as `define stream S`.
    fn head(&self, kind: &str, id: &StreamRef) -> String {
        format!("define {kind} {}", self.inline_unbounded(|flat| flat.stream_ref(id)))
    }

    pub(super) fn definition(&mut self, definition: &Definition) {
        let start = match definition {
            Definition::Stream(d) => d.id.span.start,
            Definition::Table(d) => d.id.span.start,
            Definition::Window(d) => d.id.span.start,
            Definition::Trigger(d) => d.name.span.start,
            Definition::Function(d) => d.name.span.start,
            Definition::Aggregation(d) => d.name.span.start,
        };
        self.annotations(definition.annotations(), start);
        match definition {
            Definition::Stream(d) => self.shape("stream", &d.id, &d.attributes),
            Definition::Table(d) => self.shape("table", &d.id, &d.attributes),
            Definition::Window(d) => self.window_definition(d),
            Definition::Trigger(d) => self.write(&trigger(d)),
            Definition::Function(d) => self.write(&function(d)),
            Definition::Aggregation(d) => self.aggregation(d),
        }
    }

    fn shape(&mut self, kind: &str, id: &StreamRef, attributes: &[Attribute]) {
        self.write(&format!("{} ", self.head(kind, id)));
        self.list(self.bracket_from(id.span.end, "("), attributes);
    }

    fn window_definition(&mut self, definition: &WindowDefinition) {
        self.shape("window", &definition.id, &definition.attributes);
        let call = self.inline_unbounded(|flat| flat.call(&definition.window));
        let output = output(definition.output);
        let fits = call.chars().count() + output.len() < self.room();
        if fits || definition.window.args.list().is_empty() {
            self.write(&format!(" {call}"));
        } else {
            self.write(&format!(" {}", callee(&definition.window)));
            self.multiline_args(definition.window.args.list());
        }
        self.write(&output);
    }

    fn aggregation(&mut self, definition: &AggregationDefinition) {
        self.write(&format!("define aggregation {}", name(&definition.name.name)));
        let mut end = definition.name.span.end;
        self.clause(&mut end, definition.input.span);
        self.write("from ");
        self.stream_input(&definition.input);
        self.select_items(&mut end, &definition.items);
        self.group_by(&mut end, &definition.group_by);
        let (every, every_span) = match &definition.every {
            Periods::Range(from, to) => {
                (format!("{} ... {}", from.unit.text(), to.unit.text()), from.span.to(to.span))
            }
            Periods::List(list) => {
                let texts: Vec<&str> = list.iter().map(|p| p.unit.text()).collect();
                let first = list.first().map_or(definition.span, |p| p.span);
                (texts.join(", "), list.last().map_or(first, |last| first.to(last.span)))
            }
        };
        let by_span = definition.by.as_ref().map_or(every_span, |by| by.span.to(every_span));
        self.clause(&mut end, by_span);
        let by = definition
            .by
            .as_ref()
            .map_or(String::new(), |by| format!("by {} ", self.inline_unbounded(|flat| flat.attribute(by))));
        self.write(&format!("aggregate {by}every {every}"));
    }

    /// Starts a new line for the clause at `span`, after the clause that ended at the byte `end`; sets `end`
    /// to the end of `span`.
    pub(super) fn clause(&mut self, end: &mut u32, span: Span) {
        self.next_clause(*end, span.start);
        *end = span.end;
    }

    /// Prints `keyword expr` as a clause, if `expr` is present.
    pub(super) fn expr_clause(&mut self, end: &mut u32, keyword: &str, expr: Option<&Expr>) {
        if let Some(expr) = expr {
            self.clause(end, expr.span);
            self.write(keyword);
            self.write(" ");
            self.expr(expr, Precedence::Or);
        }
    }
}

/// Formats `define trigger T at …`.
fn trigger(definition: &TriggerDefinition) -> String {
    let at = match &definition.at {
        TriggerAt::Every(time) => format!("every {}", time.text),
        TriggerAt::Text(text) => quoted(&text.value),
    };
    format!("define trigger {} at {at}", name(&definition.name.name))
}

/// Formats `define function f[…] return … {…}`; the body is unchanged.
fn function(definition: &FunctionDefinition) -> String {
    let (function, language) = (name(&definition.name.name), name(&definition.language.name));
    let (result, body) = (definition.result.ty, &definition.body.value);
    format!("define function {function}[{language}] return {result} {{{body}}}")
}

fn output(output: Option<KindClause>) -> String {
    output.map_or(String::new(), |output| format!(" output {}", output.kind.text()))
}
