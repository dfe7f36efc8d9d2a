//! What a pattern waits for, in words.

use super::inspect::{Partial, StepReport};
use super::machine::Machine;
use super::plan::{Form, StatePlan};
use crate::expr::EvalContext;
use crate::why::{PartialMatch, PatternState, Shown, StepState, when};

/// What waits at each step of a pattern at work.
pub(crate) fn why(machine: &Machine, plan: &StatePlan, host: &dyn EvalContext) -> PatternState {
    let reports = machine.inspect(host);
    let waiting: Vec<usize> = reports.iter().map(|report| report.waiting).collect();
    let came = |i: usize| {
        let partner = match plan.steps[i].form {
            Form::Side(side) if !plan.steps[i].is_absent() => Some(side.partner),
            _ => None,
        };
        waiting[i] == 0 && partner.is_some_and(|partner| waiting[partner] > 0)
    };
    let steps = reports.into_iter().enumerate();
    let steps = steps.map(|(i, step)| StepState { came: came(i), ..told(plan, i, step) });
    PatternState { sequence: plan.sequence, within: plan.within, steps: steps.collect() }
}

fn told(plan: &StatePlan, i: usize, report: StepReport) -> StepState {
    let StepReport { step, waiting, due, newest, refused } = report;
    let waits_for = waits_for(plan, i, due, newest.as_ref());
    // an empty match of a first step has the time of the event that made room for it
    let begun = |partial: &Partial| !plan.steps[i].start || partial.collected > 0;
    let newest = newest.filter(begun).map(|Partial { time, collected, values }| PartialMatch {
        time,
        collected,
        values: Shown::all(&values),
    });
    StepState { step, waiting, came: false, waits_for, due, newest, refused: refused.map(Into::into) }
}

fn waits_for(plan: &StatePlan, i: usize, due: Option<i64>, newest: Option<&Partial>) -> String {
    let step = &plan.steps[i];
    let stream = plan.names.get(i).map_or("a stream", |names| names.stream.as_str());
    let with = match step.written.is_empty() {
        true => String::new(),
        false => format!(" with {}", step.written.join(" and ")),
    };
    if step.is_absent() {
        let until = match (due, step.wait()) {
            (Some(due), _) => format!(" until {}", when(due)),
            (None, Some(wait)) => format!(" for {wait} ms"),
            (None, None) => String::new(),
        };
        return format!("no event of `{stream}`{with}{until}");
    }
    let event = match step.form {
        Form::Count { min, max } => {
            let collected = newest.map_or(0, |newest| newest.collected);
            let wanted = match max {
                Some(max) if max == min => min.to_string(),
                Some(max) => format!("{min} to {max}"),
                None => format!("{min} or more"),
            };
            match min.saturating_sub(collected) {
                0 => format!("{wanted} events of `{stream}`{with}, and has enough"),
                more => format!("{wanted} events of `{stream}`{with}: {more} more"),
            }
        }
        _ => format!("an event of `{stream}`{with}"),
    };
    match step.form {
        Form::Side(side) => {
            let partner = super::inspect::step_name(plan, side.partner);
            format!("{event}, {} what `{partner}` waits for", if side.and { "and" } else { "or" })
        }
        _ => event,
    }
}
