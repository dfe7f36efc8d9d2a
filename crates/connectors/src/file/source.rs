//! The source: looks at its files, hands over what is new in them, and cleans up behind itself.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SourceConnector, SourceOutput,
    SourceType,
};
use tidemill_types::{Error, Result};
use tokio::task::block_in_place;

use super::identity::FileKey;
use super::options::{FileSettings, OPTIONS, Place};
use super::state::{FileState, ReadPositions};

/// Time for which a renamed file is still read: programs write to it until they open the new one.
const ROTATION_GRACE: Duration = Duration::from_secs(2);
/// Problems that a look at the files reports.
const PROBLEMS_MAX: usize = 3;

/// Type of the source.
pub(crate) struct FileSourceType;

impl SourceType for FileSourceType {
    fn name(&self) -> &'static str {
        "file"
    }

    fn summary(&self) -> &'static str {
        "Lines, matches of regular expressions, or whole contents of a file or of the files of a directory."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let settings = FileSettings::new(options, context)?;
        Ok(Box::new(FileSource {
            progress: ReadPositions::default(),
            states: BTreeMap::new(),
            followed: None,
            problems: vec![],
            settings,
        }))
    }
}

struct FileSource {
    settings: FileSettings,
    progress: ReadPositions,
    /// Files that were there at the last look.
    states: BTreeMap<FileKey, FileState>,
    /// Files that are followed by their name, the oldest first; `None` before the first look.
    followed: Option<Vec<Followed>>,
    /// Problems found at this look.
    problems: Vec<String>,
}

/// A file that is followed by its name, until it lost the name for some time.
struct Followed {
    file: File,
    path: PathBuf,
    key: FileKey,
    renamed_at: Option<SystemTime>,
}

/// A file at a look.
pub(super) struct Seen {
    pub path: PathBuf,
    pub key: FileKey,
    pub len: u64,
    pub modified: SystemTime,
}

impl Seen {
    pub(super) fn new(path: PathBuf, metadata: &fs::Metadata) -> Self {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self { path, key: FileKey::of(metadata), len: metadata.len(), modified }
    }

    /// Returns how long the file still has to stay as it is before it counts as complete.
    fn waits(&self, quiet: Duration) -> Option<Duration> {
        // a time in the future is that of another clock
        let age = SystemTime::now().duration_since(self.modified).ok()?;
        quiet.checked_sub(age).filter(|rest| !rest.is_zero())
    }
}

/// Opens a file.
fn open(path: &Path) -> std::io::Result<(File, Seen)> {
    let file = File::open(path)?;
    let seen = Seen::new(path.to_owned(), &file.metadata()?);
    Ok((file, seen))
}

#[async_trait]
impl SourceConnector for FileSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        self.progress.load(output);
        if self.settings.schedule.is_some() {
            output.report_connected();
            self.wait_turn().await;
        }
        loop {
            self.problems.clear();
            let next = match &self.settings.place {
                Place::Directory { .. } => self.look_into_directory(output).await?,
                Place::File(path) => {
                    let path = path.clone();
                    match self.settings.tailing {
                        true => self.follow(&path, output).await?,
                        false => self.read_once(&path, output).await?,
                    }
                }
            };
            self.finish().await;
            match self.problems.as_slice() {
                [] => output.report_connected(),
                problems => output.report_problem(problems.join("; ")),
            }
            match next {
                Next::Done => return Ok(()),
                Next::Later => self.wait_turn().await,
                Next::Soon(wait) => tokio::time::sleep(wait).await,
            }
        }
    }
}

/// When files are looked at again.
enum Next {
    /// At the next turn.
    Later,
    /// After this time, because a file is being written.
    Soon(Duration),
    Done,
}

