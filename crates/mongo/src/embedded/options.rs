//! Values of options.

use std::time::Duration;

use bson::{Bson, Document, doc};

/// Modification by an update: operators such as `$set`, or a pipeline of stages.
#[derive(Debug, Clone, PartialEq)]
pub enum UpdateModifications {
    /// Operators.
    Document(Document),
    /// Stages `$set`, `$unset`, `$replaceWith` and their other names.
    Pipeline(Vec<Document>),
}

impl UpdateModifications {
    pub(super) fn into_bson(self) -> Bson {
        match self {
            Self::Document(document) => document.into(),
            Self::Pipeline(stages) => stages.into(),
        }
    }
}

impl From<Document> for UpdateModifications {
    fn from(document: Document) -> Self {
        Self::Document(document)
    }
}

impl From<Vec<Document>> for UpdateModifications {
    fn from(stages: Vec<Document>) -> Self {
        Self::Pipeline(stages)
    }
}

/// Version of a changed document to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnDocument {
    /// The document as it is now.
    After,
    /// The document as it was before.
    Before,
}

/// An index that must exist. The plan is chosen without it.
#[derive(Debug, Clone, PartialEq)]
pub enum Hint {
    /// The fields of the index.
    Keys(Document),
    /// Its name.
    Name(String),
}

impl From<Hint> for Bson {
    fn from(hint: Hint) -> Self {
        match hint {
            Hint::Keys(keys) => keys.into(),
            Hint::Name(name) => name.into(),
        }
    }
}

/// Version of the document that is reported with an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDocumentType {
    /// The document as it is when the change is read.
    UpdateLookup,
    /// The document after the change, if its collection keeps it.
    WhenAvailable,
    /// The same; a change without it is an error.
    Required,
}

/// Mode in which the document before a change is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDocumentBeforeChangeType {
    /// If its collection keeps it.
    WhenAvailable,
    /// The same; a change without it is an error.
    Required,
    /// It is not shown.
    Off,
}

impl From<FullDocumentType> for Bson {
    fn from(kind: FullDocumentType) -> Self {
        let name = match kind {
            FullDocumentType::UpdateLookup => "updateLookup",
            FullDocumentType::WhenAvailable => "whenAvailable",
            FullDocumentType::Required => "required",
        };
        name.into()
    }
}

impl From<FullDocumentBeforeChangeType> for Bson {
    fn from(kind: FullDocumentBeforeChangeType) -> Self {
        let name = match kind {
            FullDocumentBeforeChangeType::WhenAvailable => "whenAvailable",
            FullDocumentBeforeChangeType::Required => "required",
            FullDocumentBeforeChangeType::Off => "off",
        };
        name.into()
    }
}

/// Creates a type of options with its builder, whose setters take a value or an `Option`.
macro_rules! options {
    (
        $(#[$meta:meta])* $name:ident, $builder:ident;
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Default)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_meta])* pub $field: Option<$type>,)*
        }

        #[doc = concat!("Builder of [`", stringify!($name), "`].")]
        #[derive(Debug, Clone, Default)]
        pub struct $builder($name);

        impl $name {
            /// Returns a builder without any option.
            pub fn builder() -> $builder {
                $builder::default()
            }
        }

        impl $builder {
            $(
                $(#[$field_meta])*
                #[must_use]
                pub fn $field(mut self, value: impl Into<Option<$type>>) -> Self {
                    self.0.$field = value.into();
                    self
                }
            )*

            /// Returns the options.
            pub fn build(self) -> $name {
                self.0
            }
        }
    };
}

options! {
    /// Options of an index.
    IndexOptions, IndexOptionsBuilder;
    /// Its name; without one it is made of the fields, such as `a_1_b_-1`.
    name: String,
    /// Refuses two documents with the same values. It brings all documents of the collection into one
    /// partition.
    unique: bool,
    /// Leaves out documents without the fields.
    sparse: bool,
    /// Hides the index from queries.
    hidden: bool,
    /// Time after the date in the field at which a document is deleted, in whole seconds.
    expire_after: Duration,
    /// Filter for the documents that are indexed.
    partial_filter_expression: Document,
    /// Paths that a wildcard index covers.
    wildcard_projection: Document,
    /// Weights of the fields of a text index; 1 for those that have none.
    weights: Document,
    /// Language of documents in a text index that do not say theirs; english without it.
    default_language: String,
    /// Field in which a document says its language; `language` without it.
    language_override: String,
    /// Bits of a coordinate in a `2d` index; 26 without it.
    bits: u32,
    /// Least coordinate in a `2d` index; -180 without it.
    min: f64,
    /// Greatest coordinate in a `2d` index; 180 without it.
    max: f64,
}

