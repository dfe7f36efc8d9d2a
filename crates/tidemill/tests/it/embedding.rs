//! A program that embeds Tidemill and depends only on `tidemill::…`.

use std::sync::Arc;

use tidemill::arrow_array::{ArrayRef, Float64Array, StringArray, TimestampMicrosecondArray, new_null_array};
use tidemill::{
    App, Bson, Clock, Collection, Document, Durability, ErrorKind, Explanation, FieldType, ManualClock,
    QueryRows, Receiver, RecordBatch, SendOptions, SendReply, StreamSchema, Tidemill, Timestamp,
};

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
