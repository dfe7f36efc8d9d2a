//! Tables of real databases as sinks: values, operations, refused rows, exactly once.

mod app_tables;
pub mod database;
mod faults;
mod messages;
mod outage;
mod portable;
pub mod servers;
mod sqlite;
mod store;
mod tds;

use std::sync::Arc;

use arrow_array::RecordBatch;
use database::{Kind, all_databases, batch, databases, deliver, ids, int, stream, text};
use tidemill_connect::RefusedRow;
use tidemill_types::decode::FieldValue;
use tidemill_types::{FieldType, StreamSchema, Timestamp};

use crate::helpers::wait_until;

fn numbered() -> Arc<StreamSchema> {
    stream(&[("k", FieldType::Int), ("v", FieldType::String)])
}

fn rows(values: &[(i64, &str)]) -> RecordBatch {
    let rows: Vec<Vec<FieldValue>> = values.iter().map(|(k, v)| vec![int(*k), text(v)]).collect();
    batch(&numbered(), &rows)
}

fn reasons(refused: &[RefusedRow]) -> Vec<String> {
    refused.iter().map(|r| format!("{}: {}", r.row, r.reason)).collect()
}

#[test]
fn values_of_all_types_arrive() {
    let schema = stream(&portable::COLUMNS);
    let value = |b, i, l, f, d, s: &str, t, o: &str| {
        let floats = [FieldValue::Float(f), FieldValue::Float(d)];
        let [f, d] = floats;
        vec![FieldValue::Bool(b), int(i), int(l), f, d, text(s), FieldValue::Time(Timestamp(t)), text(o)]
    };
    let huge = "ж".repeat(1_000_000);
    let odd = "tab\t newline\n return\r backslash\\ \\N quote' \" 😀 ñ ";
    let (first, last) = (-62_135_596_800_000_000, 253_402_300_799_999_999);
    let values = [
        value(true, 1, 2, 0.1, 0.1, "plain", 1_700_000_000_123_456, "{\"a\": [1, null]}"),
        value(false, i32::MIN.into(), i64::MIN, f32::MIN.into(), f64::MIN, odd, first, "\"text\""),
        value(true, i32::MAX.into(), i64::MAX, 1e-38, 1e-300, "", last, "17"),
        vec![FieldValue::Missing; 8],
        value(true, 0, 0, -0.0, 5e-324, &huge, 0, "null"),
    ];
    for db in databases() {
        // one row goes another way than several, so both are tried
        for (table, chunk) in [("types_together", 5), ("types_alone", 1)] {
            db.drop_table(table);
            let mut sink = db.sink(table, &schema, &[("field.length", "s:10000000")]);
            for (offset, chunk) in values.chunks(chunk).enumerate() {
                let refused = deliver(&mut sink, &batch(&schema, chunk), &ids(offset as u64, chunk.len()));
                assert_eq!(refused.unwrap(), [], "{}", db.url);
            }
            sink.close();
            let sql = db.pick(
                "SELECT b::text, i::text, l::text, f::text, d::text, CASE WHEN length(s) > 100 THEN md5(s) ELSE s END, \
                 to_char(t, 'YYYY-MM-DD HH24:MI:SS.US'), o::text",
                "SELECT if(b, 'true', 'false'), cast(i as char), cast(l as char), cast(cast(f as double) as char), cast(d as char), \
                 if(length(s) > 100, md5(s), s), date_format(t, '%Y-%m-%d %H:%i:%s.%f'), o",
            );
            let mut found = db.rows(&format!("{sql} FROM {table}"));
            let digest = db.rows("SELECT md5(repeat('ж', 1000000)) FROM (SELECT 1) one");
            let digest = &digest[0];
            let missing = db.pick("NULL", "false");
            let mut expected = [
                format!(
                    "false|-2147483648|-9223372036854775808|{}|{}|{odd}|0001-01-01 00:00:00.000000|\"text\"",
                    db.pick("-3.4028235e+38", "-3.4028234663852886e38"),
                    db.pick("-1.7976931348623157e+308", "-1.7976931348623157e308"),
                ),
                format!(
                    "true|2147483647|9223372036854775807|{}|1e-300||9999-12-31 23:59:59.999999|17",
                    db.pick("1e-38", "9.999999350456404e-39")
                ),
                format!(
                    "true|1|2|{}|0.1|plain|2023-11-14 22:13:20.123456|{}",
                    db.pick("0.1", "0.10000000149011612"),
                    "{\"a\": [1, null]}"
                ),
                format!("true|0|0|{}|5e-324|{digest}|1970-01-01 00:00:00.000000|null", db.pick("-0", "0")),
                format!("{missing}|NULL|NULL|NULL|NULL|NULL|NULL|NULL"),
            ];
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{} {table}", db.url);
        }
    }
}

