//! Sink that writes events to a table of a database.
//!
//! The rows of a delivery and the position of its last event are written in one transaction, so an event is written
//! once, whatever fails in between.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    PartitionEpochs, SinkBatch, SinkConnector, SinkPositions, SinkType, is_later_owner,
};
use tidemill_relational::{
    BulkWriter, Column, DatabaseConnection, DatabaseUrl, DbError, ExistingTable, Mapping, Operation,
    PositionTable, StoredPosition, TableName, TableSchema, parse_lengths,
};
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, StreamSchema, did_you_mean};

/// Name of the temporary table of a connection.
const STAGING: &str = "tidemill_batch";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "jdbc.url",
        "Address of the database: `jdbc:postgresql://host:port/db`, `jdbc:mysql:…`, `jdbc:mariadb:…`, \
         `jdbc:sqlserver://host:port;databaseName=db`, `jdbc:oracle:thin:@//host:port/service`, `jdbc:sqlite:path`.",
    )
    .required()
    .secret(),
    OptionSpec::text("username", "User."),
    OptionSpec::text("password", "Password of the user.").secret(),
    OptionSpec::text("table.name", "Table, `table` or `schema.table`; without it, the name of the stream."),
    OptionSpec::one_of(
        "operation",
        &["insert", "update", "upsert", "delete"],
        "What an event does to the table. All but `insert` find rows by `key`.",
    )
    .default("insert"),
    OptionSpec::text("key", "Columns of the table that identify a row, separated by commas."),
    OptionSpec::text(
        "columns",
        "Attributes to write with their columns, `attribute:column, …`; without it, all attributes by their names.",
    ),
    OptionSpec::flag("create.table", "true", "Whether a missing table is created; `key` is its primary key."),
    OptionSpec::text(
        "field.length",
        "Lengths of string columns of a table that is created, `column:length, …`; 254 characters otherwise.",
    ),
    OptionSpec::text("jdbc.driver.name", "Has no effect: the program has its own drivers."),
    OptionSpec::text("pool.properties", "Has no effect: a sink has one connection."),
];

/// Type of sink.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RdbmsSinkType;

impl SinkType for RdbmsSinkType {
    fn name(&self) -> &'static str {
        "rdbms"
    }

    fn summary(&self) -> &'static str {
        "Inserts, updates or deletes rows of a table in PostgreSQL, MariaDB, MySQL, SQL Server, Oracle or SQLite."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn takes_messages(&self) -> bool {
        false
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        Ok(Box::new(RdbmsSink::new(options, context)?))
    }
}

struct RdbmsSink {
    url: DatabaseUrl,
    user: Option<String>,
    password: Option<String>,
    table: TableSchema,
    creates_table: bool,
    operation: Operation,
    mappings: Vec<Mapping>,
    keys: Vec<String>,
    positions: PositionTable,
    connection: Option<Connection>,
}

struct Connection {
    db: DatabaseConnection,
    writer: BulkWriter,
    known: BTreeMap<PartitionId, StoredPosition>,
    owned: PartitionEpochs,
}

impl RdbmsSink {
    fn new(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        let at = |name: &'static str| move |message: String| OptionError::option(name, message);
        let url = DatabaseUrl::parse(options.text("jdbc.url")).map_err(at("jdbc.url"))?;
        for parameter in &url.without_effect {
            tracing::warn!(sink = context.name, "the parameter `{parameter}` of the URL has no effect");
        }
        let name = options.get("table.name").unwrap_or(&context.schema.name);
        let name = TableName::parse(name).map_err(at("table.name"))?;
        let mappings = parse_columns(options.get("columns"), &context.schema).map_err(at("columns"))?;
        let keys = parse_keys(options.get("key"), &mappings).map_err(at("key"))?;
        let operation = match options.text("operation").trim().to_ascii_lowercase().as_str() {
            "update" => Operation::Update,
            "upsert" => Operation::Upsert,
            "delete" => Operation::Delete,
            _ => Operation::Insert,
        };
        if operation != Operation::Insert && keys.is_empty() {
            let message = format!("`{}` finds rows by `key`, which is missing", options.text("operation"));
            return Err(OptionError::option("operation", message).expected(["key='column, …'"]));
        }
        let mut columns: Vec<Column> =
            mappings.iter().map(|mapping| Column::new(&mapping.column, mapping.ty)).collect();
        let names = mappings.iter().map(|mapping| mapping.column.as_str());
        let lengths = parse_lengths(options.text("field.length"), names).map_err(at("field.length"))?;
        for (name, length) in lengths {
            columns.iter_mut().filter(|c| c.name == name).for_each(|c| c.length = Some(length));
        }
        let is_key = |mapping: &Mapping| keys.contains(&mapping.column);
        let primary_key = (0..mappings.len()).filter(|index| is_key(&mappings[*index])).collect();
        let positions = PositionTable::new(url.dialect, &context.writer).map_err(OptionError::connector)?;
        Ok(Self {
            user: options.get("username").map(str::to_owned),
            password: options.get("password").map(str::to_owned),
            table: TableSchema { name, columns, primary_key, indexes: vec![] },
            creates_table: options.flag("create.table"),
            url,
            operation,
            mappings,
            keys,
            positions,
            connection: None,
        })
    }

