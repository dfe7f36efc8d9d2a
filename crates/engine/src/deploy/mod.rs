//! Deploys: replacing the app of a data directory that has data.
//!
//! All checks that can reject a deploy run before anything of the new app is written. `app.json`, which
//! determines the app that the next start opens, is replaced last, by a rename. Whenever a deploy ends, by an
//! error or by a crash, the directory opens with the app that last worked. `docs/rfcs/0005-deploys.md` lists
//! the steps and the state after a crash between them.

mod plan;
mod settings;
mod stored_data;

use std::sync::Arc;
use std::time::Duration;

use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result};

pub use plan::{DeployPlan, DeployedApp, NewApp};
pub use stored_data::StoredData;

use crate::app::App;
use crate::checkpoint;
use crate::directory::datadir::{DataDir, DeploymentRecord};
use crate::directory::encryption;
use crate::directory::environment::Environment;
use crate::lifecycle::recover;
use crate::lifecycle::report::StartupReport;
use crate::lifecycle::threads::EngineThreads;
use crate::node::Node;
use crate::queries;
use crate::queries::compile::compile_app_for;

/// Maximum time that a deploy waits until the former app has applied the log.
const DRAIN_WAIT: Duration = Duration::from_secs(30);

/// Opens `data` with `app`, or with the deployed app. No record is applied yet.
///
/// Errors: `NotFound` without an app; `Invalid` for an app that does not compile and `Conflict` for one that
/// does not fit the stored data, both without any change; those of [`recover::open`].
pub fn open(
    data: &DataDir,
    app: Option<App>,
    environment: &Environment,
) -> Result<(Arc<Node>, StartupReport)> {
    let connected = |app: App| app.with_connectors(environment.connectors.clone());
    let stored = data.deployment()?;
    let stored = stored.map(|old| DeploymentRecord { app: connected(old.app), ..old });
    let (stored, app) = with_keys(data, stored, app.map(connected))?;
    // the deployed app has the settings of today as well
    let app = app.or_else(|| stored.as_ref().map(|old| old.app.clone()));
    match (stored.map(with_applied_settings), app) {
        (_, None) => Err(Error::not_found(format!(
            "{}: no app is deployed in it; start with `tidemill run APP --data {}`",
            data.path().display(),
            data.path().display()
        ))),
        (None, Some(app)) => {
            let first = first_deployment(app, environment);
            let opened = recover::open(data, first.clone(), environment)?;
            data.deploy(&first)?;
            Ok(opened)
        }
        (Some(old), Some(app)) if old.app.source() == app.source() && is_equivalent(&old.app, &app) => {
            let is_recorded = old.applied_settings.is_some();
            let record = DeploymentRecord { app, ..old };
            let opened = recover::open(data, record.clone(), environment)?;
            if !is_recorded {
                data.deploy(&record)?;
            }
            Ok(opened)
        }
        (Some(old), Some(app)) => replace_app(data, old, app, environment),
    }
}

/// Returns the first deployment of a data directory. That of a node is a cache: the origin of its cluster says what earlier apps have left.
fn first_deployment(app: App, environment: &Environment) -> DeploymentRecord {
    let origin = environment.shared.as_ref().and_then(|shared| shared.origin.as_ref());
    match origin {
        Some(origin) => DeploymentRecord {
            app,
            former: origin.former.clone(),
            pinned_streams: origin.pinned_streams.clone(),
            ..DeploymentRecord::default()
        },
        None => DeploymentRecord { app, ..DeploymentRecord::default() },
    }
}

