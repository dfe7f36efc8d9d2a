//! Syntax tree of the rule language.
//!
//! Every node carries its [`Span`]. The parser goes by syntax alone: it does not know which streams, entities
//! and relations exist. Where a construct has two readings its node documents that, and
//! [`Condition::as_expr`] returns the other one.

use std::fmt;

use tidemill_types::{EpochUnit, FieldType};

pub use crate::operator::BinaryOp;
pub use crate::source::Ident;
use crate::source::Span;

/// A `*.rules` file. The items of all files form an app.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Module {
    /// Declarations and rules, in source order.
    pub items: Vec<Item>,
}

/// A declaration or a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// `event …`
    Event(EventDecl),
    /// `entity …`
    Entity(EntityDecl),
    /// `relation …` outside an event's body.
    Relation(RelationDecl),
    /// `rule … { when … then … }`
    Rule(RuleDecl),
    /// `rule … { aggregate … do … }`
    Aggregate(AggregateDecl),
}

impl Item {
    /// Returns the source range.
    pub fn span(&self) -> Span {
        match self {
            Self::Event(d) => d.span,
            Self::Entity(d) => d.span,
            Self::Relation(d) => d.span,
            Self::Rule(d) => d.span,
            Self::Aggregate(d) => d.span,
        }
    }

    /// Returns the declared name.
    pub fn name(&self) -> &Ident {
        match self {
            Self::Event(d) => &d.name,
            Self::Entity(d) => &d.name,
            Self::Relation(d) => &d.name,
            Self::Rule(d) => &d.name,
            Self::Aggregate(d) => &d.name,
        }
    }
}

/// `a.b.c`: a field of a document, or a nested field. At least one segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// Names between the dots.
    pub segments: Vec<Ident>,
    /// Source range, from the first to the last segment.
    pub span: Span,
}

impl Path {
    /// Returns the path in MongoDB's dot notation.
    pub fn dotted(&self) -> String {
        let names: Vec<&str> = self.segments.iter().map(|s| s.name.as_str()).collect();
        names.join(".")
    }
}

/// `event NAME { field: type, …; relation … } key F id F, … time F;`
#[derive(Debug, Clone, PartialEq)]
pub struct EventDecl {
    /// Name of the stream.
    pub name: Ident,
    /// Declared fields in order; names are unique.
    pub fields: Vec<FieldDecl>,
    /// Field whose value determines the partition.
    pub key: Option<Ident>,
    /// Fields that identify an event; empty if none are declared.
    pub id: Vec<Ident>,
    /// Field that contains the event time.
    pub time: Option<Ident>,
    /// Relations declared in the body. Their `owner` is `None` and means this event.
    pub relations: Vec<RelationDecl>,
    /// Source range, from `event` to the end of the last clause.
    pub span: Span,
}

/// `name: type`
#[derive(Debug, Clone, PartialEq)]
pub struct FieldDecl {
    /// Field name.
    pub name: Ident,
    /// Field type.
    pub ty: TypeName,
    /// Source range of both.
    pub span: Span,
}

/// A type name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeName {
    /// The type; `Object` for an unknown name, which is reported in the diagnostics.
    pub ty: FieldType,
    /// Unit of numeric times since 1970, as in `time(us)`.
    pub unit: Option<EpochUnit>,
    /// Source range.
    pub span: Span,
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Some(unit) => write!(f, "{}({})", self.ty, unit.symbol()),
            None => self.ty.fmt(f),
        }
    }
}

/// `entity NAME key F [shard F] [replicated] [[unique] index …]…;`
#[derive(Debug, Clone, PartialEq)]
pub struct EntityDecl {
    /// Name of the collection.
    pub name: Ident,
    /// Field whose value is the document's `_id`.
    pub key: Ident,
    /// Field whose value determines the partition; `None` means the key.
    pub shard: Option<Ident>,
    /// Source range of `replicated`, if present.
    pub replicated: Option<Span>,
    /// Secondary indexes, in order.
    pub indexes: Vec<IndexDecl>,
    /// Source range, from `entity` to the end of the last clause.
    pub span: Span,
}

