//! Parsing of patterns and sequences.

use super::super::ast::{
    CountForm, StateInput, StateKind, Step, StepGroup, StreamInput, TimeLiteral, TimedPart,
};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

/// State of a chain while it is parsed.
#[derive(Default)]
struct Chain {
    /// Link between the steps, and the source range of its first occurrence.
    link: Option<(StateKind, Span)>,
    /// Parts with a maximum duration of their own.
    parts: Vec<TimedPart>,
    /// A `within` behind brackets that end the chain: it is that of the whole pattern.
    within: Option<TimeLiteral>,
    /// The first brackets around nothing but an absent step.
    lone_absence: Option<Span>,
}

impl Parser<'_> {
    /// Returns whether the current token can only begin a pattern or sequence.
    pub(super) fn at_state(&self) -> bool {
        self.is_punct(0, "(")
            || self.at_every()
            || self.at_absent()
            || self.is_name(0) && self.is_punct(1, "=")
    }

    /// Returns whether the current token is `every` before a step.
    fn at_every(&self) -> bool {
        self.is_word(0, "every") && self.precedes_source(0)
    }

    /// Parses a pattern or sequence. `first` is its first step if that was already parsed as a stream.
    pub(super) fn state(&mut self, first: Option<StreamInput>) -> Parse<StateInput> {
        let start = first.as_ref().map_or_else(|| self.span(), |first| first.span);
        let mut chain = Chain::default();
        let mut groups = Vec::new();
        if let Some(first) = first {
            let step = self.step_of(first)?;
            groups.push(single(step));
        } else {
            self.group(&mut groups, &mut chain, false)?;
        }
        self.chain(&mut groups, &mut chain, false)?;
        let Chain { link, parts, within, lone_absence } = chain;
        let within = match (within, self.eat_word("within")) {
            (None, Some(_)) => Some(self.time("within")?),
            (within, _) => within,
        };
        if within.is_some() && self.is_punct_of(0, &["->", ","]) {
            return Err(self.report_misplaced_within(self.previous()));
        }
        let kind = link.map_or(StateKind::Pattern, |(kind, _)| kind);
        match kind {
            StateKind::Pattern => {
                self.check_sequence_counts(&groups);
                self.check_lone_absence(lone_absence.filter(|_| link.is_some()));
            }
            StateKind::Sequence => self.check_misplaced_every(&groups),
        }
        Ok(StateInput { kind, groups, within, parts, span: self.span_since(start) })
    }

    /// Parses the steps after the first, each preceded by `->` or `,`.
    fn chain(&mut self, groups: &mut Vec<StepGroup>, chain: &mut Chain, in_every: bool) -> Parse<()> {
        loop {
            let kind = match self.token().kind {
                TokenKind::Punct("->") => StateKind::Pattern,
                TokenKind::Punct(",") => StateKind::Sequence,
                _ => return Ok(()),
            };
            let span = self.bump();
            let (first, at) = *chain.link.get_or_insert((kind, span));
            if first != kind {
                let message = "`->` and `,` cannot be mixed in one chain";
                self.report(
                    Diagnostic::error(diagnostic_codes::STATE_KIND, span, message)
                        .help("write `->` throughout if other events may come between, otherwise `,`")
                        .note_at(at, "the other one"),
                );
            }
            self.group(groups, chain, in_every)?;
        }
    }

    /// Parses a step, or several in brackets, with or without `every`.
    fn group(&mut self, groups: &mut Vec<StepGroup>, chain: &mut Chain, in_every: bool) -> Parse<()> {
        let start = self.span();
        if !self.at_every() {
            if self.is_punct(0, "(") {
                let inner = self.nested(|p| p.bracketed(chain, in_every))?;
                groups.extend(inner);
            } else {
                groups.push(single(self.step()?));
            }
            return Ok(());
        }
        let every = self.bump();
        if in_every || self.at_every() {
            let second = if in_every { every } else { self.span() };
            self.report(
                Diagnostic::error(
                    diagnostic_codes::EVERY_MISPLACED,
                    second,
                    "`every` cannot be inside another `every`",
                )
                .help("remove one of them"),
            );
            if !in_every {
                self.bump();
            }
        }
        let steps = if self.is_punct(0, "(") {
            let inner = self.nested(|p| p.bracketed(chain, true))?;
            inner.into_iter().flat_map(|group| group.steps).collect()
        } else {
            vec![self.step()?]
        };
        groups.push(StepGroup { every: Some(every), steps, span: self.span_since(start) });
        Ok(())
    }

    /// Parses `(step -> step)`, `(step -> step within time)` and `(step -> step) within time`.
    fn bracketed(&mut self, chain: &mut Chain, in_every: bool) -> Parse<Vec<StepGroup>> {
        let open = self.bump();
        let mut groups = Vec::new();
        self.group(&mut groups, chain, in_every)?;
        self.chain(&mut groups, chain, in_every)?;
        let inside = match self.eat_word("within") {
            Some(_) => Some(self.time("within")?),
            None => None,
        };
        if inside.is_some() && self.is_punct_of(0, &["->", ","]) {
            return Err(self.report_misplaced_within(self.previous()));
        }
        if self.eat(")").is_none() {
            return Err(self.report_not_closed(open, &["`->`", "`,`", "`within`", "`)`"], None));
        }
        let span = self.span_since(open);
        if let [group] = groups.as_slice()
            && let [Step::Absent(_)] = group.steps.as_slice()
        {
            chain.lone_absence.get_or_insert(span);
        }
        chain.parts.extend(inside.map(|within| TimedPart { within, span }));
        if self.eat_word("within").is_some() {
            let within = self.time("within")?;
            if self.is_punct_of(0, &["->", ",", ")"]) {
                chain.parts.push(TimedPart { within, span });
            } else {
                chain.within = Some(within);
            }
        }
        if self.is_punct_of(0, &["<", "*", "+", "?"]) {
            let message = "a count applies to one stream, not to brackets";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, self.span(), message)
                    .help("write the steps several times, or repeat them by `every (…)`"),
            );
            return Err(SyntaxError::Statement);
        }
        Ok(groups)
    }

    fn report_misplaced_within(&mut self, span: Span) -> SyntaxError {
        self.report(
            Diagnostic::error(
                diagnostic_codes::WITHIN_MISPLACED,
                span,
                "`within` stands at the end of the whole pattern, or of a part in brackets",
            )
            .help("move it after the last step, or put the part in brackets: `(a=A -> b=B within 10 sec) -> c=C`"),
        );
        SyntaxError::Statement
    }

    /// Reports counts in a pattern that are allowed only in sequences.
    fn check_sequence_counts(&mut self, groups: &[StepGroup]) {
        for step in groups.iter().flat_map(|group| &group.steps) {
            let Step::Stream(step) = step else { continue };
            let Some(count) = step.count else { continue };
            let help = match count.form {
                CountForm::Range => continue,
                CountForm::Star => "write `<0:>`",
                CountForm::Plus => "write `<1:>`",
                CountForm::Question => "write `<0:1>`",
            };
            let message = format!("`{}` is only allowed in sequences", self.file.slice(count.span));
            self.report(Diagnostic::error(diagnostic_codes::STATE_KIND, count.span, message).help(help));
        }
    }

    /// Reports brackets around an absent step in a pattern with other steps, which SiddhiQL does not have.
    fn check_lone_absence(&mut self, brackets: Option<Span>) {
        let Some(span) = brackets else { return };
        let message = "an absent step among others has no brackets of its own";
        self.report(
            Diagnostic::error(diagnostic_codes::STATE_KIND, span, message)
                .help("remove them: `every not B for 1 sec -> c=C`"),
        );
    }

    /// Reports `every` in a sequence other than before its first step.
    fn check_misplaced_every(&mut self, groups: &[StepGroup]) {
        for (i, group) in groups.iter().enumerate() {
            let Some(every) = group.every else { continue };
            if i == 0 && group.steps.len() == 1 {
                continue;
            }
            let message = "in a sequence `every` is only allowed before the first step, without brackets";
            let help = match i {
                0 => "remove the brackets: `every` repeats the whole sequence",
                _ => "move it to the beginning",
            };
            self.report(Diagnostic::error(diagnostic_codes::EVERY_MISPLACED, every, message).help(help));
        }
    }
}

fn single(step: Step) -> StepGroup {
    let span = step.span();
    StepGroup { every: None, steps: vec![step], span }
}
