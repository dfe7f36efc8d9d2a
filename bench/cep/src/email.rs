//! EmailProcessor: its functions, added to SiddhiQL as any user of the library adds some, and what it is fed with.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use arrow_array::RecordBatch;
use tidemill_flow::EvalError;
use tidemill_flow::batch::Batch;
use tidemill_flow::column::{Data, StringColumn};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::registry::{ArgumentType, ColumnarValue, Function, FunctionContext};
use tidemill_flow::runtime::{OutputHandler, StreamBatch};
use tidemill_flow::{Column, Registry, Value, arrow, replay};
use tidemill_types::{Field, FieldType, StreamSchema};

use crate::digest::Totals;
use crate::lists;
use crate::mails::TEXTS;
use crate::quoted;
use crate::words::{Words, metrics};

/// The app.
const APP: &str = include_str!("../email.siddhi");
/// The pattern that every event carries.
const PATTERN: &str = "(.*)@enron.com";
/// What addresses inside end with.
const INSIDE: &str = "@enron.com";

/// From bytes and rows that come in to bytes that come out, about.
type Room = fn(usize, usize) -> usize;

/// Makes a text of texts. It may be one of them, a part of one, or lie in the scratch space.
type Make = for<'t> fn(&[&'t str], &'t mut String) -> &'t str;

/// A function of texts.
struct Texts {
    name: &'static str,
    make: Make,
    /// About how many bytes come out of so many rows and bytes.
    room: Room,
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Function for Texts {
    fn call(&self, args: &[Value], _: &FunctionContext) -> Result<Value, EvalError> {
        let texts: Option<Vec<&str>> = args.iter().map(Value::as_str).collect();
        let texts = texts.ok_or_else(|| EvalError::null(format!("{}: an argument", self.name)))?;
        Ok(Value::text((self.make)(&texts, &mut String::new())))
    }

    fn call_batch(&self, args: &[ColumnarValue<'_>], rows: usize) -> Option<Column> {
        // what comes out is about as long as what it is made of
        let bytes = args.iter().map(|arg| match arg {
            ColumnarValue::Array(column) => match column.data() {
                Data::Str(texts) => texts.bytes(),
                _ => 0,
            },
            ColumnarValue::Scalar(_) => 0,
        });
        let mut out = StringColumn::with_capacity(rows, (self.room)(bytes.max().unwrap_or(0), rows));
        let mut scratch = String::new();
        let mut texts = [""; 2];
        let texts = texts.get_mut(..args.len())?;
        for row in 0..rows {
            for (text, arg) in texts.iter_mut().zip(args) {
                *text = arg.text(row)?;
            }
            out.push((self.make)(texts, &mut scratch));
        }
        Some(Column::of(Data::Str(out)))
    }
}

fn filter<'t>(texts: &[&'t str], scratch: &'t mut String) -> &'t str {
    scratch.clear();
    lists::filter(texts[0], INSIDE, scratch);
    scratch
}

fn modify<'t>(texts: &[&'t str], scratch: &'t mut String) -> &'t str {
    quoted::decode(texts[0], scratch)
}

fn most_frequent_word<'t>(texts: &[&'t str], scratch: &'t mut String) -> &'t str {
    thread_local! {
        static WORDS: RefCell<Words> = RefCell::default();
    }
    let (body, subject) = (texts[0], texts[1]);
    scratch.clear();
    scratch.push_str(subject);
    scratch.push(':');
    let word = WORDS.with_borrow_mut(|words| words.most_frequent(body)).unwrap_or("NONE");
    let from = scratch.len();
    scratch.push_str(word);
    if word != "NONE" {
        scratch[from..].make_ascii_lowercase();
    }
    scratch
}

fn count<'t>(texts: &[&'t str], scratch: &'t mut String) -> &'t str {
    use std::fmt::Write;
    let [characters, words, paragraphs] = metrics(texts[0]);
    scratch.clear();
    // a text takes what is written to it
    let _ = write!(scratch, "{characters},{words},{paragraphs}");
    scratch
}

