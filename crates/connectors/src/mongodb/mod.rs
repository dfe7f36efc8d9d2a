//! Store that keeps the rows of a table in MongoDB, or in a server that speaks its protocol.
//!
//! A row is a document with a field for each column, as Siddhi's store has it: the `_id` is the server's, and the primary key
//! is a unique index. Conditions and assignments are evaluated by the server.

mod condition;
mod session;
mod write;

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use mongodb::options::{ClientOptions, Tls, TlsOptions};
use tidemill_connect::{
    Catalog, OptionError, OptionSpec, Options, RefusedRow, StoreContext, StoreExpr, StoreIndex, StoreType,
    StoreUpdate, TableStore, WritePosition, all_values, batch_of, runtime, typed_values,
};
use tidemill_types::{Result, StreamSchema};

use self::session::{Session, SessionSettings, SpecialIndex};
use self::write::RowWrite;
use crate::stores::StoreCalls;

/// Adds it to the catalog.
pub(super) fn add(catalog: &mut Catalog) {
    catalog.add_store(MongoStoreType);
}

/// Options of the store, as Siddhi's store has them.
const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "mongodb.uri",
        "Address of the server with the database: `mongodb://user:password@host:27017/database`.",
    )
    .required()
    .secret(),
    OptionSpec::text("collection.name", "Collection; default: the name of the table."),
    OptionSpec::flag("secure.connection", "false", "Whether the connection is encrypted by TLS."),
    OptionSpec::text(
        "trust.store",
        "PEM file with the authorities that are trusted; default: those of the program.",
    ),
    OptionSpec::text("trust.store.password", "Has no effect: PEM files with authorities have no password.")
        .secret(),
    OptionSpec::text("key.store", "PEM file with the certificate and the key of this client."),
    OptionSpec::text("key.store.password", "Has no effect: the key must not be encrypted.").secret(),
];

/// Type of store.
struct MongoStoreType;

impl StoreType for MongoStoreType {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    fn summary(&self) -> &'static str {
        "Keeps the rows of a table in MongoDB."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn table_option(&self) -> Option<&'static str> {
        Some("collection.name")
    }

    fn takes_special_indexes(&self) -> bool {
        true
    }

    fn create(&self, options: &Options, context: &StoreContext) -> Result<Box<dyn TableStore>, OptionError> {
        let settings = SessionSettings {
            client: client_options(options)?,
            database: String::new(),
            collection: options.get("collection.name").unwrap_or(&context.table).to_owned(),
            primary_key: names(&context.schema, &context.primary_key),
            indexes: names(&context.schema, &context.indexes),
            special_indexes: special_indexes(context),
            name: format!("{}/{}", context.writer, context.table),
        };
        let database = settings.client.default_database.clone().ok_or_else(|| {
            let message = "the URI names no database: expected `mongodb://host:27017/database`";
            OptionError::option("mongodb.uri", message)
        })?;
        let session = Session::new(SessionSettings { database, ..settings });
        let calls = StoreCalls { table: context.table.clone(), monitor: context.monitor.clone() };
        Ok(Box::new(MongoStore { session, calls, schema: context.schema.clone() }))
    }
}

fn special_indexes(context: &StoreContext) -> Vec<SpecialIndex> {
    let special = |of: &StoreIndex| SpecialIndex {
        columns: of
            .columns
            .iter()
            .filter_map(|(column, descending)| {
                Some((context.schema.fields.get(*column)?.name.clone(), *descending))
            })
            .collect(),
        of: of.clone(),
    };
    context.special_indexes.iter().map(special).collect()
}

fn names(schema: &StreamSchema, columns: &[usize]) -> Vec<String> {
    columns.iter().filter_map(|column| Some(schema.fields.get(*column)?.name.clone())).collect()
}

