//! Requests of a store: reads, and transactions that notice when another client was faster.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, RedisResult, Value as RedisValue};
use serde_json::json;
use tidemill_connect::{RefusedRow, StoredRow};
use tidemill_types::{Error, EventId, Result};

use super::layout::Layout;
use super::workspace::{Slot, Workspace};
use crate::redis::options::RedisSettings;

/// Rows that are read at once.
const BATCH_ROWS: usize = 1000;
/// Rows that one write may read.
const WRITE_ROWS_MAX: usize = 1_000_000;

/// Time to live of rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeToLive {
    pub seconds: i64,
    /// True if an update renews it.
    pub on_update: bool,
    /// True if reading renews it.
    pub on_read: bool,
}

/// Connection of a store.
pub(super) struct Session {
    pub settings: RedisSettings,
    pub layout: Layout,
    pub ttl: Option<TimeToLive>,
    /// Hash with the position of the last write of each partition.
    pub position_key: String,
    pub connection: Option<MultiplexedConnection>,
}

/// Last write of a partition, as stored in Redis.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StoredWrite {
    pub position: Option<EventId>,
    /// Rows that the writes of its record refused, by call.
    pub refused: BTreeMap<u32, Vec<RefusedRow>>,
}

impl Session {
    /// Returns the connection, opening one if needed.
    pub(super) async fn connection(&mut self) -> Result<MultiplexedConnection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let connection = self.settings.open().await?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    pub(super) fn failed(&self, what: &str, error: &RedisError) -> Error {
        self.settings.failed(&format!("table `{}`: {what}", self.layout.table), error)
    }

    /// Reads rows that are not in the workspace, and watches them.
    pub(super) async fn load_rows(&mut self, keys: &[String], space: &mut Workspace) -> Result<()> {
        let wanted: BTreeSet<&String> = keys.iter().filter(|key| !space.knows_row(key)).collect();
        let wanted: Vec<&String> = wanted.into_iter().collect();
        let mut connection = self.connection().await?;
        for keys in wanted.chunks(BATCH_ROWS) {
            let mut pipe = redis::pipe();
            pipe.cmd("WATCH").arg(keys).ignore();
            for (key, found) in keys.iter().zip(self.read(&mut connection, pipe, keys).await?) {
                match found {
                    Ok(row) => space.add_row((*key).clone(), row),
                    Err(why) => space.add_blocked((*key).clone(), why),
                }
            }
        }
        Ok(())
    }

    /// Reads rows, behind other commands. Each is a row, none, or why there cannot be one.
    pub(super) async fn read(
        &self,
        connection: &mut MultiplexedConnection,
        mut pipe: Pipeline,
        keys: &[&String],
    ) -> Result<Vec<Result<Option<StoredRow>, String>>> {
        pipe.ignore_errors();
        for key in keys {
            pipe.cmd("HGETALL").arg(key);
        }
        let answers: Vec<RedisResult<RedisValue>> =
            pipe.query_async(connection).await.map_err(|e| self.failed("rows cannot be read", &e))?;
        let mut rows = Vec::with_capacity(keys.len());
        for (key, answer) in keys.iter().zip(answers) {
            rows.push(match answer {
                Ok(answer) => Ok(self.layout.row(key, &fields(answer))?),
                Err(e) if e.code() == Some("WRONGTYPE") => {
                    Err(format!("the key `{key}` belongs to something else in Redis"))
                }
                Err(e) => return Err(self.failed("rows cannot be read", &e)),
            });
        }
        Ok(rows)
    }

    /// Reads sets of indexes that are not in the workspace, with their rows, and watches them.
    pub(super) async fn load_sets(&mut self, sets: &[String], space: &mut Workspace) -> Result<()> {
        let wanted: BTreeSet<&String> = sets.iter().filter(|set| !space.knows_set(set)).collect();
        let mut members = vec![];
        for set in wanted {
            let found = self.members(set, true).await?;
            members.extend(found.iter().cloned());
            if members.len() > WRITE_ROWS_MAX {
                return Err(Error::limit(format!(
                    "table `{}`: a write finds more than {WRITE_ROWS_MAX} rows by an index",
                    self.layout.table
                )));
            }
            space.add_set(set.clone(), found);
        }
        self.load_rows(&members, space).await
    }

