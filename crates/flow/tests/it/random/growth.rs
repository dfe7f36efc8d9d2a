//! Size of an app's state after some events, compared with that after four times as many.

use rand::rngs::StdRng;
use tidemill_flow::Registry;
use tidemill_flow::replay::{Replay, compile};

use super::app::Generated;
use super::{OUTPUTS_MAX, events};

/// Enough events to almost fill the sets of values per group.
const EVENTS: usize = 450;
/// The same for an app with a partition, which may have a group or a set per pair of values: its key and
/// another attribute have some 15 values each, and an event comes to one of up to three streams.
const EVENTS_OF_PAIRS: usize = 8 * EVENTS;
/// Number of samples of the state's size, early and late.
const LOOKS: usize = 6;

/// Checks that the saved state of a bounded app does not grow: the smallest late sample is about as large as
/// the largest early one, whatever the variation. Returns whether the check applied.
pub fn check(generated: &Generated, rng: &mut StdRng, registry: &Registry) -> Result<bool, String> {
    if !generated.bounded {
        return Ok(false);
    }
    let events = if generated.text.contains("partition with") { EVENTS_OF_PAIRS } else { EVENTS };
    let inputs = events::alone(rng, &generated.inputs, events * 4);
    let none = |_: &str| false;
    let all = |_: &str| true;
    let plan = compile("random", &generated.text, registry, &|_| None)?;
    let mut replay = Replay::new(plan, 0, &none, &all);
    let (mut early, mut late, mut outputs) = (0, usize::MAX, 0);
    for (i, input) in inputs.iter().enumerate() {
        replay.input(input);
        outputs += replay.take_outputs().len();
        // queries that multiply their input make many events of few inputs
        if outputs > OUTPUTS_MAX * events / EVENTS {
            return Ok(false);
        }
        let left = match i < events {
            true => events - i,
            false => inputs.len() - i,
        };
        if left > events / 2 || left % (events / 2 / LOOKS) != 0 {
            continue;
        }
        let mut state = Vec::new();
        replay.app().save(&mut state).map_err(|e| format!("its state cannot be saved: {e}"))?;
        match i < events {
            true => early = early.max(state.len()),
            false => late = late.min(state.len()),
        }
    }
    match late <= early + early / 4 + 2000 {
        true => Ok(true),
        false => Err(format!("its state grows: {early} bytes early, {late} bytes late")),
    }
}
