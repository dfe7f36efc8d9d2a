//! Names of types in messages: those of the documentation, not of Arrow.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Arrow's names of types, longest first where one begins with another.
const NAMES: [(&str, &str); 26] = [
    ("LargeUtf8", "text"),
    ("Utf8View", "text"),
    ("Utf8", "text"),
    ("Boolean", "boolean"),
    ("Int8", "tinyint"),
    ("Int16", "smallint"),
    ("Int32", "int"),
    ("Int64", "bigint"),
    ("UInt8", "unsigned tinyint"),
    ("UInt16", "unsigned smallint"),
    ("UInt32", "unsigned int"),
    ("UInt64", "unsigned bigint"),
    ("Float16", "float"),
    ("Float32", "float"),
    ("Float64", "double"),
    ("Decimal128", "decimal"),
    ("Decimal256", "decimal"),
    ("Decimal", "decimal"),
    ("Any", "any"),
    ("Timestamp", "timestamp"),
    ("Date32", "date"),
    ("Date64", "date"),
    ("Time32", "time"),
    ("Time64", "time"),
    ("Interval", "interval"),
    ("Duration", "duration"),
];

static TYPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    // parameters such as (µs, "UTC"), (Nanosecond, Some("UTC")), (MonthDayNano)
    let parameters = r#"(\([^()]*(\([^()]*\)[^()]*)*\))?"#;
    Regex::new(&format!(r"\b({})\b{parameters}", names.join("|"))).ok()
});

/// Returns `message` with the names of types that the documentation uses.
pub(crate) fn in_words(message: &str) -> String {
    let Some(types) = TYPES.as_ref() else { return message.to_owned() };
    let named = types.replace_all(message, |found: &Captures<'_>| {
        let name = NAMES.iter().find(|(name, _)| *name == &found[1]).map_or("", |(_, name)| *name);
        let parameters = found.get(2).map_or("", |m| m.as_str());
        if name == "decimal" { format!("{name}{parameters}") } else { name.to_owned() }
    });
    named.into_owned()
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn types_have_the_names_of_the_documentation() {
        assert_eq!(in_words("sum(Utf8): Int64, Float64"), "sum(text): bigint, double");
        assert_eq!(in_words(r#"from Timestamp(µs, "UTC") to Timestamp(ns)"#), "from timestamp to timestamp");
        assert_eq!(in_words(r#"Timestamp(Nanosecond, Some("UTC"))"#), "timestamp");
        assert_eq!(in_words("Decimal128(10, 2)"), "decimal(10, 2)");
        assert_eq!(in_words("Interval(MonthDayNano) and MyInt64"), "interval and MyInt64");
    }
}