    /// Returns the members of a set.
    pub(super) async fn members(&mut self, set: &str, is_watched: bool) -> Result<BTreeSet<String>> {
        let mut connection = self.connection().await?;
        let mut pipe = redis::pipe();
        if is_watched {
            pipe.cmd("WATCH").arg(set).ignore();
        }
        pipe.cmd("SMEMBERS").arg(set);
        let found: RedisResult<(BTreeSet<String>,)> = pipe.query_async(&mut connection).await;
        found.map(|(members,)| members).map_err(|e| self.failed("an index cannot be read", &e))
    }

    /// Returns the next keys of hashes that may be rows, and where to continue; 0 at the end.
    pub(super) async fn scan(&mut self, cursor: u64) -> Result<(u64, Vec<String>)> {
        let mut connection = self.connection().await?;
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(self.layout.pattern());
        command.arg("COUNT").arg(BATCH_ROWS).arg("TYPE").arg("hash");
        let found: RedisResult<(u64, Vec<Vec<u8>>)> = command.query_async(&mut connection).await;
        let (cursor, keys) = found.map_err(|e| self.failed("keys cannot be listed", &e))?;
        Ok((cursor, keys.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect()))
    }

    /// Watches the position, and returns what is known of the last write of a partition.
    pub(super) async fn last_write(&mut self, at: EventId) -> Result<StoredWrite> {
        let mut connection = self.connection().await?;
        let mut pipe = redis::pipe();
        pipe.cmd("WATCH").arg(&self.position_key).ignore();
        pipe.cmd("HMGET").arg(&self.position_key).arg(position_field(at)).arg(refused_field(at));
        let found: RedisResult<((Option<String>, Option<String>),)> = pipe.query_async(&mut connection).await;
        let ((position, refused),) = found.map_err(|e| self.failed("the position cannot be read", &e))?;
        let wrong = |e: &dyn std::fmt::Display| {
            Error::invalid(format!("the hash `{}` in Redis has no position: {e}", self.position_key))
        };
        Ok(StoredWrite {
            position: position
                .map(|text| text.parse())
                .transpose()
                .map_err(|e: Error| wrong(&e.message()))?,
            refused: refused
                .map(|text| parse_refused(&text))
                .transpose()
                .map_err(|e| wrong(&e))?
                .unwrap_or_default(),
        })
    }

    /// Ends a transaction that changes nothing.
    pub(super) async fn unwatch(&mut self) -> Result<()> {
        let mut connection = self.connection().await?;
        let done: RedisResult<()> = redis::cmd("UNWATCH").query_async(&mut connection).await;
        done.map_err(|e| self.failed("a transaction cannot be ended", &e))
    }

    /// Commits the changes of a workspace, and the position with them. Returns whether it did: not if another client has
    /// changed what was read.
    pub(super) async fn commit(&mut self, space: &Workspace, write: Option<&StoredWrite>) -> Result<bool> {
        let mut pipe = redis::pipe();
        pipe.atomic();
        for (set, key) in space.dangling() {
            pipe.cmd("SREM").arg(set).arg(key);
        }
        for (key, slot) in space.changes() {
            self.add_change(&mut pipe, key, slot);
        }
        if let Some((write, position)) = write.and_then(|write| Some((write, write.position?))) {
            let command = pipe.cmd("HSET").arg(&self.position_key);
            command.arg(position_field(position)).arg(position.to_string());
            match write.refused.is_empty() {
                true => pipe.cmd("HDEL").arg(&self.position_key).arg(refused_field(position)),
                false => {
                    let text = write_refused(&write.refused);
                    pipe.cmd("HSET").arg(&self.position_key).arg(refused_field(position)).arg(text)
                }
            };
        }
        if pipe.is_empty() {
            self.unwatch().await?;
            return Ok(true);
        }
        let mut connection = self.connection().await?;
        let answer: RedisResult<RedisValue> = pipe.query_async(&mut connection).await;
        match answer {
            Ok(answer) => Ok(answer != RedisValue::Nil),
            // the transaction has happened, without the commands that failed
            Err(e) if e.clone().into_server_errors().is_some() => {
                Err(Error::invalid(format!("table `{}` in Redis: {e}", self.layout.table)))
            }
            Err(e) => Err(self.failed("rows cannot be written", &e)),
        }
    }

