//! Columns that a statement names, as fields of a stream.

use tidemill_types::{Error, Result, StreamSchema, did_you_mean};

/// Returns the fields that a statement writes, by index: those with these names, in their order.
///
/// A field is found by its name, or by the only one that differs in case.
/// Errors: the index of the name, and `Invalid` for one that the stream has not, or that is there twice.
pub fn target_fields(stream: &StreamSchema, names: &[&str]) -> Result<Vec<usize>, (usize, Error)> {
    let mut found: Vec<usize> = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let field = field_of(stream, name).map_err(|error| (at, error))?;
        if found.contains(&field) {
            return Err((at, Error::invalid(format!("the column `{name}` is named twice: write it once"))));
        }
        found.push(field);
    }
    Ok(found)
}

fn field_of(stream: &StreamSchema, name: &str) -> Result<usize> {
    if let Some(exact) = stream.field_index(name) {
        return Ok(exact);
    }
    let lower = name.to_lowercase();
    let mut alike = (0..stream.fields.len()).filter(|at| stream.fields[*at].name.to_lowercase() == lower);
    if let (Some(only), None) = (alike.next(), alike.next()) {
        return Ok(only);
    }
    let is_added = stream.table_schema().index_of(name).is_ok();
    Err(match is_added {
        true => Error::invalid(format!(
            "the column `{name}` is set by Tidemill and cannot be written: leave it out"
        )),
        false => {
            let known = stream.fields.iter().map(|field| field.name.as_str());
            Error::invalid(format!("there is no column `{name}`")).with_hint(did_you_mean(name, known))
        }
    })
}

#[cfg(test)]
mod tests {
    use tidemill_types::{Field, FieldType};

    use super::*;

    #[test]
    fn columns_are_fields_by_their_name() {
        let fields = ["id", "Speed", "a", "A"].map(|name| Field::new(name, FieldType::Long)).to_vec();
        let stream = StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None };
        assert_eq!(target_fields(&stream, &["speed", "id", "A"]).unwrap(), [1, 0, 3]);
        for (names, at, part) in [
            (&["id", "sped"][..], 1, "there is no column `sped`. Did you mean `Speed`?"),
            (&["id", "ID"], 1, "named twice"),
            (&["_time"], 0, "set by Tidemill"),
        ] {
            let (found, error) = target_fields(&stream, names).unwrap_err();
            assert!(found == at && error.to_string().contains(part), "{error}");
        }
    }
}
