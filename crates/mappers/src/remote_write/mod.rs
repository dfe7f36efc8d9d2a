//! Remote write, by which Prometheus and its like send the samples of series: as rows of streams.
//!
//! ```text
//! {__name__="http_requests_total", job="shop", code="500"}  3.0  at 1767603600000
//!
//! prometheus   time                  metric_name          labels                       job   value  is_stale  …
//!              2026-01-05T09:00:00Z  http_requests_total  {"code":"500","job":"shop"}  shop  3.0    false
//! ```
//!
//! All series are one stream, as their names and labels are data of those who send them. A native histogram is a row with columns of its own.

mod histogram;
mod labels;
mod messages;
mod snappy;
mod source;
pub mod streams;

use prost::Message as _;
use tidemill_types::{Error, Result, Timestamp};

use self::labels::{Labels, label_columns, symbol};
use self::messages::{ExemplarV1, Histogram, REQUEST_V1, REQUEST_V2, RequestV1, RequestV2, Sample};
use self::streams::{EXEMPLARS, METADATA, SAMPLES};
use crate::telemetry::{DeclaredStream, Row, RowCell, RowTarget, SharedCells, StreamRows, decoded_bytes};
pub use snappy::{decompress, decompressed_bytes};
pub(crate) use source::RemoteWriteSourceType;

/// Version of the protocol, which decides about the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

/// Numbers of what was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WrittenCounts {
    /// Samples.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
    /// Exemplars and descriptions of metrics that were left out, as no stream takes them.
    pub left_out: u64,
}

/// Value of a sample after which a series has ended.
const STALE_BITS: u64 = 0x7ff0_0000_0000_0002;
const METRIC_TYPES: [&str; 8] =
    ["unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"];

/// Adds the rows of a request, which is decompressed, to `rows`.
///
/// Errors: `Invalid` for a message that cannot be decoded; `LimitReached` where there is no memory for it.
pub fn decode(version: Version, body: &[u8], rows: &mut StreamRows<'_>) -> Result<WrittenCounts> {
    rows.reserve(bytes_of(version, body))?;
    add_rows(version, body, rows)
}

fn bytes_of(version: Version, body: &[u8]) -> usize {
    decoded_bytes(body, if version == Version::V1 { &REQUEST_V1 } else { &REQUEST_V2 })
}

fn add_rows(version: Version, body: &[u8], rows: &mut dyn RowTarget) -> Result<WrittenCounts> {
    let wrong = |e: prost::DecodeError| {
        let reason = e.to_string();
        let reason = reason.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&reason);
        Error::invalid(format!("the body is not a message of remote write: {reason}"))
    };
    let mut written = WrittenCounts::default();
    rows.takes(&SAMPLES);
    let schemas = [rows.schema(&SAMPLES), rows.takes(&EXEMPLARS).then(|| rows.schema(&EXEMPLARS)).flatten()];
    let [columns, exemplar_columns] = schemas.each_ref().map(|schema| label_columns(schema.as_deref()));
    match version {
        Version::V1 => {
            let request = RequestV1::decode(body).map_err(wrong)?;
            if request.timeseries.is_empty() && request.metadata.is_empty() {
                check_empty(body, "2.0 has another content type")?;
            }
            for series in &request.timeseries {
                let added = RequestSeries {
                    labels: Labels::of_pairs(&series.labels),
                    columns: &columns,
                    exemplar_columns: &exemplar_columns,
                    description: Description::default(),
                    start: 0,
                };
                let exemplars = series.exemplars.iter().map(exemplar);
                added.add(&series.samples, &series.histograms, exemplars, rows, &mut written)?;
            }
            for metadata in &request.metadata {
                let description = Description {
                    metric_type: type_name(metadata.metric_type),
                    help: &metadata.help,
                    unit: &metadata.unit,
                };
                add_metadata(&metadata.metric_family_name, &description, rows, &mut written)?;
            }
        }
        Version::V2 => {
            let request = RequestV2::decode(body).map_err(wrong)?;
            if request.timeseries.is_empty() {
                check_empty(body, "1.0 has another content type")?;
            }
            let symbols = &request.symbols;
            if symbols.first().is_some_and(|first| !first.is_empty()) {
                return Err(Error::invalid("the first of the symbols is not the empty text"));
            }
            for series in &request.timeseries {
                let metadata = series.metadata.clone().unwrap_or_default();
                let description = symbol(metadata.help_ref, symbols).and_then(|help| {
                    let unit = symbol(metadata.unit_ref, symbols)?;
                    Ok(Description { metric_type: type_name(metadata.metric_type), help, unit })
                });
                let labels = Labels::of_places(&series.labels_refs, symbols);
                let (labels, description) = match description {
                    Ok(description) => (labels, description),
                    Err(e) => (Err(e), Description::default()),
                };
                let added = RequestSeries {
                    labels,
                    columns: &columns,
                    exemplar_columns: &exemplar_columns,
                    description,
                    start: series.created_timestamp,
                };
                let exemplars = series.exemplars.iter().map(|exemplar| ExemplarOf {
                    labels: Labels::of_places(&exemplar.labels_refs, symbols),
                    value: exemplar.value,
                    timestamp: exemplar.timestamp,
                });
                added.add(&series.samples, &series.histograms, exemplars, rows, &mut written)?;
            }
        }
    }
    Ok(written)
}

