//! Fail points: errors, closed connections and delays that tests of drivers order by `configureFailPoint`.
//!
//! ```text
//! {configureFailPoint: "failCommand", mode: {times: 1}, data: {failCommands: ["insert"], errorCode: 91}}
//! ```
//!
//! Only a server that was started for such tests has them, see [`crate::MongoOptions::test_commands`].

use std::collections::HashMap;
use std::time::Duration;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{cstr, rawdoc};
use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_engine::{Engine, SessionWrite};

use crate::error::{Code, CommandError, Result};
use crate::fields::{Call, type_name, whole_number};
use crate::session::Session;
use crate::shared::MongoServerState;
use crate::wire::error_labels;

/// Maximum time for which a command may be blocked.
const BLOCK_MAX: Duration = Duration::from_secs(600);
/// The command that sets fail points; it does not fail itself, so that a test can always take one back.
const CONFIGURE: &str = "configureFailPoint";

/// The fail points that are set, by name.
#[derive(Default)]
pub(crate) struct FailPoints(Mutex<HashMap<Kind, FailPoint>>);

/// The fail points that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Commands of a list fail before they run, or get a write concern error afterwards.
    FailCommand,
    /// `getMore` fails.
    FailGetMore,
    /// A retryable write or commit closes the connection instead of replying, or fails before it is executed.
    TransactionalWrite,
    /// A command with a time limit exceeds it.
    ExceedTimeLimit,
    /// No command exceeds its time limit, which is the case here anyway.
    NeverExceedTimeLimit,
}

impl Kind {
    const ALL: [(&'static str, Self); 5] = [
        ("failCommand", Self::FailCommand),
        ("failGetMoreAfterCursorCheckout", Self::FailGetMore),
        ("onPrimaryTransactionalWrite", Self::TransactionalWrite),
        ("maxTimeAlwaysTimeOut", Self::ExceedTimeLimit),
        ("maxTimeNeverTimeOut", Self::NeverExceedTimeLimit),
    ];
}

struct FailPoint {
    mode: Mode,
    data: RawDocumentBuf,
    /// Number of times that it has been in effect since the start of the server.
    entered: i64,
}

/// For which of the commands that match a fail point is in effect.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Off,
    Always,
    /// For so many.
    Times(u64),
    /// For all but so many first ones.
    Skip(u64),
    /// For each with this probability.
    Probability(f64),
}

/// Failure that is injected into a command.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Failure {
    /// Time for which it waits first.
    pub block: Option<Duration>,
    /// True if the connection is closed without a reply.
    pub close: bool,
    /// The reply in place of what the command would do.
    pub error: Option<RawDocumentBuf>,
    /// Fields that are appended to the reply after the command.
    pub appended: RawDocumentBuf,
}

impl FailPoints {
    /// Runs `configureFailPoint`. Returns how often the fail point has been in effect.
    ///
    /// Errors: the fail point is unknown, or the mode or the data is malformed.
    pub fn configure(&self, call: &Call<'_>) -> Result<i64> {
        call.allow(&["mode", "data", "appName"])?;
        let name = call.text(call.name)?.unwrap_or_default();
        let Some((_, kind)) = Kind::ALL.into_iter().find(|(known, _)| *known == name) else {
            let known = Kind::ALL.map(|(known, _)| known).join(", ");
            let message = format!("there is no fail point `{name}`: expected one of {known}");
            return Err(CommandError { code: 206, message });
        };
        let mode = Mode::parse(call)?;
        let data = call.document("data")?.map(RawDocument::to_owned).unwrap_or_default();
        let mut points = self.0.lock();
        let entered = points.get(&kind).map_or(0, |point| point.entered);
        points.insert(kind, FailPoint { mode, data, entered });
        Ok(entered)
    }

    /// Returns what the fail points do with a command, and counts it; `None` if they let it be.
    ///
    /// Errors: the data of a fail point is malformed.
    pub fn failure(
        &self,
        server: &MongoServerState,
        call: &Call<'_>,
        session: &Session,
    ) -> Result<Option<Failure>> {
        let mut points = self.0.lock();
        if points.is_empty() || call.name == CONFIGURE {
            return Ok(None);
        }
        for (_, kind) in Kind::ALL {
            let Some(point) = points.get_mut(&kind) else { continue };
            if point.mode != Mode::Off
                && matches(kind, &point.data, call, (server, session))?
                && !(kind == Kind::TransactionalWrite && is_repeated(&server.whole_engine, call)?)
                && point.takes_effect(weight(kind, call))
            {
                return failure_of(kind, &point.data, call).map(Some);
            }
        }
        Ok(None)
    }
}

