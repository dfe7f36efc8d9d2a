//! Text form of the tree without source ranges: two apps are equivalent if their structural texts are equal.

mod expr;
mod state;

use std::fmt::Write as _;

use expr::{attribute, call, expr, name, text};

use super::ast::{
    Annotation, AnnotationArg, AnnotationEntry, App, Assignment, Attribute, ChangeQuery, Definition,
    ExecutionElement, FindQuery, Handler, HandlerKind, Input, JoinSide, OnDemandQuery, Output, OutputAction,
    Partition, PartitionKeyKind, Periods, Query, RateKind, RateLimit, SelectItems, Selection, StreamInput,
    StreamRef, TriggerAt, Within,
};

/// Returns the structural text of `app`: nested brackets, with a line for each annotation, attribute and
/// clause.
pub fn structural_text(app: &App) -> String {
    let mut out = StructuralWriter::default();
    for annotation in &app.annotations {
        let elements: Vec<String> = annotation.elements.iter().map(element).collect();
        out.line(&format!("@app:{}{}", annotation.name.name, bracketed(&elements)));
    }
    for definition in &app.definitions {
        out.definition(definition);
    }
    for element in &app.elements {
        match element {
            ExecutionElement::Query(query) => out.query(query),
            ExecutionElement::Partition(partition) => out.partition(partition),
        }
    }
    out.text
}

/// Returns the structural text of an on-demand query.
pub fn on_demand_structural_text(query: &OnDemandQuery) -> String {
    let mut out = StructuralWriter::default();
    match query {
        OnDemandQuery::Find(query) => out.find(query),
        OnDemandQuery::Change(query) => out.change(query),
    }
    out.text
}

#[derive(Default)]
struct StructuralWriter {
    text: String,
    level: usize,
}

