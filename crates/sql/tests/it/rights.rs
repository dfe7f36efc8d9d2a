//! Callers that may read some tables: others do not exist for them.

use arrow::util::pretty::pretty_format_batches;
use tidemill_access::{Grant, Principal};
use tidemill_database::{MissingFields, QueryRequest};
use tidemill_sql::Sql;
use tidemill_types::{ErrorKind, Result};

use crate::fixture::{self, State, options};

fn caller(grants: &[&str]) -> Principal {
    let grants: Vec<Grant> = grants.iter().map(|text| text.parse().unwrap()).collect();
    Principal::user("ana", grants)
}

async fn run(sql: &Sql, caller: &Principal, query: &str) -> Result<String> {
    let rows = sql.run(QueryRequest::new(query, "http", caller.clone())).await?.collect().await?;
    Ok(pretty_format_batches(&rows.batches).unwrap().to_string())
}

#[tokio::test]
async fn a_hidden_table_is_not_there() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let ana = caller(&["read stream:Landing", "read collection:docs.gates"]);
    run(&sql, &ana, "select count(*) from Landing").await.unwrap();
    for query in [
        "select count(*) from NAME",
        "select count(*) from events.NAME",
        "select count(*) from Landing where exists (select 1 from events.NAME)",
        "with other as (select * from events.NAME) select count(*) from other",
        "select count(*) from Landing union all select count(*) from events.NAME",
        "explain select * from events.NAME",
        "select * from latest('events.NAME')",
        "delete from events.NAME where true",
        "update events.NAME set gate = 'x' where true",
        "insert into events.NAME (carrier) values ('x')",
        "insert into events.NAME (carrier) select 'x' returning carrier",
    ] {
        // the same error for a table that is hidden and one that is not there
        let mut errors = vec![];
        for name in ["TakeOffEvent", "TakeOffEvens"] {
            let error = run(&sql, &ana, &query.replace("NAME", name)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{query}: {error}");
            assert!(error.to_string().contains("tidemill users grant ana read PATTERN"), "{query}: {error}");
            errors.push(error.to_string().replace(name, "NAME"));
        }
        assert_eq!(errors[0], errors[1], "{query}");
    }
}

#[tokio::test]
async fn lists_have_what_the_caller_may_read() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let tables = "select table_schema, table_name from information_schema.tables \
                  where table_schema <> 'information_schema' order by 1, 2";
    let all = run(&sql, &caller(&["read *"]), tables).await.unwrap();
    assert!(all.contains("TakeOffEvent") && all.contains("Landing"), "{all}");
    let some = run(&sql, &caller(&["read stream:Land*", "read system:l*"]), tables).await.unwrap();
    assert!(some.contains("Landing") && some.contains("statements"), "{some}");
    assert!(!some.contains("TakeOffEvent") && !some.contains("docs"), "{some}");
    let columns = "select distinct table_name from information_schema.columns where table_schema = 'events'";
    let columns = run(&sql, &caller(&["read stream:Land*"]), columns).await.unwrap();
    assert!(columns.contains("Landing") && !columns.contains("TakeOffEvent"), "{columns}");
}

#[tokio::test]
async fn catalogs_have_what_the_caller_may_read() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let ana = caller(&["read stream:Landing"]);
    let admin = caller(&["admin *"]);
    for query in [
        "select oid, relname from pg_class where relnamespace = 'events'::regnamespace order by 1",
        "select attrelid, attname from pg_attribute where attnum > 0",
        "select * from pg_description",
        "select * from pg_constraint",
        "select indexrelid, indrelid::regclass from pg_index",
        "select schemaname, tablename, indexname, indexdef from pg_indexes",
        "select * from pg_tables",
        "select table_name, column_name from information_schema.columns",
        "select * from information_schema.tables",
        "select * from information_schema.key_column_usage",
        "select * from information_schema.table_privileges",
        "select query from pg_stat_activity",
        "select c.oid::regclass, pg_table_is_visible(c.oid), obj_description(c.oid), pg_table_size(c.oid) from pg_class c",
        "explain select * from pg_class",
        "explain analyze select relname from pg_class order by 1",
    ] {
        let all = run(&sql, &admin, query).await.unwrap();
        let some = run(&sql, &ana, query).await.unwrap();
        let hidden = ["TakeOffEvent", "flights", "carrier", "ledger"];
        assert!(!hidden.iter().any(|name| some.contains(name)), "{query}: {some}");
        let tells = query.contains("explain") || query.contains("pg_stat_activity");
        assert!(tells || all.contains("TakeOffEvent") || all.contains("carrier"), "{query}: {all}");
    }
    // the number of a table is the same for all callers, and a hidden one has none
    let number = "select 'events.Landing'::regclass::oid as oid, to_regclass('events.TakeOffEvent') as hidden, \
                  has_table_privilege('events.Landing', 'select') as may, has_table_privilege('events.Landing', 'update') as change";
    let (all, some) = (run(&sql, &admin, number).await.unwrap(), run(&sql, &ana, number).await.unwrap());
    let cells = |table: &str| -> Vec<String> {
        table.lines().nth(3).unwrap().split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let (all, some) = (cells(&all), cells(&some));
    assert_eq!(all[1], some[1]);
    assert!(!all[2].is_empty() && some[2].is_empty(), "{all:?} {some:?}");
    assert_eq!(
        (&some[3..5], &all[3..5]),
        (&["true".to_owned(), "false".into()][..], &["true".to_owned(), "true".into()][..])
    );
    let oid = &all[2];
    for query in [
        format!("select * from pg_attribute where attrelid = {oid}"),
        format!("select relname from pg_class where oid = {oid}"),
    ] {
        assert_eq!(
            run(&sql, &ana, &query).await.unwrap().lines().count(),
            run(&sql, &ana, &query.replace(oid.as_str(), "99")).await.unwrap().lines().count()
        );
    }
    // the same error for a table that is hidden and one that is not there
    let mut errors = vec![];
    for name in ["TakeOffEvent", "TakeOffEvens"] {
        let error = run(&sql, &ana, &format!("select 'events.{name}'::regclass")).await.unwrap_err();
        errors.push(error.to_string().replace(name, "NAME"));
    }
    assert_eq!(errors[0], errors[1]);
    let sizes = format!(
        "select pg_table_size({oid}) as size, {oid}::regclass::text as name, has_table_privilege({oid}, 'select') as may"
    );
    let sizes = cells(&run(&sql, &ana, &sizes).await.unwrap());
    assert_eq!(sizes[1..4], [String::new(), oid.clone(), String::new()]);
}

