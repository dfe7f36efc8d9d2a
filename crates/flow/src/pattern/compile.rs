//! Compilation of the syntax tree of a pattern or a sequence into its plan.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{
    self, AbsentStep, HandlerKind, LogicalOp, LogicalSide, StateInput, StateKind, Step, StreamStep,
};

use super::plan::{LogicalStepSide, PatternPlan, StepKind, StepPlan, TimedPart};
use super::scope::{PatternScope, StepNames};
use crate::catalog::Catalog;
use crate::compile::compiler::{Compiler, call_name, describe};
use crate::compile::scope::TableScope;
use crate::expr::Expr;
use crate::registry::Registry;

/// Compiles a pattern or a sequence. Returns the plan, whose columns the selection adds later, and the names
/// of its steps.
///
/// Errors: the first error found.
pub fn compile(
    input: &StateInput,
    catalog: &Catalog,
    registry: &Registry,
) -> Result<(PatternPlan, Vec<StepNames>), Diagnostic> {
    let mut draft = StepBuilder { catalog, registry, steps: vec![], names: vec![], handlers: vec![] };
    for group in &input.groups {
        let first = draft.steps.len();
        for step in &group.steps {
            draft.step(step)?;
        }
        if group.every.is_some() {
            draft.steps[first..].iter_mut().for_each(|s| s.every_in = Some(first));
            let last = draft.last();
            draft.steps[last..].iter_mut().for_each(|s| s.every_end = Some(first));
        }
    }
    draft.link();
    for i in 0..draft.steps.len() {
        draft.filters(i)?;
    }
    let within = input.within.as_ref().map(|t| t.ms);
    let parts = timed_parts(input, &draft.steps);
    let sequence = input.kind == StateKind::Sequence;
    let plan = PatternPlan {
        sequence,
        steps: draft.steps,
        within,
        parts,
        names: draft.names.clone(),
        limits: registry.limits(),
        ..PatternPlan::default()
    };
    Ok((plan, draft.names))
}

/// Returns the parts with a maximum duration of their own. A logical step takes two entries of `steps`.
fn timed_parts(input: &StateInput, steps: &[StepPlan]) -> Vec<TimedPart> {
    let mut starts = Vec::new();
    let mut i = 0;
    while i < steps.len() {
        starts.push(i);
        i += if matches!(steps[i].kind, StepKind::Side(_)) { 2 } else { 1 };
    }
    starts.push(steps.len());
    let part = |part: &ast::TimedPart| {
        let (first, last) = input.steps_of(part)?;
        Some(TimedPart {
            first: *starts.get(first)?,
            last: starts.get(last + 1)? - 1,
            within: part.within.ms,
        })
    };
    input.parts.iter().filter_map(part).collect()
}

struct StepBuilder<'a> {
    catalog: &'a Catalog,
    registry: &'a Registry,
    steps: Vec<StepPlan>,
    names: Vec<StepNames>,
    /// The handlers of each step, parallel to `steps`.
    handlers: Vec<&'a [ast::Handler]>,
}

impl<'a> StepBuilder<'a> {
    fn step(&mut self, step: &'a Step) -> Result<(), Diagnostic> {
        match step {
            Step::Stream(step) => {
                let form = match step.count {
                    None => StepKind::Stream,
                    Some(count) => {
                        StepKind::Count { min: count.min as usize, max: count.max.map(|max| max as usize) }
                    }
                };
                self.stream(step, form)
            }
            Step::Absent(step) => {
                self.absent(step, StepKind::Absent(step.wait.as_ref().map_or(1, |t| t.ms.max(1))))
            }
            Step::Logical(step) => {
                let left = self.steps.len();
                let absent = |side: &LogicalSide| match side {
                    LogicalSide::Stream(_) => None,
                    LogicalSide::Absent(absent) => Some(absent.wait.as_ref().map(|t| t.ms.max(1))),
                };
                let sides = [&step.left, &step.right];
                for (i, side) in sides.into_iter().enumerate() {
                    let form = StepKind::Side(LogicalStepSide {
                        and: step.op == LogicalOp::And,
                        left: i == 0,
                        partner: left + 1 - i,
                        absent: absent(side),
                        partner_absent: absent(sides[1 - i]).is_some(),
                    });
                    match side {
                        LogicalSide::Stream(side) => self.stream(side, form)?,
                        LogicalSide::Absent(side) => self.absent(side, form)?,
                    }
                }
                Ok(())
            }
        }
    }

