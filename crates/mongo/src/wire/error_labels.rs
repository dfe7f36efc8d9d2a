//! Labels of errors, by which drivers decide what to send again.

use bson::cstr;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use crate::error::Result;
use crate::fields::{Call, whole_number};
use crate::wire::frame::Request;

/// Label of errors after which the whole transaction may be run again.
pub(crate) const TRANSIENT: &str = "TransientTransactionError";
/// Label of errors after which the commit may be sent again.
pub(crate) const UNKNOWN_COMMIT: &str = "UnknownTransactionCommitResult";
/// Label of errors after which a write with a number may be sent again.
const RETRYABLE_WRITE: &str = "RetryableWriteError";
/// Label of errors after which a change stream may be opened again behind the last change that was read.
pub(crate) const RESUMABLE: &str = "ResumableChangeStreamError";
/// Label of errors that a change stream meets again when it is opened again.
const NOT_RESUMABLE: &str = "NonResumableChangeStreamError";

/// The pipeline of a change stream cannot pass a change on.
const CHANGE_STREAM_FATAL: i32 = 280;
/// Errors of a server that ends, gives its role to another one or cannot be reached.
const RETRIABLE_CODES: [i32; 12] = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
/// Errors of transactions that meet others: conflicts, locks, a snapshot that is gone, memory that they use.
const TRANSIENT_CODES: [i32; 7] = [24, 112, 239, 246, 267, 359, 365];
/// Errors after which MongoDB resumes a change stream, besides [`RETRIABLE_CODES`].
const RESUMABLE_CODES: [i32; 5] = [63, 133, 150, 234, 13388];
/// The transaction is not in progress.
const NO_SUCH_TRANSACTION: i32 = 251;

/// Appends the labels of an error to a reply that has none.
pub(crate) fn append(request: &Request, reply: &mut RawDocumentBuf) -> Result<()> {
    let failed = matches!(reply.get("ok")?, Some(RawBsonRef::Double(0.0)));
    let concern = reply.get("writeConcernError")?.and_then(|concern| concern.as_document());
    if (!failed && concern.is_none()) || reply.get("errorLabels")?.is_some() {
        return Ok(());
    }
    let code = if failed { code_of(reply)? } else { None };
    let concern_code = concern.map(code_of).transpose()?.flatten();
    let labels = labels_of(&Call::of(request)?, code, concern_code);
    if labels.is_empty() {
        return Ok(());
    }
    let mut array = RawArrayBuf::new();
    labels.into_iter().for_each(|label| array.push(label));
    reply.append(cstr!("errorLabels"), array);
    Ok(())
}

fn code_of(error: &RawDocument) -> Result<Option<i32>> {
    Ok(error.get("code")?.and_then(whole_number).and_then(|code| i32::try_from(code).ok()))
}

fn labels_of(call: &Call<'_>, code: Option<i32>, concern_code: Option<i32>) -> Vec<&'static str> {
    let is = |codes: &[i32], code: Option<i32>| code.is_some_and(|code| codes.contains(&code));
    let ends_transaction = matches!(call.name, "commitTransaction" | "abortTransaction");
    let in_transaction = call.get("autocommit").is_some();
    let mut labels = Vec::new();
    if in_transaction
        && (is(&TRANSIENT_CODES, code)
            || (!ends_transaction && is(&RETRIABLE_CODES, code))
            || (code == Some(NO_SUCH_TRANSACTION) && (!ends_transaction || concern_code.is_none())))
    {
        labels.push(TRANSIENT);
    }
    let is_retryable = call.get("txnNumber").is_some() && (!in_transaction || ends_transaction);
    if is_retryable && (is(&RETRIABLE_CODES, code) || is(&RETRIABLE_CODES, concern_code)) {
        labels.push(RETRYABLE_WRITE);
    }
    if code == Some(CHANGE_STREAM_FATAL) {
        labels.push(NOT_RESUMABLE);
    }
    labels
}

/// Returns whether a change stream is resumed after an error.
pub(crate) fn is_resumable(code: i32) -> bool {
    RETRIABLE_CODES.contains(&code) || RESUMABLE_CODES.contains(&code)
}
