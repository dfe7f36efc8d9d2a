//! The sink: appends messages to files, or replaces the content of a file by each.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    PartitionEpochs, Payload, SinkBatch, SinkConnector, SinkPositions, SinkType, Template, write_value,
};
use tidemill_types::{Error, Result};

use super::options::FILE_SYSTEM_OPTIONS;
use super::target::{AppendedFile, Rolling, replace};
use super::uri::parse_path;

/// Files that are open at the same time.
const OPEN_FILES_MAX: usize = 64;
/// Mappers whose messages are not text.
const BINARY_MAPPERS: [&str; 3] = ["avro", "binary", "protobuf"];
/// Mappers whose messages end with the end of a line.
const LINE_MAPPERS: [&str; 1] = ["csv"];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("file.uri", "File that is written, as in `file:/var/out/{{site}}.json`; {partition} stands for the partition of the event.")
        .required()
        .dynamic(),
    OptionSpec::flag(
        "append",
        "true",
        "Whether messages are appended; otherwise each one replaces the content of the file.",
    ),
    OptionSpec::text(
        "add.line.separator",
        "Whether each message becomes a line: true or false; by default where messages are text, except those of the \
         mapper csv, which are lines.",
    ),
    OptionSpec::integer(
        "roll.max.bytes",
        1,
        i64::MAX,
        "Bytes above which the file is renamed, with the time in its name, and a new one begun.",
    ),
    OptionSpec::duration(
        "roll.interval",
        "A new file is begun with the first message of each such interval, as `roll.max.bytes` does; intervals begin \
         with 1970, in UTC.",
    ),
    OptionSpec::integer("roll.keep", 1, 1_000_000, "Number of renamed files that are kept; by default all."),
    FILE_SYSTEM_OPTIONS,
];

/// Part of a name that stands for the partition of the event.
const PARTITION_MARK: &str = "{partition}";

/// Returns why a file for the events of all partitions is refused, and what to write.
fn needs_partition(name: &str) -> String {
    let path = Path::new(name);
    let stem = path.file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy());
    let extension = path.extension().map_or(String::new(), |end| format!(".{}", end.to_string_lossy()));
    format!(
        "several processes own the partitions, and each would write to `{name}`: write {PARTITION_MARK} in the name, as in \
         `{stem}-{PARTITION_MARK}{extension}`, and each partition has a file"
    )
}

/// Type of the sink.
pub(crate) struct FileSinkType;

impl SinkType for FileSinkType {
    fn name(&self) -> &'static str {
        "file"
    }

    fn summary(&self) -> &'static str {
        "Appends messages to a file, whose name may depend on the event, or replaces its content by each."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let is_among = |all: &[&str]| {
            context.mapper.as_deref().is_some_and(|mapper| all.iter().any(|m| m.eq_ignore_ascii_case(mapper)))
        };
        let adds_line_end = match options.get("add.line.separator").map(str::to_ascii_lowercase).as_deref() {
            None => !is_among(&BINARY_MAPPERS) && !is_among(&LINE_MAPPERS),
            Some("true") => true,
            Some("false") => false,
            Some(other) => {
                let message = format!("expected `true` or `false`, found `{other}`");
                return Err(OptionError::option("add.line.separator", message));
            }
        };
        let appends = options.flag("append");
        let rolling = Rolling {
            bytes_max: options.integer("roll.max.bytes").map(|bytes| bytes as u64),
            interval: options.duration("roll.interval"),
            kept: options.integer("roll.keep").map(|count| count as usize),
        };
        if rolling.interval.is_some_and(|interval| interval.is_zero()) {
            return Err(OptionError::option("roll.interval", "expected a time above 0"));
        }
        let rolls = rolling.bytes_max.is_some() || rolling.interval.is_some();
        if let Some(name) =
            ["roll.max.bytes", "roll.interval", "roll.keep"].into_iter().find(|name| options.is_written(name))
        {
            if !appends {
                return Err(OptionError::option(name, "it needs append='true'"));
            }
            if !rolls {
                return Err(OptionError::option(name, "it needs `roll.max.bytes` or `roll.interval`"));
            }
        }
        let name = options.text("file.uri");
        let by_partition = name.contains(PARTITION_MARK);
        if context.shares_partitions && !by_partition {
            return Err(OptionError::option("file.uri", needs_partition(name)));
        }
        Ok(Box::new(FileSink {
            by_partition,
            name: FileName::new(name, context)?,
            appends,
            adds_line_end,
            are_lines: adds_line_end || is_among(&LINE_MAPPERS),
            rolling,
            open: BTreeMap::new(),
        }))
    }
}

