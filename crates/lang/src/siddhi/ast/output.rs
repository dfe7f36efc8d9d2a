//! Syntax tree of selections, output rate limits and outputs.

use super::{AttributeRef, Expr, ExprKind, Ident, StreamRef, TimeLiteral};
use crate::source::Span;

/// `select … group by … having … order by … limit … offset …`
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Projected columns.
    pub items: SelectItems,
    /// Grouping attributes; empty without `group by`.
    pub group_by: Vec<AttributeRef>,
    /// Condition on the output rows.
    pub having: Option<Expr>,
    /// Sort order of the output rows; empty without `order by`.
    pub order_by: Vec<OrderItem>,
    /// Maximum number of output rows.
    pub limit: Option<Expr>,
    /// Number of output rows to skip before `limit` applies.
    pub offset: Option<Expr>,
    /// Source range, from `select` to the end.
    pub span: Span,
}

/// Projected columns of a selection.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectItems {
    /// `*`, with its source range.
    All(Span),
    /// `a, b + 1 as c`; at least one in a tree without errors.
    List(Vec<SelectItem>),
}

/// `expr as name`, or an attribute without alias.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectItem {
    /// Projected expression.
    pub expr: Expr,
    /// Column name after `as`; in a tree without errors `None` only if `expr` is an attribute.
    pub alias: Option<Ident>,
    /// Source range of expression and alias.
    pub span: Span,
}

impl SelectItem {
    /// Returns the column name: the alias, otherwise the attribute's name; `None` for other expressions
    /// without alias.
    pub fn name(&self) -> Option<&Ident> {
        match (&self.alias, &self.expr.kind) {
            (Some(alias), _) => Some(alias),
            (None, ExprKind::Attribute(attribute)) => Some(&attribute.name),
            _ => None,
        }
    }
}

/// `attr desc`
#[derive(Debug, Clone, PartialEq)]
pub struct OrderItem {
    /// Attribute to order by.
    pub attribute: AttributeRef,
    /// Sort direction; `None` means ascending.
    pub direction: Option<Direction>,
    /// Source range of attribute and direction.
    pub span: Span,
}

/// Sort direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `asc`
    Ascending,
    /// `desc`
    Descending,
}

impl Direction {
    /// Returns the spelling in source text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }
}

/// `output …`: the output rate limit of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimit {
    /// Events or period that trigger output.
    pub kind: RateKind,
    /// Source range, from `output` to the end.
    pub span: Span,
}

/// Kind of an output rate limit.
#[derive(Debug, Clone, PartialEq)]
pub enum RateKind {
    /// `last every 3 events`
    Events {
        /// Selection among the events; `None` means all.
        which: Option<RateEvents>,
        /// Number of events per batch.
        count: u32,
        /// Source range of the number.
        count_span: Span,
    },
    /// `last every 3 sec`
    Time {
        /// Selection among the events; `None` means all.
        which: Option<RateEvents>,
        /// Period.
        every: TimeLiteral,
    },
    /// `snapshot every 3 sec`
    Snapshot {
        /// Period.
        every: TimeLiteral,
    },
}

/// Selection among the events of a batch or period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateEvents {
    /// `all`
    All,
    /// `first`
    First,
    /// `last`
    Last,
}

impl RateEvents {
    /// Returns the spelling in source text.
    pub fn text(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::First => "first",
            Self::Last => "last",
        }
    }
}

/// `all events`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindClause {
    /// Selected kinds; `events` alone means the current ones.
    pub kind: EventKind,
    /// Source range.
    pub span: Span,
}

/// Kinds of events that a query emits or reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Events that arrived.
    Current,
    /// Events that left a window.
    Expired,
    /// Both current and expired events.
    All,
}

impl EventKind {
    /// Returns the spelling in source text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Current => "current events",
            Self::Expired => "expired events",
            Self::All => "all events",
        }
    }
}

/// `insert into …`, `update …`
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Action on the target.
    pub action: OutputAction,
    /// Kinds of output events that the action applies to; `None` means the current ones.
    pub kind: Option<KindClause>,
    /// Source range of the whole clause.
    pub span: Span,
}

/// Action of a query on its target, for each output event.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputAction {
    /// `insert into S`
    Insert {
        /// Stream, table or window.
        target: StreamRef,
    },
    /// `delete T on …`
    Delete {
        /// Target table.
        table: Ident,
        /// Condition that selects the rows; `None` means all.
        on: Option<Expr>,
    },
    /// `update T set … on …`
    Update {
        /// Target table.
        table: Ident,
        /// Assignments; if empty, each output column is assigned to the table column of the same name.
        set: Vec<Assignment>,
        /// Condition that selects the rows.
        on: Expr,
    },
    /// `update or insert into T set … on …`
    UpdateOrInsert {
        /// Target table.
        table: Ident,
        /// Assignments; if empty, each output column is assigned to the table column of the same name.
        set: Vec<Assignment>,
        /// Condition that selects the rows.
        on: Expr,
    },
    /// `return`: accepted by the grammar, but not executable.
    Return,
}

/// `T.a = expr`
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// Column to set.
    pub column: AttributeRef,
    /// New value.
    pub value: Expr,
    /// Source range of the whole assignment.
    pub span: Span,
}
