//! Report on what a pattern waits for.

use super::inspect::{FailedCondition, PartialMatchStatus, StepStatus};
use super::matcher::PatternMatcher;
use super::plan::{PatternPlan, StepKind};
use crate::columns::value::format_time;
use crate::explain::{FailedConditionReport, NamedValue, PartialMatchReport, PatternReport, StepReport};
use crate::expr::EvalContext;

/// Reports what each step of a pattern waits for.
pub(crate) fn why(machine: &PatternMatcher, plan: &PatternPlan, host: &dyn EvalContext) -> PatternReport {
    let reports = machine.inspect(host);
    let waiting: Vec<usize> = reports.iter().map(|report| report.waiting).collect();
    let came = |i: usize| {
        let partner = match plan.steps[i].kind {
            StepKind::Side(side) if !plan.steps[i].is_absence() => Some(side.partner),
            _ => None,
        };
        waiting[i] == 0 && partner.is_some_and(|partner| waiting[partner] > 0)
    };
    let steps = reports.into_iter().enumerate();
    let steps = steps.map(|(i, step)| StepReport { came: came(i), ..step_report(plan, i, step) });
    PatternReport { sequence: plan.sequence, within: plan.within, steps: steps.collect() }
}

fn step_report(plan: &PatternPlan, i: usize, report: StepStatus) -> StepReport {
    let StepStatus { step, waiting, due, newest, failed_condition: refused } = report;
    let waits_for = waits_for(plan, i, due, newest.as_ref());
    // an empty match of a first step has the time of the event that re-armed the step
    let begun = |partial: &PartialMatchStatus| !plan.steps[i].is_first || partial.collected > 0;
    let newest = newest.filter(begun).map(|PartialMatchStatus { time, collected, values }| {
        PartialMatchReport { time, collected, values: NamedValue::all(&values) }
    });
    StepReport { step, waiting, came: false, waits_for, due, newest, refused: refused.map(Into::into) }
}

fn waits_for(plan: &PatternPlan, i: usize, due: Option<i64>, newest: Option<&PartialMatchStatus>) -> String {
    let step = &plan.steps[i];
    let stream = plan.names.get(i).map_or("a stream", |names| names.stream.as_str());
    let with = match step.filter_texts.is_empty() {
        true => String::new(),
        false => format!(" with {}", step.filter_texts.join(" and ")),
    };
    if step.is_absence() {
        let until = match (due, step.absence_duration()) {
            (Some(due), _) => format!(" until {}", format_time(due)),
            (None, Some(wait)) => format!(" for {wait} ms"),
            (None, None) => String::new(),
        };
        return format!("no event of `{stream}`{with}{until}");
    }
    let event = match step.kind {
        StepKind::Count { min, max } => {
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
    match step.kind {
        StepKind::Side(side) => {
            let partner = super::inspect::step_name(plan, side.partner);
            format!("{event}, {} what `{partner}` waits for", if side.and { "and" } else { "or" })
        }
        _ => event,
    }
}

impl From<FailedCondition> for FailedConditionReport {
    fn from(refused: FailedCondition) -> Self {
        let FailedCondition { time, condition, values } = refused;
        Self { time, key: None, condition, values: NamedValue::all(&values) }
    }
}
