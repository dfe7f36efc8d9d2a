//! How far a file is read.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::time::SystemTime;

use tidemill_connect::{Message, PendingReceipt, SourceOutput};
use tidemill_types::Result;
use tokio::task::block_in_place;

use super::after::FileAction;
use super::identity::{Content, FileKey};
use super::options::FileSettings;
use super::reader::{Part, ReadError, Records, read_at};
use super::source::Seen;

/// Bytes that are read for telling contents apart.
const START_BYTES: usize = 256;
/// Messages of a file whose events may not be durable yet, in batches.
const RECEIPTS_MAX: usize = 256;

/// Positions of all contents that were read, by their names.
#[derive(Default)]
pub(super) struct ReadPositions(BTreeMap<String, u64>);

impl ReadPositions {
    pub(super) fn load(&mut self, output: &SourceOutput) {
        self.0.extend(output.positions());
    }

    /// Returns whether nothing was read.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contents(&self, key: FileKey) -> impl Iterator<Item = (Content, u64)> {
        let prefix = key.prefix();
        let names = self.0.range(prefix.clone()..).take_while(move |(name, _)| name.starts_with(&prefix));
        names.filter_map(|(name, position)| Some((Content::parse(name)?, *position)))
    }

    fn latest_content(&self, key: FileKey) -> Option<(Content, u64)> {
        self.contents(key).max_by_key(|(content, _)| content.generation)
    }

    /// Returns how far the latest content of a file is read.
    pub(super) fn latest(&self, key: FileKey) -> Option<u64> {
        self.latest_content(key).map(|(_, position)| position)
    }
}

/// State of one file.
#[derive(Default)]
pub(super) struct FileState {
    /// Content that is read and its split, as soon as it has a name.
    content: Option<(Content, Arc<str>)>,
    generation: u32,
    position: u64,
    is_loaded: bool,
    /// Length and time at the end of the last look.
    seen: Option<(u64, SystemTime)>,
    /// The file, if it was read to its end and nothing was done with it.
    unfinished: Option<Seen>,
    is_finished: bool,
    /// Why it cannot be read.
    unfit: Option<String>,
    receipts: VecDeque<PendingReceipt>,
    accepted: usize,
    rejected: usize,
    /// True if events may not be durable, so that the file is kept.
    is_uncertain: bool,
}

impl FileState {
    /// Returns what is wrong with the file, if anything, provided that it did not change since the last look.
    pub(super) fn settled_problem(&self, seen: &Seen) -> Option<Option<String>> {
        let is_settled = self.seen == Some((seen.len, seen.modified)) && self.unfinished.is_none();
        is_settled.then(|| self.problem(seen))
    }

    pub(super) fn problem(&self, seen: &Seen) -> Option<String> {
        self.unfit.as_ref().map(|reason| format!("{}: {reason}", seen.path.display()))
    }

