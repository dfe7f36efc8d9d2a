//! Requests of clients that wait for an event to answer them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

/// App, id of the source, and id of the message.
type RequestKey = (String, String, String);

/// Requests that wait for a response `R`.
pub(crate) struct WaitingRequests<R>(Mutex<BTreeMap<RequestKey, oneshot::Sender<R>>>);

impl<R> WaitingRequests<R> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Adds a request, until the value that this returns is dropped.
    pub(crate) fn add(
        &'static self,
        app: &str,
        source_id: &str,
    ) -> (WaitingRequest<R>, oneshot::Receiver<R>) {
        let key = (app.to_owned(), source_id.to_owned(), Uuid::new_v4().to_string());
        let (respond, response) = oneshot::channel();
        self.0.lock().insert(key.clone(), respond);
        (WaitingRequest { all: self, key }, response)
    }

    /// Answers a request.
    ///
    /// Errors: none waits with this id.
    pub(crate) fn respond(
        &self,
        app: &str,
        source_id: &str,
        message_id: &str,
        response: R,
    ) -> Result<(), String> {
        let key = (app.to_owned(), source_id.to_owned(), message_id.to_owned());
        let waiting = self.0.lock().remove(&key);
        waiting.and_then(|waiting| waiting.send(response).ok()).ok_or_else(|| {
            format!(
                "no request of the source.id `{source_id}` waits with the message.id `{message_id}`: it was answered, it \
                 has timed out, or its client has gone"
            )
        })
    }
}

/// A request that waits; forgotten when it is dropped.
pub(crate) struct WaitingRequest<R: 'static> {
    all: &'static WaitingRequests<R>,
    key: RequestKey,
}

impl<R> WaitingRequest<R> {
    /// Returns the id that the answer names.
    pub(crate) fn message_id(&self) -> &str {
        &self.key.2
    }
}

impl<R> Drop for WaitingRequest<R> {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.key);
    }
}