impl Mode {
    fn parse(call: &Call<'_>) -> Result<Self> {
        let unknown = || {
            let message = "`configureFailPoint.mode` must be \"off\", \"alwaysOn\", {times: n}, {skip: n} or \
                           {activationProbability: p}";
            CommandError::new(Code::BadValue, message)
        };
        match call.get("mode").ok_or_else(unknown)? {
            RawBsonRef::String("off") => Ok(Self::Off),
            RawBsonRef::String("alwaysOn") => Ok(Self::Always),
            RawBsonRef::Document(mode) => {
                let count = |value| whole_number(value).and_then(|n| u64::try_from(n).ok());
                let (name, value) = mode.into_iter().next().ok_or_else(unknown)??;
                match name.as_str() {
                    "times" => Ok(Self::Times(count(value).ok_or_else(unknown)?)),
                    "skip" => Ok(Self::Skip(count(value).ok_or_else(unknown)?)),
                    "activationProbability" => match value {
                        RawBsonRef::Double(p) if (0.0..=1.0).contains(&p) => Ok(Self::Probability(p)),
                        _ => Err(unknown()),
                    },
                    _ => Err(unknown()),
                }
            }
            _ => Err(unknown()),
        }
    }
}

impl FailPoint {
    /// Counts a command that matches, which has this weight. Returns whether it fails.
    fn takes_effect(&mut self, weight: u64) -> bool {
        let takes_effect = match &mut self.mode {
            Mode::Off => false,
            Mode::Always => true,
            Mode::Times(left) => {
                let takes_effect = *left > 0;
                *left = left.saturating_sub(1);
                takes_effect
            }
            Mode::Skip(left) => {
                let takes_effect = *left < weight;
                *left = left.saturating_sub(weight);
                takes_effect
            }
            Mode::Probability(p) => rand::random::<f64>() < *p,
        };
        if self.mode == Mode::Times(0) {
            self.mode = Mode::Off;
        }
        self.entered += i64::from(takes_effect);
        takes_effect
    }
}

/// Returns as how many a command counts: a write counts its documents or statements.
fn weight(kind: Kind, call: &Call<'_>) -> u64 {
    let count = || {
        ["documents", "updates", "deletes"].iter().find_map(|list| {
            let documents = call.documents(list).ok().filter(|documents| !documents.is_empty());
            documents.map(|documents| documents.len() as u64)
        })
    };
    match kind {
        Kind::TransactionalWrite => count().unwrap_or(1),
        _ => 1,
    }
}

/// Returns whether a fail point is about a command.
fn matches(
    kind: Kind,
    data: &RawDocument,
    call: &Call<'_>,
    (server, session): (&MongoServerState, &Session),
) -> Result<bool> {
    match kind {
        Kind::FailCommand => {
            if let Some(RawBsonRef::String(name)) = data.get("appName")?
                && session.application.as_deref() != Some(name)
            {
                return Ok(false);
            }
            if let Some(RawBsonRef::String(namespace)) = data.get("namespace")?
                && call.namespace() != namespace
            {
                return Ok(false);
            }
            let Some(RawBsonRef::Array(commands)) = data.get("failCommands")? else { return Ok(false) };
            let named = |command: RawBsonRef<'_>| {
                command.as_str().is_some_and(|command| command.eq_ignore_ascii_case(call.name))
            };
            Ok(commands.into_iter().flatten().any(named))
        }
        Kind::FailGetMore => Ok(call.name == "getMore"),
        Kind::TransactionalWrite => {
            let is_commit = call.name == "commitTransaction";
            Ok(call.get("txnNumber").is_some() && (is_commit || call.get("autocommit").is_none()))
        }
        Kind::ExceedTimeLimit => {
            // that of a query holds for its cursor
            let cursor = (call.name == "getMore").then(|| call.get("getMore")?.as_i64()).flatten();
            let of_cursor = cursor.is_some_and(|id| server.cursors.time_left(id).is_some());
            Ok(of_cursor || call.count("maxTimeMS")?.is_some_and(|limit| limit > 0))
        }
        Kind::NeverExceedTimeLimit => Ok(false),
    }
}

