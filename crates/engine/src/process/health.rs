//! Present problems of a running engine, by area.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tidemill_types::{Error, Result};

/// Problems that are present now. Each area, or subject of an area, has at most one; so has each source.
#[derive(Default)]
pub struct HealthBoard {
    /// Name of the app, for log lines of a process with several apps.
    app: Option<String>,
    /// By area and subject within the area; the subject is empty for the area as a whole.
    problems: Mutex<BTreeMap<(&'static str, String), String>>,
    sources: Mutex<BTreeMap<String, String>>,
    /// Those who are asked for present problems, by area.
    watched: Mutex<BTreeMap<&'static str, ProblemWatch>>,
}

/// Returns present problems of a part of the process that the engine does not know.
pub type ProblemWatch = Box<dyn Fn() -> Vec<String> + Send + Sync>;

impl HealthBoard {
    /// Creates the board of an app that shares its process.
    pub fn of_app(name: &str) -> Self {
        Self { app: Some(name.to_owned()), ..Self::default() }
    }

    /// Records the problem of `area`, and logs it if it is new.
    pub fn report_problem(&self, area: &'static str, problem: String) {
        self.report_problem_of(area, "", problem);
    }

    /// Records the problem of `subject` in `area`, and logs it if it is new.
    pub fn report_problem_of(&self, area: &'static str, subject: &str, problem: String) {
        let key = (area, subject.to_owned());
        let mut problems = self.problems.lock();
        if problems.get(&key) != Some(&problem) {
            tracing::error!(app = self.app, area, "{problem}");
            problems.insert(key, problem);
        }
    }

    /// Records that `area` waits for something that is being done. That is how senders who are faster than
    /// the disk are slowed down, so it is not logged as an error.
    pub fn report_wait(&self, area: &'static str, reason: String) {
        let key = (area, String::new());
        let mut problems = self.problems.lock();
        if problems.get(&key) != Some(&reason) {
            tracing::info!(app = self.app, area, "{reason}");
            problems.insert(key, reason);
        }
    }

    /// Removes the problem of `area`. Those of its subjects stay.
    pub fn clear_problem(&self, area: &'static str) {
        self.clear_problem_of(area, "");
    }

    /// Removes the problem of `subject` in `area`.
    pub fn clear_problem_of(&self, area: &'static str, subject: &str) {
        if self.problems.lock().remove(&(area, subject.to_owned())).is_some() {
            tracing::info!(app = self.app, area, subject, "the problem is over");
        }
    }

    /// Reports the error of `result` as the problem of `area`, or clears it.
    pub fn record_outcome(&self, area: &'static str, result: Result<()>) {
        match result {
            Ok(()) => self.clear_problem(area),
            Err(e) => self.report_problem(area, e.to_string()),
        }
    }

    /// Returns whether `area`, or a subject in it, has a problem.
    pub fn has_problem(&self, area: &str) -> bool {
        self.problems.lock().keys().any(|(of, _)| *of == area)
    }

    /// Returns the problem of a subject of `area`, if one has any.
    pub fn problem_of_any_subject(&self, area: &str) -> Option<String> {
        let problems = self.problems.lock();
        problems
            .iter()
            .find(|((of, subject), _)| *of == area && !subject.is_empty())
            .map(|(_, problem)| problem.clone())
    }

    /// Records that a source could not be read to its end, or only in part.
    pub fn report_source_problem(&self, source: &str, error: &Error) {
        tracing::error!(app = self.app, source, error = %error, "a source has a problem");
        self.sources.lock().insert(source.to_owned(), error.to_string());
    }

    /// Asks `watch` for the problems of `area` whenever somebody asks for all. It replaces one that was there for the area.
    pub fn watch(&self, area: &'static str, watch: ProblemWatch) {
        self.watched.lock().insert(area, watch);
    }

    /// Returns all problems, those of sources last.
    pub fn problems(&self) -> Vec<String> {
        let sources = self.source_problems();
        let own: Vec<_> =
            self.problems.lock().iter().map(|((area, _), problem)| format!("{area}: {problem}")).collect();
        let watched = self.watched.lock();
        let of_area = |(area, watch): (&&'static str, &ProblemWatch)| -> Vec<String> {
            watch().into_iter().map(|problem| format!("{area}: {problem}")).collect()
        };
        let watched: Vec<_> = watched.iter().flat_map(of_area).collect();
        [own, watched, sources].concat()
    }

    /// Returns the problems of sources.
    pub fn source_problems(&self) -> Vec<String> {
        let sources = self.sources.lock();
        sources.iter().map(|(source, problem)| format!("source {source}: {problem}")).collect()
    }
}
