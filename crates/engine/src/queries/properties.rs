//! What the text of a query says about where it can run.

use tidemill_flow::Registry;
use tidemill_flow::catalog::full_name;
use tidemill_lang::siddhi::ast::{
    AbsentStep, Call, Expr, ExprKind, Handler, HandlerKind, Input, LogicalSide, NullOperand, OutputAction,
    Query, RateKind, SelectItems, StateKind, Step, StreamInput, StreamStep,
};

/// Properties of a query: what it reads, does and keeps.
#[derive(Debug, Default, Clone)]
pub struct QueryProperties {
    /// Streams, tables and windows that it reads, with their marks, each once.
    pub reads: Vec<String>,
    /// The stream, table or window that it writes.
    pub writes: String,
    /// True if it inserts; everything else is done to tables.
    pub inserts: bool,
    /// Operators that it consists of, in order.
    pub operators: Vec<String>,
    /// State that it keeps between events; empty for a query that looks at each event by itself.
    pub retained_state: Vec<String>,
    /// Tables that its conditions ask.
    pub queried_tables: Vec<String>,
    /// True if all that it keeps are the totals of its groups.
    pub only_group_aggregates: bool,
    /// The attributes by which it makes groups.
    pub group_by: Vec<String>,
}

/// Looks at a query.
pub fn analyze(query: &Query, registry: &Registry) -> QueryProperties {
    let mut facts = QueryProperties::default();
    facts.input(&query.input, registry);
    let mut windows = !facts.retained_state.is_empty();
    if let Some(select) = &query.select {
        let mut aggregates = Vec::new();
        if let SelectItems::List(items) = &select.items {
            items.iter().for_each(|item| facts.expr(&item.expr, Some(registry), &mut aggregates));
        }
        select.having.iter().for_each(|having| facts.expr(having, Some(registry), &mut aggregates));
        facts.group_by = select.group_by.iter().map(|g| g.name.name.clone()).collect();
        if !aggregates.is_empty() {
            aggregates.dedup();
            facts.operators.push(aggregates.join(", "));
            facts.retained_state.push(match facts.group_by.is_empty() {
                true => "totals".into(),
                false => format!("totals of each {}", facts.group_by.join(", ")),
            });
        } else if !facts.group_by.is_empty() {
            facts.operators.push(format!("group by {}", facts.group_by.join(", ")));
        }
        if select.having.is_some() {
            facts.operators.push("having".into());
        }
    }
    if let Some(rate) = &query.rate {
        windows = true;
        facts.operators.push("output rate".into());
        facts.retained_state.push(match rate.kind {
            RateKind::Events { .. } | RateKind::Time { .. } => "the events of a round".into(),
            RateKind::Snapshot { .. } => "what a snapshot shows".into(),
        });
    }
    facts.only_group_aggregates = !windows && !facts.retained_state.is_empty();
    match &query.output.action {
        OutputAction::Insert { target } => (facts.inserts, facts.writes) = (true, full_name(target)),
        OutputAction::Delete { table, .. } => facts.writes.clone_from(&table.name),
        OutputAction::Update { table, .. } | OutputAction::UpdateOrInsert { table, .. } => {
            facts.writes.clone_from(&table.name);
        }
        OutputAction::Return => {}
    }
    facts
}

impl QueryProperties {
    /// Returns whether it sends statements of its own to a database.
    pub fn asks_database(&self) -> bool {
        self.operators.iter().any(|operator| operator.starts_with("#rdbms:"))
    }

    fn read(&mut self, name: String) {
        if !self.reads.contains(&name) {
            self.reads.push(name);
        }
    }

    fn input(&mut self, input: &Input, registry: &Registry) {
        match input {
            Input::Stream(input) => self.stream(input, registry),
            Input::Join(join) => {
                self.stream(&join.left.input, registry);
                self.stream(&join.right.input, registry);
                join.on.iter().for_each(|on| self.add_queried_tables(on));
                self.operators.push(join.kind.text().into());
                self.retained_state.push("the rows of its sides".into());
            }
            Input::State(state) => {
                state.steps().for_each(|step| self.step(step, registry));
                let kind = match state.kind {
                    StateKind::Pattern => "pattern",
                    StateKind::Sequence => "sequence",
                };
                self.operators.push(format!("{kind} of {} steps", state.steps().count()));
                self.retained_state.push("matches that are not complete".into());
            }
            Input::Nested(nested) => self.input(&nested.input, registry),
        }
    }

