//! Source lines without the confidential values in them.
//!
//! Diagnostics show the line that they are about, in which variables are replaced by their values, and other options may
//! stand beside the wrong one. They end in logs and in replies of the server.

use std::ops::Range;

/// Parts of the names of options with confidential values.
const SECRET_NAMES: [&str; 8] =
    ["password", "passwd", "secret", "token", "passphrase", "credential", "api.key", "authorization"];
/// Names of options that are lists of pairs. Some of the pairs may be confidential.
const PAIR_NAMES: [&str; 4] =
    ["headers", "optional.configuration", "connector.properties", "pool.properties"];

/// Returns a line with a star for each character of a confidential value, so that columns stay the same.
pub(crate) fn hide(line: &str) -> String {
    let mut hidden: Vec<Range<usize>> = vec![];
    let mut from = 0;
    while let Some(open) = line[from..].find(['\'', '"']).map(|at| from + at) {
        let quote = &line[open..=open];
        let start = open + 1;
        let end = line[start..].find(quote).map_or(line.len(), |length| start + length);
        if is_secret(name_before(&line[..open])) {
            hidden.push(start..end);
        } else {
            hidden.extend(logins(&line[start..end]).map(|range| start + range.start..start + range.end));
        }
        from = (end + 1).min(line.len());
    }
    let is_hidden = |at: usize| hidden.iter().any(|range| range.contains(&at));
    line.char_indices().map(|(at, c)| if is_hidden(at) { '*' } else { c }).collect()
}

/// Returns the name before `=` at the end of a text; empty if the text does not end with `=`.
fn name_before(text: &str) -> &str {
    let Some(before) = text.trim_end().strip_suffix('=') else { return "" };
    let before = before.trim_end().trim_end_matches(['\'', '"']);
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    before.rsplit(|c| !is_part(c)).next().unwrap_or_default()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part)) || PAIR_NAMES.contains(&name.as_str())
}

/// Returns where the passwords of URLs such as `tcp://user:password@host` are.
fn logins(value: &str) -> impl Iterator<Item = Range<usize>> {
    let starts = value.match_indices("://").map(|(at, _)| at + 3);
    starts.filter_map(|start| {
        let authority = &value[start..];
        let authority = &authority[..authority.find(['/', ',', ' ', '?']).unwrap_or(authority.len())];
        let end = authority.rfind('@')?;
        let password = authority[..end].find(':')? + 1;
        Some(start + password..start + end)
    })
}

#[cfg(test)]
mod tests {
    use super::hide;

    #[test]
    fn confidential_values_are_hidden() {
        for (line, expected) in [
            (
                "@sink(type='x', password='höh', username='u')",
                "@sink(type='x', password='***', username='u')",
            ),
            ("basic.auth.Password = \"a'b\", port='1'", "basic.auth.Password = \"***\", port='1'"),
            ("'a.secret' = 'x', b='y'", "'a.secret' = '*', b='y'"),
            ("token='never closed", "token='************"),
            ("url='tcp://u:p@ss@h:1/x?a=b@c'", "url='tcp://u:****@h:1/x?a=b@c'"),
            ("url='nats://u:p@a:1,nats://v:q@b'", "url='nats://u:*@a:1,nats://v:*@b'"),
            ("headers='Authorization: Bearer x'", "headers='***********************'"),
            ("topic='a:b@c', url='tcp://h:1'", "topic='a:b@c', url='tcp://h:1'"),
            ("select 'password' as p, '', \"\"", "select 'password' as p, '', \"\""),
        ] {
            assert_eq!(hide(line), expected);
            assert_eq!(line.chars().count(), expected.chars().count());
        }
    }
}
