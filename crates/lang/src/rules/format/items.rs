//! Formatting of declarations, rules, conditions and actions.

use std::fmt::Write as _;

use super::super::ast::{
    Action, AggregateDecl, Condition, EmitArgs, EntityDecl, EventDecl, Expr, FieldDecl, InsertAction, Item,
    RelationDecl, RuleDecl,
};
use super::super::parser::Precedence;
use super::inline::{ListElement, path_text};
use super::{INDENT, LINE_CHARS_MAX, Printer, declared, member, reference};

/// A member of an event's body.
enum EventMember<'t> {
    Field(&'t FieldDecl),
    Relation(&'t RelationDecl),
}

impl EventMember<'_> {
    fn range(&self) -> (u32, u32) {
        match self {
            Self::Field(field) => field.range(),
            Self::Relation(relation) => (relation.span.start, relation.span.end),
        }
    }
}

impl Printer<'_> {
    /// Returns whether `item` takes several lines, not counting comments after it.
    pub(super) fn is_tall(&self, item: &Item) -> bool {
        match item {
            Item::Event(event) => self.short_event(event).is_none(),
            Item::Entity(entity) => entity_text(entity, " ").chars().count() > LINE_CHARS_MAX,
            Item::Relation(_) => false,
            Item::Rule(_) | Item::Aggregate(_) => true,
        }
    }

    pub(super) fn item(&mut self, item: &Item) {
        match item {
            Item::Event(event) => self.event(event),
            Item::Entity(entity) => {
                let indexes = if self.is_tall(item) { format!("\n{INDENT}") } else { " ".to_owned() };
                self.write(&entity_text(entity, &indexes));
            }
            Item::Relation(relation) => self.write(&relation_text(relation)),
            Item::Rule(rule) => self.rule(rule),
            Item::Aggregate(aggregate) => self.aggregate(aggregate),
        }
    }

    /// Formats an event on one line. Returns `None` if it does not fit, or has relations or comments in its
    /// body.
    fn short_event(&self, event: &EventDecl) -> Option<String> {
        let open = self.bracket_from(event.name.span.end, "{");
        if !event.relations.is_empty() || self.has_comment(open, self.closer(open)) {
            return None;
        }
        self.inline_within(LINE_CHARS_MAX, |flat| {
            write!(flat, "event {} ", declared(&event.name.name))?;
            flat.list("{", "}", &event.fields)?;
            flat.write_str(&event_clauses(event))
        })
    }

    fn event(&mut self, event: &EventDecl) {
        if let Some(text) = self.short_event(event) {
            return self.write(&text);
        }
        self.write(&format!("event {} ", declared(&event.name.name)));
        let mut members: Vec<EventMember<'_>> = event.fields.iter().map(EventMember::Field).collect();
        members.extend(event.relations.iter().map(EventMember::Relation));
        members.sort_by_key(|m| m.range().0);
        let open = self.bracket_from(event.name.span.end, "{");
        self.block(open, &members, EventMember::range, |p, member| match member {
            EventMember::Field(field) => {
                field.print(p);
                p.write(",");
            }
            EventMember::Relation(relation) => p.write(&relation_text(relation)),
        });
        self.write(&event_clauses(event));
    }

    fn rule(&mut self, rule: &RuleDecl) {
        self.write(&format!("rule {}", declared(&rule.name.name)));
        if rule.priority != 0 {
            self.write(&format!(" priority {}", rule.priority));
        }
        let open = self.bracket_from(rule.name.span.end, "{");
        let when = self.bracket_from(open + 1, "{");
        let when_end = self.closer(when);
        let then = self.bracket_from(when_end, "{");
        self.open_rule(open, when);
        self.write("when ");
        self.conditions(when, &rule.conditions);
        self.write(" then ");
        self.block(then, &rule.actions, |a| (a.span().start, a.span().end), Self::action);
        self.close_rule(self.closer(then), rule.span.end - 1);
    }

    /// Prints the rule's opening brace, at the byte `open`, and the comments before the byte `next`.
    fn open_rule(&mut self, open: u32, next: u32) {
        self.write(" {");
        self.indent += 1;
        self.block_start = true;
        self.trailing(open + 1, next);
        self.newline();
        self.leading(next);
        self.block_start = false;
    }

    /// Prints the rule's closing brace, at the byte `close`, after the closing brace of the last block, at
    /// the byte `last`.
    fn close_rule(&mut self, last: u32, close: u32) {
        self.trailing(last + 1, close);
        self.newline();
        self.leading(close);
        self.indent -= 1;
        self.write("}");
    }

    fn aggregate(&mut self, rule: &AggregateDecl) {
        self.write(&format!("rule {}", declared(&rule.name.name)));
        if let Some(every) = &rule.every {
            self.write(&format!(" every {}", every.text));
        }
        let open = self.bracket_from(rule.name.span.end, "{");
        let source = self.bracket_from(open + 1, "{");
        let source_end = self.closer(source);
        let run = self.word_from(source_end, "do").map_or(source_end, |at| self.bracket_from(at, "{"));
        self.open_rule(open, source);
        self.write("aggregate ");
        self.conditions(source, &rule.conditions);
        let mut end = source_end + 1;
        if let Some(over) = &rule.over {
            self.next_clause(end, over.span.start);
            self.write(&format!("over {}", over.text));
            end = over.span.end;
        }
        if !rule.group_by.is_empty() {
            let group = self.word_from(end, "groupby").map_or(end, |at| self.bracket_from(at, "{"));
            self.next_clause(end, group);
            self.write("groupby ");
            self.list(group, ("{", "}"), &rule.group_by);
            end = self.closer(group) + 1;
        }
        self.next_clause(end, run);
        self.write("do ");
        self.block(
            run,
            &rule.inserts,
            |i| (i.span.start, i.span.end),
            |p, insert| {
                p.insert(insert);
                p.write(";");
            },
        );
        self.close_rule(self.closer(run), rule.span.end - 1);
    }

    fn conditions(&mut self, open: u32, conditions: &[Condition]) {
        self.block(
            open,
            conditions,
            |c| (c.span().start, c.span().end),
            |p, condition| {
                p.condition(condition);
                p.write(";");
            },
        );
    }

    fn condition(&mut self, condition: &Condition) {
        if let Some(binding) = condition.binding()
            && !matches!(condition, Condition::Let(_))
        {
            self.write(&format!("{}: ", declared(&binding.name)));
        }
        match condition {
            Condition::Event(c) => {
                self.write(&reference(&c.stream.name));
                self.filters(c.stream.span.end, &c.filters);
            }
            Condition::Entity(c) => {
                self.write(if c.negated { "not " } else { "" });
                self.write(&reference(&c.entity.name));
                self.filters(c.entity.span.end, &c.filters);
            }
            Condition::Relation(c) => {
                self.write(if c.negated { "not " } else { "" });
                self.write(&format!("{}.{}()", reference(&c.base.name), member(&c.relation.name)));
                if let Some(filters) = &c.filters {
                    let first = self.bracket_from(c.relation.span.end, "(");
                    self.filters(self.closer(first) + 1, filters);
                }
            }
            Condition::Let(c) => {
                self.write(&format!("let {} = ", declared(&c.name.name)));
                self.expr(&c.expr, Precedence::Or);
            }
            Condition::Expr(expr) => self.expr(expr, Precedence::Or),
        }
    }

    /// Prints `(a, b)`, whose opening bracket is the first one after the byte `after`.
    fn filters(&mut self, after: u32, filters: &[Expr]) {
        self.list(self.bracket_from(after, "("), ("(", ")"), filters);
    }

    fn action(&mut self, action: &Action) {
        match action {
            Action::Update(update) => {
                self.write(&format!("update {}", reference(&update.target.name)));
                if update.block {
                    self.write(" ");
                    let open = self.bracket_from(update.target.span.end, "{");
                    self.list(open, ("{", "}"), &update.assignments);
                } else {
                    self.write(".");
                    for assign in &update.assignments {
                        assign.print(self);
                    }
                }
            }
            Action::Unset(unset) => {
                self.write(&format!("unset {}.{}", reference(&unset.target.name), path_text(&unset.path)));
            }
            Action::Insert(insert) => self.insert(insert),
            Action::Delete(delete) => self.write(&format!("delete {}", reference(&delete.target.name))),
            Action::Emit(emit) => {
                // `new` has no meaning, but is preserved if the source has it
                let after_emit = self.tokens.get(self.token_from(emit.span.start) + 1);
                let new = after_emit.is_some_and(|t| t.span != emit.stream.span);
                self.write(if new { "emit new " } else { "emit " });
                self.write(&reference(&emit.stream.name));
                let end = emit.stream.span.end;
                match &emit.args {
                    EmitArgs::Positional(args) => self.filters(end, args),
                    EmitArgs::Named(fields) => {
                        self.write(" ");
                        self.list(self.bracket_from(end, "{"), ("{", "}"), fields);
                    }
                }
            }
        }
        self.write(";");
    }

    fn insert(&mut self, insert: &InsertAction) {
        let verb = if insert.upsert { "upsert" } else { "insert" };
        self.write(&format!("{verb} {} ", reference(&insert.entity.name)));
        self.list(self.bracket_from(insert.entity.span.end, "{"), ("{", "}"), &insert.fields);
    }
}

