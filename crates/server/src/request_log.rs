//! Log lines of requests: method, route template, status and time, nothing of what was sent.
//!
//! What was refused, failed or took long is a warning, so that an operator sees it without asking for more lines. A
//! sender that is refused all the time must not fill the log, so there is one line per kind of reply and
//! [`LINE_INTERVAL`], which says how many there were. Every single reply is a line at debug level.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often the same kind of reply is told.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// A reply that takes longer to begin is told.
const SLOW: Duration = Duration::from_secs(5);

/// A reply.
pub(crate) struct CompletedRequest<'a> {
    pub method: &'static str,
    /// A template, so that there is a bounded number of kinds.
    pub route: &'a str,
    pub status: u16,
    /// Until its head.
    pub took: Duration,
    pub peer: Option<SocketAddr>,
}

/// What makes two lines the same: method, route, status, and whether it took long.
type ReplyKind = (&'static str, String, u16, bool);

/// What was told of each kind.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    kinds: Mutex<HashMap<ReplyKind, LastLogged>>,
}

#[derive(Debug)]
struct LastLogged {
    /// The last line.
    at: Instant,
    /// Replies since then.
    since: u64,
}

impl RequestLog {
    /// Notes a reply.
    pub fn record(&self, answered: &CompletedRequest<'_>) {
        let CompletedRequest { method, route, status, took, peer } = *answered;
        let duration_ms = took.as_secs_f64() * 1000.0;
        tracing::debug!(method, route, status, duration_ms, ?peer, "a request was answered");
        let is_slow = took >= SLOW;
        let what = match status {
            500.. => "requests failed",
            400.. => "requests were refused",
            207 => "requests were refused in part",
            _ if is_slow => "requests took long",
            _ => return,
        };
        if let Some(count) = self.take_due((method, route.to_owned(), status, is_slow), Instant::now()) {
            tracing::warn!(method, route, status, count, duration_ms, ?peer, "{what}");
        }
    }

    /// How many replies of `kind` a line at `now` tells of, this one among them; `None` when it is too early for one.
    fn take_due(&self, kind: ReplyKind, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock();
        let Some(told) = kinds.get_mut(&kind) else {
            kinds.insert(kind, LastLogged { at: now, since: 0 });
            return Some(1);
        };
        told.since += 1;
        if now.duration_since(told.at) < LINE_INTERVAL {
            return None;
        }
        told.at = now;
        Some(std::mem::take(&mut told.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_in_a_while_with_its_count() {
        let log = RequestLog::default();
        let start = Instant::now();
        let at = |ms: u64, status| {
            log.take_due(("POST", "/x".to_owned(), status, false), start + Duration::from_millis(ms))
        };
        assert_eq!(at(0, 429), Some(1));
        assert_eq!(at(1, 400), Some(1), "another status is another line");
        assert_eq!((at(1, 429), at(9_999, 429)), (None, None));
        assert_eq!(at(10_000, 429), Some(3));
        assert_eq!(at(10_001, 429), None);
        assert_eq!(at(60_000, 429), Some(2));
    }
}
