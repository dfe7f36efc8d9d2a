//! Texts of events in messages for people.

/// Characters of a text that are shown.
const SHOWN_MAX: usize = 200;

/// Returns the text, of a long one its beginning.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
