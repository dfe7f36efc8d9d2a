//! Formatting of patterns and sequences.

use std::fmt::{self, Write as _};

use super::super::ast::{
    AbsentStep, Count, CountForm, LogicalSide, StateInput, StateKind, Step, StepGroup, StreamStep,
};
use super::Printer;
use super::inline::{InlinePrinter, name};

impl Printer<'_> {
    /// Prints a pattern or sequence on one line if it fits and no comment is between the steps, otherwise a
    /// line for each step.
    pub(super) fn state(&mut self, state: &StateInput) {
        let last = match (&state.within, state.groups.last()) {
            (Some(within), _) => within.span.start,
            (None, Some(group)) => group.steps.last().map_or(state.span.start, |step| step.span().start),
            (None, None) => state.span.start,
        };
        if !self.has_comment(state.span.start, last)
            && let Some(text) = self.inline_within(self.room(), |flat| flat.state(state))
        {
            return self.write(&text);
        }
        let brackets = reads_as_stream(state);
        self.write(if brackets { "(" } else { "" });
        self.multiline_state(state);
        self.write(if brackets { ")" } else { "" });
    }

    fn multiline_state(&mut self, state: &StateInput) {
        let brackets = brackets(state);
        let count = state.steps().count();
        let mut end = state.span.start;
        for (i, (step, (opening, closing))) in state.steps().zip(&brackets).enumerate() {
            if i > 0 {
                self.clause(&mut end, step.span());
                self.write(if state.kind == StateKind::Pattern { "-> " } else { "" });
            } else {
                self.indent += 1;
                end = step.span().end;
            }
            self.write(opening);
            self.step(step);
            self.write(closing);
            if state.kind == StateKind::Sequence && i + 1 < count {
                self.write(",");
            }
        }
        if let Some(within) = &state.within {
            self.clause(&mut end, within.span);
            self.write(&format!("within {}", within.text));
        }
        self.indent = self.indent.saturating_sub(1);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Stream(step) => self.stream_step(step),
            Step::Absent(step) => self.absent_step(step),
            Step::Logical(step) => {
                self.logical_side(&step.left);
                self.write(&format!(" {} ", step.op.text()));
                self.logical_side(&step.right);
            }
        }
    }

    fn logical_side(&mut self, side: &LogicalSide) {
        match side {
            LogicalSide::Stream(step) => self.stream_step(step),
            LogicalSide::Absent(step) => self.absent_step(step),
        }
    }

    fn stream_step(&mut self, step: &StreamStep) {
        if let Some(reference) = &step.reference {
            self.write(&format!("{}=", name(&reference.name)));
        }
        let stream = self.inline_unbounded(|flat| flat.stream_ref(&step.stream));
        self.write(&stream);
        self.handlers(&step.handlers);
        self.write(&count(step.count));
    }

    fn absent_step(&mut self, step: &AbsentStep) {
        let stream = self.inline_unbounded(|flat| flat.stream_ref(&step.stream));
        self.write(&format!("not {stream}"));
        self.handlers(&step.handlers);
        if let Some(wait) = &step.wait {
            self.write(&format!(" for {}", wait.text));
        }
    }
}

