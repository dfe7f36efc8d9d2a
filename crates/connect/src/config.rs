//! Connectors as users write them, before their options are checked.

/// Source or sink as written in an annotation or in `app.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectorConfig {
    /// Type of the connector, such as `kafka`.
    pub kind: String,
    /// Options in the order in which they are written.
    pub options: Vec<(String, String)>,
    /// Mapper, if one is written.
    pub mapper: Option<MapperConfig>,
}

/// Store of a table as written in `@store(…)`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreConfig {
    /// Type of the store, such as `rdbms`.
    pub kind: String,
    /// Options in the order in which they are written.
    pub options: Vec<(String, String)>,
}

/// Mapper as written in `@map(…)`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MapperConfig {
    /// Type of the mapper, such as `json`.
    pub kind: String,
    /// Options in the order in which they are written.
    pub options: Vec<(String, String)>,
    /// `@attributes(…)` of a source.
    pub attributes: Vec<NamedText>,
    /// `@payload(…)` of a sink: one text, or a text for each key.
    pub payload: Vec<NamedText>,
}

/// Text with an optional name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedText {
    /// Name before `=`.
    pub name: Option<String>,
    /// Text.
    pub text: String,
}

/// Handling of an event that the other side refuses for good. While the other side cannot be reached, all
/// events wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// It is logged and counted as failed.
    #[default]
    Log,
    /// It is sent again until the other side takes it; later events wait.
    Wait,
    /// It goes to the fault stream of its stream.
    Stream,
    /// It goes to the error store.
    Store,
}

impl OnError {
    /// All actions with the names that users write.
    pub const ALL: [(&str, Self); 4] =
        [("LOG", Self::Log), ("WAIT", Self::Wait), ("STREAM", Self::Stream), ("STORE", Self::Store)];

    /// Returns the action of this name; case does not matter.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, action)| *action)
    }
}
