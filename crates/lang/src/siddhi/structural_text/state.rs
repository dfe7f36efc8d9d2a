//! Structural text of patterns and sequences.

use super::super::ast::{AbsentStep, LogicalSide, StateInput, StateKind, Step, StreamStep};
use super::{StructuralWriter, handlers, name, stream_ref};

impl StructuralWriter {
    pub(super) fn state(&mut self, state: &StateInput) {
        self.line(match state.kind {
            StateKind::Pattern => "pattern",
            StateKind::Sequence => "sequence",
        });
        self.indented(|out| {
            for group in &state.groups {
                if group.every.is_none() {
                    out.steps(&group.steps);
                } else {
                    out.line("every");
                    out.indented(|out| out.steps(&group.steps));
                }
            }
            for part in &state.parts {
                let (first, last) = state.steps_of(part).unwrap_or_default();
                out.line(&format!("steps {first} to {last} within {}ms", part.within.ms));
            }
            if let Some(within) = &state.within {
                out.line(&format!("within {}ms", within.ms));
            }
        });
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            let step = match step {
                Step::Stream(step) => stream_step(step),
                Step::Absent(step) => absent_step(step),
                Step::Logical(step) => {
                    format!("{} [{}] [{}]", step.op.text(), side(&step.left), side(&step.right))
                }
            };
            self.line(&step);
        }
    }
}

fn side(side: &LogicalSide) -> String {
    match side {
        LogicalSide::Stream(step) => stream_step(step),
        LogicalSide::Absent(step) => absent_step(step),
    }
}

fn stream_step(step: &StreamStep) -> String {
    let reference = step.reference.as_ref().map_or(String::new(), |r| name(r) + " = ");
    let count = step.count.map_or(String::new(), |c| {
        format!(" <{}:{}>", c.min, c.max.map_or(String::new(), |max| max.to_string()))
    });
    format!("{reference}{}{}{count}", stream_ref(&step.stream), handlers(&step.handlers))
}

fn absent_step(step: &AbsentStep) -> String {
    let wait = step.wait.as_ref().map_or(String::new(), |w| format!(" for {}ms", w.ms));
    format!("not {}{}{wait}", stream_ref(&step.stream), handlers(&step.handlers))
}