/// Returns whether a write was executed before, so that it is not executed again.
fn is_repeated(engine: &Engine, call: &Call<'_>) -> Result<bool> {
    let Some(RawBsonRef::Binary(id)) =
        call.document("lsid")?.map(|lsid| lsid.get("id")).transpose()?.flatten()
    else {
        return Ok(false);
    };
    let Some(number) = call.get("txnNumber").and_then(whole_number) else { return Ok(false) };
    let session = Bytes::copy_from_slice(id.bytes);
    Ok(engine.session_outcome(&SessionWrite { session, number, statement: 0 })?.is_some())
}

/// Returns what a fail point does with a command that it is about.
fn failure_of(kind: Kind, data: &RawDocument, call: &Call<'_>) -> Result<Failure> {
    let mut failure = Failure::default();
    if kind == Kind::ExceedTimeLimit {
        let error = CommandError::new(Code::MaxTimeMSExpired, "operation exceeded time limit");
        return Ok(Failure { error: Some(error.reply()), ..failure });
    }
    let flag = |name: &str, default: bool| match data.get(name)? {
        None | Some(RawBsonRef::Null) => Ok(default),
        Some(RawBsonRef::Boolean(flag)) => Ok(flag),
        Some(other) => match whole_number(other) {
            Some(number) => Ok(number != 0),
            None => Err(CommandError::wrong_type("data", name, type_name(other), "a bool")),
        },
    };
    let code_field = match kind {
        Kind::TransactionalWrite => "failBeforeCommitExceptionCode",
        _ => "errorCode",
    };
    let code = match data.get(code_field)? {
        None | Some(RawBsonRef::Null) => None,
        Some(value) => {
            Some(whole_number(value).and_then(|code| i32::try_from(code).ok()).ok_or_else(|| {
                CommandError::wrong_type("data", code_field, type_name(value), "the code of an error")
            })?)
        }
    };
    failure.close = flag("closeConnection", kind == Kind::TransactionalWrite)?;
    if flag("blockConnection", false)? {
        let time = data.get("blockTimeMS")?.and_then(whole_number).and_then(|ms| u64::try_from(ms).ok());
        let time = time.ok_or_else(|| {
            let message = "`data.blockConnection` needs `data.blockTimeMS`, milliseconds";
            CommandError::new(Code::InvalidOptions, message)
        })?;
        failure.block = Some(Duration::from_millis(time).min(BLOCK_MAX));
    }
    let labels = match data.get("errorLabels")? {
        Some(RawBsonRef::Array(labels)) => Some(labels.to_owned()),
        _ => None,
    };
    // what closes the connection before the command does not execute it; a transactional write is executed first
    if code.is_some() || (failure.close && kind != Kind::TransactionalWrite) {
        let code = code.unwrap_or(Code::HostUnreachable as i32);
        let message = format!("Failing command via 'failCommand' failpoint: {}", call.name);
        let mut error = CommandError { code, message }.reply();
        append_labels(&mut error, labels.as_ref());
        // one that fails before its command runs does not know whether that reads changes
        if kind == Kind::FailGetMore && labels.is_none() && error_labels::is_resumable(code) {
            let mut labels = RawArrayBuf::new();
            labels.push(error_labels::RESUMABLE);
            append_labels(&mut error, Some(&labels));
        }
        return Ok(Failure { error: Some(error), ..failure });
    }
    if let Some(RawBsonRef::Document(concern)) = data.get("writeConcernError")? {
        failure.appended = rawdoc! { "writeConcernError": concern.to_owned() };
        append_labels(&mut failure.appended, labels.as_ref());
    }
    Ok(failure)
}

/// Appends the labels that a test orders. An empty list keeps others from being appended.
fn append_labels(reply: &mut RawDocumentBuf, labels: Option<&RawArrayBuf>) {
    if let Some(labels) = labels {
        reply.append(cstr!("errorLabels"), labels.clone());
    }
}
