//! Snapshots of apps: a run that is interrupted and continued in a new app gives the output of an undisturbed
//! run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use tidemill_flow::Registry;
use tidemill_flow::replay::{Case, Input, Replay, check, check_interrupted, check_with, compile};
use tidemill_flow::runtime::AppRuntime;
use tidemill_flow::snapshot::{Error, FrozenState, RestoreMode, SHARED_ROWS_MIN};

/// Runs whose output an interruption changes, with the reason.
const CHANGED: &[(&str, &str)] = &[];

/// Returns all recorded runs, by `category/name`.
fn cases() -> BTreeMap<String, Case> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|p| p.extension().is_none() || p.extension().is_some_and(|e| e == "json"))
            .collect()
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases = BTreeMap::new();
    for dir in ["recorded", "recorded-own"].map(|dir| root.join(dir)) {
        for file in entries(&dir).iter().flat_map(|category| entries(category)) {
            let case = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            let name = file.strip_prefix(&root).unwrap().with_extension("");
            cases.insert(name.to_string_lossy().into_owned(), case);
        }
    }
    cases
}

/// Returns the next number of SplitMix64.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Interrupts every recorded run before every input, and before some inputs chosen by `TIDEMILL_SEED`.
#[test]
fn interruptions_do_not_show() {
    let registry = Registry::standard();
    let given = env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| std::process::id().into());
    println!("TIDEMILL_SEED={seed}");
    let mut state = seed;
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 500, "{} cases", cases.len());
    for (name, case) in &cases {
        let undisturbed = check(case, &registry);
        let always = check_interrupted(case, &registry, &mut |_| true);
        let sometimes = check_interrupted(case, &registry, &mut |_| random(&mut state).is_multiple_of(3));
        let changed = [&always, &sometimes].into_iter().find(|found| **found != undisturbed);
        match (changed, CHANGED.iter().any(|(known, _)| known == name)) {
            (Some(found), false) => wrong.push(format!("{name}: {}", found.join("; "))),
            (None, true) => wrong.push(format!("{name}: not changed, take it off the list")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{} changed\n{}", wrong.len(), wrong.join("\n"));
}

/// Freezes every recorded run before inputs chosen by `TIDEMILL_SEED`, and writes the states some inputs later: they are
/// those of their moment, and the output is that of an undisturbed run. Elements of any size are shared, and as in use.
#[test]
fn a_frozen_state_is_that_of_its_moment() {
    let registry = Registry::standard();
    let given = env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| std::process::id().into());
    println!("TIDEMILL_SEED={seed}");
    let mut seed = seed;
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (name, case) in &cases() {
        let undisturbed = check(case, &registry);
        for rows_min in [1, SHARED_ROWS_MIN] {
            let mut pending: Vec<(usize, FrozenState, Vec<u8>)> = Vec::new();
            let mut others = Vec::new();
            let mut write = |pending: &mut Vec<(usize, FrozenState, Vec<u8>)>, all: bool, seed: &mut u64| {
                let mut kept = Vec::new();
                for (before, frozen, expected) in pending.drain(..) {
                    if !all && !random(seed).is_multiple_of(3) {
                        kept.push((before, frozen, expected));
                        continue;
                    }
                    let mut found = Vec::new();
                    frozen.write_to(&mut found).unwrap();
                    compared += 1;
                    if found != expected {
                        others.push(format!(
                            "{name}: another state before input {before}, rows from {rows_min}"
                        ));
                    }
                }
                *pending = kept;
            };
            let found = check_with(case, &registry, &mut |replay, i| {
                // some keys of partitions are saved here, others before an event changes them
                let keys = random(&mut seed) as usize % 3;
                let mut is_complete = replay.save_keys(keys);
                if pending.is_empty() && random(&mut seed).is_multiple_of(2) {
                    let expected = replay.state()?;
                    pending.push((i, replay.freeze(rows_min)?, expected));
                    is_complete = false;
                }
                let is_last = i + 1 == case.inputs.len() || matches!(case.inputs[i], Input::Restart { .. });
                if is_complete || is_last {
                    replay.save_keys(usize::MAX);
                    write(&mut pending, is_last, &mut seed);
                }
                Ok(())
            });
            write(&mut pending, true, &mut seed);
            wrong.append(&mut others);
            if found != undisturbed {
                wrong.push(format!("{name}: {}", found.join("; ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 1500, "{compared} states");
}

/// App with every kind of state.
const APP: &str = "
@app:name('everything')
define stream S (k string, v int, d double, o object);
define trigger Beat at every 7 sec;
@PrimaryKey('k') @index('v') define table T (k string, v int);
define window W (k string, v int) sort(3, v);
@sink(type='inMemory', @map(type='passThrough'), @distribution(strategy='roundRobin', @destination(topic='a'), @destination(topic='b')))
define stream Out (k string, v long);
from S#window.length(5) select k, sum(v) as v group by k insert all events into Out;
from S[v > 1]#window.session(2 sec, k) select k, count() as n insert expired events into Gone;
from S#window.unique:ever(k) select k, o insert into Objects;
from S select k, v insert into W;
from S select k, v update or insert into T set T.v = v on T.k == k;
from S#window.time(3 sec) as a join W as b on a.k == b.k select a.k as k, b.v as v output last every 3 events insert into Pairs;
from every a=S -> b=S[v > a.v]<2> -> not S for 1 sec select a.v as x, b[0].v as y insert into Steps;
from S#window.timeBatch(2 sec) select k, min(d) as low, distinctCount(v) as n group by k output snapshot every 1 sec insert into Shown;
from Beat select triggered_time as t insert into Beats;
";

fn inputs() -> Vec<Input> {
    let event = |i: i64| {
        let key = ["a", "b", "ü", "longer"][(i * 7 % 4) as usize];
        let data =
            serde_json::json!([key, i * 5 % 11, i as f64 / 3.0, if i % 3 == 0 { None } else { Some(key) }]);
        serde_json::from_value(serde_json::json!({"stream": "S", "timestamp": i * 400, "data": data}))
            .unwrap()
    };
    (1..40).map(event).collect()
}

fn state(registry: &Registry) -> (Vec<u8>, AppRuntime) {
    let plan = compile("app", APP, registry, &|_| None).unwrap_or_else(|e| panic!("{e}"));
    let (all, fresh) = (|_: &str| true, AppRuntime::new(plan.clone().into()));
    let mut replay = Replay::new(plan, 0, &all, &all);
    inputs().iter().for_each(|input| replay.input(input));
    let mut state = Vec::new();
    replay.app().save(&mut state).unwrap();
    (state, fresh)
}

fn saved(app: &AppRuntime) -> Vec<u8> {
    let mut state = Vec::new();
    app.save(&mut state).unwrap();
    state
}

#[test]
fn a_state_that_was_taken_back_is_saved_with_the_same_length() {
    let (state, mut app) = state(&Registry::standard());
    assert!(state.len() > 1000, "{} bytes", state.len());
    app.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap();
    // the order of groups is unspecified
    assert_eq!(saved(&app).len(), state.len());
    assert_eq!(app.now(), 39 * 400);
}

/// A truncated state, or one with a flipped bit, is rejected with the position of the damage, and the app is
/// unchanged.
#[test]
fn damage_is_found() {
    let (state, mut app) = state(&Registry::standard());
    let before = saved(&app);
    let mut refused = |damaged: &[u8], what: &str| match app.restore(&mut &*damaged, RestoreMode::Exactly) {
        Err(Error::Damaged { at, .. }) => assert!(at <= state.len() as u64, "{what}: at {at}"),
        Err(Error::Version { .. }) => {}
        other => panic!("{what}: {other:?}"),
    };
    for len in 0..state.len() {
        refused(&state[..len], &format!("cut off at {len}"));
    }
    let mut damaged = state.clone();
    for i in 0..state.len() {
        let bit = 1 << (i % 8);
        damaged[i] ^= bit;
        refused(&damaged, &format!("byte {i}"));
        damaged[i] ^= bit;
    }
    assert_eq!(saved(&app), before);
}

#[test]
fn states_of_other_apps_are_refused() {
    let registry = Registry::standard();
    let (state, _) = state(&registry);
    let restored = |text: &str| {
        let plan = compile("app", text, &registry, &|_| None).unwrap_or_else(|e| panic!("{e}"));
        AppRuntime::new(plan.into()).restore(&mut state.as_slice(), RestoreMode::Exactly)
    };
    // formatting and the app's name do not matter
    let same = APP.replace("define stream S", "/* in */ DEFINE  stream S").replace("'everything'", "'all'");
    restored(&same).unwrap();
    let refused = restored(&APP.replace("length(5)", "length(6)")).unwrap_err().to_string();
    assert!(refused.contains("another app") && refused.contains("length"), "{refused}");
    let refused = restored(&APP.replace("from Beat select triggered_time as t insert into Beats;", ""));
    assert!(matches!(refused, Err(Error::OtherApp(_))), "{refused:?}");
    let refused = AppRuntime::new(compile("app", APP, &registry, &|_| None).unwrap().into())
        .restore(&mut b"no state at all".as_slice(), RestoreMode::Exactly);
    assert!(matches!(refused, Err(Error::Damaged { at: 0, .. })), "{refused:?}");
    let mut later = state.clone();
    later[7] = 9;
    let refused = AppRuntime::new(compile("app", APP, &registry, &|_| None).unwrap().into())
        .restore(&mut later.as_slice(), RestoreMode::Exactly);
    assert!(matches!(refused, Err(Error::Version { found: 9 })), "{refused:?}");
}
