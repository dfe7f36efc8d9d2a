//! `COPY (query) TO STDOUT`, `COPY table (columns) TO STDOUT` and `COPY table (columns) FROM STDIN`, with both spellings of their
//! options.

use super::words::Words;
use super::{Command, CopyFormat, CopyIn, CopyOptions, CopyOut, PlacedName};
use crate::error::{PgError, Result, code};
use crate::lexer::TokenKind;

impl Words<'_> {
    pub(super) fn copy(&mut self) -> Result<Command> {
        self.at = 1;
        if let Some("(") = self.token(0) {
            let text = self.inner_query()?;
            return self.copy_out(text);
        }
        let start = self.at;
        let text = self.table_query()?;
        match self.is("FROM") {
            true => {
                self.at = start;
                self.copy_in().map(Command::CopyIn)
            }
            false => self.copy_out(text),
        }
    }

    fn copy_out(&mut self, text: String) -> Result<Command> {
        self.keyword("TO")?;
        if self.is("PROGRAM") || self.kind() == Some(TokenKind::Text) {
            return Err(PgError::not_supported(
                "COPY to a file or a program of the server is not supported: COPY … TO STDOUT, or \\copy in psql",
            ));
        }
        self.keyword("STDOUT")?;
        let options = self.options(false)?;
        self.end()?;
        Ok(Command::CopyOut(CopyOut { text, options }))
    }

    fn copy_in(&mut self) -> Result<CopyIn> {
        let mut names = vec![self.placed_name()?];
        while self.take(".") {
            names.push(self.placed_name()?);
        }
        let columns = match self.take("(") {
            false => None,
            true => {
                let mut columns = vec![self.placed_name()?];
                while self.take(",") {
                    columns.push(self.placed_name()?);
                }
                self.keyword(")")?;
                Some(columns)
            }
        };
        self.keyword("FROM")?;
        if self.is("PROGRAM") || self.kind() == Some(TokenKind::Text) {
            return Err(PgError::not_supported(
                "COPY from a file or a program of the server is not supported: COPY … FROM STDIN, or \\copy in psql",
            ));
        }
        self.keyword("STDIN")?;
        let options = self.options(true)?;
        if self.is("WHERE") {
            return Err(PgError::not_supported(
                "COPY … WHERE is not supported: send the rows that are meant",
            ));
        }
        self.end()?;
        let (schema, table) = match names.as_slice() {
            [table] => (None, table),
            [schema, table] => (Some(schema), table),
            [catalog, schema, table] if catalog.name == "tidemill" => (Some(schema), table),
            _ => return Err(PgError::new("42P01", "COPY: expected a table, or a schema and a table")),
        };
        let (schema, table) = (schema.map(|schema| schema.name.clone()), table.clone());
        Ok(CopyIn { schema, table: PlacedName { position: names[0].position, ..table }, columns, options })
    }

    /// Takes the query in brackets.
    fn inner_query(&mut self) -> Result<String> {
        let opened = self.at;
        let mut depth = 0_usize;
        loop {
            match self.token(0) {
                Some("(") => depth += 1,
                Some(")") => depth -= 1,
                Some(_) => {}
                None => return Err(self.expected(")")),
            }
            self.at += 1;
            if depth == 0 {
                break;
            }
        }
        if self.at < opened + 3 {
            return Err(PgError::syntax("expected a query in the brackets of COPY"));
        }
        let (first, last) = (self.tokens[opened + 1], self.tokens[self.at - 2]);
        Ok(self.text[first.start..last.end].to_owned())
    }

    /// Takes a table and its columns as a query over them.
    fn table_query(&mut self) -> Result<String> {
        let start = self.at;
        self.name()?;
        while self.take(".") {
            self.name()?;
        }
        let table = &self.text[self.tokens[start].start..self.tokens[self.at - 1].end];
        let mut columns = "*".to_owned();
        if self.is("(") {
            let start = self.at + 1;
            self.at += 1;
            self.name()?;
            while self.take(",") {
                self.name()?;
            }
            self.text[self.tokens[start].start..self.tokens[self.at - 1].end].clone_into(&mut columns);
            self.keyword(")")?;
        }
        Ok(format!("SELECT {columns} FROM {table}"))
    }

    fn options(&mut self, is_input: bool) -> Result<CopyOptions> {
        let mut given = Given { is_input, ..Given::default() };
        self.skip(&["WITH"]);
        if self.take("(") {
            loop {
                let name = self.upper(0);
                self.at += 1;
                self.option(&name, &mut given)?;
                if !self.take(",") {
                    break;
                }
            }
            self.keyword(")")?;
        } else {
            // the spelling before PostgreSQL 9
            while self.token(0).is_some() && !(is_input && self.is("WHERE")) {
                let name = self.upper(0);
                self.at += 1;
                match name.as_str() {
                    "BINARY" => given.format = Some(CopyFormat::Binary),
                    "CSV" => given.format = Some(CopyFormat::Csv),
                    "HEADER" => given.has_header = true,
                    "DELIMITER" | "NULL" | "QUOTE" | "ESCAPE" => {
                        self.skip(&["AS"]);
                        self.option(&name, &mut given)?;
                    }
                    "FORCE" => {
                        self.keyword("QUOTE")?;
                        self.option("FORCE_QUOTE", &mut given)?;
                    }
                    _ => {
                        self.at -= 1;
                        return Err(self.expected("an option of COPY"));
                    }
                }
            }
        }
        given.finish()
    }

    fn option(&mut self, name: &str, given: &mut Given) -> Result<()> {
        match name {
            "FORMAT" => {
                let format = self.value()?;
                given.format = Some(match format.to_ascii_lowercase().as_str() {
                    "text" => CopyFormat::Text,
                    "csv" => CopyFormat::Csv,
                    "binary" => CopyFormat::Binary,
                    _ => {
                        return Err(PgError::new(
                            code::INVALID_VALUE,
                            format!("COPY format \"{format}\": expected text, csv or binary"),
                        ));
                    }
                });
            }
            "HEADER" => {
                given.has_header = match self.token(0) {
                    Some("," | ")") | None => true,
                    Some(_) => {
                        let value = self.value()?.to_ascii_lowercase();
                        match value.as_str() {
                            "match" if given.is_input => {
                                given.matches_header = true;
                                true
                            }
                            "true" | "on" | "1" => true,
                            "false" | "off" | "0" => false,
                            _ => return Err(PgError::syntax("HEADER: expected true or false")),
                        }
                    }
                }
            }
            "DELIMITER" => given.delimiter = Some(self.byte(name)?),
            "QUOTE" => given.quote = Some(self.byte(name)?),
            "ESCAPE" => given.escape = Some(self.byte(name)?),
            "NULL" => given.null = Some(self.value()?),
            "FORCE_NULL" | "FORCE_NOT_NULL" | "FREEZE" if given.is_input => {
                return Err(PgError::not_supported(format!("COPY {name} is not supported: leave it out")));
            }
            "FORCE_QUOTE" => {
                if self.take("*") {
                    given.force_quote = vec!["*".to_owned()];
                    return Ok(());
                }
                let has_brackets = self.take("(");
                given.force_quote.push(self.name()?);
                while has_brackets && self.take(",") {
                    given.force_quote.push(self.name()?);
                }
                if has_brackets {
                    self.keyword(")")?;
                }
            }
            "ENCODING" => {
                let encoding = self.value()?;
                if !["utf8", "utf-8", "unicode"].contains(&encoding.to_ascii_lowercase().as_str()) {
                    return Err(PgError::not_supported(format!("COPY ENCODING '{encoding}': expected UTF8")));
                }
            }
            _ => {
                self.at -= 1;
                return Err(self.expected("an option of COPY"));
            }
        }
        Ok(())
    }

    fn byte(&mut self, name: &str) -> Result<u8> {
        let value = self.value()?;
        match value.as_bytes() {
            [byte] if !matches!(byte, b'\r' | b'\n' | b'\\') || name == "ESCAPE" => Ok(*byte),
            _ => Err(PgError::new(
                code::INVALID_VALUE,
                format!("COPY {name}: expected one character of ASCII, found '{value}'"),
            )),
        }
    }
}

