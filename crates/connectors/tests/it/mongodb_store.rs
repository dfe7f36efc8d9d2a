//! Tables of apps in MongoDB, as `@store(type='mongodb')` makes them. The server is that of this program, on a socket.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use mongodb::bson::{Document, doc};
use tempfile::TempDir;
use tidemill_connect::{
    StoreArithmetic, StoreComparison, StoreConfig, StoreContext, StoreExpr, StoreIndex, StoreMonitor,
    StoreUpdate, StoredRow, TableStore, WritePosition, all_values, runtime,
};
use tidemill_engine::{App, Engine};
use tidemill_mongo::{MongoOptions, MongoServer, serve};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{ErrorKind, Field, FieldType, Offset, PartitionId, StreamSchema, Timestamp, Value};

const PASSWORD: &str = "0123456789abcdef";

/// A server with its data.
pub struct Server {
    engine: Arc<Engine>,
    server: Option<MongoServer>,
    _dir: TempDir,
}

impl Server {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut app = App::from_rules("docs", "entity Customer key id;");
        app.settings.partitions = 2;
        let engine = Arc::new(Engine::open(dir.path(), Some(app)).unwrap());
        let options = MongoOptions { password: Some(PASSWORD.into()), ..MongoOptions::default() };
        let address = ([127, 0, 0, 1], 0).into();
        let server = runtime().block_on(serve(address, engine.clone(), options)).unwrap();
        Self { engine, server: Some(server), _dir: dir }
    }

    pub fn uri(&self) -> String {
        let port = self.server.as_ref().unwrap().addr().port();
        format!("mongodb://admin:{PASSWORD}@127.0.0.1:{port}/plant?authSource=admin&directConnection=true")
    }

    pub fn documents(&self, collection: &str) -> Vec<Document> {
        runtime().block_on(async {
            let client = mongodb::Client::with_uri_str(self.uri()).await.unwrap();
            let collection = client.database("plant").collection::<Document>(collection);
            let options = mongodb::options::FindOptions::builder().projection(doc! { "_id": 0 }).build();
            let found = collection.find(doc! {}).with_options(options).await.unwrap();
            let mut all: Vec<Document> = futures::TryStreamExt::try_collect(found).await.unwrap();
            all.sort_by_key(|document| document.to_string());
            all
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            runtime().block_on(server.shutdown(Duration::from_secs(5)));
        }
        self.engine.abandon();
    }
}

const COLUMNS: [(&str, FieldType); 3] =
    [("symbol", FieldType::String), ("volume", FieldType::Long), ("price", FieldType::Double)];

fn schema() -> Arc<StreamSchema> {
    let fields = COLUMNS.map(|(name, ty)| Field::new(name, ty)).into();
    Arc::new(StreamSchema { name: "Stocks".into(), fields, key: None, id: vec![], time: None })
}

fn try_open(options: &[(&str, &str)], monitor: &Arc<StoreMonitor>) -> Result<Box<dyn TableStore>, String> {
    try_open_indexed(options, monitor, vec![])
}

fn try_open_indexed(
    options: &[(&str, &str)],
    monitor: &Arc<StoreMonitor>,
    special_indexes: Vec<StoreIndex>,
) -> Result<Box<dyn TableStore>, String> {
    let context = StoreContext {
        table: "Stocks".into(),
        writer: "stocks.siddhi".into(),
        schema: schema(),
        primary_key: vec![0],
        indexes: vec![1],
        special_indexes,
        long_texts: vec![],
        monitor: monitor.clone(),
    };
    let options = options.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let config = StoreConfig { kind: "mongodb".into(), options };
    tidemill_connectors::catalog().create_store(&config, &context).map_err(|e| e.to_string())
}

fn open(server: &Server) -> Box<dyn TableStore> {
    try_open(&[("mongodb.uri", &server.uri()), ("collection.name", "stocks")], &Arc::default()).unwrap()
}

/// Rows; a price of zero stands for a missing one.
fn stocks(rows: &[(&str, i64, f64)]) -> RecordBatch {
    let mut batch = BatchBuilder::new(schema());
    for (symbol, volume, price) in rows {
        let price = if *price == 0.0 { FieldValue::Missing } else { FieldValue::Float(*price) };
        let cells = [FieldValue::Text((*symbol).into()), FieldValue::Int(*volume), price];
        batch.push_values(&cells, Timestamp(0)).unwrap();
    }
    batch.finish().project(&[0, 1, 2]).unwrap()
}

fn at(offset: u64, call: u32) -> Option<WritePosition> {
    Some(WritePosition { partition: PartitionId(0), offset: Offset(offset), call })
}

