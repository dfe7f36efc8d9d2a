use std::collections::HashMap;

use super::*;

fn lines(dir: &Path, name: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(dir.join(name)).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn a_seed_writes_the_same_bytes_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let written = write(3, 1, 123, dir.path()).unwrap();
    let digests: Vec<(u64, &str)> = written.iter().map(|w| (w.rows, &w.sha256[..16])).collect();
    assert_eq!(
        digests,
        [(23_288, "e5944abc0f865aaf"), (23_361, "8dbc83ad5688b9b6"), (3, "4c8440976a6378a5")]
    );
    let other = tempfile::tempdir().unwrap();
    assert_eq!(write(3, 1, 123, other.path()).unwrap(), written);
    assert_ne!(write(3, 1, 124, other.path()).unwrap()[0].sha256, written[0].sha256);
}

#[test]
fn rates_of_imperfections_are_those_described() {
    let dir = tempfile::tempdir().unwrap();
    write(20, 1, 123, dir.path()).unwrap();
    let points = 20.0 * 8640.0;
    for (name, fields) in [("readings.csv", 7), ("diagnostics.csv", 3)] {
        let rows = lines(dir.path(), name);
        let share = |n: usize| n as f64 / rows.len() as f64;
        assert!((0.895..0.905).contains(&(rows.len() as f64 / points)), "{name}: {} rows", rows.len());
        let nameless = share(rows.iter().filter(|row| row[2].is_empty()).count());
        assert!((0.0006..0.0016).contains(&nameless), "{name}: {nameless} nameless");
        let nulls = |row: &Vec<String>| row[3..].iter().filter(|value| value.is_empty()).count();
        assert!(rows.iter().all(|row| row.len() == 3 + fields && nulls(row) <= 1));
        let incomplete = share(rows.iter().filter(|row| nulls(row) == 1).count());
        assert!((0.087..0.093).contains(&incomplete), "{name}: {incomplete} incomplete");
    }
}

#[test]
fn points_of_a_truck_are_in_order_and_unique() {
    let dir = tempfile::tempdir().unwrap();
    write(20, 1, 7, dir.path()).unwrap();
    let (mut late, mut newest) = (0, 0);
    let mut last: HashMap<String, i64> = HashMap::new();
    for row in lines(dir.path(), "readings.csv") {
        let time: i64 = row[1].parse().unwrap();
        if time < newest {
            late += 1;
            assert_eq!(newest - time, TICK_US);
        }
        newest = newest.max(time);
        if !row[2].is_empty()
            && let Some(before) = last.insert(row[2].clone(), time)
        {
            assert!(before < time, "truck {} at {time} after {before}", row[2]);
        }
    }
    assert!(late <= 30, "{late} late");
    let seqs = ["readings.csv", "diagnostics.csv"].map(|name| lines(dir.path(), name));
    let mut seqs: Vec<u64> = seqs.iter().flatten().map(|row| row[0].parse().unwrap()).collect();
    seqs.sort_unstable();
    assert!(seqs.iter().copied().eq(0..seqs.len() as u64), "numbers count both tables without a gap");
}
