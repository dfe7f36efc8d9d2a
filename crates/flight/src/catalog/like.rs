//! Patterns of names: `%` is any text, `_` any character, and `\` takes the next one as it is.

/// Returns whether a name fits a pattern. Takes at most the product of their lengths in steps.
pub(super) fn is_like(name: &str, pattern: &str) -> bool {
    let (name, pattern): (Vec<char>, Vec<Part>) = (name.chars().collect(), parts(pattern));
    let (mut at, mut next) = (0, 0);
    // the last `%`, and where the text that it takes ends
    let mut any: Option<(usize, usize)> = None;
    while at < name.len() {
        match pattern.get(next) {
            Some(Part::Any) => {
                any = Some((next, at));
                next += 1;
            }
            Some(Part::One) => (at, next) = (at + 1, next + 1),
            Some(Part::Char(c)) if *c == name[at] => (at, next) = (at + 1, next + 1),
            _ => match &mut any {
                Some((percent, end)) => {
                    *end += 1;
                    (at, next) = (*end, *percent + 1);
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(|part| *part == Part::Any)
}

#[derive(PartialEq)]
enum Part {
    Any,
    One,
    Char(char),
}

fn parts(pattern: &str) -> Vec<Part> {
    let mut chars = pattern.chars();
    let mut parts = vec![];
    while let Some(c) = chars.next() {
        parts.push(match c {
            '%' => Part::Any,
            '_' => Part::One,
            '\\' => Part::Char(chars.next().unwrap_or('\\')),
            c => Part::Char(c),
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        for (name, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("abc", "abc", true),
            ("abc", "ABC", false),
            ("abc", "a%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abcabd", "%ab_", true),
            ("abc", "a_c", true),
            ("äbc", "_bc", true),
            ("a_c", r"a\_c", true),
            ("abc", r"a\_c", false),
            ("50%", r"%\%", true),
            (r"a\", r"a\", true),
            ("abc", "ab", false),
        ] {
            assert_eq!(is_like(name, pattern), expected, "{name} {pattern}");
        }
        assert!(!is_like(&"a".repeat(2_000), &"a%".repeat(500).replace('%', "%%%b")));
    }
}