fn compare(operator: StoreComparison, column: usize, parameter: usize) -> StoreExpr {
    StoreExpr::Compare(operator, StoreExpr::Column(column).into(), StoreExpr::Parameter(parameter).into())
}

fn rows(
    store: &mut Box<dyn TableStore>,
    condition: Option<&StoreExpr>,
    given: (&str, i64, f64),
) -> Vec<String> {
    let found = store.find(condition, &stocks(&[given]), None).unwrap();
    let cell = |value: &Value<'_>| match value {
        Value::Str(text) => text.to_string(),
        other => other.to_string(),
    };
    let text = |row: &StoredRow| row.iter().take(3).map(cell).collect::<Vec<String>>().join(" ");
    let mut rows: Vec<String> = all_values(&found).iter().map(text).collect();
    rows.sort();
    rows
}

#[test]
fn rows_are_found_changed_and_deleted() {
    use StoreComparison::{Eq, Ge, Lt, Ne};
    let server = Server::start();
    let mut store = open(&server);
    let refused = store
        .insert(&stocks(&[("a", 1, 1.5), ("b", 2, 0.0), ("a", 9, 9.0), ("c", 3, 3.0)]), at(1, 0))
        .unwrap();
    assert_eq!(refused.iter().map(|refused| refused.row).collect::<Vec<_>>(), [2]);
    assert!(refused[0].reason.contains("duplicate key"), "{}", refused[0].reason);
    assert_eq!(rows(&mut store, None, ("", 0, 0.0)), ["a 1 1.5", "b 2 missing", "c 3 3"]);
    assert_eq!(rows(&mut store, Some(&compare(Eq, 0, 0)), ("b", 0, 0.0)), ["b 2 missing"]);
    assert_eq!(rows(&mut store, Some(&compare(Ne, 2, 2)), ("", 0, 3.0)), ["a 1 1.5"], "null is not unequal");
    assert_eq!(rows(&mut store, Some(&compare(Lt, 2, 2)), ("", 0, 0.0)), [""; 0], "nothing is below null");
    let negated = StoreExpr::Not(compare(Lt, 2, 2).into());
    assert_eq!(rows(&mut store, Some(&negated), ("", 0, 2.0)), ["b 2 missing", "c 3 3"]);
    let either = StoreExpr::Or(
        StoreExpr::IsNull(StoreExpr::Column(2).into()).into(),
        StoreExpr::And(compare(Ge, 1, 1).into(), compare(Ne, 0, 0).into()).into(),
    );
    assert_eq!(rows(&mut store, Some(&either), ("c", 1, 0.0)), ["a 1 1.5", "b 2 missing"]);
    let columns = StoreExpr::Compare(Eq, StoreExpr::Column(1).into(), StoreExpr::Column(2).into());
    assert_eq!(rows(&mut store, Some(&columns), ("", 0, 0.0)), ["c 3 3"]);
    let half = StoreExpr::Arithmetic(
        StoreArithmetic::Div,
        StoreExpr::Column(1).into(),
        StoreExpr::Parameter(1).into(),
    );
    let halved = StoreExpr::Compare(Eq, half.into(), StoreExpr::Parameter(1).into());
    assert_eq!(rows(&mut store, Some(&halved), ("", 1, 0.0)), ["a 1 1.5"]);

    let add = StoreExpr::Arithmetic(
        StoreArithmetic::Add,
        StoreExpr::Column(1).into(),
        StoreExpr::Parameter(1).into(),
    );
    let change = StoreUpdate { condition: compare(Eq, 0, 0), set: vec![(1, add)] };
    let given = stocks(&[("a", 10, 0.0), ("d", 7, 7.0), ("d", 1, 0.0)]);
    assert_eq!(store.update(&change, &given, Some(&given), at(2, 0)).unwrap(), []);
    assert_eq!(rows(&mut store, Some(&compare(Ge, 1, 1)), ("", 3, 0.0)), ["a 11 1.5", "c 3 3", "d 8 7"]);
    let whole = StoreUpdate {
        condition: compare(Eq, 0, 0),
        set: (0..3).map(|column| (column, StoreExpr::Parameter(column))).collect(),
    };
    let given = stocks(&[("a", 5, 5.0), ("e", 6, 6.0), ("e", 7, 7.0)]);
    assert_eq!(store.update(&whole, &given, Some(&given), at(3, 0)).unwrap(), []);
    assert_eq!(store.delete(Some(&compare(Lt, 1, 1)), &stocks(&[("", 5, 0.0)]), at(4, 0)).unwrap(), []);
    assert_eq!(rows(&mut store, None, ("", 0, 0.0)), ["a 5 5", "d 8 7", "e 7 7"]);
}