options! {
    /// Storage of both versions of a changed document for change streams, as an option of a collection.
    ChangeStreamPreAndPostImages, ChangeStreamPreAndPostImagesBuilder;
    /// True to keep them.
    enabled: bool,
}

options! {
    /// When a write returns. Without it the setting `durability` of the engine decides.
    WriteConcern, WriteConcernBuilder;
    /// Number of servers that must have the write. There is one, which has it.
    w: Acknowledgment,
    /// Waits until the write is on the disk. `false` leaves it to the setting.
    journal: bool,
}

/// Number of servers that must have a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Acknowledgment {
    /// That many.
    Nodes(u32),
    /// Most of them.
    Majority,
}

impl WriteConcern {
    /// Returns the concern that most of the servers have the write, which this one meets.
    pub fn majority() -> Self {
        Self { w: Some(Acknowledgment::Majority), journal: None }
    }
}

impl From<WriteConcern> for Bson {
    fn from(concern: WriteConcern) -> Self {
        let mut document = Document::new();
        document.extend(concern.journal.map(|journal| ("j".to_owned(), Bson::from(journal))));
        document.extend(concern.w.map(|w| {
            let w = match w {
                Acknowledgment::Nodes(nodes) => Bson::from(i64::from(nodes)),
                Acknowledgment::Majority => Bson::from("majority"),
            };
            ("w".to_owned(), w)
        }));
        document.into()
    }
}

impl From<ChangeStreamPreAndPostImages> for Bson {
    fn from(images: ChangeStreamPreAndPostImages) -> Self {
        doc! { "enabled": images.enabled.unwrap_or(false) }.into()
    }
}

/// An index: its fields and options.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct IndexModel {
    /// Fields with their order: 1, -1 or a kind such as `"hashed"`.
    pub keys: Document,
    /// Options.
    pub options: Option<IndexOptions>,
}

/// Builder of [`IndexModel`].
#[derive(Debug, Clone, Default)]
pub struct IndexModelBuilder(IndexModel);

impl IndexModel {
    /// Returns a builder without fields.
    pub fn builder() -> IndexModelBuilder {
        IndexModelBuilder::default()
    }

    /// Returns the name of the index.
    pub(super) fn name(&self) -> String {
        let given = self.options.as_ref().and_then(|options| options.name.clone());
        given.unwrap_or_else(|| {
            let parts: Vec<String> = self
                .keys
                .iter()
                .map(|(path, order)| match order {
                    Bson::String(kind) => format!("{path}_{kind}"),
                    order => format!("{path}_{order}"),
                })
                .collect();
            parts.join("_")
        })
    }

    /// Returns the index as a command names it.
    pub(super) fn into_document(self) -> Document {
        let name = self.name();
        let mut index = doc! { "key": self.keys, "name": name };
        let Some(options) = self.options else { return index };
        let flags = [("unique", options.unique), ("sparse", options.sparse), ("hidden", options.hidden)];
        for (option, flag) in flags {
            index.extend(flag.map(|flag| (option.to_owned(), Bson::from(flag))));
        }
        if let Some(after) = options.expire_after {
            index.insert("expireAfterSeconds", i64::try_from(after.as_secs()).unwrap_or(i64::MAX));
        }
        let documents = [
            ("partialFilterExpression", options.partial_filter_expression),
            ("wildcardProjection", options.wildcard_projection),
            ("weights", options.weights),
        ];
        for (option, document) in documents {
            index.extend(document.map(|document| (option.to_owned(), Bson::from(document))));
        }
        let texts = [
            ("default_language", options.default_language),
            ("language_override", options.language_override),
        ];
        for (option, text) in texts {
            index.extend(text.map(|text| (option.to_owned(), Bson::from(text))));
        }
        index.extend(options.bits.map(|bits| ("bits".to_owned(), Bson::from(i64::from(bits)))));
        for (option, bound) in [("min", options.min), ("max", options.max)] {
            index.extend(bound.map(|bound| (option.to_owned(), Bson::from(bound))));
        }
        index
    }
}

impl IndexModelBuilder {
    /// Sets the fields with their order.
    #[must_use]
    pub fn keys(mut self, keys: impl Into<Document>) -> Self {
        self.0.keys = keys.into();
        self
    }

    /// Sets the options.
    #[must_use]
    pub fn options(mut self, options: impl Into<Option<IndexOptions>>) -> Self {
        self.0.options = options.into();
        self
    }

    /// Returns the index.
    pub fn build(self) -> IndexModel {
        self.0
    }
}
