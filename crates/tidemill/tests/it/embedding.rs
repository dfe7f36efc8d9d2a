//! A program that embeds Tidemill and depends only on `tidemill::…`.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tidemill::arrow_array::{ArrayRef, Float64Array, StringArray, TimestampMicrosecondArray, new_null_array};
use tidemill::{
    App, Bson, Clock, Collection, Document, Durability, ErrorKind, Explanation, FieldType, ManualClock,
    Process, ProcessLimits, QueryRows, Receiver, RecordBatch, SendOptions, SendReply, StreamSchema, Tidemill,
    Timestamp,
};
use tidemill_access::Principal;
use tidemill_database::{Database, Format, QueryRequest};

const RULES: &str = "
    event Sale { item: string, price: double } key item;
    event Dear { item: string } key item;
    entity Item key item;
    rule Pricy { when { s: Sale(price > 100); } then { emit Dear { item: s.item }; upsert Item { item: s.item, price: s.price }; } }
";

/// Returns rows of `Sale`, in the columns of [`StreamSchema::batch_schema`].
fn sales(schema: &StreamSchema, rows: &[(&str, f64)]) -> RecordBatch {
    let batch = schema.batch_schema();
    let columns: Vec<ArrayRef> = batch
        .fields()
        .iter()
        .map(|field| -> ArrayRef {
            match field.name().as_str() {
                "item" => Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.0))),
                "price" => Arc::new(Float64Array::from_iter_values(rows.iter().map(|r| r.1))),
                "_time" => {
                    Arc::new(TimestampMicrosecondArray::from(vec![5; rows.len()]).with_timezone("UTC"))
                }
                _ => new_null_array(field.data_type(), rows.len()),
            }
        })
        .collect();
    RecordBatch::try_new(batch, columns).unwrap()
}

#[test]
fn a_program_needs_no_other_crate() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    clock.set(Timestamp::parse("2026-01-01T00:00:00Z").unwrap());
    let shared: Arc<dyn Clock> = clock.clone();
    let app = App::from_rules("shop", RULES);
    let tidemill = Tidemill::open_with_clock(dir.path(), app, shared).unwrap();

    let schema: Arc<StreamSchema> = tidemill.engine().stream_schema("Sale").unwrap().clone();
    assert_eq!(schema.fields[1].ty, FieldType::Double);
    let dear: Receiver<RecordBatch> = tidemill.subscribe("Dear").unwrap();
    let options = SendOptions { durability: Some(Durability::Os), wait: true, origin: "test".into() };
    let batch = sales(&schema, &[("tea", 3.5), ("car", 9000.0), ("bread", 2.0)]);
    let reply: SendReply = tidemill.send_batch("Sale", batch, &options).unwrap();
    assert_eq!((reply.accepted, reply.durability.as_str()), (3, "os"));
    let ids = reply.events.unwrap();
    assert_eq!(ids.iter().flatten().count(), 3);

    let rows: QueryRows = tidemill.sql("SELECT item, price FROM events.\"Sale\" ORDER BY price").unwrap();
    assert_eq!(rows.num_rows(), 3);
    assert_eq!(dear.try_iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
    let items: Collection<'_> = tidemill.collection("Item");
    let car: Document = items.get("car").unwrap().unwrap();
    assert_eq!(car.get("price"), Some(&Bson::Double(9000.0)));
    let selector = ids[1].as_ref().unwrap().parse().unwrap();
    let why: Vec<Explanation> = tidemill.engine().why(Some("Pricy"), &selector).unwrap();
    assert!(why[0].to_string().contains("Pricy fired"), "{}", why[0]);
    assert_eq!(tidemill.subscribe("Sail").unwrap_err().kind(), ErrorKind::NotFound);
    tidemill.close().unwrap();
}

#[test]
fn apps_of_one_process_have_data_of_their_own_and_common_limits() {
    let dir = tempfile::tempdir().unwrap();
    let limits = ProcessLimits { sql_memory_bytes: Some(64 << 20), ..ProcessLimits::of_memory(1 << 30) };
    let process = Process::new(limits).unwrap();
    let app = |name: &str, rules: &str| {
        let mut app = App::from_rules(name, rules);
        app.settings.memory = Some(512 << 20);
        app
    };
    let [shop, market] =
        ["shop", "market"].map(|name| process.open_with(dir.path().join(name), app(name, RULES)).unwrap());
    let dear = |tidemill: &Tidemill| {
        let rows = tidemill.sql("SELECT item FROM events.\"Dear\"").unwrap().num_rows();
        assert_eq!(tidemill.collection("Item").get("car").unwrap().is_some(), rows == 1);
        rows
    };
    let reply = shop.send("Sale", &serde_json::json!({"item": "car", "price": 9000.0})).unwrap();
    market.send("Sale", &serde_json::json!({"item": "tea", "price": 3.5})).unwrap();
    assert_eq!([dear(&shop), dear(&market)], [1, 0]);
    let event = reply.events.unwrap()[0].as_ref().unwrap().parse().unwrap();
    assert!(shop.engine().why(Some("Pricy"), &event).unwrap()[0].to_string().contains("Pricy fired"));

    // the statements of both have one memory: a sort that one of them does not finish leaves the other one too little
    let sort = "SELECT repeat(md5(cast(value as varchar)), 4) AS t FROM generate_series(1, 12000) ORDER BY t";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let page = |tidemill: &Tidemill| {
        let request = QueryRequest::new(sort, "test", Principal::system());
        let rows = NonZeroUsize::new(10).unwrap();
        let asked = tidemill.database().query_paged(request, Format::Csv, rows);
        runtime.block_on(async move {
            let mut reply = asked.await?;
            reply.pages.next_page().await.map(|_| reply)
        })
    };
    let mut kept = vec![];
    let refused = loop {
        match page(&shop) {
            Ok(reply) => kept.push(reply),
            Err(e) => break e,
        }
        assert!(kept.len() < 64);
    };
    assert!(refused.to_string().contains("may hold 16777216"), "{refused}");
    let refused = page(&market).err().unwrap();
    assert!(refused.to_string().contains("may hold 16777216"), "{refused}");

    // an app is replaced while the other one works
    drop(kept);
    shop.close().unwrap();
    assert_eq!(process.apps().iter().map(|app| app.name.as_str()).collect::<Vec<_>>(), ["market"]);
    let page_after = page(&market);
    assert!(page_after.is_ok(), "{:?}", page_after.err());
    let more = format!("{RULES} event Cheap {{ item: string }} key item;");
    let shop = process.open_with(dir.path().join("shop"), app("shop", &more)).unwrap();
    assert_eq!([dear(&shop), dear(&market)], [1, 0]);
    assert_eq!(shop.sql("SELECT * FROM events.\"Cheap\"").unwrap().num_rows(), 0);
    assert!(process.apps().iter().all(|app| app.health.ready && app.health.problems.is_empty()));
    shop.close().unwrap();
    market.close().unwrap();
    let alone = Tidemill::open(dir.path().join("shop")).unwrap();
    assert_eq!(dear(&alone), 1);
    alone.close().unwrap();
}
