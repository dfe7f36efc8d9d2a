//! Options of the source, and what they mean together.

use std::path::{Path, PathBuf};
use std::time::Duration;

use regex::bytes::Regex;
use tidemill_connect::{ConnectorContext, OptionError, OptionSpec, Options};
use tidemill_types::cron::Cron;

use super::after::FileAction;
use super::reader::{Part, Reading};
use super::records::Framing;
use super::uri::parse_path;

pub(super) const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

/// Options of remote file systems, which there are not here.
pub(super) const FILE_SYSTEM_OPTIONS: OptionSpec = OptionSpec::text(
    "file.system.options",
    "Accepted without effect: settings of remote file systems, of which files are not read here.",
)
.secret();

const MODES: &[&str] = &["LINE", "REGEX", "TEXT.FULL", "BINARY.FULL", "BINARY.CHUNKED"];
const ACTIONS: &[&str] = &["KEEP", "NONE", "DELETE", "MOVE"];

pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("file.uri", "File that is read, as in `file:/var/log/app.log`; or write dir.uri."),
    OptionSpec::text("dir.uri", "Directory whose files are read in order of their names; not those below it."),
    OptionSpec::one_of(
        "mode",
        MODES,
        "What is a message: a line, the text between two matches, a whole file, or a part of `buffer.size` bytes.",
    )
    .default("LINE"),
    OptionSpec::flag(
        "tailing",
        "true",
        "Whether files are followed as they grow; by default with the modes LINE and REGEX.",
    ),
    OptionSpec::one_of(
        "action.after.process",
        ACTIONS,
        "What happens to a file when its events are durable; without effect on files that are followed.",
    )
    .default("KEEP"),
    OptionSpec::one_of(
        "action.after.failure",
        ACTIONS,
        "What happens to a file that cannot be read as the mode says, or of which no message became an event.",
    )
    .default("KEEP"),
    OptionSpec::text("move.after.process", "Directory of action.after.process='MOVE'; it is created."),
    OptionSpec::text("move.after.failure", "Directory of action.after.failure='MOVE'; it is created."),
    OptionSpec::one_of(
        "move.if.exist.mode",
        &["KEEP", "OVERWRITE"],
        "Whether a file of the same name is kept, and the moved one gets an id in its name, or is replaced.",
    )
    .default("KEEP"),
    OptionSpec::text("begin.regex", "What a message of the mode REGEX begins with."),
    OptionSpec::text("end.regex", "What a message of the mode REGEX ends with."),
    OptionSpec::duration("file.polling.interval", "Time between two looks at the file.").default("1000"),
    OptionSpec::duration("dir.polling.interval", "Time between two looks into the directory.").default("1000"),
    OptionSpec::duration(
        "file.read.wait.timeout",
        "How long a file must be unchanged before it is read to its end.",
    )
    .default("1000"),
    OptionSpec::duration("timeout", "Accepted without effect; reading a file has no limit of time.")
        .default("5000"),
    OptionSpec::flag("header.present", "false", "Whether the first lines of each file are skipped."),
    OptionSpec::integer("header.line.count", 1, 1_000_000, "Number of these lines.").default("1"),
    OptionSpec::flag("read.only.header", "false", "Whether only the first line of each file is read."),
    OptionSpec::flag("read.only.trailer", "false", "Whether only the last line of each file is read."),
    OptionSpec::flag("skip.trailer", "false", "Whether the last line of each file is left out."),
    OptionSpec::integer("buffer.size", 1, 64 << 20, "Bytes of a message of the mode BINARY.CHUNKED.")
        .default("65536"),
    OptionSpec::text(
        "cron.expression",
        "When files are looked for, in UTC and the format of Quartz, as in `0 0 2 * * ?`; by default at the intervals.",
    ),
    OptionSpec::text(
        "file.name.pattern",
        "Regular expression that the whole name of a file in the directory matches; by default all names that do not \
         begin with a dot.",
    ),
    OptionSpec::integer(MAX_MESSAGE_BYTES, 1, 1 << 30, "Bytes of the longest message.").default("16777216"),
    FILE_SYSTEM_OPTIONS,
];