/// Name of a file, which may depend on the event.
struct FileName {
    template: Template,
    dir: PathBuf,
    fixed: Option<PathBuf>,
    by_partition: bool,
}

impl FileName {
    fn new(text: &str, context: &ConnectorContext) -> Result<Self, OptionError> {
        let wrong = |e: String| OptionError::option("file.uri", e);
        let path = parse_path(text).map_err(wrong)?;
        let text = path.to_str().ok_or_else(|| wrong("the path is not UTF-8".into()))?;
        if text.ends_with('/') {
            return Err(wrong("expected a file, found a directory".into()));
        }
        let template = Template::parse(text, &context.schema).map_err(wrong)?;
        let by_partition = text.contains(PARTITION_MARK);
        let fixed = template.constant().filter(|_| !by_partition).map(|path| context.dir.join(path));
        Ok(Self { template, dir: context.dir.clone(), fixed, by_partition })
    }

    /// Returns the file of an event. Values do not lead out of the directory in which the template puts them.
    ///
    /// Errors: the reason why the event has no file.
    fn render(&self, batch: &SinkBatch, message: &Payload) -> Result<PathBuf, String> {
        if let Some(fixed) = &self.fixed {
            return Ok(fixed.clone());
        }
        let partition = batch.ids.get(message.row).filter(|_| self.by_partition).map(|id| id.partition);
        let is_unsafe = std::cell::Cell::new(false);
        let text = self.template.render_with(&batch.rows, message.row, &|_, value, out| {
            let start = out.len();
            write_value(value, out);
            let value = out.get(start..).unwrap_or_default();
            let path = Path::new(value);
            let leads_out = path.components().any(|part| matches!(part, Component::ParentDir));
            // a value at the beginning is a path that the app makes itself
            let is_absolute = start > 0 && path.is_absolute();
            // the value of an event does not choose the partition
            let is_mark = partition.is_some() && value.contains(PARTITION_MARK);
            is_unsafe.set(is_unsafe.get() || leads_out || is_absolute || is_mark || value.contains('\0'));
        });
        let text = match partition {
            Some(partition) => text.replace(PARTITION_MARK, &partition.0.to_string()),
            None => text,
        };
        match is_unsafe.get() || text.ends_with('/') || text.is_empty() {
            true => Err(format!("`{text}` is no name of a file that an event may choose")),
            false => Ok(self.dir.join(OsStr::from_bytes(text.as_bytes()))),
        }
    }
}

struct FileSink {
    name: FileName,
    /// True if each partition has files of its own.
    by_partition: bool,
    appends: bool,
    /// True if each message gets the end of a line.
    adds_line_end: bool,
    are_lines: bool,
    rolling: Rolling,
    open: BTreeMap<PathBuf, AppendedFile>,
}

