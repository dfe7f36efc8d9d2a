//! Statements that are repeated at this node when another one is lost.

use std::error::Error as StdError;

use arrow::error::ArrowError;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};

use crate::error::NodeLost;

/// Returns whether a lost node is the reason of an error, which operators may have wrapped.
fn is_of_lost_node(error: &(dyn StdError + 'static)) -> bool {
    if error.is::<NodeLost>() {
        return true;
    }
    match error.downcast_ref::<DataFusionError>() {
        Some(DataFusionError::External(inner)) => is_of_lost_node(inner.as_ref()),
        Some(DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner)) => {
            is_of_lost_node(inner.as_ref())
        }
        Some(DataFusionError::Shared(inner)) => is_of_lost_node(inner.as_ref()),
        Some(DataFusionError::Collection(all)) => all.first().is_some_and(|first| is_of_lost_node(first)),
        Some(DataFusionError::ArrowError(inner, _)) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => is_of_lost_node(inner.as_ref()),
            _ => false,
        },
        _ => false,
    }
}

/// Starts a statement again.
pub(crate) type StartAgain =
    Box<dyn FnOnce() -> BoxFuture<'static, Result<SendableRecordBatchStream>> + Send>;

/// Rows of a statement, before and after the first of them.
enum Rows {
    /// None has come, so that the statement can be started again.
    None(SendableRecordBatchStream, StartAgain),
    Some(SendableRecordBatchStream),
    End,
}

/// Returns the rows of a statement that is started again, once, if a node is lost before the first of them.
pub(crate) fn repeated(rows: SendableRecordBatchStream, again: StartAgain) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let rows = stream::unfold(Rows::None(rows, again), |state| async move {
        let (mut rows, again) = match state {
            Rows::None(rows, again) => (rows, Some(again)),
            Rows::Some(rows) => (rows, None),
            Rows::End => return None,
        };
        match (rows.next().await?, again) {
            (Err(error), Some(again)) if is_of_lost_node(&error) => {
                // the work for the former attempt ends before the next one begins
                drop(rows);
                match again().await {
                    Ok(mut rows) => rows.next().await.map(|batch| (batch, Rows::Some(rows))),
                    Err(error) => Some((Err(error), Rows::End)),
                }
            }
            (Ok(batch), Some(again)) if batch.num_rows() == 0 => Some((Ok(batch), Rows::None(rows, again))),
            (batch, _) => Some((batch, Rows::Some(rows))),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch};
    use futures::{FutureExt, TryStreamExt};
    use tidemill_types::Error;

    use super::*;

    fn rows(values: &[i64]) -> RecordBatch {
        let column = Arc::new(Int64Array::from(values.to_vec())) as _;
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    fn of(items: Vec<Result<RecordBatch>>) -> SendableRecordBatchStream {
        Box::pin(RecordBatchStreamAdapter::new(rows(&[]).schema(), stream::iter(items)))
    }

    fn lost() -> DataFusionError {
        let lost: DataFusionError = NodeLost::of("n2", &Error::unavailable("gone")).into();
        // as a repartition and a sort wrap it
        DataFusionError::Shared(Arc::new(lost.context("sort")))
    }

    fn all(first: Vec<Result<RecordBatch>>, second: Vec<Result<RecordBatch>>) -> Result<Vec<RecordBatch>> {
        let again: StartAgain = Box::new(move || async move { Ok(of(second)) }.boxed());
        futures::executor::block_on(repeated(of(first), again).try_collect())
    }

    #[test]
    fn a_statement_is_repeated_before_its_first_row_only() {
        let whole = || vec![Ok(rows(&[1, 2])), Ok(rows(&[3]))];
        assert_eq!(all(vec![Err(lost())], whole()).unwrap(), [rows(&[1, 2]), rows(&[3])]);
        assert_eq!(all(vec![Ok(rows(&[])), Err(lost())], whole()).unwrap()[1..], [rows(&[1, 2]), rows(&[3])]);
        let late = all(vec![Ok(rows(&[1])), Err(lost())], whole()).unwrap_err();
        assert!(late.to_string().contains("node n2 was lost"), "{late}");
        assert!(all(vec![Err(lost())], vec![Err(lost())]).is_err(), "repeated once");
        let other = || Err(DataFusionError::Execution("division by zero".into()));
        assert!(all(vec![other()], whole()).is_err(), "an error of the statement itself");
    }
}
