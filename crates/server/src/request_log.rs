//! Log lines of requests: method, route template, status and duration, but no request data.
//!
//! Requests that were rejected, failed or slow are warnings, so that an operator sees them at the default
//! level. A client that is rejected all the time must not fill the log, so each kind of reply is logged at
//! most once per [`LINE_INTERVAL`], with a count. At debug level every reply is logged.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum interval between two lines of one kind.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Duration from which a request is logged as slow.
const SLOW: Duration = Duration::from_secs(5);

/// Facts about an answered request.
pub(crate) struct CompletedRequest<'a> {
    pub method: &'static str,
    /// Route template, so that the number of kinds is bounded.
    pub route: &'a str,
    pub status: u16,
    /// Time from the request's head to the reply's head.
    pub took: Duration,
    pub peer: Option<SocketAddr>,
}

/// Kind of a reply: method, route, status, and whether it was slow.
type ReplyKind = (&'static str, String, u16, bool);

/// Rate-limited log of replies, by kind.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    kinds: Mutex<HashMap<ReplyKind, LastLogged>>,
}

#[derive(Debug)]
struct LastLogged {
    /// Time of the last line.
    at: Instant,
    /// Replies since the last line.
    since: u64,
}

impl RequestLog {
    /// Logs a reply.
    pub fn record(&self, answered: &CompletedRequest<'_>) {
        let CompletedRequest { method, route, status, took, peer } = *answered;
        let duration_ms = rounded_ms(took);
        let peer = peer.map(tracing::field::display);
        tracing::debug!(method, route, status, duration_ms, peer, "a request was answered");
        let is_slow = took >= SLOW;
        let what = match status {
            500.. => "requests failed",
            400.. => "requests were refused",
            207 => "requests were refused in part",
            _ if is_slow => "requests took long",
            _ => return,
        };
        if let Some(count) = self.take_due((method, route.to_owned(), status, is_slow), Instant::now()) {
            tracing::warn!(method, route, status, count, duration_ms, peer, "{what}");
        }
    }

    /// Returns the number of replies of `kind` that a line at `now` covers, including this one; `None` if no
    /// line is due yet.
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

/// Returns a duration in milliseconds, to a tenth.
fn rounded_ms(took: Duration) -> f64 {
    (took.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_decimal() {
        let shown = |micros: u64| rounded_ms(Duration::from_micros(micros)).to_string();
        assert_eq!([987, 49, 1_250, 5_000_000].map(shown), ["1", "0", "1.3", "5000"]);
    }

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
