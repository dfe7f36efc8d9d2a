//! Mapper of messages of remote write.

use std::borrow::Cow;
use std::sync::Arc;

use tidemill_connect::{
    EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper, SourceMapperType,
};
use tidemill_types::{Result, StreamSchema};

use super::streams::{EXEMPLARS, METADATA, SAMPLES, STREAMS};
use super::{Version, add_rows, bytes_of, decompress, decompressed_bytes};
use crate::read::no_attributes;
use crate::telemetry::{DeclaredStream, MessageRows};

/// Type of the mapper of remote write.
pub(crate) struct RemoteWriteSourceType;

/// Memory that a message may take once it is decoded.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

const RECORDS: &[&str] = &["samples", "exemplars", "metadata"];
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::one_of(
        "records",
        RECORDS,
        "Records that are events of the stream; default: those whose stream is called like this one, otherwise `samples`.",
    ),
    OptionSpec::one_of("version", &["1", "2"], "Version of the protocol, which decides about the message.")
        .default("1"),
    OptionSpec::one_of("compression", &["snappy", "none"], "Compression of messages.").default("snappy"),
];

impl SourceMapperType for RemoteWriteSourceType {
    fn name(&self) -> &'static str {
        "remoteWrite"
    }

    fn summary(&self) -> &'static str {
        "Samples of series, as Prometheus sends them by remote write."
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
            Some("exemplars") => &EXEMPLARS,
            Some("metadata") => &METADATA,
            Some(_) => &SAMPLES,
            None => STREAMS.into_iter().find(|stream| stream.name == schema.name).unwrap_or(&SAMPLES),
        };
        let version = if options.text("version") == "2" { Version::V2 } else { Version::V1 };
        Ok(Box::new(RemoteWriteSource {
            stream,
            version,
            is_compressed: options.text("compression") == "snappy",
        }))
    }
}

struct RemoteWriteSource {
    stream: &'static DeclaredStream,
    version: Version,
    is_compressed: bool,
}

impl SourceMapper for RemoteWriteSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        // requests have records of all kinds, each for another source
        let mut rows = MessageRows::new(self.stream, true, message, out, MESSAGE_BYTES_MAX);
        let result = self.add(&message.payload, &mut rows);
        rows.finish(result);
    }
}

impl RemoteWriteSource {
    fn add(&self, payload: &[u8], rows: &mut MessageRows<'_>) -> Result<()> {
        let body = match self.is_compressed {
            true => {
                rows.reserve(decompressed_bytes(payload)?)?;
                Cow::Owned(decompress(payload)?)
            }
            false => Cow::Borrowed(payload),
        };
        rows.reserve(bytes_of(self.version, &body))?;
        let written = add_rows(self.version, &body, rows)?;
        rows.skip_others(written.left_out);
        Ok(())
    }
}
