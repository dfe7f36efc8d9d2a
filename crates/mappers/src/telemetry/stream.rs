//! Streams of telemetry: their columns, and the declarations that an app needs.

use std::fmt::Write;

use tidemill_types::FieldType;

/// Stream whose rows are made of telemetry. An app has it if it declares it.
#[derive(Debug, PartialEq, Eq)]
pub struct DeclaredStream {
    /// Name.
    pub name: &'static str,
    /// Rows of it, in the plural: `log records`.
    pub rows: &'static str,
    /// Columns and their types, in order.
    pub columns: &'static [(&'static str, FieldType)],
    /// Column that selects the partition.
    pub key: &'static str,
    /// Columns that make an event unique.
    pub id: &'static [&'static str],
    /// Column of the event time; without one it is that of arrival.
    pub time: Option<&'static str>,
}

impl DeclaredStream {
    /// Returns the declaration for a file of rules, with a line for each column.
    pub fn declaration(&self) -> String {
        let mut text = format!("event {} {{\n", self.name);
        for (name, ty) in self.columns {
            let _ = writeln!(text, "  {name}: {},", ty.name());
        }
        let time = self.time.map(|time| format!(" time {time}")).unwrap_or_default();
        let _ = writeln!(text, "}} key {} id {}{time};", self.key, self.id.join(", "));
        text
    }

    /// Returns the declaration as one line.
    pub fn declaration_line(&self) -> String {
        self.declaration().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Returns whether the declaration has this column.
    pub fn has_column(&self, name: &str) -> bool {
        self.columns.iter().any(|(column, _)| *column == name)
    }
}
