//! Nothing is lost or doubled, whatever fails.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{FIELDS, config, drop_slots, insert, open, source_name, table};
use crate::positioned::PositionedSource;
use crate::rdbms::database::{TestDatabase, databases};
use crate::rdbms::servers::Servers;

/// Returns the ids of all rows, and checks that none is doubled.
fn ids(source: &PositionedSource) -> BTreeSet<usize> {
    let ids: Vec<usize> =
        source.rows.iter().map(|row| row.split('|').next().unwrap().parse().unwrap()).collect();
    let unique: BTreeSet<usize> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len(), "rows are doubled");
    unique
}

#[test]
fn restarts_lose_and_double_nothing() {
    for db in databases() {
        table(&db, "cdc_restarts", 100);
        let name = source_name("restarts");
        let mut source = open(&name, &FIELDS[..2], config(&db, "cdc_restarts", "insert", &[]));
        let total = 1600;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let writer = db.transaction();
                writer.run("COMMIT").unwrap();
                for id in (100..total).step_by(5) {
                    let rows: Vec<String> = (id..id + 5).map(|id| format!("({id}, 'n{id}')")).collect();
                    writer.run(&format!("INSERT INTO cdc_restarts VALUES {}", rows.join(", "))).unwrap();
                }
            });
            for part in 1..8 {
                source.poll_rows(part * 200);
                source.restart();
            }
            source.poll_rows(total);
        });
        assert_eq!(ids(&source), (0..total).collect(), "{}", db.url);
        drop(source);
        drop_slots(&db, "restarts");
    }
}

/// A transaction that is larger than one delivery continues where it was interrupted.
#[test]
fn restarts_in_large_transactions_lose_and_double_nothing() {
    for db in databases() {
        table(&db, "cdc_large", 1);
        let name = source_name("large");
        let mut source = open(&name, &FIELDS[..2], config(&db, "cdc_large", "insert", &[]));
        source.poll_until("the source listens", |source| source.positions.contains_key("log"));
        insert(&db, "cdc_large", 1..30_000);
        db.run("INSERT INTO cdc_large VALUES (30000, 'last')");
        source.poll_rows(2);
        assert!(source.rows.len() < 30_000, "the transaction came at once");
        source.restart();
        source.poll_rows(16_000);
        source.restart();
        source.poll_rows(30_001);
        assert_eq!(ids(&source), (0..30_001).collect(), "{}", db.url);
        assert_eq!(source.rows.last().map(String::as_str), Some("30000|last"));
        drop(source);
        drop_slots(&db, "large");
    }
}

/// An interrupted snapshot continues behind the last key, and changes that the second look has seen do not
/// come again.
#[test]
fn an_interrupted_snapshot_goes_on() {
    for db in databases() {
        let rows = 40_000;
        table(&db, "cdc_snapshot", rows);
        let name = source_name("snapshot");
        let mut source = open(&name, &FIELDS[..2], config(&db, "cdc_snapshot", "insert,update", &[]));
        source.poll_rows(1);
        let first = source.rows.len();
        assert!(first < rows, "the snapshot came at once");
        assert!(!source.positions.contains_key("log"));
        // one behind and one before what was read
        let last = rows - 1;
        db.run(&format!("UPDATE cdc_snapshot SET name = 'changed' WHERE id IN (0, {last})"));
        db.run(&format!("INSERT INTO cdc_snapshot VALUES ({rows}, 'new')"));
        source.restart();
        source.poll_until("the snapshot ended", |source| source.positions.contains_key("log"));
        db.run(&format!("INSERT INTO cdc_snapshot VALUES ({}, 'newest')", rows + 1));
        source
            .poll_until("the last row came", |source| source.rows.iter().any(|row| row.ends_with("newest")));
        let changed: Vec<&String> = source.rows.iter().filter(|row| row.ends_with("changed")).collect();
        assert_eq!(changed, [&format!("{last}|changed"), "0|changed"], "{}", db.url);
        let update = source.rows.iter().position(|row| row == "0|changed").unwrap();
        source.rows.remove(update);
        assert_eq!(ids(&source), (0..rows + 2).collect(), "{}", db.url);
        drop(source);
        drop_slots(&db, "snapshot");
    }
}

#[test]
fn a_killed_server_loses_and_doubles_nothing() {
    let servers = Servers::start("cdc");
    for server in &servers.databases {
        let db = TestDatabase::of(server);
        table(&db, "cdc_killed", 10);
        let name = source_name("killed");
        let mut source = open(&name, &FIELDS[..2], config(&db, "cdc_killed", "insert", &[]));
        source.poll_rows(10);
        for round in 1..4 {
            let (first, last) = (round * 1000, round * 1000 + 500);
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    insert(&db, "cdc_killed", first..last);
                    servers.kill(server);
                    servers.restart(server);
                    done.store(true, Ordering::SeqCst);
                });
                while !done.load(Ordering::SeqCst) {
                    source.poll();
                }
            });
            source.poll_rows(10 + round * 500);
        }
        let expected = (0..10).chain((1..4).flat_map(|round| round * 1000..round * 1000 + 500));
        assert_eq!(ids(&source), expected.collect(), "{}", db.url);
    }
}
