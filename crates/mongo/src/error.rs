//! Errors of commands, as drivers expect them.

use bson::cstr;
use bson::raw::{RawDocument, RawDocumentBuf};
use tidemill_docs::{DocsError, ErrorDetails};
use tidemill_types::budget::Stop;
use tidemill_types::{Error, ErrorKind};

use crate::namespace::namespace_of;

/// Result of a command.
pub(crate) type Result<T, E = CommandError> = std::result::Result<T, E>;

/// An error reply: MongoDB's code and a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandError {
    pub code: i32,
    pub message: String,
}

impl CommandError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code as i32, message: message.into() }
    }

    /// Creates the error for a field whose value has the wrong type.
    pub fn wrong_type(command: &str, field: &str, found: &str, expected: &str) -> Self {
        let message = format!("`{command}.{field}` is {found}: expected {expected}");
        Self::new(Code::TypeMismatch, message)
    }

    /// Creates the error for something that MongoDB has and this server does not have yet.
    pub fn not_supported(what: impl std::fmt::Display) -> Self {
        Self::new(Code::NotImplemented, format!("{what} is not supported yet"))
    }

    /// Returns the reply `{ok: 0, errmsg, code, codeName}`.
    pub fn reply(&self) -> RawDocumentBuf {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("ok"), 0.0);
        reply.append(cstr!("errmsg"), self.message.as_str());
        reply.append(cstr!("code"), self.code);
        reply.append(cstr!("codeName"), code_name(self.code));
        reply
    }
}

impl From<Stop> for CommandError {
    fn from(stop: Stop) -> Self {
        DocsError::from(stop).into()
    }
}

impl From<DocsError> for CommandError {
    fn from(error: DocsError) -> Self {
        let message = match error.details() {
            Some(ErrorDetails::DuplicateKey(found)) => found.message(&namespace_of(&found.collection)),
            _ => error.message().to_owned(),
        };
        Self { code: error.code(), message }
    }
}

/// An error with the fields that tell clients more about it: of a statement of a write, or of a command that writes.
#[derive(Debug, Clone)]
pub(crate) struct WriteError {
    pub error: CommandError,
    /// Fields that stand beside code and message.
    pub details: RawDocumentBuf,
}

impl WriteError {
    /// Returns the reply as [`CommandError::reply`] does, with the details.
    pub fn reply(&self) -> Result<RawDocumentBuf> {
        let mut reply = self.error.reply();
        for element in &self.details {
            let (name, value) = element?;
            reply.append(name, value);
        }
        Ok(reply)
    }
}

impl From<CommandError> for WriteError {
    fn from(error: CommandError) -> Self {
        Self { error, details: RawDocumentBuf::new() }
    }
}

impl From<DocsError> for WriteError {
    fn from(error: DocsError) -> Self {
        let mut details = RawDocumentBuf::new();
        match error.details() {
            Some(ErrorDetails::DuplicateKey(found)) => {
                let fields =
                    [(cstr!("keyPattern"), &found.key_pattern), (cstr!("keyValue"), &found.key_value)];
                for (name, bytes) in fields {
                    if let Ok(document) = RawDocument::from_bytes(bytes) {
                        details.append(name, document);
                    }
                }
            }
            Some(ErrorDetails::Validation(info)) => {
                if let Ok(info) = RawDocument::from_bytes(info) {
                    details.append(cstr!("errInfo"), info);
                }
            }
            None => {}
        }
        Self { error: error.into(), details }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        if let Some(stop) = Stop::of(&error) {
            return stop.clone().into();
        }
        let code = error.document_code().unwrap_or(match error.kind() {
            ErrorKind::Invalid => Code::BadValue as i32,
            ErrorKind::NotFound => Code::NamespaceNotFound as i32,
            ErrorKind::Conflict => Code::WriteConflict as i32,
            ErrorKind::LimitReached => Code::ExceededMemoryLimit as i32,
            ErrorKind::Unavailable => Code::HostUnreachable as i32,
            ErrorKind::Forbidden => Code::Unauthorized as i32,
            ErrorKind::Corrupt | ErrorKind::Internal => Code::InternalError as i32,
        });
        Self { code, message: error.to_string() }
    }
}

impl From<bson::error::Error> for CommandError {
    fn from(error: bson::error::Error) -> Self {
        Self::new(Code::InvalidBson, error.to_string())
    }
}

