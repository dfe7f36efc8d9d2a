//! Options for columns that are written or named in another way than usual.

use anyhow::{Result, ensure};
use tidemill_files::{ColumnOptions, CsvLayout};

use super::LoadFormat;
use super::declare::quoted;
use super::inputs::Input;

/// How the columns of files are written and named.
#[derive(clap::Args)]
pub struct ColumnArgs {
    /// CSV: the character between columns, such as ';' or '\t'. Default: a comma.
    #[arg(long, value_name = "CHARACTER", value_parser = character)]
    delimiter: Option<u8>,
    /// CSV: the character around texts that contain delimiters or line ends. Default: a double quote.
    #[arg(long, value_name = "CHARACTER", value_parser = character)]
    quote: Option<u8>,
    /// CSV: a text that stands for a missing value, such as NULL or NA; may be given several times. An empty cell always does.
    #[arg(long, value_name = "TEXT")]
    null: Vec<String>,
    /// Read the column (or the field of JSON) NAME as the field FIELD; may be given several times.
    #[arg(long, value_name = "NAME=FIELD", value_parser = rename)]
    rename: Vec<(String, String)>,
}

impl ColumnArgs {
    /// Checks that the options fit the inputs.
    ///
    /// Errors: an option of CSV for a file in another format, a field that two names stand for.
    pub fn check(&self, inputs: &[Input]) -> Result<()> {
        let csv = [
            ("--delimiter", self.delimiter.is_some()),
            ("--quote", self.quote.is_some()),
            ("--null", !self.null.is_empty()),
        ];
        if let Some((option, _)) = csv.into_iter().find(|(_, is_given)| *is_given) {
            let other = inputs.iter().find(|input| input.format != LoadFormat::Csv);
            ensure!(
                other.is_none(),
                "{option} is for CSV, which {} is not",
                other.map(ToString::to_string).unwrap_or_default()
            );
        }
        ensure!(
            self.layout().delimiter != self.layout().quote,
            "--delimiter and --quote are the same character: expected two different ones"
        );
        for (at, (name, field)) in self.rename.iter().enumerate() {
            let again = |(other, to): &&(String, String)| other == name || to == field;
            if let Some((other, to)) = self.rename[..at].iter().find(again) {
                anyhow::bail!(
                    "--rename {other}={to} and --rename {name}={field}: expected different names and fields"
                );
            }
        }
        Ok(())
    }

    /// Returns the characters of CSV.
    pub fn layout(&self) -> CsvLayout {
        let default = CsvLayout::default();
        CsvLayout {
            delimiter: self.delimiter.unwrap_or(default.delimiter),
            quote: self.quote.unwrap_or(default.quote),
        }
    }

    /// Returns the options for CSV as they were given, each with a blank before it.
    pub fn given(&self) -> String {
        let character =
            |byte: u8| quoted(&if byte == b'\t' { "\\t".to_owned() } else { char::from(byte).to_string() });
        let mut text = String::new();
        text.extend(self.delimiter.map(|byte| format!(" --delimiter {}", character(byte))));
        text.extend(self.quote.map(|byte| format!(" --quote {}", character(byte))));
        text.extend(self.null.iter().map(|null| format!(" --null {}", quoted(null))));
        text.extend(
            self.rename
                .iter()
                .map(|(name, field)| format!(" --rename {}", quoted(&format!("{name}={field}")))),
        );
        text
    }

    /// Returns whether the delimiter is the usual one because none was given.
    pub fn delimiter_is_assumed(&self) -> bool {
        self.delimiter.is_none()
    }

    /// Returns what the readers of files need.
    pub fn options(&self) -> ColumnOptions {
        ColumnOptions { quote: self.layout().quote, nulls: self.null.clone(), renames: self.rename.clone() }
    }
}

fn character(text: &str) -> Result<u8, String> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if !matches!(byte, b'\n' | b'\r') => Ok(*byte),
            _ => Err("expected one ASCII character, or \\t for a tab".into()),
        },
    }
}

fn rename(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((name, field)) if !name.is_empty() && !field.is_empty() => {
            Ok((name.to_owned(), field.to_owned()))
        }
        _ => Err("expected NAME=FIELD, such as 'Station ID=station_id'".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_and_names_are_parsed() {
        assert_eq!(character(";"), Ok(b';'));
        assert_eq!(character("\\t"), Ok(b'\t'));
        assert!(character("ä").is_err() && character("").is_err() && character("ab").is_err());
        assert_eq!(rename("a=b=c"), Ok(("a=b".into(), "c".into())));
        assert!(rename("a").is_err() && rename("=a").is_err() && rename("a=").is_err());
    }
}