#[tokio::test]
async fn a_plan_that_was_kept_is_not_for_others() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let query = "select count(*) from events.TakeOffEvent";
    for _ in 0..3 {
        run(&sql, &Principal::system(), query).await.unwrap();
    }
    let error = run(&sql, &caller(&["read stream:Landing"]), query).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    run(&sql, &caller(&["read stream:*"]), query).await.unwrap();
}

#[tokio::test]
async fn a_hidden_collection_is_empty_where_missing_ones_are() {
    let (fixture, sql) = fixture::sql(State::Both, options()).await;
    fixture.collections.write().insert("Flight".to_owned(), vec![fixture::bytes(&bson::doc! { "_id": 1 })]);
    let count = async |caller: &Principal, name: &str| {
        let query = format!("select count(*) as n from docs.\"{name}\"");
        let request = QueryRequest::new(query, "http", caller.clone()).with_missing(MissingFields::Null);
        let rows = sql.run(request).await.unwrap().collect().await.unwrap();
        pretty_format_batches(&rows.batches).unwrap().to_string()
    };
    let name = "Flight";
    let all = count(&Principal::system(), name).await;
    let none = count(&Principal::system(), "gone").await;
    assert_ne!(all, none);
    assert_eq!(count(&caller(&["read collection:docs.Other"]), name).await, none);
    assert_eq!(count(&caller(&["read collection:docs.Fl*"]), name).await, all);
}

#[tokio::test]
async fn events_are_changed_by_who_may_write_them() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let delete = "delete from events.Landing where false";
    let error = run(&sql, &caller(&["read *"]), delete).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    assert!(error.to_string().contains("tidemill users grant ana write stream:Landing"), "{error}");
    run(&sql, &caller(&["write stream:Landing"]), delete).await.unwrap();
}

#[tokio::test]
async fn an_aggregation_needs_a_right_on_its_name() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let query = "select * from aggregation('Volumes', 'hours')";
    let error = run(&sql, &caller(&["read stream:*"]), query).await.unwrap_err();
    assert!(error.to_string().contains("tidemill users grant ana read table:Volumes"), "{error}");
    let error = run(&sql, &caller(&["read table:Volumes"]), query).await.unwrap_err();
    assert!(error.to_string().contains("there is no aggregation `Volumes`"), "{error}");
}

#[tokio::test]
async fn statements_are_those_of_the_caller() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let (ana, eva) = (caller(&["read *"]), Principal::user("eva", vec!["admin *".parse().unwrap()]));
    run(&sql, &ana, "select 1 as of_ana").await.unwrap();
    run(&sql, &eva, "select 2 as of_eva").await.unwrap();
    let list = "select caller, statement from system.statements where statement like 'select _ as%'";
    let seen = run(&sql, &ana, list).await.unwrap();
    assert!(seen.contains("of_ana") && !seen.contains("of_eva"), "{seen}");
    let seen = run(&sql, &eva, list).await.unwrap();
    assert!(seen.contains("of_ana") && seen.contains("of_eva"), "{seen}");
    let names = |caller: &Principal| -> Vec<String> {
        let mut names: Vec<String> = sql.statements(caller).into_iter().map(|one| one.caller).collect();
        names.dedup();
        names
    };
    assert_eq!(names(&ana), ["ana"]);
    // the number of a statement of another is that of none
    let endless = "select count(*) from generate_series(1, 2000000) a join generate_series(1, 2000000) b \
                   on a.value % 2 = b.value % 2";
    let running = sql.run(QueryRequest::new(endless, "http", eva.clone()));
    let cancelling = async {
        let id = loop {
            let found = sql.statements(&eva).into_iter().find(|one| one.text == endless);
            match found {
                Some(one) => break one.id,
                None => tokio::task::yield_now().await,
            }
        };
        assert_eq!(sql.cancel(id, &ana, "ana").unwrap_err().kind(), ErrorKind::NotFound);
        let killed = run(&sql, &ana, &format!("kill query {id}")).await.unwrap_err();
        assert_eq!(killed.kind(), ErrorKind::NotFound);
        sql.cancel(id, &eva, "eva").unwrap();
    };
    let (result, ()) = tokio::join!(
        async {
            match running.await {
                Ok(result) => result.collect().await.map(|_| ()),
                Err(error) => Err(error),
            }
        },
        cancelling
    );
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Conflict);
}
