//! Mapper of messages with lines.

use std::sync::Arc;

use tidemill_connect::{
    EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper, SourceMapperType,
};
use tidemill_types::StreamSchema;

use super::decoder::{event_time, with_time};
use super::line::DecodedLine;
use super::lines::lines;
use super::precision::Precision;
use crate::read::{no_attributes, text_of};

/// Type of the mapper of line protocol.
pub(crate) struct LineProtocolSourceType;

const PRECISIONS: &[&str] = &["ns", "us", "ms", "s", "m", "h", "auto"];
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::one_of(
        "precision",
        PRECISIONS,
        "Unit of the times of lines; with `auto`, the size of each number decides between s, ms, us and ns.",
    )
    .default("ns"),
    OptionSpec::text(
        "measurement",
        "Measurement whose lines are events of the stream; default: the name of the stream.",
    ),
    OptionSpec::flag(
        "skip.other.measurements",
        "false",
        "Whether lines of other measurements are left out; otherwise they are rejected.",
    ),
];

impl SourceMapperType for LineProtocolSourceType {
    fn name(&self) -> &'static str {
        "lineProtocol"
    }

    fn summary(&self) -> &'static str {
        "Lines of InfluxDB's line protocol, such as `Trades,symbol=WSO2 price=55.6,volume=100i 1714564800000000000`."
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
        let precision = match options.text("precision") {
            "auto" => Precision::Auto,
            "us" => Precision::Microseconds,
            "ms" => Precision::Milliseconds,
            "s" => Precision::Seconds,
            "m" => Precision::Minutes,
            "h" => Precision::Hours,
            _ => Precision::Nanoseconds,
        };
        let measurement = options.get("measurement").unwrap_or(&schema.name).to_owned();
        let skips_others = options.flag("skip.other.measurements");
        Ok(Box::new(LineProtocolSource { precision, measurement, skips_others }))
    }
}

struct LineProtocolSource {
    precision: Precision,
    measurement: String,
    skips_others: bool,
}

impl SourceMapper for LineProtocolSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let Some(text) = text_of(message, out) else { return };
        out.set_keep_mismatches(true);
        for line in lines(text) {
            if let Err(reason) = self.push(line.text, message, out) {
                out.reject(message, reason, line.text.as_bytes());
            }
        }
    }
}

impl LineProtocolSource {
    fn push(&self, line: &str, message: &Message, out: &mut EventBuilder) -> Result<(), String> {
        let Some(parsed) = DecodedLine::parse(line)? else { return Ok(()) };
        let found = parsed.measurement();
        if found != self.measurement {
            return match self.skips_others {
                true => Ok(()),
                false => Err(format!(
                    "measurement `{found}`: this source reads `{}`; leave out others with skip.other.measurements='true'",
                    self.measurement
                )),
            };
        }
        let time = event_time(&parsed, self.precision)?.unwrap_or_else(|| out.time_of(message));
        let schema = out.schema().clone();
        let cells = parsed.cells();
        out.push_cells(message, with_time(&cells, &schema, Some(time)), time).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::{Field, FieldType, Timestamp, row_value};

    use super::*;

    #[test]
    fn the_time_is_that_of_the_line_or_else_of_the_message() {
        let fields = vec![Field::new("at", FieldType::Time), Field::new("n", FieldType::Int)];
        for (time, column) in [(Some(0), 0), (None, 2)] {
            let schema =
                StreamSchema { name: "cpu".into(), fields: fields.clone(), key: None, id: vec![], time };
            let mut out = EventBuilder::new(Arc::new(schema));
            let mut mapper = LineProtocolSource {
                precision: Precision::Seconds,
                measurement: "cpu".to_owned(),
                skips_others: true,
            };
            let payload = b"cpu n=1i 1714564801\ncpu n=2i\ncpu n=\"x\" 2\nmem n=1i\n".as_slice();
            mapper.map(&Message { time: Some(Timestamp(7)), ..Message::new(payload) }, &mut out);
            mapper.map(&Message::new(b"cpu n=3i".as_slice()), &mut out);
            let rows = out.finish();
            assert!(rows.rejected.is_empty(), "{:?}", rows.rejected);
            let batch = &rows.rows.parts[0].1;
            let times: Vec<_> = (0..4).map(|row| row_value(batch, column, row).to_string()).collect();
            let time = |micros| Timestamp(micros).to_string();
            assert_eq!(times, [time(1_714_564_801_000_000), time(7), time(2_000_000), time(0)]);
            assert_eq!(row_value(batch, 3, 2).to_string(), r#""{\"n\":\"x\"}""#);
        }
    }
}