#[test]
fn floats_that_a_database_has_not_are_refused() {
    let schema = stream(&[("k", FieldType::Int), ("d", FieldType::Double), ("f", FieldType::Float)]);
    let floats = [1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2.5];
    let values: Vec<Vec<FieldValue>> = (0..5)
        .map(|k| vec![int(k), FieldValue::Float(floats[k as usize]), FieldValue::Float(floats[k as usize])])
        .collect();
    for db in all_databases() {
        db.drop_table("floats");
        let mut sink = db.sink("floats", &schema, &[]);
        let refused = deliver(&mut sink, &batch(&schema, &values), &ids(0, 5)).unwrap();
        sink.close();
        let all: &[&str] =
            &["0|1.5|1.5", "1|NaN|NaN", "2|Infinity|Infinity", "3|-Infinity|-Infinity", "4|2.5|2.5"];
        let refusal = |row: usize, name: &str| {
            let x = floats[row];
            format!("{row}: column `d`: {name} has no `{x}`; columns of floats take finite numbers and NULL")
        };
        let (found, refusals) = match db.kind {
            Kind::Postgres => (all, vec![]),
            Kind::Oracle => {
                (&["0|1.5|1.5", "1|NaN|NaN", "2|inf|inf", "3|-inf|-inf", "4|2.5|2.5"][..], vec![])
            }
            Kind::MariaDb => (&["0|1.5|1.5", "4|2.5|2.5"][..], vec!["MariaDB/MySQL"]),
            Kind::SqlServer => (&["0|1.5|1.5", "4|2.5|2.5"][..], vec!["SQL Server"]),
        };
        let refusals: Vec<String> =
            refusals.iter().flat_map(|name| (1..4).map(|row| refusal(row, name))).collect();
        let sql = db.pick(
            "SELECT k::text, d::text, f::text FROM floats ORDER BY k",
            "SELECT k, d, f FROM floats ORDER BY k",
        );
        assert_eq!(
            (db.rows(sql), reasons(&refused)),
            (found.iter().map(|s| (*s).into()).collect(), refusals)
        );
    }
}

