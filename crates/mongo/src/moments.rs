//! Moments that clients read again: snapshot sessions of drivers name one by the time that their first read was told.

use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Timestamp, cstr};
use parking_lot::Mutex;
use tidemill_engine::DocumentSnapshot;

use crate::error::Result;

/// Time after which a moment that is not read is forgotten, as its documents stay in memory.
const LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Moments that are kept; a new one takes the place of the oldest.
const MOMENTS_MAX: usize = 1000;
/// Increments of a [`Timestamp`] are microseconds, so that those beyond a second are free.
const MICROS_PER_SECOND: u32 = 1_000_000;

/// The moments that clients may read again.
#[derive(Default)]
pub(crate) struct Moments(Mutex<Vec<HeldMoment>>);

struct HeldMoment {
    time: Timestamp,
    documents: DocumentSnapshot,
    used: Instant,
}

impl Moments {
    /// Keeps a moment. Returns its time, or a later one if another moment has that.
    pub fn begin(&self, mut time: Timestamp, documents: DocumentSnapshot) -> (Timestamp, DocumentSnapshot) {
        let mut moments = self.0.lock();
        while moments.iter().any(|moment| moment.time == time) {
            time.increment = time.increment.wrapping_add(MICROS_PER_SECOND);
        }
        if moments.len() >= MOMENTS_MAX {
            moments.remove(0);
        }
        moments.push(HeldMoment { time, documents: documents.clone(), used: Instant::now() });
        (time, documents)
    }

    pub fn get(&self, time: Timestamp) -> Option<DocumentSnapshot> {
        let mut moments = self.0.lock();
        let moment = moments.iter_mut().find(|moment| moment.time == time)?;
        moment.used = Instant::now();
        Some(moment.documents.clone())
    }

    /// Forgets the moments that are no longer read.
    pub fn close_idle(&self) {
        self.0.lock().retain(|moment| moment.used.elapsed() < LIFETIME);
    }
}

/// Returns the reply with the time of the moment that was read, in its cursor if there is one.
pub(crate) fn with_time(reply: &RawDocumentBuf, time: Timestamp) -> Result<RawDocumentBuf> {
    let mut told = RawDocumentBuf::new();
    let mut in_cursor = false;
    for element in reply {
        match element? {
            (name, RawBsonRef::Document(cursor)) if name == cstr!("cursor") => {
                let mut cursor = cursor.to_owned();
                cursor.append(cstr!("atClusterTime"), time);
                told.append(name, cursor);
                in_cursor = true;
            }
            (name, value) => told.append(name, value),
        }
    }
    if !in_cursor {
        told.append(cstr!("atClusterTime"), time);
    }
    Ok(told)
}