/// Returns how the driver connects. Nothing is looked up by name here.
fn client_options(options: &Options) -> Result<ClientOptions, OptionError> {
    let uri = options.text("mongodb.uri");
    if uri.starts_with("mongodb+srv:") {
        let message =
            "`mongodb+srv` looks servers up when the app is compiled; write `mongodb://` with their hosts";
        return Err(OptionError::option("mongodb.uri", message));
    }
    // the driver repeats parts of a URI in its errors, which may have a password
    let parsed = runtime().block_on(async { ClientOptions::parse(uri).await });
    let mut client = parsed.map_err(|_| {
        OptionError::option(
            "mongodb.uri",
            "expected `mongodb://user:password@host:27017/database?option=value`",
        )
    })?;
    client.app_name.get_or_insert_with(|| "tidemill".to_owned());
    client.server_selection_timeout.get_or_insert(session::SELECTION_TIMEOUT);
    let is_secure = options.flag("secure.connection");
    for (name, is_file) in [
        ("trust.store", true),
        ("trust.store.password", false),
        ("key.store", true),
        ("key.store.password", false),
    ] {
        let Some(value) = options.get(name) else { continue };
        if !is_secure {
            return Err(OptionError::option(name, "needs `secure.connection='true'`"));
        }
        if is_file && value.ends_with(".jks") {
            return Err(OptionError::option(
                name,
                "a Java key store cannot be read: export it to a PEM file",
            ));
        }
        if is_file && !Path::new(value).is_file() {
            return Err(OptionError::option(name, format!("there is no file `{value}`")));
        }
    }
    if is_secure {
        let mut tls = TlsOptions::builder().build();
        tls.ca_file_path = options.get("trust.store").map(Into::into);
        tls.cert_key_file_path = options.get("key.store").map(Into::into);
        client.tls = Some(Tls::Enabled(tls));
    }
    Ok(client)
}

struct MongoStore {
    session: Session,
    calls: StoreCalls,
    schema: Arc<StreamSchema>,
}

impl MongoStore {
    fn write(&mut self, statements: &[RowWrite], at: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        let session = &mut self.session;
        self.calls.until_reached(|| runtime().block_on(session.write(statements, at)))
    }
}

impl TableStore for MongoStore {
    fn find(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        limit: Option<usize>,
    ) -> Result<RecordBatch> {
        let given = typed_values(parameters).into_iter().next().unwrap_or_default();
        let translation = condition::Translation { schema: &self.schema, parameters: &given };
        let filter = condition.map(|x| translation.filter(x)).transpose()?.unwrap_or_default();
        let (session, schema) = (&mut self.session, &self.schema);
        let rows = self.calls.until_reached(|| runtime().block_on(session.find(&filter, schema, limit)))?;
        batch_of(&self.schema, &rows)
    }

    fn insert(&mut self, rows: &RecordBatch, at: Option<WritePosition>) -> Result<Vec<RefusedRow>> {
        let statements: Result<Vec<RowWrite>> =
            all_values(rows).iter().map(|row| RowWrite::insert(&self.schema, row)).collect();
        self.write(&statements?, at)
    }

    fn delete(
        &mut self,
        condition: Option<&StoreExpr>,
        parameters: &RecordBatch,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let statements: Result<Vec<RowWrite>> = typed_values(parameters)
            .iter()
            .map(|given| {
                let translation = condition::Translation { schema: &self.schema, parameters: given };
                let filter = condition.map(|x| translation.filter(x)).transpose()?.unwrap_or_default();
                Ok(RowWrite::Delete(filter))
            })
            .collect();
        self.write(&statements?, at)
    }

    fn update(
        &mut self,
        change: &StoreUpdate,
        parameters: &RecordBatch,
        insert: Option<&RecordBatch>,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let inserted = insert.map(all_values).unwrap_or_default();
        let statements: Result<Vec<RowWrite>> = typed_values(parameters)
            .iter()
            .enumerate()
            .map(|(row, given)| RowWrite::update(&self.schema, change, given, inserted.get(row)))
            .collect();
        self.write(&statements?, at)
    }
}