#[test]
fn the_last_write_of_a_key_wins() {
    let schema = numbered();
    for db in all_databases() {
        let select = db.pick("SELECT k::text, v FROM ops ORDER BY k", "SELECT k, v FROM ops ORDER BY k");
        db.drop_table("ops");
        let mut offset = 0;
        let mut write = |operation: &str, values: &[(i64, &str)]| {
            let mut sink = db.sink("ops", &schema, &[("operation", operation), ("key", "k")]);
            let refused = deliver(&mut sink, &rows(values), &ids(offset, values.len())).unwrap();
            offset += 1;
            sink.close();
            reasons(&refused)
        };
        assert!(write("insert", &[(1, "a"), (2, "b"), (3, "c")]).is_empty());
        assert!(write("update", &[(1, "x"), (9, "y"), (1, "z"), (2, "q")]).is_empty());
        assert_eq!(db.rows(select), ["1|z", "2|q", "3|c"]);
        assert!(write("upsert", &[(3, "u"), (4, "new"), (3, "w"), (4, "newer")]).is_empty());
        assert_eq!(db.rows(select), ["1|z", "2|q", "3|w", "4|newer"]);
        assert!(write("update", &[(4, "alone")]).is_empty());
        assert!(write("upsert", &[(5, "alone")]).is_empty());
        assert!(write("delete", &[(1, ""), (7, ""), (3, "")]).is_empty());
        assert!(write("delete", &[(2, "")]).is_empty());
        assert_eq!(db.rows(select), ["4|alone", "5|alone"]);
        // the key is unique: of two equal ones the second is refused
        let refused = write("insert", &[(6, "f"), (4, "again"), (7, "g"), (7, "h")]);
        let expected = [
            db.pick(
                "1: duplicate key value violates unique constraint \"ops_pkey\": Key (k)=(4) already exists. (23505)",
                "1: Duplicate entry '4' for key 'PRIMARY' (1062)",
            ),
            db.pick(
                "3: duplicate key value violates unique constraint \"ops_pkey\": Key (k)=(7) already exists. (23505)",
                "3: Duplicate entry '7' for key 'PRIMARY' (1062)",
            ),
        ];
        match db.is_local() {
            true => assert_eq!(refused, expected),
            false => assert_eq!(refused.len(), 2, "{refused:?}"),
        }
        assert_eq!(db.rows(select), ["4|alone", "5|alone", "6|f", "7|g"]);
    }
}

#[test]
fn large_batches_find_rows_of_postgresql_by_the_key() {
    let schema = numbered();
    for db in databases().iter().filter(|db| db.kind == database::Kind::Postgres) {
        db.drop_table("large");
        db.run("CREATE TABLE large (k integer PRIMARY KEY, v varchar(100)) WITH (autovacuum_enabled = off)");
        db.run("INSERT INTO large SELECT k, repeat('x', 100) FROM generate_series(0, 99999) k");
        let values: Vec<Vec<FieldValue>> = (0..8192).map(|k| vec![int(k * 11), text("new")]).collect();
        let counted = "SELECT n_tup_ins::text, seq_scan::text, idx_scan::text FROM pg_stat_user_tables WHERE relname = 'large'";
        let counts = || db.rows(counted)[0].split('|').map(|n| n.parse().unwrap()).collect::<Vec<i64>>();
        // the server counts what a connection did a while later
        wait_until("the server counts the rows", || counts()[0] == 100_000);
        for (offset, operation) in [(0, "update"), (1, "delete")] {
            let before = counts();
            let mut sink = db.sink("large", &schema, &[("operation", operation), ("key", "k")]);
            assert_eq!(deliver(&mut sink, &batch(&schema, &values), &ids(offset, 8192)).unwrap(), []);
            sink.close();
            wait_until("the server counts the scans", || counts() != before);
            let after = counts();
            assert_eq!((after[1] - before[1], after[2] - before[2]), (0, 8192), "{operation}");
        }
        let left = "SELECT count(*)::text FROM large";
        assert_eq!(db.rows(left), ["91808"]);
    }
}