impl StructuralWriter {
    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{}{line}", "  ".repeat(self.level));
    }

    fn indented(&mut self, write: impl FnOnce(&mut Self)) {
        self.level += 1;
        write(self);
        self.level -= 1;
    }

    fn annotations(&mut self, annotations: &[Annotation]) {
        for annotation in annotations {
            self.line(&self::annotation(annotation));
        }
    }

    fn definition(&mut self, definition: &Definition) {
        self.annotations(definition.annotations());
        match definition {
            Definition::Stream(d) => self.shape("stream", &d.id, &d.attributes),
            Definition::Table(d) => self.shape("table", &d.id, &d.attributes),
            Definition::Window(d) => {
                self.shape("window", &d.id, &d.attributes);
                let output = d.output.map_or("", |o| o.kind.text());
                self.indented(|out| out.line(format!("{} {output}", call(&d.window)).trim_end()));
            }
            Definition::Trigger(d) => {
                let at = match &d.at {
                    TriggerAt::Every(time) => format!("every {}ms", time.ms),
                    TriggerAt::Text(text) => self::text(&text.value),
                };
                self.line(&format!("trigger {} {at}", d.name.name));
            }
            Definition::Function(d) => self.line(&format!(
                "function {}[{}] {} {}",
                d.name.name,
                d.language.name,
                d.result.ty,
                text(&d.body.value)
            )),
            Definition::Aggregation(d) => {
                self.line(&format!("aggregation {}", d.name.name));
                self.indented(|out| {
                    out.line(&format!("from {}", stream_input(&d.input)));
                    out.items(&d.items);
                    for group in &d.group_by {
                        out.line(&format!("group {}", attribute(group)));
                    }
                    if let Some(by) = &d.by {
                        out.line(&format!("by {}", attribute(by)));
                    }
                    out.line(&format!("every {}", periods(&d.every)));
                });
            }
        }
    }

    fn shape(&mut self, what: &str, id: &StreamRef, attributes: &[Attribute]) {
        self.line(&format!("{what} {}", stream_ref(id)));
        self.indented(|out| {
            for attribute in attributes {
                out.line(&format!("{} {}", name(&attribute.name), attribute.ty.ty));
            }
        });
    }

    fn partition(&mut self, partition: &Partition) {
        self.annotations(&partition.annotations);
        self.line("partition");
        self.indented(|out| {
            for key in &partition.keys {
                let kind = match &key.kind {
                    PartitionKeyKind::Value(value) => expr(value),
                    PartitionKeyKind::Ranges(ranges) => {
                        let ranges: Vec<String> = ranges
                            .iter()
                            .map(|r| format!("{}: {}", text(&r.name.value), expr(&r.condition)))
                            .collect();
                        bracketed(&ranges)
                    }
                };
                out.line(&format!("key {} {kind}", name(&key.stream)));
            }
            for query in &partition.queries {
                out.query(query);
            }
        });
    }

    fn query(&mut self, query: &Query) {
        self.annotations(&query.annotations);
        self.line("query");
        self.indented(|out| {
            out.input(&query.input);
            out.selection_and_rate(query.select.as_ref(), query.rate.as_ref());
            out.output(&query.output);
        });
    }

    fn input(&mut self, input: &Input) {
        match input {
            Input::Stream(input) => self.line(&format!("from {}", stream_input(input))),
            Input::Join(join) => {
                self.line(join.kind.text());
                self.indented(|out| {
                    out.line(&side(&join.left));
                    out.line(&side(&join.right));
                    if let Some(on) = &join.on {
                        out.line(&format!("on {}", expr(on)));
                    }
                    out.within(join.within.as_ref());
                });
            }
            Input::State(state) => self.state(state),
            Input::Nested(nested) => {
                self.line("nested");
                self.indented(|out| {
                    out.input(&nested.input);
                    out.selection_and_rate(nested.select.as_ref(), nested.rate.as_ref());
                    out.line(format!("return {}", nested.kind.map_or("", |k| k.kind.text())).trim_end());
                });
            }
        }
    }

    fn within(&mut self, within: Option<&Within>) {
        let Some(within) = within else { return };
        let to = within.to.as_ref().map_or(String::new(), |to| format!(" {}", expr(to)));
        self.line(&format!("within {}{to} per {}", expr(&within.from), expr(&within.per)));
    }

    fn selection_and_rate(&mut self, select: Option<&Selection>, rate: Option<&RateLimit>) {
        if let Some(select) = select {
            self.selection(select);
        }
        if let Some(rate) = rate {
            let kind = match &rate.kind {
                RateKind::Events { which, count, .. } => {
                    format!("{} {count} events", which.map_or("-", |w| w.text()))
                }
                RateKind::Time { which, every } => {
                    format!("{} {}ms", which.map_or("-", |w| w.text()), every.ms)
                }
                RateKind::Snapshot { every } => format!("snapshot {}ms", every.ms),
            };
            self.line(&format!("output {kind}"));
        }
    }

    fn items(&mut self, items: &SelectItems) {
        match items {
            SelectItems::All(_) => self.line("select *"),
            SelectItems::List(items) => {
                for item in items {
                    let alias = item.alias.as_ref().map_or(String::new(), |a| format!(" as {}", name(a)));
                    self.line(&format!("select {}{alias}", expr(&item.expr)));
                }
            }
        }
    }

    fn selection(&mut self, select: &Selection) {
        self.items(&select.items);
        for group in &select.group_by {
            self.line(&format!("group {}", attribute(group)));
        }
        if let Some(having) = &select.having {
            self.line(&format!("having {}", expr(having)));
        }
        for order in &select.order_by {
            let direction = order.direction.map_or("", |d| d.text());
            self.line(format!("order {} {direction}", attribute(&order.attribute)).trim_end());
        }
        for (word, value) in [("limit", &select.limit), ("offset", &select.offset)] {
            if let Some(value) = value {
                self.line(&format!("{word} {}", expr(value)));
            }
        }
    }

    fn output(&mut self, output: &Output) {
        let kind = output.kind.map_or(String::new(), |k| format!(" {}", k.kind.text()));
        match &output.action {
            OutputAction::Insert { target } => {
                self.line(&format!("insert{kind} into {}", stream_ref(target)));
            }
            OutputAction::Return => self.line(&format!("return{kind}")),
            OutputAction::Delete { table, on } => {
                let on = on.as_ref().map_or(String::new(), |on| format!(" on {}", expr(on)));
                self.line(&format!("delete{kind} {}{on}", name(table)));
            }
            OutputAction::Update { table, set, on } => {
                let set = assignments(set);
                self.line(&format!("update{kind} {}{set} on {}", name(table), expr(on)));
            }
            OutputAction::UpdateOrInsert { table, set, on } => {
                let set = assignments(set);
                self.line(&format!("upsert{kind} {}{set} on {}", name(table), expr(on)));
            }
        }
    }

    fn find(&mut self, query: &FindQuery) {
        let alias = query.alias.as_ref().map_or(String::new(), |a| format!(" as {}", name(a)));
        self.line(&format!("find {}{alias}", name(&query.store)));
        self.indented(|out| {
            if let Some(on) = &query.on {
                out.line(&format!("on {}", expr(on)));
            }
            out.within(query.within.as_ref());
            out.selection_and_rate(query.select.as_ref(), None);
        });
    }

    fn change(&mut self, query: &ChangeQuery) {
        self.line("change");
        self.indented(|out| {
            out.selection_and_rate(query.select.as_ref(), None);
            out.output(&query.output);
        });
    }
}

