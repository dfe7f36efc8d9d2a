//! Values of all types, from the table and from the log.

use tidemill_types::FieldType;

use super::{config, drop_slots, open, source_name};
use crate::rdbms::database::{Kind, databases};

/// Rows come in the same form from a snapshot and from the log.
#[test]
fn values_of_all_types_arrive() {
    let string = FieldType::String;
    for db in databases() {
        let (columns, fields, rows): (_, Vec<(&str, FieldType)>, _) = match db.kind {
            Kind::Postgres => (
                "id bigint PRIMARY KEY, b boolean, r real, d double precision, n numeric(30,5), t text, c char(4), \
                 ts timestamp, tz timestamptz, ms timestamptz, day date, j jsonb, u uuid, x bytea, a integer[], i interval",
                vec![
                    ("id", FieldType::Int),
                    ("b", FieldType::Bool),
                    ("r", FieldType::Double),
                    ("d", FieldType::Double),
                    ("n", string),
                    ("t", string),
                    ("c", string),
                    ("ts", FieldType::Time),
                    ("tz", FieldType::Time),
                    ("ms", FieldType::Long),
                    ("day", string),
                    ("j", FieldType::Object),
                    ("u", string),
                    ("x", string),
                    ("a", string),
                    ("i", string),
                ],
                [
                    "(1, true, 1.5, 1e-7, 1234567890123456789.12345, E'tab\\t back\\\\ quote\" \\n ж', 'ab', \
                     '2024-02-29 23:59:59.5', '2024-02-29 23:59:59+02', '1970-01-01 00:00:01+00', '2024-02-29', \
                     '{\"a\": [1, null]}', '00000000-0000-0000-0000-000000000001', '\\x00ff', '{1,2}', '1 day')",
                    "(2, NULL, 'NaN', NULL, NULL, '\\N', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
                ],
            ),
            _ => (
                "id bigint PRIMARY KEY, b boolean, r float, d double, n decimal(30,5), t text CHARACTER SET utf8mb4, c char(4) CHARACTER SET latin1, \
                 ts datetime(6), tz timestamp(3), ms timestamp NULL, day date, j json, u bigint unsigned, x blob, \
                 e enum('one','t''wo'), s set('a','b','c'), bits bit(12), y year, du time(3)",
                vec![
                    ("id", FieldType::Int),
                    ("b", FieldType::Int),
                    ("r", FieldType::Double),
                    ("d", FieldType::Double),
                    ("n", string),
                    ("t", string),
                    ("c", string),
                    ("ts", FieldType::Time),
                    ("tz", FieldType::Time),
                    ("ms", FieldType::Long),
                    ("day", string),
                    ("j", FieldType::Object),
                    ("u", string),
                    ("x", string),
                    ("e", string),
                    ("s", string),
                    ("bits", FieldType::Int),
                    ("y", FieldType::Int),
                    ("du", string),
                ],
                [
                    "(1, true, 1.5, 1e-7, 1234567890123456789.12345, 'tab\\t back\\\\ quote\" \\n ж', 'é', \
                     '2024-02-29 23:59:59.5', '2024-02-29 21:59:59', '1970-01-01 00:00:01', '2024-02-29', \
                     '{\"a\": [1, null]}', 18446744073709551615, x'00ff', 't''wo', 'a,c', b'100000000001', 2024, '-25:00:01.5')",
                    "(2, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
                ],
            ),
        };
        let expected = match db.kind {
            Kind::Postgres => [
                "1|true|1.5|0.0000001|1234567890123456789.12345|tab\t back\\ quote\" \n ж|ab  |2024-02-29T23:59:59.5Z|\
                 2024-02-29T21:59:59Z|1000|2024-02-29|{\"a\":[1,null]}|00000000-0000-0000-0000-000000000001|AP8=|{1,2}|P1D",
                "2|missing|NaN|missing|missing|\\N|missing|missing|missing|missing|missing|missing|missing|missing|missing|missing",
            ],
            _ => [
                "1|1|1.5|0.0000001|1234567890123456789.12345|tab\t back\\ quote\" \n ж|é|2024-02-29T23:59:59.5Z|\
                 2024-02-29T21:59:59Z|1000|2024-02-29|{\"a\":[1,null]}|18446744073709551615|AP8=|t'wo|a,c|2049|2024|-25:00:01.500000",
                "2|missing|missing|missing|missing||missing|missing|missing|missing|missing|missing|missing|missing|missing|missing|missing|missing|missing",
            ],
        };
        db.run("DROP TABLE IF EXISTS cdc_types");
        db.run(&format!("CREATE TABLE cdc_types ({columns})"));
        rows.iter().for_each(|row| db.run(&format!("INSERT INTO cdc_types VALUES {row}")));
        let name = source_name("types");
        let mut source = open(&name, &fields, config(&db, "cdc_types", "insert", &[]));
        source.poll_until("the snapshot ended", |source| source.positions.contains_key("log"));
        rows.iter().for_each(|row| {
            db.run(&format!(
                "INSERT INTO cdc_types VALUES {}",
                row.replace("(1,", "(11,").replace("(2,", "(12,")
            ));
        });
        source.poll_until("all rows came", |source| source.rows.len() + source.rejected.len() >= 4);
        assert_eq!(source.rejected, [""; 0], "{}", db.url);
        let logged = expected.map(|row| format!("1{row}"));
        let all: Vec<&str> = expected.into_iter().chain(logged.iter().map(String::as_str)).collect();
        assert_eq!(source.rows, all, "{}", db.url);
        drop(source);
        drop_slots(&db, "types");
    }
}

/// A table may get and lose columns while it is read.
#[test]
fn altered_tables_are_read_on() {
    for db in databases() {
        super::table(&db, "cdc_altered", 1);
        let name = source_name("altered");
        let fields = [("id", FieldType::Int), ("extra", FieldType::Int)];
        let mut source = open(&name, &fields, config(&db, "cdc_altered", "insert", &[]));
        source.poll_until("the snapshot ended", |source| source.positions.contains_key("log"));
        db.run("INSERT INTO cdc_altered VALUES (1, 'a')");
        source.poll_rows(2);
        db.run("ALTER TABLE cdc_altered ADD COLUMN extra integer");
        db.run("INSERT INTO cdc_altered VALUES (2, 'b', 20)");
        source.poll_rows(3);
        db.run("ALTER TABLE cdc_altered DROP COLUMN name");
        db.run("INSERT INTO cdc_altered VALUES (3, 30)");
        assert_eq!(source.poll_rows(4), ["0|missing", "1|missing", "2|20", "3|30"], "{}", db.url);
        drop(source);
        drop_slots(&db, "altered");
    }
}

/// A value that does not fit its attribute is rejected with its row; the others are kept.
#[test]
fn values_that_do_not_fit_are_rejected() {
    for db in databases() {
        super::table(&db, "cdc_unfit", 0);
        let name = source_name("unfit");
        let fields = [("id", FieldType::Int), ("name", FieldType::Int)];
        let mut source = open(&name, &fields, config(&db, "cdc_unfit", "insert", &[]));
        source.poll_until("the source listens", |source| source.positions.contains_key("log"));
        db.run("INSERT INTO cdc_unfit VALUES (1, '10'), (2, 'two'), (3, '30')");
        assert_eq!(source.poll_rows(2), ["1|10", "3|30"], "{}", db.url);
        assert_eq!(source.rejected.len(), 1);
        assert!(source.rejected[0].contains("two"), "{:?}", source.rejected);
        drop(source);
        drop_slots(&db, "unfit");
    }
}
