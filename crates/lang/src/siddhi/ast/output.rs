//! Selections and outputs of queries.

use super::{AttributeRef, Expr, ExprKind, Ident, StreamRef, TimeLiteral};
use crate::source::Span;

/// `select … group by … having … order by … limit … offset …`
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// The columns.
    pub items: SelectItems,
    /// What makes a group.
    pub group_by: Vec<AttributeRef>,
    /// What an output must satisfy.
    pub having: Option<Expr>,
    /// In which order outputs come.
    pub order_by: Vec<OrderItem>,
    /// How many outputs at most.
    pub limit: Option<Expr>,
    /// How many outputs are left out first.
    pub offset: Option<Expr>,
    /// Source range, from `select` to the end.
    pub span: Span,
}

/// The columns of a selection.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectItems {
    /// `*`, with its place.
    All(Span),
    /// `a, b + 1 as c`; at least one in a tree without errors.
    List(Vec<SelectItem>),
}

/// `expr as name`, or an attribute alone.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectItem {
    /// The value.
    pub expr: Expr,
    /// The column's name; in a tree without errors absent only where `expr` is an attribute.
    pub alias: Option<Ident>,
    /// Source range of both.
    pub span: Span,
}

impl SelectItem {
    /// The column's name: the alias, else the attribute's name.
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
    /// The attribute.
    pub attribute: AttributeRef,
    /// Ascending when absent.
    pub direction: Option<Direction>,
    /// Source range of both.
    pub span: Span,
}

/// Which way values are ordered.
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

/// `output …`
#[derive(Debug, Clone, PartialEq)]
pub struct RateLimit {
    /// When output goes out.
    pub kind: RateKind,
    /// Source range, from `output` to the end.
    pub span: Span,
}

/// When output goes out.
#[derive(Debug, Clone, PartialEq)]
pub enum RateKind {
    /// `last every 3 events`
    Events {
        /// Which of the events; all when absent.
        which: Option<RateEvents>,
        /// How many make a round.
        count: u32,
        /// Where the number stands.
        count_span: Span,
    },
    /// `last every 3 sec`
    Time {
        /// Which of the events; all when absent.
        which: Option<RateEvents>,
        /// How long a round lasts.
        every: TimeLiteral,
    },
    /// `snapshot every 3 sec`
    Snapshot {
        /// How long a round lasts.
        every: TimeLiteral,
    },
}

/// Which of a round's events go out.
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
    /// Which events; `events` alone means the current ones.
    pub kind: EventKind,
    /// Source range.
    pub span: Span,
}

/// Which events of a query are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// Those that arrived.
    Current,
    /// Those that left a window.
    Expired,
    /// Both.
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
    /// What is done.
    pub action: OutputAction,
    /// Which events do it; the current ones when absent.
    pub kind: Option<KindClause>,
    /// Source range of the whole clause.
    pub span: Span,
}

/// What is done with a query's output.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputAction {
    /// `insert into S`
    Insert {
        /// The stream, table or window.
        target: StreamRef,
    },
    /// `delete T on …`
    Delete {
        /// The table.
        table: Ident,
        /// Which rows; all when absent.
        on: Option<Expr>,
    },
    /// `update T set … on …`
    Update {
        /// The table.
        table: Ident,
        /// What changes; columns of the output's names when empty.
        set: Vec<Assignment>,
        /// Which rows.
        on: Expr,
    },
    /// `update or insert into T set … on …`
    UpdateOrInsert {
        /// The table.
        table: Ident,
        /// What changes; columns of the output's names when empty.
        set: Vec<Assignment>,
        /// Which rows.
        on: Expr,
    },
    /// `return`: known to the grammar, not to be run.
    Return,
}

/// `T.a = expr`
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// The column.
    pub column: AttributeRef,
    /// Its new value.
    pub value: Expr,
    /// Source range of the whole assignment.
    pub span: Span,
}
