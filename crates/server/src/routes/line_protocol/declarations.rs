//! Declarations that lines of unknown measurements need.

use std::collections::HashSet;
use std::io::Cursor;

use tidemill_files::infer_line_protocol;
use tidemill_types::BadRow;

/// Lines that a declaration is made from.
const LINES_MAX: usize = 1000;
/// Measurements that get a declaration in one reply.
const MEASUREMENTS_MAX: usize = 10;

/// Measurements that no stream has the name of.
pub(super) struct Declarations(HashSet<String>);

impl Declarations {
    /// Creates the declarations of these measurements, each as often as it occurred.
    pub(super) fn of(unknown: Vec<String>) -> Self {
        let mut found = HashSet::new();
        for name in unknown {
            if found.len() < MEASUREMENTS_MAX {
                found.insert(name);
            }
        }
        Self(found)
    }

    /// Adds to the first refused line of each measurement the declaration that it needs.
    pub(super) fn add_to(self, refused: &mut [BadRow]) {
        if self.0.is_empty() {
            return;
        }
        // lines that are refused for other reasons have a stream, or cannot be read here either
        let texts = refused.iter().filter(|bad| bad.stream.is_none() && !bad.text.contains('\n'));
        let mut lines = String::new();
        for text in texts.take(LINES_MAX).filter(|bad| bad.message.starts_with("measurement `")) {
            lines.push_str(&text.text);
            lines.push('\n');
        }
        let Ok(streams) = infer_line_protocol(Box::new(Cursor::new(lines.into_bytes())), LINES_MAX) else {
            return;
        };
        for stream in streams {
            let Some(name) = stream.name.as_deref().filter(|name| self.0.contains(*name)) else { continue };
            let start = format!("measurement `{name}`: ");
            let first =
                refused.iter_mut().find(|bad| bad.stream.is_none() && bad.message.starts_with(&start));
            if let (Some(first), Ok(declaration)) = (first, stream.declaration_of_series(name)) {
                let end = if first.message.ends_with(['?', '.']) { "" } else { "." };
                let declaration = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
                first.message.push_str(&format!("{end} Declare it in the app: {declaration}"));
            }
        }
    }
}
