//! Documents as tables: any shape, order and number of documents.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use bson::{Bson, Document, doc};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tidemill_access::Principal;
use tidemill_database::QueryRequest;
use tidemill_sql::{MissingFields, QueryRows, Sql};

use crate::fixture::{Fixture, bytes, options};

async fn session(documents: Vec<Bytes>) -> Sql {
    let fixture = Fixture::empty().await;
    fixture.collections.write().insert("c".into(), documents);
    Sql::new(Arc::new(fixture), options()).unwrap()
}

async fn rows(sql: &Sql, query: &str) -> QueryRows {
    sql.query(query).await.unwrap().collect().await.unwrap()
}

async fn number(sql: &Sql, query: &str) -> i64 {
    let rows = rows(sql, query).await;
    rows.batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// Generates a document with fields in random order, each missing in some documents, and one of a varying
/// type.
fn document(rng: &mut StdRng, n: i64) -> Document {
    let mut fields: Vec<(String, Bson)> = vec![("_id".into(), Bson::Int64(n))];
    for f in 0..12 {
        if rng.random_bool(0.7) {
            fields.push((format!("f{f}"), Bson::Double(n as f64 + f as f64 / 16.0)));
        }
    }
    fields.push(("even".into(), if n % 2 == 0 { Bson::Boolean(true) } else { Bson::Null }));
    fields.push(("nested".into(), Bson::Document(doc! { "n": n, "list": [n, { "deep": "x" }] })));
    if n == 40_000 {
        fields.push(("late".into(), Bson::Int32(7)));
        fields.push(("f3b".into(), Bson::String("text".into())));
    }
    fields.shuffle(rng);
    fields.into_iter().collect()
}

fn null_for_missing(query: &str) -> QueryRequest {
    QueryRequest::new(query, "test", Principal::system()).with_missing(MissingFields::Null)
}

#[tokio::test]
async fn columns_hold_what_the_documents_hold() {
    let seed = rand::random::<u64>();
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let documents: Vec<Document> = (0..45_000).map(|n| document(&mut rng, n)).collect();
    let sql = session(documents.iter().map(bytes).collect()).await;

    let result = rows(&sql, "select * from docs.c order by _id").await;
    assert_eq!(result.num_rows(), documents.len());
    let mut n = 0;
    for batch in &result.batches {
        let column = |name: &str| batch.column_by_name(name).unwrap();
        for row in 0..batch.num_rows() {
            let document = &documents[n];
            for f in 0..12 {
                let name = format!("f{f}");
                let cell = column(&name).as_primitive::<Float64Type>();
                let found = cell.is_valid(row).then(|| cell.value(row));
                assert_eq!(found, document.get_f64(&name).ok(), "document {n}, {name}");
            }
            let even = column("even").as_boolean();
            assert_eq!(even.is_valid(row), n % 2 == 0);
            let whole: serde_json::Value =
                serde_json::from_str(column("_doc").as_string::<i32>().value(row)).unwrap();
            assert_eq!(whole, Bson::Document(document.clone()).into_relaxed_extjson());
            n += 1;
        }
    }
    // a field that only one document has, far from the first
    assert_eq!(number(&sql, "select sum(late) from docs.c where f3b = 'text'").await, 7);
    assert_eq!(
        number(&sql, "select count(*) from docs.c where json_get_int(nested, 'list', 0) = _id").await,
        45_000
    );
}

#[tokio::test]
async fn tables_have_a_widest_width() {
    let mut wide = Document::new();
    wide.insert("_doc", "shadowed");
    for f in 0..3_000 {
        wide.insert(format!("f{f}"), f);
    }
    wide.insert("_id", "last");
    let sql = session(vec![bytes(&wide)]).await;
    let schema = rows(&sql, "select * from docs.c").await.schema;
    assert_eq!(schema.fields().len(), 1_001);
    assert_eq!(schema.field(0).name(), "_id");
    assert_eq!(schema.field(1_000).name(), "_doc");
    assert_eq!(number(&sql, "select json_get_int(_doc, 'f2999') from docs.c").await, 2_999);
    let shadowed = rows(&sql, "select json_get_str(_doc, '_doc') from docs.c").await;
    assert_eq!(shadowed.batches[0].column(0).as_string::<i32>().value(0), "shadowed");
}

#[tokio::test]
async fn types_are_joined() {
    let cases = [
        (vec![Bson::Int32(1), Bson::Int64(2)], DataType::Int64),
        (vec![Bson::Int32(1), Bson::Double(2.5), Bson::Null], DataType::Float64),
        (vec![Bson::Null], DataType::Utf8),
        (vec![Bson::Boolean(true), Bson::Null], DataType::Boolean),
        (vec![Bson::Boolean(true), Bson::Int32(1)], DataType::Utf8),
        (vec![Bson::String("a".into()), Bson::Int32(1)], DataType::Utf8),
        (vec![Bson::Array(vec![])], DataType::Utf8),
        (vec![Bson::DateTime(bson::DateTime::from_millis(i64::MAX)), Bson::Null], timestamp()),
    ];
    for (values, expected) in cases {
        let documents = values.iter().map(|v| bytes(&doc! { "x": v.clone() })).collect();
        let sql = session(documents).await;
        let result = rows(&sql, "select x from docs.c").await;
        assert_eq!(result.schema.field(0).data_type(), &expected, "{values:?}");
        assert_eq!(result.num_rows(), values.len());
    }
}

fn timestamp() -> DataType {
    DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()))
}

