//! Settings for reading files.

/// Size of a read from a file in bytes.
pub(crate) const READ_BYTES: usize = 256 << 10;

/// Settings for reading files.
#[derive(Debug, Clone, Copy)]
pub struct ReadOptions {
    /// Number of rows, rejected ones included, after which a batch ends.
    pub batch_rows: usize,
    /// Size in bytes after which a batch of JSON or CSV ends even if it has fewer rows.
    pub batch_bytes: usize,
    /// Maximum length of a line of JSON in bytes; longer ones are rejected.
    pub line_bytes_max: usize,
    /// True if a JSON object that lacks a field is rejected; otherwise the field is null.
    pub complete: bool,
    /// Convention for JSON lines and CSV headers.
    pub dialect: Dialect,
    /// Field with the event time, of type `time`, or `long` in milliseconds since 1970, as an index into the
    /// fields of the stream. It takes the place of the stream's time field; rows where it is null have the current
    /// time.
    pub event_time: Option<usize>,
    /// Position at which reading begins: a [`SourceBatch::position`](tidemill_connect::SourceBatch) of an
    /// earlier reading of the same file, or 0 for the beginning.
    pub start: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            batch_rows: 4096,
            batch_bytes: 4 << 20,
            line_bytes_max: 64 << 20,
            complete: false,
            dialect: Dialect::Siddhi,
            event_time: None,
            start: 0,
        }
    }
}

/// Format and names of the columns of files, where they differ from the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnOptions {
    /// Character around texts of CSV.
    pub quote: u8,
    /// Texts of cells of CSV that stand for a missing value, besides the empty one.
    pub nulls: Vec<String>,
    /// Names in the file and the names of the fields that they stand for.
    pub renames: Vec<(String, String)>,
}

impl Default for ColumnOptions {
    fn default() -> Self {
        Self { quote: b'"', nulls: Vec::new(), renames: Vec::new() }
    }
}

impl ColumnOptions {
    /// Returns the name that the name of a column stands for.
    pub(crate) fn renamed<'n>(&'n self, name: &'n str) -> &'n str {
        self.renames.iter().find(|(from, _)| from == name).map_or(name, |(_, to)| to)
    }
}

/// Convention for JSON lines and CSV headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// The files of SiddhiQL. An event may be wrapped in an object with the only key `event`, and a line may
    /// hold an array of events. A CSV header names all fields; other columns are ignored.
    #[default]
    Siddhi,
    /// Events as they are sent over HTTP. A line holds one object. A CSV header names at least one field;
    /// missing fields are null, and other columns are kept as undeclared fields.
    Plain,
}
