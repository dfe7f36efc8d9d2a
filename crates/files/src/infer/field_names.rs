//! Names of fields for columns whose names no field can have.

use std::collections::HashSet;

/// Names of the fields of a stream so far, in lower case: two that differ in case only are the same to readers of its table.
#[derive(Default)]
pub(super) struct FieldNames(HashSet<String>);

impl FieldNames {
    /// Takes a name that a field can have. Returns whether it can, and is free.
    pub(super) fn take(&mut self, name: &str) -> bool {
        is_valid(name) && self.0.insert(name.to_lowercase())
    }

    /// Returns a name like that of a column: `station_id` for `Station ID`.
    pub(super) fn name_for(&mut self, column: &str) -> String {
        let mut name = String::new();
        for c in column.to_lowercase().chars() {
            match c.is_alphanumeric() {
                true => name.push(c),
                false if name.ends_with('_') || name.is_empty() => {}
                false => name.push('_'),
            }
        }
        let name = match name.trim_end_matches('_') {
            "" => "column",
            name => name,
        };
        let numbered = (2_u64..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        // the numbers do not end
        names.find(|name| self.take(name)).unwrap_or_default()
    }
}

fn is_valid(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('_')
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '%'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_like_those_of_the_columns() {
        let mut names = FieldNames::default();
        assert!(
            names.take("a_b")
                && names.take("Größe")
                && !names.take("größe")
                && !names.take("a b")
                && !names.take("_a")
        );
        for (column, expected) in [
            ("Station ID", "station_id"),
            ("station-id (m)", "station_id_m"),
            ("Station  ID", "station_id_2"),
            ("a b", "a_b_2"),
            ("a.b", "a_b_3"),
            ("größe", "größe_2"),
            ("d;t", "d_t"),
            ("()", "column"),
            ("=", "column_2"),
        ] {
            assert_eq!(names.name_for(column), expected, "{column}");
        }
    }
}
