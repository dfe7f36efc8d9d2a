//! The syntax tree of the rule language.
//!
//! Every node carries its [`Span`]. The parser decides by form alone: it does not know which streams, entities
//! and relations exist. Where a form has two readings the node says so, and [`Condition::as_expr`] gives the other.

use std::fmt;

use tidemill_types::{EpochUnit, FieldType};

pub use crate::operator::BinaryOp;
pub use crate::source::Ident;
use crate::source::Span;

/// One `*.rules` file. An app is the items of all its files together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Module {
    /// Declarations and rules in the order of the text.
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

    /// The name it declares.
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

/// `a.b.c`: a field of a document, or a field inside it. At least one segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    /// The names between the dots.
    pub segments: Vec<Ident>,
    /// Source range, from the first to the last segment.
    pub span: Span,
}

impl Path {
    /// The path with dots, as MongoDB writes it.
    pub fn dotted(&self) -> String {
        let names: Vec<&str> = self.segments.iter().map(|s| s.name.as_str()).collect();
        names.join(".")
    }
}

/// `event NAME { field: type, …; relation … } key F id F, … time F;`
#[derive(Debug, Clone, PartialEq)]
pub struct EventDecl {
    /// The stream.
    pub name: Ident,
    /// Declared fields in order; no name occurs twice.
    pub fields: Vec<FieldDecl>,
    /// The field that picks the partition.
    pub key: Option<Ident>,
    /// The fields that make an event unique; empty when none were declared.
    pub id: Vec<Ident>,
    /// The field that holds the event time.
    pub time: Option<Ident>,
    /// Relations declared in the body. Their `owner` is `None` and means this event.
    pub relations: Vec<RelationDecl>,
    /// Source range, from `event` to the end of the last clause.
    pub span: Span,
}

/// `name: type`
#[derive(Debug, Clone, PartialEq)]
pub struct FieldDecl {
    /// The field.
    pub name: Ident,
    /// Its type.
    pub ty: TypeName,
    /// Source range of both.
    pub span: Span,
}

/// The name of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeName {
    /// The type. An unknown name is an error in the diagnostics and `Object` here.
    pub ty: FieldType,
    /// What numbers count since 1970: `time(us)`.
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
    /// The collection.
    pub name: Ident,
    /// The field whose value is the document's `_id`.
    pub key: Ident,
    /// The field that picks the partition; the key when absent.
    pub shard: Option<Ident>,
    /// Where `replicated` stands, if it does.
    pub replicated: Option<Span>,
    /// Secondary indexes in order.
    pub indexes: Vec<IndexDecl>,
    /// Source range, from `entity` to the end of the last clause.
    pub span: Span,
}

/// `[unique] index a` or `[unique] index (a, b.c)`
#[derive(Debug, Clone, PartialEq)]
pub struct IndexDecl {
    /// Whether two documents must not have the same values.
    pub unique: bool,
    /// Indexed fields in order, at least one.
    pub fields: Vec<Path>,
    /// Source range of the whole clause.
    pub span: Span,
}

/// `relation [OWNER.]NAME(): ENTITY by FIELD [on FIELD];`
#[derive(Debug, Clone, PartialEq)]
pub struct RelationDecl {
    /// The event or entity that has it; `None`: every event that has the field `by`, or the event in whose body
    /// it stands.
    pub owner: Option<Ident>,
    /// The relation.
    pub name: Ident,
    /// The entity it leads to.
    pub target: Ident,
    /// The owner's field.
    pub by: Ident,
    /// The target's field; its key when absent.
    pub on: Option<Ident>,
    /// Source range, from `relation` to the end of the last clause.
    pub span: Span,
}

/// `rule NAME [priority N] { when { … } then { … } }`
#[derive(Debug, Clone, PartialEq)]
pub struct RuleDecl {
    /// The rule.
    pub name: Ident,
    /// Higher runs first; 0 when not written.
    pub priority: i32,
    /// Conditions in order. In a tree without errors the first is [`Condition::Event`], no other is.
    pub conditions: Vec<Condition>,
    /// Actions in order, at least one in a tree without errors.
    pub actions: Vec<Action>,
    /// Source range, from `rule` to the closing brace.
    pub span: Span,
}

