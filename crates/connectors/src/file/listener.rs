//! Changes of the files of a directory as events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, FieldType, Result};
use tokio::task::block_in_place;

use super::list::list;
use super::options::{FILE_SYSTEM_OPTIONS, path_option};
use super::source::Seen;
use crate::pairs::parse_names;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("dir.uri", "Directory that is watched, as in `file:/var/in`; not those below it.")
        .alias("uri")
        .required(),
    OptionSpec::duration("monitoring.interval", "Time between two looks into the directory.").default("100"),
    OptionSpec::text("file.name.list", "Names of the files that are watched, with commas; by default all."),
    FILE_SYSTEM_OPTIONS,
];

/// Type of the source `fileeventlistener`.
pub(crate) struct FileListenerType;

impl SourceType for FileListenerType {
    fn name(&self) -> &'static str {
        "fileeventlistener"
    }

    fn summary(&self) -> &'static str {
        "An event with path, name and `created`, `modifying`, `modifyingCompleted` or `removed` when a file of a \
         directory changes."
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
        let fields = &context.schema.fields;
        let is_text = fields.iter().all(|field| field.ty == FieldType::String);
        if fields.len() != 3 || !is_text {
            let message = "the source `fileeventlistener` needs a stream with three attributes of type string, for path, \
                           name and status";
            return Err(OptionError::connector(message)
                .expected(["(filepath string, filename string, status string)"]));
        }
        Ok(Box::new(FileListener {
            dir: path_option(options, "dir.uri", context)?.unwrap_or_default(),
            names: parse_names(options.text("file.name.list")),
            interval: options
                .duration("monitoring.interval")
                .unwrap_or_default()
                .max(Duration::from_millis(1)),
            attributes: fields.iter().map(|field| field.name.clone()).collect(),
            files: BTreeMap::new(),
        }))
    }
}

struct FileListener {
    dir: PathBuf,
    names: Vec<String>,
    interval: Duration,
    /// Attributes for path, name and status.
    attributes: Vec<String>,
    /// Files by their names.
    files: BTreeMap<String, Watched>,
}

/// Reported state of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Watched {
    /// Time of the last change in microseconds, or a later number if times went back.
    version: u64,
    exists: bool,
    /// Length and time at the last look; `None` before the first one.
    seen: Option<(u64, SystemTime)>,
    is_changing: bool,
}

impl Watched {
    /// Returns what the position of a split says.
    fn at(position: u64) -> Self {
        Self { version: position / 2, exists: position % 2 == 1, ..Self::default() }
    }

    fn position(&self) -> u64 {
        self.version * 2 + u64::from(self.exists)
    }

    /// Notes what a look found. Returns what is to report.
    fn note(&mut self, found: Option<(u64, SystemTime)>) -> Option<&'static str> {
        let modified = found.and_then(|(_, time)| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        // one bit is for `exists`
        let modified = modified.map_or(0, |since| since.as_micros() as u64 & (u64::MAX >> 1));
        let status = match (found, self.exists) {
            (None, false) => return None,
            (None, true) => "removed",
            (Some(_), false) => "created",
            (Some(_), true) => {
                let changed = match self.seen {
                    Some(seen) => Some(seen) != found,
                    None => modified > self.version,
                };
                match (changed, self.is_changing) {
                    (true, _) => "modifying",
                    (false, true) => "modifyingCompleted",
                    (false, false) => {
                        self.seen = found;
                        return None;
                    }
                }
            }
        };
        self.version = modified.max(self.version + 1);
        self.exists = found.is_some();
        self.is_changing = status == "modifying";
        self.seen = found;
        Some(status)
    }
}

#[async_trait]
impl SourceConnector for FileListener {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        for (name, position) in output.positions() {
            self.files.entry(name).or_insert_with(|| Watched::at(position));
        }
        loop {
            let mut problems = vec![];
            let names = &self.names;
            let is_wanted =
                |name: &[u8]| names.is_empty() || names.iter().any(|wanted| wanted.as_bytes() == name);
            let found = block_in_place(|| list(&self.dir, &is_wanted, &mut problems));
            let found = found.map_err(|e| Error::unavailable(format!("{}: {e}", self.dir.display())))?;
            self.report(found, output).await?;
            match problems.first() {
                None => output.report_connected(),
                Some(problem) => output.report_problem(problem.clone()),
            }
            tokio::time::sleep(self.interval).await;
        }
    }
}

impl FileListener {
    async fn report(&mut self, found: Vec<Seen>, output: &SourceOutput) -> Result<()> {
        let found: BTreeMap<String, (u64, SystemTime)> = found
            .into_iter()
            .filter_map(|seen| Some((seen.path.file_name()?.to_str()?.to_owned(), (seen.len, seen.modified))))
            .collect();
        let gone = self.files.iter().filter(|(name, file)| file.exists && !found.contains_key(*name));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        let all = gone.into_iter().map(|name| (name, None));
        let all = all.chain(found.into_iter().map(|(name, seen)| (name, Some(seen))));
        for (name, seen) in all.collect::<Vec<_>>() {
            let mut file = self.files.get(&name).copied().unwrap_or_default();
            let number = file.position();
            if let Some(status) = file.note(seen) {
                let mut message = self.message(&self.dir.join(&name), &name, status);
                message.number = number;
                output.send_split(&Arc::from(name.as_str()), vec![message], file.position()).await?;
            }
            self.files.insert(name, file);
        }
        Ok(())
    }

    fn message(&self, path: &Path, name: &str, status: &str) -> Message {
        let path = path.to_string_lossy();
        let values = [&*path, name, status];
        let event: serde_json::Map<String, serde_json::Value> =
            self.attributes.iter().zip(values).map(|(key, value)| (key.clone(), value.into())).collect();
        let properties = [("file.path", &*path), ("file.name", name), ("status", status)];
        Message {
            properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Message::new(serde_json::Value::Object(event).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noted() {
        let at = |us: u64| Some((1, SystemTime::UNIX_EPOCH + Duration::from_micros(us)));
        let mut file = Watched::default();
        let found = [None, at(10), at(10), at(20), at(25), at(25), at(25), None, None, at(5)];
        let reports = found.map(|found| {
            let before = file.position();
            let status = file.note(found);
            assert_eq!(status.is_some(), file.position() > before);
            // a restart at any point changes nothing, except that it forgets whether a change is in progress
            let mut restarted = Watched::at(file.position());
            assert_eq!(restarted.note(found), None);
            status.unwrap_or("-")
        });
        let expected = [
            "-",
            "created",
            "-",
            "modifying",
            "modifying",
            "modifyingCompleted",
            "-",
            "removed",
            "-",
            "created",
        ];
        assert_eq!(reports, expected);
        let mut restarted = Watched::at(file.position());
        assert_eq!(restarted.note(at(60)), Some("modifying"));
    }
}
