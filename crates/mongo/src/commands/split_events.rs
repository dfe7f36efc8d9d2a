//! `$changeStreamSplitLargeEvent`: events of more than 16 MB come in fragments, each with some of their fields.

use std::collections::VecDeque;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use tidemill_docs::DocBytes;

use super::writing::insert::DOCUMENT_BYTES_MAX;
use crate::error::{CommandError, Result};
use crate::wire::reply::BATCH_BYTES_MAX;

/// Bytes of a fragment besides those of its fields: resume token and number.
const HEAD_BYTES: usize = 4 << 10;
/// Separator in a resume token, between the position before an event and the number of fragments already
/// returned.
const FRAGMENTS: char = 'S';

/// Events on their way to the client, large ones in fragments.
#[derive(Default)]
pub(super) struct SplitEvents {
    /// Fragments of the first event that were returned before the stream was resumed.
    skipped: usize,
    /// Events and fragments that were not returned yet.
    waiting: VecDeque<DocBytes>,
}

impl SplitEvents {
    /// Begins behind so many fragments of the first event.
    pub fn after(skipped: usize) -> Self {
        Self { skipped, waiting: VecDeque::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes events. `before` returns the text of the resume token with which an event comes again, given that of its own.
    ///
    /// Errors: a field is too large for a fragment.
    pub fn extend(&mut self, events: Vec<DocBytes>, before: impl Fn(&str) -> Option<String>) -> Result<()> {
        for event in events {
            let skipped = std::mem::take(&mut self.skipped);
            if event.len() <= DOCUMENT_BYTES_MAX {
                self.waiting.push_back(event);
                continue;
            }
            let raw = RawDocument::from_bytes(&event)?;
            let own = raw.get_document("_id").ok().and_then(|id| id.get_str("_data").ok());
            let before = own.and_then(&before).ok_or_else(|| {
                let message =
                    "the pipeline changes `_id`, the resume token, of a change that is split: keep it";
                CommandError { code: 280, message: message.to_owned() }
            })?;
            let fragments = fragments(raw, &before)?;
            self.waiting.extend(fragments.into_iter().skip(skipped));
        }
        Ok(())
    }

    /// Returns the next events and fragments of a batch, and the resume token of the last one if there are more.
    ///
    /// Errors: an event without a resume token.
    pub fn next(&mut self) -> Result<(Vec<DocBytes>, Option<RawDocumentBuf>)> {
        let (mut batch, mut bytes) = (Vec::<DocBytes>::new(), 0);
        while let Some(event) = self.waiting.front()
            && (batch.is_empty() || bytes + event.len() <= BATCH_BYTES_MAX)
        {
            bytes += event.len();
            batch.extend(self.waiting.pop_front());
        }
        let token = match batch.last().filter(|_| !self.waiting.is_empty()) {
            Some(last) => Some(RawDocument::from_bytes(last)?.get_document("_id")?.to_owned()),
            None => None,
        };
        Ok((batch, token))
    }
}

/// Cuts an event between its fields.
fn fragments(event: &RawDocument, before: &str) -> Result<Vec<DocBytes>> {
    let mut parts: Vec<RawDocumentBuf> = Vec::new();
    let mut room = 0;
    for field in event {
        let (name, value) = field?;
        if name == cstr!("_id") {
            continue;
        }
        let mut alone = RawDocumentBuf::new();
        alone.append(name, value);
        let bytes = alone.as_bytes().len();
        if bytes + HEAD_BYTES > DOCUMENT_BYTES_MAX {
            let message = format!("the field `{name}` of a change has {bytes} bytes: it cannot be split");
            return Err(CommandError { code: 10334, message });
        }
        match parts.last_mut().filter(|_| bytes <= room) {
            Some(part) => part.append(name, value),
            None => {
                room = DOCUMENT_BYTES_MAX - HEAD_BYTES;
                parts.push(alone);
            }
        }
        room -= bytes;
    }
    let of = parts.len();
    let id = event.get("_id")?;
    let fragment = |(at, part): (usize, RawDocumentBuf)| -> Result<DocBytes> {
        let mut fragment = RawDocumentBuf::new();
        match id {
            // the last one is resumed behind the event
            Some(id) if at + 1 == of => fragment.append(cstr!("_id"), id),
            _ => fragment.append(cstr!("_id"), rawdoc! { "_data": format!("{before}{FRAGMENTS}{}", at + 1) }),
        }
        fragment.append(cstr!("splitEvent"), rawdoc! { "fragment": at as i32 + 1, "of": of as i32 });
        for field in &part {
            let (name, value): (_, RawBsonRef<'_>) = field?;
            fragment.append(name, value);
        }
        Ok(fragment.into_bytes().into())
    };
    parts.into_iter().enumerate().map(fragment).collect()
}

/// Splits the text of a resume token into that of a position, and the number of fragments behind it that were returned.
pub(super) fn split_token(token: &str) -> (&str, usize) {
    match token.split_once(FRAGMENTS) {
        Some((position, fragments)) => (position, fragments.parse().unwrap_or(0)),
        None => (token, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_cut_between_its_fields_and_resumed_behind_a_fragment() {
        let large = "x".repeat(10 << 20);
        let event = rawdoc! { "_id": { "_data": "BB" }, "a": large.as_str(), "n": 1, "b": large.as_str(), "c": large.as_str() };
        let event: DocBytes = event.into_bytes().into();
        let small: DocBytes = rawdoc! { "_id": { "_data": "CC" } }.into_bytes().into();
        let all = |skipped| {
            let mut split = SplitEvents::after(skipped);
            split
                .extend(vec![event.clone(), small.clone()], |own| (own == "BB").then(|| "AA".to_owned()))
                .unwrap();
            let mut found = Vec::new();
            while !split.is_empty() {
                let (batch, token) = split.next().unwrap();
                assert_eq!(token.is_none(), split.is_empty());
                for event in batch {
                    let event = RawDocument::from_bytes(&event).unwrap();
                    let id = event.get_document("_id").unwrap().get_str("_data").unwrap().to_owned();
                    let names: Vec<_> = event.into_iter().map(|field| field.unwrap().0.to_string()).collect();
                    found.push((id, names.join(" ")));
                }
            }
            found
        };
        let expected = [
            ("AAS1", "_id splitEvent a n"),
            ("AAS2", "_id splitEvent b"),
            ("BB", "_id splitEvent c"),
            ("CC", "_id"),
        ];
        let expected = expected.map(|(id, names)| (id.to_owned(), names.to_owned()));
        assert_eq!(all(0), expected);
        assert_eq!(all(2), expected[2..]);
        assert_eq!((split_token("AAS12"), split_token("AA")), (("AA", 12), ("AA", 0)));
    }
}
