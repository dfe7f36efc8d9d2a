//! Writes of client sessions, remembered so that a repetition is recognised and answered as before.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, cstr};
use bytes::Bytes;
use imbl::OrdMap;
use tidemill_docs::{CommandOutcome, DocsError, ErrorCode};
use tidemill_types::{Error, Offset, Result};

use super::SessionWrite;

/// Sessions that a partition remembers. Beyond them the ones that have not written for the longest time are forgotten.
const SESSIONS_MAX: usize = 10_000;
/// Sessions that are forgotten at once.
const SESSIONS_FORGOTTEN: usize = SESSIONS_MAX / 10;

/// The last write of each client session in a partition. A clone shares them.
#[derive(Debug, Clone, Default)]
pub struct SessionWrites(OrdMap<Bytes, Arc<RememberedWrite>>);

#[derive(Debug, Clone, Default)]
struct RememberedWrite {
    number: i64,
    /// Offset of the record that wrote last.
    at: Offset,
    /// Outcomes by statement.
    outcomes: BTreeMap<i32, CommandOutcome>,
}

impl SessionWrites {
    /// Returns the outcome of a statement, if it was executed before.
    ///
    /// Errors: the session has gone on to a later write.
    pub fn outcome(&self, write: &SessionWrite) -> Result<Option<&CommandOutcome>, DocsError> {
        match self.0.get(&write.session) {
            Some(last) if last.number > write.number => Err(DocsError::new(
                ErrorCode::TransactionTooOld,
                format!(
                    "write {} of the session is older than its last one, {}: a driver does not send it again",
                    write.number, last.number
                ),
            )),
            Some(last) if last.number == write.number => Ok(last.outcomes.get(&write.statement)),
            _ => Ok(None),
        }
    }

    /// Remembers the outcome of a statement that the record `at` executed.
    pub fn remember(&mut self, write: &SessionWrite, at: Offset, outcome: CommandOutcome) {
        if !self.0.contains_key(&write.session) {
            // its bytes may belong to a whole record
            let session = Bytes::copy_from_slice(&write.session);
            self.0.insert(session, Arc::default());
        }
        if let Some(last) = self.0.get_mut(&write.session) {
            let last = Arc::make_mut(last);
            if last.number != write.number {
                *last = RememberedWrite { number: write.number, ..RememberedWrite::default() };
            }
            last.at = at;
            last.outcomes.insert(write.statement, outcome);
        }
        if self.0.len() > SESSIONS_MAX {
            let mut times: Vec<Offset> = self.0.values().map(|last| last.at).collect();
            let (_, limit, _) = times.select_nth_unstable(SESSIONS_FORGOTTEN);
            let limit = *limit;
            self.0 = self
                .0
                .iter()
                .filter(|(_, last)| last.at >= limit)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
        }
    }

    /// Encodes the sessions for a checkpoint. Statements with errors are left out: a repetition executes them again.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut sessions = RawArrayBuf::new();
        for (session, last) in &self.0 {
            let mut outcomes = RawArrayBuf::new();
            for (statement, outcome) in last.outcomes.iter().filter(|(_, o)| o.errors.is_empty()) {
                outcomes.push(encode_outcome(*statement, outcome));
            }
            let mut one = RawDocumentBuf::new();
            one.append(cstr!("id"), Binary { subtype: BinarySubtype::Generic, bytes: session.to_vec() });
            one.append(cstr!("number"), last.number);
            one.append(cstr!("at"), last.at.0.cast_signed());
            one.append(cstr!("outcomes"), outcomes);
            sessions.push(one);
        }
        let mut all = RawDocumentBuf::new();
        all.append(cstr!("sessions"), sessions);
        all.into_bytes()
    }

    /// Decodes what [`Self::to_bytes`] encoded.
    ///
    /// Errors: `Corrupt` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = |e: bson::error::Error| Error::corrupt("the sessions cannot be read").with_source(e);
        let all = RawDocument::from_bytes(bytes).map_err(damaged)?;
        let mut sessions = OrdMap::new();
        for one in all.get_array("sessions").map_err(|e| Error::corrupt(e.to_string()))? {
            let (session, last) = one
                .map_err(damaged)?
                .as_document()
                .and_then(decode_session)
                .ok_or_else(|| Error::corrupt("a session has a field of another type"))?;
            sessions.insert(session, Arc::new(last));
        }
        Ok(Self(sessions))
    }
}

fn encode_outcome(statement: i32, outcome: &CommandOutcome) -> RawDocumentBuf {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("statement"), statement);
    outcome.append_to(&mut out);
    out
}

fn decode_session(session: &RawDocument) -> Option<(Bytes, RememberedWrite)> {
    let id = Bytes::copy_from_slice(session.get_binary("id").ok()?.bytes);
    let mut last = RememberedWrite {
        number: session.get_i64("number").ok()?,
        at: Offset(session.get_i64("at").ok()?.cast_unsigned()),
        outcomes: BTreeMap::new(),
    };
    for outcome in session.get_array("outcomes").ok()? {
        let RawBsonRef::Document(outcome) = outcome.ok()? else { return None };
        last.outcomes.insert(outcome.get_i32("statement").ok()?, CommandOutcome::from_document(outcome)?);
    }
    Some((id, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(session: u32, number: i64) -> SessionWrite {
        let session = Bytes::copy_from_slice(&session.to_be_bytes());
        SessionWrite { session, number, statement: 0 }
    }

    #[test]
    fn a_session_remembers_its_last_write_over_a_checkpoint() {
        let mut sessions = SessionWrites::default();
        let document = bson::rawdoc! { "_id": 1 }.into_bytes();
        let outcome =
            CommandOutcome { modified: 3, after: Some(document.into()), ..CommandOutcome::default() };
        sessions.remember(&write(1, 5), Offset(9), outcome.clone());
        sessions.remember(
            &SessionWrite { statement: 1, ..write(1, 5) },
            Offset(10),
            CommandOutcome::default(),
        );
        let sessions = SessionWrites::from_bytes(&sessions.to_bytes()).unwrap();
        assert_eq!(sessions.outcome(&write(1, 5)).unwrap(), Some(&outcome));
        assert_eq!(sessions.outcome(&write(1, 6)).unwrap(), None);
        assert_eq!(sessions.outcome(&write(2, 5)).unwrap(), None);
        assert_eq!(sessions.outcome(&write(1, 4)).unwrap_err().code(), 225);
    }

    #[test]
    fn the_sessions_that_wrote_first_are_forgotten() {
        let mut sessions = SessionWrites::default();
        for n in 0..=SESSIONS_MAX as u32 {
            sessions.remember(&write(n, 1), Offset(n.into()), CommandOutcome::default());
        }
        assert!(sessions.outcome(&write(0, 1)).unwrap().is_none());
        assert!(sessions.outcome(&write(SESSIONS_MAX as u32, 1)).unwrap().is_some());
        assert_eq!(sessions.0.len(), SESSIONS_MAX + 1 - SESSIONS_FORGOTTEN);
    }
}
