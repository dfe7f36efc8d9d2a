//! Limits of a connection between two nodes.

use std::time::Duration;

use tidemill_types::{Error, Result};

/// Bytes of a stream that its reader has not taken, and after which the other node waits. On a way of 0.5 ms there and back, a stream
/// can have 500 MB/s with it.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Bytes of a connection that may be on their way beside those that streams do not take.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Requests that a connection can have beside calls and streams: those with which it begins.
const HANDSHAKE_REQUESTS: u32 = 8;
/// Largest sum of calls and streams: the gateway counts up to 16,383 requests of a connection.
const REQUESTS_MAX: u32 = 16_000;
/// Largest message: its length has 32 bits.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Limits of what one node asks another one. All nodes of a cluster should have the same; the smaller one holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLimits {
    /// Maximum bytes of a payload, 64 MiB: a command of a MongoDB driver has at most 48 MB. Results that may be larger are streams.
    pub message_bytes_max: usize,
    /// Maximum bytes of the payloads of all calls that are under way, 128 MiB. Replies are not counted: each has at most
    /// [`Self::message_bytes_max`].
    pub request_bytes_max: usize,
    /// Maximum number of calls that are under way, 1,024. Further ones wait, at most until their time is over.
    pub calls_max: u32,
    /// Maximum number of open streams, 256. They are counted apart, so that readers that wait keep no calls away.
    pub streams_max: u32,
    /// Time without a byte of the other node after which it is asked for a sign of life, 1 s.
    pub keep_alive_interval: Duration,
    /// Time in which the sign of life has to come, 1.5 s; then the connection is broken.
    pub keep_alive_timeout: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            message_bytes_max: 64 << 20,
            request_bytes_max: 128 << 20,
            calls_max: 1024,
            streams_max: 256,
            keep_alive_interval: Duration::from_secs(1),
            keep_alive_timeout: Duration::from_millis(1500),
        }
    }
}

impl CallLimits {
    /// Checks the limits.
    ///
    /// Errors: `Invalid` for those that cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { message_bytes_max, request_bytes_max, calls_max, streams_max, .. } = self;
        if !(1..=MESSAGE_BYTES_MAX).contains(message_bytes_max) {
            return Err(Error::invalid(format!(
                "message_bytes_max = {message_bytes_max}: expected 1 to {MESSAGE_BYTES_MAX}"
            )));
        }
        if !(*message_bytes_max..=u32::MAX as usize).contains(request_bytes_max) {
            return Err(Error::invalid(format!(
                "request_bytes_max = {request_bytes_max}: expected at least message_bytes_max, {message_bytes_max}, and at most {}",
                u32::MAX
            )));
        }
        let requests = u64::from(*calls_max) + u64::from(*streams_max);
        if *calls_max == 0 || *streams_max == 0 || requests > REQUESTS_MAX.into() {
            return Err(Error::invalid(format!(
                "calls_max = {calls_max}, streams_max = {streams_max}: expected at least 1 each, and {REQUESTS_MAX} together at most"
            )));
        }
        match self.keep_alive_interval.is_zero() || self.keep_alive_timeout.is_zero() {
            true => Err(Error::invalid("keep_alive_interval and keep_alive_timeout: expected more than 0")),
            false => Ok(()),
        }
    }

    /// Returns the largest number of requests of a connection.
    pub(crate) fn requests_max(&self) -> u32 {
        self.calls_max + self.streams_max + HANDSHAKE_REQUESTS
    }

    /// Returns the bytes of a connection that may be on their way to a client: what all streams together may leave untaken, and
    /// some for the replies of calls, so that readers that wait do not hold up calls.
    pub(crate) fn client_window_bytes(&self) -> u32 {
        let streams = self.streams_max.saturating_mul(STREAM_WINDOW_BYTES);
        streams.saturating_add(CONNECTION_WINDOW_BYTES).min(i32::MAX as u32)
    }

    /// Returns the bytes of a connection that may be on their way to a server, which takes all of them at once.
    pub(crate) fn server_window_bytes(&self) -> u32 {
        CONNECTION_WINDOW_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_work_are_refused() {
        let default = CallLimits::default();
        assert!(default.check().is_ok());
        for (limits, expected) in [
            (CallLimits { message_bytes_max: 0, ..default.clone() }, "message_bytes_max = 0"),
            (CallLimits { request_bytes_max: 5, ..default.clone() }, "request_bytes_max = 5"),
            (CallLimits { calls_max: 0, ..default.clone() }, "calls_max = 0"),
            (CallLimits { streams_max: 0, ..default.clone() }, "streams_max = 0"),
            (CallLimits { calls_max: u32::MAX, ..default.clone() }, "together at most"),
            (CallLimits { keep_alive_timeout: Duration::ZERO, ..default.clone() }, "keep_alive_timeout"),
        ] {
            let error = limits.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let many = CallLimits { streams_max: 15_000, calls_max: 1, ..default };
        assert_eq!(many.client_window_bytes(), i32::MAX as u32);
    }
}