    fn add_change(&self, pipe: &mut Pipeline, key: &str, slot: &Slot) {
        let sets_of = |row: &Option<StoredRow>| -> BTreeSet<String> {
            row.iter().flat_map(|row| self.layout.index_keys(row)).collect()
        };
        let (before, after) = (sets_of(&slot.stored), sets_of(&slot.row));
        for set in before.difference(&after) {
            pipe.cmd("SREM").arg(set).arg(key);
        }
        let Some(row) = &slot.row else {
            pipe.cmd("DEL").arg(key);
            return;
        };
        let fields = self.layout.fields(row);
        let names: BTreeSet<&str> = fields.iter().map(|(name, _)| *name).collect();
        let command = pipe.cmd("HSET").arg(key);
        for (name, text) in &fields {
            command.arg(name).arg(text);
        }
        if let Some(stored) = &slot.stored {
            let old = self.layout.fields(stored);
            for (name, _) in old.iter().filter(|(name, _)| !names.contains(name)) {
                pipe.cmd("HDEL").arg(key).arg(name);
            }
        }
        for set in after.difference(&before) {
            pipe.cmd("SADD").arg(set).arg(key);
        }
        if let Some(ttl) = self.ttl.filter(|ttl| slot.stored.is_none() || ttl.on_update) {
            expire(pipe, ttl, key, &after);
        } else if let Some(ttl) = self.ttl {
            // a set lives at least as long as its newest row
            for set in after.difference(&before) {
                pipe.cmd("EXPIRE").arg(set).arg(ttl.seconds);
            }
        }
    }

    /// Lets rows that were found live on.
    pub(super) async fn touch(&mut self, found: &[(String, StoredRow)]) -> Result<()> {
        let Some(ttl) = self.ttl.filter(|ttl| ttl.on_read && !found.is_empty()) else { return Ok(()) };
        let mut connection = self.connection().await?;
        for found in found.chunks(BATCH_ROWS) {
            let mut pipe = redis::pipe();
            for (key, row) in found {
                expire(&mut pipe, ttl, key, &self.layout.index_keys(row).into_iter().collect());
            }
            let done: RedisResult<RedisValue> = pipe.query_async(&mut connection).await;
            done.map_err(|e| self.failed("the time to live cannot be set", &e))?;
        }
        Ok(())
    }
}

fn expire(pipe: &mut Pipeline, ttl: TimeToLive, key: &str, sets: &BTreeSet<String>) {
    pipe.cmd("EXPIRE").arg(key).arg(ttl.seconds);
    for set in sets {
        pipe.cmd("EXPIRE").arg(set).arg(ttl.seconds);
    }
}

/// Returns the fields of a hash.
fn fields(answer: RedisValue) -> HashMap<String, Vec<u8>> {
    let text = |value| match value {
        RedisValue::BulkString(bytes) => Some(bytes),
        RedisValue::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    };
    let name = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match answer {
        RedisValue::Map(pairs) => {
            pairs.into_iter().filter_map(|(n, v)| Some((name(text(n)?), text(v)?))).collect()
        }
        RedisValue::Array(list) => {
            let mut list = list.into_iter();
            let mut fields = HashMap::new();
            while let (Some(n), Some(v)) = (list.next().and_then(text), list.next().and_then(text)) {
                fields.insert(name(n), v);
            }
            fields
        }
        _ => HashMap::new(),
    }
}

fn position_field(at: EventId) -> String {
    at.partition.to_string()
}

fn refused_field(at: EventId) -> String {
    format!("refused:{}", at.partition)
}

fn write_refused(refused: &BTreeMap<u32, Vec<RefusedRow>>) -> String {
    let calls = refused.iter().map(|(call, rows)| {
        let rows: Vec<_> = rows.iter().map(|refused| json!([refused.row, refused.reason])).collect();
        json!([call, rows])
    });
    json!(calls.collect::<Vec<_>>()).to_string()
}

fn parse_refused(text: &str) -> Result<BTreeMap<u32, Vec<RefusedRow>>, serde_json::Error> {
    let calls: Vec<(u32, Vec<(usize, String)>)> = serde_json::from_str(text)?;
    let rows = |rows: Vec<(usize, String)>| {
        rows.into_iter().map(|(row, reason)| RefusedRow { row, reason }).collect()
    };
    Ok(calls.into_iter().map(|(call, refused)| (call, rows(refused))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_rows_are_remembered() {
        let refused = BTreeMap::from([
            (0, vec![RefusedRow { row: 2, reason: "a \"row\"".into() }]),
            (3, vec![RefusedRow { row: 0, reason: "b".into() }, RefusedRow { row: 1, reason: "c".into() }]),
        ]);
        assert_eq!(parse_refused(&write_refused(&refused)).unwrap(), refused);
    }
}
