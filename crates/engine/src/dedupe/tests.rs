use std::collections::BTreeSet;
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_log::disk::Disk;
use tidemill_log::sim_disk::SimDisk;
use tidemill_types::ErrorKind;

use super::*;

fn key(id: u128, time: Option<i64>) -> EventKey {
    EventKey { id, time }
}

/// A hash of `n`, as ids are.
fn hashed(n: u64) -> u128 {
    xxhash_rust::xxh3::xxh3_128(&n.to_le_bytes())
}

fn with_runs(capacity: usize) -> (SimDisk, Dedupe) {
    let disk = SimDisk::default();
    disk.create_dir(&dir()).unwrap();
    let mut dedupe = Dedupe::new(capacity);
    dedupe.open_runs(Arc::new(disk.clone()), dir()).unwrap();
    (disk, dedupe)
}

fn dir() -> PathBuf {
    PathBuf::from("/ids")
}

#[test]
fn no_id_is_ever_forgotten() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..12 {
        let (_, mut dedupe) = with_runs(random.random_range(4..200));
        let mut model = BTreeSet::new();
        let timed = round % 3 > 0;
        for n in 0..6_000_u64 {
            // mostly new and in order, sometimes late or repeated, near and far
            let n = if random.random_bool(0.1) { random.random_range(0..=n) } else { n * 2 };
            let time = (timed && n % 97 != 0).then_some(n as i64 * 10);
            let fresh = model.insert(n);
            assert_eq!(dedupe.admit(key(hashed(n), time)), fresh, "round {round}: {n}");
            if random.random_bool(0.01) {
                dedupe.runs().unwrap().merge().unwrap();
            }
        }
        assert!(dedupe.failure().is_none());
        let runs = dedupe.runs().unwrap();
        while runs.merge().unwrap() {}
        let infos = runs.infos();
        assert!(infos.len() <= 7 * 5, "{} runs", infos.len());
        let total = infos.iter().map(|info| info.ids).sum::<u64>() + dedupe.ids().len() as u64;
        assert_eq!(total, model.len() as u64);
    }
}

#[test]
fn a_checkpoint_names_the_runs_and_keeps_them() {
    let (disk, mut dedupe) = with_runs(40);
    for n in 0..1_000 {
        assert!(dedupe.admit(key(hashed(n), Some(n as i64))));
    }
    let infos = dedupe.runs().unwrap().infos();
    let image = (dedupe.ids(), dedupe.segments());
    // what is applied after the checkpoint is applied again
    for n in 1_000..1_500 {
        dedupe.admit(key(hashed(n), Some(n as i64)));
    }
    while dedupe.runs().unwrap().merge().unwrap() {}
    let named: BTreeSet<String> = infos.iter().map(|info| info.file.clone()).collect();
    dedupe.runs().unwrap().remove_unused(&named).unwrap();

    let mut restored = Dedupe::restore(40, image.0.iter(), image.1, infos);
    restored.open_runs(Arc::new(disk.clone()), dir()).unwrap();
    for n in 0..1_500 {
        assert_eq!(restored.admit(key(hashed(n), Some(n as i64))), n >= 1_000, "{n}");
    }
    restored.runs().unwrap().remove_unused(&BTreeSet::new()).unwrap();
    let files = disk.list(&dir()).unwrap();
    assert_eq!(files.len(), restored.runs().unwrap().infos().len(), "{files:?}");
}

#[test]
fn a_copy_of_a_checkpoint_does_not_displace_it() {
    let (disk, mut dedupe) = with_runs(8);
    for n in 0..24 {
        dedupe.admit(key(hashed(n), None));
    }
    let runs = dedupe.runs().unwrap();
    let before = runs.infos();
    assert_eq!(before.len(), 8);
    runs.note_checkpoint(&before, 2, false);
    while runs.merge().unwrap() {}
    let merged = runs.infos();
    runs.note_checkpoint(&merged, 2, true);
    runs.note_checkpoint(&merged, 2, false);
    runs.remove_unnamed(2).unwrap();
    // the last two checkpoints are the one that was copied and the one after it
    assert!(IdRuns::open(Arc::new(disk.clone()), dir(), &before).is_ok());
    runs.note_checkpoint(&merged, 2, false);
    runs.remove_unnamed(2).unwrap();
    assert!(IdRuns::open(Arc::new(disk.clone()), dir(), &before).is_err());
    assert!(IdRuns::open(Arc::new(disk.clone()), dir(), &merged).is_ok());
}

#[test]
fn damage_is_told_and_nothing_is_taken_for_new() {
    let (disk, mut dedupe) = with_runs(8);
    for n in 0..600 {
        dedupe.admit(key(hashed(n), None));
    }
    let infos = dedupe.runs().unwrap().infos();
    let path = dir().join(&infos[3].file);
    let file = disk.open(&path).unwrap();
    let mut sound = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut sound).unwrap(), sound.len());
    for at in 8..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 1;
        disk.create(&path).unwrap().write_at(0, &[std::io::IoSlice::new(&damaged)]).unwrap();
        let runs = IdRuns::open(Arc::new(disk.clone()), dir(), &infos);
        let found = runs
            .and_then(|runs| (0..600).map(|n| runs.contains(hashed(n), None)).collect::<Result<Vec<bool>>>());
        let error = found.err().unwrap_or_else(|| panic!("byte {at} is damaged and nobody says so"));
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&infos[3].file), "{error}");
    }
    disk.remove(&path).unwrap();
    let error = IdRuns::open(Arc::new(disk.clone()), dir(), &infos).err().unwrap();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn ids_stay_in_memory_while_the_disk_is_full() {
    let (disk, mut dedupe) = with_runs(16);
    for n in 0..100 {
        dedupe.admit(key(hashed(n), Some(n as i64)));
    }
    disk.set_room(Some(disk.used()));
    for n in 100..200 {
        assert!(dedupe.admit(key(hashed(n), Some(n as i64))));
    }
    assert!(dedupe.ids().len() > 100);
    disk.set_room(None);
    for n in 0..400 {
        assert_eq!(dedupe.admit(key(hashed(n), Some(n as i64))), n >= 200, "{n}");
    }
    assert!(dedupe.ids().len() <= 32, "{} ids", dedupe.ids().len());
    assert!(dedupe.failure().is_none());
}

#[test]
fn text_boundaries_count() {
    let id = |a: &str, b: &str| values_id(&[FieldValue::Text(a.into()), FieldValue::Text(b.into())]);
    assert_ne!(id("ab", "c"), id("a", "bc"));
    assert_eq!(values_id(&[FieldValue::Missing]), None);
    assert_eq!(values_id(&[FieldValue::Int(3)]), values_id(&[FieldValue::Float(3.0)]));
}
