//! All types of connectors and mappers that a program has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tidemill_types::{StreamSchema, did_you_mean};

use crate::config::{ConnectorConfig, MapperConfig, StoreConfig};
use crate::connector_sink::{ConnectorSink, SinkConnector};
use crate::connector_source::{ConnectorSource, SourceConnector, SplitPositions};
use crate::data_source::{DataSource, DataSourceContext, DataSourceType};
use crate::mapper::{SinkMapper, SinkMapperType, SourceMapper, SourceMapperType, default_mapper};
use crate::options::{OptionError, OptionPlace, OptionSpec, Options};
use crate::store::{StoreContext, StoreType, TableStore};
use crate::template::Template;

/// Delivery guarantee of a connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryGuarantee {
    /// Once, also after crashes of either side.
    ExactlyOnce,
    /// At least once: after a crash or a lost connection some events come again.
    AtLeastOnce,
    /// At most once: the protocol has no acknowledgement, so events are lost while no one listens.
    AtMostOnce,
}

impl DeliveryGuarantee {
    /// Returns its name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactlyOnce => "exactly once",
            Self::AtLeastOnce => "at least once",
            Self::AtMostOnce => "at most once",
        }
    }
}

/// Context in which a connector is created.
#[derive(Debug, Clone)]
pub struct ConnectorContext {
    /// Name of the connector, which stays the same over restarts.
    pub name: String,
    /// Name under which another system remembers what the connector has written there. The connectors of other data
    /// directories have others.
    pub writer: String,
    /// Name of the app.
    pub app: String,
    /// Events of the stream.
    pub schema: Arc<StreamSchema>,
    /// Directory at which relative paths start.
    pub dir: PathBuf,
    /// Type of the mapper that makes the messages of a sink, for sinks to which that makes a difference.
    pub mapper: Option<String>,
    /// True if the partitions of the log are owned by several processes and may move between them.
    pub shares_partitions: bool,
}

impl ConnectorContext {
    /// Returns the value of an option as a template for the events of the stream.
    ///
    /// Errors: a placeholder names no attribute.
    pub fn template(&self, options: &Options, name: &str) -> Result<Template, OptionError> {
        self.parse_template(name, options.text(name))
    }

    /// Returns [`Self::template`] of an option that may be missing.
    ///
    /// Errors: those of [`Self::template`].
    pub fn optional_template(&self, options: &Options, name: &str) -> Result<Option<Template>, OptionError> {
        options.get(name).map(|text| self.parse_template(name, text)).transpose()
    }

    /// Returns `text` as a template for the events of the stream. `name` is its option.
    ///
    /// Errors: a placeholder names no attribute.
    pub fn parse_template(&self, name: &str, text: &str) -> Result<Template, OptionError> {
        Template::parse(text, &self.schema).map_err(|e| OptionError::option(name, e))
    }
}

/// Type of source.
pub trait SourceType: Send + Sync {
    /// Returns the name that users write.
    fn name(&self) -> &'static str;
    /// Returns its purpose in one sentence.
    fn summary(&self) -> &'static str;
    /// Returns all options that it takes.
    fn options(&self) -> &'static [OptionSpec];
    /// Returns what it promises.
    fn guarantee(&self) -> DeliveryGuarantee;
    /// Creates a source, without connecting.
    ///
    /// Errors: options that make no sense together.
    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError>;
}

/// Type of sink.
pub trait SinkType: Send + Sync {
    /// Returns the name that users write.
    fn name(&self) -> &'static str;
    /// Returns its purpose in one sentence.
    fn summary(&self) -> &'static str;
    /// Returns all options that it takes.
    fn options(&self) -> &'static [OptionSpec];
    /// Returns what it promises.
    fn guarantee(&self) -> DeliveryGuarantee;
    /// Returns whether it sends messages, which a mapper makes; otherwise it takes rows.
    fn takes_messages(&self) -> bool {
        true
    }
    /// Returns whether a sink that takes rows may have a mapper of this type, without effect, because apps for other
    /// systems write one.
    fn ignores_mapper(&self, _kind: &str) -> bool {
        false
    }
    /// Creates a sink, without connecting.
    ///
    /// Errors: options that make no sense together.
    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError>;
}

