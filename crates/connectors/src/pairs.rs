//! Lists of names with values in one option: `a:b,c:d`.

/// Parses `a:b,c:d`. Each pair may be in single quotes, as in `'a:b','c:d'`, and then contain commas; a value may
/// contain colons.
///
/// Errors: what was expected. The text is not repeated, because it may have confidential values.
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
pub(crate) fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = vec![];
    for (index, pair) in split_list(text)?.into_iter().enumerate() {
        let Some((name, value)) = pair.split_once(':').filter(|(name, _)| !name.trim().is_empty()) else {
            return Err(format!("entry {} is no `name:value`; expected `name:value,name:value`", index + 1));
        };
        pairs.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(pairs)
}

/// Splits at commas that are not between single quotes, and drops empty entries and the quotes.
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
fn split_list(text: &str) -> Result<Vec<&str>, String> {
    let mut entries = vec![];
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (entry, behind) = match rest.strip_prefix('\'') {
            Some(quoted) => {
                let (entry, behind) = quoted.split_once('\'').ok_or("a quote `'` is not closed")?;
                let behind = behind.trim_start();
                match behind.strip_prefix(',') {
                    Some(behind) => (entry, behind),
                    None if behind.is_empty() => (entry, ""),
                    None => return Err("expected `,` behind a quoted entry".into()),
                }
            }
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        if !entry.trim().is_empty() {
            entries.push(entry.trim());
        }
        rest = behind.trim_start();
    }
    Ok(entries)
}

/// Returns the names in `a,b,c`, without empty ones.
pub(crate) fn parse_names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(all(test, any(feature = "kafka", feature = "nats", feature = "rabbitmq")))]
mod tests {
    use super::*;

    #[test]
    fn pairs() {
        let found = parse_pairs("a:b, c:d:e ,").unwrap();
        assert_eq!(found, [("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d:e".to_owned())]);
        let found = parse_pairs("'a:1,2','b:3'").unwrap();
        assert_eq!(found, [("a".to_owned(), "1,2".to_owned()), ("b".to_owned(), "3".to_owned())]);
        assert_eq!(parse_pairs("").unwrap(), []);
        assert!(parse_pairs("a:b,hunter2").is_err_and(|e| e.contains("entry 2") && !e.contains("hunter2")));
        assert!(parse_pairs("'a:b").is_err());
        assert!(parse_pairs("'a:b'c").is_err());
    }
}
