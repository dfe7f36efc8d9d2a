//! `tidemill replay` of an app that reads files, in virtual time.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use tidemill_files::{Codec, EventFileWriter, Format, ReadOptions, Reader, WriteOptions};
use tidemill_flow::EvalError;
use tidemill_flow::batch::Batch;
use tidemill_flow::catalog::{Attributes, CatalogStream};
use tidemill_flow::column::Data;
use tidemill_flow::io::file::{FileMapper, InputFile};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::LossCounter;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Column, arrow};
use tidemill_types::{Field, StreamSchema};

use crate::cli::develop::replay::{first_failure, summary};

/// Events buffered before they are written.
const WRITE_ROWS: usize = 4096;

/// Reads the files of an app's sources to their end and writes those of its sinks. Their paths are relative
/// to `dir`.
///
/// Events are sent one at a time. Those of several files are merged by time; at equal times, the file named
/// first comes first. Events without a time take the current time of the clock, so they precede all later
/// ones.
///
/// Returns whether every row was read and every event processed. Failures have been reported on standard
/// error.
pub fn run(mut plan: AppPlan, dir: &Path) -> anyhow::Result<bool> {
    let files = plan.file_sources.iter_mut().map(|s| &mut s.path);
    for path in files.chain(plan.file_sinks.iter_mut().map(|s| &mut s.path)) {
        *path = dir.join(&*path).display().to_string();
    }
    let plan = Arc::new(plan);
    let streams = plan.catalog.streams();
    let feeds = plan.file_sources.iter().map(|source| SourceReader::open(source, &streams[source.stream]));
    let mut feeds = feeds.collect::<anyhow::Result<Vec<SourceReader<'_>>>>()?;
    let mut sinks = SinkFiles::create(&plan)?;
    let mut app = AppRuntime::new(plan.clone());
    app.start(0, &mut sinks);
    let mut told = 0;
    loop {
        let mut next: Option<(i64, usize)> = None;
        for (i, feed) in feeds.iter_mut().enumerate() {
            let Some(time) = feed.next_time(app.now())? else { continue };
            if next.is_none_or(|(earliest, _)| time < earliest) {
                next = Some((time, i));
            }
        }
        let Some((time, i)) = next else { break };
        let (stream, event) = feeds[i].take_event();
        app.send(stream, event, vec![time], &mut sinks).map_err(|failure| anyhow!(failure))?;
        sinks.lost.end_call();
        for lost in &sinks.lost.by_query()[told..] {
            eprintln!("{}: {}", feeds[i].source.path, first_failure(lost));
        }
        told = sinks.lost.by_query().len();
        if let Some(error) = sinks.error.take() {
            return Err(error.into());
        }
    }
    let lost = sinks.lost.by_query().to_vec();
    sinks.finish()?;
    summary(&lost);
    let mut complete = lost.is_empty();
    for feed in feeds.iter().filter(|feed| feed.bad_rows > 0) {
        complete = false;
        eprintln!("{}: {} bad rows were left out; each is reported above", feed.source.path, feed.bad_rows);
    }
    Ok(complete)
}

fn schema(stream: &CatalogStream) -> Arc<StreamSchema> {
    let field = |(name, ty): &(String, _)| Field::new(name.clone(), *ty);
    let fields = stream.attributes.iter().map(field).collect();
    Arc::new(StreamSchema { name: stream.name.clone(), fields, key: None, id: vec![], time: None })
}

fn format(mapper: &FileMapper) -> anyhow::Result<Format> {
    Ok(match mapper {
        FileMapper::Avro(codec) => match Codec::parse(codec) {
            Some(codec) => Format::Avro(codec),
            None => bail!("there is no codec `{codec}`"),
        },
        FileMapper::Json { .. } => Format::Json,
        FileMapper::Csv { header, delimiter } => Format::Csv { header: *header, delimiter: *delimiter },
        FileMapper::Parquet => Format::Parquet,
    })
}

/// Reader of a source's file.
struct SourceReader<'p> {
    source: &'p InputFile,
    attributes: &'p Attributes,
    reader: Reader,
    columns: Vec<Column>,
    row: usize,
    bad_rows: u64,
}

