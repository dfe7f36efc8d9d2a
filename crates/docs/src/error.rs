//! Errors of document operations, with MongoDB's error codes.

use num_enum::TryFromPrimitive;
use tidemill_types::budget::Stop;
use tidemill_types::{Error, ErrorKind};

use crate::DocBytes;
use crate::values::display::display;
use crate::values::raw::{RawValue, tag};

/// The result of document operations.
pub type Result<T, E = DocsError> = std::result::Result<T, E>;

/// A rejected operation: MongoDB's error code and a message for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DocsError {
    code: ErrorCode,
    message: String,
    details: Option<Box<ErrorDetails>>,
}

/// Details of an error besides its code and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorDetails {
    /// The value that exists already.
    DuplicateKey(DuplicateKey),
    /// Why a document is not valid: MongoDB's `errInfo`.
    Validation(DocBytes),
}

/// A value that exists already under a unique key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateKey {
    /// Name of the collection in the store.
    pub collection: String,
    /// Name of the index.
    pub index: String,
    /// Key pattern of the index, `{ a: 1 }`.
    pub key_pattern: DocBytes,
    /// The value for each field of the index.
    pub key_value: DocBytes,
}

/// MongoDB's error codes that document operations use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(i32)]
pub enum ErrorCode {
    /// A value that an operator cannot process.
    BadValue = 2,
    /// A malformed filter, update, projection or sort.
    FailedToParse = 9,
    /// A value of another type than the operator needs.
    TypeMismatch = 14,
    /// Nested deeper than the limit.
    Overflow = 15,
    /// A variable that an expression does not have.
    UndefinedVariable = 17276,
    /// An operator of expressions that does not exist, or not yet.
    InvalidPipelineOperator = 168,
    /// A conversion that is not possible.
    ConversionFailure = 241,
    /// An object that is neither an expression nor a literal.
    ExpressionFields = 15983,
    /// A wrong number of arguments of an expression.
    ExpressionArity = 16020,
    /// A division with remainder by zero.
    ModuloByZero = 16610,
    /// An expression, or a command, that takes too much time or memory.
    ExpressionWork = 146,
    /// A command that ran for longer than it may.
    MaxTimeExpired = 50,
    /// A command whose client has gone.
    ClientDisconnect = 279,
    /// A command that somebody has ended.
    Interrupted = 11601,
    /// A command that ran when the server was stopped.
    InterruptedAtShutdown = 11600,
    /// Memory that all transactions share is in use; a retry may succeed.
    TemporarilyUnavailable = 365,
    /// A transaction that writes more than one may.
    TransactionTooLarge = 393,
    /// A `$switch` without a branch for a value.
    NoSwitchBranch = 40066,
    /// A time zone that does not exist.
    UnknownTimeZone = 40485,
    /// A format of dates with an unknown specifier.
    BadDateFormat = 18536,
    /// A `$replaceRoot` without a new root.
    NoNewRoot = 40231,
    /// A new root that is not an object.
    NewRootNotObject = 40228,
    /// A `$project` without fields.
    EmptyProject = 51272,
    /// An `$elemMatch` of a projection that is not an object.
    ElemMatchNotObject = 31274,
    /// A positional projection of a document whose arrays the filter did not match.
    NoMatchedElement = 51246,
    /// A `$slice` of no elements.
    SliceCount = 28724,
    /// Bytes that are not BSON.
    InvalidBson = 22,
    /// No such collection.
    NamespaceNotFound = 26,
    /// No such index.
    IndexNotFound = 27,
    /// A path that leads through a value without fields.
    PathNotViable = 28,
    /// Two operators of one update whose paths are equal or one inside the other.
    ConflictingUpdateOperators = 40,
    /// The collection exists already, with another definition.
    NamespaceExists = 48,
    /// An empty field name or path.
    EmptyFieldName = 56,
    /// A field of a replacement is named like an operator.
    DollarPrefixedFieldName = 52,
    /// A change to `_id` or to the shard key.
    ImmutableField = 66,
    /// Something that MongoDB has and this store does not.
    NotSupported = 238,
    /// A field that must be there.
    MissingField = 40414,
    /// A field that does not exist.
    UnknownField = 40415,
    /// A version of collations that is not there.
    IncompatibleCollationVersion = 161,
    /// An option that does not fit.
    InvalidOptions = 72,
    /// A stage of a pipeline that does not have exactly one field.
    NotOneStage = 40323,
    /// An index definition that cannot be used.
    CannotCreateIndex = 67,
    /// An index of that name exists already, with other keys.
    IndexOptionsConflict = 85,
    /// A field name that selects an element of an array and a field of another element.
    AmbiguousIndexPath = 16746,
    /// An array in a field that an index hashes.
    HashedArray = 16766,
    /// An operation that makes no sense, such as renaming a collection to its own name.
    IllegalOperation = 20,
    /// A document that does not match the validator of its collection.
    DocumentValidationFailure = 121,
    /// A write to a view.
    CommandNotSupportedOnView = 166,
    /// Two arrays in one compound index entry.
    CannotIndexParallelArrays = 171,
    /// A sort that needs more memory than allowed.
    SortMemoryExceeded = 292,
    /// The store, or a part of it, has reached its maximum size.
    StoreFull = 14031,
    /// A document larger than allowed.
    DocumentTooLarge = 10334,
    /// Two paths of a projection that are equal or one inside the other.
    PathCollision = 31249,
    /// An inclusion in an exclusion projection.
    InclusionInExclusion = 31253,
    /// An exclusion in an inclusion projection.
    ExclusionInInclusion = 31254,
    /// A document that a transaction writes has been changed by another writer.
    WriteConflict = 112,
    /// A write of a client session that has gone on to a later one.
    TransactionTooOld = 225,
    /// A value that exists already under a unique key.
    DuplicateKey = 11000,
    /// The square root of a negative number.
    NegativeRoot = 28714,
    /// The natural logarithm of a number that is not positive.
    NaturalLogarithm = 28766,
    /// The decimal logarithm of a number that is not positive.
    DecimalLogarithm = 28761,
    /// An operand of a concatenation that is not a string.
    NotConcatenable = 16702,
    /// An operand of `$tsSecond` that is not a timestamp.
    SecondsOfNoTimestamp = 5_687_301,
    /// An operand of `$tsIncrement` that is not a timestamp.
    IncrementOfNoTimestamp = 5_687_302,
    /// A function in JavaScript that does not compile, throws, or exceeds its limits.
    ScriptFailed = 139,
    /// A search of text without an index. Its number is that of [`Self::IndexNotFound`], but it does not mean that what is addressed is not
    /// there.
    TextIndexMissing = -27,
    /// A score where nothing is searched.
    MetaNotAvailable = 40218,
    /// A document under a text index whose language is not a string.
    LanguageNotString = 17261,
    /// A document under a text index in a language that is not known.
    UnknownLanguage = 17262,
    /// A document with more terms than a text index takes.
    TooManyTerms = 16732,
    /// An array in a field before the text of a text index.
    TextPrefixArray = 16675,
    /// A value under a `2dsphere` index that is not a geometry.
    NoGeoKeys = 16755,
    /// A value under a `2d` index that is not a pair of numbers.
    NotLegacyPair = 13026,
    /// A point outside of the bounds of a `2d` index.
    OutsideOfGrid = 13027,
    /// A condition that needs an index which the collection does not have.
    NoQueryExecutionPlans = 291,
    /// A condition that is allowed in queries only.
    QueryFeatureNotAllowed = 224,
    /// A `$near` where documents are not sorted by it.
    NearNotAllowed = 5_626_500,
    /// A damaged checkpoint.
    DataCorruption = 10032,
    /// Reading or writing a checkpoint failed; a retry may succeed.
    Io = 96,
}