    /// Returns whether the file was read to its end and is cleaned up.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished || self.unfinished.is_some()
    }

    /// Hands over the new records of a file. `ends` says that the file does not grow.
    ///
    /// Errors: the source stops.
    pub(super) async fn read(
        &mut self,
        file: &File,
        seen: &Seen,
        ends: bool,
        settings: &FileSettings,
        progress: &mut ReadPositions,
        output: &SourceOutput,
    ) -> Result<()> {
        self.seen = None;
        let result = self.read_new(file, seen, ends, settings, progress, output).await;
        let is_single = settings.reading.is_single();
        match result {
            Ok(is_end) => {
                self.unfit = None;
                if is_end || (is_single && self.position > 0) {
                    self.unfinished = Some(Seen { path: seen.path.clone(), ..*seen });
                }
            }
            Err(Stopped::Source(e)) => return Err(e),
            Err(Stopped::Read(ReadError::Unfit(reason))) => {
                self.unfit = Some(reason);
                self.unfinished = Some(Seen { path: seen.path.clone(), ..*seen });
            }
            Err(Stopped::Read(ReadError::Io(e))) => {
                self.unfit = Some(e.to_string());
                return Ok(());
            }
        }
        self.seen = Some((seen.len, seen.modified));
        Ok(())
    }

    /// Returns whether the end is reached.
    async fn read_new(
        &mut self,
        file: &File,
        seen: &Seen,
        ends: bool,
        settings: &FileSettings,
        progress: &mut ReadPositions,
        output: &SourceOutput,
    ) -> Result<bool, Stopped> {
        block_in_place(|| self.locate(file, seen, progress))?;
        let reading = &settings.reading;
        loop {
            let is_read = self.position >= seen.len || (reading.is_single() && self.position > 0);
            if is_read {
                return Ok(ends);
            }
            let read = block_in_place(|| reading.read(file, self.position, seen.len, ends))?;
            let position = match reading.part {
                Part::First if !read.records.is_empty() => seen.len,
                _ => read.position,
            };
            let is_stuck = position == self.position;
            let is_end = read.is_end;
            if !read.records.is_empty() {
                self.name(file, seen, settings, &read)?;
                self.hand_over(read, position, seen, progress, output).await.map_err(Stopped::Source)?;
            }
            self.position = position;
            if is_stuck {
                return Ok(is_end);
            }
        }
    }

    /// Finds out where to go on: behind what was read, or at the beginning of another content.
    fn locate(&mut self, file: &File, seen: &Seen, progress: &ReadPositions) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.is_loaded, true)
            && let Some((content, position)) = progress.latest_content(seen.key)
        {
            self.generation = content.generation;
            self.position = position;
            let name = content.name().into();
            self.content = Some((content, name));
        }
        let is_same = match &self.content {
            None => true,
            Some((content, _)) => content.is_in(file)?,
        };
        if seen.len < self.position || !is_same {
            if self.content.take().is_some() {
                self.generation += 1;
            }
            self.position = 0;
        }
        Ok(())
    }

    /// Gives the content its name, with its first record.
    fn name(
        &mut self,
        file: &File,
        seen: &Seen,
        settings: &FileSettings,
        read: &Records,
    ) -> std::io::Result<()> {
        let (None, Some((first, record))) = (&self.content, read.records.first()) else { return Ok(()) };
        let start = block_in_place(|| read_at(file, 0, START_BYTES.min(seen.len as usize)))?;
        let end = settings.reading.fingerprint_end(&start, (*first, record.len()));
        let content = Content::new(seen.key, self.generation, &start, end);
        let name = content.name().into();
        self.content = Some((content, name));
        Ok(())
    }

    async fn hand_over(
        &mut self,
        read: Records,
        position: u64,
        seen: &Seen,
        progress: &mut ReadPositions,
        output: &SourceOutput,
    ) -> Result<()> {
        let Some((_, split)) = &self.content else { return Ok(()) };
        let path = seen.path.to_string_lossy();
        let name = seen.path.file_name().unwrap_or_default().to_string_lossy();
        let begun = progress.0.get(&**split).copied().unwrap_or(0);
        let last = read.records.len().saturating_sub(1);
        let messages = read.records.into_iter().enumerate().map(|(index, (number, payload))| {
            let is_last = (index == last && read.is_end) || position == seen.len && read.position != position;
            let properties = [("file.path", &*path), ("file.name", &name), ("eof", &*is_last.to_string())];
            Message {
                properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                // a split begins at 0, whatever is skipped at the beginning of the file
                number: if index == 0 { begun } else { number },
                ..Message::new(payload)
            }
        });
        let receipt = output.send_split(split, messages.collect(), position).await?;
        progress.0.insert(split.to_string(), position);
        self.receipts.push_back(receipt);
        while self.receipts.len() > RECEIPTS_MAX {
            self.wait_receipt().await;
        }
        Ok(())
    }

    async fn wait_receipt(&mut self) {
        let Some(receipt) = self.receipts.pop_front() else { return };
        match receipt.wait().await {
            Ok(receipt) => {
                self.accepted += receipt.accepted;
                self.rejected += receipt.rejected.len();
            }
            Err(_) => self.is_uncertain = true,
        }
    }

    /// Waits until the events of the file are durable, if it is read to its end, and deletes or moves it. Returns what is
    /// wrong.
    pub(super) async fn finish(&mut self, settings: &FileSettings) -> Option<String> {
        if settings.after_process == FileAction::Keep && settings.after_failure == FileAction::Keep {
            self.receipts.clear();
        }
        let seen = self.unfinished.as_ref()?;
        let (path, key) = (seen.path.clone(), seen.key);
        while !self.receipts.is_empty() {
            self.wait_receipt().await;
        }
        if self.is_uncertain {
            self.unfinished = None;
            return Some(format!(
                "it is not certain that all events of {} are stored; the file is kept until the next start",
                path.display()
            ));
        }
        let has_failed = self.unfit.is_some() || (self.accepted == 0 && self.rejected > 0);
        let action = if has_failed { &settings.after_failure } else { &settings.after_process };
        if let Err(problem) = block_in_place(|| action.apply(&path, key)) {
            return Some(problem);
        }
        self.unfinished = None;
        self.is_finished = true;
        None
    }
}

/// Why reading stopped.
enum Stopped {
    Read(ReadError),
    Source(tidemill_types::Error),
}

impl From<ReadError> for Stopped {
    fn from(e: ReadError) -> Self {
        Self::Read(e)
    }
}

impl From<std::io::Error> for Stopped {
    fn from(e: std::io::Error) -> Self {
        Self::Read(ReadError::Io(e))
    }
}
