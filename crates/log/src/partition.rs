//! One partition: gives out offsets, keeps what waits, and lets one of those who wait do the disk work for all.
//!
//! There is no queue to a writer thread. Whoever needs the disk and finds nobody at work becomes the leader: it
//! takes all that waits, leaves the lock, writes and syncs, comes back and wakes the others. What was written
//! meanwhile is the next leader's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tidemill_types::{Error, Offset, Result, Timestamp};

use crate::api::{AppendResult, Durability, Record};
use crate::disk::{Disk, DiskFile};
use crate::failure::{IoFailure, IoResultExt};
use crate::format::{Checksum, PAYLOAD_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::options::LogOptions;
use crate::segment::{Span, file_name, read_records};
use crate::tail::{Chunk, Group, Tail, group_cost};
use crate::writer::{Progress, Segments, Writer};

/// A newest segment below this stays when all its records are given up: a new one would hardly be smaller.
const ROLL_BYTES_MIN: u64 = 64 << 10;

pub(crate) struct Partition {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    options: LogOptions,
    checksum: Checksum,
    segments: Segments,
    state: Mutex<State>,
    /// Somebody finished disk work, or the log was closed.
    changed: Condvar,
    /// Held by the leader only, so never waited for.
    writer: Mutex<Writer>,
    /// The file that was last read, by its segment's base.
    last_read: Mutex<Option<(u64, Arc<dyn DiskFile>)>>,
}

struct State {
    next: u64,
    /// Where the last record will end in the newest segment, see [`Group::pos`].
    end_pos: u64,
    progress: Progress,
    tail: Tail,
    /// There is a leader.
    leader_active: bool,
    /// The last disk work failed: how and when.
    last_error: Option<(IoFailure, Instant)>,
    /// How often disk work failed.
    failures: u64,
    closed: bool,
}

impl State {
    fn is_reached(&self, upto: u64, durability: Durability) -> bool {
        match durability {
            Durability::Memory => self.next > upto,
            Durability::Os => self.progress.written > upto,
            Durability::Fsync => self.progress.durable > upto,
        }
    }
}

impl Partition {
    /// Goes on behind what recovery found; all of that is on the disk.
    pub(crate) fn new(writer: Writer, options: &LogOptions) -> Self {
        let segments = Arc::clone(&writer.segments);
        let next = segments.lock().back().map_or(0, |s| s.next);
        let end_pos = writer.pos;
        Self {
            dir: writer.dir.clone(),
            disk: Arc::clone(&writer.disk),
            options: options.clone(),
            checksum: Checksum::new(writer.salt),
            segments,
            state: Mutex::new(State {
                next,
                end_pos,
                progress: Progress { written: next, durable: next },
                tail: Tail::default(),
                leader_active: false,
                last_error: None,
                failures: 0,
                closed: false,
            }),
            changed: Condvar::new(),
            writer: Mutex::new(writer),
            last_read: Mutex::new(None),
        }
    }

    /// See [`crate::Log::write`]. Also says whether much is waiting for the disk now.
    pub(crate) fn write(&self, time: Timestamp, payloads: &[&[u8]]) -> Result<(AppendResult, bool)> {
        let cost = self.check_group(payloads.iter().map(|p| p.len()))?;
        self.push(time, cost, |group| Chunk::copied(group, payloads))
    }

    /// See [`crate::Log::write_owned`]. The rest as for [`Partition::write`].
    pub(crate) fn write_owned(&self, time: Timestamp, payloads: Vec<Bytes>) -> Result<(AppendResult, bool)> {
        let cost = self.check_group(payloads.iter().map(Bytes::len))?;
        self.push(time, cost, |group| Chunk::shared(group, payloads))
    }

    fn push(
        &self,
        time: Timestamp,
        cost: usize,
        chunk: impl FnOnce(Group) -> Chunk,
    ) -> Result<(AppendResult, bool)> {
        let mut state = self.state.lock();
        self.wait_for_room(&mut state, cost)?;
        let first = state.next;
        let (durable, pos) = (state.progress.durable, state.end_pos);
        let chunk = chunk(Group { checksum: self.checksum, first, durable, time, pos });
        state.next = chunk.next();
        state.end_pos = end_pos(pos, chunk.disk_bytes as u64, self.options.segment_bytes);
        state.tail.push(chunk);
        let last = state.next - 1;
        let much = state.tail.unsynced_bytes() > self.options.pending_bytes_max / 2;
        let appended =
            AppendResult { first: Offset(first), last: Offset(last), durability: Durability::Memory };
        Ok((appended, much))
    }

    fn check_group(&self, lengths: impl ExactSizeIterator<Item = usize> + Clone) -> Result<usize> {
        let records = lengths.len();
        if records == 0 {
            return Err(Error::invalid(
                "a group of no records cannot be appended: give at least one payload",
            ));
        }
        if let Some(bytes) = lengths.clone().find(|n| *n > PAYLOAD_BYTES_MAX) {
            return Err(Error::limit(format!(
                "one of {records} records has {bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}: append it in parts"
            )));
        }
        Ok(group_cost(lengths))
    }

    fn wait_for_room(&self, state: &mut MutexGuard<'_, State>, cost: usize) -> Result<()> {
        let most = self.options.pending_bytes_max;
        let mut deadline = None;
        loop {
            if state.closed {
                return Err(closed());
            }
            // a group that is larger than the limit has the whole of it, so that a large record does not wait for ever
            let unsynced = state.tail.unsynced_bytes();
            let full = unsynced > 0 && unsynced + cost > most;
            if !full && state.last_error.is_none() {
                return Ok(());
            }
            if !state.leader_active {
                self.run_as_leader(state, true)?;
                continue;
            }
            let wait = Duration::from_millis(self.options.write_wait_ms_max);
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + wait);
            if self.changed.wait_until(state, deadline).timed_out() {
                return Err(Error::limit(format!(
                    "{} bytes wait for the disk in {}, the limit is {most} (pending_bytes_max), and it stayed so for \
                     {} ms: send less or again later",
                    state.tail.unsynced_bytes(),
                    self.dir.display(),
                    self.options.write_wait_ms_max
                )));
            }
        }
    }

    /// See [`crate::Log::sync`].
    pub(crate) fn sync(&self, upto: u64, durability: Durability) -> Result<()> {
        let mut state = self.state.lock();
        if upto >= state.next {
            return Err(Error::invalid(format!(
                "offset {upto} cannot be synced: the log ends at {}",
                state.next
            )));
        }
        let failures = state.failures;
        while !state.is_reached(upto, durability) {
            if state.leader_active {
                self.changed.wait(&mut state);
                match &state.last_error {
                    Some((failure, _))
                        if state.failures > failures && !state.is_reached(upto, durability) =>
                    {
                        return Err(failure.error());
                    }
                    _ => {}
                }
            } else if let Err(e) = self.run_as_leader(&mut state, durability == Durability::Fsync)
                && !state.is_reached(upto, durability)
            {
                return Err(e);
            }
        }
        Ok(())
    }

    /// Does the disk work for all; nobody else is at it. The lock is given up meanwhile.
    fn run_as_leader(&self, state: &mut MutexGuard<'_, State>, sync: bool) -> Result<()> {
        if let Some((failure, when)) = &state.last_error
            && when.elapsed() < Duration::from_millis(self.options.retry_wait_ms)
            && !state.closed
        {
            return Err(failure.error());
        }
        let before = state.progress;
        let chunks = state.tail.since(before.written);
        state.leader_active = true;
        let (progress, done) = MutexGuard::unlocked(state, || {
            let mut progress = before;
            let done = self.writer.lock().run(&chunks, sync, &mut progress);
            drop(chunks);
            (progress, done)
        });
        state.leader_active = false;
        state.progress = progress;
        state.tail.mark_durable(before.durable, progress.durable, self.options.tail_bytes_max);
        let outcome = done.as_ref().map_err(IoFailure::error).copied();
        if done.is_err() {
            state.failures += 1;
        }
        state.last_error = done.err().map(|failure| (failure, Instant::now()));
        self.changed.notify_all();
        outcome
    }

    /// Brings to the disk what nobody waits for; whether something is left to do.
    pub(crate) fn sync_in_background(&self) -> bool {
        let mut state = self.state.lock();
        if state.progress.durable < state.next && !state.leader_active {
            // A failure stays in `trouble` for those who write or wait next.
            let _ = self.run_as_leader(&mut state, true);
        }
        state.progress.durable < state.next
    }

    /// Makes durable what was written until now.
    pub(crate) fn flush(&self) -> Result<()> {
        let (next, durable) = {
            let state = self.state.lock();
            (state.next, state.progress.durable)
        };
        if durable < next { self.sync(next - 1, Durability::Fsync) } else { Ok(()) }
    }

    /// Refuses writing from now on and makes durable what was written before.
    pub(crate) fn close(&self) -> Result<()> {
        self.state.lock().closed = true;
        self.changed.notify_all();
        self.flush()
    }

    pub(crate) fn start(&self) -> u64 {
        self.segments.lock().front().map_or(0, |s| s.base)
    }

    pub(crate) fn end(&self) -> u64 {
        self.state.lock().next
    }

    pub(crate) fn durable(&self) -> u64 {
        self.state.lock().progress.durable
    }

    /// See [`crate::Log::read`].
    pub(crate) fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<Record>> {
        self.check_start(from)?;
        {
            let state = self.state.lock();
            if from > state.next {
                return Err(Error::invalid(format!(
                    "offset {from} is behind the end of the log, {}",
                    state.next
                )));
            }
            if from == state.next || state.tail.first().is_some_and(|first| from >= first) {
                return Ok(state.tail.read(from, max_bytes));
            }
        }
        let Some((base, span)) = self.span_of(from) else {
            return self.check_start(from).map(|()| Vec::new());
        };
        let file = match self.file_of(base, &span) {
            Ok(file) => file,
            // It may have been truncated away since we looked.
            Err(e) => return self.check_start(from).and(Err(e)),
        };
        read_records(&*file, &span, from, max_bytes)
    }

    fn check_start(&self, from: u64) -> Result<()> {
        let start = self.start();
        if from < start {
            return Err(Error::not_found(format!(
                "offset {from} was truncated away: the log starts at {start}"
            )));
        }
        Ok(())
    }

    fn span_of(&self, from: u64) -> Option<(u64, Span)> {
        let segments = self.segments.lock();
        let after = segments.partition_point(|s| s.base <= from);
        let segment = &segments[after.checked_sub(1)?];
        let (offset, pos) = segment.index.floor(from).unwrap_or((segment.base, SEGMENT_HEADER_BYTES as u64));
        let path = self.dir.join(file_name(segment.base));
        let span = Span { offset, pos, end_pos: segment.end_pos, checksum: segment.checksum, path };
        Some((segment.base, span))
    }

    fn file_of(&self, base: u64, span: &Span) -> Result<Arc<dyn DiskFile>> {
        let mut last = self.last_read.lock();
        match &*last {
            Some((b, file)) if *b == base => Ok(Arc::clone(file)),
            _ => {
                let file = self.disk.open(&span.path).during("open", &span.path)?;
                *last = Some((base, Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    /// Bytes of all segments, as far as they are on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.lock().iter().map(|s| s.end_pos).sum()
    }

    /// Goes on in a new segment when the newest holds nothing from `upto` on but much below, so that it can go, too.
    fn roll_for_truncation(&self, upto: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.leader_active {
            self.changed.wait(&mut state);
        }
        let bytes = self.segments.lock().back().map_or(0, |s| s.end_pos);
        if state.next > upto || state.progress.durable < state.next || bytes < ROLL_BYTES_MIN {
            return Ok(());
        }
        // under the lock: records that are written meanwhile would be given places in the old segment
        self.writer.lock().roll_and_note(state.next).map_err(|failure| failure.error())?;
        state.end_pos = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }

    /// See [`crate::Log::truncate`].
    pub(crate) fn truncate(&self, upto: u64) -> Result<()> {
        self.roll_for_truncation(upto)?;
        let mut gone = Vec::new();
        {
            let mut segments = self.segments.lock();
            while segments.len() > 1 && segments[1].base <= upto {
                gone.extend(segments.pop_front().map(|s| s.base));
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        self.last_read.lock().take_if(|(base, _)| gone.contains(base));
        // One at a time and oldest first: after a crash those that are left have no hole.
        for base in gone {
            let path = self.dir.join(file_name(base));
            self.disk.remove(&path).during("remove", &path)?;
            self.disk.sync_dir(&self.dir).during("fsync of", &self.dir)?;
        }
        Ok(())
    }
}

/// Where the newest segment ends after `bytes` more, the writer going on in a new one when they do not fit.
fn end_pos(pos: u64, bytes: u64, segment_bytes: u64) -> u64 {
    let header = SEGMENT_HEADER_BYTES as u64;
    if pos > header && pos + bytes > segment_bytes { header + bytes } else { pos + bytes }
}

fn closed() -> Error {
    Error::unavailable("the log is closed: open it again to write")
}