/// `[unique] index a` or `[unique] index (a, b.c)`
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDecl {
    /// True if the indexed values must be unique among the documents.
    pub unique: bool,
    /// Indexed fields in order, at least one.
    pub fields: Vec<Path>,
    /// Source range of the whole clause.
    pub span: Span,
}

/// `relation [OWNER.]NAME(): ENTITY by FIELD [on FIELD];`
#[derive(Debug, Clone, PartialEq)]
pub struct RelationDecl {
    /// Event or entity that has the relation; `None` means every event with the field `by`, or the event
    /// whose body contains the declaration.
    pub owner: Option<Ident>,
    /// Relation name.
    pub name: Ident,
    /// Entity of the related documents.
    pub target: Ident,
    /// Field of the owner.
    pub by: Ident,
    /// Field of the target; `None` means its key.
    pub on: Option<Ident>,
    /// Source range, from `relation` to the end of the last clause.
    pub span: Span,
}

/// `rule NAME [priority N] { when { … } then { … } }`
#[derive(Debug, Clone, PartialEq)]
pub struct RuleDecl {
    /// Rule name.
    pub name: Ident,
    /// Priority; rules with a higher one run first. 0 if not written.
    pub priority: i32,
    /// Conditions in order. In a tree without errors, the first and only the first is [`Condition::Event`].
    pub conditions: Vec<Condition>,
    /// Actions in order, at least one in a tree without errors.
    pub actions: Vec<Action>,
    /// Source range, from `rule` to the closing brace.
    pub span: Span,
}

/// `rule NAME [every SPAN] { aggregate { … } [over SPAN] [groupby { … }] do { … } }`
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateDecl {
    /// Rule name.
    pub name: Ident,
    /// Positive interval between runs; `None` runs the rule on demand only.
    pub every: Option<SpanLiteral>,
    /// Positive length of the period before the run from which events are read; `None` means the whole
    /// history.
    pub over: Option<SpanLiteral>,
    /// The source, then further conditions. In a tree without errors, the first is [`Condition::Event`],
    /// whose `stream` may also name an entity here.
    pub conditions: Vec<Condition>,
    /// Grouping expressions; empty puts all events into one group.
    pub group_by: Vec<GroupItem>,
    /// Documents to write for each group, at least one; `upsert` is false in all of them.
    pub inserts: Vec<InsertAction>,
    /// Source range, from `rule` to the closing brace.
    pub span: Span,
}

/// `[name:] expr` in `groupby`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupItem {
    /// Name by which `do` refers to the value.
    pub name: Option<Ident>,
    /// Grouping expression.
    pub expr: Expr,
    /// Source range of name and expression.
    pub span: Span,
}

/// A condition of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// `x: Stream(filters)` as the first condition.
    Event(EventCondition),
    /// `d: x.rel()(filters)`, `not x.rel()(filters)`.
    ///
    /// `not x.name()` has this form if `name` is a relation; otherwise it is the expression returned by
    /// [`Condition::as_expr`].
    Relation(RelationCondition),
    /// `d: Entity(filters)` after the first condition, `not Entity(filters)`.
    ///
    /// `not name(…)` has this form if `name` is an entity; otherwise it is the call returned by
    /// [`Condition::as_expr`].
    Entity(EntityCondition),
    /// `let v = expr`
    Let(LetCondition),
    /// A boolean expression that must be true.
    Expr(Expr),
}

impl Condition {
    /// Returns the source range, without the `;`.
    pub fn span(&self) -> Span {
        match self {
            Self::Event(c) => c.span,
            Self::Relation(c) => c.span,
            Self::Entity(c) => c.span,
            Self::Let(c) => c.span,
            Self::Expr(e) => e.span,
        }
    }

    /// Returns the name that the condition binds.
    pub fn binding(&self) -> Option<&Ident> {
        match self {
            Self::Event(c) => Some(&c.binding),
            Self::Relation(c) => c.binding.as_ref(),
            Self::Entity(c) => c.binding.as_ref(),
            Self::Let(c) => Some(&c.name),
            Self::Expr(_) => None,
        }
    }

