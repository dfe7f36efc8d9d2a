//! One file that a sink writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tidemill_types::Timestamp;

/// When a file is renamed and a new one begun.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rolling {
    /// Bytes above which a file does not grow, unless one message is larger.
    pub bytes_max: Option<u64>,
    /// A file has the messages of one interval, counted from 1970.
    pub interval: Option<Duration>,
    /// Number of renamed files that are kept.
    pub kept: Option<usize>,
}

impl Rolling {
    /// Returns whether a file of `len` bytes, begun at `begun`, is full before `more` bytes are added at `now`.
    fn is_due(&self, len: u64, more: u64, begun: SystemTime, now: SystemTime) -> bool {
        let number = |time: SystemTime, interval: Duration| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            since.as_nanos() / interval.as_nanos().max(1)
        };
        let is_large = self.bytes_max.is_some_and(|max| len.saturating_add(more) > max);
        let is_old = self.interval.is_some_and(|interval| number(begun, interval) < number(now, interval));
        len > 0 && (is_large || is_old)
    }
}

/// File to which messages are appended.
pub(super) struct AppendedFile {
    path: PathBuf,
    file: File,
    len: u64,
    begun: SystemTime,
    rolling: Rolling,
}

impl AppendedFile {
    /// Opens a file, with the directories above it. If messages are lines, a last line without an end, which a crash left,
    /// gets one.
    pub(super) fn open(path: &Path, rolling: Rolling, are_lines: bool) -> io::Result<Self> {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        let is_new = !path.exists();
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        if is_new {
            File::open(dir)?.sync_all()?;
        }
        let mut len = metadata.len();
        let mut last = [b'\n'];
        if are_lines && len > 0 {
            file.read_exact_at(&mut last, len - 1)?;
        }
        if last != [b'\n'] {
            file.write_all(b"\n")?;
            len += 1;
        }
        let begun = metadata.created().or_else(|_| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Self { path: path.to_owned(), file, len, begun, rolling })
    }

    /// Returns whether its path still is this file.
    pub(super) fn has_name(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(file), Ok(named)) => (file.dev(), file.ino()) == (named.dev(), named.ino()),
            _ => false,
        }
    }

    /// Returns whether the file must be renamed before `more` bytes are added behind `waiting` ones.
    pub(super) fn is_full(&self, waiting: usize, more: usize, now: SystemTime) -> bool {
        self.rolling.is_due(self.len + waiting as u64, more as u64, self.begun, now)
    }

    /// Appends bytes. What is written of them is taken back if not all can be.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        match &written {
            Ok(()) => self.len += bytes.len() as u64,
            // a file that cannot be cut either has a part of a message, as after a crash
            Err(_) => drop(self.file.set_len(self.len)),
        }
        written
    }

    /// Makes everything durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Renames the file, with the time in its name, and removes the oldest of those renamed before.
    pub(super) fn roll(self, now: SystemTime) -> io::Result<()> {
        self.file.sync_all()?;
        let time = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let time = Timestamp(time.as_micros() as i64).to_string();
        let time: String = time.chars().filter(char::is_ascii_digit).collect();
        let name_of = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{time:0<20}"));
            if number > 0 {
                name.push(format!("-{number}"));
            }
            PathBuf::from(name)
        };
        let free = (0..u32::MAX).map(name_of).find(|path| fs::symlink_metadata(path).is_err());
        fs::rename(&self.path, free.unwrap_or_else(|| name_of(0)))?;
        self.remove_oldest()
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let (Some(kept), Some(name)) = (self.rolling.kept, self.path.file_name()) else { return Ok(()) };
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = name.to_string_lossy();
        let is_rolled = |other: &str| {
            let rest = other.strip_prefix(&*name).and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|rest| rest.len() >= 20 && rest.bytes().all(|b| b.is_ascii_digit() || b == b'-'))
        };
        let mut rolled = vec![];
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_rolled) {
                rolled.push(entry.path());
            }
        }
        rolled.sort_unstable();
        let excess = rolled.len().saturating_sub(kept);
        rolled.iter().take(excess).try_for_each(fs::remove_file)
    }
}

/// Replaces the content of a file: readers see the old content or the new one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let mut partial = path.as_os_str().to_os_string();
    partial.push(".part");
    let partial = PathBuf::from(partial);
    let mut file = File::create(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&partial, path)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn full_files_are_due() {
        let rolling = Rolling { bytes_max: Some(100), interval: Some(Duration::from_secs(60)), kept: None };
        for (len, more, begun, now, expected) in [
            (90, 10, 0, 59, false),
            (90, 11, 0, 59, true),
            (0, 1000, 0, 59, false),
            (1, 1, 59, 60, true),
            (1, 1, 60, 119, false),
            (1, 1, 60, 10, false),
        ] {
            assert_eq!(rolling.is_due(len, more, at(begun), at(now)), expected, "{len} {more} {begun} {now}");
        }
        assert!(!Rolling::default().is_due(u64::MAX, 1, at(0), at(u64::from(u32::MAX))));
    }

    #[test]
    fn the_newest_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(dir.path().join("a.log.other"), "").unwrap();
        let rolling = Rolling { kept: Some(2), ..Rolling::default() };
        for n in 0..5u64 {
            let mut file = AppendedFile::open(&path, rolling, true).unwrap();
            file.append(format!("{n}\n").as_bytes()).unwrap();
            file.roll(at(n / 2)).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 3, "{names:?}");
        let texts: Vec<_> =
            names.iter().map(|name| fs::read_to_string(dir.path().join(name)).unwrap()).collect();
        assert_eq!(texts, ["3\n", "4\n", ""]);
    }

    #[test]
    fn an_open_line_gets_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/a.log");
        for (are_lines, expected) in [(true, "ab"), (false, "abab"), (true, "abab\nab")] {
            AppendedFile::open(&path, Rolling::default(), are_lines).unwrap().append(b"ab").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
    }

    #[test]
    fn contents_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/state.json");
        for text in ["long text", "short"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
