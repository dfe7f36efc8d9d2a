//! One partition of a local log: assigns offsets, buffers records, and performs the disk work by group
//! commit.
//!
//! The log has no writer thread with a queue. A caller that needs the disk while no leader is active becomes
//! the leader: it takes all pending chunks, releases the lock, writes and syncs, locks again and wakes the
//! other callers. Records that arrive during this time are left to the next leader.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::disks::disk::{Disk, DiskFile};
use crate::disks::failure::{IoFailure, IoResultExt};
use crate::encryption::{ENCRYPTION_BYTES, RecordCipher, StoredRecord};
use crate::options::LogOptions;
use crate::record::{AppendResult, Durability, NewRecord, Record};
use crate::segments::copy::{LogFile, partition_files};
use crate::segments::format::{Checksum, PAYLOAD_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::segments::segment::{Segment, SegmentSpan, file_name, read_records};
use crate::segments::writer::{LogEnds, LogWriter, Segments};
use crate::subscription::{HandOver, already_subscribed, behind_end, below_start};
use crate::tail::{Chunk, Group, LogTail, group_cost};
use crate::ticket::AppendReceipt;

/// Minimum size of the newest segment to be rolled when all of its records are truncated; a smaller one
/// stays, because a new segment would hardly be smaller.
const ROLL_BYTES_MIN: u64 = 64 << 10;
/// Size from which an appended payload is shared instead of copied: below, a second slice to write costs more.
const SHARED_BYTES_MIN: usize = 4 << 10;

pub(crate) struct PartitionLog {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    options: LogOptions,
    checksum: Checksum,
    /// Encrypts and decrypts records, if the log has keys.
    cipher: Option<RecordCipher>,
    segments: Segments,
    state: Mutex<State>,
    /// Signals that disk work has finished or the log was closed.
    changed: Condvar,
    /// Locked by the leader only, so it is never contended.
    writer: Mutex<LogWriter>,
    /// The segment file read last, with the base of the segment.
    last_read: Mutex<Option<(u64, Arc<dyn DiskFile>)>>,
}

struct State {
    next: u64,
    /// Position in the newest segment at which the last record will end, see [`Group::pos`].
    end_pos: u64,
    /// Latest time of a record.
    last_time: Timestamp,
    progress: LogEnds,
    tail: LogTail,
    /// Gets the attachments of records; dead if the partition has no consumer.
    hand_over: Weak<HandOver>,
    /// True while a leader is active.
    leader_active: bool,
    /// Failure of the latest disk work and its time; `None` if that succeeded.
    last_error: Option<(IoFailure, Instant)>,
    /// Number of failed attempts of disk work.
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

impl PartitionLog {
    /// Continues after the records that recovery found; all of them are durable.
    ///
    /// Errors: those of reading the last record, for its time.
    pub(crate) fn new(writer: LogWriter, options: &LogOptions) -> Result<Self> {
        let segments = Arc::clone(&writer.segments);
        let next = segments.lock().back().map_or(0, |s| s.next);
        let end_pos = writer.pos;
        let cipher = options.encryption.clone().map(|keys| RecordCipher::new(keys, writer.partition));
        let partition = Self {
            dir: writer.dir.clone(),
            disk: Arc::clone(&writer.disk),
            options: options.clone(),
            checksum: Checksum::new(writer.salt),
            cipher: cipher.transpose()?,
            segments,
            state: Mutex::new(State {
                next,
                end_pos,
                last_time: Timestamp(i64::MIN),
                progress: LogEnds { written: next, durable: next },
                tail: LogTail::default(),
                hand_over: Weak::new(),
                leader_active: false,
                last_error: None,
                failures: 0,
                closed: false,
            }),
            changed: Condvar::new(),
            writer: Mutex::new(writer),
            last_read: Mutex::new(None),
        };
        if partition.start() < next {
            let last = partition.read(next - 1, 1)?;
            let last_time = last.first().map_or(Timestamp(i64::MIN), |record| record.time);
            partition.state.lock().last_time = last_time;
            options.clock.not_before(last_time);
        }
        Ok(partition)
    }

    /// Implements [`crate::Log::append`]; the durability of the receipt is [`Durability::Memory`]. Returns like
    /// [`PartitionLog::write`].
    pub(crate) fn append(&self, record: NewRecord) -> Result<(AppendReceipt, bool)> {
        let NewRecord { payload, attachment } = record;
        let cost = self.check_group(std::iter::once(payload.len()))?;
        let mut state = self.state.lock();
        self.wait_for_room(&mut state, cost)?;
        let time = self.options.clock.now().max(state.last_time);
        let (appended, much) = self.push(&mut state, time, |group| match &self.cipher {
            Some(cipher) => Chunk::encrypted(group, &[payload], cipher),
            None if payload.len() < SHARED_BYTES_MIN => Chunk::copied(group, &[&payload]),
            None => Chunk::shared(group, vec![payload]),
        });
        if let Some(hand_over) = state.hand_over.upgrade() {
            hand_over.push(state.next, time, attachment);
        }
        Ok((AppendReceipt { offset: appended.last, time, durability: Durability::Memory }, much))
    }

    /// Registers the subscription that gets attachments from now on, at `from`.
    pub(crate) fn subscribe(&self, id: PartitionId, from: u64) -> Result<Arc<HandOver>> {
        self.check_start(from)?;
        let mut state = self.state.lock();
        if from > state.next {
            return Err(behind_end(Offset(from), state.next));
        }
        if HandOver::is_open(&state.hand_over) {
            return Err(already_subscribed(id));
        }
        let hand_over = Arc::new(HandOver::new(state.next));
        state.hand_over = Arc::downgrade(&hand_over);
        Ok(hand_over)
    }

    /// Implements [`crate::GroupLog::write`]. Also returns whether more than half of `pending_bytes_max` waits for
    /// the disk.
    pub(crate) fn write(&self, time: Timestamp, payloads: &[&[u8]]) -> Result<(AppendResult, bool)> {
        let cost = self.check_group(payloads.iter().map(|p| p.len()))?;
        self.write_group(time, cost, |group| match &self.cipher {
            Some(cipher) => Chunk::encrypted(group, payloads, cipher),
            None => Chunk::copied(group, payloads),
        })
    }

    /// Implements [`crate::GroupLog::write_owned`]; returns like [`PartitionLog::write`].
    pub(crate) fn write_owned(&self, time: Timestamp, payloads: Vec<Bytes>) -> Result<(AppendResult, bool)> {
        let cost = self.check_group(payloads.iter().map(Bytes::len))?;
        self.write_group(time, cost, |group| match &self.cipher {
            Some(cipher) => Chunk::encrypted(group, &payloads, cipher),
            None => Chunk::shared(group, payloads),
        })
    }

    fn write_group(
        &self,
        time: Timestamp,
        cost: usize,
        chunk: impl FnOnce(Group) -> Chunk,
    ) -> Result<(AppendResult, bool)> {
        let mut state = self.state.lock();
        self.wait_for_room(&mut state, cost)?;
        let written = self.push(&mut state, time, chunk);
        if let Some(hand_over) = state.hand_over.upgrade() {
            hand_over.push(state.next, time, None);
        }
        Ok(written)
    }

    fn push(
        &self,
        state: &mut State,
        time: Timestamp,
        chunk: impl FnOnce(Group) -> Chunk,
    ) -> (AppendResult, bool) {
        let first = state.next;
        let (durable, pos) = (state.progress.durable, state.end_pos);
        let chunk = chunk(Group { checksum: self.checksum, first, durable, time, pos });
        state.next = chunk.next();
        state.last_time = time.max(state.last_time);
        state.end_pos = end_pos(pos, chunk.disk_bytes as u64, self.options.segment_bytes);
        state.tail.push(chunk);
        let last = state.next - 1;
        let much = state.tail.unsynced_bytes() > self.options.pending_bytes_max / 2;
        let appended =
            AppendResult { first: Offset(first), last: Offset(last), durability: Durability::Memory };
        (appended, much)
    }

    fn check_group(&self, lengths: impl ExactSizeIterator<Item = usize> + Clone) -> Result<usize> {
        let records = lengths.len();
        if records == 0 {
            return Err(Error::invalid(
                "a group of no records cannot be appended: give at least one payload",
            ));
        }
        let added = if self.cipher.is_some() { ENCRYPTION_BYTES } else { 0 };
        let most = PAYLOAD_BYTES_MAX - added;
        if let Some(bytes) = lengths.clone().find(|n| *n > most) {
            return Err(Error::limit(format!(
                "one of {records} records has {bytes} bytes, the limit is {most}: append it in parts"
            )));
        }
        Ok(group_cost(lengths.map(|n| n + added)))
    }

    fn wait_for_room(&self, state: &mut MutexGuard<'_, State>, cost: usize) -> Result<()> {
        let most = self.options.pending_bytes_max;
        let mut deadline = None;
        loop {
            if state.closed {
                return Err(closed());
            }
            // A group larger than the limit may use all of it alone, so that a large record does not wait
            // forever.
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

    /// Implements [`crate::Log::sync`].
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

    /// Writes all pending chunks and syncs if `sync`. The caller has checked that no leader is active. The
    /// state lock is released during the disk work.
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

    /// Syncs unsynced records unless a leader is active. Returns whether unsynced records remain.
    pub(crate) fn sync_in_background(&self) -> bool {
        let mut state = self.state.lock();
        if state.progress.durable < state.next && !state.leader_active {
            // A failure stays in `last_error` for the next caller that writes or waits.
            let _ = self.run_as_leader(&mut state, true);
        }
        state.progress.durable < state.next
    }

    /// Makes all records written so far durable.
    pub(crate) fn flush(&self) -> Result<()> {
        let (next, durable) = {
            let state = self.state.lock();
            (state.next, state.progress.durable)
        };
        if durable < next { self.sync(next - 1, Durability::Fsync) } else { Ok(()) }
    }

    /// Refuses further writes and makes earlier ones durable.
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

    /// Implements [`crate::Log::read`].
    pub(crate) fn read(&self, from: u64, max_bytes: usize) -> Result<Vec<Record>> {
        self.check_start(from)?;
        let in_memory = {
            let state = self.state.lock();
            if from > state.next {
                return Err(behind_end(Offset(from), state.next));
            }
            let is_in_memory = from == state.next || state.tail.first().is_some_and(|first| from >= first);
            is_in_memory.then(|| state.tail.read(from, max_bytes))
        };
        if let Some(records) = in_memory {
            return self.decrypt(records);
        }
        let Some((base, span)) = self.span_of(from) else {
            return self.check_start(from).map(|()| Vec::new());
        };
        let file = match self.file_of(base, &span) {
            Ok(file) => file,
            // The segment may have been truncated after `span_of` returned.
            Err(e) => return self.check_start(from).and(Err(e)),
        };
        self.decrypt(read_records(&*file, &span, from, max_bytes)?)
    }

    fn decrypt(&self, stored: Vec<StoredRecord>) -> Result<Vec<Record>> {
        let open = |StoredRecord { record, is_encrypted }| match &self.cipher {
            _ if !is_encrypted => Ok(record),
            Some(cipher) => cipher.open(record),
            None => Err(Error::internal("the log was opened without the keys of an encrypted segment")),
        };
        stored.into_iter().map(open).collect()
    }

    fn check_start(&self, from: u64) -> Result<()> {
        let start = self.start();
        if from < start {
            return Err(below_start(Offset(from), start));
        }
        Ok(())
    }

    fn span_of(&self, from: u64) -> Option<(u64, SegmentSpan)> {
        let segments = self.segments.lock();
        let after = segments.partition_point(|s| s.base <= from);
        let segment = &segments[after.checked_sub(1)?];
        let (offset, pos) = segment.index.floor(from).unwrap_or((segment.base, SEGMENT_HEADER_BYTES as u64));
        let path = self.dir.join(file_name(segment.base));
        let span = SegmentSpan { offset, pos, end_pos: segment.end_pos, checksum: segment.checksum, path };
        Some((segment.base, span))
    }

    fn file_of(&self, base: u64, span: &SegmentSpan) -> Result<Arc<dyn DiskFile>> {
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

    /// Returns the durable bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.lock().iter().map(|s| s.end_pos).sum()
    }

    /// Starts a new segment if the newest holds no record from `upto` on but at least `ROLL_BYTES_MIN`, so
    /// that truncation can remove it, too.
    fn roll_for_truncation(&self, upto: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.leader_active {
            self.changed.wait(&mut state);
        }
        let bytes = self.segments.lock().back().map_or(0, |s| s.end_pos);
        if state.next > upto || state.progress.durable < state.next || bytes < ROLL_BYTES_MIN {
            return Ok(());
        }
        // Under the state lock, because records written concurrently would be given positions in the old
        // segment.
        self.writer.lock().roll_and_note(state.next).map_err(|failure| failure.error())?;
        state.end_pos = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }

    /// Makes the records below `end` durable and returns the files of a copy that ends there.
    pub(crate) fn files(&self, name: &str, end: u64) -> Result<Vec<LogFile>> {
        if let Some(last) = end.checked_sub(1)
            && self.durable() < end
        {
            self.sync(last, Durability::Fsync)?;
        }
        let segments: Vec<Segment> = self.segments.lock().iter().cloned().collect();
        partition_files(&*self.disk, &self.dir, name, &segments, end)
    }

    /// Implements [`crate::Log::truncate`].
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
        // Segment by segment, oldest first, so that the remaining ones have no gap after a crash.
        for base in gone {
            let path = self.dir.join(file_name(base));
            self.disk.remove(&path).during("remove", &path)?;
            self.disk.sync_dir(&self.dir).during("fsync of", &self.dir)?;
        }
        Ok(())
    }
}

/// Returns the end position in the newest segment after `bytes` more; a group that does not fit starts a new
/// segment.
fn end_pos(pos: u64, bytes: u64, segment_bytes: u64) -> u64 {
    let header = SEGMENT_HEADER_BYTES as u64;
    if pos > header && pos + bytes > segment_bytes { header + bytes } else { pos + bytes }
}

fn closed() -> Error {
    Error::unavailable("the log is closed: open it again to write")
}
