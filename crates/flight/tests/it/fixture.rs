//! A server over fixed batches, and clients for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray, StringViewArray,
    TimestampMicrosecondArray,
};
use arrow_cast::display::array_value_to_string;
use arrow_flight::FlightInfo;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tidemill_access::{Action, Principal, Resource};
use tidemill_database::{
    BatchReply, Database, Description, EncodedReply, Format, Parameter, QueryRequest, RejectedEvent,
    SendReceipt, SendRequest, StatementInfo,
};
use tidemill_flight::{FlightFrontEnd, FlightOptions, FlightSql};
use tidemill_gateway::{Gateway, ListenOptions, Listener, Metrics, TlsFiles};
use tidemill_types::{Error, Result, Value};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub type Client = FlightSqlServiceClient<Channel>;

/// Streams of the database, and a table of each other kind.
const TABLES: [(&str, &str, &str); 4] = [
    ("events", "Readings", "BASE TABLE"),
    ("events", "Read_ings", "BASE TABLE"),
    ("system", "statements", "BASE TABLE"),
    ("information_schema", "tables", "VIEW"),
];

/// Answers fixed rows for statements that name them: `rows N`, `types`, `wait`, `fail N`, `wide N`, `echo TYPE…`, `same`, `user`, `missing`; `DELETE N`.
#[derive(Default)]
pub struct FixedDatabase {
    /// Statements whose rows have not ended.
    running: Arc<AtomicUsize>,
    /// Changes that were made.
    changes: Arc<AtomicUsize>,
    /// Events that were sent, by the number of the request.
    sent: Arc<Mutex<Vec<Vec<i64>>>>,
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn types() -> RecordBatch {
    let kinds: DictionaryArray<Int32Type> = vec![Some("x"), None, Some("x")].into_iter().collect();
    let times = TimestampMicrosecondArray::from(vec![Some(1_714_557_600_123_456), None, Some(0)])
        .with_timezone("UTC");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(-1)]))),
        (
            "v",
            Arc::new(StringViewArray::from(vec![Some("a text that is longer than a view"), None, Some("é")])),
        ),
        ("k", Arc::new(kinds)),
        ("at", Arc::new(times)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

pub fn numbers(from: i64, to: i64) -> RecordBatch {
    let texts: StringArray = (from..to).map(|n| Some(format!("row {n}"))).collect();
    let columns: [(&str, ArrayRef); 2] =
        [("n", Arc::new(Int64Array::from_iter_values(from..to))), ("t", Arc::new(texts))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn texts(name: &str, values: Vec<Option<String>>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(name, Arc::new(StringArray::from(values)) as ArrayRef, true)])
        .unwrap()
}

fn listed(names: [&str; 4], rows: Vec<[String; 4]>, columns: usize) -> RecordBatch {
    let fields: Vec<Field> =
        names[..columns].iter().map(|name| Field::new(*name, DataType::Utf8, false)).collect();
    let arrays = (0..columns)
        .map(|c| Arc::new(rows.iter().map(|row| Some(row[c].clone())).collect::<StringArray>()) as ArrayRef);
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays.collect()).unwrap()
}

fn visible(
    principal: &Principal,
) -> impl Iterator<Item = &'static (&'static str, &'static str, &'static str)> {
    TABLES.iter().filter(|(schema, name, _)| {
        *schema != "events" || principal.can(Action::Read, &Resource::stream(name))
    })
}

/// Types that `echo` expects, by the words behind it.
fn parameter_type(word: &str) -> Option<DataType> {
    Some(match word {
        "int8" => DataType::Int64,
        "bool" => DataType::Boolean,
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "text" => DataType::Utf8View,
        _ => return None,
    })
}

