//! A database of fixed batches, and a server over it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::builder::{Int32Builder, ListBuilder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, DurationSecondArray,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray,
    NullArray, RecordBatch, StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow_buffer::{IntervalMonthDayNano, NullBuffer};
use arrow_schema::{DataType, Field as ArrowField, Schema, SchemaRef, TimeUnit};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use tidemill_access::Principal;
use tidemill_database::{
    AppendReceipt, AppendRequest, BadRows, BatchReply, ColumnOrigin, Database, Description, EncodedReply,
    Format, HeldMoment, OpenStream, Parameter, QueryRequest, Returning, SendReceipt, SendRequest,
    StagedInsert, StatementInfo,
};
use tidemill_gateway::{Gateway, ListenOptions, Listener, Metrics, TlsFiles};
use tidemill_postgres::{PostgresFrontEnd, PostgresOptions};
use tidemill_types::decode::CellValue;
use tidemill_types::{
    Error, ErrorKind, EventId, Field, FieldType, Offset, PartitionId, Result, RowDecoder, RowOrigin,
    StreamSchema, Timestamp, Value, event_json,
};
use tokio::sync::Semaphore;

/// Database whose statements are words: `SELECT types` has a row of each type, one of nulls and one of limits, `SELECT rows N` has
/// the numbers from 0, `SELECT stored` takes the events that were appended since the last time, `SELECT wait` never ends, `SELECT fail N` fails after N rows, `SELECT echo …` has its parameters as they arrived,
/// `SELECT missing` does not exist, `SELECT wide N` has a text of N bytes in each of 100 rows, `DELETE n` removes n rows.
/// `INSERT stream N [RETURNING] [CONFLICT] [BAD]` has N events, and with `BAD` one that does not fit. Streams: `plain` (n, t), and `Readings`
/// with a field of each type, which `ana` may write; `closed` and `full` do not accept events.
#[derive(Default, Clone)]
pub struct FixedDatabase {
    /// Statements whose rows are not dropped yet.
    pub running: Arc<AtomicUsize>,
    /// Number of moments that were held.
    moments: Arc<AtomicUsize>,
    /// Steps of `DELETE slow`.
    pub changes: Arc<Changes>,
    /// Events that were appended, as JSON, by request.
    appended: Arc<Mutex<Vec<Vec<String>>>>,
}

/// `DELETE slow` waits for a permit of `begin` before it changes events, and for one of `done` after it has begun.
pub struct Changes {
    pub begin: Semaphore,
    pub done: Semaphore,
    pub begun: AtomicUsize,
}

