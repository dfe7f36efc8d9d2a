//! Polling of a column.

use tidemill_types::FieldType;

use super::{config, open, source_name};
use crate::rdbms::database::databases;

const FIELDS: [(&str, FieldType); 2] = [("id", FieldType::Int), ("name", FieldType::String)];

#[test]
fn new_rows_are_polled() {
    for db in databases() {
        super::table(&db, "cdc_polled", 9000);
        let name = source_name("polled");
        let options =
            [("mode", "polling"), ("polling.column", "ID"), ("jdbc.driver.name", "com.mysql.jdbc.Driver")];
        let mut source = open(&name, &FIELDS, config(&db, "cdc_polled", "insert", &options));
        source.poll_rows(1);
        source.restart();
        source.poll_rows(9000);
        assert_eq!(
            (source.rows.len(), source.rows.last().unwrap().as_str()),
            (9000, "8999|n8999"),
            "{}",
            db.url
        );
        db.run("INSERT INTO cdc_polled VALUES (10000, 'later'), (-1, 'earlier')");
        assert_eq!(source.poll_rows(9001)[9000], "10000|later");
        source.restart();
        db.run("INSERT INTO cdc_polled VALUES (10001, 'last')");
        assert_eq!(source.poll_rows(9002)[9001..], ["10001|last"]);
    }
}

#[test]
fn updates_are_polled_by_time() {
    for db in databases() {
        db.run("DROP TABLE IF EXISTS cdc_times");
        db.run(db.pick(
            "CREATE TABLE cdc_times (id integer, \"Name\" varchar(10), changed timestamptz(6))",
            "CREATE TABLE cdc_times (id integer, Name varchar(10), changed timestamp(6))",
        ));
        db.run("INSERT INTO cdc_times VALUES (1, 'a', '2024-01-01 00:00:00.000001'), (2, 'b', '2024-01-01 00:00:00.000002')");
        let name = source_name("times");
        let options = [
            ("mode", "polling"),
            ("polling.column", "changed"),
            ("snapshot.mode", "never"),
            ("operation", "update"),
        ];
        // the names of attributes are those of columns in lower case
        let mut source = open(&name, &FIELDS, config(&db, "cdc_times", "update", &options));
        source.poll_until("the source polls", |source| source.positions.contains_key("polled"));
        db.run("UPDATE cdc_times SET changed = '2024-01-01 00:00:00.000003' WHERE id = 1");
        assert_eq!(source.poll_rows(1), ["1|a"], "{}", db.url);
        db.run("UPDATE cdc_times SET changed = '2024-01-01 00:00:00.000004' WHERE id IN (1, 2)");
        source.poll_rows(3);
        source.rows[1..].sort();
        assert_eq!(source.rows[1..], ["1|a", "2|b"]);
    }
}

#[test]
fn missing_integers_are_waited_for() {
    for db in databases() {
        super::table(&db, "cdc_gaps", 2);
        let name = source_name("gaps");
        let options = [
            ("mode", "polling"),
            ("polling.column", "id"),
            ("wait.on.missed.record", "true"),
            ("missed.record.waiting.timeout", "2"),
        ];
        let mut source = open(&name, &FIELDS, config(&db, "cdc_gaps", "insert", &options));
        source.poll_rows(2);
        let open_one = db.transaction();
        open_one.run("INSERT INTO cdc_gaps VALUES (2, 'slow')").unwrap();
        db.run("INSERT INTO cdc_gaps VALUES (3, 'quick')");
        open_one.run("COMMIT").unwrap();
        assert_eq!(source.poll_rows(4)[2..], ["2|slow", "3|quick"], "{}", db.url);
        // 4 never comes
        db.run("INSERT INTO cdc_gaps VALUES (5, 'five')");
        assert_eq!(source.poll_rows(5)[4..], ["5|five"]);
    }
}