    async fn open(&self) -> Result<Connection, DbError> {
        let mut db =
            DatabaseConnection::connect(&self.url, self.user.as_deref(), self.password.as_deref()).await?;
        let opened = async {
            let table = ExistingTable::open(&mut db, &self.table, self.creates_table).await?;
            let (mappings, keys) = (&self.mappings, &self.keys);
            let writer = BulkWriter::new(db.dialect(), &table, mappings, self.operation, keys, STAGING)
                .map_err(DbError::invalid)?;
            writer.prepare(&mut db).await?;
            Ok((writer, self.positions.open(&mut db).await?))
        };
        let (writer, known) = opened.await.map_err(|e: DbError| e.context(&self.url))?;
        Ok(Connection { db, writer, known, owned: PartitionEpochs::new() })
    }
}

#[async_trait]
impl SinkConnector for RdbmsSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.connection = None;
        let connection = self.open().await?;
        let delivered = connection.delivered();
        self.connection = Some(connection);
        Ok(Some(delivered))
    }

    async fn own(&mut self, partitions: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        // a failed connection is not used again
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::unavailable(format!("{}: not connected", self.url)));
        };
        let known = self.positions.read(&mut connection.db).await;
        connection.known = known.map_err(|e| Error::from(e.context(&self.url)))?;
        connection.owned = partitions.clone();
        let later = connection.known.values().map(|position| (position.last.partition, position.epoch));
        let later =
            later.filter(|(id, epoch)| partitions.get(id).is_some_and(|own| is_later_owner(*epoch, *own)));
        let positions = SinkPositions { delivered: connection.delivered(), later_owners: later.collect() };
        self.connection = Some(connection);
        Ok(Some(positions))
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        // a failed connection is not used again
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::unavailable(format!("{}: not connected", self.url)));
        };
        let written = connection.write(&self.positions, batch, progress).await;
        written.map_err(|e| Error::from(e.context(&self.url)))?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.db.close().await;
        }
    }
}

impl Connection {
    async fn write(
        &mut self,
        positions: &PositionTable,
        batch: &SinkBatch,
        progress: &mut DeliveryProgress,
    ) -> Result<(), DbError> {
        let rows: Vec<usize> =
            (progress.delivered..batch.ids.len()).filter(|row| !self.is_written(&batch.ids[*row])).collect();
        if rows.is_empty() {
            progress.delivered = batch.ids.len();
            return Ok(());
        }
        self.writer.reset(&mut self.db).await?;
        self.db.begin().await?;
        let refused = self.writer.write(&mut self.db, &batch.rows, &rows).await?;
        let processed = rows.iter().map(|row| batch.ids[*row]);
        let mut moved = next_positions(&self.known, processed, refused.iter().map(|r| batch.ids[r.row]));
        for position in &mut moved {
            // a partition that does not move leaves the epoch as it is
            let own = self.owned.get(&position.last.partition).copied().filter(|epoch| *epoch > 0);
            position.epoch = own.unwrap_or(position.epoch);
            positions.write(&mut self.db, position).await?;
        }
        self.db.commit().await?;
        self.known.extend(moved.into_iter().map(|position| (position.last.partition, position)));
        progress.refused.extend(refused);
        progress.delivered = batch.ids.len();
        Ok(())
    }

