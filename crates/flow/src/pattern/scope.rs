//! Name resolution in steps, and in the selection after them.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{AttributeRef, EventIndex, Ident, IndexKind, SourceRef};
use tidemill_types::{FieldType, did_you_mean};

use super::plan::{EventSelector, MatchReference, ReferenceKind};
use crate::catalog::{self, Attributes};
use crate::compile::compiler::{ColumnRef, Scope, StepTime};

/// Names of a step.
#[derive(Debug, Clone)]
pub struct StepNames {
    /// Name before `=`, such as `e1`.
    pub reference: Option<String>,
    /// Name of the stream, including its mark.
    pub stream: String,
    /// Attributes of the stream, then those that stream functions add.
    pub attributes: Attributes,
    /// Number of attributes of the stream itself.
    pub width: usize,
    /// True if the step collects several events.
    pub counted: bool,
    /// True if `select *` puts the attributes of this right side of a logical step before those of the left
    /// side.
    pub before_left: bool,
}

impl StepNames {
    /// Returns the name of the step: its reference, or its stream.
    pub fn name(&self) -> &str {
        self.reference.as_deref().unwrap_or(&self.stream)
    }

    fn is_named(&self, name: &str) -> bool {
        self.name() == name
    }
}

/// Names that a step's filters, or the selection, may use.
pub struct PatternScope<'a> {
    /// All steps of the pattern.
    pub steps: &'a [StepNames],
    /// The step whose filters are compiled, with its event in slot 0; `None` for the selection.
    pub own: Option<usize>,
    /// Number of steps that can be named: later ones have not happened yet.
    pub known: usize,
    /// Values that are read of the match, added as they are used: slot 1 in filters, slot 0 in the selection.
    pub references: &'a mut Vec<MatchReference>,
}

impl PatternScope<'_> {
    /// Returns the first step of that name, if it can be named here.
    fn find_step(&self, name: &str) -> Option<usize> {
        self.steps.iter().take(self.known).position(|s| s.is_named(name))
    }

    fn event(&mut self, step: usize, attribute: usize) -> ColumnRef {
        if attribute >= self.steps[step].width {
            return self.reference(step, EventSelector::Newest, ReferenceKind::Attribute(attribute));
        }
        ColumnRef { slot: 0, column: attribute, ty: self.steps[step].attributes[attribute].1 }
    }

    fn reference(&mut self, step: usize, which: EventSelector, what: ReferenceKind) -> ColumnRef {
        let ty = match (which, what) {
            (_, ReferenceKind::Presence) => FieldType::Bool,
            (EventSelector::All, _) => FieldType::Object,
            (_, ReferenceKind::Time) => FieldType::Long,
            (_, ReferenceKind::Attribute(a)) => self.steps[step].attributes[a].1,
        };
        let reference = MatchReference { step, selector: which, kind: what, ty };
        let column = self.references.iter().position(|r| *r == reference).unwrap_or_else(|| {
            self.references.push(reference);
            self.references.len() - 1
        });
        ColumnRef { slot: usize::from(self.own.is_some()), column, ty }
    }

    fn selector(&self, step: usize, index: Option<EventIndex>) -> Option<EventSelector> {
        // in a filter of its own step, the last event is the one that is tested
        let newest = usize::from(self.own == Some(step) && self.steps[step].counted);
        Some(match index?.kind {
            IndexKind::First(n) => EventSelector::First(n as usize),
            IndexKind::Last(n) => EventSelector::Last(n as usize + newest),
        })
    }

    /// Returns the event that an attribute without an index refers to in a counted step: the last one so far
    /// in a filter, the first one in the selection.
    fn default_selector(&self, step: usize) -> EventSelector {
        match self.steps[step].counted && self.own.is_none() {
            true => EventSelector::First(0),
            false => EventSelector::Newest,
        }
    }

    /// Returns all attributes of all steps, for `select *`.
    pub fn all_attributes(&mut self) -> Vec<(String, FieldType)> {
        let steps = self.steps;
        let mut all = Vec::new();
        let mut order: Vec<usize> = (0..steps.len()).collect();
        for i in (1..steps.len()).filter(|i| steps[*i].before_left) {
            order.swap(i - 1, i);
        }
        for i in order {
            let step = &steps[i];
            for (column, (name, _)) in step.attributes.iter().enumerate() {
                let found = self.reference(i, self.default_selector(i), ReferenceKind::Attribute(column));
                all.push((name.clone(), found.ty));
            }
        }
        all
    }

    fn unqualified(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let name = &attribute.name.name;
        let column = |step: &StepNames| step.attributes.iter().position(|(known, _)| known == name);
        if let Some(own) = self.own {
            let steps = self.steps;
            let step = &steps[own];
            return match column(step) {
                Some(column) => Ok(self.event(own, column)),
                None => Err(unknown(attribute, Some(&step.stream), &step.attributes)),
            };
        }
        let mut found = self.steps.iter().enumerate().filter_map(|(i, step)| column(step).map(|c| (i, c)));
        let first = found.next();
        if let (Some((a, _)), Some((b, _))) = (first, found.next()) {
            let [a, b] = [a, b].map(|step| self.steps[step].name());
            let message = format!("`{a}` and `{b}` both have an attribute `{name}`");
            let help = match a == b {
                true => format!("name the steps, as in `e1={a}`, and write `e1.{name}`"),
                false => format!("write `{a}.{name}` or `{b}.{name}`"),
            };
            return Err(Diagnostic::error("F0512", attribute.span, message).help(help));
        }
        match first {
            Some((step, column)) => {
                let which = self.default_selector(step);
                Ok(self.reference(step, which, ReferenceKind::Attribute(column)))
            }
            None => {
                let all: Attributes = self.steps.iter().flat_map(|s| s.attributes.clone()).collect();
                Err(unknown(attribute, None, &all))
            }
        }
    }
}