impl FixedDatabase {
    /// Rows of a statement, and whether more of them never come.
    fn batches(&self, request: &QueryRequest) -> Result<(SchemaRef, Vec<Result<RecordBatch>>, bool)> {
        let text = request.text.trim();
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
        let of =
            |batches: Vec<RecordBatch>| (batches[0].schema(), batches.into_iter().map(Ok).collect(), false);
        if text.ends_with("information_schema.schemata") {
            let row = |schema: &str| ["tidemill".to_owned(), schema.to_owned(), String::new(), String::new()];
            let rows = ["events", "docs", "system", "information_schema"].map(row).to_vec();
            return Ok(of(vec![listed(["catalog_name", "schema_name", "", ""], rows, 2)]));
        }
        if text.ends_with("information_schema.tables") {
            let row = |(schema, name, kind): &(&str, &str, &str)| {
                ["tidemill", *schema, *name, *kind].map(str::to_owned)
            };
            let rows = visible(&request.principal).map(row).collect();
            let names = ["table_catalog", "table_schema", "table_name", "table_type"];
            return Ok(of(vec![listed(names, rows, 4)]));
        }
        if let Some(table) = text.strip_prefix("SELECT * FROM ") {
            let is_it = |(schema, name, _): &&(&str, &str, &str)| format!("\"{schema}\".\"{name}\"") == table;
            return match visible(&request.principal).find(is_it) {
                Some(_) => Ok(of(vec![numbers(0, 2)])),
                None => Err(Error::not_found(format!("there is no table `{table}`"))),
            };
        }
        Ok(match words.get(1).copied().unwrap_or_default() {
            "types" => of(vec![types()]),
            "rows" => {
                let starts = (0..number(2).max(1)).step_by(1_000);
                of(starts.map(|start| numbers(start, (start + 1_000).min(number(2)))).collect())
            }
            "wait" => (numbers(0, 0).schema(), vec![Ok(numbers(0, 1))], true),
            "panic" => panic!("as the test asked"),
            "fail" => {
                let error = Error::limit("the query needs more memory (`sql.memory_bytes`) than there is");
                (numbers(0, 0).schema(), vec![Ok(numbers(0, number(2))), Err(error)], false)
            }
            "wide" => of(vec![texts("w", vec![Some("x".repeat(1_000)); number(2) as usize])]),
            "echo" => {
                let shown = request.parameters.iter().map(|value| match value {
                    Parameter::Value(Value::Null) => None,
                    value => Some(value.to_string()),
                });
                of(vec![texts("value", shown.collect())])
            }
            "same" => match request.parameters.first() {
                None => (Arc::new(Schema::new(vec![Field::new("v", DataType::Null, true)])), vec![], false),
                Some(Parameter::Value(Value::Int(n))) => of(vec![numbers(*n, n + 1).project(&[0]).unwrap()]),
                Some(other) => of(vec![texts("n", vec![Some(other.to_string())])]),
            },
            "user" => of(vec![texts("user", vec![Some(request.principal.name().to_owned())])]),
            "missing" => {
                return Err(Error::not_found("line 1, column 8: there is no table `missing`")
                    .with_hint(". Did you mean `rows`?"));
            }
            _ if words[0] == "DELETE" => {
                let deleted: ArrayRef = Arc::new(Int64Array::from(vec![number(1)]));
                of(vec![RecordBatch::try_from_iter([("deleted", deleted)]).unwrap()])
            }
            other => {
                return Err(Error::invalid(format!(
                    "line 1, column 8: expected a word of the fixture, found {other}"
                )));
            }
        })
    }

    fn receive(&self, request: SendRequest) -> Result<SendReceipt> {
        request.principal.may(Action::Write, &Resource::stream(&request.stream))?;
        if request.stream != "Readings" {
            return Err(Error::not_found(format!("there is no stream `{}`", request.stream)));
        }
        let failed = |e: arrow_schema::ArrowError| Error::invalid(e.to_string());
        let reader = StreamReader::try_new(std::io::Cursor::new(request.events), None).map_err(failed)?;
        let mut numbers = vec![];
        for batch in reader {
            let batch = batch.map_err(failed)?;
            let column = batch.column_by_name("n").ok_or_else(|| Error::invalid("there is no column `n`"))?;
            numbers.extend(column.as_primitive::<Int64Type>().values());
        }
        let is_bad = |n: &i64| *n < 0;
        let rejected = numbers.iter().enumerate().filter(|(_, n)| is_bad(n));
        let rejected =
            rejected.map(|(row, n)| RejectedEvent { row: row as u64, reason: format!("{n} is negative") });
        let rejected: Vec<_> = rejected.collect();
        numbers.retain(|n| !is_bad(n));
        let accepted = numbers.len() as u64;
        self.sent.lock().push(numbers);
        Ok(SendReceipt { accepted, rejected })
    }
}