/// `rule NAME [every SPAN] { aggregate { … } [over SPAN] [groupby { … }] do { … } }`
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateDecl {
    /// The rule.
    pub name: Ident,
    /// How often it runs; only on demand when absent. Positive.
    pub every: Option<SpanLiteral>,
    /// How far back its stream is read; the whole history when absent. Positive.
    pub over: Option<SpanLiteral>,
    /// The source, then further conditions. In a tree without errors the first is [`Condition::Event`], whose
    /// `stream` may here name an entity too.
    pub conditions: Vec<Condition>,
    /// What makes a group; everything is one group when empty.
    pub group_by: Vec<GroupItem>,
    /// The documents made of each group, at least one; `upsert` is false in all of them.
    pub inserts: Vec<InsertAction>,
    /// Source range, from `rule` to the closing brace.
    pub span: Span,
}

/// `[name:] expr` in `groupby`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupItem {
    /// The name by which `do` may use the value.
    pub name: Option<Ident>,
    /// The value.
    pub expr: Expr,
    /// Source range of both.
    pub span: Span,
}

/// A condition of a rule.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// `x: Stream(filters)` as the first condition.
    Event(EventCondition),
    /// `d: x.rel()(filters)`, `not x.rel()(filters)`.
    ///
    /// `not x.name()` is this when a relation has the name; else it is the expression that
    /// [`Condition::as_expr`] gives.
    Relation(RelationCondition),
    /// `d: Entity(filters)` after the first condition, `not Entity(filters)`.
    ///
    /// `not name(…)` is this when an entity has the name; else it is the call that [`Condition::as_expr`] gives.
    Entity(EntityCondition),
    /// `let v = expr`
    Let(LetCondition),
    /// An expression that must hold.
    Expr(Expr),
}

impl Condition {
    /// Where it stands, without the `;`.
    pub fn span(&self) -> Span {
        match self {
            Self::Event(c) => c.span,
            Self::Relation(c) => c.span,
            Self::Entity(c) => c.span,
            Self::Let(c) => c.span,
            Self::Expr(e) => e.span,
        }
    }

    /// The name it binds.
    pub fn binding(&self) -> Option<&Ident> {
        match self {
            Self::Event(c) => Some(&c.binding),
            Self::Relation(c) => c.binding.as_ref(),
            Self::Entity(c) => c.binding.as_ref(),
            Self::Let(c) => Some(&c.name),
            Self::Expr(_) => None,
        }
    }

    /// The reading as an expression, where the form has one: `not x.name()` as the negated field, `not f(…)` as
    /// the negated function call, and expressions themselves.
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
    /// The event's name in the rest of the rule.
    pub binding: Ident,
    /// The stream; in an aggregate perhaps an entity.
    pub stream: Ident,
    /// All must hold; bare names are fields of the event.
    pub filters: Vec<Expr>,
    /// Source range of the whole condition.
    pub span: Span,
}

/// `d: x.rel()(filters)`, or `not x.rel()(filters)`
#[derive(Debug, Clone, PartialEq)]
pub struct RelationCondition {
    /// The document's name in the rest of the rule; `None` exactly when `negated`.
    pub binding: Option<Ident>,
    /// There must be no such document.
    pub negated: bool,
    /// The event or document where the relation starts.
    pub base: Ident,
    /// The relation.
    pub relation: Ident,
    /// All must hold; bare names are fields of the document. `None` without the second parentheses.
    pub filters: Option<Vec<Expr>>,
    /// Source range of the whole condition.
    pub span: Span,
}

/// `d: Entity(filters)`, or `not Entity(filters)`
#[derive(Debug, Clone, PartialEq)]
pub struct EntityCondition {
    /// The document's name in the rest of the rule; `None` exactly when `negated`.
    pub binding: Option<Ident>,
    /// There must be no such document.
    pub negated: bool,
    /// The entity.
    pub entity: Ident,
    /// All must hold; bare names are fields of the document.
    pub filters: Vec<Expr>,
    /// Source range of the whole condition.
    pub span: Span,
}

/// `let name = expr`
#[derive(Debug, Clone, PartialEq)]
pub struct LetCondition {
    /// The name of the value in the rest of the rule.
    pub name: Ident,
    /// The value.
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
    /// Where it stands, without the `;`.
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
    /// The document, by its name in the conditions.
    pub target: Ident,
    /// What changes, in order, at least one.
    pub assignments: Vec<Assign>,
    /// Whether it was written with braces.
    pub block: bool,
    /// Source range of the whole action.
    pub span: Span,
}

