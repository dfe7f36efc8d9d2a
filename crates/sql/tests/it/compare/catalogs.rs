//! Catalogs: PostgreSQL with equal tables has equal rows.

use super::canonical;
use super::postgres::Postgres;
use super::random::Statement;
use crate::fixture::{self, State};

/// The stream `TakeOffEvent` of the fixture.
const TABLE: &str = "drop schema if exists events cascade; create schema events; \
    create table events.\"TakeOffEvent\" (carrier text, flight integer, origin text, sched timestamptz, actual timestamptz, \
    distance double precision, on_time boolean, meta text, gate text, _time timestamptz not null, _extra text, \
    _received timestamptz not null, _partition integer not null, _offset bigint not null, _row integer not null, \
    primary key (_partition, _offset, _row));";

const STATEMENTS: [&str; 14] = [
    "select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attnum, a.attlen, a.attbyval, a.attalign, a.attstorage, \
     a.atttypid, a.attcollation, a.attidentity, a.attgenerated, a.atthasdef, a.attisdropped, a.attndims \
     from pg_catalog.pg_attribute a join pg_class c on c.oid = a.attrelid where c.relname = 'TakeOffEvent' and a.attnum > 0",
    "select a.attname, a.attnum from pg_attribute a join pg_class c on c.oid = a.attrelid where c.relname = 'TakeOffEvent_pkey'",
    "select relname, relkind, relnatts, relhasindex, relpersistence, relreplident, relispartition, relchecks, relhasrules, \
     relhastriggers, relrowsecurity from pg_class where relname like 'TakeOffEvent%'",
    "select n.nspname, c.relname, am.amname from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_am am on \
     am.oid = c.relam where n.nspname = 'events'",
    "select indnatts, indnkeyatts, indisunique, indisprimary, indisexclusion, indimmediate, indisclustered, indisvalid, \
     indisreplident, indkey[0], indkey[2] from pg_index where indrelid = 'events.\"TakeOffEvent\"'::regclass",
    "select conname, contype, condeferrable, condeferred, convalidated, conkey[1], conkey[3], pg_get_constraintdef(oid), \
     conislocal, coninhcount from pg_constraint where conrelid = 'events.\"TakeOffEvent\"'::regclass",
    "select pg_get_indexdef(indexrelid), pg_get_indexdef(indexrelid, 2, false) from pg_index where indrelid = \
     'events.\"TakeOffEvent\"'::regclass",
    "select column_name, ordinal_position, column_default, is_nullable, data_type, character_maximum_length, \
     character_octet_length, numeric_precision, numeric_precision_radix, numeric_scale, datetime_precision, udt_schema, udt_name, \
     dtd_identifier, is_self_referencing, is_identity, identity_cycle, is_generated from information_schema.columns where \
     table_schema = 'events'",
    "select table_schema, table_name, table_type, is_typed from information_schema.tables where table_schema = 'events'",
    "select constraint_schema, constraint_name, table_name, constraint_type, is_deferrable, initially_deferred, enforced from \
     information_schema.table_constraints where table_schema = 'events' and constraint_type <> 'CHECK'",
    "select constraint_name, column_name, ordinal_position, position_in_unique_constraint from \
     information_schema.key_column_usage where table_schema = 'events'",
    "select oid, typname, typlen, typbyval, typtype, typcategory, typispreferred, typisdefined, typdelim, typrelid, typelem, \
     typalign, typstorage, typnotnull, typbasetype, typtypmod, typndims, typcollation from pg_type where oid in \
     (16, 17, 18, 19, 20, 21, 22, 23, 25, 26, 30, 114, 700, 701, 1000, 1007, 1009, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1700, 2249)",
    "select t.typname, i.proname, o.proname from pg_type t join pg_proc i on i.oid = t.typinput join pg_proc o on o.oid = t.typoutput \
     where t.oid in (16, 23, 25, 1007)",
    "select quote_ident('a'), quote_ident('A b'), quote_ident('select'), quote_literal('it''s \\'), quote_nullable(null), \
     pg_size_pretty(123456789::bigint), pg_encoding_to_char(6), format('%s %I %L', 'a', 'B', 'c'), format_type(1700, 655366), \
     'int4'::regtype::oid, 1259::regclass::text, to_regclass('nothing') is null, \
     pg_typeof(1::bigint)::text, 'pg_class'::regclass::oid",
];

#[tokio::test(flavor = "multi_thread")]
async fn catalogs_have_the_rows_of_postgresql() {
    let Some(server) = tidemill_test_servers::shared("postgres") else { return };
    let postgres = Postgres::new(server.address("SERVERS_POSTGRES"));
    let _schema = super::EVENTS.lock().await;
    postgres.run(TABLE);
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let statements = STATEMENTS.map(|text| Statement::unordered(text.to_owned()));
    let expected = postgres.results(&statements);
    assert_eq!(expected.len(), statements.len());
    let mut different = vec![];
    for (statement, expected) in statements.iter().zip(expected) {
        // `Landing` is a table of the fixture only
        let text = statement
            .text
            .replace("table_schema = 'events'", "table_schema = 'events' and table_name <> 'Landing'");
        let text =
            text.replace("n.nspname = 'events'", "n.nspname = 'events' and c.relname not like 'Landing%'");
        let ours = canonical::run(&sql, &Statement::unordered(text)).await;
        if ours != expected {
            different.push(format!("{}\n  ours:       {ours:?}\n  postgresql: {expected:?}", statement.text));
        }
    }
    postgres.run("drop schema events cascade");
    assert!(different.is_empty(), "{}", different.join("\n"));
}
