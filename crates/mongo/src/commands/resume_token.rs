//! Resume tokens of change streams.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use tidemill_engine::ChangePosition;

use super::split_events::split_token;
use crate::error::{CommandError, Result};

/// End of a resume token: that of the event with which a stream ended.
pub(super) const OF_INVALIDATE: &str = "I";

/// Returns the position that a resume token stands for.
pub(super) fn position(token: &RawDocument) -> Result<ChangePosition> {
    let damaged = || CommandError { code: 260, message: "the resume token is not one of this server".into() };
    let Some(RawBsonRef::String(data)) = token.get("_data")? else { return Err(damaged()) };
    let data = split_token(data).0;
    let data = data.strip_suffix(OF_INVALIDATE).unwrap_or(data);
    ChangePosition::from_bytes(&hex(data).ok_or_else(damaged)?).map_err(|_| damaged())
}

/// Returns how many fragments of the first event the client has seen.
pub(super) fn resumed_fragments(options: &RawDocument) -> usize {
    let token = ["resumeAfter", "startAfter"].iter().find_map(|option| options.get_document(option).ok());
    token.and_then(|token| token.get_str("_data").ok()).map_or(0, |data| split_token(data).1)
}

/// Returns whether a token is that of an event with which a stream ended.
pub(super) fn is_of_invalidate(token: &RawDocument) -> bool {
    token.get_str("_data").is_ok_and(|data| data.ends_with(OF_INVALIDATE))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
            _ => None,
        })
        .collect()
}

/// Returns the resume token of a position.
pub(super) fn token(position: &ChangePosition) -> RawDocumentBuf {
    rawdoc! { "_data": token_text(position) }
}

pub(super) fn token_text(position: &ChangePosition) -> String {
    position.to_bytes().iter().map(|byte| format!("{byte:02X}")).collect()
}