macro_rules! codes {
    ($($name:ident = $code:literal,)*) => {
        /// MongoDB's codes that this crate uses itself; those of document operations are in `tidemill_docs`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $($name = $code,)*
        }

        const NAMES: &[(i32, &str)] = &[$(($code, stringify!($name)),)*];
    };
}

codes! {
    InternalError = 1,
    BadValue = 2,
    HostUnreachable = 6,
    FailedToParse = 9,
    Unauthorized = 13,
    TypeMismatch = 14,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    InvalidBson = 22,
    NamespaceNotFound = 26,
    IllegalOperation = 20,
    IndexNotFound = 27,
    CursorNotFound = 43,
    MaxTimeMSExpired = 50,
    NamespaceExists = 48,
    CommandNotFound = 59,
    CannotCreateIndex = 67,
    IndexOptionsConflict = 85,
    IndexKeySpecsConflict = 86,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    WriteConflict = 112,
    CappedPositionLost = 136,
    ExceededMemoryLimit = 146,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidIndexSpecificationOption = 197,
    NotImplemented = 238,
    APIVersionError = 322,
    APIStrictError = 323,
    SnapshotTooOld = 239,
    NoSuchTransaction = 251,
    UnrecognizedStage = 40324,
    MissingField = 40414,
    ReplyTooLarge = 13548,
}

/// Names of codes that document operations use in addition.
const DOCUMENT_NAMES: &[(i32, &str)] = &[
    (7, "HostNotFound"),
    (11, "UserNotFound"),
    (15, "Overflow"),
    (28, "PathNotViable"),
    (40, "ConflictingUpdateOperators"),
    (52, "DollarPrefixedFieldName"),
    (56, "EmptyFieldName"),
    (66, "ImmutableField"),
    (63, "StaleShardVersion"),
    (64, "WriteConcernTimeout"),
    (76, "NoReplicationEnabled"),
    (79, "UnknownReplWriteConcern"),
    (89, "NetworkTimeout"),
    (91, "ShutdownInProgress"),
    (96, "OperationFailed"),
    (100, "UnsatisfiableWriteConcern"),
    (117, "ConflictingOperationInProgress"),
    (121, "DocumentValidationFailure"),
    (161, "IncompatibleCollationVersion"),
    (133, "FailedToSatisfyReadPreference"),
    (134, "ReadConcernMajorityNotAvailableYet"),
    (150, "StaleEpoch"),
    (165, "ViewDepthLimitExceeded"),
    (171, "CannotIndexParallelArrays"),
    (189, "PrimarySteppedDown"),
    (206, "NoSuchFailPoint"),
    (224, "QueryFeatureNotAllowed"),
    (225, "TransactionTooOld"),
    (234, "RetryChangeStream"),
    (246, "SnapshotUnavailable"),
    (256, "TransactionCommitted"),
    (260, "InvalidResumeToken"),
    (261, "TooManyLogicalSessions"),
    (262, "ExceededTimeLimit"),
    (263, "OperationNotSupportedInTransaction"),
    (279, "ClientDisconnect"),
    (280, "ChangeStreamFatalError"),
    (286, "ChangeStreamHistoryLost"),
    (291, "NoQueryExecutionPlans"),
    (292, "QueryExceededMemoryLimitNoDiskUseAllowed"),
    (365, "TemporarilyUnavailable"),
    (391, "ReauthenticationRequired"),
    (393, "TransactionTooLargeForCache"),
    (462, "IngressRequestRateLimitExceeded"),
    (9001, "SocketException"),
    (10107, "NotWritablePrimary"),
    (10334, "BSONObjectTooLarge"),
    (11000, "DuplicateKey"),
    (11600, "InterruptedAtShutdown"),
    (11601, "Interrupted"),
    (11602, "InterruptedDueToReplStateChange"),
    (13388, "StaleConfig"),
    (13435, "NotPrimaryNoSecondaryOk"),
    (13436, "NotPrimaryOrSecondary"),
];

/// Returns MongoDB's name of a code.
pub(crate) fn code_name(code: i32) -> String {
    let names = NAMES.iter().chain(DOCUMENT_NAMES);
    let name = names.into_iter().find(|(known, _)| *known == code).map(|(_, name)| *name);
    match (name, Code::InvalidBson as i32) {
        (Some(_), invalid) if invalid == code => "InvalidBSON".to_owned(),
        (Some(name), _) => name.to_owned(),
        (None, _) => format!("Location{code}"),
    }
}
