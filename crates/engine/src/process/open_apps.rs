//! Apps that are open in one process, and their shares of its memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::{Error, Result};

use crate::api::Health;
use crate::app::settings::Settings;
use crate::process::limits::ProcessLimits;

/// An app that is open in a process.
#[derive(Debug, Clone)]
pub struct ProcessApp {
    /// Name of the app, which no other one in the process has.
    pub name: String,
    /// Its data directory.
    pub dir: PathBuf,
    /// Its share of the memory of the process, in bytes.
    pub memory: u64,
    /// Its health; not ready while it is being opened.
    pub health: Health,
}

/// Request of an app for a place in a process.
pub struct AppClaim<'a> {
    /// Name of the app.
    pub name: &'a str,
    /// Its data directory.
    pub dir: &'a Path,
    /// Its settings.
    pub settings: &'a Settings,
    /// Location of its tables, if that is not the data directory.
    pub tables: Option<String>,
}

/// Function that returns the health of an app; `None` once the app has ended.
type HealthCheck = Arc<dyn Fn() -> Option<Health> + Send + Sync>;

struct OpenApp {
    dir: PathBuf,
    memory: u64,
    tables: Option<String>,
    log: Option<String>,
    health: Option<HealthCheck>,
}

/// Apps that are open, by name.
#[derive(Default)]
pub struct OpenApps(Mutex<BTreeMap<String, OpenApp>>);

/// Place of an app in its process, until it is dropped.
pub struct AppPlace {
    apps: Arc<OpenApps>,
    name: String,
}

impl AppPlace {
    /// Sets the function that is asked for the health of the app.
    pub fn set_health(&self, health: impl Fn() -> Option<Health> + Send + Sync + 'static) {
        if let Some(app) = self.apps.0.lock().get_mut(&self.name) {
            app.health = Some(Arc::new(health));
        }
    }
}

impl Drop for AppPlace {
    fn drop(&mut self) {
        self.apps.0.lock().remove(&self.name);
    }
}

impl OpenApps {
    /// Gives an app its place and its share of the memory.
    ///
    /// Errors: `Invalid` without a share, for sizes beyond it, and for settings that are limits of the process; `Conflict` if an open app
    /// has the name, the tables or the log; `LimitReached` if too little of the memory is left.
    pub fn admit(self: &Arc<Self>, limits: &ProcessLimits, claim: &AppClaim<'_>) -> Result<AppPlace> {
        let memory = share(claim).map_err(|e| e.context(format!("app `{}`", claim.name)))?;
        let mut apps = self.0.lock();
        check_apart(&apps, claim)?;
        let taken: u64 = apps.values().map(|app| app.memory).sum();
        if taken.saturating_add(memory) > limits.memory {
            let open: Vec<String> =
                apps.iter().map(|(name, app)| format!("`{name}` {} MiB", app.memory >> 20)).collect();
            return Err(Error::limit(format!(
                "app `{}`: its setting memory asks for {} MiB, and of the {} MiB of the process {} MiB are taken ({}): lower the setting \
                 of one of them, or raise the memory of the process",
                claim.name,
                memory >> 20,
                limits.memory >> 20,
                taken >> 20,
                if open.is_empty() { "no other app is open".to_owned() } else { open.join(", ") }
            )));
        }
        let (tables, log) = (claim.tables.clone(), claim.settings.log.clone());
        let app = OpenApp { dir: claim.dir.to_owned(), memory, tables, log, health: None };
        apps.insert(claim.name.to_owned(), app);
        Ok(AppPlace { apps: self.clone(), name: claim.name.to_owned() })
    }

    /// Returns the apps, by name.
    pub fn list(&self) -> Vec<ProcessApp> {
        let apps = self.0.lock();
        let known = |(name, app): (&String, &OpenApp)| {
            let opening =
                Health { ready: false, problems: vec![format!("app {name}: is being opened or closed")] };
            let listed =
                ProcessApp { name: name.clone(), dir: app.dir.clone(), memory: app.memory, health: opening };
            (listed, app.health.clone())
        };
        let known: Vec<_> = apps.iter().map(known).collect();
        // an app may take long to look at its disk, and others are opened and closed meanwhile
        drop(apps);
        let asked = |(mut app, check): (ProcessApp, Option<HealthCheck>)| {
            if let Some(Health { ready, problems }) = check.and_then(|check| check()) {
                let named = problems.into_iter().map(|problem| format!("app {}: {problem}", app.name));
                app.health = Health { ready, problems: named.collect() };
            }
            app
        };
        known.into_iter().map(asked).collect()
    }
}

