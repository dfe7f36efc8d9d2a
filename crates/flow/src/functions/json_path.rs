//! JSON paths: `$.a.b[0]`, `$..x`, `$.items[?(@.n > 1)].name`.

use serde_json::Value as Json;
use serde_json_path::JsonPath;

/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 1000;

/// Maximum number of opening parentheses and brackets in a path; the parser recurses into them.
const BRACKETS_MAX: usize = 32;

/// Compiled JSON path.
pub(crate) struct CompiledPath {
    path: JsonPath,
    /// True if the path selects at most one value: no wildcard, filter, slice, list or recursive descent.
    pub(crate) definite: bool,
}

impl CompiledPath {
    /// Compiles a path; one that does not begin with `$` starts at the root as well. Errors: the path is
    /// invalid.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        let brackets = text.bytes().filter(|b| matches!(b, b'(' | b'[')).count();
        if text.len() > PATH_BYTES_MAX || brackets > BRACKETS_MAX {
            return Err(format!(
                "JSON path too long: limit of {PATH_BYTES_MAX} bytes and {BRACKETS_MAX} opening brackets"
            ));
        }
        let text = text.trim();
        let full = match text {
            _ if text.starts_with('$') => text.to_owned(),
            _ if text.starts_with('[') => format!("${text}"),
            _ => format!("$.{text}"),
        };
        let path = JsonPath::parse(&full).map_err(|e| format!("`{text}` is not a valid JSON path: {e}"))?;
        Ok(Self { path, definite: is_definite(&full) })
    }

    /// Returns the selected values of `json`.
    pub(crate) fn find<'j>(&self, json: &'j Json) -> Vec<&'j Json> {
        self.path.query(json).all()
    }

    /// Returns the JSON pointers of the selected values.
    pub(crate) fn pointers(&self, json: &Json) -> Vec<String> {
        self.path.query_located(json).locations().map(|at| at.to_json_pointer()).collect()
    }

    /// Returns the selected value; for an indefinite path, an array of all selected values.
    pub(crate) fn read(&self, json: &Json) -> Option<Json> {
        let found = self.find(json);
        if self.definite {
            found.first().copied().cloned()
        } else {
            Some(Json::Array(found.into_iter().cloned().collect()))
        }
    }
}

fn is_definite(path: &str) -> bool {
    let mut quote = None;
    let mut in_brackets = 0;
    let mut chars = path.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => in_brackets += 1,
            (None, ']') => in_brackets -= 1,
            (None, '*' | '?') => return false,
            (None, '.') if chars.peek() == Some(&'.') => return false,
            (None, ':' | ',') if in_brackets > 0 => return false,
            _ => {}
        }
    }
    true
}
