//! Names of columns, as a CSV header or a schema has them, and the fields of a stream.

use crate::decode::CellTarget;
use crate::{Error, Result, StreamSchema};

/// Returns for each field the index of its column among `names`: the one with exactly its name, otherwise the only one that
/// differs in case, as SQL finds columns.
///
/// Errors: a name occurs twice, or two names differ from that of a field in case only.
pub fn columns_of_fields(schema: &StreamSchema, names: &[&str]) -> Result<Vec<Option<usize>>> {
    check_repeated(names)?;
    let column = |field: &crate::Field| {
        let name = field.name.as_str();
        let exact = names.iter().position(|found| *found == name);
        if exact.is_some() {
            return Ok(exact);
        }
        // a column that has the name of another field is not meant for this one
        let is_free = |found: &str| schema.field_index(found).is_none();
        let lower = name.to_lowercase();
        let mut like = (0..names.len()).filter(|i| is_free(names[*i]) && names[*i].to_lowercase() == lower);
        match (like.next(), like.next()) {
            (Some(first), Some(second)) => Err(Error::invalid(format!(
                "the columns {} `{}` and {} `{}` could both be the field `{name}`: expected one of them",
                first + 1,
                names[first],
                second + 1,
                names[second]
            ))),
            (found, _) => Ok(found),
        }
    };
    schema.fields.iter().map(column).collect()
}

/// Checks that no name occurs twice among those of columns.
///
/// Errors: `Invalid` with the name and its places.
pub fn check_repeated(names: &[&str]) -> Result<()> {
    let mut first = std::collections::HashMap::new();
    // spreadsheets write columns without names behind the others; a row with values in two of them is refused
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        if let Some(earlier) = first.insert(*name, index) {
            return Err(Error::invalid(format!(
                "the column `{name}` occurs twice, as columns {} and {}: expected different names",
                earlier + 1,
                index + 1
            )));
        }
    }
    Ok(())
}

/// Maps each column of a CSV header to its field; see [`columns_of_fields`]. Other names, without surrounding spaces, become
/// undeclared fields.
///
/// Errors: `Invalid` when the header names no field at all, or a column twice.
pub fn header_targets<'n>(
    schema: &StreamSchema,
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<CellTarget>> {
    let names: Vec<&str> = names.map(str::trim).collect();
    let fields = columns_of_fields(schema, &names).map_err(|e| Error::invalid(format!("CSV header: {e}")))?;
    let mut columns: Vec<CellTarget> =
        names.iter().map(|name| CellTarget::Extra((*name).to_owned())).collect();
    for (field, column) in fields.iter().enumerate() {
        if let Some(column) = column {
            columns[*column] = CellTarget::Field(field);
        }
    }
    if fields.iter().all(Option::is_none) {
        let known: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
        return Err(Error::invalid(format!(
            "the CSV header names none of the fields of {}: it has {}, expected some of {}",
            schema.name,
            shown(&names),
            known.join(", ")
        )));
    }
    Ok(columns)
}

/// Returns names for a message, of many the first ones.
fn shown(names: &[&str]) -> String {
    let some: Vec<String> = names.iter().take(20).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > some.len() {
        format!(" and {} more", names.len() - some.len())
    } else {
        String::new()
    };
    format!("{}{more}", some.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, FieldType};

    fn targets(fields: &[&str], header: &str) -> Result<String, String> {
        let fields = fields.iter().map(|name| Field::new(*name, FieldType::Long)).collect();
        let schema = StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None };
        let found = header_targets(&schema, header.split(',')).map_err(|e| e.to_string())?;
        let shown = |target: &CellTarget| match target {
            CellTarget::Field(index) => index.to_string(),
            CellTarget::Extra(name) => format!("+{name}"),
            CellTarget::Ignored => "-".into(),
        };
        Ok(found.iter().map(shown).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn columns_are_found_as_sql_finds_them() {
        for (fields, header, expected) in [
            (&["d", "t"][..], "t,d", "1 0"),
            (&["d", "t"], "D, T ,x", "0 1 +x"),
            (&["d", "D"], "D,d", "1 0"),
            (&["d", "D"], "D", "1"),
            (&["d"], "D,d", "+D 0"),
            (&["Größe"], "GRÖSSE,größe", "+GRÖSSE 0"),
        ] {
            assert_eq!(targets(fields, header).as_deref(), Ok(expected), "{fields:?} {header}");
        }
    }

    #[test]
    fn headers_that_could_mean_two_things_are_refused() {
        for (header, expected) in [
            (
                "id,a,a,n",
                "CSV header: the column `a` occurs twice, as columns 2 and 3: expected different names",
            ),
            (
                "id,zz,n, zz",
                "CSV header: the column `zz` occurs twice, as columns 2 and 4: expected different names",
            ),
            (
                "ID,n,Id",
                "CSV header: the columns 1 `ID` and 3 `Id` could both be the field `id`: expected one of them",
            ),
            (
                "x;y,z",
                "the CSV header names none of the fields of S: it has `x;y`, `z`, expected some of id, a, n",
            ),
        ] {
            assert_eq!(targets(&["id", "a", "n"], header).unwrap_err(), expected);
        }
    }
}