    fn stream(&mut self, step: &'a StreamStep, form: StepKind) -> Result<(), Diagnostic> {
        let reference = step.reference.as_ref().map(|r| r.name.clone());
        self.add(&step.stream, reference, &step.handlers, form)
    }

    fn absent(&mut self, step: &'a AbsentStep, form: StepKind) -> Result<(), Diagnostic> {
        self.add(&step.stream, None, &step.handlers, form)
    }

    fn add(
        &mut self,
        stream: &ast::StreamRef,
        reference: Option<String>,
        handlers: &'a [ast::Handler],
        form: StepKind,
    ) -> Result<(), Diagnostic> {
        let number = self.catalog.read(stream)?;
        let defined = &self.catalog.streams()[number];
        self.names.push(StepNames {
            reference,
            stream: defined.name.clone(),
            attributes: defined.attributes.clone(),
            width: defined.attributes.len(),
            counted: matches!(form, StepKind::Count { .. }),
            // order of `select *` in Siddhi 5.1: the right side first, unless it is an absence
            before_left: matches!(form, StepKind::Side(side) if !side.left && side.absent.is_none()),
        });
        self.handlers.push(handlers);
        self.steps.push(StepPlan {
            stream: number,
            filters: vec![],
            filter_texts: vec![],
            references: vec![],
            kind: form,
            is_first: false,
            next: None,
            every_end: None,
            every_in: None,
        });
        Ok(())
    }

    /// Returns the index of the first side of the last step.
    fn last(&self) -> usize {
        let last = self.steps.len().saturating_sub(1);
        match self.steps.get(last).map(|s| s.kind) {
            Some(StepKind::Side(side)) => last.min(side.partner),
            _ => last,
        }
    }

    fn link(&mut self) {
        let mut i = 0;
        while i < self.steps.len() {
            let width = if matches!(self.steps[i].kind, StepKind::Side(_)) { 2 } else { 1 };
            let next = Some(i + width).filter(|n| *n < self.steps.len());
            for step in self.steps.iter_mut().skip(i).take(width) {
                step.next = next;
                step.is_first = i == 0;
            }
            i += width;
        }
    }

    fn filters(&mut self, i: usize) -> Result<(), Diagnostic> {
        let mut references = Vec::new();
        let (mut filters, mut texts): (Vec<Expr>, Vec<String>) = Default::default();
        // the other side of `and` and `or` may have matched earlier, whichever is named first
        let known = match self.steps[i].kind {
            StepKind::Side(side) => i.max(side.partner) + 1,
            _ => i + 1,
        };
        for handler in self.handlers[i] {
            let mut names =
                PatternScope { steps: &self.names, own: Some(i), known, references: &mut references };
            let mut scope = TableScope { names: &mut names, tables: self.catalog.tables() };
            let mut compiler = Compiler { scope: &mut scope, registry: self.registry, aggregates: None };
            match &handler.kind {
                HandlerKind::Filter(condition) => {
                    filters.push(compiler.condition(condition, "a filter")?);
                    crate::explain::conjuncts(condition, &mut texts);
                }
                HandlerKind::Function(call) => {
                    let args = call
                        .args
                        .list()
                        .iter()
                        .map(|a| compiler.compile(a))
                        .collect::<Result<Vec<_>, _>>()?;
                    let name = call_name(call);
                    if name == "log" {
                        return Err(Diagnostic::error(
                            "F0503",
                            call.span,
                            "`#log` is not allowed in a pattern step",
                        )
                        .help("write `#log()` in a query that reads the stream"));
                    }
                    let build = self.registry.find_stream_function(&name);
                    let build = build.map_err(|e| Diagnostic::error("F0415", call.name.span, e))?;
                    let (_, added) =
                        build(&describe(&args)).map_err(|e| Diagnostic::error("F0416", call.span, e))?;
                    self.names[i].attributes.extend(added);
                }
            }
        }
        self.steps[i].filters = filters;
        self.steps[i].filter_texts = texts;
        self.steps[i].references = references;
        Ok(())
    }
}