/// Opens the keys that the settings of the app to open lead to, and gives them to both apps.
fn with_keys(
    data: &DataDir,
    stored: Option<DeploymentRecord>,
    app: Option<App>,
) -> Result<(Option<DeploymentRecord>, Option<App>)> {
    let Some(settings) = app.as_ref().or(stored.as_ref().map(|old| &old.app)).map(|app| &app.settings) else {
        return Ok((stored, app));
    };
    let mut of_both = settings.encryption.clone();
    // a caller may have given the keys themselves, as simulations do
    if of_both.keys.is_none() {
        of_both.keys = encryption::open(data, settings)?;
    }
    let give = |mut app: App| {
        app.settings.encryption = of_both.clone();
        app
    };
    Ok((stored.map(|old| DeploymentRecord { app: give(old.app), ..old }), app.map(give)))
}

/// Returns a deployment with the settings under which its records have been applied so far.
fn with_applied_settings(old: DeploymentRecord) -> DeploymentRecord {
    let Some(results) = old.applied_settings else { return old };
    let mut app = old.app;
    app.settings = app.settings.with_result_settings(results);
    DeploymentRecord { app, ..old }
}

/// Returns whether records have equal effects under both apps. They may differ in most settings, sources,
/// documents and summary.
fn is_equivalent(old: &App, new: &App) -> bool {
    let vars = new.queries.is_empty() || old.vars == new.vars;
    let limits = old.settings.result_settings() == new.settings.result_settings();
    let models = old.model_files() == new.model_files();
    old.rules == new.rules && old.queries == new.queries && vars && limits && models
}

fn replace_app(
    data: &DataDir,
    mut old: DeploymentRecord,
    app: App,
    environment: &Environment,
) -> Result<(Arc<Node>, StartupReport)> {
    // compiled first: an invalid app must not affect the deployed one
    let compiled = compile_app_for(&app, data.partitioning())?;
    let mut changes = settings::settings_changes(data, &old, &app, &compiled)?;
    if is_equivalent(&old.app, &app) {
        let new = DeploymentRecord { app, ..old };
        let (node, mut report) =
            recover::open(data, new.clone(), environment).map_err(|e| deploy_error(data, e))?;
        data.deploy(&new)?;
        report.changes = changes;
        return Ok((node, report));
    }
    // the registry is not stored with the data: the one supplied for the new app also serves the old app's
    // queries
    old.app = old.app.with_registry(app.registry().into_owned());
    // the current location: the tables have been moved, or do not exist yet
    old.app.settings.tables.clone_from(&app.settings.tables);
    old.app.settings.log.clone_from(&app.settings.log);
    let before = match compile_app_for(&old.app, data.partitioning()) {
        Ok(before) => before,
        Err(e) => return replace_unreadable_app(data, old, app, environment, e),
    };
    queries::check_changed(&before.queries, &compiled.queries, app.settings.changed_queries)?;
    let (node, drained) = match drain(data, old.clone(), environment) {
        Ok(drained) => drained,
        Err(e) if e.kind() == ErrorKind::Invalid => {
            return replace_unreadable_app(data, old, app, environment, e);
        }
        Err(e) => return Err(e),
    };
    let before =
        DeployedApp { compiled: &before, former: &old.former, partitioner: &node.app.deployment.partitioner };
    let after = NewApp { compiled: &compiled, partitions: data.partitions() };
    let facts = StoredData::gather(&node, &before, &after)?;
    let plan = DeployPlan::new(&before, &after, &facts).map_err(|refused| {
        Error::conflict(format!(
            "{}: this app does not fit what is stored there; nothing was changed\n{}",
            data.path().display(),
            refused.iter().map(|r| format!("  {r}")).collect::<Vec<_>>().join("\n")
        ))
    })?;
    let since = node.owned.all().iter().map(|p| p.applied()).collect();
    drop(node);
    copy_checkpoints(data)?;
    let new = DeploymentRecord {
        app,
        first_offsets: since,
        former: plan.former,
        pinned_streams: plan.pinned_streams,
        applied_settings: None,
    };
    let (node, mut report) =
        recover::open(data, new.clone(), environment).map_err(|e| deploy_error(data, e))?;
    data.deploy(&new)?;
    changes.extend(plan.changes);
    report.changes = changes;
    report.warnings.splice(0..0, drained.warnings);
    Ok((node, report))
}