/// Returns the memory that an app asks for.
fn share(claim: &AppClaim<'_>) -> Result<u64> {
    let settings = claim.settings;
    let of_process = [
        ("transactions_bytes", "transactions_bytes", settings.transactions_bytes),
        ("sql.memory_bytes", "sql_memory_bytes", settings.sql.memory_bytes),
        ("sql.queries_max", "sql_queries_max", settings.sql.queries_max),
    ];
    for (setting, limit, value) in of_process {
        if let Some(value) = value {
            return Err(Error::invalid(format!(
                "setting {setting} = {value}: this limit is one for all apps of the process: remove the setting, and set {limit} of \
                 `ProcessLimits`"
            )));
        }
    }
    let memory = settings.memory.ok_or_else(|| {
        Error::invalid(
            "has no setting memory, which is its share of the memory of the process: add one to [settings], as in memory = \"1GiB\"",
        )
    })?;
    let held = settings.held_bytes();
    if held > memory {
        return Err(Error::invalid(format!(
            "setting memory = {memory}: its other settings let the app hold {held} bytes: raise memory, or lower documents_bytes, \
             unflushed_bytes, inbox_bytes, sql.hot_bytes or zones.cache_memory_bytes"
        )));
    }
    Ok(memory)
}

/// Checks that an app has a name, tables and a log of its own.
fn check_apart(apps: &BTreeMap<String, OpenApp>, claim: &AppClaim<'_>) -> Result<()> {
    if let Some(app) = apps.get(claim.name) {
        return Err(Error::conflict(format!(
            "app `{}` is open in this process already, in {}: close it, or give one of them another name in app.toml",
            claim.name,
            app.dir.display()
        )));
    }
    for (name, app) in apps {
        if let (Some(other), Some(own)) = (&app.tables, &claim.tables)
            && overlap(other, own)
        {
            return Err(Error::conflict(format!(
                "app `{}`: its tables are at {own}, and those of app `{name}` at {other}: give each app a place of its own by the \
                 setting tables",
                claim.name
            )));
        }
        if app.log.is_some() && app.log == claim.settings.log {
            return Err(Error::conflict(format!(
                "app `{}`: its log is that of app `{name}`: give each app a topic of its own by the setting log",
                claim.name
            )));
        }
    }
    Ok(())
}

/// Returns whether one place is the other one, or below it.
fn overlap(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|place| format!("{}/", place.trim_end_matches('/')));
    one.starts_with(&other) || other.starts_with(&one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim<'a>(name: &'a str, settings: &'a Settings, tables: Option<&str>) -> AppClaim<'a> {
        AppClaim { name, dir: Path::new("data"), settings, tables: tables.map(str::to_owned) }
    }

    fn of_memory(memory: u64) -> Settings {
        Settings { memory: Some(memory), ..Settings::default() }
    }

    #[test]
    fn shares_add_up_to_the_memory_of_the_process_at_most() {
        let apps = Arc::new(OpenApps::default());
        let limits = ProcessLimits::of_memory(1 << 30);
        let (half, most) = (of_memory(512 << 20), of_memory(768 << 20));
        let first = apps.admit(&limits, &claim("a", &half, None)).unwrap();
        let error = apps.admit(&limits, &claim("b", &most, None)).err().unwrap().to_string();
        assert!(
            error.contains("asks for 768 MiB, and of the 1024 MiB") && error.contains("`a` 512 MiB"),
            "{error}"
        );
        let _second = apps.admit(&limits, &claim("b", &half, None)).unwrap();
        drop(first);
        let error = apps.admit(&limits, &claim("b", &half, None)).err().unwrap().to_string();
        assert!(error.contains("open in this process already"), "{error}");
        apps.admit(&limits, &claim("a", &half, None)).unwrap();
    }

    #[test]
    fn sizes_beyond_the_share_and_limits_of_the_process_are_refused() {
        let refused = |settings: &Settings| {
            let apps = Arc::new(OpenApps::default());
            let limits = ProcessLimits::of_memory(1 << 30);
            apps.admit(&limits, &claim("a", settings, None)).err().unwrap().to_string()
        };
        assert!(refused(&Settings::default()).contains("app `a`: has no setting memory"));
        let large = Settings { documents_bytes: Some(200 << 20), ..of_memory(512 << 20) };
        assert!(refused(&large).contains("lower documents_bytes"), "{}", refused(&large));
        let own_pool = Settings { transactions_bytes: Some(5), ..of_memory(512 << 20) };
        assert!(
            refused(&own_pool).contains("setting transactions_bytes = 5: this limit is one for all apps")
        );
        let mut own_places = of_memory(512 << 20);
        own_places.sql.queries_max = Some(3);
        assert!(refused(&own_places).contains("set sql_queries_max of `ProcessLimits`"));
    }

    #[test]
    fn tables_and_logs_are_apart() {
        let apps = Arc::new(OpenApps::default());
        let limits = ProcessLimits::of_memory(4 << 30);
        let settings = Settings { log: Some("kafka://k:9092/a".into()), ..of_memory(512 << 20) };
        let _first = apps.admit(&limits, &claim("a", &settings, Some("s3://bucket/a/"))).unwrap();
        let other = of_memory(512 << 20);
        for tables in ["s3://bucket/a", "s3://bucket/a/b", "s3://bucket"] {
            let error = apps.admit(&limits, &claim("b", &other, Some(tables))).err().unwrap().to_string();
            assert!(error.contains("those of app `a` at s3://bucket/a/"), "{error}");
        }
        apps.admit(&limits, &claim("b", &other, Some("s3://bucket/ab"))).unwrap();
        let error = apps.admit(&limits, &claim("b", &settings, None)).err().unwrap().to_string();
        assert!(error.contains("its log is that of app `a`"), "{error}");
    }
}