/// `path = expr`
#[derive(Debug, Clone, PartialEq)]
pub struct Assign {
    /// The field.
    pub path: Path,
    /// What happens to it.
    pub op: AssignOp,
    /// The new value or operand.
    pub value: Expr,
    /// Source range of the whole assignment.
    pub span: Span,
}

/// How an assignment changes a field.
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
    /// `push`: append to an array.
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
    /// The document, by its name in the conditions.
    pub target: Ident,
    /// The field to remove.
    pub path: Path,
    /// Source range of the whole action.
    pub span: Span,
}

/// `insert Entity { field: expr, … }`, `upsert Entity { … }`
#[derive(Debug, Clone, PartialEq)]
pub struct InsertAction {
    /// The entity.
    pub entity: Ident,
    /// Top-level fields in order; no name occurs twice.
    pub fields: Vec<ObjectField>,
    /// `upsert`: set these fields where the document is there already.
    pub upsert: bool,
    /// Source range of the whole action.
    pub span: Span,
}

/// `name: expr`
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectField {
    /// The field. Quotes are allowed, so any text may be here, the empty one too.
    pub name: Ident,
    /// Its value.
    pub value: Expr,
    /// Source range of both.
    pub span: Span,
}

/// `delete d`
#[derive(Debug, Clone, PartialEq)]
pub struct DeleteAction {
    /// The document, by its name in the conditions.
    pub target: Ident,
    /// Source range of the whole action.
    pub span: Span,
}

/// `emit [new] Stream(…)`, `emit [new] Stream { … }`
#[derive(Debug, Clone, PartialEq)]
pub struct EmitAction {
    /// The stream.
    pub stream: Ident,
    /// The fields of the event.
    pub args: EmitArgs,
    /// Source range of the whole action.
    pub span: Span,
}

/// The fields of an emitted event.
#[derive(Debug, Clone, PartialEq)]
pub enum EmitArgs {
    /// `(a, b)`: in the order in which the stream declares its fields.
    Positional(Vec<Expr>),
    /// `{ x: a, y: b }`; no name occurs twice.
    Named(Vec<ObjectField>),
}

/// An expression.
///
/// No tree is deeper than [`super::EXPR_DEPTH_MAX`], so walking it by recursion is safe.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Source range, including enclosing parentheses.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A constant that is not a span of time.
    Literal(Literal),
    /// `20 min`
    Span(SpanLiteral),
    /// `now`: the event's time.
    Now,
    /// A bare name: a binding, or a field of what is being filtered.
    Name(Ident),
    /// `base.field`
    Field {
        /// What has the field.
        base: Box<Expr>,
        /// The field.
        field: Ident,
    },
    /// `base.method()`: a field, the same as without parentheses.
    MethodCall {
        /// What has the field.
        base: Box<Expr>,
        /// The field.
        method: Ident,
    },
    /// `function(args)`
    Call {
        /// The function or aggregate.
        function: Ident,
        /// Its arguments.
        args: Vec<Expr>,
    },
    /// `not x`, `-x`
    Unary {
        /// The operator.
        op: UnaryOp,
        /// What it is applied to.
        operand: Box<Expr>,
    },
    /// `left op right`
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Left of it.
        left: Box<Expr>,
        /// Right of it.
        right: Box<Expr>,
    },
    /// `value in list`; `value not in list` is `not` of it.
    In {
        /// What is looked for.
        value: Box<Expr>,
        /// Where: an array written out, or an expression that gives one.
        list: Box<Expr>,
    },
    /// `{ a: 1 }`; no name occurs twice.
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
    /// A whole number.
    Int(i64),
    /// A number with a fraction or exponent; always finite.
    Float(f64),
    /// Text.
    Str(String),
}

/// A span of time: `20 min`, `1 hour 30 min`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanLiteral {
    /// Microseconds, never negative.
    pub micros: i64,
    /// As written, with single spaces between numbers and units.
    pub text: String,
    /// Source range.
    pub span: Span,
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// `not`
    Not,
    /// `-`
    Neg,
}
