//! Commands for the developer of an app.

pub(crate) mod backtest;
pub(crate) mod check;
pub(crate) mod connectors;
pub(crate) mod declare;
pub(crate) mod fmt;
pub(crate) mod new;
pub(crate) mod replay;
pub(crate) mod replay_files;
pub(crate) mod test;
