//! The format `text/event-stream` of the HTML standard, section 9.2.

use std::time::Duration;

/// Bytes that may stand in front of a stream.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// The longest time that a server may let its clients wait before they connect again.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SseEvent {
    /// Its type, `message` if the server says none.
    pub(super) kind: String,
    pub(super) data: String,
    /// The last id that the server has sent up to here; empty without one.
    pub(super) id: String,
}

/// Parses a stream that arrives in pieces.
pub(super) struct EventParser {
    /// The line that has not ended.
    line: Vec<u8>,
    /// True if the last byte was a carriage return, which a line feed may follow.
    after_return: bool,
    is_first_line: bool,
    kind: String,
    data: String,
    id: String,
    /// Delay before connecting again, if the server has set one.
    retry: Option<Duration>,
    bytes_max: usize,
}

impl EventParser {
    /// Creates a parser of a stream that continues behind the event `id`, with events of at most `bytes_max`.
    pub(super) fn new(id: String, bytes_max: usize) -> Self {
        Self {
            line: vec![],
            after_return: false,
            is_first_line: true,
            kind: String::new(),
            data: String::new(),
            id,
            retry: None,
            bytes_max,
        }
    }

    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Parses more of the stream and adds the events that end there.
    ///
    /// Errors: an event is too long.
    pub(super) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), String> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            self.line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            if self.line.len() + self.data.len() > self.bytes_max {
                return Err(format!("an event has more than {} bytes", self.bytes_max));
            }
            let Some(end) = end else { return Ok(()) };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            events.extend(self.end_line(&line));
            // keeps the memory of the line for the next one
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    /// Reads a line. Returns the event that an empty one ends.
    fn end_line(&mut self, mut line: &[u8]) -> Option<SseEvent> {
        if std::mem::take(&mut self.is_first_line) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let line = String::from_utf8_lossy(line);
        // a line that begins with a colon is a comment: a field without name
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) => {
                let retry = value.parse().map_or(RETRY_MAX, Duration::from_millis);
                self.retry = Some(retry.min(RETRY_MAX));
            }
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let kind = std::mem::take(&mut self.kind);
        let mut data = std::mem::take(&mut self.data);
        // an event without data is dropped
        data.pop()?;
        let kind = if kind.is_empty() { "message".to_owned() } else { kind };
        Some(SseEvent { kind, data, id: self.id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a stream in pieces of `size` bytes and writes events as `kind|data|id`.
    fn parse(stream: &[u8], size: usize) -> Vec<String> {
        let mut parser = EventParser::new("old".into(), 1000);
        let mut events = vec![];
        for piece in stream.chunks(size) {
            parser.push(piece, &mut events).unwrap();
        }
        events.iter().map(|e| format!("{}|{}|{}", e.kind, e.data, e.id)).collect()
    }

    #[test]
    fn streams_are_parsed_in_pieces_of_any_size() {
        for (stream, expected) in [
            // the examples of the standard
            (
                ": this is a test stream\n\ndata: some text\n\ndata: another message\ndata: with two lines\n\n",
                &["message|some text|old", "message|another message\nwith two lines|old"][..],
            ),
            (
                "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n",
                &["add|73857293|old", "remove|2153|old"],
            ),
            (
                ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
                &["message|first event|1", "message|second event|", "message| third event|"],
            ),
            ("data\n\ndata\ndata\n\ndata:", &["message||old", "message|\n|old"]),
            ("data:test\n\ndata: test\n\n", &["message|test|old", "message|test|old"]),
            // all line ends, and a byte order mark
            (
                "\u{feff}data: a\r\ndata: b\r\rdata: c\n\r\ndata: d\r\n\r\n",
                &["message|a\nb|old", "message|c|old", "message|d|old"],
            ),
            // an id alone is remembered, and one with a zero is not; unknown fields are ignored
            ("id: 7\n\ndata: a\nid: x\0y\nfoo: bar\n\n", &["message|a|7"]),
            ("event: lost\n\ndata: ü\n\n", &["message|ü|old"]),
            // an event that does not end is dropped
            ("data: a\n", &[]),
            ("", &[]),
        ] {
            for size in [1, 2, 3, 7, 1000] {
                assert_eq!(parse(stream.as_bytes(), size), expected, "{stream:?} by {size}");
            }
        }
        assert_eq!(parse(b"data: \xff\xfe\n\n", 3), ["message|\u{fffd}\u{fffd}|old"]);
    }

    #[test]
    fn the_server_chooses_the_time_of_reconnecting() {
        for (stream, expected) in [
            ("retry: 1500\n", Some(Duration::from_millis(1500))),
            ("retry: 15s\n", None),
            ("retry:\n", None),
            ("retry: 99999999999999999999999\n", Some(RETRY_MAX)),
        ] {
            let mut parser = EventParser::new(String::new(), 1000);
            parser.push(stream.as_bytes(), &mut vec![]).unwrap();
            assert_eq!(parser.retry(), expected, "{stream}");
        }
    }

    #[test]
    fn long_events_are_refused() {
        for stream in [
            "data: 1234567890123456789012345",
            "data: 1234567890\ndata: 1234567890\n",
            ":12345678901234567890",
        ] {
            let mut parser = EventParser::new(String::new(), 20);
            let refused = parser.push(stream.as_bytes(), &mut vec![]);
            assert_eq!(refused.unwrap_err(), "an event has more than 20 bytes", "{stream}");
        }
    }
}