impl InlinePrinter<'_> {
    fn state(&mut self, state: &StateInput) -> fmt::Result {
        let link = match state.kind {
            StateKind::Pattern => " -> ",
            StateKind::Sequence => ", ",
        };
        let brackets = reads_as_stream(state);
        let marks = self::brackets(state);
        self.write_str(if brackets { "(" } else { "" })?;
        for (i, (step, (opening, closing))) in state.steps().zip(marks).enumerate() {
            self.write_str(if i > 0 { link } else { "" })?;
            self.write_str(&opening)?;
            self.step(step)?;
            self.write_str(&closing)?;
        }
        self.write_str(if brackets { ")" } else { "" })?;
        match &state.within {
            Some(within) => write!(self, " within {}", within.text),
            None => Ok(()),
        }
    }

    fn step(&mut self, step: &Step) -> fmt::Result {
        match step {
            Step::Stream(step) => self.stream_step(step),
            Step::Absent(step) => self.absent_step(step),
            Step::Logical(step) => {
                self.logical_side(&step.left)?;
                write!(self, " {} ", step.op.text())?;
                self.logical_side(&step.right)
            }
        }
    }

    fn logical_side(&mut self, side: &LogicalSide) -> fmt::Result {
        match side {
            LogicalSide::Stream(step) => self.stream_step(step),
            LogicalSide::Absent(step) => self.absent_step(step),
        }
    }

    fn stream_step(&mut self, step: &StreamStep) -> fmt::Result {
        if let Some(reference) = &step.reference {
            write!(self, "{}=", name(&reference.name))?;
        }
        self.stream_ref(&step.stream)?;
        for handler in &step.handlers {
            self.handler(handler)?;
        }
        self.write_str(&count(step.count))
    }

    fn absent_step(&mut self, step: &AbsentStep) -> fmt::Result {
        self.write_str("not ")?;
        self.stream_ref(&step.stream)?;
        for handler in &step.handlers {
            self.handler(handler)?;
        }
        match &step.wait {
            Some(wait) => write!(self, " for {}", wait.text),
            None => Ok(()),
        }
    }
}

/// Returns whether `state` would be parsed as a plain stream without brackets around it.
fn reads_as_stream(state: &StateInput) -> bool {
    let [StepGroup { every: None, steps, .. }] = &state.groups[..] else { return false };
    let plain = matches!(&steps[..], [Step::Stream(StreamStep { reference: None, count: None, .. })]);
    plain && state.within.is_none() && state.parts.is_empty()
}

/// Returns whether the steps that `every` repeats are printed in brackets; around a single logical step they
/// only aid reading.
fn is_bracketed(group: &StepGroup) -> bool {
    group.every.is_some() && !matches!(&group.steps[..], [Step::Stream(_) | Step::Absent(_)])
}

/// Returns what is printed before and behind each step: `every`, brackets, and `within` of parts.
fn brackets(state: &StateInput) -> Vec<(String, String)> {
    let parts = state.parts.iter().filter_map(|part| Some((state.steps_of(part)?, &part.within.text)));
    let parts: Vec<_> = parts.collect();
    // each with its steps, and its texts before and behind them; an outer one before an inner one
    let mut marks: Vec<((usize, usize), &str, String)> = Vec::new();
    let mut first = 0;
    for group in &state.groups {
        let steps = (first, first + group.steps.len().saturating_sub(1));
        first += group.steps.len();
        if group.every.is_some() {
            // the brackets of a part that is repeated as a whole serve `every`, too
            match is_bracketed(group) && !parts.iter().any(|(part, _)| *part == steps) {
                true => marks.push((steps, "every (", ")".to_owned())),
                false => marks.push((steps, "every ", String::new())),
            }
        }
    }
    // the parts are listed from the inside
    marks.extend(parts.iter().rev().map(|(steps, within)| (*steps, "(", format!(" within {within})"))));
    marks.sort_by_key(|((first, last), ..)| std::cmp::Reverse(last - first));
    let mut texts = vec![(String::new(), String::new()); first];
    for ((first, last), opening, closing) in marks {
        texts[first].0.push_str(opening);
        texts[last].1.insert_str(0, &closing);
    }
    texts
}

fn count(count: Option<Count>) -> String {
    let Some(count) = count else { return String::new() };
    match (count.form, count.min, count.max) {
        (CountForm::Star, ..) => "*".to_owned(),
        (CountForm::Plus, ..) => "+".to_owned(),
        (CountForm::Question, ..) => "?".to_owned(),
        (CountForm::Range, min, Some(max)) if min == max => format!("<{min}>"),
        (CountForm::Range, min, Some(max)) => format!("<{min}:{max}>"),
        (CountForm::Range, min, None) => format!("<{min}:>"),
    }
}