impl ErrorCode {
    /// Returns MongoDB's number of the code.
    pub fn number(self) -> i32 {
        match self {
            Self::TextIndexMissing => Self::IndexNotFound as i32,
            other => other as i32,
        }
    }

    /// Returns the error kind, which tells the caller how to react.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::NamespaceNotFound | Self::IndexNotFound => ErrorKind::NotFound,
            Self::DuplicateKey
            | Self::NamespaceExists
            | Self::IndexOptionsConflict
            | Self::WriteConflict
            | Self::TransactionTooOld
            | Self::Interrupted
            | Self::ClientDisconnect
            | Self::TemporarilyUnavailable => ErrorKind::Conflict,
            Self::SortMemoryExceeded
            | Self::StoreFull
            | Self::ExpressionWork
            | Self::MaxTimeExpired
            | Self::TransactionTooLarge
            | Self::DocumentTooLarge => ErrorKind::LimitReached,
            Self::DataCorruption => ErrorKind::Corrupt,
            Self::Io | Self::InterruptedAtShutdown => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        }
    }
}

impl DocsError {
    /// Creates an error.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// Creates the error for a value that exists already.
    pub fn duplicate_key(found: DuplicateKey) -> Self {
        let message = found.message(&found.collection);
        Self {
            code: ErrorCode::DuplicateKey,
            message,
            details: Some(Box::new(ErrorDetails::DuplicateKey(found))),
        }
    }

