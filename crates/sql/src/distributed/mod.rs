//! Statements that several nodes of a cluster execute together.
//!
//! ```text
//! node that got the statement                                      node n2
//!   AggregateExec: mode=Final
//!     UnionExec
//!       DistributedExec ───── fragment + tablets of n2 ──────────▶ AggregateExec: mode=Partial
//!                       ◀──── batches, then an end ───────────────   FilterExec
//!       AggregateExec: mode=Partial                                    DataSourceExec (its tablets)
//!         FilterExec
//!           DataSourceExec (the tablets of this node)
//!       AggregateExec: mode=Partial
//!         FilterExec
//!           DataSourceExec (the tail)
//! ```
//!
//! A plan is made as for one node. [`rule`] then cuts it: the operators above a scan of many bytes that look at each of its
//! partitions alone ([`cut`]) become a *fragment*, which is executed once for the tablets of each node. The names of tablets say which node has them
//! ([`placement`]). Other nodes take no snapshot: a fragment names its tablets, so the statement has the one moment that was taken here.
//!
//! [`exec`] sends fragments, [`worker`] executes them, [`repeat`] repeats a statement at
//! this node when another one is lost. RFC 42 has the reasons.

mod cut;
mod exec;
mod expressions;
mod message;
mod placement;
mod repeat;
mod rule;
mod scan;
mod worker;

pub(crate) use exec::is_distributed;
pub(crate) use repeat::{StartAgain, repeated};
pub(crate) use rule::Distribution;