/// Adds the functions of the app.
pub fn register(registry: &mut Registry) {
    let functions: [(&'static str, usize, Make, Room); 4] = [
        ("email:filter", 1, filter, |bytes, _| bytes),
        ("email:modify", 1, modify, |bytes, _| bytes),
        ("email:mostFrequentWord", 2, most_frequent_word, |_, rows| 64 * rows),
        ("email:metrics", 1, count, |_, rows| 16 * rows),
    ];
    for (name, texts, make, room) in functions {
        registry.function(name, move |args: &[ArgumentType]| {
            if args.len() != texts || args.iter().any(|a| a.ty != FieldType::String) {
                return Err(format!("wanted {texts} of type string"));
            }
            let function: Arc<dyn Function> = Arc::new(Texts { name, make, room });
            Ok((function, FieldType::String))
        });
    }
}

/// The app, compiled.
pub fn plan() -> anyhow::Result<AppPlan> {
    let mut registry = Registry::standard();
    register(&mut registry);
    replay::compile("email.siddhi", APP, &registry, &|_| None).map_err(|diagnostics| anyhow!(diagnostics))
}

/// The fields of a mail in a file, under the given names.
pub fn schema(name: &str, texts: &[&str]) -> Arc<StreamSchema> {
    let time = Field::new("iij_timestamp", FieldType::Long);
    let texts = texts.iter().map(|name| Field::new(*name, FieldType::String));
    let fields = std::iter::once(time).chain(texts).collect();
    Arc::new(StreamSchema { name: name.into(), fields, key: None, id: vec![], time: None })
}

/// The mails that go in.
pub fn mails() -> Arc<StreamSchema> {
    schema("Email", &TEXTS)
}

/// Mails from a file as the app's stream number `stream` takes them, with the pattern added.
pub fn with_pattern(batch: RecordBatch, stream: usize) -> anyhow::Result<StreamBatch> {
    let rows = batch.num_rows();
    let attributes = mails().fields.iter().map(|f| (f.name.clone(), f.ty)).collect();
    let mut columns = arrow::columns(batch, &attributes)?;
    let mut pattern = StringColumn::default();
    (0..rows).for_each(|_| pattern.push(PATTERN));
    columns.push(Column::of(Data::Str(pattern)));
    let times = match columns[0].data() {
        Data::Long(times) => times.clone(),
        _ => vec![],
    };
    columns.iter_mut().for_each(Column::share);
    Ok(StreamBatch { stream, columns, times })
}

/// Batches of mails in a file, for stream number `stream` of the app.
pub fn read(
    path: &Path,
    batch_rows: usize,
    stream: usize,
) -> anyhow::Result<impl Iterator<Item = anyhow::Result<StreamBatch>>> {
    let format = tidemill_files::Format::from_path(path)?;
    let reading = tidemill_files::ReadOptions { batch_rows, ..Default::default() };
    let reader = tidemill_files::open(path, &format, &mails(), reading)?;
    Ok(reader.map(move |batch| with_pattern(batch.context("a batch of mails")?, stream)))
}

/// Watches what comes out, and the counts of what does.
pub struct Watch<F: FnMut(&Batch)> {
    /// What was counted.
    pub totals: Totals,
    /// The first failure.
    pub failure: Option<String>,
    /// Gets the mails that come out.
    pub out: F,
}

impl<F: FnMut(&Batch)> Watch<F> {
    /// Hands the mails that come out to `out`.
    pub fn new(out: F) -> Self {
        Self { totals: Totals::default(), failure: None, out }
    }
}

impl<F: FnMut(&Batch)> OutputHandler for Watch<F> {
    fn events(&mut self, stream: &str, events: &Batch) {
        match stream {
            "Out" => {
                self.totals.rows += events.len() as u64;
                (self.out)(events);
            }
            "Measured" => {
                let Some(Data::Str(counts)) = events.columns.last().map(Column::data) else { return };
                for row in 0..events.len() {
                    for (total, count) in self.totals.metrics.iter_mut().zip(counts.get(row).split(',')) {
                        *total += count.parse::<u64>().unwrap_or_default();
                    }
                }
            }
            _ => {}
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.failure.get_or_insert_with(|| format!("{query}: {}", failure));
    }
}