#[test]
fn only_bad_rows_of_a_batch_are_refused() {
    let schema = numbered();
    for db in all_databases() {
        for operation in ["insert", "upsert", "update"] {
            db.drop_table("partly");
            db.run("CREATE TABLE partly (k integer NOT NULL PRIMARY KEY, v varchar(5) NOT NULL, CHECK (k <> 13))");
            if operation == "update" {
                let all: Vec<(i64, &str)> = (0..1000).filter(|k| *k != 13).map(|k| (k, "old")).collect();
                let mut sink = db.sink("partly", &schema, &[]);
                assert_eq!(deliver(&mut sink, &rows(&all), &ids(0, all.len())).unwrap(), []);
                sink.close();
            }
            let mut sink = db.sink("partly", &schema, &[("operation", operation), ("key", "k")]);
            let mut values: Vec<Vec<FieldValue>> = (0..1000).map(|k| vec![int(k), text("good")]).collect();
            values[500][1] = text("too long");
            values[501][1] = FieldValue::Missing;
            values[999][1] = text("too long as well");
            let refused = deliver(&mut sink, &batch(&schema, &values), &ids(1, 1000)).unwrap();
            sink.close();
            let bad: Vec<usize> = refused.iter().map(|r| r.row).collect();
            let expected: &[usize] =
                if operation == "update" { &[500, 501, 999] } else { &[13, 500, 501, 999] };
            assert_eq!(bad, expected, "{operation} {}: {:?}", db.url, reasons(&refused));
            let too_long = db.pick(
                "999: value too long for type character varying(5) (22001)",
                "999: Data too long for column 'v' at row 1 (1406)",
            );
            if db.is_local() {
                assert_eq!(reasons(&refused).last().unwrap(), too_long);
            }
            let sql = db.pick(
                "SELECT count(*)::text FROM partly WHERE v = 'good'",
                "SELECT count(*) FROM partly WHERE v = 'good'",
            );
            assert_eq!(db.rows(sql), ["996"], "{operation}");
        }
    }
}

#[test]
fn attributes_are_written_to_the_columns_that_are_named() {
    let schema = numbered();
    for db in databases() {
        db.drop_table("Mapped");
        db.run("CREATE TABLE Mapped (Number bigint, other integer DEFAULT 7, Label varchar(20))");
        let options = [("columns", "k:number, v:Label")];
        let mut sink = db.sink("Mapped", &schema, &options);
        assert_eq!(deliver(&mut sink, &rows(&[(1, "one"), (2, "two")]), &ids(0, 2)).unwrap(), []);
        sink.close();
        let sql = db.pick(
            "SELECT number::text, other::text, label FROM mapped ORDER BY 1",
            "SELECT Number, other, Label FROM Mapped ORDER BY 1",
        );
        assert_eq!(db.rows(sql), ["1|7|one", "2|7|two"]);
        db.drop_table("Mapped");
    }
}

#[test]
fn texts_reach_columns_of_other_types() {
    let schema = stream(&[("k", FieldType::String), ("v", FieldType::String)]);
    for db in all_databases() {
        db.drop_table("typed");
        db.run(match db.kind {
            Kind::Postgres => "CREATE TABLE typed (k uuid PRIMARY KEY, v jsonb)",
            Kind::MariaDb => "CREATE TABLE typed (k uuid PRIMARY KEY, v json)",
            Kind::Oracle => {
                "CREATE TABLE typed (k varchar2(36) PRIMARY KEY CHECK (k LIKE '0%'), v varchar2(99) CHECK (v NOT LIKE '%bad%'))"
            }
            Kind::SqlServer => {
                "CREATE TABLE typed (k uniqueidentifier PRIMARY KEY, v nvarchar(99) CHECK (v NOT LIKE '%bad%'))"
            }
        });
        let uuid = |n: u8| text(&format!("00000000-0000-0000-0000-0000000000{n:02}"));
        let values = [
            vec![uuid(1), text("{}")],
            vec![uuid(2), text("{bad")],
            vec![uuid(3), text("[3]")],
            vec![text("no uuid"), text("{}")],
        ];
        let mut sink = db.sink("typed", &schema, &[("operation", "upsert"), ("key", "k")]);
        let refused = deliver(&mut sink, &batch(&schema, &values), &ids(0, 4)).unwrap();
        sink.close();
        assert_eq!(refused.iter().map(|r| r.row).collect::<Vec<_>>(), [1, 3], "{:?}", reasons(&refused));
        assert_eq!(
            db.rows(db.pick("SELECT v::text FROM typed ORDER BY k", "SELECT v FROM typed ORDER BY k")),
            ["{}", "[3]"]
        );
    }
}
