//! Events sent in batches, compared with one event per call.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_flow::Registry;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::{Input, compile};
use tidemill_flow::runtime::AppRuntime;
use tidemill_flow::snapshot::RestoreMode;

use super::app::Generated;
use super::{OUTPUTS_MAX, events};
use crate::fed::{Told, parts};

const INPUTS: usize = 150;

/// Sends the events with at most 1, some and 1,000 per call, and single events and batches in turn, saving and
/// restoring the app in between; compares that with batches of one event. Returns
/// whether the app supports batches at all, or the difference.
pub fn check(generated: &Generated, rng: &mut StdRng, registry: &Registry) -> Result<bool, String> {
    let plan = Arc::new(compile("random", &generated.text, registry, &|_| None)?);
    let mut inputs = events::alone(rng, &generated.inputs, INPUTS);
    if rng.random_bool(0.5) {
        inputs.retain(|input| matches!(input, Input::Event { .. }));
    }
    let one_by_one = run(&plan, &inputs, &mut || 1, false, &mut || false)?;
    if rows(&one_by_one) >= OUTPUTS_MAX {
        return Ok(false);
    }
    let some = rng.random_range(2..40);
    let (mut sizes, mut breaks) = (StdRng::from_rng(rng), StdRng::from_rng(rng));
    for (together, with_rows) in [("1", true), ("some", false), ("1 or some", true), ("1000", true)] {
        let mut size = || match together {
            "1" => 1,
            "some" => some,
            "1 or some" if sizes.random_bool(0.5) => 1,
            "1 or some" => sizes.random_range(1..=some),
            _ => 1000,
        };
        let fed = run(&plan, &inputs, &mut size, with_rows, &mut || breaks.random_bool(0.2))?;
        for list in one_by_one.0.keys().chain(fed.0.keys()) {
            let empty = Vec::new();
            let [one, other] = [&one_by_one, &fed].map(|told| told.0.get(list).unwrap_or(&empty));
            if let Some(at) = (0..one.len().max(other.len())).find(|i| one.get(*i) != other.get(*i)) {
                return Err(format!(
                    "{together} events together give something else: {list}, row {at}\n  one by one {:?}\n  together   {:?}",
                    one.get(at),
                    other.get(at)
                ));
            }
        }
    }
    Ok(AppRuntime::new(plan).row_at_a_time_reason().is_none())
}

/// Runs the inputs with at most `together()` events per call, single ones as rows if `with_rows`; saves and restores the app before the calls for
/// which `interrupted` returns true.
fn run(
    plan: &Arc<AppPlan>,
    inputs: &[Input],
    together: &mut dyn FnMut() -> usize,
    with_rows: bool,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Told, String> {
    let mut told = Told::default();
    let mut app = AppRuntime::new(plan.clone());
    app.use_row_programs(with_rows);
    app.start(0, &mut told);
    let mut rest = inputs;
    // the order of failures is ignored, because a call reports those of timers first
    let in_order = |mut told: Told| {
        let failures = told.0.iter_mut().filter(|(list, _)| list.starts_with("failure"));
        failures.for_each(|(_, texts)| texts.sort());
        told
    };
    while let Some(first) = rest.first() {
        if rows(&told) >= OUTPUTS_MAX {
            break;
        }
        if interrupted() {
            app = again(&app, plan)?;
            app.use_row_programs(with_rows);
        }
        let mut calls = Vec::new();
        let together = together();
        while let Some(Input::Event { stream, timestamp, data }) = rest.get(calls.len())
            && calls.len() < together
        {
            calls.push((stream.as_str(), *timestamp, data.as_slice()));
        }
        if let Input::Clock { timestamp } = first {
            app.advance((*timestamp).max(app.now()), &mut told);
        } else {
            let (parts, order) = parts(&app, &calls).ok_or("an event does not fit its stream")?;
            app.send_batch(parts, Some(&order), &mut told).map_err(|f| f.to_string())?;
        }
        rest = &rest[calls.len().max(1)..];
    }
    Ok(in_order(told))
}

/// Creates a new app with the state of this one.
fn again(app: &AppRuntime, plan: &Arc<AppPlan>) -> Result<AppRuntime, String> {
    let mut state = Vec::new();
    app.save(&mut state).map_err(|e| format!("its state cannot be saved: {e}"))?;
    let mut again = AppRuntime::new(plan.clone());
    again
        .restore(&mut state.as_slice(), RestoreMode::Exactly)
        .map_err(|e| format!("its state is not taken back: {e}"))?;
    Ok(again)
}

fn rows(told: &Told) -> usize {
    told.0.values().map(Vec::len).sum()
}