    /// Returns the last event of each partition that needs not come again.
    fn delivered(&self) -> DeliveredEvents {
        self.known.values().filter_map(delivered).map(|id| (id.partition, id)).collect()
    }

    fn is_written(&self, id: &EventId) -> bool {
        let known = self.known.get(&id.partition);
        known.is_some_and(|known| *id <= known.last && !known.refused.contains(id))
    }
}

/// Returns the positions after `processed` events. `refused` are those that the database refused.
///
/// Refused events stay known until later ones come: then the caller has taken note of them. Until then they may come
/// again, because the caller was not able to take note, or because it waits until the database takes them.
fn next_positions(
    known: &BTreeMap<PartitionId, StoredPosition>,
    processed: impl Iterator<Item = EventId>,
    refused: impl Iterator<Item = EventId>,
) -> Vec<StoredPosition> {
    let mut next: BTreeMap<PartitionId, StoredPosition> = BTreeMap::new();
    for id in processed {
        let position = next.entry(id.partition).or_insert_with(|| match known.get(&id.partition) {
            Some(known) => StoredPosition { batch: known.batch + 1, ..known.clone() },
            None => StoredPosition { last: id, refused: Default::default(), batch: 1, epoch: 0 },
        });
        position.refused.remove(&id);
        if id > position.last {
            position.last = id;
        }
    }
    for position in next.values_mut() {
        let before = known.get(&position.last.partition).map(|known| known.last);
        if before.is_none_or(|before| position.last > before) {
            position.refused.clear();
        }
    }
    for id in refused {
        if let Some(position) = next.get_mut(&id.partition) {
            position.refused.insert(id);
        }
    }
    next.into_values().collect()
}

/// Returns the event before the first that has to come again; `None` if that is the first of its partition.
fn delivered(position: &StoredPosition) -> Option<EventId> {
    let Some(first) = position.refused.first() else { return Some(position.last) };
    match (first.row.checked_sub(1), first.offset.0.checked_sub(1)) {
        (Some(row), _) => Some(EventId { row, ..*first }),
        (None, Some(offset)) => Some(EventId { offset: Offset(offset), row: u32::MAX, ..*first }),
        (None, None) => None,
    }
}

fn parse_columns(text: Option<&str>, schema: &StreamSchema) -> Result<Vec<Mapping>, String> {
    let mapping = |source: usize, column: &str| Mapping {
        source,
        column: column.to_owned(),
        ty: schema.fields[source].ty,
    };
    let Some(text) = text else {
        return Ok(schema
            .fields
            .iter()
            .enumerate()
            .map(|(index, field)| mapping(index, &field.name))
            .collect());
    };
    let mut mappings: Vec<Mapping> = vec![];
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (attribute, column) = part.split_once(':').unwrap_or((part, part));
        let (attribute, column) = (attribute.trim(), column.trim());
        let source = schema.field_index(attribute).ok_or_else(|| {
            let hint = did_you_mean(attribute, schema.fields.iter().map(|f| f.name.as_str()));
            format!("the stream has no attribute `{attribute}`{hint}")
        })?;
        if column.is_empty() {
            return Err(format!("expected `attribute:column, …`, found `{part}`"));
        }
        if mappings.iter().any(|known| known.column == column) {
            return Err(format!("the column `{column}` is written twice"));
        }
        mappings.push(mapping(source, column));
    }
    match mappings.is_empty() {
        true => Err("expected `attribute:column, …`, found nothing".into()),
        false => Ok(mappings),
    }
}

fn parse_keys(text: Option<&str>, mappings: &[Mapping]) -> Result<Vec<String>, String> {
    let mut keys: Vec<String> = vec![];
    for name in text.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if !mappings.iter().any(|mapping| mapping.column == name) {
            let hint = did_you_mean(name, mappings.iter().map(|mapping| mapping.column.as_str()));
            return Err(format!("no attribute is written to a column `{name}`{hint}"));
        }
        if !keys.iter().any(|known| known == name) {
            keys.push(name.to_owned());
        }
    }
    Ok(keys)
}