    fn stream(&mut self, input: &StreamInput, registry: &Registry) {
        self.read(full_name(&input.stream));
        self.handlers(&input.handlers, registry);
        if let Some(window) = &input.window {
            let text = call_text(&window.call);
            self.operators.push(format!("window {text}"));
            self.retained_state.push(format!("the rows of {text}"));
        }
        self.handlers(&input.after, registry);
    }

    fn step(&mut self, step: &Step, registry: &Registry) {
        match step {
            Step::Stream(step) => self.stream_step(step, registry),
            Step::Absent(step) => self.absent_step(step, registry),
            Step::Logical(step) => {
                for side in [&step.left, &step.right] {
                    match side {
                        LogicalSide::Stream(step) => self.stream_step(step, registry),
                        LogicalSide::Absent(step) => self.absent_step(step, registry),
                    }
                }
            }
        }
    }

    fn stream_step(&mut self, step: &StreamStep, registry: &Registry) {
        self.read(full_name(&step.stream));
        self.handlers(&step.handlers, registry);
    }

    fn absent_step(&mut self, step: &AbsentStep, registry: &Registry) {
        self.read(full_name(&step.stream));
        self.handlers(&step.handlers, registry);
    }

    fn handlers(&mut self, handlers: &[Handler], registry: &Registry) {
        for handler in handlers {
            match &handler.kind {
                HandlerKind::Filter(condition) => {
                    self.operators.push("filter".into());
                    let mut aggregates = Vec::new();
                    self.expr(condition, Some(registry), &mut aggregates);
                    if !aggregates.is_empty() {
                        self.retained_state.push(format!("{} of a filter", aggregates.join(", ")));
                    }
                }
                HandlerKind::Function(call) => {
                    let name = call_name(call);
                    if registry.find_stream_processor(&name).is_some() {
                        self.retained_state.push(format!("what {name} knows"));
                    }
                    self.operators.push(format!("#{name}"));
                    call.args.list().iter().for_each(|arg| self.add_queried_tables(arg));
                }
            }
        }
    }

    /// The tables that a condition asks.
    fn add_queried_tables(&mut self, condition: &Expr) {
        self.expr(condition, None, &mut Vec::new());
    }

    fn expr(&mut self, expr: &Expr, registry: Option<&Registry>, aggregates: &mut Vec<String>) {
        match &expr.kind {
            ExprKind::Literal(_) | ExprKind::Time(_) | ExprKind::Attribute(_) => {}
            ExprKind::Call(call) => {
                let name = call_name(call);
                if registry.is_some_and(|r| r.find_aggregator(&name).is_some()) {
                    aggregates.push(name);
                }
                call.args.list().iter().for_each(|arg| self.expr(arg, registry, aggregates));
            }
            ExprKind::IsNull(NullOperand::Value(value)) => {
                self.expr(value, registry, aggregates);
            }
            ExprKind::IsNull(_) => {}
            ExprKind::Not(inner) => self.expr(inner, registry, aggregates),
            ExprKind::Binary { left, right, .. } => {
                self.expr(left, registry, aggregates);
                self.expr(right, registry, aggregates);
            }
            ExprKind::In { condition, table } => {
                if !self.queried_tables.contains(&table.name) {
                    self.queried_tables.push(table.name.clone());
                }
                self.expr(condition, registry, aggregates);
            }
        }
    }
}

/// `name` or `namespace:name`.
pub fn call_name(call: &Call) -> String {
    match &call.namespace {
        Some(namespace) => format!("{}:{}", namespace.name, call.name.name),
        None => call.name.name.clone(),
    }
}

fn call_text(call: &Call) -> String {
    let args: Vec<String> = call.args.list().iter().map(ToString::to_string).collect();
    format!("{}({})", call_name(call), args.join(", "))
}
