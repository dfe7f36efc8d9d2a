//! Logical plan node of gap filling.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::{DFSchema, DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

/// Value of an aggregate in a row that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FillKind {
    /// The last value of the group that is not null.
    Locf,
    /// The value on the line between the values before and after that are not null.
    Interpolate,
}

/// Comparison of times with a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum BoundSide {
    /// `time >= bound`
    From,
    /// `time > bound`
    After,
    /// `time < bound`
    Before,
    /// `time <= bound`
    To,
}

impl BoundSide {
    pub fn is_lower(self) -> bool {
        matches!(self, Self::From | Self::After)
    }

    fn operator(self) -> &'static str {
        match self {
            Self::From => ">=",
            Self::After => ">",
            Self::Before => "<",
            Self::To => "<=",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FillBound {
    pub side: BoundSide,
    /// A constant time.
    pub expr: Expr,
}

/// The buckets that each group is to have, as constant expressions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FillRange {
    pub interval: Expr,
    pub origin: Option<Expr>,
    /// At least one on each side.
    pub bounds: Vec<FillBound>,
}

/// Node that adds rows for the buckets that a group does not have.
///
/// Shape: the columns of the input, which begin with those of the aggregate and end with one for each of `fills`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GapFill {
    pub input: LogicalPlan,
    /// Column of the buckets.
    pub bucket: usize,
    /// Columns that identify a group.
    pub keys: Vec<usize>,
    pub fills: Vec<FillKind>,
    pub range: FillRange,
    schema: DFSchemaRef,
}

impl GapFill {
    pub fn new(
        input: LogicalPlan,
        bucket: usize,
        keys: Vec<usize>,
        fills: Vec<FillKind>,
        range: FillRange,
    ) -> Result<Self> {
        let fields = input.schema().iter().enumerate().map(|(index, (table, field))| {
            let nullable = field.is_nullable() || (index != bucket && !keys.contains(&index));
            let field = Field::clone(field).with_nullable(nullable);
            (table.cloned(), Arc::new(field))
        });
        let schema = DFSchema::new_with_metadata(fields.collect(), input.schema().metadata().clone())?;
        Ok(Self { input, bucket, keys, fills, range, schema: Arc::new(schema) })
    }

    /// Returns the node with another input, whose last columns are those of `fills`.
    pub fn with_input(self, input: LogicalPlan, fills: Vec<FillKind>) -> Result<Self> {
        Self::new(input, self.bucket, self.keys, fills, self.range)
    }

    pub fn of(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(Extension { node }) => node.as_any().downcast_ref(),
            _ => None,
        }
    }

    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

impl PartialOrd for GapFill {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for GapFill {
    fn name(&self) -> &'static str {
        "GapFill"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    /// Returns the interval, the origin if there is one, and the bounds.
    fn expressions(&self) -> Vec<Expr> {
        let FillRange { interval, origin, bounds } = &self.range;
        let exprs = [interval].into_iter().chain(origin).chain(bounds.iter().map(|bound| &bound.expr));
        exprs.cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GapFill: interval={}", self.range.interval)?;
        if let Some(origin) = &self.range.origin {
            write!(f, ", origin={origin}")?;
        }
        for bound in &self.range.bounds {
            write!(f, ", time {} {}", bound.side.operator(), bound.expr)?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut exprs = exprs.into_iter();
        let (Some(input), Some(interval)) = (inputs.pop(), exprs.next()) else {
            return internal_err!("gap filling has one input and an interval");
        };
        let origin = self.range.origin.as_ref().and_then(|_| exprs.next());
        let bounds = self.range.bounds.iter().zip(exprs);
        let bounds = bounds.map(|(bound, expr)| FillBound { side: bound.side, expr }).collect();
        let range = FillRange { interval, origin, bounds };
        Self::new(input, self.bucket, self.keys.clone(), self.fills.clone(), range)
    }
}