/// Settings of a source.
#[derive(Debug)]
pub(super) struct FileSettings {
    pub place: Place,
    pub reading: Reading,
    /// True if files are followed as they grow.
    pub tailing: bool,
    pub after_process: FileAction,
    pub after_failure: FileAction,
    pub poll_interval: Duration,
    /// Time for which a file must be unchanged before it is read to its end.
    pub quiet: Duration,
    pub schedule: Option<Cron>,
}

/// Location of the files.
#[derive(Debug)]
pub(super) enum Place {
    File(PathBuf),
    Directory { path: PathBuf, pattern: Option<Regex> },
}

impl FileSettings {
    pub(super) fn new(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        let place = place(options, context)?;
        let mode = options.text("mode").to_ascii_uppercase();
        let framing = framing(options, &mode)?;
        let part = part(options, &mode)?;
        let header_lines = header_lines(options, &mode)?;
        let schedule = options.get("cron.expression").map(Cron::parse).transpose();
        let schedule = schedule.map_err(|e| OptionError::option("cron.expression", e))?;
        let tailing = tailing(options, &mode, part, schedule.is_some())?;
        let after_process = action(options, context, "action.after.process", "move.after.process")?;
        let after_failure = action(options, context, "action.after.failure", "move.after.failure")?;
        if tailing && matches!(after_process, FileAction::Move { .. }) {
            let message =
                "a file that is followed is never read to its end; write tailing='false' to move it";
            return Err(OptionError::option("action.after.process", message).expected(["tailing='false'"]));
        }
        for (action, name) in [(&after_process, "move.after.process"), (&after_failure, "move.after.failure")]
        {
            if let (FileAction::Move { dir, .. }, Place::Directory { path, .. }) = (action, &place)
                && dir == path
            {
                return Err(OptionError::option(name, "expected another directory than that of dir.uri"));
            }
        }
        let interval = match place {
            Place::File(_) => "file.polling.interval",
            Place::Directory { .. } => "dir.polling.interval",
        };
        let poll_interval = options.duration(interval).unwrap_or_default();
        Ok(Self {
            place,
            reading: Reading {
                framing,
                header_lines,
                part,
                bytes_max: options.integer(MAX_MESSAGE_BYTES).unwrap_or_default() as usize,
            },
            tailing,
            after_process: if tailing { FileAction::Keep } else { after_process },
            after_failure,
            poll_interval: poll_interval.max(Duration::from_millis(1)),
            quiet: options.duration("file.read.wait.timeout").unwrap_or_default(),
            schedule,
        })
    }

    /// Returns the file or directory.
    pub(super) fn path(&self) -> &Path {
        match &self.place {
            Place::File(path) | Place::Directory { path, .. } => path,
        }
    }
}

/// Returns the path of an option, from the directory of the app.
pub(super) fn path_option(
    options: &Options,
    name: &str,
    context: &ConnectorContext,
) -> Result<Option<PathBuf>, OptionError> {
    let parsed = options.get(name).map(parse_path).transpose();
    let path = parsed.map_err(|e| OptionError::option(name, e))?;
    Ok(path.map(|path| context.dir.join(path)))
}

fn place(options: &Options, context: &ConnectorContext) -> Result<Place, OptionError> {
    let file = path_option(options, "file.uri", context)?;
    let dir = path_option(options, "dir.uri", context)?;
    let pattern = match options.get("file.name.pattern") {
        None => None,
        Some(pattern) => Some(regex("file.name.pattern", &format!("^(?:{pattern})$"))?),
    };
    match (file, dir) {
        (Some(_), Some(_)) => {
            Err(OptionError::option("dir.uri", "write either `file.uri` or `dir.uri`, not both"))
        }
        (None, None) => Err(OptionError::connector("the source `file` needs `file.uri` or `dir.uri`")
            .expected(["file.uri='file:/…'", "dir.uri='file:/…'"])),
        (Some(_), None) if pattern.is_some() => Err(OptionError::option(
            "file.name.pattern",
            "it is for the files of a directory; write `dir.uri`",
        )),
        (Some(path), None) => Ok(Place::File(path)),
        (None, Some(path)) => Ok(Place::Directory { path, pattern }),
    }
}

fn regex(name: &str, pattern: &str) -> Result<Regex, OptionError> {
    Regex::new(pattern).map_err(|e| {
        let reason = e.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        OptionError::option(name, format!("not a regular expression: {reason}"))
    })
}

