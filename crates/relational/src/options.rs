//! Options of tables of an app that live in a database.

use tidemill_connect::{OptionError, OptionSpec, Options};
use tidemill_types::{Error, Result};

use crate::schema::{TableName, TableSchema, parse_lengths};
use crate::url::DatabaseUrl;

/// Options of `@store(type='rdbms', …)`.
pub const STORE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "jdbc.url",
        "Address of the database: `jdbc:postgresql://host:port/db`, `jdbc:mysql:…`, `jdbc:mariadb:…`, \
         `jdbc:sqlserver://host:port;databaseName=db`, `jdbc:oracle:thin:@//host:port/service`, `jdbc:sqlite:path`.",
    )
    .required()
    .secret(),
    OptionSpec::text("username", "User."),
    OptionSpec::text("password", "Password of the user.").secret(),
    OptionSpec::text(
        "table.name",
        "Table, `table` or `schema.table`; without it, the name of the definition.",
    ),
    OptionSpec::text(
        "field.length",
        "Lengths of string attributes, `attribute:length, …`; 254 characters otherwise.",
    ),
    OptionSpec::flag("create.table", "true", "Whether a missing table is created."),
    OptionSpec::text("jdbc.driver.name", "Has no effect: the program has its own drivers."),
    OptionSpec::text("pool.properties", "Has no effect: a table has one connection."),
    OptionSpec::text("isAutoCommit", "Has no effect: the rows of a batch are written in one transaction."),
    OptionSpec::text("table.check.query", "Has no effect: the database's catalog is asked."),
    OptionSpec::flag("use.collation", "false", "Has no effect: created tables compare texts exactly."),
];

/// Location and declaration of a table.
#[derive(Clone)]
pub struct StoreOptions {
    /// Address of the database.
    pub url: DatabaseUrl,
    /// User, instead of that of the URL.
    pub user: Option<String>,
    /// Password, instead of that of the URL.
    pub password: Option<String>,
    /// True if a missing table is created.
    pub creates_table: bool,
    /// Declaration of the table.
    pub schema: TableSchema,
}

impl std::fmt::Debug for StoreOptions {
    /// Leaves user and password out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.schema.name, self.url)
    }
}

impl StoreOptions {
    /// Reads options that were checked against [`STORE_OPTIONS`]. `table.name` and `field.length` replace what `schema`
    /// has.
    ///
    /// Errors: a wrong URL, name or length.
    pub fn new(options: &Options, mut schema: TableSchema) -> Result<Self, OptionError> {
        let at = |name: &'static str| move |message: String| OptionError::option(name, message);
        let url = DatabaseUrl::parse(options.text("jdbc.url")).map_err(at("jdbc.url"))?;
        for parameter in &url.without_effect {
            tracing::warn!(table = %schema.name, "the parameter `{parameter}` of the URL has no effect");
        }
        if let Some(name) = options.get("table.name") {
            schema.name = TableName::parse(name).map_err(at("table.name"))?;
        }
        let names = schema.columns.iter().map(|column| column.name.as_str());
        let lengths = parse_lengths(options.text("field.length"), names).map_err(at("field.length"))?;
        for (name, length) in lengths {
            schema.columns.iter_mut().filter(|c| c.name == name).for_each(|c| c.length = Some(length));
        }
        Ok(Self {
            url,
            user: options.get("username").map(str::to_owned),
            password: options.get("password").map(str::to_owned),
            creates_table: options.flag("create.table"),
            schema,
        })
    }

    /// Checks options as a user wrote them, and reads them.
    ///
    /// Errors: those of [`Options::check`] and [`Self::new`].
    pub fn check(given: &[(String, String)], schema: TableSchema) -> Result<Self> {
        let options = Options::check(STORE_OPTIONS, given, "the store `rdbms`");
        let checked = options.and_then(|options| Self::new(&options, schema));
        checked.map_err(|e| Error::invalid(e.to_string()))
    }
}
