//! The source `cdc` against PostgreSQL and MariaDB.

mod faults;
mod messages;
mod polling;
mod values;

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use tidemill_connect::{ConnectorConfig, MapperConfig};
use tidemill_types::FieldType;

use crate::positioned::PositionedSource;
use crate::rdbms::database::{Kind, TestDatabase, databases};

/// Returns the name of a source of this run. Replication slots have names made of it, and belong to a whole server.
fn source_name(purpose: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{purpose}/{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst))
}

/// Returns a source of a table, with a mapper of pairs in which attributes may be missing.
fn config(db: &TestDatabase, table: &str, operation: &str, options: &[(&str, &str)]) -> ConnectorConfig {
    let usual = [
        ("url", db.url.as_str()),
        ("username", "tidemill"),
        ("password", "tidemill"),
        ("table.name", table),
        ("operation", operation),
    ];
    let own = usual.into_iter().filter(|(name, _)| !options.iter().any(|(given, _)| given == name));
    let all: Vec<(&str, &str)> = own.chain(options.iter().copied()).collect();
    let mapper = MapperConfig {
        kind: "keyvalue".into(),
        options: vec![("fail.on.missing.attribute".into(), "false".into())],
        ..MapperConfig::default()
    };
    ConnectorConfig { mapper: Some(mapper), ..crate::helpers::config("cdc", &all) }
}

fn open(name: &str, fields: &[(&str, FieldType)], config: ConnectorConfig) -> PositionedSource {
    PositionedSource::open_as(name, fields, config, Path::new("."))
}

/// Creates a table `(id, name)` with this number of rows; old rows are logged completely.
fn table(db: &TestDatabase, name: &str, rows: usize) {
    db.run(&format!("DROP TABLE IF EXISTS {name}"));
    db.run(&format!("CREATE TABLE {name} (id integer NOT NULL PRIMARY KEY, name varchar(50))"));
    if db.kind == Kind::Postgres {
        db.run(&format!("ALTER TABLE {name} REPLICA IDENTITY FULL"));
    }
    if rows > 0 {
        insert(db, name, 0..rows);
    }
}

/// Inserts rows in one transaction.
fn insert(db: &TestDatabase, table: &str, ids: std::ops::Range<usize>) {
    let all: Vec<String> = ids.map(|id| format!("({id}, 'n{id}')")).collect();
    let values: Vec<String> =
        all.chunks(1000).map(|part| format!("INSERT INTO {table} VALUES {}", part.join(", "))).collect();
    let transaction = db.transaction();
    values.iter().for_each(|sql| transaction.run(sql).unwrap());
    transaction.run("COMMIT").unwrap();
}

/// Drops the slots that the sources of a test leave, so that they hold no log.
fn drop_slots(db: &TestDatabase, purpose: &str) {
    if db.kind == Kind::Postgres {
        db.run(&format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots \
             WHERE NOT active AND slot_name LIKE 'tidemill_{purpose}%'"
        ));
    }
}

const FIELDS: [(&str, FieldType); 4] = [
    ("id", FieldType::Int),
    ("name", FieldType::String),
    ("before_id", FieldType::Int),
    ("before_name", FieldType::String),
];

#[test]
fn changes_become_events() {
    for db in databases() {
        table(&db, "cdc_changes", 2);
        let name = source_name("changes");
        let mut source = open(&name, &FIELDS, config(&db, "cdc_changes", "insert,update,delete", &[]));
        let none = "missing";
        let snapshot = [format!("0|n0|{none}|{none}"), format!("1|n1|{none}|{none}")];
        assert_eq!(source.poll_rows(2), snapshot, "{}", db.url);
        let transaction = db.transaction();
        transaction.run("INSERT INTO cdc_changes VALUES (2, 'it''s'), (3, NULL)").unwrap();
        transaction.run("UPDATE cdc_changes SET name = 'new' WHERE id = 0").unwrap();
        transaction.run("COMMIT").unwrap();
        let undone = db.transaction();
        undone.run("INSERT INTO cdc_changes VALUES (9, 'undone')").unwrap();
        undone.run("ROLLBACK").unwrap();
        db.run("UPDATE cdc_changes SET id = 30 WHERE id = 3");
        db.run("DELETE FROM cdc_changes WHERE id = 1");
        let expected = [
            format!("2|it's|{none}|{none}"),
            format!("3|{none}|{none}|{none}"),
            "0|new|0|n0".into(),
            format!("30|{none}|3|{none}"),
            format!("{none}|{none}|1|n1"),
        ];
        assert_eq!(source.poll_rows(7)[2..], expected, "{}", db.url);
        // changes while the source is away
        let positions = source.positions.clone();
        source.restart();
        db.run("INSERT INTO cdc_changes VALUES (4, 'last')");
        assert_eq!(source.poll_rows(8)[7], format!("4|last|{none}|{none}"));
        assert!(source.positions["log"] > positions["log"]);
        assert_eq!(source.rejected, [""; 0]);
        drop(source);
        drop_slots(&db, "changes");
    }
}

#[test]
fn only_wanted_operations_of_the_table_come() {
    for db in databases() {
        table(&db, "cdc_wanted", 3);
        table(&db, "cdc_other", 0);
        let name = source_name("wanted");
        let mut source = open(&name, &FIELDS[2..], config(&db, "cdc_wanted", "DELETE", &[]));
        source.poll_until("the source listens", |source| source.positions.contains_key("log"));
        db.run("INSERT INTO cdc_other VALUES (1, 'x')");
        db.run("INSERT INTO cdc_wanted VALUES (7, 'x')");
        db.run("UPDATE cdc_wanted SET name = 'y'");
        db.run("DELETE FROM cdc_wanted WHERE id IN (1, 7)");
        source.poll_rows(2).to_vec();
        assert_eq!(source.rows, ["1|y", "7|y"], "{}", db.url);
        drop(source);
        drop_slots(&db, "wanted");
    }
}

#[test]
fn a_source_without_snapshot_begins_with_what_comes() {
    for db in databases() {
        table(&db, "cdc_never", 3);
        let name = source_name("never");
        let properties = [("connector.properties", "snapshot.mode=never,tasks.max=1")];
        let mut source = open(&name, &FIELDS[..2], config(&db, "cdc_never", "insert", &properties));
        source.poll_until("the source listens", |source| source.positions.contains_key("log"));
        db.run("INSERT INTO cdc_never VALUES (5, 'five')");
        assert_eq!(source.poll_rows(1), ["5|five"], "{}", db.url);
        drop(source);
        drop_slots(&db, "never");
    }
}

/// The server can forget its log although nothing happens in the table.
#[test]
fn an_idle_table_holds_no_log() {
    for db in databases().iter().filter(|db| db.kind == Kind::Postgres) {
        table(db, "cdc_idle", 0);
        table(db, "cdc_busy", 0);
        let name = source_name("idle");
        let mut source = open(&name, &FIELDS[..2], config(db, "cdc_idle", "insert", &[]));
        source.poll_until("the source listens", |source| source.positions.contains_key("log"));
        insert(db, "cdc_busy", 0..1000);
        let end = db.rows("SELECT pg_current_wal_lsn()::text FROM pg_database LIMIT 1");
        let sql = format!(
            "SELECT count(*)::text FROM pg_replication_slots WHERE slot_name LIKE 'tidemill_idle%' \
             AND confirmed_flush_lsn >= '{}'",
            end[0]
        );
        source.poll_until("the position is confirmed", |_| db.rows(&sql) == ["1"]);
        drop(source);
        drop_slots(db, "idle");
    }
}