impl FileSource {
    /// Waits for the next look: for the interval, or the next time of the schedule.
    async fn wait_turn(&self) {
        let Some(schedule) = &self.settings.schedule else {
            return tokio::time::sleep(self.settings.poll_interval).await;
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match schedule.next_after(now.as_millis() as i64) {
            Some(next) => tokio::time::sleep(Duration::from_millis(next as u64).saturating_sub(now)).await,
            None => std::future::pending().await,
        }
    }

    async fn look_into_directory(&mut self, output: &SourceOutput) -> Result<Next> {
        let Place::Directory { path, pattern } = &self.settings.place else { return Ok(Next::Done) };
        let mut problems = vec![];
        let is_wanted = |name: &[u8]| match pattern {
            Some(pattern) => pattern.is_match(name),
            None => !name.starts_with(b"."),
        };
        let listed = block_in_place(|| super::list::list(path, &is_wanted, &mut problems));
        let listed = listed.map_err(|e| Error::unavailable(format!("{}: {e}", path.display())))?;
        problems.into_iter().for_each(|problem| self.problem(problem));
        let mut wait: Option<Duration> = None;
        let mut seen_keys = std::collections::BTreeSet::new();
        for seen in listed {
            // a second name of a file is not a second file
            if !seen_keys.insert(seen.key) {
                continue;
            }
            if !self.settings.tailing
                && let Some(rest) = seen.waits(self.settings.quiet)
            {
                wait = Some(wait.map_or(rest, |wait| wait.min(rest)));
                continue;
            }
            if let Some(problem) = self.states.get(&seen.key).and_then(|state| state.settled_problem(&seen)) {
                problem.into_iter().for_each(|problem| self.problem(problem));
                continue;
            }
            match block_in_place(|| open(&seen.path)) {
                // another file may have got the name
                Ok((file, opened)) if opened.key == seen.key => {
                    self.read(&file, &opened, !self.settings.tailing, output).await?;
                }
                Ok(_) => {}
                Err(e) if e.kind() == IoErrorKind::NotFound => {}
                Err(e) => self.problem(format!("{}: {e}", seen.path.display())),
            }
        }
        self.states.retain(|key, _| seen_keys.contains(key));
        Ok(wait.map_or(Next::Later, Next::Soon))
    }

    async fn read_once(&mut self, path: &Path, output: &SourceOutput) -> Result<Next> {
        let at_path = |e: std::io::Error| Error::unavailable(format!("{}: {e}", path.display()));
        let metadata = match block_in_place(|| fs::metadata(path)) {
            Err(e) if e.kind() == IoErrorKind::NotFound => {
                let is_scheduled = self.settings.schedule.is_some();
                if !is_scheduled && self.progress.is_empty() {
                    self.problem(format!("{}: {e}; it is read as soon as it is there", path.display()));
                }
                // a file that was read before is deleted or moved by now
                return Ok(if is_scheduled || self.progress.is_empty() { Next::Later } else { Next::Done });
            }
            found => found.map_err(at_path)?,
        };
        super::list::check_regular(path, &metadata).map_err(Error::unavailable)?;
        let seen = Seen::new(path.to_owned(), &metadata);
        if let Some(rest) = seen.waits(self.settings.quiet) {
            return Ok(Next::Soon(rest));
        }
        let (file, seen) = block_in_place(|| open(path)).map_err(at_path)?;
        self.read(&file, &seen, true, output).await?;
        let is_finished = self.states.get(&seen.key).is_some_and(FileState::is_finished);
        let is_last = is_finished && self.settings.schedule.is_none();
        Ok(if is_last { Next::Done } else { Next::Later })
    }

    /// Follows the file of a name, and those that had the name before until they are read.
    async fn follow(&mut self, path: &Path, output: &SourceOutput) -> Result<Next> {
        let mut followed = match self.followed.take() {
            Some(followed) => followed,
            None => self.renamed_files(path),
        };
        let opened = block_in_place(|| {
            let metadata = fs::metadata(path)?;
            let key = FileKey::of(&metadata);
            if followed.last().is_some_and(|last| last.key == key && last.renamed_at.is_none()) {
                return Ok(Ok(None));
            }
            if let Err(problem) = super::list::check_regular(path, &metadata) {
                return Ok(Err(problem));
            }
            let (file, seen) = open(path)?;
            Ok(Ok(Some((file, seen.key))))
        });
        let now = SystemTime::now();
        let has_name = match opened {
            Ok(Ok(None)) => true,
            Ok(Ok(Some((file, key)))) => {
                followed.iter_mut().for_each(|old| old.lost_name(now));
                followed.retain(|old| old.key != key);
                followed.push(Followed { file, path: path.to_owned(), key, renamed_at: None });
                true
            }
            Ok(Err(problem)) => {
                self.problem(problem);
                false
            }
            Err(e) => {
                let e: std::io::Error = e;
                self.problem(format!("{}: {e}; it is read as soon as it can be", path.display()));
                false
            }
        };
        if !has_name {
            followed.iter_mut().for_each(|old| old.lost_name(now));
        }
        let result = self.read_followed(&mut followed, now, output).await;
        self.states.retain(|key, _| followed.iter().any(|file| file.key == *key));
        self.followed = Some(followed);
        result.map(|()| Next::Later)
    }

    async fn read_followed(
        &mut self,
        followed: &mut Vec<Followed>,
        now: SystemTime,
        output: &SourceOutput,
    ) -> Result<()> {
        let mut index = 0;
        while let Some(file) = followed.get(index) {
            let ends = file
                .renamed_at
                .is_some_and(|at| now.duration_since(at).is_ok_and(|age| age >= ROTATION_GRACE));
            match block_in_place(|| file.file.metadata()) {
                Ok(metadata) => {
                    let seen = Seen::new(file.path.clone(), &metadata);
                    let settled = self.states.get(&seen.key).and_then(|state| state.settled_problem(&seen));
                    match settled.filter(|_| !ends) {
                        Some(problem) => problem.into_iter().for_each(|problem| self.problem(problem)),
                        None => self.read(&file.file, &seen, ends, output).await?,
                    }
                }
                Err(e) => self.problem(format!("{}: {e}", file.path.display())),
            }
            match ends {
                true => drop(followed.remove(index)),
                false => index += 1,
            }
        }
        Ok(())
    }

    /// Returns the files in the directory of `path` that had the name before and are not fully read.
    fn renamed_files(&self, path: &Path) -> Vec<Followed> {
        let Some(dir) = path.parent() else { return vec![] };
        let current = fs::metadata(path).ok().map(|metadata| FileKey::of(&metadata));
        let found = block_in_place(|| super::list::list(dir, &|_| true, &mut vec![])).unwrap_or_default();
        let mut found: Vec<Seen> = found
            .into_iter()
            .filter(|seen| Some(seen.key) != current)
            .filter(|seen| self.progress.latest(seen.key).is_some_and(|position| position < seen.len))
            .collect();
        found.sort_by_key(|seen| seen.modified);
        let now = SystemTime::now();
        found
            .into_iter()
            .filter_map(|seen| {
                let (file, seen) = open(&seen.path).ok()?;
                Some(Followed { file, path: seen.path, key: seen.key, renamed_at: Some(now) })
            })
            .collect()
    }

    /// Hands over what is new in a file. What is wrong with the file becomes a problem.
    async fn read(&mut self, file: &File, seen: &Seen, ends: bool, output: &SourceOutput) -> Result<()> {
        let mut state = self.states.remove(&seen.key).unwrap_or_default();
        let read = state.read(file, seen, ends, &self.settings, &mut self.progress, output).await;
        let problem = state.problem(seen);
        self.states.insert(seen.key, state);
        problem.into_iter().for_each(|problem| self.problem(problem));
        read
    }

    /// Waits until the events of files that were read to their ends are durable, and deletes or moves these files.
    async fn finish(&mut self) {
        let mut problems = vec![];
        for state in self.states.values_mut() {
            problems.extend(state.finish(&self.settings).await);
        }
        problems.into_iter().for_each(|problem| self.problem(problem));
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX && !self.problems.contains(&problem) {
            tracing::warn!(path = %self.settings.path().display(), "{problem}");
            self.problems.push(problem);
        }
    }
}

impl Followed {
    fn lost_name(&mut self, now: SystemTime) {
        self.renamed_at.get_or_insert(now);
    }
}