    /// Returns the condition as an expression, if it has that reading: `not x.name()` as a negated field,
    /// `not f(…)` as a negated function call, and expressions themselves.
    pub fn as_expr(&self) -> Option<Expr> {
        let (operand, span) = match self {
            Self::Relation(c) if c.negated && c.filters.is_none() => {
                let base = Expr { kind: ExprKind::Name(c.base.clone()), span: c.base.span };
                let kind = ExprKind::MethodCall { base: Box::new(base), method: c.relation.clone() };
                (Expr { kind, span: c.base.span.to(c.span) }, c.span)
            }
            Self::Entity(c) if c.negated => {
                let kind = ExprKind::Call { function: c.entity.clone(), args: c.filters.clone() };
                (Expr { kind, span: c.entity.span.to(c.span) }, c.span)
            }
            Self::Expr(e) => return Some(e.clone()),
            _ => return None,
        };
        Some(Expr { kind: ExprKind::Unary { op: UnaryOp::Not, operand: Box::new(operand) }, span })
    }
}

/// `x: Stream(filters)`
#[derive(Debug, Clone, PartialEq)]
pub struct EventCondition {
    /// Name by which the rest of the rule refers to the event.
    pub binding: Ident,
    /// Stream; in an aggregate possibly an entity.
    pub stream: Ident,
    /// Filters, which must all be true; bare names are fields of the event.
    pub filters: Vec<Expr>,
    /// Source range of the whole condition.
    pub span: Span,
}

/// `d: x.rel()(filters)`, or `not x.rel()(filters)`
#[derive(Debug, Clone, PartialEq)]
pub struct RelationCondition {
    /// Name by which the rest of the rule refers to the document; `None` exactly if `negated`.
    pub binding: Option<Ident>,
    /// True if the condition requires that no such document exists.
    pub negated: bool,
    /// Event or document from which the relation is followed.
    pub base: Ident,
    /// Relation name.
    pub relation: Ident,
    /// Filters, which must all be true; bare names are fields of the document. `None` without the second
    /// parentheses.
    pub filters: Option<Vec<Expr>>,
    /// Source range of the whole condition.
    pub span: Span,
}

/// `d: Entity(filters)`, or `not Entity(filters)`
#[derive(Debug, Clone, PartialEq)]
pub struct EntityCondition {
    /// Name by which the rest of the rule refers to the document; `None` exactly if `negated`.
    pub binding: Option<Ident>,
    /// True if the condition requires that no such document exists.
    pub negated: bool,
    /// Entity name.
    pub entity: Ident,
    /// Filters, which must all be true; bare names are fields of the document.
    pub filters: Vec<Expr>,
    /// Source range of the whole condition.
    pub span: Span,
}

/// `let name = expr`
#[derive(Debug, Clone, PartialEq)]
pub struct LetCondition {
    /// Name by which the rest of the rule refers to the value.
    pub name: Ident,
    /// Expression that computes the value.
    pub expr: Expr,
    /// Source range of the whole condition.
    pub span: Span,
}

/// An action of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `update d.path = expr`, `update d { path = expr, … }`
    Update(UpdateAction),
    /// `unset d.path`
    Unset(UnsetAction),
    /// `insert Entity { … }`, `upsert Entity { … }`
    Insert(InsertAction),
    /// `delete d`
    Delete(DeleteAction),
    /// `emit [new] Stream(…)`, `emit [new] Stream { … }`
    Emit(EmitAction),
}

impl Action {
    /// Returns the source range, without the `;`.
    pub fn span(&self) -> Span {
        match self {
            Self::Update(a) => a.span,
            Self::Unset(a) => a.span,
            Self::Insert(a) => a.span,
            Self::Delete(a) => a.span,
            Self::Emit(a) => a.span,
        }
    }
}

/// `update d.path = expr`, `update d { path = expr, … }`
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateAction {
    /// Document, by its name in the conditions.
    pub target: Ident,
    /// Assignments in order, at least one.
    pub assignments: Vec<Assign>,
    /// True if the source uses braces.
    pub block: bool,
    /// Source range of the whole action.
    pub span: Span,
}

/// `path = expr`
#[derive(Debug, Clone, PartialEq)]
pub struct Assign {
    /// Field to change.
    pub path: Path,
    /// Kind of change.
    pub op: AssignOp,
    /// New value or operand.
    pub value: Expr,
    /// Source range of the whole assignment.
    pub span: Span,
}

