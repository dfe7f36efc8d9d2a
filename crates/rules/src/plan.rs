//! Compiled rules: conditions in order of evaluation, sources of documents, and actions.

use std::sync::Arc;

use tidemill_docs::Update;
use tidemill_lang::Span;

use crate::expr::Expr;

/// A rule, ready to run.
#[derive(Debug, Clone)]
pub struct RulePlan {
    /// Name, unique among the rules and aggregates of the app.
    pub name: Arc<str>,
    /// Index of the stream of its first condition.
    pub stream: usize,
    /// Rules with a higher priority run first.
    pub priority: i32,
    /// Span of the whole rule in its source.
    pub span: Span,
    /// Name that the rule binds the event to.
    pub event: Arc<str>,
    /// Conditions on the event alone. They are checked first, wherever they are in the rule.
    pub checks: Vec<Check>,
    /// Document lookups and conditions on documents, in order.
    pub steps: Vec<Step>,
    /// Documents that the rule binds. A document that must not exist also has a slot, used during its lookup.
    pub slots: Vec<DocumentSlot>,
    /// Actions of each firing, that is of each matching combination of documents.
    pub actions: Vec<Action>,
    /// Span of each action in the source, as written.
    pub action_spans: Vec<Span>,
}

/// A document that a rule binds.
#[derive(Debug, Clone)]
pub struct DocumentSlot {
    /// Name in the rule; `None` for a document that must not exist.
    pub name: Option<Arc<str>>,
    /// Index of its entity.
    pub entity: usize,
}

/// A condition that must hold.
#[derive(Debug, Clone)]
pub struct Check {
    /// The condition.
    pub expr: Expr,
    /// Index of the condition in the rule that it is part of.
    pub condition: usize,
}

/// A condition that needs documents.
#[derive(Debug, Clone)]
pub enum Step {
    /// A condition on documents bound so far.
    Filter(Check),
    /// Binds a document, or requires that none exists.
    Lookup(DocumentLookup),
}

/// Lookup of a document: candidates and filters.
#[derive(Debug, Clone)]
pub struct DocumentLookup {
    /// Slot that the document is bound to.
    pub slot: usize,
    /// Source of candidates.
    pub source: DocumentSource,
    /// Conditions that a candidate must satisfy.
    pub filters: Vec<Check>,
    /// True if no such document may exist.
    pub negated: bool,
    /// Index of the condition in the rule.
    pub condition: usize,
    /// Span of the condition in the source.
    pub span: Span,
}

/// Source of the candidate documents of a lookup.
#[derive(Debug, Clone)]
pub enum DocumentSource {
    /// The document whose key has this value.
    Key(Expr),
    /// Documents with this value at a path, through an index if there is one.
    Field(String, Expr),
    /// Documents with these values at these paths, which are the leading fields of an index.
    Fields(Vec<(String, Expr)>),
    /// All documents.
    Scan,
}

impl DocumentSource {
    /// Returns the expressions whose values the lookup needs.
    pub fn values(&self) -> Vec<&Expr> {
        match self {
            Self::Key(value) | Self::Field(_, value) => vec![value],
            Self::Fields(fields) => fields.iter().map(|(_, v)| v).collect(),
            Self::Scan => vec![],
        }
    }
}

/// An action of a rule.
#[derive(Debug, Clone)]
pub enum Action {
    /// Changes fields of a bound document, all in one update.
    Update {
        /// Slot of the document.
        slot: usize,
        /// The changes; no path is inside another.
        changes: Vec<Change>,
        /// The changes as one update, if all values in it are constant.
        precomputed: Option<Arc<Update>>,
    },
    /// Inserts a document.
    Insert {
        /// Index of the entity.
        entity: usize,
        /// Value of its key field.
        key: Expr,
        /// All fields, including the key, in order.
        fields: Vec<(Arc<str>, Expr)>,
        /// True to set the fields if the document exists already.
        upsert: bool,
    },
    /// Deletes a bound document.
    Delete {
        /// Slot of the document.
        slot: usize,
    },
    /// Emits an event.
    Emit {
        /// Index of the stream.
        stream: usize,
        /// A value for each declared field; `None` if the field is left out.
        cells: Vec<Option<Expr>>,
    },
}

/// A change of one field.
#[derive(Debug, Clone)]
pub struct Change {
    /// Dotted path of the field.
    pub path: String,
    /// Kind of change.
    pub op: ChangeOp,
    /// Operand; `None` for [`ChangeOp::Unset`].
    pub value: Option<Expr>,
    /// The field's value before the change, for changes whose result depends on its type.
    pub before: Expr,
}

/// Kinds of changes of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOp {
    /// `=`
    Set,
    /// `+=`
    Add,
    /// `-=`
    Sub,
    /// `*=`
    Mul,
    /// `push`
    Push,
    /// `unset`
    Unset,
}
