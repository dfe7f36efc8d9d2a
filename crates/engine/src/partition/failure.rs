//! Failures of a partition: it stops applying, and a record that is the cause is noted.

use std::any::Any;
use std::sync::atomic::Ordering;

use tidemill_types::{Error, ErrorKind, Offset, Result};

use super::Partition;

impl Partition {
    /// Stops applying, and notes the record that is the cause, if one is: a record before `next`.
    pub(super) fn fail_at_record(&self, next: Offset, error: &Error) {
        match self.note_failed(error) {
            Some(Ok(offset)) => self.stop_applying(offset, error.message()),
            Some(Err(not_noted)) => self.fail(next, &not_noted.context(error.message())),
            // the watch has told it before
            None if self.has_failed() => {}
            None => self.fail(next, error),
        }
    }

    /// Notes the record whose work failed with `error`, so that it is set aside when the partition is opened again. Returns its
    /// offset; `None` without such a record, or if it may succeed next time.
    pub(super) fn note_failed(&self, error: &Error) -> Option<Result<Offset>> {
        let offset = self.current.offset()?;
        let stopped = self.current.end().is_some();
        if stopped || error.kind() != ErrorKind::Internal {
            return None;
        }
        let noted = self.host.set_aside.note((self.id, offset), error.message(), self.host.clock.now());
        Some(noted.map(|_| offset))
    }

    /// Stops applying at the record `offset`, which is noted: it is set aside when the partition is opened again.
    pub fn stop_applying(&self, offset: Offset, reason: &str) {
        self.failed.store(true, Ordering::Release);
        let problem = format!(
            "partition {} stopped applying its log at record {offset}, because {reason}. Nothing is lost: the partition is opened again, \
             or after a restart of the server, and then stores the events of the record without rules and queries seeing them",
            self.id
        );
        self.host.health.report_problem_of("apply", &self.id.to_string(), problem);
    }

    /// Stops applying: a record below `next` cannot be.
    pub(super) fn fail(&self, next: Offset, error: &Error) {
        self.failed.store(true, Ordering::Release);
        let problem = format!(
            "partition {} stopped applying its log before offset {next}: {error}; nothing is lost, it is replayed when the partition is \
             opened again",
            self.id
        );
        self.host.health.report_problem_of("apply", &self.id.to_string(), problem);
    }
}

pub(super) fn panic_error(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::internal(format!("a panic while a record was applied: {message}"))
}