impl Default for Changes {
    fn default() -> Self {
        Self { begin: Semaphore::new(0), done: Semaphore::new(0), begun: AtomicUsize::new(0) }
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub fn types() -> RecordBatch {
    let micros = |values: [Option<i64>; 3]| TimestampMicrosecondArray::from(values.to_vec());
    let mut ints = ListBuilder::new(Int32Builder::new());
    ints.append_value([Some(1), None, Some(-3)]);
    ints.append_null();
    ints.append_value([]);
    let mut texts = ListBuilder::new(StringBuilder::new());
    texts.append_value([Some("a b"), Some("null"), None, Some("\"\\"), Some("")]);
    texts.append_null();
    texts.append_value([Some("x")]);
    let fields =
        vec![ArrowField::new("n", DataType::Int64, true), ArrowField::new("s", DataType::Utf8, true)];
    let values: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(7), None, None])),
        Arc::new(StringArray::from(vec![Some("é"), None, Some("\"")])),
    ];
    let present = NullBuffer::from(vec![true, false, true]);
    let object = StructArray::new(fields.into(), values, Some(present));
    let interval = |months, days, nanos| Some(IntervalMonthDayNano::new(months, days, nanos));
    let kinds: DictionaryArray<Int32Type> = vec![Some("red"), None, Some("blue")].into_iter().collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("i1", Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)]))),
        ("i2", Arc::new(Int16Array::from(vec![Some(-7), None, Some(i16::MAX)]))),
        ("i4", Arc::new(Int32Array::from(vec![Some(-70_000), None, Some(i32::MIN)]))),
        ("i8", Arc::new(Int64Array::from(vec![Some(1 << 40), None, Some(i64::MIN)]))),
        ("u8", Arc::new(UInt64Array::from(vec![Some(10_000), None, Some(u64::MAX)]))),
        ("f4", Arc::new(Float32Array::from(vec![Some(1.1), None, Some(f32::INFINITY)]))),
        ("f8", Arc::new(Float64Array::from(vec![Some(-0.1), None, Some(f64::NAN)]))),
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![Some(-1_234_500), None, Some(i128::from(i64::MAX))])
                    .with_precision_and_scale(38, 4)
                    .unwrap(),
            ),
        ),
        ("t", Arc::new(StringArray::from(vec![Some("hällo\t\\"), None, Some("")]))),
        ("k", Arc::new(kinds)),
        ("y", Arc::new(BinaryArray::from(vec![Some(&b"\x00\xffa"[..]), None, Some(b"")]))),
        ("day", Arc::new(Date32Array::from(vec![Some(19_782), None, Some(-719_529)]))),
        ("at", Arc::new(Time64MicrosecondArray::from(vec![Some(86_399_999_999), None, Some(0)]))),
        ("ts", Arc::new(micros([Some(1_714_557_600_123_456), None, Some(-1)]))),
        (
            "tz",
            Arc::new(
                micros([Some(1_714_557_600_100_000), None, Some(946_684_800_000_000)]).with_timezone("UTC"),
            ),
        ),
        (
            "ns",
            Arc::new(
                TimestampNanosecondArray::from(vec![Some(1_000_000_999), None, Some(0)]).with_timezone("UTC"),
            ),
        ),
        (
            "iv",
            Arc::new(IntervalMonthDayNanoArray::from(vec![
                interval(-14, 3, 3_723_500_000_000),
                None,
                interval(0, 0, 0),
            ])),
        ),
        ("du", Arc::new(DurationSecondArray::from(vec![Some(90_061), None, Some(-1)]))),
        ("li", Arc::new(ints.finish())),
        ("lt", Arc::new(texts.finish())),
        ("j", Arc::new(object)),
        ("n", Arc::new(NullArray::new(3))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn numbers(from: usize, to: usize) -> RecordBatch {
    let numbers: Vec<i64> = (from..to).map(|n| n as i64).collect();
    let texts: Vec<String> = numbers.iter().map(|n| format!("row {n}")).collect();
    let columns: [(&str, ArrayRef); 2] =
        [("n", Arc::new(Int64Array::from(numbers))), ("t", Arc::new(StringArray::from(texts)))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Streams of the fixture.
fn stream(name: &str) -> Option<Arc<StreamSchema>> {
    let field = |(name, ty): &(&str, FieldType)| Field::new(*name, *ty);
    let plain = [("n", FieldType::Long), ("t", FieldType::String)];
    let readings = [
        ("id", FieldType::String),
        ("n", FieldType::Int),
        ("big", FieldType::Long),
        ("ratio", FieldType::Float),
        ("Speed", FieldType::Double),
        ("ok", FieldType::Bool),
        ("at", FieldType::Time),
        ("meta", FieldType::Object),
    ];
    let (fields, id): (&[_], _) = match name {
        "plain" | "full" => (&plain, vec![]),
        "Readings" => (&readings, vec![0]),
        _ => return None,
    };
    let fields = fields.iter().map(field).collect();
    Some(Arc::new(StreamSchema { name: name.into(), fields, key: None, id, time: None }))
}

struct Numbers;

impl Returning for Numbers {
    fn schema(&self) -> SchemaRef {
        numbers(0, 0).project(&[0]).unwrap().schema()
    }

    fn uses_addresses(&self) -> bool {
        false
    }

    fn rows(&self, rows: &RecordBatch, addresses: &[EventId]) -> Result<RecordBatch> {
        assert_eq!(rows.num_rows(), addresses.len());
        Ok(RecordBatch::try_new(self.schema(), vec![rows.column(0).clone()]).unwrap())
    }
}

fn staged(request: &QueryRequest) -> Result<StagedInsert> {
    let words: Vec<&str> = request.text.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    let schema = words.get(1).and_then(|name| stream(name)).ok_or_else(|| {
        Error::not_found("line 1, column 8: there is no table `missing`").with_hint(". Did you mean `plain`?")
    })?;
    let count: i64 = words.get(2).and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut rows = RowDecoder::new(std::slice::from_ref(&schema), None);
    for n in 0..count {
        rows.push_cells(RowOrigin::of_row(n as u64), 0, [("n", CellValue::Int(n))], Timestamp(0), b"");
    }
    for (n, value) in (0..).zip(&request.parameters) {
        let cell = match value {
            Parameter::Value(Value::Int(value)) => CellValue::Int(*value),
            other => panic!("{other}"),
        };
        rows.push_cells(RowOrigin::of_row(n), 0, [("n", cell)], Timestamp(0), b"");
    }
    if has("BAD") {
        rows.push_cells(
            RowOrigin::of_row(count as u64),
            0,
            [("n", CellValue::Text("x"))],
            Timestamp(0),
            b"{}",
        );
    }
    let rows = rows.finish();
    if let Some(bad) = rows.rejected.first().filter(|_| request.bad_rows == BadRows::Refuse) {
        return Err(Error::invalid(format!(
            "line 1, column 8: row {}: {}",
            bad.origin.number + 1,
            bad.message
        )));
    }
    let batch = rows.rows.parts.into_iter().next().map(|(_, batch)| batch);
    Ok(StagedInsert {
        rows: batch.unwrap_or_else(|| RecordBatch::new_empty(schema.batch_schema())),
        stream: schema,
        rejected: rows.rejected,
        skips_duplicates: has("CONFLICT"),
        returning: has("RETURNING").then(|| Arc::new(Numbers) as Arc<dyn Returning>),
    })
}

fn texts(name: &str, values: Vec<Option<String>>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(name, Arc::new(StringArray::from(values)) as ArrayRef, true)])
        .unwrap()
}

/// Types that `echo` expects, by the words behind it.
fn parameter_type(word: &str) -> Option<DataType> {
    Some(match word {
        "int8" => DataType::Int64,
        "int4" => DataType::Int32,
        "float8" => DataType::Float64,
        "bool" => DataType::Boolean,
        "numeric" => DataType::Decimal128(38, 9),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "date" => DataType::Date32,
        "text" => DataType::Utf8,
        "int4[]" => DataType::new_list(DataType::Int32, true),
        "text[]" => DataType::new_list(DataType::Utf8, true),
        _ => return None,
    })
}

/// Origins of the columns of `SELECT rows`: the first is column 3 of table 20,000.
fn origins(request: &QueryRequest, columns: &SchemaRef) -> Vec<Option<ColumnOrigin>> {
    let mut origins = vec![None; columns.fields().len()];
    if request.asks_origins && request.text.starts_with("SELECT rows") {
        origins[0] = Some(ColumnOrigin { table: 20_000, column: 3 });
    }
    origins
}

/// Rows of a statement.
fn batches(
    database: &FixedDatabase,
    request: &QueryRequest,
) -> Result<(SchemaRef, Vec<Result<RecordBatch>>, bool)> {
    let text = request.text.trim();
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).unwrap_or(0);
    let of = |batches: Vec<RecordBatch>| (batches[0].schema(), batches.into_iter().map(Ok).collect(), false);
    Ok(match words.get(1).copied().unwrap_or_default() {
        "types" => of(vec![types()]),
        "stored" => {
            let all = std::mem::take(&mut *database.appended.lock());
            of(vec![texts("request", all.iter().map(|events| Some(events.join(" "))).collect())])
        }
        "rows" => {
            let count = number(2);
            let starts = (0..count.max(1)).step_by(1_000);
            of(starts.map(|start| numbers(start, (start + 1_000).min(count))).collect())
        }
        "wait" => (numbers(0, 0).schema(), vec![], true),
        "moment" => {
            let number = request.moment.as_ref().and_then(|moment| moment.content::<usize>());
            of(vec![texts("moment", vec![number.map(|number| number.to_string())])])
        }
        "old" => return Err(Error::conflict("snapshot too old: begin it again")),
        "fail" => {
            let error = Error::limit("the query needs more memory (`sql.memory_bytes`) than there is");
            (numbers(0, 0).schema(), vec![Ok(numbers(0, number(2))), Err(error)], false)
        }
        "wide" => of(vec![texts("w", vec![Some("x".repeat(number(2))); 100])]),
        "echo" => {
            let shown = request.parameters.iter().map(|value| match value {
                Parameter::Value(Value::Null) => None,
                value => Some(value.to_string()),
            });
            of(vec![texts("value", shown.collect())])
        }
        "zero" => of(vec![texts("z", vec![Some("a\0b".to_owned())])]),
        "user" => of(vec![texts("user", vec![Some(request.principal.name().to_owned())])]),
        "missing" => {
            return Err(Error::not_found("line 1, column 8: there is no table `missing`")
                .with_hint(". Did you mean `rows`?"));
        }
        _ if words[0] == "DELETE" => {
            let deleted: ArrayRef = Arc::new(Int64Array::from(vec![number(1) as i64]));
            of(vec![RecordBatch::try_from_iter([("deleted", deleted)]).unwrap()])
        }
        other => {
            return Err(Error::invalid(format!(
                "line 1, column 8: expected a word of the fixture, found {other}"
            )));
        }
    })
}

