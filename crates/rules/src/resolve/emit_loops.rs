//! Rules without conditions that emit for each other in a circle: each event of it leads to the next one for ever.

use tidemill_lang::Diagnostic;
use tidemill_lang::diagnostic::DiagnosticSink;

use super::codes;
use crate::catalog::RuleCatalog;
use crate::plan::{Action, RulePlan};

/// Warns of each circle of rules that run on every event of their stream. Streams with an `id` end it, as they take an event
/// once, and a condition may end it.
pub(super) fn warn(rules: &[RulePlan], catalog: &RuleCatalog, sink: &mut DiagnosticSink) {
    let mut reported = vec![false; rules.len()];
    for first in 0..rules.len() {
        if reported[first] {
            continue;
        }
        let Some(circle) = circle_of(first, rules, catalog) else { continue };
        circle.iter().for_each(|rule| reported[*rule] = true);
        let stream = |rule: &usize| catalog.streams[rules[*rule].stream].name.as_str();
        let way: Vec<&str> = circle.iter().chain([&first]).map(stream).collect();
        let message = match circle.len() {
            1 => format!("each event of `{}` leads to another one, for ever", way[0]),
            _ => format!("each event of `{}` leads to another one, for ever: {}", way[0], way.join(" → ")),
        };
        let help = "add a condition that ends it, such as a counter that the rule increments, or an `id` to the stream, which \
                    takes each event once";
        sink.push(Diagnostic::warning(codes::EMIT_LOOP, rules[first].span, message).help(help));
    }
}

/// Returns the rules of a shortest circle that begins with rule `first`, in order.
fn circle_of(first: usize, rules: &[RulePlan], catalog: &RuleCatalog) -> Option<Vec<usize>> {
    let mut from: Vec<Option<usize>> = vec![None; rules.len()];
    let mut queue = std::collections::VecDeque::from([first]);
    while let Some(rule) = queue.pop_front() {
        for stream in emitted(&rules[rule], catalog) {
            if stream == rules[first].stream {
                let mut circle = vec![rule];
                while circle.last() != Some(&first) {
                    circle.extend(circle.last().and_then(|rule| from[*rule]));
                }
                circle.reverse();
                return Some(circle);
            }
            for next in (0..rules.len()).filter(|next| rules[*next].stream == stream && *next != first) {
                if from[next].is_none() {
                    from[next] = Some(rule);
                    queue.push_back(next);
                }
            }
        }
    }
    None
}

/// Returns the streams to which a rule certainly emits an event for each event of its own.
fn emitted<'r>(rule: &'r RulePlan, catalog: &'r RuleCatalog) -> impl Iterator<Item = usize> {
    let runs_always = rule.checks.is_empty() && rule.steps.is_empty();
    rule.actions.iter().filter_map(move |action| match action {
        Action::Emit { stream, .. } if runs_always && catalog.streams[*stream].id.is_empty() => Some(*stream),
        _ => None,
    })
}
