//! Formatting of queries and their inputs.

use std::fmt::Write as _;

use super::super::ast::{
    AttributeRef, Call, Handler, HandlerKind, Input, JoinInput, JoinSide, NestedQuery, Query, SelectItems,
    Selection, StreamInput,
};
use super::super::parser::Precedence;
use super::Printer;
use super::inline::{callee, name};

impl Printer<'_> {
    pub(super) fn query(&mut self, query: &Query) {
        let span = query.input.span();
        self.annotations(&query.annotations, span.start);
        self.write("from ");
        self.input(&query.input);
        let mut end = span.end;
        if let Some(select) = &query.select {
            self.selection(&mut end, select);
        }
        if let Some(rate) = &query.rate {
            self.clause(&mut end, rate.span);
            self.rate(rate);
        }
        self.clause(&mut end, query.output.span);
        self.output(&query.output);
    }

    fn input(&mut self, input: &Input) {
        match input {
            Input::Stream(input) => self.stream_input(input),
            Input::Join(join) => self.join(join),
            Input::State(state) => self.state(state),
            Input::Nested(query) => self.nested_query(query),
        }
    }

    fn nested_query(&mut self, query: &NestedQuery) {
        self.write("(from ");
        self.indent += 1;
        self.input(&query.input);
        let mut end = query.input.span().end;
        if let Some(select) = &query.select {
            self.selection(&mut end, select);
        }
        if let Some(rate) = &query.rate {
            self.clause(&mut end, rate.span);
            self.rate(rate);
        }
        let kind = query.kind.map_or(String::new(), |kind| format!(" {}", kind.kind.text()));
        self.clause(&mut end, query.kind.map_or(query.span.at_end(), |kind| kind.span));
        self.write(&format!("return{kind})"));
        self.indent -= 1;
    }

    /// Prints `S[…]#f(…)#window.length(5)[…]`.
    pub(super) fn stream_input(&mut self, input: &StreamInput) {
        let text = self.inline_within(self.room(), |flat| {
            flat.stream_ref(&input.stream)?;
            for handler in &input.handlers {
                flat.handler(handler)?;
            }
            if let Some(window) = &input.window {
                flat.write_str("#window.")?;
                flat.call(&window.call)?;
            }
            for handler in &input.after {
                flat.handler(handler)?;
            }
            Ok(())
        });
        if let Some(text) = text {
            return self.write(&text);
        }
        self.write(&format!("{}{}", input.stream.scope.mark(), name(&input.stream.name.name)));
        self.handlers(&input.handlers);
        if let Some(window) = &input.window {
            self.write("#window.");
            self.call(&window.call);
        }
        self.handlers(&input.after);
    }

    pub(super) fn handlers(&mut self, handlers: &[Handler]) {
        for handler in handlers {
            match &handler.kind {
                HandlerKind::Filter(condition) => {
                    self.write("[");
                    self.expr(condition, Precedence::Or);
                    self.write("]");
                }
                HandlerKind::Function(call) => {
                    self.write("#");
                    self.call(call);
                }
            }
        }
    }

    fn call(&mut self, call: &Call) {
        match self.inline_within(self.room(), |flat| flat.call(call)) {
            Some(text) => self.write(&text),
            None if call.args.list().is_empty() => {
                let text = self.inline_unbounded(|flat| flat.call(call));
                self.write(&text);
            }
            None => {
                self.write(&callee(call));
                self.multiline_args(call.args.list());
            }
        }
    }

    /// Prints a join, a line for each side and condition.
    fn join(&mut self, join: &JoinInput) {
        self.side(&join.left);
        let mut end = join.left.span.end;
        self.indent += 1;
        self.clause(&mut end, join.right.span);
        self.write(&format!("{} ", join.kind.text()));
        self.side(&join.right);
        self.expr_clause(&mut end, "on", join.on.as_ref());
        if let Some(within) = &join.within {
            self.clause(&mut end, within.span);
            self.write("within ");
            self.expr(&within.from, Precedence::Or);
            if let Some(to) = &within.to {
                self.write(", ");
                self.expr(to, Precedence::Or);
            }
            self.write(" per ");
            self.expr(&within.per, Precedence::Or);
        }
        self.indent -= 1;
    }

    fn side(&mut self, side: &JoinSide) {
        self.stream_input(&side.input);
        if let Some(alias) = &side.alias {
            self.write(&format!(" as {}", name(&alias.name)));
        }
        if side.unidirectional.is_some() {
            self.write(" unidirectional");
        }
    }

    fn selection(&mut self, end: &mut u32, select: &Selection) {
        self.select_items(end, &select.items);
        self.group_by(end, &select.group_by);
        self.expr_clause(end, "having", select.having.as_ref());
        if let (Some(first), Some(last)) = (select.order_by.first(), select.order_by.last()) {
            self.clause(end, first.span.to(last.span));
            self.clause_list("order by", first.span.start, &select.order_by);
        }
        self.expr_clause(end, "limit", select.limit.as_ref());
        self.expr_clause(end, "offset", select.offset.as_ref());
    }

    pub(super) fn select_items(&mut self, end: &mut u32, items: &SelectItems) {
        match items {
            SelectItems::All(star) => {
                self.clause(end, *star);
                self.write("select *");
            }
            SelectItems::List(items) => {
                if let (Some(first), Some(last)) = (items.first(), items.last()) {
                    self.clause(end, first.span.to(last.span));
                    self.clause_list("select", first.span.start, items);
                }
            }
        }
    }

    pub(super) fn group_by(&mut self, end: &mut u32, attributes: &[AttributeRef]) {
        if let (Some(first), Some(last)) = (attributes.first(), attributes.last()) {
            self.clause(end, first.span.to(last.span));
            self.clause_list("group by", first.span.start, attributes);
        }
    }
}