/// Connector and mapper of a source.
pub type SourceParts = (Box<dyn SourceConnector>, Box<dyn SourceMapper>);

/// Types of connectors and mappers by name.
#[derive(Clone, Default)]
pub struct Catalog {
    sources: BTreeMap<&'static str, Arc<dyn SourceType>>,
    sinks: BTreeMap<&'static str, Arc<dyn SinkType>>,
    source_mappers: BTreeMap<&'static str, Arc<dyn SourceMapperType>>,
    sink_mappers: BTreeMap<&'static str, Arc<dyn SinkMapperType>>,
    stores: BTreeMap<&'static str, Arc<dyn StoreType>>,
    /// Databases that statements of apps go to.
    data_sources: Option<Arc<dyn DataSourceType>>,
    /// Types of other systems that there are not here, and what to use instead.
    unavailable: BTreeMap<&'static str, &'static str>,
    /// Types that this program was built without, and the feature that has them.
    not_built: BTreeMap<&'static str, &'static str>,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("sources", &self.sources.keys())
            .field("sinks", &self.sinks.keys())
            .finish_non_exhaustive()
    }
}

impl Catalog {
    /// Adds a type of source.
    pub fn add_source(&mut self, source: impl SourceType + 'static) -> &mut Self {
        self.sources.insert(source.name(), Arc::new(source));
        self
    }

    /// Adds a type of sink.
    pub fn add_sink(&mut self, sink: impl SinkType + 'static) -> &mut Self {
        self.sinks.insert(sink.name(), Arc::new(sink));
        self
    }

    /// Adds a mapper of messages that arrive.
    pub fn add_source_mapper(&mut self, mapper: impl SourceMapperType + 'static) -> &mut Self {
        self.source_mappers.insert(mapper.name(), Arc::new(mapper));
        self
    }

    /// Adds a mapper of messages that leave.
    pub fn add_sink_mapper(&mut self, mapper: impl SinkMapperType + 'static) -> &mut Self {
        self.sink_mappers.insert(mapper.name(), Arc::new(mapper));
        self
    }

    /// Adds a type of store.
    pub fn add_store(&mut self, store: impl StoreType + 'static) -> &mut Self {
        self.stores.insert(store.name(), Arc::new(store));
        self
    }

    /// Sets how the databases are opened that statements of apps go to.
    pub fn set_data_sources(&mut self, sources: impl DataSourceType + 'static) -> &mut Self {
        self.data_sources = Some(Arc::new(sources));
        self
    }

    /// Returns whether statements of apps can go to databases.
    pub fn has_data_sources(&self) -> bool {
        self.data_sources.is_some()
    }

    /// Creates the access to a database, without connecting.
    ///
    /// Errors: wrong options; the program has no databases.
    pub fn create_data_source(
        &self,
        options: &[(String, String)],
        context: &DataSourceContext,
    ) -> Result<Box<dyn DataSource>, OptionError> {
        let none = || {
            let message =
                self.not_built("rdbms").unwrap_or_else(|| "this program has no databases".to_owned());
            OptionError::connector(message)
        };
        self.data_sources.as_ref().ok_or_else(none)?.create(options, context)
    }

    /// Adds a type that other systems have and this one has not, with what to use instead.
    pub fn add_unavailable(&mut self, name: &'static str, instead: &'static str) -> &mut Self {
        self.unavailable.insert(name, instead);
        self
    }

    /// Adds a type that this program was built without. `feature` is what has to be built in.
    pub fn add_not_built(&mut self, name: &'static str, feature: &'static str) -> &mut Self {
        self.not_built.insert(name, feature);
        self
    }

