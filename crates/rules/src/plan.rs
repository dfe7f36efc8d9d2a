//! Compiled rules: what is checked in which order, where documents come from, what is done.

use std::sync::Arc;

use tidemill_docs::Update;
use tidemill_lang::Span;

use crate::expr::Expr;

/// A rule, ready to run.
#[derive(Debug, Clone)]
pub struct RulePlan {
    /// Its name.
    pub name: Arc<str>,
    /// The stream of its first condition.
    pub stream: usize,
    /// Higher runs first.
    pub priority: i32,
    /// The whole rule in its source.
    pub span: Span,
    /// The name of the event.
    pub event: Arc<str>,
    /// What must hold of the event alone. It is checked first, wherever it stands in the rule.
    pub checks: Vec<Check>,
    /// Documents to find and what must hold of them, in order.
    pub steps: Vec<Step>,
    /// The documents that the rule binds. A document that must not be there has a slot, too, while it is looked for.
    pub slots: Vec<DocumentSlot>,
    /// What is done for each combination of documents.
    pub actions: Vec<Action>,
    /// The actions as they are written.
    pub action_spans: Vec<Span>,
}

/// A document of a rule.
#[derive(Debug, Clone)]
pub struct DocumentSlot {
    /// Its name; `None` for one that must not be there.
    pub name: Option<Arc<str>>,
    /// Its entity.
    pub entity: usize,
}

/// An expression that must hold.
#[derive(Debug, Clone)]
pub struct Check {
    /// What must hold.
    pub expr: Expr,
    /// The condition of the rule it comes from, counted from 0.
    pub condition: usize,
}

/// A condition that needs documents.
#[derive(Debug, Clone)]
pub enum Step {
    /// Something holds.
    Filter(Check),
    /// There is such a document, or there is none.
    Lookup(Lookup),
}

/// Where documents are looked for and which of them count.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Where the document goes.
    pub slot: usize,
    /// How candidates are found.
    pub source: DocumentSource,
    /// What must hold of a candidate.
    pub filters: Vec<Check>,
    /// There must be none.
    pub negated: bool,
    /// The condition of the rule, counted from 0.
    pub condition: usize,
    /// Its place.
    pub span: Span,
}

/// How candidates are found.
#[derive(Debug, Clone)]
pub enum DocumentSource {
    /// The document whose key has this value.
    Key(Expr),
    /// Documents with this value at a path, through an index where there is one.
    Field(String, Expr),
    /// Documents with these values at these paths, which are the beginning of an index.
    Fields(Vec<(String, Expr)>),
    /// All documents.
    Scan,
}

impl DocumentSource {
    /// The values that it needs.
    pub fn values(&self) -> Vec<&Expr> {
        match self {
            Self::Key(value) | Self::Field(_, value) => vec![value],
            Self::Fields(fields) => fields.iter().map(|(_, v)| v).collect(),
            Self::Scan => vec![],
        }
    }
}

/// What a rule does.
#[derive(Debug, Clone)]
pub enum Action {
    /// Changes fields of a bound document, all at once.
    Update {
        /// The document.
        slot: usize,
        /// The changes; no path is inside another.
        changes: Vec<Change>,
        /// The same as one update, where nothing in it has to be computed.
        precomputed: Option<Arc<Update>>,
    },
    /// Makes a document.
    Insert {
        /// The entity.
        entity: usize,
        /// The value of its key field.
        key: Expr,
        /// All fields, the key included, in order.
        fields: Vec<(Arc<str>, Expr)>,
        /// Set the fields where the document is there already.
        upsert: bool,
    },
    /// Removes a bound document.
    Delete {
        /// The document.
        slot: usize,
    },
    /// Makes an event.
    Emit {
        /// The stream.
        stream: usize,
        /// A value for each declared field; `None` leaves it out.
        cells: Vec<Option<Expr>>,
    },
}

/// A change to one field.
#[derive(Debug, Clone)]
pub struct Change {
    /// The field.
    pub path: String,
    /// What happens to it.
    pub op: ChangeOp,
    /// The operand; none for [`ChangeOp::Unset`].
    pub value: Option<Expr>,
    /// The value of the field before, for changes that depend on its type.
    pub before: Expr,
}

/// What happens to a field.
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
