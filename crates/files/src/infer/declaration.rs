//! Declarations of inferred streams.

use tidemill_types::{Error, Field, FieldType, Result};

use super::InferredStream;

/// Words that are names only in backticks.
const RESERVED: [&str; 8] = ["and", "or", "not", "in", "true", "false", "null", "now"];

impl InferredStream {
    /// Returns the declaration in the rule language. A single time field is the event time.
    ///
    /// Errors: `Invalid` when there is no field.
    pub fn declaration(&self, name: &str) -> Result<String> {
        let fields: Vec<&Field> = self.fields.iter().collect();
        if fields.is_empty() {
            return Err(Error::invalid("there is no column whose name a field can have"));
        }
        let mut times = self.fields.iter().filter(|field| field.ty == FieldType::Time);
        let time = match (times.next(), times.next(), &self.name) {
            (Some(time), None, _) | (Some(time), _, Some(_)) => format!(" time {}", identifier(&time.name)),
            _ => String::new(),
        };
        Ok(declared(name, &fields, &time))
    }

    /// Returns the declaration of a measurement of line protocol for lines that arrive one after the other: its tags and its time are
    /// the id, so that a point that is sent again is stored once. Tags and fields whose names no field can have are left out.
    ///
    /// Errors: `Invalid` when there is no time.
    pub fn declaration_of_series(&self, name: &str) -> Result<String> {
        let is_renamed = |field: &&Field| self.renames.iter().any(|(_, to)| *to == field.name);
        let fields: Vec<&Field> = self.fields.iter().filter(|field| !is_renamed(field)).collect();
        let time = fields.iter().find(|field| field.ty == FieldType::Time);
        let time = identifier(&time.ok_or_else(|| Error::invalid("there is no time"))?.name);
        let tags = fields.iter().filter(|field| self.tags.contains(&field.name));
        let id: Vec<String> = tags.map(|tag| identifier(&tag.name)).chain([time.clone()]).collect();
        Ok(declared(name, &fields, &format!(" id {} time {time}", id.join(", "))))
    }
}

fn declared(name: &str, fields: &[&Field], clauses: &str) -> String {
    let fields: Vec<String> =
        fields.iter().map(|f| format!("  {}: {},\n", identifier(&f.name), f.declared_type())).collect();
    format!("event {} {{\n{}}}{clauses};\n", identifier(name), fields.concat())
}

fn identifier(name: &str) -> String {
    let mut chars = name.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let is_plain = begins && chars.all(|c| c.is_ascii_alphanumeric() || c == '_');
    match is_plain && !RESERVED.contains(&name) {
        true => name.to_owned(),
        false => format!("`{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_time_is_the_event_time() {
        let stream = |fields: &[(&str, FieldType)]| InferredStream {
            name: None,
            fields: fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect(),
            renames: vec![],
            tags: vec![],
        };
        let one =
            stream(&[("at", FieldType::Time), ("unit price", FieldType::Double), ("in", FieldType::Long)]);
        assert_eq!(
            one.declaration("Trades").unwrap(),
            "event Trades {\n  at: time,\n  `unit price`: double,\n  `in`: long,\n} time at;\n"
        );
        let two = stream(&[("sent", FieldType::Time), ("seen", FieldType::Time)]);
        assert_eq!(two.declaration("day-1").unwrap(), "event `day-1` {\n  sent: time,\n  seen: time,\n};\n");
        assert!(stream(&[]).declaration("Empty").is_err());
    }
}