fn deploy_error(data: &DataDir, error: Error) -> Error {
    error.context(format!("{}: the app was not deployed, the one before it stays", data.path().display()))
}

/// Applies the whole log under the app for which it was written, and takes a checkpoint.
///
/// Errors: those of [`recover::open`]; `Unavailable` when the log could not be applied to its end, or the
/// checkpoint could not be written.
fn drain(
    data: &DataDir,
    old: DeploymentRecord,
    environment: &Environment,
) -> Result<(Arc<Node>, StartupReport)> {
    let (node, report) = recover::open(data, old, environment)?;
    finish_applying(&node).map_err(|e| e.context("nothing is deployed"))?;
    Ok((node, report))
}

/// Applies the whole log of an opened node, takes a checkpoint and stops.
///
/// Errors: `Unavailable` if records are not applied to the end, what they emit has not arrived, or the checkpoint cannot be written.
pub fn finish_applying(node: &Arc<Node>) -> Result<()> {
    EngineThreads::start(node)?
        .stop_with_checkpoint(node, DRAIN_WAIT)
        .map_err(|e| e.context("the records in the log could not be checkpointed"))?;
    for partition in node.owned.all() {
        let end = node.host.log.end(partition.id);
        if partition.applied() != end {
            return Err(Error::unavailable(format!(
                "partition {}: its log is applied up to offset {} only, not to {end}",
                partition.id,
                partition.applied()
            )));
        }
        if !partition.outbox.unconfirmed(&*node.host.log).is_empty() {
            return Err(Error::unavailable(format!(
                "partition {}: what it emitted for other partitions is not in their logs",
                partition.id
            )));
        }
    }
    Ok(())
}

/// Deploys an app when the deployed one can no longer be opened, because its files or its tables were changed
/// from outside or by another version. This is safe only if none of its records are waiting to be applied.
///
/// Errors: `why`, the reason why the deployed app cannot be opened, when records are waiting; those of
/// [`recover::open`].
fn replace_unreadable_app(
    data: &DataDir,
    old: DeploymentRecord,
    app: App,
    environment: &Environment,
    why: Error,
) -> Result<(Arc<Node>, StartupReport)> {
    let why = why.context(format!("the app that is deployed in {} cannot be opened", data.path().display()));
    let log =
        environment.log.open(data.path(), &old.app.settings, data.partitions(), &environment.clock)?.log;
    let mut since = Vec::new();
    for p in (0..data.partitions()).map(PartitionId) {
        since.push(log.end(p));
        let checkpoints = checkpoint::list(&**data.disk(), &checkpoint::checkpoint_dir(data.path(), p))?;
        let applied = checkpoints.last().map_or(Offset(0), |(offset, _)| *offset);
        if applied < log.end(p) {
            return Err(why.context(format!(
                "nothing is deployed: records of partition {p} from offset {applied} on belong to the deployed app, which \
                 has to apply them first"
            )));
        }
    }
    log.close()?;
    drop(log);
    copy_checkpoints(data)?;
    let new = DeploymentRecord { app, first_offsets: since, ..old };
    let (node, mut report) =
        recover::open(data, new.clone(), environment).map_err(|e| deploy_error(data, e))?;
    data.deploy(&new)?;
    report.warnings.push(format!("{why}; another app has taken its place"));
    Ok((node, report))
}

/// Copies the newest checkpoint of each partition. Older checkpoints belong to the former app, so without the
/// copy there would be no fallback.
pub fn copy_checkpoints(data: &DataDir) -> Result<()> {
    for p in 0..data.partitions() {
        let dir = checkpoint::checkpoint_dir(data.path(), PartitionId(p));
        if let Some((newest, _)) = checkpoint::list(&**data.disk(), &dir)?.last() {
            checkpoint::copy_checkpoint(&**data.disk(), &dir, *newest)?;
        }
    }
    Ok(())
}
