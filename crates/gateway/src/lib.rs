//! Listeners of all protocols: one way to accept, encrypt, limit, count and drain connections.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use futures::future::BoxFuture;
//! use tidemill_gateway::{Connection, FrontEnd, Gateway, ListenOptions, Listener, Metrics};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! /// A protocol that answers each byte with the same byte.
//! struct Echo;
//!
//! impl FrontEnd for Echo {
//!     fn protocol(&self) -> &'static str {
//!         "echo"
//!     }
//!
//!     fn requires_login(&self) -> bool {
//!         false
//!     }
//!
//!     fn serve(self: Arc<Self>, mut connection: Connection) -> BoxFuture<'static, ()> {
//!         Box::pin(async move {
//!             let mut byte = [0];
//!             loop {
//!                 tokio::select! {
//!                     () = connection.handle.draining() => return,
//!                     read = connection.socket.read_exact(&mut byte) => if read.is_err() { return },
//!                 }
//!                 // from here on the connection is not closed to make room, and a drain waits for the answer
//!                 let Some(_request) = connection.handle.begin() else { return };
//!                 if connection.socket.write_all(&byte).await.is_err() {
//!                     return;
//!                 }
//!             }
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tidemill_types::Result<()> {
//! let options = ListenOptions::new(([127, 0, 0, 1], 0).into());
//! let listener = Listener::bind(Arc::new(Echo), options).await?;
//! let address = listener.address();
//! let gateway = Gateway::start(vec![listener], Arc::new(Metrics::default()));
//! # let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
//! # client.write_all(b"x").await.unwrap();
//! # let mut answer = [0];
//! # client.read_exact(&mut answer).await.unwrap();
//! # assert_eq!(&answer, b"x");
//! assert_eq!(gateway.shutdown(Duration::from_secs(3)).await, 0);
//! # Ok(())
//! # }
//! ```
//!
//! A [`FrontEnd`] implements a protocol. A [`Listener`] is an address at which it is reached, bound and checked; a [`Gateway`] serves
//! all listeners of a process. For each client, the gateway accepts the connection ([`mod@self`]'s `accepting`), finds a place for it
//! (`connections`), encrypts it (`tls`), and calls [`FrontEnd::serve`].
//!
//! # Limits
//!
//! All connections together take at most half of the file handles of the process, and each listener an equal share of that half, at
//! most its own limit. So clients of one listener neither keep those of another one away nor close their connections. At the limit
//! of its listener, a new connection closes the one that has been idle for longest, those of clients that have not logged in first.
//! One with a request in progress is never closed in this way; if all have one, new clients wait to be accepted.
//!
//! Large messages on their way share a [`MessageMemory`], by which a protocol bounds what slow clients make it hold.
//!
//! The crate knows neither the engine nor a protocol.

mod accepting;
mod client_certificate;
mod connection;
mod connections;
mod front_end;
mod gateway;
mod listener;
mod message_memory;
mod metrics;
mod socket;
mod tls;

pub use client_certificate::ClientCertificate;
pub use connection::Connection;
pub use connections::{ActiveRequest, ConnectionHandle};
pub use front_end::{Encryption, FrontEnd};
pub use gateway::{Gateway, Problems};
pub use listener::{ListenOptions, Listener};
pub use message_memory::{HeldMessage, MessageMemory};
pub use metrics::{ConnectionCounts, Metrics};
pub use socket::Socket;
pub use tls::{Clock, TlsFiles};
