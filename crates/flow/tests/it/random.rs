//! Random apps and events: nothing panics; an app that is interrupted, or that receives events batched, gives
//! the output of an undisturbed run with one event per call; bounded state does not grow; and late events
//! correct the output.
//!
//! `TIDEMILL_SEED` selects the first app, `TIDEMILL_SECONDS` the duration (`random::for_long`, ignored by
//! default), and `TIDEMILL_SHOW` prints the apps with their number of outputs.

mod app;
pub mod corrected;
mod events;
mod expr;
mod growth;
mod together;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_flow::Registry;
use tidemill_flow::replay::{Input, OutputItem, Replay, compile};

use app::Generated;

/// Maximum number of outputs per run.
const OUTPUTS_MAX: usize = 20_000;

/// Runs inputs; saves the app and restores it into a new one before the inputs for which `interrupted`
/// returns true.
fn outputs(
    generated: &Generated,
    inputs: &[Input],
    registry: &Registry,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Vec<OutputItem>, String> {
    let plan = compile("random", &generated.text, registry, &|_| None)?;
    let all = |_: &str| true;
    let mut replay = Replay::new(plan.clone(), 0, &all, &all);
    let mut out = replay.take_outputs();
    for input in inputs {
        if interrupted() {
            replay.reload(plan.clone()).map_err(|e| format!("its state is not taken back: {e}"))?;
        }
        replay.input(input);
        out.append(&mut replay.take_outputs());
        if out.len() > OUTPUTS_MAX {
            break;
        }
    }
    Ok(out)
}

/// Returns the first difference.
fn difference(one: &[OutputItem], other: &[OutputItem]) -> Option<String> {
    let texts = |outputs: &[OutputItem]| outputs.iter().map(|o| serde_json::to_string(o).unwrap()).collect();
    let (one, other): (Vec<String>, Vec<String>) = (texts(one), texts(other));
    let at = (0..one.len().max(other.len())).find(|i| one.get(*i) != other.get(*i))?;
    let shown = |all: &[String]| all.get(at).cloned().unwrap_or_else(|| "nothing".into());
    Some(format!("output {at}\n  undisturbed {}\n  now         {}", shown(&one), shown(&other)))
}

/// Number of generated apps, and of those that exercised each check.
#[derive(Default)]
struct Looked {
    apps: u64,
    together: u64,
    growth: u64,
    corrected: u64,
}

/// Runs all checks on a random app; returns the first failure.
fn run(seed: u64, registry: &Registry, looked: &mut Looked) -> Option<String> {
    looked.apps += 1;
    let mut rng = StdRng::seed_from_u64(seed);
    let generated = app::generate(&mut rng);
    let inputs = events::generate(&mut rng, &generated.inputs);
    let told = |what: String| format!("TIDEMILL_SEED={seed}\n{}\n{what}", generated.text);
    let runs = AssertUnwindSafe(|| {
        let undisturbed = outputs(&generated, &inputs, registry, &mut || false)?;
        if env::var_os("TIDEMILL_SHOW").is_some() {
            println!("seed {seed}: {} outputs\n{}", undisturbed.len(), generated.text);
        }
        let again = outputs(&generated, &inputs, registry, &mut || false)?;
        if let Some(difference) = difference(&undisturbed, &again) {
            return Err(format!("two runs differ: {difference}"));
        }
        let interrupted = outputs(&generated, &inputs, registry, &mut || rng.random_bool(0.2))?;
        if let Some(difference) = difference(&undisturbed, &interrupted) {
            return Err(format!("an interruption shows: {difference}"));
        }
        if generated.by_event {
            let split: Vec<Input> = inputs.iter().flat_map(events::one_by_one).collect();
            let data = |outputs: &[OutputItem]| -> Vec<String> {
                outputs
                    .iter()
                    .map(|o| serde_json::to_string(&o.what).unwrap())
                    .filter(|t| !t.contains("\"query\""))
                    .collect()
            };
            let (whole, split) =
                (data(&undisturbed), data(&outputs(&generated, &split, registry, &mut || false)?));
            if whole.len() < OUTPUTS_MAX && events::by_stream(&whole) != events::by_stream(&split) {
                return Err("events of one call come out otherwise one by one".into());
            }
        }
        looked.together += u64::from(together::check(&generated, &mut rng, registry)?);
        looked.growth += u64::from(growth::check(&generated, &mut rng, registry)?);
        looked.corrected += u64::from(corrected::check(&generated, &mut rng, registry)?);
        Ok(())
    });
    match catch_unwind(runs) {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(told(why)),
        Err(_) => Some(told("it panics".into())),
    }
}

fn for_a_time(seconds: f64, apps_min: u64) {
    let given = env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = given.unwrap_or_else(|| rand::rng().random_range(0..1 << 48));
    let registry = Registry::standard();
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut wrong, mut looked) = (Vec::new(), Looked::default());
    let mut seed = first;
    while wrong.len() < 5 && (Instant::now() < until || seed - first < apps_min) {
        wrong.extend(run(seed, &registry, &mut looked));
        seed += 1;
        if given.is_some() && seconds < 10.0 {
            break;
        }
    }
    let Looked { apps, together, growth, corrected } = looked;
    println!(
        "TIDEMILL_SEED={first}, {apps} apps; {together} worked events off together, {growth} need not grow, \
         {corrected} took something back"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn apps_run_and_outlive_interruptions() {
    for_a_time(3.0, 20);
}

#[test]
#[ignore = "runs for TIDEMILL_SECONDS"]
fn for_long() {
    let seconds = env::var("TIDEMILL_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60.0);
    for_a_time(seconds, 1);
}
