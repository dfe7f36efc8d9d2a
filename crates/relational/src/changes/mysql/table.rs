//! The table whose changes are read. The log has only the numbers of columns and a part of their types.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::super::ChangeSettings;
use crate::dialect::Dialect;
use crate::drivers::mysql::error;
use crate::error::DbError;

/// Character sets whose texts are read, with the names that they have on the web. Of others, texts are read if they are
/// ASCII.
const CHARSETS: &[(&str, &str)] = &[
    ("utf8mb4", "utf-8"),
    ("utf8mb3", "utf-8"),
    ("utf8", "utf-8"),
    ("ascii", "utf-8"),
    ("latin1", "windows-1252"),
    ("latin2", "iso-8859-2"),
    ("latin5", "iso-8859-9"),
    ("latin7", "iso-8859-13"),
    ("cp1250", "windows-1250"),
    ("cp1251", "windows-1251"),
    ("cp1256", "windows-1256"),
    ("cp1257", "windows-1257"),
    ("greek", "iso-8859-7"),
    ("hebrew", "iso-8859-8"),
    ("koi8r", "koi8-r"),
    ("koi8u", "koi8-u"),
    ("tis620", "windows-874"),
    ("sjis", "shift_jis"),
    ("cp932", "shift_jis"),
    ("ujis", "euc-jp"),
    ("eucjpms", "euc-jp"),
    ("euckr", "euc-kr"),
    ("big5", "big5"),
    ("gb2312", "gbk"),
    ("gbk", "gbk"),
    ("gb18030", "gb18030"),
    ("ucs2", "utf-16be"),
    ("utf16", "utf-16be"),
    ("utf16le", "utf-16le"),
];

/// Forms that values of a column have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Integer; in the log it has so many bits.
    Integer(u8),
    Float,
    Decimal,
    Text,
    Json,
    Bytes,
    /// Bits, as a number.
    Bits,
    Date,
    Time,
    /// Date and time of day as written, which are taken as UTC.
    DateTime,
    /// Moment.
    Timestamp,
    Year,
    Enum,
    Set,
}

/// Column.
#[derive(Debug, Clone)]
pub(super) struct MySqlColumn {
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) is_unsigned: bool,
    /// Encoding of texts in the log.
    pub(super) encoding: &'static encoding_rs::Encoding,
    /// Texts of an ENUM or SET.
    pub(super) members: Vec<String>,
    is_primary: bool,
}

/// Table.
#[derive(Debug, Clone)]
pub(super) struct MySqlTable {
    pub(super) database: String,
    pub(super) name: String,
    pub(super) columns: Vec<MySqlColumn>,
}

/// Columns of `information_schema.columns` that matter.
type ColumnRow = (String, String, String, String, Option<String>, String);

impl MySqlTable {
    /// Finds the table.
    ///
    /// Errors: those of the server; the table does not exist.
    pub(super) async fn find(connection: &mut Conn, settings: &ChangeSettings) -> Result<Self, DbError> {
        let wanted = &settings.table;
        let database = wanted.schema.as_deref().unwrap_or(&settings.url.database);
        let sql = "SELECT table_name, column_name, data_type, column_type, character_set_name, column_key \
             FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position";
        let mut rows: Vec<ColumnRow> = connection.exec(sql, (database, &wanted.name)).await.map_err(error)?;
        if rows.is_empty() {
            let lower = wanted.name.to_lowercase();
            rows = connection.exec(sql, (database, lower)).await.map_err(error)?;
        }
        let Some(name) = rows.first().map(|row| row.0.clone()) else {
            return Err(DbError::invalid(format!(
                "there is no table `{wanted}`, or the user may not read it"
            )));
        };
        Ok(Self { database: database.to_owned(), name, columns: rows.into_iter().map(column).collect() })
    }

    pub(super) fn quoted(&self) -> String {
        let quote = |name: &str| Dialect::MySql.quote(name);
        format!("{}.{}", quote(&self.database), quote(&self.name))
    }

    /// Returns the column of the primary key, if that is one column of integers that fit into `i64`.
    pub(super) fn integer_key(&self) -> Option<usize> {
        let mut keys = self.columns.iter().enumerate().filter(|(_, column)| column.is_primary);
        let (index, only) = keys.next()?;
        let fits = match only.form {
            Form::Integer(bits) => bits < 64 || !only.is_unsigned,
            _ => false,
        };
        (fits && keys.next().is_none()).then_some(index)
    }

    pub(super) fn select_statement(&self, after: Option<i64>) -> String {
        let quote = |column: &MySqlColumn| Dialect::MySql.quote(&column.name);
        let names: Vec<String> = self.columns.iter().map(quote).collect();
        let condition = match self.integer_key().and_then(|index| self.columns.get(index)).map(quote) {
            None => String::new(),
            Some(key) => {
                let after = after.map_or(String::new(), |after| format!(" WHERE {key} > {after}"));
                format!("{after} ORDER BY {key}")
            }
        };
        format!("SELECT {} FROM {}{condition}", names.join(", "), self.quoted())
    }
}

fn column((_, name, data_type, column_type, charset, key): ColumnRow) -> MySqlColumn {
    let charset = charset.unwrap_or_default();
    let known = CHARSETS.iter().find(|(known, _)| *known == charset);
    let encoding = known.and_then(|(_, label)| encoding_rs::Encoding::for_label(label.as_bytes()));
    let form = match data_type.to_ascii_lowercase().as_str() {
        "tinyint" => Form::Integer(8),
        "smallint" => Form::Integer(16),
        "mediumint" => Form::Integer(24),
        "int" => Form::Integer(32),
        "bigint" => Form::Integer(64),
        "float" | "double" => Form::Float,
        "decimal" => Form::Decimal,
        "json" => Form::Json,
        "bit" => Form::Bits,
        "date" => Form::Date,
        "time" => Form::Time,
        "datetime" => Form::DateTime,
        "timestamp" => Form::Timestamp,
        "year" => Form::Year,
        "enum" => Form::Enum,
        "set" => Form::Set,
        // of the types that are left, only texts have a character set
        _ if charset.is_empty() => Form::Bytes,
        _ => Form::Text,
    };
    let members = match form {
        Form::Enum | Form::Set => members(&column_type),
        _ => vec![],
    };
    MySqlColumn {
        name,
        form,
        is_unsigned: column_type.contains("unsigned"),
        encoding: encoding.unwrap_or(encoding_rs::UTF_8),
        members,
        is_primary: key == "PRI",
    }
}

/// Returns the texts in `enum('a','it''s')`.
fn members(column_type: &str) -> Vec<String> {
    let inside = column_type.split_once('(').map_or("", |(_, inside)| inside);
    let mut members = vec![];
    let mut rest = inside;
    while let Some((_, text)) = rest.split_once('\'') {
        let mut member = String::new();
        let mut chars = text.char_indices();
        rest = "";
        while let Some((at, c)) = chars.next() {
            let behind = &text[at + c.len_utf8()..];
            match c {
                '\'' if behind.starts_with('\'') => {
                    member.push('\'');
                    chars.next();
                }
                '\'' => {
                    rest = behind;
                    break;
                }
                c => member.push(c),
            }
        }
        members.push(member);
    }
    members
}

#[cfg(test)]
mod tests {
    use super::members;

    #[test]
    fn members_are_in_the_type() {
        assert_eq!(members("enum('a','it''s','','x,y')"), ["a", "it's", "", "x,y"]);
        assert!(members("int(11)").is_empty());
        assert_eq!(members("set('cut"), ["cut"]);
    }
}