/// Collections reject damaged bytes; should a document be damaged anyway, a query reads the intact part and
/// does not panic.
#[tokio::test]
async fn damaged_documents_do_not_panic() {
    let whole = bytes(
        &doc! { "_id": 1, "text": "some text", "list": [1, { "a": 2.5 }], "at": bson::DateTime::from_millis(5) },
    );
    let mut documents = vec![Bytes::new(), whole.slice(..3)];
    for at in 4..whole.len() {
        documents.push(whole.slice(..at));
        let mut flipped = whole.to_vec();
        flipped[at] ^= 0xff;
        documents.push(flipped.into());
    }
    let count = documents.len();
    let sql = session(documents).await;
    assert_eq!(rows(&sql, "select * from docs.c").await.num_rows(), count);
}

#[tokio::test]
async fn fields_and_collections_to_come_are_null_for_programs() {
    let sql = session(vec![bytes(&doc! { "_id": 1, "seats": 100, "model": { "name": "A320" } })]).await;
    let query = r#"SELECT count(*) AS c0, min("f"."model"['name']) AS c1, count("p"."gone") AS c2
        FROM docs."c" AS "f" LEFT JOIN docs."Later" AS "p" ON "p"."id" = "f"."next" AND NOT ("p"."gone" IS NOT NULL)
        WHERE CAST("f"."seats" AS DOUBLE) > 50 AND "f"."model"['name'] IS NOT NULL AND "f"."other"['x'] IS NULL"#;
    let refused = sql.query(query).await.unwrap_err();
    assert!(refused.to_string().contains("there is no collection `Later`"), "{refused}");
    let rows = sql.run(null_for_missing(query)).await.unwrap().collect().await.unwrap();
    let batch = &rows.batches[0];
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 1);
    assert_eq!(batch.column(1).as_string::<i32>().value(0), "A320");
    assert_eq!(batch.column(2).as_primitive::<Int64Type>().value(0), 0);
    // a missing value coerces to every type
    let query = r#"SELECT sum(CASE WHEN coalesce("$c"."late", FALSE) THEN 1 ELSE 0 END) AS c0, avg(CAST("$c"."delay" AS DOUBLE)) AS c1,
        max(CAST("$c"."other"['x'] AS DOUBLE)) AS c2, min(arrow_cast("$c"."at", 'Timestamp(Microsecond, Some("UTC"))')) AS c3
        FROM docs."c" AS "$c" WHERE coalesce("$c"."factor", 1.5) > 1 AND "$c"."gone" IS NULL"#;
    let rows = sql.run(null_for_missing(query)).await.unwrap().collect().await.unwrap();
    let batch = &rows.batches[0];
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 0);
    assert!(
        (1..4).all(|c| batch.column(c).is_null(0) || batch.column(c).data_type() == &DataType::Null),
        "{batch:?}"
    );
    // tables other than collections still reject missing fields
    let wrong = sql.run(null_for_missing("select nothing from system.ledger")).await.unwrap_err();
    assert!(wrong.to_string().contains("there is no column `nothing`"), "{wrong}");
}

#[tokio::test]
async fn a_field_that_no_document_has_is_null_in_all_of_many() {
    let documents = (0..30_000).map(|n| bytes(&doc! { "_id": n, "kind": n % 3 })).collect();
    let sql = session(documents).await;
    let query = "select kind, count(*) as n, count(nowhere) as found from docs.c where nowhere is null \
        group by kind order by kind";
    let rows = sql.run(null_for_missing(query)).await.unwrap().collect().await.unwrap();
    let column = |at: usize| rows.batches[0].column(at).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!((column(0), column(1), column(2)), (vec![0, 1, 2], vec![10_000; 3], vec![0; 3]));
}
