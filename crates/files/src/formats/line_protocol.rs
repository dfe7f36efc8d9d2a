//! Reader of InfluxDB's line protocol.
//!
//! A line such as `readings,tags_id=7 velocity=52.5,status=1i 1451606400000000000` becomes an event of the stream that is named
//! like its measurement. Tags and fields are fields of the event; its time, in nanoseconds, is the time field of the stream.

use std::io::Read;
use std::sync::Arc;

use tidemill_connect::SourceBatch;
use tidemill_mappers::line_protocol::{LineDecoder, LineOptions};
use tidemill_types::{Error, Result, StreamSchema, Timestamp, did_you_mean};

use crate::event_reader::{EventReader, of_rows};
use crate::formats::lines::LineReader;
use crate::options::{ColumnOptions, ReadOptions};

/// Positions are numbers of lines.
pub(crate) struct LineProtocolReader {
    lines: LineReader,
    decoder: LineDecoder<'static>,
    options: ReadOptions,
    failed: Option<Error>,
    /// Position after the rows returned so far.
    returned: u64,
}

impl LineProtocolReader {
    /// Errors: a stream has no time field, which the times of lines go to.
    pub(crate) fn new(
        input: Box<dyn Read + Send>,
        streams: &[Arc<StreamSchema>],
        options: ReadOptions,
        columns: &ColumnOptions,
    ) -> Result<Self> {
        if let Some(stream) = streams.iter().find(|stream| stream.time.is_none()) {
            return Err(Error::invalid(format!(
                "stream `{}` has no time field for the times of line protocol: declare `time: time(ns)` and `time time`",
                stream.name
            )));
        }
        let streams = streams.to_vec();
        let stream = move |name: &str| {
            streams.iter().find(|stream| stream.name == name).cloned().ok_or_else(|| {
                let known = streams.iter().map(|stream| stream.name.as_str());
                format!(
                    "measurement `{name}`: this load has no stream of that name{}",
                    did_you_mean(name, known)
                )
            })
        };
        let line_options = LineOptions { renames: columns.renames.clone(), ..LineOptions::default() };
        Ok(Self {
            lines: LineReader::new(input, options.line_bytes_max),
            decoder: LineDecoder::new(line_options, stream),
            options,
            failed: None,
            returned: options.start,
        })
    }

    fn finish(&mut self) -> SourceBatch {
        self.returned = self.lines.lines_read();
        of_rows(self.decoder.finish(), self.returned)
    }
}

impl EventReader for LineProtocolReader {
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let mut bytes = 0;
        loop {
            let line = match self.lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok((self.lines.lines_read() > self.returned).then(|| self.finish())),
                Err(e) if self.decoder.rows_read() == 0 => return Err(e),
                Err(e) => {
                    self.failed = Some(e);
                    return Ok(Some(self.finish()));
                }
            };
            if line.origin.number >= self.options.start {
                bytes += line.bytes.len();
                match (line.too_long, std::str::from_utf8(line.bytes)) {
                    (true, _) => {
                        let reason = format!("the line is longer than {} bytes", self.options.line_bytes_max);
                        self.decoder.reject(line.origin, &reason, line.bytes);
                    }
                    (false, Ok(text)) => self.decoder.push_line(line.origin, text, now),
                    (false, Err(_)) => self.decoder.reject(line.origin, "the line is not UTF-8", line.bytes),
                }
            }
            if self.decoder.rows_read() >= self.options.batch_rows.max(1) || bytes >= self.options.batch_bytes
            {
                return Ok(Some(self.finish()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use arrow_array::RecordBatch;
    use serde_json::Value;
    use tidemill_types::{BadRow, Field, FieldType, event_json};

    use super::*;

    fn stream(name: &str, fields: &[(&str, FieldType)]) -> Arc<StreamSchema> {
        let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
        Arc::new(StreamSchema { name: name.into(), fields, key: None, id: vec![], time: Some(0) })
    }

    fn read(lines: &str, start: u64) -> (Vec<String>, Vec<BadRow>, u64) {
        let streams = [
            stream(
                "readings",
                &[("time", FieldType::Time), ("truck", FieldType::Int), ("speed", FieldType::Double)],
            ),
            stream("notes", &[("at", FieldType::Time), ("text", FieldType::String)]),
        ];
        let options = ReadOptions { start, batch_rows: 2, ..ReadOptions::default() };
        let input = Box::new(Cursor::new(lines.to_owned().into_bytes()));
        let mut reader =
            LineProtocolReader::new(input, &streams, options, &ColumnOptions::default()).unwrap();
        let (mut events, mut rejected, mut position) = (vec![], vec![], start);
        while let Some(batch) = reader.next(Timestamp(5)).unwrap() {
            let rows = |(stream, rows): &(Arc<StreamSchema>, RecordBatch)| -> Vec<String> {
                (0..rows.num_rows())
                    .map(|row| format!("{} {}", stream.name, Value::Object(event_json(stream, rows, row))))
                    .collect()
            };
            events.extend(batch.rows.parts.iter().flat_map(rows));
            rejected.extend(batch.rejected);
            position = batch.position;
        }
        (events, rejected, position)
    }

    const LINES: &str = "# comment\n\
        readings,truck=7,fleet=South speed=52.5 1451606400000000000\n\
        notes text=\"a, b\",n=3i 1451606400000000001\n\
        readings,truck=seven speed=1 1\n\
        raedings speed=1 1\n\
        readings speed 1\n\
        readings,truck=8 speed=1i\n\
        readings,truck=8,truck=9 speed=1i\n\
        readings truck=8i,speed=1i,speed=2i\n";

    #[test]
    fn lines_are_events_of_the_stream_that_their_measurement_names() {
        let (events, rejected, position) = read(LINES, 0);
        assert_eq!(
            events,
            [
                r#"readings {"fleet":"South","speed":52.5,"time":"2016-01-01T00:00:00Z","truck":7}"#,
                r#"notes {"at":"2016-01-01T00:00:00Z","n":3,"text":"a, b"}"#,
                r#"readings {"speed":1.0,"truck":8}"#,
            ]
        );
        let reasons: Vec<String> = rejected.iter().map(|bad| bad.to_string()).collect();
        assert_eq!(
            reasons,
            [
                "line 4, byte 113: field `truck`: expected int (a whole number of 32 bits), found \"seven\"",
                "line 5, byte 144: measurement `raedings`: this load has no stream of that name. Did you mean `readings`?",
                "line 6, byte 163: no field has a value: expected `field=value` behind the measurement and its tags",
                "line 8, byte 206: field `truck` occurs twice",
                "line 9, byte 240: field `speed` occurs twice"
            ]
        );
        assert_eq!(position, 9);
    }

    #[test]
    fn reading_continues_at_a_line() {
        let (events, rejected, position) = read(LINES, 5);
        assert_eq!((events.len(), rejected.len(), position), (1, 3, 9));
    }

    #[test]
    fn a_stream_without_a_time_is_refused() {
        let plain = StreamSchema { time: None, ..(*stream("readings", &[("n", FieldType::Int)])).clone() };
        let input = Box::new(Cursor::new(vec![]));
        let error = LineProtocolReader::new(
            input,
            &[Arc::new(plain)],
            ReadOptions::default(),
            &ColumnOptions::default(),
        )
        .err()
        .unwrap();
        assert!(error.to_string().contains("declare `time: time(ns)` and `time time`"), "{error}");
    }
}
