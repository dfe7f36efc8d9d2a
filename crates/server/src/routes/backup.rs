//! Route of backups.

use std::path::PathBuf;
use std::time::Duration;

use axum::Json;
use serde::{Deserialize, Serialize};
use tidemill_engine::BackupReport;
use utoipa::ToSchema;

use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};

/// Longest time of a backup. Its caller waits for it, however large the data is.
const TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Target of a backup.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupRequest {
    /// A new or empty directory on the machine of the server: an absolute path.
    #[schema(example = "/backups/monday")]
    to: String,
}

/// Summary of a backup.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Backup {
    /// Its directory.
    path: String,
    /// Name of the app.
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<String>,
    /// Number of files.
    files: u64,
    /// Bytes of the files.
    bytes: u64,
    /// Number of tables.
    tables: u64,
    /// Rows in their tablets.
    rows: u64,
    /// Records of the log.
    log_records: u64,
    /// Location of the tables, if they were not in the data directory. The backup has a copy of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    tables_location: Option<String>,
    /// Id of the cluster, if the server is a node of one: the backup is one of the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
}

impl From<BackupReport> for Backup {
    fn from(report: BackupReport) -> Self {
        let BackupReport { path, app, files, bytes, tables, rows, log_records, tables_location, cluster } =
            report;
        let path = path.display().to_string();
        Self { path, app, files, bytes, tables, rows, log_records, tables_location, cluster }
    }
}

/// Copy the data directory, or the cluster of a node, to a new directory on the server's machine.
///
/// Events are taken in and queries answered meanwhile. The reply comes when the backup is on the disk; a directory of this
/// name is there only then.
#[utoipa::path(
    post, path = "/api/v1/backup", tag = "system", operation_id = "backup",
    request_body = BackupRequest,
    responses(
        (status = 200, description = "It is there", body = Backup),
        (status = 400, description = "The path is not absolute or names a directory that has content", body = ErrorBody),
        (status = 409, description = "Another backup is being taken", body = ErrorBody),
    ),
)]
pub(crate) async fn backup(call: RequestContext, content: RequestBody) -> Result<Json<Backup>, ApiError> {
    let to = PathBuf::from(content.json::<BackupRequest>(&call).await?.to);
    if !to.is_absolute() {
        return Err(ApiError::invalid(format!(
            "`to` is {}: expected an absolute path on the machine of the server, such as /backups/monday",
            to.display()
        )));
    }
    let report = call.engine_within(TIMEOUT, move |engine| engine.backup(&to)).await?;
    Ok(Json(report.into()))
}