/// Errors: a message has bytes although nothing was found in it: it is one of another version.
fn check_empty(body: &[u8], hint: &str) -> Result<()> {
    match body.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid(format!("the message has no series: version {hint}"))),
    }
}

/// Series of a request.
struct RequestSeries<'a> {
    labels: Result<Labels<'a>, String>,
    columns: &'a [String],
    exemplar_columns: &'a [String],
    description: Description<'a>,
    start: i64,
}

/// Description of a metric.
#[derive(Default)]
struct Description<'a> {
    metric_type: &'a str,
    help: &'a str,
    unit: &'a str,
}

/// Exemplar of a series.
struct ExemplarOf<'a> {
    labels: Result<Labels<'a>, String>,
    value: f64,
    timestamp: i64,
}

fn exemplar(exemplar: &ExemplarV1) -> ExemplarOf<'_> {
    let ExemplarV1 { labels, value, timestamp } = exemplar;
    ExemplarOf { labels: Labels::of_pairs(labels), value: *value, timestamp: *timestamp }
}

impl<'a> RequestSeries<'a> {
    fn add(
        self,
        samples: &[Sample],
        histograms: &[Histogram],
        exemplars: impl Iterator<Item = ExemplarOf<'a>>,
        rows: &mut dyn RowTarget,
        written: &mut WrittenCounts,
    ) -> Result<()> {
        let identity = self.labels.as_ref().map_err(Clone::clone);
        let identity = identity.and_then(|labels| labels.metric_name().map(|name| (labels, name)));
        let (labels, name) = match identity {
            Ok(identity) => identity,
            Err(reason) => {
                for _ in 0..(samples.len() + histograms.len()).max(1) {
                    reject(&SAMPLES, reason.clone(), String::new(), rows)?;
                }
                return Ok(());
            }
        };
        let shared = |columns: &'a [String]| {
            let mut row = Row::new();
            row.text("metric_name", name);
            labels.add_to("labels", &mut row);
            labels.add_columns(columns, &mut row);
            row
        };
        let mut outer = shared(self.columns);
        for (column, text) in [
            ("metric_type", self.description.metric_type),
            ("metric_unit", self.description.unit),
            ("metric_help", self.description.help),
        ] {
            if !text.is_empty() {
                outer.push_unhashed(column, RowCell::Text(text.into()));
            }
        }
        let outer = SharedCells::of(outer);
        for sample in samples {
            let mut row = Row::sharing(&outer);
            let is_stale = sample.value.to_bits() == STALE_BITS;
            let start = start(sample.start_timestamp, self.start);
            match add_identity(sample.timestamp, start, is_stale, rows, &mut row) {
                Ok(()) if is_stale => {}
                Ok(()) => row.float("value", Some(sample.value)),
                Err(reason) => {
                    reject(&SAMPLES, reason, row.to_json(), rows)?;
                    continue;
                }
            }
            written.samples += u64::from(rows.push(&SAMPLES, row)?);
        }
        for histogram in histograms {
            let mut row = Row::sharing(&outer);
            let is_stale = histogram.sum.to_bits() == STALE_BITS;
            let start = start(histogram.start_timestamp, self.start);
            let added = add_identity(histogram.timestamp, start, is_stale, rows, &mut row);
            match added.and_then(|()| if is_stale { Ok(()) } else { histogram::add(histogram, &mut row) }) {
                Ok(()) => written.histograms += u64::from(rows.push(&SAMPLES, row)?),
                Err(reason) => reject(&SAMPLES, reason, row.to_json(), rows)?,
            }
        }
        if !rows.takes(&EXEMPLARS) {
            written.left_out += exemplars.count() as u64;
            return Ok(());
        }
        let outer = SharedCells::of(shared(self.exemplar_columns));
        for ExemplarOf { labels, value, timestamp } in exemplars {
            let mut row = Row::sharing(&outer);
            row.float("value", Some(value));
            let labels = labels.and_then(|labels| {
                // 0 means that it is not known
                let time = if timestamp == 0 { None } else { Some(instant(timestamp)?) };
                row.time("time", time);
                Ok(labels)
            });
            match labels {
                Ok(labels) => {
                    let trace = labels.get("trace_id").or_else(|| labels.get("traceID"));
                    row.text("trace_id", trace.unwrap_or_default());
                    labels.add_to("exemplar_labels", &mut row);
                    row.set_identity();
                    written.exemplars += u64::from(rows.push(&EXEMPLARS, row)?);
                }
                Err(reason) => reject(&EXEMPLARS, reason, row.to_json(), rows)?,
            }
        }
        Ok(())
    }
}