    /// Creates the error for a document that is not valid, for the reason `info`.
    pub(crate) fn document_validation(info: DocBytes) -> Self {
        Self {
            code: ErrorCode::DocumentValidationFailure,
            message: "Document failed validation".to_owned(),
            details: Some(Box::new(ErrorDetails::Validation(info))),
        }
    }

    /// Returns the error with the reason in its message, too.
    pub(crate) fn because(self, reason: &str) -> Self {
        Self { message: format!("{}: {reason}", self.message), ..self }
    }

    pub(crate) fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadValue, message)
    }

    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::FailedToParse, message)
    }

    pub(crate) fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TypeMismatch, message)
    }

    /// Returns the error with these details.
    pub(crate) fn with_details(self, details: Option<ErrorDetails>) -> Self {
        Self { details: details.map(Box::new), ..self }
    }

    /// Returns MongoDB's error code, for example 11000.
    pub fn code(&self) -> i32 {
        self.code.number()
    }

    /// Returns whether the error is about the work, which has to end, and not about a document that the work has met.
    pub fn ends_work(&self) -> bool {
        matches!(
            self.code,
            ErrorCode::ExpressionWork
                | ErrorCode::SortMemoryExceeded
                | ErrorCode::MaxTimeExpired
                | ErrorCode::ClientDisconnect
                | ErrorCode::Interrupted
                | ErrorCode::InterruptedAtShutdown
        )
    }

    /// Returns the code as an enum, for matching.
    pub fn error_code(&self) -> ErrorCode {
        self.code
    }

    /// Returns the error kind, which tells the caller how to react.
    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    /// Returns the message for the user.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what the error says besides, for callers that pass it on as data.
    pub fn details(&self) -> Option<&ErrorDetails> {
        self.details.as_deref()
    }
}

impl DuplicateKey {
    /// Returns MongoDB's message, with the name that the caller has for the collection.
    pub fn message(&self, collection: &str) -> String {
        format!(
            "E11000 duplicate key error collection: {collection} index: {} dup key: {}",
            self.index,
            display(RawValue { tag: tag::DOCUMENT, bytes: &self.key_value })
        )
    }
}

impl From<Stop> for DocsError {
    fn from(stop: Stop) -> Self {
        let code = match &stop {
            Stop::Time(_) => ErrorCode::MaxTimeExpired,
            Stop::Bytes(_) => ErrorCode::SortMemoryExceeded,
            Stop::Steps(_) | Stop::SharedBytes(..) => ErrorCode::ExpressionWork,
            Stop::Cancelled(_) => ErrorCode::Interrupted,
            Stop::ClientGone => ErrorCode::ClientDisconnect,
            Stop::Stopping => ErrorCode::InterruptedAtShutdown,
        };
        Self::new(code, format!("the operation {stop}"))
    }
}

impl From<DocsError> for Error {
    fn from(e: DocsError) -> Self {
        Error::new(e.kind(), e.message).with_document_code(e.code.number())
    }
}