impl<'p> SourceReader<'p> {
    fn open(source: &'p InputFile, stream: &'p CatalogStream) -> anyhow::Result<Self> {
        let complete = matches!(source.mapper, FileMapper::Json { complete: true });
        let reading = ReadOptions { complete, ..ReadOptions::default() };
        let format = format(&source.mapper)?;
        let reader = tidemill_files::open(Path::new(&source.path), &format, &schema(stream), reading)?;
        Ok(Self { source, attributes: &stream.attributes, reader, columns: vec![], row: 0, bad_rows: 0 })
    }

    /// Returns the time of the next event, or `now` if it has none; `None` at the end of the file.
    fn next_time(&mut self, now: i64) -> anyhow::Result<Option<i64>> {
        while self.row >= self.columns.first().map_or(0, Column::len) {
            let next = self.reader.next();
            for bad in self.reader.take_rejected() {
                eprintln!("{}: {bad}; left out", self.source.path);
                self.bad_rows += 1;
            }
            let Some(batch) = next else { return Ok(None) };
            self.columns =
                arrow::columns(batch?, self.attributes).with_context(|| self.source.path.clone())?;
            self.row = 0;
        }
        let times = self.source.time.map(|column| &self.columns[column]);
        Ok(Some(match times.filter(|c| !c.is_null(self.row)).map(Column::data) {
            Some(Data::Long(times)) => times[self.row],
            _ => now,
        }))
    }

    /// Returns the index of the stream and the next event.
    fn take_event(&mut self) -> (usize, Vec<Column>) {
        let one = |column: &Column| {
            let mut one = Column::new(column.ty());
            one.push_from(column, self.row);
            one
        };
        let event = self.columns.iter().map(one).collect();
        self.row += 1;
        (self.source.stream, event)
    }
}

/// Files of the sinks.
struct SinkFiles {
    files: Vec<SinkFile>,
    error: Option<tidemill_types::Error>,
    lost: LossCounter,
}

struct SinkFile {
    stream: String,
    attributes: Attributes,
    writer: EventFileWriter,
    buffered: Vec<Column>,
}

impl SinkFiles {
    fn create(plan: &AppPlan) -> anyhow::Result<Self> {
        let mut files = Vec::with_capacity(plan.file_sinks.len());
        for sink in &plan.file_sinks {
            let stream = &plan.catalog.streams()[sink.stream];
            // the default JSON format of SiddhiQL
            let writing = WriteOptions {
                append: sink.append,
                envelope: Some("event".into()),
                ..WriteOptions::default()
            };
            let format = format(&sink.mapper)?;
            let writer = EventFileWriter::create(Path::new(&sink.path), &format, &schema(stream), &writing)?;
            files.push(SinkFile {
                stream: stream.name.clone(),
                attributes: stream.attributes.clone(),
                writer,
                buffered: columns(&stream.attributes),
            });
        }
        Ok(Self { files, error: None, lost: LossCounter::default() })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        for mut file in self.files.drain(..) {
            file.write()?;
            file.writer.finish()?;
        }
        Ok(())
    }
}

fn columns(attributes: &Attributes) -> Vec<Column> {
    attributes.iter().map(|(_, ty)| Column::new(*ty)).collect()
}

impl SinkFile {
    fn write(&mut self) -> tidemill_types::Result<()> {
        let waiting = std::mem::replace(&mut self.buffered, columns(&self.attributes));
        if waiting.first().is_none_or(Column::is_empty) {
            return Ok(());
        }
        self.writer.write(&arrow::record_batch(waiting, &self.attributes)?)
    }
}

impl OutputHandler for SinkFiles {
    fn events(&mut self, stream: &str, events: &Batch) {
        for file in self.files.iter_mut().filter(|f| f.stream == stream) {
            for (waiting, column) in file.buffered.iter_mut().zip(&events.columns) {
                (0..events.len()).for_each(|row| waiting.push_from(column, row));
            }
            if file.buffered.first().is_some_and(|c| c.len() >= WRITE_ROWS)
                && let Err(e) = file.write()
            {
                self.error.get_or_insert(e);
            }
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.lost.failure(query, failure);
    }

    fn failed_events(&mut self, stream: &str, events: &Batch, kept: bool) {
        self.lost.failed_events(stream, events, kept);
    }
}