/// Adds what tells a sample from others of all series, and what is said about it.
///
/// Errors: its time is out of range.
fn add_identity(
    timestamp: i64,
    start: i64,
    is_stale: bool,
    rows: &dyn RowTarget,
    row: &mut Row<'_, '_>,
) -> Result<(), String> {
    row.time("time", Some(instant(timestamp)?));
    row.set_identity();
    let has_column = || rows.schema(&SAMPLES).is_some_and(|schema| schema.field_index("is_stale").is_some());
    if is_stale || has_column() {
        row.push("is_stale", RowCell::Bool(is_stale));
    }
    if start != 0 {
        row.time("start_time", Some(instant(start)?));
    }
    Ok(())
}

/// Returns the start of a series: that of the sample, or else that of the series. 0 means that it is not known.
fn start(of_sample: i64, of_series: i64) -> i64 {
    if of_sample == 0 { of_series } else { of_sample }
}

/// Returns the instant of milliseconds since 1970.
///
/// Errors: it is out of range.
fn instant(millis: i64) -> Result<Timestamp, String> {
    let unit = tidemill_types::EpochUnit::Millis;
    unit.timestamp(millis).ok_or_else(|| format!("the time {millis} is not in the years -9999 to 9999"))
}

/// Rejects a record, or counts it where its stream is not there.
fn reject(
    stream: &'static DeclaredStream,
    reason: String,
    text: String,
    rows: &mut dyn RowTarget,
) -> Result<()> {
    match rows.takes(stream) {
        true => rows.reject(stream, reason, text),
        false => {
            rows.skip(stream);
            Ok(())
        }
    }
}

fn add_metadata(
    name: &str,
    description: &Description<'_>,
    rows: &mut dyn RowTarget,
    written: &mut WrittenCounts,
) -> Result<()> {
    if !rows.takes(&METADATA) {
        written.left_out += 1;
        return Ok(());
    }
    let mut row = Row::new();
    row.text("metric_name", name);
    row.text("metric_type", description.metric_type);
    row.text("metric_unit", description.unit);
    row.text("metric_help", description.help);
    row.set_identity();
    rows.push(&METADATA, row).map(drop)
}

fn type_name(number: i32) -> &'static str {
    usize::try_from(number).ok().and_then(|n| METRIC_TYPES.get(n)).copied().unwrap_or(METRIC_TYPES[0])
}

#[cfg(test)]
mod tests;