    /// Returns what to do about a type that this program was built without.
    fn not_built(&self, name: &str) -> Option<String> {
        let found = self.not_built.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(name, feature)| {
            format!("this program was built without `{name}`: build it with `--features {feature}`")
        })
    }

    /// Returns the types of sources, by name.
    pub fn sources(&self) -> impl Iterator<Item = &dyn SourceType> {
        self.sources.values().map(|source| &**source)
    }

    /// Returns the types of sinks, by name.
    pub fn sinks(&self) -> impl Iterator<Item = &dyn SinkType> {
        self.sinks.values().map(|sink| &**sink)
    }

    /// Returns the mappers of messages that arrive, by name.
    pub fn source_mappers(&self) -> impl Iterator<Item = &dyn SourceMapperType> {
        self.source_mappers.values().map(|mapper| &**mapper)
    }

    /// Returns the mappers of messages that leave, by name.
    pub fn sink_mappers(&self) -> impl Iterator<Item = &dyn SinkMapperType> {
        self.sink_mappers.values().map(|mapper| &**mapper)
    }

    /// Returns the types of stores, by name.
    pub fn stores(&self) -> impl Iterator<Item = &dyn StoreType> {
        self.stores.values().map(|store| &**store)
    }

    /// Returns whether there is a type of store with this name.
    pub fn has_store(&self, name: &str) -> bool {
        self.stores.keys().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns the type of store with this name.
    pub fn store_type(&self, kind: &str) -> Option<&dyn StoreType> {
        let known = self.stores.values().find(|known| known.name().eq_ignore_ascii_case(kind));
        known.map(|known| &**known)
    }

    /// Creates the store of a table, without connecting.
    ///
    /// Errors: an unknown type, wrong options.
    pub fn create_store(
        &self,
        config: &StoreConfig,
        context: &StoreContext,
    ) -> Result<Box<dyn TableStore>, OptionError> {
        let kind = self.find(&self.stores, "store", &config.kind)?;
        let options =
            Options::check(kind.options(), &config.options, &format!("the store `{}`", kind.name()))?;
        if !context.special_indexes.is_empty() && !kind.takes_special_indexes() {
            let message = format!("indexes of the store `{}` have no orders and options", kind.name());
            return Err(OptionError::connector(message).expected(["@Index('COLUMN')"]));
        }
        kind.create(&options, context)
    }

    /// Creates the connector and the mapper of a source.
    ///
    /// Errors: an unknown type, wrong options.
    pub fn create_source(
        &self,
        config: &ConnectorConfig,
        context: &ConnectorContext,
    ) -> Result<SourceParts, OptionError> {
        let kind = self.find(&self.sources, "source", &config.kind)?;
        let options =
            Options::check(kind.options(), &config.options, &format!("the source `{}`", kind.name()))?;
        let connector = kind.create(&options, context)?;
        let mapper = config.mapper.clone().unwrap_or_else(default_mapper);
        Ok((connector, self.create_source_mapper(&mapper, context)?))
    }

    /// Creates a mapper of messages that arrive.
    ///
    /// Errors: an unknown type, wrong options.
    pub fn create_source_mapper(
        &self,
        config: &MapperConfig,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        if let Some(payload) = config.payload.first() {
            let message = format!("a source reads `@attributes`, not `@payload` (`{}`)", payload.text);
            return Err(OptionError {
                place: OptionPlace::Payload,
                message,
                expected: vec![],
                is_open: false,
            });
        }
        let kind = self.find(&self.source_mappers, "mapper", &config.kind).map_err(OptionError::of_mapper)?;
        kind.create(&mapper_options(config, kind.options())?, &config.attributes, &context.schema)
    }

    /// Opens a source that continues at `starts`.
    ///
    /// Errors: those of [`Self::create_source`].
    pub fn open_source(
        &self,
        config: &ConnectorConfig,
        context: &ConnectorContext,
        starts: SplitPositions,
    ) -> Result<ConnectorSource, OptionError> {
        let (connector, mapper) = self.create_source(config, context)?;
        Ok(ConnectorSource::start(&context.name, connector, mapper, context.schema.clone(), starts))
    }

    /// Creates a sink, without connecting.
    ///
    /// Errors: an unknown type, wrong options.
    pub fn open_sink(
        &self,
        config: &ConnectorConfig,
        context: &ConnectorContext,
    ) -> Result<ConnectorSink, OptionError> {
        let kind = self.find(&self.sinks, "sink", &config.kind)?;
        let options =
            Options::check(kind.options(), &config.options, &format!("the sink `{}`", kind.name()))?;
        let mapper = config.mapper.as_ref().map(|mapper| mapper.kind.as_str());
        let connector = kind
            .create(&options, &ConnectorContext { mapper: mapper.map(str::to_owned), ..context.clone() })?;
        let mapper = match (&config.mapper, kind.takes_messages()) {
            (Some(mapper), false) if kind.ignores_mapper(&mapper.kind) && mapper.payload.is_empty() => None,
            (Some(_), false) => {
                let message =
                    format!("the sink `{}` takes rows and has no mapper; remove `@map`", kind.name());
                return Err(OptionError {
                    place: OptionPlace::Mapper,
                    message,
                    expected: vec![],
                    is_open: false,
                });
            }
            (None, false) => None,
            (mapper, true) => {
                Some(self.create_sink_mapper(&mapper.clone().unwrap_or_else(default_mapper), context)?)
            }
        };
        Ok(ConnectorSink::new(context.name.clone(), connector, mapper))
    }

    /// Creates a mapper of messages that leave.
    ///
    /// Errors: an unknown type, wrong options.
    pub fn create_sink_mapper(
        &self,
        config: &MapperConfig,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        if !config.attributes.is_empty() {
            let message = "a sink writes `@payload`, not `@attributes`".to_owned();
            return Err(OptionError {
                place: OptionPlace::Attribute(0),
                message,
                expected: vec![],
                is_open: false,
            });
        }
        let kind = self.find(&self.sink_mappers, "mapper", &config.kind).map_err(OptionError::of_mapper)?;
        kind.create(&mapper_options(config, kind.options())?, &config.payload, &context.schema)
    }

    fn find<'c, T: ?Sized>(
        &self,
        all: &'c BTreeMap<&'static str, Arc<T>>,
        what: &str,
        name: &str,
    ) -> Result<&'c T, OptionError> {
        if let Some(found) = all.get(name).or_else(|| {
            let same = all.keys().find(|known| known.eq_ignore_ascii_case(name));
            same.and_then(|known| all.get(known))
        }) {
            return Ok(found);
        }
        if let Some(message) = self.not_built(name) {
            return Err(OptionError::connector(message));
        }
        let unavailable = self.unavailable.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        Err(OptionError::connector(match unavailable {
            Some((_, instead)) => format!("there is no {what} `{name}` here: {instead}"),
            None => {
                let hint = did_you_mean(name, all.keys().copied());
                format!("unknown {what} `{name}`{hint} (`tidemill connectors` lists all)")
            }
        }))
    }
}

fn mapper_options(config: &MapperConfig, specs: &'static [OptionSpec]) -> Result<Options, OptionError> {
    let what = format!("the mapper `{}`", config.kind);
    Options::check(specs, &config.options, &what).map_err(OptionError::of_mapper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_not_built_in_says_what_to_build() {
        let mut catalog = Catalog::default();
        catalog.add_not_built("kafka", "kafka").add_not_built("rdbms", "databases");
        let message = |name| catalog.find(&catalog.sources, "source", name).map(drop).unwrap_err().message;
        assert_eq!(
            message("Kafka"),
            "this program was built without `kafka`: build it with `--features kafka`"
        );
        assert!(
            message("kafkaesque").starts_with("unknown source `kafkaesque`"),
            "{}",
            message("kafkaesque")
        );
        let context =
            DataSourceContext { name: "orders".into(), writer: "shop".into(), monitor: Arc::default() };
        let error = catalog.create_data_source(&[], &context).map(drop).unwrap_err();
        assert!(error.message.contains("`--features databases`"), "{}", error.message);
    }
}
