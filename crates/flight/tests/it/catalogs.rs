//! Catalogs.

use arrow_array::cast::AsArray;
use arrow_flight::IpcMessage;
use arrow_flight::sql::{
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, SqlInfo,
};
use arrow_schema::Schema;
use tidemill_flight::FlightOptions;

use crate::fixture::{Client, Server, fetch, show};
use crate::login::{TOKEN, access};

async fn tables(client: &mut Client, command: CommandGetTables) -> Vec<String> {
    let info = client.get_tables(command).await.unwrap();
    let announced = info.clone().try_decode_schema().unwrap();
    let rows = fetch(client, info).await.unwrap();
    assert!(rows.iter().all(|batch| batch.schema().fields().len() == announced.fields().len()));
    show(&rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogs_schemas_and_tables_are_listed_by_patterns() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(show(&fetch(&mut client, info).await.unwrap()), ["tidemill"]);
    let of = |pattern: Option<&str>| CommandGetDbSchemas {
        catalog: Some("tidemill".to_owned()),
        db_schema_filter_pattern: pattern.map(str::to_owned),
    };
    let info = client.get_db_schemas(of(Some("%e%s"))).await.unwrap();
    assert_eq!(show(&fetch(&mut client, info).await.unwrap()), ["tidemill|events"]);
    let info = client.get_db_schemas(of(None)).await.unwrap();
    assert_eq!(fetch(&mut client, info).await.unwrap()[0].num_rows(), 4);
    let info = client.get_table_types().await.unwrap();
    assert_eq!(show(&fetch(&mut client, info).await.unwrap()), ["TABLE", "VIEW"]);

    let all = tables(&mut client, CommandGetTables::default()).await;
    assert_eq!(
        all,
        [
            "tidemill|events|Read_ings|TABLE",
            "tidemill|events|Readings|TABLE",
            "tidemill|information_schema|tables|VIEW",
            "tidemill|system|statements|TABLE"
        ]
    );
    let named = |schema: Option<&str>, table: Option<&str>| CommandGetTables {
        db_schema_filter_pattern: schema.map(str::to_owned),
        table_name_filter_pattern: table.map(str::to_owned),
        ..CommandGetTables::default()
    };
    assert_eq!(
        tables(&mut client, named(Some("events"), Some(r"Read\_%"))).await,
        ["tidemill|events|Read_ings|TABLE"]
    );
    assert_eq!(tables(&mut client, named(None, Some("Read_ings"))).await.len(), 1);
    assert_eq!(tables(&mut client, named(Some(""), None)).await.len(), 0);
    let views = CommandGetTables { table_types: vec!["VIEW".to_owned()], ..CommandGetTables::default() };
    assert_eq!(tables(&mut client, views).await.len(), 1);
    let elsewhere = CommandGetTables { catalog: Some("other".to_owned()), ..CommandGetTables::default() };
    assert_eq!(tables(&mut client, elsewhere).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_come_with_their_columns() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let command = CommandGetTables {
        include_schema: true,
        table_name_filter_pattern: Some("Readings".to_owned()),
        ..CommandGetTables::default()
    };
    let info = client.get_tables(command).await.unwrap();
    let rows = fetch(&mut client, info).await.unwrap();
    assert_eq!(rows[0].num_rows(), 1);
    let schema = rows[0].column(4).as_binary::<i32>().value(0);
    let schema = Schema::try_from(IpcMessage(schema.to_vec().into())).unwrap();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["n", "t"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sees_the_tables_that_are_granted() {
    let dir = tempfile::tempdir().unwrap();
    let (access, token) = access(&dir, &["read stream:Readings"]);
    let options =
        FlightOptions { token: Some(TOKEN.to_owned()), access: Some(access), ..FlightOptions::default() };
    let server = Server::with(options).await;
    let mut client = server.client().await;
    client.set_token(token);
    for include_schema in [false, true] {
        let command = CommandGetTables { include_schema, ..CommandGetTables::default() };
        let rows = tables(&mut client, command).await;
        assert!(
            rows[0].contains("|Readings|") && rows.iter().all(|row| !row.contains("Read_ings")),
            "{rows:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_types_and_properties_are_answered() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let command = CommandGetPrimaryKeys { table: "Readings".to_owned(), ..CommandGetPrimaryKeys::default() };
    let info = client.get_primary_keys(command).await.unwrap();
    assert_eq!(info.clone().try_decode_schema().unwrap().fields().len(), 6);
    assert!(show(&fetch(&mut client, info).await.unwrap()).is_empty());
    let info = client.get_imported_keys(Default::default()).await.unwrap();
    assert!(show(&fetch(&mut client, info).await.unwrap()).is_empty());
    let info = client.get_exported_keys(Default::default()).await.unwrap();
    assert!(show(&fetch(&mut client, info).await.unwrap()).is_empty());
    let info = client.get_cross_reference(Default::default()).await.unwrap();
    assert_eq!(info.try_decode_schema().unwrap().fields().len(), 13);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(-5) }).await.unwrap();
    let rows = show(&fetch(&mut client, info).await.unwrap());
    assert!(rows.len() == 1 && rows[0].starts_with("bigint|-5|19|"), "{rows:?}");
    let info = client
        .get_sql_info(vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerTransaction])
        .await
        .unwrap();
    let rows = show(&fetch(&mut client, info).await.unwrap());
    assert_eq!(rows, ["0|{string_value=Tidemill}", "8|{int32_bitmask=0}"]);
}