impl Scope for PatternScope<'_> {
    fn all_names(&self) -> Vec<String> {
        let steps = self.own.map_or(self.steps, |own| &self.steps[own..=own]);
        steps.iter().flat_map(|step| &step.attributes).map(|(name, _)| name.clone()).collect()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let Some(source) = &attribute.source else { return self.unqualified(attribute) };
        let name = catalog::full_name(&source.stream);
        let Some(step) = self.find_step(&name).filter(|_| source.inner.is_none()) else {
            if self.steps.iter().any(|s| s.is_named(&name)) && source.inner.is_none() {
                let message = format!("`{name}` has not matched yet when this step is evaluated");
                return Err(Diagnostic::error("F0507", source.span, message)
                    .help(format!("move the condition to the filter of `{name}`, which comes later")));
            }
            let hint = did_you_mean(&name, self.steps.iter().map(|s| s.name()));
            return Err(Diagnostic::error("F0501", source.span, format!("there is no step `{name}`{hint}")));
        };
        let steps = self.steps;
        let names = &steps[step];
        let column = names.attributes.iter().position(|(known, _)| *known == attribute.name.name);
        let Some(column) = column else {
            return Err(unknown(attribute, Some(&names.stream), &names.attributes));
        };
        let own = self.own == Some(step);
        let which = match self.selector(step, source.index) {
            None if own => return Ok(self.event(step, column)),
            Some(EventSelector::First(0)) if own && !names.counted => return Ok(self.event(step, column)),
            Some(which) => which,
            // a filter reads one event of a counted step, as it does for its own step
            None if names.counted && self.own.is_some() => EventSelector::Last(0),
            None if names.counted => EventSelector::All,
            None => EventSelector::Newest,
        };
        Ok(self.reference(step, which, ReferenceKind::Attribute(column)))
    }

    fn step(&mut self, step: &SourceRef) -> Option<ColumnRef> {
        let name = catalog::full_name(&step.stream);
        let found = self.find_step(&name).filter(|_| step.inner.is_none())?;
        let which = self.selector(found, step.index).unwrap_or(EventSelector::Newest);
        Some(self.reference(found, which, ReferenceKind::Presence))
    }

    fn bare_step(&mut self, name: &Ident) -> Option<ColumnRef> {
        let found = self.find_step(&name.name)?;
        Some(self.reference(found, EventSelector::Newest, ReferenceKind::Presence))
    }

    fn step_time(&mut self, name: &Ident) -> Option<StepTime> {
        let found = self.find_step(&name.name)?;
        Some(match self.own == Some(found) {
            true => StepTime::Own,
            false => {
                let which = self.default_selector(found);
                StepTime::At(self.reference(found, which, ReferenceKind::Time))
            }
        })
    }
}

/// Reports an unknown attribute. `of` is the stream, or `None` if all steps were searched.
fn unknown(attribute: &AttributeRef, of: Option<&str>, attributes: &Attributes) -> Diagnostic {
    let name = &attribute.name.name;
    let hint = did_you_mean(name, attributes.iter().map(|(known, _)| known.as_str()));
    let message = match of {
        Some(stream) => format!("`{stream}` has no attribute `{name}`{hint}"),
        None => format!("no step has an attribute `{name}`{hint}"),
    };
    Diagnostic::error("F0502", attribute.name.span, message)
}