fn annotation(annotation: &Annotation) -> String {
    let args: Vec<String> = annotation
        .args
        .iter()
        .map(|arg| match arg {
            AnnotationArg::Element(element) => self::element(element),
            AnnotationArg::Annotation(annotation) => self::annotation(annotation),
        })
        .collect();
    format!("@{}{}", annotation.name.name, bracketed(&args))
}

fn element(element: &AnnotationEntry) -> String {
    let key = element.key.as_ref().map_or(String::new(), |key| format!("{}=", key.value));
    format!("{key}{}", text(&element.value.value))
}

fn bracketed(parts: &[String]) -> String {
    if parts.is_empty() { String::new() } else { format!("[{}]", parts.join(" ")) }
}

fn stream_ref(stream: &StreamRef) -> String {
    format!("{}{}", stream.scope.mark(), name(&stream.name))
}

fn stream_input(input: &StreamInput) -> String {
    let mut out = stream_ref(&input.stream) + &handlers(&input.handlers);
    if let Some(window) = &input.window {
        let _ = write!(out, " window{}", call(&window.call));
    }
    out + &handlers(&input.after)
}

fn handlers(handlers: &[Handler]) -> String {
    let handlers = handlers.iter().map(|handler| match &handler.kind {
        HandlerKind::Filter(condition) => format!(" [{}]", expr(condition)),
        HandlerKind::Function(function) => format!(" #{}", call(function)),
    });
    handlers.collect()
}

fn side(side: &JoinSide) -> String {
    let alias = side.alias.as_ref().map_or(String::new(), |a| format!(" as {}", name(a)));
    let unidirectional = if side.unidirectional.is_some() { " unidirectional" } else { "" };
    format!("{}{alias}{unidirectional}", stream_input(&side.input))
}

fn periods(periods: &Periods) -> String {
    match periods {
        Periods::Range(from, to) => format!("{}...{}", from.unit.text(), to.unit.text()),
        Periods::List(list) => list.iter().map(|p| p.unit.text()).collect::<Vec<_>>().join(","),
    }
}

fn assignments(set: &[Assignment]) -> String {
    let set: Vec<String> =
        set.iter().map(|a| format!("{} = {}", attribute(&a.column), expr(&a.value))).collect();
    if set.is_empty() { String::new() } else { format!(" set {}", bracketed(&set)) }
}