fn framing(options: &Options, mode: &str) -> Result<Framing, OptionError> {
    let mut edges = [None, None];
    for (edge, name) in edges.iter_mut().zip(["begin.regex", "end.regex"]) {
        let Some(pattern) = options.get(name) else { continue };
        if mode != "REGEX" {
            return Err(OptionError::option(name, "it needs mode='REGEX'").expected(["mode='REGEX'"]));
        }
        let regex = regex(name, pattern)?;
        if regex.is_match(b"") {
            return Err(OptionError::option(name, "the regular expression matches the empty text"));
        }
        *edge = Some(regex);
    }
    if options.is_written("buffer.size") && mode != "BINARY.CHUNKED" {
        return Err(OptionError::option("buffer.size", "it needs mode='BINARY.CHUNKED'"));
    }
    Ok(match (mode, edges) {
        ("REGEX", [None, None]) | ("LINE", _) => Framing::Lines,
        ("REGEX", [begin, end]) => Framing::Matches { begin, end },
        ("BINARY.CHUNKED", _) => Framing::Chunks(options.integer("buffer.size").unwrap_or(1) as usize),
        _ => Framing::Whole,
    })
}

fn part(options: &Options, mode: &str) -> Result<Part, OptionError> {
    let all = [
        ("read.only.header", Part::First),
        ("read.only.trailer", Part::Last),
        ("skip.trailer", Part::AllButLast),
    ];
    let mut written = all.iter().filter(|(name, _)| options.flag(name));
    match (written.next(), written.next()) {
        (None, _) => Ok(Part::All),
        (Some((name, _)), None) if mode != "LINE" => {
            Err(OptionError::option(name, "it needs mode='LINE'").expected(["mode='LINE'"]))
        }
        (Some((name, Part::First)), None) if options.flag("header.present") => Err(OptionError::option(
            name,
            "the header is skipped with header.present='true'; write one of both",
        )),
        (Some((_, part)), None) => Ok(*part),
        (Some((first, _)), Some((name, _))) => {
            Err(OptionError::option(name, format!("it cannot be used together with `{first}`")))
        }
    }
}

fn header_lines(options: &Options, mode: &str) -> Result<usize, OptionError> {
    match options.flag("header.present") {
        false => Ok(0),
        true if mode.starts_with("BINARY") => {
            Err(OptionError::option("header.present", "a binary file has no lines"))
        }
        true => Ok(options.integer("header.line.count").unwrap_or(1) as usize),
    }
}

fn tailing(options: &Options, mode: &str, part: Part, is_scheduled: bool) -> Result<bool, OptionError> {
    let reason = match mode {
        "LINE" | "REGEX" if is_scheduled => {
            "files that are read at times of `cron.expression` are read to their end"
        }
        "LINE" | "REGEX" if part != Part::All => {
            "the first and the last line are known when a file has its end"
        }
        "LINE" | "REGEX" => return Ok(options.flag("tailing")),
        _ => "only lines and matches of regular expressions can be followed",
    };
    match options.is_written("tailing") && options.flag("tailing") {
        false => Ok(false),
        true => Err(OptionError::option("tailing", reason).expected(["tailing='false'"])),
    }
}

fn action(
    options: &Options,
    context: &ConnectorContext,
    name: &str,
    move_name: &str,
) -> Result<FileAction, OptionError> {
    let dir = path_option(options, move_name, context)?;
    match (options.text(name).to_ascii_uppercase().as_str(), dir) {
        ("MOVE", Some(dir)) => {
            let overwrites = options.text("move.if.exist.mode").eq_ignore_ascii_case("OVERWRITE");
            Ok(FileAction::Move { dir, overwrites })
        }
        ("MOVE", None) => {
            Err(OptionError::connector(format!("{name}='MOVE' needs the option `{move_name}`"))
                .expected([format!("{move_name}='file:/…'")]))
        }
        (_, Some(_)) => Err(OptionError::option(move_name, format!("it needs {name}='MOVE'"))
            .expected([format!("{name}='MOVE'")])),
        ("DELETE", None) => Ok(FileAction::Delete),
        _ => Ok(FileAction::Keep),
    }
}
