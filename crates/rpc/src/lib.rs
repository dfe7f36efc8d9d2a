//! Calls between the nodes of a cluster: gRPC over one connection of HTTP/2 for each pair of nodes and direction.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use futures::future::BoxFuture;
//! use futures::stream::BoxStream;
//! use futures::{FutureExt, StreamExt};
//! use tidemill_gateway::{Gateway, Metrics};
//! use tidemill_rpc::{
//!     CallHandler, CallRequest, IncomingCall, CallLimits, NodeIdentity, NodeSettings, Peers, Reply, RpcFrontEnd, Secret, Security,
//! };
//! use tidemill_types::{PartitionId, Result};
//!
//! /// Kind of a call that asks how many bytes its payload has.
//! const LENGTH: u16 = 1;
//!
//! struct Handler;
//!
//! impl CallHandler for Handler {
//!     fn call(&self, call: IncomingCall) -> BoxFuture<'static, Result<Reply>> {
//!         async move {
//!             // another node owns the partitions from 8 on
//!             if call.partition.0 >= 8 {
//!                 return Ok(Reply::NotOwner { epoch: 17, owner: Some("node-3".into()) });
//!             }
//!             assert_eq!((call.kind, call.peer.node.as_str()), (LENGTH, "node-1"));
//!             Ok(Reply::Payload(call.payload.len().to_string().into()))
//!         }
//!         .boxed()
//!     }
//!
//!     fn stream(&self, call: IncomingCall) -> BoxStream<'static, Result<Reply>> {
//!         futures::stream::iter(call.payload).map(|byte| Ok(Reply::Payload(vec![byte].into()))).boxed()
//!     }
//! }
//!
//! let settings = |node: &str| {
//!     Arc::new(NodeSettings {
//!         identity: NodeIdentity { cluster_id: "shop".into(), node: node.into(), incarnation: 1 },
//!         protocols: 1..=1,
//!         security: Security::Secret(Secret::new(*b"sixteen bytes or more").unwrap()),
//!         limits: CallLimits::default(),
//!     })
//! };
//! let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
//! // node-2 answers
//! let front_end = RpcFrontEnd::new(settings("node-2"), Arc::new(Handler))?;
//! let listener = runtime.block_on(front_end.listen(([127, 0, 0, 1], 0).into()))?;
//! let address = listener.address().to_string();
//! let _gateway = {
//!     let _context = runtime.enter();
//!     Gateway::start(vec![listener], Arc::new(Metrics::default()))
//! };
//! // node-1 asks, from a thread that waits
//! let peers = Peers::new(settings("node-1"), runtime.handle().clone())?;
//! let peer = peers.client("node-2", &address)?;
//! let request = CallRequest {
//!     kind: LENGTH,
//!     partition: PartitionId(3),
//!     epoch: 17,
//!     timeout: Duration::from_secs(5),
//!     payload: "four".into(),
//! };
//! assert_eq!(peer.call_blocking(request.clone())?, Reply::Payload("4".into()));
//! let elsewhere = CallRequest { partition: PartitionId(9), ..request.clone() };
//! let owner = Some("node-3".to_owned());
//! assert_eq!(peer.call_blocking(elsewhere)?, Reply::NotOwner { epoch: 17, owner });
//! let mut replies = peer.stream_blocking(request)?;
//! assert_eq!(replies.next_blocking().unwrap()?, Reply::Payload("f".into()));
//! # Ok::<(), tidemill_types::Error>(())
//! ```
//!
//! [`RpcFrontEnd`] is a protocol of the gateway, which accepts, encrypts, limits and drains its connections. A [`PeerClient`] calls one
//! other node; [`Peers`] has one for each. Payloads are opaque: the engine defines kinds and contents, and implements [`CallHandler`].
//!
//! # A call
//!
//! A caller waits for its turn if too many calls are under way ([`CallLimits`]), and for a connection if it has to be opened. The request
//! carries the time that is left, and the handler is dropped when that is over, when the caller is, and when the connection breaks.
//! [`CallError`] says whether a call without a reply may have been executed, because only the caller knows what may happen twice.
//!
//! # A connection
//!
//! Before the first call, both nodes prove who they are ([`Security`]), and find out whether they belong together: cluster, names,
//! protocols. Both sides log why they do not. A sign of life is asked for after each second of silence.
//!
//! [RFC 28](../../../docs/rfcs/0028-calls-between-nodes.md) has the reasons. The crate does not know the engine.

mod call;
mod client;
mod limits;
mod message;
mod node;
mod secret;
mod security;
mod server;

pub use call::{CallError, CallHandler, CallRequest, IncomingCall, PeerIdentity, Reply};
pub use client::{PeerClient, Peers, ReplyStream};
pub use limits::CallLimits;
pub use node::{NodeIdentity, NodeSettings};
pub use secret::Secret;
pub use security::{CertificateFiles, Security};
pub use server::{PROTOCOL, RpcFrontEnd};
