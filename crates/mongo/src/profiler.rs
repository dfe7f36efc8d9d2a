//! The profiler of a database, which notes commands in its collection `system.profile`. It keeps the latest in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{DateTime, cstr, rawdoc};
use parking_lot::Mutex;

use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, whole_number};
use crate::operations::{append_command, kind_of};
use crate::session::Session;

/// Bytes of the notes of one database; MongoDB's `system.profile` has as many.
const NOTES_BYTES_MAX: usize = 1 << 20;
/// Databases that are profiled at once.
const DATABASES_MAX: usize = 1000;

/// The profilers of all databases.
#[derive(Default)]
pub(crate) struct Profiler {
    /// True if any database is profiled, so that the others pay nothing.
    is_on: AtomicBool,
    databases: Mutex<HashMap<String, DatabaseProfile>>,
}

struct DatabaseProfile {
    /// 0: nothing, 1: slow commands, 2: all.
    level: i64,
    slow: Duration,
    notes: VecDeque<RawDocumentBuf>,
    bytes: usize,
}

impl Default for DatabaseProfile {
    fn default() -> Self {
        Self { level: 0, slow: Duration::from_millis(100), notes: VecDeque::new(), bytes: 0 }
    }
}

impl Profiler {
    /// Runs `profile`: tells the level of a database, and sets it if it is 0, 1 or 2.
    ///
    /// Errors: another level, or an option that is not there.
    pub fn configure(&self, call: &Call<'_>) -> Result<RawDocumentBuf> {
        call.allow(&["slowms", "sampleRate", "filter"])?;
        call.refuse("filter")?;
        let level = call.get(call.name).and_then(whole_number).filter(|level| (-1..=2).contains(level));
        let level = level.ok_or_else(|| {
            let message = "`profile` expects 0 (off), 1 (slow commands), 2 (all) or -1 (tell the level)";
            CommandError::new(Code::BadValue, message)
        })?;
        if let Some(rate) = call.get("sampleRate")
            && rate != RawBsonRef::Double(1.0)
            && whole_number(rate) != Some(1)
        {
            return Err(CommandError::not_supported("`profile.sampleRate` other than 1"));
        }
        let mut databases = self.databases.lock();
        if databases.len() >= DATABASES_MAX && !databases.contains_key(call.database) {
            let message = format!("{DATABASES_MAX} databases are profiled: end the profile of another one");
            return Err(CommandError::new(Code::BadValue, message));
        }
        let profile = databases.entry(call.database.to_owned()).or_default();
        let reply = rawdoc! {
            "was": profile.level as i32,
            "slowms": profile.slow.as_millis() as i32,
            "sampleRate": 1.0,
        };
        if let Some(slow) = call.count("slowms")? {
            profile.slow = Duration::from_millis(slow);
        }
        if level >= 0 {
            profile.level = level;
        }
        databases.retain(|_, profile| profile.level > 0 || !profile.notes.is_empty());
        self.is_on.store(databases.values().any(|profile| profile.level > 0), Ordering::Relaxed);
        Ok(reply)
    }

    /// Returns when a command begins, if some database is profiled.
    pub fn begin(&self) -> Option<Instant> {
        self.is_on.load(Ordering::Relaxed).then(Instant::now)
    }

    /// Notes a command that began at `started`.
    pub fn note(
        &self,
        call: &Call<'_>,
        session: &Session,
        started: Option<Instant>,
        reply: &Result<RawDocumentBuf>,
    ) {
        let Some(elapsed) = started.map(|started| started.elapsed()) else { return };
        let mut databases = self.databases.lock();
        let Some(profile) = databases.get_mut(call.database) else { return };
        let is_wanted = profile.level == 2 || (profile.level == 1 && elapsed >= profile.slow);
        if !is_wanted || call.name == "profile" {
            return;
        }
        let mut note = rawdoc! { "op": kind_of(call.name) };
        append_command(&mut note, call);
        match reply {
            Ok(reply) => {
                let cursor = reply.get_document("cursor").ok();
                let batch = cursor.and_then(|cursor| {
                    cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).ok()
                });
                if let Some(batch) = batch {
                    note.append(cstr!("nreturned"), batch.into_iter().count() as i32);
                }
                note.append(cstr!("responseLength"), reply.as_bytes().len() as i32);
            }
            Err(error) => {
                note.append(cstr!("ok"), 0);
                note.append(cstr!("errMsg"), error.message.as_str());
                note.append(cstr!("errCode"), error.code);
            }
        }
        note.append(cstr!("millis"), elapsed.as_millis() as i32);
        note.append(cstr!("ts"), DateTime::now());
        note.append(cstr!("client"), session.peer.ip().to_string());
        if let Some(application) = &session.application {
            note.append(cstr!("appName"), application.as_str());
        }
        profile.bytes += note.as_bytes().len();
        profile.notes.push_back(note);
        while profile.bytes > NOTES_BYTES_MAX {
            let Some(oldest) = profile.notes.pop_front() else { break };
            profile.bytes -= oldest.as_bytes().len();
        }
    }

    /// Returns the notes of a database, the oldest first.
    pub fn notes(&self, database: &str) -> Vec<RawDocumentBuf> {
        let databases = self.databases.lock();
        databases.get(database).map(|profile| profile.notes.iter().cloned().collect()).unwrap_or_default()
    }

    /// Forgets the notes of a database.
    ///
    /// Errors: it is profiled.
    pub fn clear(&self, database: &str) -> Result<()> {
        let mut databases = self.databases.lock();
        match databases.get(database).map(|profile| profile.level) {
            Some(level) if level > 0 => Err(CommandError {
                code: 20,
                message: format!("turn off profiling of `{database}` before its system.profile is dropped"),
            }),
            _ => {
                databases.remove(database);
                Ok(())
            }
        }
    }
}
