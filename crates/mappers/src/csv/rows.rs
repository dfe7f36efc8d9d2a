//! Rows of cells as in RFC 4180, which tell whether a cell was in quotes: `null` is null, `"null"` is a text.

/// Cell of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CsvCell {
    /// Text without quotes.
    pub(super) text: String,
    /// True if the text was in quotes.
    pub(super) quoted: bool,
}

/// Row with its text.
pub(super) type CsvRow<'t> = (Vec<CsvCell>, &'t str);

/// Returns the rows of a text one after the other, without empty lines. After an error there are no more.
pub(super) fn rows<'t>(
    text: &'t str,
    delimiter: &'t str,
) -> impl Iterator<Item = Result<CsvRow<'t>, Unclosed<'t>>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(['\r', '\n']);
        if rest.is_empty() {
            return None;
        }
        let start = rest;
        let row = row(start, delimiter);
        rest = row.as_ref().map_or("", |(_, behind)| behind);
        let length = start.len() - rest.len();
        Some(row.map(|(cells, _)| (cells, start[..length].trim_end_matches(['\r', '\n']))))
    })
}

/// Row in which a quote has no end, and all behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unclosed<'t>(pub(super) &'t str);

/// Parses a row. Returns it and what is behind it.
fn row<'t>(text: &'t str, delimiter: &str) -> Result<(Vec<CsvCell>, &'t str), Unclosed<'t>> {
    let mut cells = vec![];
    let mut rest = text;
    loop {
        let blank = rest.trim_start_matches(' ');
        let (cell, behind) = match blank.strip_prefix('"') {
            Some(inside) => quoted(inside).ok_or(Unclosed(text))?,
            None => (CsvCell { text: String::new(), quoted: false }, rest),
        };
        // between the quote at the end and the delimiter there may be blanks
        let line = behind.find('\n').unwrap_or(behind.len());
        let end = behind[..line].find(delimiter).unwrap_or(line);
        let plain = behind[..end].trim_end_matches('\r');
        cells.push(match cell.quoted {
            true => CsvCell { text: cell.text + plain.trim_end_matches(' '), quoted: true },
            false => CsvCell { text: plain.to_owned(), quoted: false },
        });
        match behind[end..].strip_prefix(delimiter) {
            Some(next) => rest = next,
            None => return Ok((cells, behind.get(end + 1..).unwrap_or_default())),
        }
    }
}

/// Parses a text up to the quote at its end; two quotes are one of the text.
fn quoted(text: &str) -> Option<(CsvCell, &str)> {
    let mut inside = String::new();
    let mut rest = text;
    loop {
        let (part, behind) = rest.split_once('"')?;
        inside.push_str(part);
        match behind.strip_prefix('"') {
            Some(next) => {
                inside.push('"');
                rest = next;
            }
            None => return Some((CsvCell { text: inside, quoted: true }, behind)),
        }
    }
}

/// Writes a row. `None` is null.
pub(super) fn write(cells: impl Iterator<Item = Option<String>>, delimiter: &str, out: &mut String) {
    for (index, cell) in cells.enumerate() {
        if index > 0 {
            out.push_str(delimiter);
        }
        let Some(cell) = cell else {
            out.push_str("null");
            continue;
        };
        let is_special = cell.is_empty()
            || cell == "null"
            || cell.trim() != cell
            // at the beginning of a message, U+FEFF would be a byte order mark
            || cell.contains(['"', '\n', '\r', '\u{feff}'])
            || cell.contains(delimiter);
        match is_special {
            true => out.push_str(&format!("\"{}\"", cell.replace('"', "\"\""))),
            false => out.push_str(&cell),
        }
    }
    out.push('\n');
}
