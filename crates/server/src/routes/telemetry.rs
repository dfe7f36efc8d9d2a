//! What the routes of telemetry share: the streams that a caller may write to, storing, and what is said about records that are refused.

use std::cell::{Cell, RefCell};
use std::fmt::Write;

use tidemill_access::{Action, Principal, Resource};
use tidemill_engine::{Engine, SendOptions};
use tidemill_mappers::telemetry::{StreamRows, TelemetryRows};
use tidemill_types::{Error, Result};

use crate::body::BudgetedBytes;

/// Reasons that a reply names.
const REASONS_MAX: usize = 20;
/// Bytes of a reason that a reply shows; it may have names of the message.
const REASON_BYTES_MAX: usize = 2048;

/// Outcome of the records of a request. Each line of its message is about a record, or those of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordsOutcome {
    /// Records that are stored.
    pub stored: u64,
    /// Records that are not.
    pub rejected: u64,
    /// Reasons of these, or what is said about stored ones; empty if there is nothing to say.
    pub message: String,
}

/// Decodes the records of a body by `decode`, and stores them. What it returns comes back beside the outcome.
///
/// Errors: `Forbidden` when the caller may write to none of the streams; those of `decode` and of [`Engine::send_rows`].
pub(crate) fn store<T>(
    engine: &Engine,
    principal: &Principal,
    body: &mut BudgetedBytes,
    bytes: &[u8],
    decode: impl FnOnce(&[u8], &mut StreamRows<'_>) -> Result<T>,
) -> Result<(RecordsOutcome, T)> {
    let (forbidden, is_missing) = (RefCell::new(None), Cell::new(false));
    let mut rows = StreamRows::new(
        |stream| {
            // asked before the stream is looked for, so that the answer does not say whether there is one
            principal.may(Action::Write, &Resource::stream(stream.name)).map_err(|e| {
                let reason = e.to_string();
                forbidden.borrow_mut().get_or_insert(e);
                reason
            })?;
            engine.stream_schema(stream.name).cloned().map_err(|_| {
                is_missing.set(true);
                format!("no stream `{}`: declare it in the app: {}", stream.name, stream.declaration_line())
            })
        },
        |bytes| body.reserve(bytes),
        engine.now(),
    );
    let decoded = decode(bytes, &mut rows)?;
    let TelemetryRows { rows, refused, warnings } = rows.finish();
    let refused_count: u64 = refused.iter().map(|refused| refused.count).sum();
    if let Some(error) = forbidden.into_inner()
        && rows.rows.is_empty()
        && rows.rejected.is_empty()
        && refused_count > 0
        && !is_missing.get()
    {
        return Err(error);
    }
    let rejected = refused_count + rows.rejected.len() as u64;
    let mut message = String::new();
    if rejected > 0 {
        let all = rejected + rows.rows.len() as u64;
        let _ = write!(message, "{rejected} of {all} records were rejected");
        for bad in rows.rejected.iter().take(REASONS_MAX) {
            let _ = write!(message, "\nrecord {}: {}", bad.origin.number + 1, cut(&bad.message));
        }
        let more = rows.rejected.len().saturating_sub(REASONS_MAX);
        if more > 0 {
            let _ = write!(message, "\nand {more} more records");
        }
        for refused in refused {
            let (rows, count, reason) = (refused.stream.rows, refused.count, cut(&refused.reason));
            let _ = write!(message, "\n{rows} ({count}): {reason}");
        }
    } else {
        message = warnings.iter().map(|warning| cut(warning)).collect::<Vec<_>>().join("\n");
    }
    let send = SendOptions { durability: None, wait: false, origin: super::ORIGIN.to_owned() };
    let reply = engine.send_rows(rows, &send)?;
    Ok((RecordsOutcome { stored: reply.accepted, rejected, message }, decoded))
}

impl RecordsOutcome {
    /// Returns the error of a request whose records were all rejected.
    pub(crate) fn if_nothing_is_stored(&self) -> Option<Error> {
        (self.stored == 0 && self.rejected > 0).then(|| Error::invalid(self.message.clone()))
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}
