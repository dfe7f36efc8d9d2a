//! Nothing is lost or doubled, whatever fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill_connect::{ConnectorSink, DeliveryProgress, PartitionEpochs, SinkPositions};
use tidemill_types::{ErrorKind, EventId, Offset, PartitionId};

use super::database::{
    Kind, TestDatabase, all_databases, batch, databases, deliver, deliver_in, ids, int, text,
};
use super::servers::Servers;
use super::{numbered, rows};
use crate::helpers::{PATIENCE, wait_until};

/// Rows of a batch.
const BATCH: u64 = 500;

/// Delivers the batches from `first` to `last` and returns whether all arrived. Connects anew after each failure.
fn deliver_batches(sink: &mut ConnectorSink, first: u64, last: u64, acknowledged: &AtomicU64) -> u64 {
    let end = Instant::now() + PATIENCE;
    let mut failures = 0;
    for offset in first..last {
        let values: Vec<Vec<_>> =
            (0..BATCH).map(|n| vec![int((offset * BATCH + n) as i64), text("value")]).collect();
        let values = batch(&numbered(), &values);
        let ids = ids(offset, BATCH as usize);
        while let Err(e) = deliver(sink, &values, &ids) {
            assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
            assert!(Instant::now() < end, "not delivered: {e}");
            failures += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        acknowledged.store(offset + 1, Ordering::SeqCst);
    }
    failures
}

#[test]
fn a_killed_server_loses_and_doubles_nothing() {
    let servers = Servers::start("killed");
    for server in &servers.databases {
        let db = TestDatabase::of(server);
        // without a key a doubled row would not be refused
        let mut sink = db.sink("killed", &numbered(), &[]);
        let (acknowledged, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let (kills, failures) = std::thread::scope(|scope| {
            let killing = scope.spawn(|| {
                let mut kills = 0;
                while !done.load(Ordering::SeqCst) {
                    let before = acknowledged.load(Ordering::SeqCst);
                    while acknowledged.load(Ordering::SeqCst) < before + 20 && !done.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    if !done.load(Ordering::SeqCst) {
                        servers.kill(server);
                        servers.restart(server);
                        kills += 1;
                    }
                }
                kills
            });
            let failures = deliver_batches(&mut sink, 0, 100, &acknowledged);
            done.store(true, Ordering::SeqCst);
            (killing.join().unwrap(), failures)
        });
        assert!(kills > 0 && failures > 0, "{kills} kills, {failures} failures");
        // the process is gone with all that it knew; everything comes again
        drop(sink);
        let mut sink = db.sink("killed", &numbered(), &[]);
        deliver_batches(&mut sink, 0, 110, &acknowledged);
        sink.close();
        let sql = db.pick(
            "SELECT count(*)::text, count(DISTINCT k)::text, min(k)::text, max(k)::text FROM killed",
            "SELECT count(*), count(DISTINCT k), min(k), max(k) FROM killed",
        );
        assert_eq!(db.rows(sql), ["55000|55000|0|54999"], "{}", db.url);
    }
}

#[test]
fn a_new_process_continues_where_the_database_is() {
    for db in all_databases() {
        db.drop_table("continued");
        let mut sink = db.sink("continued", &numbered(), &[]);
        assert_eq!(
            sink.connect(&PartitionEpochs::new(), std::future::pending()).unwrap(),
            Some(SinkPositions::default())
        );
        let id = |partition, offset, row| EventId {
            partition: PartitionId(partition),
            offset: Offset(offset),
            row,
        };
        let mixed = [id(0, 5, 0), id(1, 2, 0), id(0, 5, 1), id(1, 3, 0)];
        deliver(&mut sink, &rows(&[(1, "a"), (2, "b"), (3, "c"), (4, "d")]), &mixed).unwrap();
        drop(sink);
        let mut sink = db.sink("continued", &numbered(), &[]);
        let known = sink.connect(&PartitionEpochs::new(), std::future::pending()).unwrap().unwrap();
        assert_eq!(known.delivered.into_values().collect::<Vec<_>>(), [id(0, 5, 1), id(1, 3, 0)]);
        // the last of these is new
        let again = [id(0, 5, 1), id(1, 3, 0), id(0, 6, 0)];
        deliver(&mut sink, &rows(&[(3, "c"), (4, "d"), (5, "e")]), &again).unwrap();
        sink.close();
        let sql = db.pick("SELECT k::text FROM continued ORDER BY k", "SELECT k FROM continued ORDER BY k");
        assert_eq!(db.rows(sql), ["1", "2", "3", "4", "5"]);
    }
}

#[test]
fn refused_events_may_come_again_until_later_ones_do() {
    for db in all_databases() {
        db.drop_table("again");
        db.run("CREATE TABLE again (k integer NOT NULL, v varchar(3))");
        let values = rows(&[(1, "a"), (2, "long"), (3, "c"), (4, "long"), (5, "e")]);
        let ids = ids(7, 5);
        let mut sink = db.sink("again", &numbered(), &[]);
        assert_eq!(deliver(&mut sink, &values, &ids).unwrap().len(), 2);
        // the process ends before it has taken note
        drop(sink);
        let mut sink = db.sink("again", &numbered(), &[]);
        let known = sink.connect(&PartitionEpochs::new(), std::future::pending()).unwrap().unwrap();
        assert_eq!(
            known.delivered.into_values().collect::<Vec<_>>(),
            [ids[0]],
            "the refused event must come again"
        );
        let refused = deliver(&mut sink, &values, &ids).unwrap();
        assert_eq!(refused.iter().map(|r| r.row).collect::<Vec<_>>(), [1, 3]);
        // as with `on.error='WAIT'`: someone mends the table, the event alone comes again, then those after it
        db.run(match db.kind {
            Kind::Postgres => "ALTER TABLE again ALTER v TYPE varchar(9)",
            Kind::MariaDb => "ALTER TABLE again MODIFY v varchar(9)",
            Kind::SqlServer => "ALTER TABLE again ALTER COLUMN v varchar(9)",
            Kind::Oracle => "ALTER TABLE again MODIFY (v varchar2(9))",
        });
        assert_eq!(deliver(&mut sink, &values.slice(1, 1), &ids[1..2]).unwrap(), []);
        assert_eq!(deliver(&mut sink, &values.slice(1, 4), &ids[1..]).unwrap(), []);
        sink.close();
        let sql = db.pick("SELECT k::text FROM again ORDER BY k", "SELECT k FROM again ORDER BY k");
        assert_eq!(db.rows(sql), ["1", "2", "3", "4", "5"]);
    }
}

#[test]
fn a_former_owner_of_a_partition_writes_nothing_after_the_present_one() {
    for db in all_databases() {
        db.drop_table("moved");
        let own = |epoch| PartitionEpochs::from([(PartitionId(0), epoch)]);
        let mut former = db.sink("moved", &numbered(), &[]);
        deliver_in(&mut former, &own(3), &rows(&[(1, "a")]), &ids(0, 1)).unwrap();
        let mut present = db.sink("moved", &numbered(), &[]);
        deliver_in(&mut present, &own(4), &rows(&[(2, "b")]), &ids(1, 1)).unwrap();
        // it has not heard of the other one, and is ahead
        deliver_in(&mut former, &own(3), &rows(&[(2, "b"), (3, "c")]), &ids(1, 2)).unwrap_err();
        let known = former.connect(&own(3), std::future::pending()).unwrap().unwrap();
        assert_eq!(known.later_owners, own(4), "{}", db.url);
        // also as it knows the position now
        deliver_in(&mut former, &own(3), &rows(&[(3, "c")]), &ids(2, 1)).unwrap_err();
        deliver_in(&mut present, &own(4), &rows(&[(3, "c")]), &ids(2, 1)).unwrap();
        let sql = db.pick("SELECT k::text FROM moved ORDER BY k", "SELECT k FROM moved ORDER BY k");
        assert_eq!(db.rows(sql), ["1", "2", "3"]);
        former.close();
        present.close();
    }
}

#[test]
fn of_two_processes_with_one_name_one_writes() {
    for db in all_databases() {
        db.drop_table("rivals");
        let mut first = db.sink("rivals", &numbered(), &[]);
        let mut second = db.sink("rivals", &numbered(), &[]);
        first.connect(&PartitionEpochs::new(), std::future::pending()).unwrap();
        second.connect(&PartitionEpochs::new(), std::future::pending()).unwrap();
        deliver(&mut first, &rows(&[(1, "a")]), &ids(0, 1)).unwrap();
        for offset in 0..2 {
            let e = deliver(&mut second, &rows(&[(1, "a")]), &ids(offset, 1));
            if offset == 0 {
                let e = e.unwrap_err();
                assert_eq!(e.kind(), ErrorKind::Unavailable);
                assert!(e.to_string().contains("another connection writes as `test/rivals`"), "{e}");
            } else {
                e.unwrap();
            }
        }
        let e = deliver(&mut first, &rows(&[(2, "b")]), &ids(1, 1)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable);
        deliver(&mut first, &rows(&[(2, "b")]), &ids(1, 1)).unwrap();
        let sql = db.pick("SELECT k::text FROM rivals ORDER BY k", "SELECT k FROM rivals ORDER BY k");
        assert_eq!(db.rows(sql), ["1", "1"]);
    }
}

#[test]
fn the_victim_of_a_deadlock_is_sent_again() {
    for db in databases() {
        db.drop_table("deadlock");
        let schema = numbered();
        let values: Vec<(i64, &str)> = (0..200).map(|k| (k, "old")).collect();
        let mut sink = db.sink("deadlock", &schema, &[("key", "k")]);
        deliver(&mut sink, &rows(&values), &ids(0, values.len())).unwrap();
        sink.close();
        let mut sink = db.sink("deadlock", &schema, &[("operation", "update"), ("key", "k")]);
        sink.connect(&PartitionEpochs::new(), std::future::pending()).unwrap();
        let other = db.transaction();
        // the greater transaction survives in MariaDB, the later one in PostgreSQL
        other.run("UPDATE deadlock SET v = 'other' WHERE k >= 2").unwrap();
        let failed = std::thread::scope(|scope| {
            let delivering =
                scope.spawn(|| deliver(&mut sink, &rows(&[(0, "sink"), (5, "sink")]), &ids(1, 2)));
            let waiting = db.pick(
                "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND mode = 'ShareLock'",
                "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
            );
            wait_until("the sink waits for a row", || {
                // InnoDB renews that table only if it was not read for 0.1 s
                std::thread::sleep(Duration::from_millis(150));
                db.rows(waiting) != ["0"]
            });
            other.run("UPDATE deadlock SET v = 'other' WHERE k = 0").unwrap();
            delivering.join().unwrap().unwrap_err()
        });
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
        assert!(failed.to_string().to_lowercase().contains("deadlock"), "{failed}");
        other.run("COMMIT").unwrap();
        deliver(&mut sink, &rows(&[(0, "sink"), (5, "sink")]), &ids(1, 2)).unwrap();
        sink.close();
        let sql = db.pick(
            "SELECT v, count(*)::text FROM deadlock GROUP BY v ORDER BY v",
            "SELECT v, count(*) FROM deadlock GROUP BY v ORDER BY v",
        );
        assert_eq!(db.rows(sql), ["old|1", "other|197", "sink|2"]);
    }
}

#[test]
fn an_interrupted_delivery_leaves_nothing() {
    for db in all_databases() {
        db.drop_table("interrupted");
        let mut sink = db.sink("interrupted", &numbered(), &[]);
        sink.connect(&PartitionEpochs::new(), std::future::pending()).unwrap();
        let many: Vec<Vec<_>> = (0..8000).map(|k| vec![int(k), text("value")]).collect();
        let values = batch(&numbered(), &many);
        let ids = ids(0, many.len());
        let mut progress = DeliveryProgress::default();
        let stop = async { tokio::time::sleep(Duration::from_millis(2)).await };
        let stopped = sink.deliver(&values, &ids, &mut progress, stop);
        let sql = db.pick("SELECT count(*)::text FROM interrupted", "SELECT count(*) FROM interrupted");
        if stopped.is_err() {
            assert_eq!(progress.delivered, 0);
            // the connection of the interrupted transaction is not used again
            let unconnected = deliver(&mut sink, &values, &ids).unwrap_err();
            assert!(unconnected.to_string().ends_with("not connected"), "{unconnected}");
        }
        deliver(&mut sink, &values, &ids).unwrap();
        sink.close();
        assert_eq!(db.rows(sql), ["8000"]);
    }
}