impl Database for FixedDatabase {
    fn query(&self, request: QueryRequest) -> BoxFuture<'static, Result<BatchReply>> {
        self.running.fetch_add(1, Ordering::SeqCst);
        let (running, database) = (Running(self.running.clone()), self.clone());
        Box::pin(async move {
            if request.text == "DELETE slow" {
                let changes = &database.changes;
                changes.begin.acquire().await.unwrap().forget();
                if request.gate.as_ref().is_some_and(|gate| !gate.begin()) {
                    return Err(Error::conflict("the statement was cancelled"));
                }
                changes.begun.fetch_add(1, Ordering::SeqCst);
                changes.done.acquire().await.unwrap().forget();
            }
            let (schema, batches, is_endless) = batches(&database, &request)?;
            let batches = stream::iter(batches);
            let batches = match is_endless {
                true => batches.chain(stream::pending()).boxed(),
                false => batches.boxed(),
            };
            let batches = batches.inspect(move |_| {
                let _ = &running;
            });
            let origins = origins(&request, &schema);
            Ok(BatchReply { schema, batches: batches.boxed(), origins, is_endless: false })
        })
    }

    fn query_encoded(&self, _: QueryRequest, _: Format) -> BoxFuture<'static, Result<EncodedReply>> {
        Box::pin(async { Err(Error::invalid("the wire asks for batches")) })
    }

    fn describe(&self, request: QueryRequest) -> BoxFuture<'static, Result<Description>> {
        let database = self.clone();
        Box::pin(async move {
            if request.text.starts_with("INSERT") {
                let columns = staged(&request.clone().with_bad_rows(BadRows::Keep))?.returning;
                let columns = columns.map_or_else(|| Arc::new(Schema::empty()), |rows| rows.schema());
                let count = request.text.matches('$').count();
                let origins = origins(&request, &columns);
                let parameters = vec![Some(DataType::Int64); count];
                return Ok(Description { parameters, columns, origins });
            }
            let (columns, ..) = batches(&database, &request)?;
            let mut words = request.text.split_whitespace().skip(1);
            let is_echo = words.next() == Some("echo");
            let parameters = words.filter(|_| is_echo).map(parameter_type).collect();
            let origins = origins(&request, &columns);
            Ok(Description { parameters, columns, origins })
        })
    }

    fn hold_moment(&self, principal: &Principal) -> BoxFuture<'static, Result<HeldMoment>> {
        let number = self.moments.fetch_add(1, Ordering::SeqCst) + 1;
        let is_full = principal.name() == "full";
        Box::pin(async move {
            match is_full {
                true => Err(Error::limit("64 transactions with REPEATABLE READ are open: try again")),
                false => Ok(HeldMoment::new(Arc::new(number))),
            }
        })
    }

    fn send(&self, _: SendRequest) -> BoxFuture<'static, Result<SendReceipt>> {
        Box::pin(async { Err(Error::invalid("the wire sends no events")) })
    }

    fn stage(&self, request: QueryRequest) -> BoxFuture<'static, Result<StagedInsert>> {
        Box::pin(async move { staged(&request) })
    }

    fn open_stream(
        &self,
        schema: Option<&str>,
        name: &str,
        _: &Principal,
    ) -> BoxFuture<'static, Result<OpenStream>> {
        let found = match (schema, name) {
            (Some("docs"), _) => Err(Error::invalid(format!("docs.{name} has no events"))),
            (_, "closed") => Err(Error::new(ErrorKind::Forbidden, "`ana` may not write stream `closed`")),
            _ => stream(name).ok_or_else(|| Error::not_found(format!("there is no stream `{name}`"))),
        };
        let open = found.map(|schema| OpenStream { schema, clock: Arc::new(|| Timestamp(0)) });
        Box::pin(async move { open })
    }

    fn append(&self, request: AppendRequest) -> BoxFuture<'static, Result<AppendReceipt>> {
        let appended = self.appended.clone();
        Box::pin(async move {
            if request.events.streams().any(|name| name == "full") {
                return Err(Error::limit("there is no room for more events"));
            }
            let accepted = request.events.len() as u64;
            let rows = request.events.into_rows()?;
            let mut events = vec![];
            rows.rows.for_each_arrival(|_, part, row| {
                let (stream, batch) = &rows.rows.parts[part];
                events.push(format!(
                    "{} {}",
                    stream.name,
                    serde_json::Value::from(event_json(stream, batch, row))
                ));
            });
            let bad = rows.rejected.iter();
            events.extend(
                bad.map(|bad| format!("rejected {}: {} {:?}", bad.origin.number, bad.message, bad.text)),
            );
            appended.lock().push(events);
            let address = |row| EventId { partition: PartitionId(0), offset: Offset(7), row };
            // every second event was seen before
            let stored = (0..accepted as u32).map(|row| (row % 2 == 0).then(|| address(row))).collect();
            Ok(AppendReceipt { accepted, stored: request.reports_stored.then_some(stored) })
        })
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
    pub running: Arc<AtomicUsize>,
    pub changes: Arc<Changes>,
    gateway: Gateway,
}

impl Server {
    pub async fn start(options: PostgresOptions) -> Self {
        Self::start_with(options, None, 1_000).await
    }

    pub async fn start_with(options: PostgresOptions, tls: Option<TlsFiles>, connections_max: usize) -> Self {
        let database = FixedDatabase::default();
        let (running, changes) = (database.running.clone(), database.changes.clone());
        let front_end = Arc::new(PostgresFrontEnd::new(Arc::new(database), options));
        let listen = ListenOptions { tls, connections_max, ..ListenOptions::new(([127, 0, 0, 1], 0).into()) };
        let listener = Listener::bind(front_end, listen).await.unwrap();
        let address = listener.address();
        let gateway = Gateway::start(vec![listener], Arc::new(Metrics::default()));
        Self { address, running, changes, gateway }
    }

    pub async fn shutdown(self, grace: Duration) -> usize {
        self.gateway.shutdown(grace).await
    }

    /// Waits until no statement has rows any more.
    pub async fn all_ended(&self) {
        while self.running.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