// reading and writing block the thread of this sink, which has nothing else to do
#[async_trait]
impl SinkConnector for FileSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.open.clear();
        if let Some(path) = self.name.fixed.clone().filter(|_| self.appends) {
            let file = AppendedFile::open(&path, self.rolling, self.are_lines);
            self.open.insert(path.clone(), file.map_err(|e| unavailable(&path, &e))?);
        }
        Ok(None)
    }

    async fn own(&mut self, _: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        // another process may write the files of a partition that has moved
        if self.by_partition {
            self.open.clear();
        }
        Ok(None)
    }

    fn delivers_by_partition(&self) -> bool {
        self.by_partition
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let messages = batch.messages_from(progress).to_vec();
        let mut rest = messages.as_slice();
        while !rest.is_empty() {
            let (count, refused) = self.write_files(batch, rest)?;
            let (done, behind) = rest.split_at(count);
            for (index, message) in done.iter().enumerate() {
                match refused.get(&index) {
                    Some(reason) => progress.refused(message, reason),
                    None => progress.took(message),
                }
            }
            rest = behind;
        }
        Ok(())
    }

    async fn close(&mut self) {
        self.open.clear();
    }
}

/// Number of messages that are durable, and why some of them were refused.
type WrittenBatch = (usize, BTreeMap<usize, String>);

impl FileSink {
    /// Writes messages to not more files than can be open, and makes them durable.
    fn write_files(&mut self, batch: &SinkBatch, messages: &[Payload]) -> Result<WrittenBatch> {
        let mut files: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
        let mut refused = BTreeMap::new();
        let mut count = 0;
        for (index, message) in messages.iter().enumerate() {
            match self.name.render(batch, message) {
                Err(reason) => drop(refused.insert(index, reason)),
                Ok(path) if files.len() < OPEN_FILES_MAX || files.contains_key(&path) => {
                    files.entry(path).or_default().push(index);
                }
                Ok(_) => break,
            }
            count += 1;
        }
        for (path, indices) in files {
            let contents = indices.iter().filter_map(|index| messages.get(*index));
            let contents = contents.map(|message| self.content(message)).collect::<Vec<_>>();
            let written = match self.appends {
                true => self.append(&path, &contents),
                false => contents.last().map_or(Ok(()), |last| replace(&path, last)),
            };
            if let Err(e) = written {
                self.open.remove(&path);
                // a name that the system does not take is wrong for this event only
                let is_name = matches!(
                    e.kind(),
                    io::ErrorKind::InvalidFilename
                        | io::ErrorKind::IsADirectory
                        | io::ErrorKind::NotADirectory
                        | io::ErrorKind::InvalidInput
                );
                if self.name.fixed.is_some() || !is_name {
                    return Err(unavailable(&path, &e));
                }
                refused.extend(indices.into_iter().map(|index| (index, format!("{}: {e}", path.display()))));
            }
        }
        Ok((count, refused))
    }

    fn content(&self, message: &Payload) -> Vec<u8> {
        let mut content = message.bytes.to_vec();
        if self.adds_line_end {
            content.push(b'\n');
        }
        content
    }

    fn append(&mut self, path: &Path, contents: &[Vec<u8>]) -> io::Result<()> {
        // the file may have been renamed or removed
        let is_open = self.open.get(path).is_some_and(|file| file.has_name());
        let mut file = match self.open.remove(path).filter(|_| is_open) {
            Some(file) => file,
            None => AppendedFile::open(path, self.rolling, self.are_lines)?,
        };
        let mut waiting: Vec<u8> = vec![];
        for content in contents {
            let now = SystemTime::now();
            if file.is_full(waiting.len(), content.len(), now) {
                file.append(&std::mem::take(&mut waiting))?;
                file.roll(now)?;
                file = AppendedFile::open(path, self.rolling, self.are_lines)?;
            }
            waiting.extend_from_slice(content);
        }
        file.append(&waiting)?;
        file.sync()?;
        if self.open.len() >= OPEN_FILES_MAX {
            self.open.pop_first();
        }
        self.open.insert(path.to_owned(), file);
        Ok(())
    }
}

fn unavailable(path: &Path, e: &io::Error) -> Error {
    Error::unavailable(format!("{}: {e}", path.display()))
}
