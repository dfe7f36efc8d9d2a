//! Creation of a table: the first entry of its Delta log.

use std::collections::BTreeMap;

use object_store::{Error as StoreError, PutMode, PutPayload};
use tidemill_types::{Result, StreamSchema};
use uuid::Uuid;

use super::action::{ActionLine, Format, Metadata, Protocol, to_lines};
use super::commit_info::{commit_info, new_id};
use super::entry_path;
use super::schema::DeltaSchema;
use crate::ZonesOptions;
use crate::error::{internal, store_error};
use crate::stores::location::Location;
use crate::stores::retry::Retry;

/// Creates the table of `stream` at `place`. Does nothing if it exists.
///
/// Errors: `Invalid` for a schema that Delta does not support; `Unavailable` if the store fails.
pub(crate) async fn create(
    place: &Location,
    stream: &StreamSchema,
    options: &ZonesOptions,
    now_ms: i64,
) -> Result<()> {
    let configuration = [
        // Delta checkpoints remember removed files as long as these may be in the store.
        ("delta.deletedFileRetentionDuration", format!("interval {} seconds", options.removed_retention_s)),
        ("delta.checkpointInterval", options.delta_checkpoint_commits.to_string()),
        ("delta.logRetentionDuration", format!("interval {} seconds", options.delta_log_retention_s)),
        // Cleanup is a separate step; writers decide when it runs.
        ("delta.enableExpiredLogCleanup", "false".to_owned()),
        // Statistics of every column are used, not only of the first 32.
        ("delta.dataSkippingNumIndexedCols", "-1".to_owned()),
    ];
    let metadata = Metadata {
        id: Uuid::new_v4().to_string(),
        name: Some(stream.name.clone()),
        description: None,
        format: Format { provider: "parquet".to_owned(), options: BTreeMap::new() },
        schema_string: DeltaSchema::of(stream)?.to_json()?,
        partition_columns: Vec::new(),
        configuration: configuration.map(|(key, value)| (key.to_owned(), value)).into(),
        created_time: Some(now_ms),
    };
    let protocol = Protocol {
        min_reader_version: 1,
        min_writer_version: 2,
        reader_features: None,
        writer_features: None,
    };
    let info = commit_info(&new_id(now_ms).to_string(), now_ms, "CREATE TABLE");
    let lines = [
        ActionLine { commit_info: Some(info), ..ActionLine::default() },
        ActionLine { protocol: Some(protocol), ..ActionLine::default() },
        ActionLine { meta_data: Some(metadata), ..ActionLine::default() },
    ];
    let entry =
        to_lines(&lines).map_err(|e| internal("the first entry of a table cannot be written as JSON", e))?;
    let path = entry_path(&place.path("_delta_log"), 0);
    let put = || place.store.put_opts(&path, PutPayload::from(entry.clone()), PutMode::Create.into());
    match Retry::new(options).run(put).await {
        // Another node created it concurrently, or the response to the first attempt was lost.
        Ok(_) | Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(()),
        Err(e) => Err(store_error(format!("table `{}` cannot be created", stream.name), e)),
    }
}