/// Formats ` key a id a, b time t;`.
fn event_clauses(event: &EventDecl) -> String {
    let mut out = String::new();
    if let Some(key) = &event.key {
        let _ = write!(out, " key {}", reference(&key.name));
    }
    if !event.id.is_empty() {
        let fields: Vec<String> = event.id.iter().map(|f| reference(&f.name)).collect();
        let _ = write!(out, " id {}", fields.join(", "));
    }
    if let Some(time) = &event.time {
        let _ = write!(out, " time {}", reference(&time.name));
    }
    out.push(';');
    out
}

/// Formats an entity; `before_index` is inserted before each index.
fn entity_text(entity: &EntityDecl, before_index: &str) -> String {
    let mut out = format!("entity {} key {}", declared(&entity.name.name), reference(&entity.key.name));
    if let Some(shard) = &entity.shard {
        let _ = write!(out, " shard {}", reference(&shard.name));
    }
    if entity.replicated.is_some() {
        out.push_str(" replicated");
    }
    for index in &entity.indexes {
        let unique = if index.unique { "unique " } else { "" };
        let fields: Vec<String> = index.fields.iter().map(path_text).collect();
        let fields = if let [one] = &fields[..] { one.clone() } else { format!("({})", fields.join(", ")) };
        let _ = write!(out, "{before_index}{unique}index {fields}");
    }
    out.push(';');
    out
}

/// Formats `relation Owner.name(): Entity by field on field;`.
fn relation_text(relation: &RelationDecl) -> String {
    let mut out = String::from("relation ");
    match &relation.owner {
        Some(owner) => {
            let _ = write!(out, "{}.{}", reference(&owner.name), member(&relation.name.name));
        }
        None => out.push_str(&reference(&relation.name.name)),
    }
    let _ = write!(out, "(): {} by {}", reference(&relation.target.name), reference(&relation.by.name));
    if let Some(on) = &relation.on {
        let _ = write!(out, " on {}", reference(&on.name));
    }
    out.push(';');
    out
}
