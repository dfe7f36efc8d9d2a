//! Streams, mappers and events of the tests.

use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_connect::{
    Catalog, ConnectorConfig, ConnectorContext, DeliveryGuarantee, EventBuilder, MapperConfig, Message,
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SourceConnector,
    SourceMapper, SourceOutput, SourceType,
};
use tidemill_types::{BadRow, Field, FieldType, Result, StreamSchema, Value, row_value};

/// Source type that makes mappers of sources reachable; it is never run.
struct IdleSourceType;

struct IdleSource;

impl SourceType for IdleSourceType {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn summary(&self) -> &'static str {
        "Nothing."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(&self, _: &Options, _: &ConnectorContext) -> Result<Box<dyn SourceConnector>, OptionError> {
        Ok(Box::new(IdleSource))
    }
}

#[async_trait::async_trait]
impl SourceConnector for IdleSource {
    async fn run(&mut self, _: &SourceOutput) -> Result<()> {
        Ok(())
    }
}

/// Parses `symbol string, price float`.
pub fn schema(text: &str) -> Arc<StreamSchema> {
    let field = |text: &str| {
        let (name, ty) = text.trim().split_once(' ').unwrap();
        Field::new(name, FieldType::parse(ty.trim()).unwrap())
    };
    let fields = text.split(',').map(field).collect();
    Arc::new(StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None })
}

fn context(schema: &Arc<StreamSchema>) -> ConnectorContext {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    ConnectorContext {
        mapper: None,
        shares_partitions: false,
        name: "S".into(),
        writer: "S".into(),
        app: "A".into(),
        schema: schema.clone(),
        dir,
    }
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    tidemill_mappers::add_all(&mut catalog);
    catalog.add_source(IdleSourceType);
    catalog
}

pub fn source(
    schema: &Arc<StreamSchema>,
    mapper: MapperConfig,
) -> Result<Box<dyn SourceMapper>, OptionError> {
    let config = ConnectorConfig { kind: "idle".into(), options: vec![], mapper: Some(mapper) };
    Ok(catalog().create_source(&config, &context(schema))?.1)
}

pub fn sink(schema: &Arc<StreamSchema>, mapper: &MapperConfig) -> Result<Box<dyn SinkMapper>, OptionError> {
    catalog().create_sink_mapper(mapper, &context(schema))
}

/// Returns a mapper with these options.
pub fn mapper(kind: &str, options: &[(&str, &str)]) -> MapperConfig {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    MapperConfig { kind: kind.into(), options: options.collect(), ..MapperConfig::default() }
}

/// Returns a text with a name, or without if it is empty.
pub fn named(name: &str, text: &str) -> NamedText {
    NamedText { name: (!name.is_empty()).then(|| name.to_owned()), text: text.to_owned() }
}

/// Maps messages to events and rejections.
pub fn read(
    schema: &Arc<StreamSchema>,
    mapper: &mut dyn SourceMapper,
    messages: &[Message],
) -> (Option<RecordBatch>, Vec<BadRow>) {
    let mut out = EventBuilder::new(schema.clone());
    for message in messages {
        let before = out.len();
        mapper.map(message, &mut out);
        // a header alone does not make an event, also one with more columns than the stream has
        let letters: Vec<u8> = message.payload.iter().copied().filter(u8::is_ascii_alphanumeric).collect();
        let names: String = schema.fields.iter().map(|field| field.name.as_str()).collect();
        let is_one_row = message.payload.trim_ascii_end().iter().all(|byte| *byte != b'\n');
        let is_header = letters.starts_with(names.as_bytes()) && is_one_row;
        assert!(
            out.len() > before || is_header,
            "a message gave neither an event nor a rejection: {message:?}"
        );
    }
    let decoded = out.finish();
    (decoded.rows.parts.into_iter().next().map(|(_, rows)| rows), decoded.rejected)
}

/// Maps events to messages; each event is in one of them or refused, in order.
pub fn write(mapper: &mut dyn SinkMapper, rows: &RecordBatch) -> (Vec<Payload>, Vec<RefusedRow>) {
    let mut refused = vec![];
    let payloads = mapper.map(rows, &mut refused);
    let sent = payloads.iter().flat_map(|payload| payload.row..payload.row + payload.rows);
    assert!(sent.clone().is_sorted());
    let mut all: Vec<usize> = sent.chain(refused.iter().map(|refused| refused.row)).collect();
    all.sort_unstable();
    assert_eq!(all, (0..rows.num_rows()).collect::<Vec<_>>());
    (payloads, refused)
}

/// Returns the event in `row` as a line, texts in quotes.
pub fn show(schema: &StreamSchema, rows: &RecordBatch, row: usize) -> String {
    let value = |column: usize| match row_value(rows, column, row) {
        Value::Missing => "null".to_owned(),
        Value::Float(x) if schema.fields[column].ty == FieldType::Float => format!("{:?}", x as f32),
        Value::Float(x) => format!("{x:?}"),
        other => other.to_string(),
    };
    (0..schema.fields.len()).map(value).collect::<Vec<_>>().join(", ")
}
