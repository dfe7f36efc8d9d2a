//! Formatting of outputs and output rate limits.

use std::fmt::Write as _;

use super::super::ast::{Assignment, Expr, Output, OutputAction, RateKind, RateLimit};
use super::super::parser::Precedence;
use super::Printer;
use super::inline::name;

impl Printer<'_> {
    pub(super) fn rate(&mut self, rate: &RateLimit) {
        let text = match &rate.kind {
            RateKind::Events { which, count, .. } => {
                let which = which.map_or(String::new(), |which| format!("{} ", which.text()));
                format!("output {which}every {count} events")
            }
            RateKind::Time { which, every } => {
                let which = which.map_or(String::new(), |which| format!("{} ", which.text()));
                format!("output {which}every {}", every.text)
            }
            RateKind::Snapshot { every } => format!("output snapshot every {}", every.text),
        };
        self.write(&text);
    }

    pub(super) fn output(&mut self, output: &Output) {
        let kind = output.kind.map_or("", |kind| kind.kind.text());
        let for_kind = if kind.is_empty() { String::new() } else { format!(" for {kind}") };
        match &output.action {
            OutputAction::Insert { target } => {
                let target = self.inline_unbounded(|flat| flat.stream_ref(target));
                let space = if kind.is_empty() { "" } else { " " };
                self.write(&format!("insert{space}{kind} into {target}"));
            }
            OutputAction::Delete { table, on } => {
                let head = format!("delete {}{for_kind}", name(&table.name));
                self.change(&head, &[], on.as_ref());
            }
            OutputAction::Update { table, set, on } => {
                // without backticks, `update or insert` would begin another kind of output
                let table = match table.name.eq_ignore_ascii_case("or") {
                    true => format!("`{}`", table.name),
                    false => name(&table.name),
                };
                self.change(&format!("update {table}{for_kind}"), set, Some(on));
            }
            OutputAction::UpdateOrInsert { table, set, on } => {
                let head = format!("update or insert into {}{for_kind}", name(&table.name));
                self.change(&head, set, Some(on));
            }
            OutputAction::Return => {
                let space = if kind.is_empty() { "" } else { " " };
                self.write(&format!("return{space}{kind}"));
            }
        }
    }

    /// Prints `head set … on …` on one line if it fits, otherwise a line for each clause.
    fn change(&mut self, head: &str, set: &[Assignment], on: Option<&Expr>) {
        let text = self.inline_within(self.room(), |flat| {
            flat.write_str(head)?;
            if !set.is_empty() {
                flat.write_str(" set ")?;
                flat.commas(set, |flat, assignment| {
                    flat.attribute(&assignment.column)?;
                    flat.write_str(" = ")?;
                    flat.expr(&assignment.value, Precedence::Or)
                })?;
            }
            if let Some(on) = on {
                flat.write_str(" on ")?;
                flat.expr(on, Precedence::Or)?;
            }
            Ok(())
        });
        if let Some(text) = text {
            return self.write(&text);
        }
        self.write(head);
        self.indent += 1;
        for (i, assignment) in set.iter().enumerate() {
            self.newline();
            let column = self.inline_unbounded(|flat| flat.attribute(&assignment.column));
            self.write(&format!("{}{column} = ", if i == 0 { "set " } else { "  " }));
            self.expr(&assignment.value, Precedence::Or);
            self.write(if i + 1 < set.len() { "," } else { "" });
        }
        if let Some(on) = on {
            self.newline();
            self.write("on ");
            self.expr(on, Precedence::Or);
        }
        self.indent -= 1;
    }
}