/// Kind of change that an assignment makes to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AssignOp {
    /// `=`
    Set,
    /// `+=`
    Add,
    /// `-=`
    Sub,
    /// `*=`
    Mul,
    /// `push`: appends to an array.
    Push,
}

impl AssignOp {
    /// Returns the spelling in source text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Set => "=",
            Self::Add => "+=",
            Self::Sub => "-=",
            Self::Mul => "*=",
            Self::Push => "push",
        }
    }
}

/// `unset d.path`
#[derive(Debug, Clone, PartialEq)]
pub struct UnsetAction {
    /// Document, by its name in the conditions.
    pub target: Ident,
    /// Field to remove.
    pub path: Path,
    /// Source range of the whole action.
    pub span: Span,
}

/// `insert Entity { field: expr, … }`, `upsert Entity { … }`
#[derive(Debug, Clone, PartialEq)]
pub struct InsertAction {
    /// Entity of the document.
    pub entity: Ident,
    /// Top-level fields in order; names are unique.
    pub fields: Vec<ObjectField>,
    /// `upsert`: if the document exists, sets these fields of it.
    pub upsert: bool,
    /// Source range of the whole action.
    pub span: Span,
}

/// `name: expr`
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectField {
    /// Field name. It may be written in quotes, so it can be any string, including the empty one.
    pub name: Ident,
    /// Field value.
    pub value: Expr,
    /// Source range of name and value.
    pub span: Span,
}

/// `delete d`
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteAction {
    /// Document, by its name in the conditions.
    pub target: Ident,
    /// Source range of the whole action.
    pub span: Span,
}

/// `emit [new] Stream(…)`, `emit [new] Stream { … }`
#[derive(Debug, Clone, PartialEq)]
pub struct EmitAction {
    /// Stream name.
    pub stream: Ident,
    /// Fields of the event.
    pub args: EmitArgs,
    /// Source range of the whole action.
    pub span: Span,
}

/// Fields of an emitted event.
#[derive(Debug, Clone, PartialEq)]
pub enum EmitArgs {
    /// `(a, b)`: values in the order in which the stream declares its fields.
    Positional(Vec<Expr>),
    /// `{ x: a, y: b }`; names are unique.
    Named(Vec<ObjectField>),
}

/// An expression.
///
/// No tree is deeper than [`super::EXPR_DEPTH_MAX`], so recursive traversal is safe.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Kind of the expression, with its operands.
    pub kind: ExprKind,
    /// Source range, including enclosing parentheses.
    pub span: Span,
}

/// Kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A constant other than a time span.
    Literal(Literal),
    /// `20 min`
    Span(SpanLiteral),
    /// `now`: the time of the event.
    Now,
    /// A bare name: a binding, or a field of the filtered event or document.
    Name(Ident),
    /// `base.field`
    Field {
        /// Value that has the field.
        base: Box<Expr>,
        /// Field name.
        field: Ident,
    },
    /// `base.method()`: a field, equivalent to `base.method`.
    MethodCall {
        /// Value that has the field.
        base: Box<Expr>,
        /// Field name.
        method: Ident,
    },
    /// `function(args)`
    Call {
        /// Function or aggregate function.
        function: Ident,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// `not x`, `-x`
    Unary {
        /// Operator.
        op: UnaryOp,
        /// Operand.
        operand: Box<Expr>,
    },
    /// `left op right`
    Binary {
        /// Operator.
        op: BinaryOp,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// `value in list`; `value not in list` is its negation with [`UnaryOp::Not`].
    In {
        /// Value to search for.
        value: Box<Expr>,
        /// Array to search: a literal, or an expression that evaluates to an array.
        list: Box<Expr>,
    },
    /// `{ a: 1 }`; names are unique.
    Object(Vec<ObjectField>),
    /// `[1, 2]`
    Array(Vec<Expr>),
}

/// A constant.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number with a fraction or exponent; always finite.
    Float(f64),
    /// A string.
    Str(String),
}

/// A time span: `20 min`, `1 hour 30 min`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanLiteral {
    /// Length in microseconds, never negative.
    pub micros: i64,
    /// Source text with single spaces between numbers and units.
    pub text: String,
    /// Source range.
    pub span: Span,
}

/// A unary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `not`
    Not,
    /// `-`
    Neg,
}
