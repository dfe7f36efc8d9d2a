//! Mapper of messages of OTLP.

use std::sync::Arc;

use tidemill_connect::{
    EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper, SourceMapperType,
};
use tidemill_types::StreamSchema;

use super::streams::{EXPONENTIAL_HISTOGRAM, GAUGE, HISTOGRAM, LOGS, STREAMS, SUM, SUMMARY, TRACES};
use super::{Encoding, Signal, add_rows, bytes_of};
use crate::read::no_attributes;
use crate::telemetry::{DeclaredStream, MessageRows};

/// Type of the mapper of OTLP.
pub(crate) struct OtlpSourceType;

/// Memory that a message may take once it is decoded.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

const RECORDS: &[&str] = &["logs", "traces", "gauge", "sum", "histogram", "exponentialHistogram", "summary"];
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::one_of(
        "records",
        RECORDS,
        "Records that are events of the stream; default: those whose stream is called like this one, such as `otel_logs`.",
    ),
    OptionSpec::one_of("encoding", &["protobuf", "json"], "Encoding of messages.").default("protobuf"),
    OptionSpec::flag(
        "skip.others",
        "false",
        "Whether points of other kinds of metrics are left out; otherwise a message with some is rejected beside its events.",
    ),
];

impl SourceMapperType for OtlpSourceType {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn summary(&self) -> &'static str {
        "Logs, spans or points of metrics of OpenTelemetry, as exporters and collectors write them."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        no_attributes(attributes, self.name())?;
        let stream = match options.get("records") {
            Some("logs") => Some(&LOGS),
            Some("traces") => Some(&TRACES),
            Some("gauge") => Some(&GAUGE),
            Some("sum") => Some(&SUM),
            Some("histogram") => Some(&HISTOGRAM),
            Some("exponentialHistogram") => Some(&EXPONENTIAL_HISTOGRAM),
            Some(_) => Some(&SUMMARY),
            None => STREAMS.into_iter().find(|stream| stream.name == schema.name),
        };
        let Some(stream) = stream else {
            let message = format!(
                "the stream `{}` does not say which records are its events: set records to one of {}",
                schema.name,
                RECORDS.join(", ")
            );
            return Err(OptionError::connector(message).of_mapper());
        };
        let signal = match stream.name {
            "otel_logs" => Signal::Logs,
            "otel_traces" => Signal::Traces,
            _ => Signal::Metrics,
        };
        let encoding = if options.text("encoding") == "json" { Encoding::Json } else { Encoding::Protobuf };
        Ok(Box::new(OtlpSource { stream, signal, encoding, skips_others: options.flag("skip.others") }))
    }
}

struct OtlpSource {
    stream: &'static DeclaredStream,
    signal: Signal,
    encoding: Encoding,
    skips_others: bool,
}

impl SourceMapper for OtlpSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let mut rows = MessageRows::new(self.stream, self.skips_others, message, out, MESSAGE_BYTES_MAX);
        let result = rows
            .reserve(bytes_of(self.signal, self.encoding, &message.payload))
            .and_then(|()| add_rows(self.signal, self.encoding, &message.payload, &mut rows));
        rows.finish(result);
    }
}
