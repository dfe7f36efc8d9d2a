//! The tools.

pub(crate) mod apps;
pub(crate) mod catalog;
pub(crate) mod sql;
pub(crate) mod why;

use std::sync::Arc;
use std::time::Duration;

use tidemill_types::budget::{Budget, Stop};
use tidemill_types::{Error, Result};

use crate::engine::McpEngine;

/// Sender of statements, as `system.statements` names it.
const ORIGIN: &str = "mcp";

/// Caller that waits for work. Dropped, it ends the work.
struct Waiter(Budget);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.stop(Stop::ClientGone);
    }
}

/// Runs `work` on a blocking thread, within a budget of time that ends with its caller.
async fn on_engine<T: Send + 'static>(
    engine: &Arc<dyn McpEngine>,
    limit: Duration,
    work: impl FnOnce(&dyn McpEngine) -> Result<T> + Send + 'static,
) -> Result<T> {
    let engine = engine.clone();
    let budget = Budget::builder().time(limit).build();
    let _waiter = Waiter(budget.clone());
    let task = tokio::task::spawn_blocking(move || {
        let _entered = budget.enter();
        work(&*engine)
    });
    task.await.map_err(|e| Error::internal("a tool was cut short").with_source(e))?
}

/// Cuts a text to some bytes, between two lines where it has any, and says so.
fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    let end = text.floor_char_boundary(bytes_max);
    let end = text[..end].rfind('\n').map_or(end, |line| line + 1);
    text.truncate(end);
    text.push_str(&format!("… cut to {bytes_max} bytes: ask for less"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_lines() {
        assert_eq!(cut("one\ntwo\n".to_owned(), 8), "one\ntwo\n");
        assert_eq!(cut("one\ntwo\n".to_owned(), 7), "one\n… cut to 7 bytes: ask for less");
        assert_eq!(cut("ééé".to_owned(), 3), "é… cut to 3 bytes: ask for less");
    }
}