impl Database for FixedDatabase {
    fn query(&self, request: QueryRequest) -> BoxFuture<'static, Result<BatchReply>> {
        assert_eq!(request.origin, "flight");
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(self.running.clone());
        if request.text.starts_with("DELETE") {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        let made = self.batches(&request);
        Box::pin(async move {
            let (schema, batches, is_endless) = made?;
            let batches = stream::iter(batches);
            let batches = match is_endless {
                true => batches.chain(stream::pending()).boxed(),
                false => batches.boxed(),
            };
            let batches = batches.inspect(move |_| {
                let _ = &running;
            });
            Ok(BatchReply::new(schema, batches.boxed()))
        })
    }

    fn query_encoded(&self, _: QueryRequest, _: Format) -> BoxFuture<'static, Result<EncodedReply>> {
        Box::pin(async { Err(Error::invalid("the protocol asks for batches")) })
    }

    fn describe(&self, request: QueryRequest) -> BoxFuture<'static, Result<Description>> {
        let made = self.batches(&request);
        Box::pin(async move {
            let (columns, ..) = made?;
            let mut words = request.text.split_whitespace().skip(1);
            let parameters = match words.next() {
                Some("echo") => words.map(parameter_type).collect(),
                Some("same") => vec![None],
                _ => vec![],
            };
            Ok(Description::new(parameters, columns))
        })
    }

    fn send(&self, request: SendRequest) -> BoxFuture<'static, Result<SendReceipt>> {
        let receipt = self.receive(request);
        Box::pin(async move { receipt })
    }

    fn statements(&self, _: &Principal) -> Vec<StatementInfo> {
        vec![]
    }

    fn cancel(&self, _: u64, _: &Principal, _: &str) -> Result<()> {
        Err(Error::not_found("no statement runs"))
    }
}

/// A server over fixed batches.
pub struct Server {
    pub address: SocketAddr,
    running: Arc<AtomicUsize>,
    pub changes: Arc<AtomicUsize>,
    pub sent: Arc<Mutex<Vec<Vec<i64>>>>,
    gateway: Gateway,
}

impl Server {
    pub async fn start() -> Self {
        Self::with(FlightOptions::default()).await
    }

    pub async fn with(options: FlightOptions) -> Self {
        Self::with_tls(options, None).await
    }

    pub async fn with_tls(options: FlightOptions, tls: Option<TlsFiles>) -> Self {
        let database = FixedDatabase::default();
        let (running, changes, sent) =
            (database.running.clone(), database.changes.clone(), database.sent.clone());
        let front_end = FlightFrontEnd::new(FlightSql::new(Arc::new(database), options));
        let listen = ListenOptions { tls, ..ListenOptions::new(([127, 0, 0, 1], 0).into()) };
        let listener = Listener::bind(Arc::new(front_end), listen).await.unwrap();
        let address = listener.address();
        let gateway = Gateway::start(vec![listener], Arc::new(Metrics::default()));
        Self { address, running, changes, sent, gateway }
    }

    pub async fn channel(&self) -> Channel {
        Endpoint::new(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub async fn client(&self) -> Client {
        FlightSqlServiceClient::new(self.channel().await)
    }

    /// Waits until no statement has rows any more.
    pub async fn all_ended(&self) {
        while self.running.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn shutdown(self, grace: Duration) -> usize {
        self.gateway.shutdown(grace).await
    }
}

/// Returns the status of a call that was refused.
pub fn refused<T>(result: Result<T, FlightError>) -> Status {
    match result {
        Err(FlightError::Tonic(status)) => *status,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the call was not refused"),
    }
}

pub fn assert_refused<T>(result: Result<T, FlightError>, code: Code, part: &str) {
    let status = refused(result);
    assert!(status.code() == code && status.message().contains(part), "{status}");
}

/// Returns the rows of the only endpoint.
pub async fn fetch(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    let [endpoint] = info.endpoint.as_slice() else { panic!("{info}") };
    assert!(endpoint.location.is_empty());
    let rows = client.do_get(endpoint.ticket.clone().unwrap()).await?;
    rows.try_collect().await
}

pub async fn query(client: &mut Client, text: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(text.to_owned(), None).await?;
    fetch(client, info).await
}

/// Shows rows as texts, the values separated by `|`.
pub fn show(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = vec![];
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| match column.is_null(row) {
                true => "NULL".to_owned(),
                false => array_value_to_string(column, row).unwrap(),
            };
            rows.push(batch.columns().iter().map(value).collect::<Vec<_>>().join("|"));
        }
    }
    rows
}
