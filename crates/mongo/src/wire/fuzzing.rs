//! A connection without a socket, for programs that look for inputs which it does not survive.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tidemill_engine::Engine;

use crate::options::MongoOptions;
use crate::runner;
use crate::session::Session;
use crate::shared::MongoServerState;
use crate::wire::connection;
use crate::wire::frame::HEADER_BYTES;

/// A connection that takes its messages from memory.
pub struct Connection {
    shared: Arc<MongoServerState>,
    session: Session,
}

impl Connection {
    /// Creates a connection, which is logged in if the options have no password.
    pub fn new(engine: Arc<Engine>, options: MongoOptions) -> Self {
        let shared = Arc::new(MongoServerState::new(engine, options));
        let open = shared.open_principal();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let session = Session::new(1, address, address, open);
        Self { shared, session }
    }

    /// Does what a connection does with the bytes of one message: parses it, runs its command, encodes the reply.
    ///
    /// Errors: the message, for which a connection would be closed.
    pub fn receive(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        let head: &[u8; HEADER_BYTES] = message.first_chunk().ok_or("no header")?;
        let header = connection::header(head, &self.session).map_err(|e| e.message)?;
        let content = message.get(HEADER_BYTES..header.length).ok_or("the message ends too early")?;
        let request = connection::request(header, head, content.to_vec(), &self.session);
        let request = request.map_err(|e| e.message)?;
        let request = Arc::new(request);
        let reply = runner::run_here(&self.shared, &mut self.session, &request);
        let reply = reply.unwrap_or_else(|error| error.reply());
        request.encode_reply(&reply, false).map_err(|e| e.message)
    }

    /// Closes the open cursors and sessions, as time would.
    pub fn forget(&mut self) {
        self.shared.cursors.close_all();
        self.shared.sessions.close_all();
    }
}