#[test]
fn a_write_that_comes_again_does_nothing() {
    let server = Server::start();
    let mut store = open(&server);
    let first = stocks(&[("a", 1, 1.0), ("a", 2, 2.0)]);
    let refused = store.insert(&first, at(1, 0)).unwrap();
    assert_eq!(refused.len(), 1);
    let everything = store.delete(None, &stocks(&[("", 0, 0.0)]), at(1, 1)).unwrap();
    assert_eq!(everything, []);
    // the record is applied again, by a process that starts anew
    let mut store = open(&server);
    assert_eq!(store.insert(&first, at(1, 0)).unwrap(), refused, "with the same answer");
    assert_eq!(store.delete(None, &stocks(&[("", 0, 0.0)]), at(1, 1)).unwrap(), []);
    assert_eq!(server.documents("stocks"), []);
    assert_eq!(store.insert(&stocks(&[("b", 1, 1.0)]), at(2, 0)).unwrap(), []);
    assert_eq!(store.insert(&stocks(&[("c", 1, 1.0)]), None).unwrap(), []);
    assert_eq!(
        server.documents("stocks"),
        [
            doc! {"symbol": "b", "volume": 1_i64, "price": 1.0},
            doc! {"symbol": "c", "volume": 1_i64, "price": 1.0}
        ]
    );
}

#[test]
fn a_server_that_is_away_is_waited_for_until_the_stop() {
    let monitor = Arc::new(StoreMonitor::default());
    let port = crate::helpers::free_port();
    let uri = format!("mongodb://127.0.0.1:{port}/plant?serverSelectionTimeoutMS=100");
    let mut store = try_open(&[("mongodb.uri", &uri)], &monitor).unwrap();
    let finds = std::thread::spawn(move || store.find(None, &stocks(&[("", 0, 0.0)]), None));
    crate::helpers::wait_until("the problem is reported", || !monitor.problems().is_empty());
    monitor.stop();
    assert_eq!(finds.join().unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn wrong_options_are_refused() {
    for (options, message) in [
        (&[][..], "mongodb.uri"),
        (&[("mongodb.uri", "mongodb://localhost:27017")], "the URI names no database"),
        (&[("mongodb.uri", "mongodb+srv://db.example/x")], "write `mongodb://` with their hosts"),
        (&[("mongodb.uri", "http://user:secret@localhost/x")], "expected `mongodb://"),
        (
            &[
                ("mongodb.uri", "mongodb://localhost/x"),
                ("secure.connection", "true"),
                ("trust.store", "/no/such.pem"),
            ],
            "there is no file `/no/such.pem`",
        ),
        (
            &[("mongodb.uri", "mongodb://localhost/x"), ("trust.store", "a.pem")],
            "needs `secure.connection='true'`",
        ),
    ] {
        let refused = try_open(options, &Arc::default()).err().unwrap();
        assert!(refused.contains(message) && !refused.contains("secret"), "{refused}");
    }
}

#[test]
fn indexes_have_orders_and_options() {
    let server = Server::start();
    let unique = StoreIndex { columns: vec![(2, true)], unique: true, ..StoreIndex::default() };
    let named = StoreIndex {
        columns: vec![(1, false), (2, true)],
        name: Some("both".into()),
        sparse: true,
        ..StoreIndex::default()
    };
    let options = [("mongodb.uri", &*server.uri()), ("collection.name", "stocks")];
    let mut store = try_open_indexed(&options, &Arc::default(), vec![unique, named]).unwrap();
    let refused = store.insert(&stocks(&[("a", 1, 5.0), ("b", 1, 5.0), ("c", 1, 6.0)]), at(0, 0)).unwrap();
    assert_eq!(refused.iter().map(|refused| refused.row).collect::<Vec<_>>(), [1], "{refused:?}");
    let found = runtime().block_on(async {
        let client = mongodb::Client::with_uri_str(server.uri()).await.unwrap();
        let database = client.default_database().unwrap();
        let answer = database.run_command(mongodb::bson::doc! { "listIndexes": "stocks" }).await.unwrap();
        let listed = answer.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
        let mut names: Vec<String> = listed
            .iter()
            .map(|index| {
                let index = index.as_document().unwrap();
                let flag =
                    |name: &str| if index.contains_key(name) { format!(" {name}") } else { String::new() };
                format!(
                    "{} {}{}{}",
                    index.get_str("name").unwrap(),
                    index.get_document("key").unwrap(),
                    flag("unique"),
                    flag("sparse")
                )
            })
            .collect();
        names.sort();
        names
    });
    assert_eq!(
        found,
        [
            "_id_ { \"_id\": 1 }",
            "both { \"volume\": 1, \"price\": -1 } sparse",
            "price_-1 { \"price\": -1 } unique",
            "symbol_1 { \"symbol\": 1 } unique",
            "volume_1 { \"volume\": 1 }"
        ]
    );
}