/// Options that were given.
#[derive(Default)]
struct Given {
    is_input: bool,
    matches_header: bool,
    format: Option<CopyFormat>,
    has_header: bool,
    delimiter: Option<u8>,
    null: Option<String>,
    quote: Option<u8>,
    escape: Option<u8>,
    force_quote: Vec<String>,
}

impl Given {
    fn finish(self) -> Result<CopyOptions> {
        let format = self.format.unwrap_or(CopyFormat::Text);
        let is_csv = format == CopyFormat::Csv;
        let has_csv = self.quote.is_some() || self.escape.is_some() || !self.force_quote.is_empty();
        if has_csv && !is_csv {
            return Err(PgError::not_supported("COPY: QUOTE, ESCAPE and FORCE_QUOTE are for FORMAT csv"));
        }
        if self.is_input && !self.force_quote.is_empty() {
            return Err(PgError::not_supported("COPY: FORCE_QUOTE is for COPY … TO"));
        }
        let has_text = self.has_header || self.delimiter.is_some() || self.null.is_some();
        if has_text && format == CopyFormat::Binary {
            return Err(PgError::syntax("COPY: HEADER, DELIMITER and NULL are not for FORMAT binary"));
        }
        let quote = self.quote.unwrap_or(b'"');
        let delimiter = self.delimiter.unwrap_or(if is_csv { b',' } else { b'\t' });
        let null = self.null.unwrap_or(if is_csv { String::new() } else { "\\N".to_owned() });
        if is_csv && (quote == delimiter || null.as_bytes().contains(&quote))
            || null.as_bytes().contains(&delimiter)
        {
            return Err(PgError::new(
                code::INVALID_VALUE,
                "COPY: DELIMITER, QUOTE and NULL have to differ, or rows could not be read",
            ));
        }
        if null.contains(['\r', '\n']) {
            return Err(PgError::new(code::INVALID_VALUE, "COPY NULL: expected a text without line ends"));
        }
        if !is_csv && (delimiter.is_ascii_lowercase() || delimiter.is_ascii_digit() || delimiter == b'.') {
            return Err(PgError::new(
                code::INVALID_VALUE,
                format!("COPY DELIMITER '{}' could be part of a value", char::from(delimiter)),
            ));
        }
        Ok(CopyOptions {
            format,
            has_header: self.has_header,
            matches_header: self.matches_header,
            delimiter,
            null,
            quote,
            escape: self.escape.unwrap_or(quote),
            force_quote: self.force_quote,
        })
    }
}
