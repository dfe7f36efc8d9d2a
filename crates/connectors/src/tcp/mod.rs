//! TCP: the binary protocol of Siddhi's load generators and sinks, lines, or messages behind their length.

mod frame;
mod sink;
mod source;

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tidemill_connect::Catalog;
use tokio::net::TcpStream;

/// Port that Siddhi's sources listen on.
const DEFAULT_PORT: &str = "9892";
/// Silence after which the operating system asks whether the other side still lives, and between its questions.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(10));

/// Adds the source and the sink.
pub(crate) fn add(catalog: &mut Catalog) {
    catalog.add_source(source::TcpSourceType).add_sink(sink::TcpSinkType);
}

/// Sets the options of a connection. One that refuses them works without.
fn configure(stream: &TcpStream, no_delay: bool, keep_alive: bool) {
    let (time, interval) = KEEP_ALIVE;
    let keep = TcpKeepalive::new().with_time(time).with_interval(interval);
    let set = stream.set_nodelay(no_delay);
    let set = set.and_then(|()| match keep_alive {
        true => SockRef::from(stream).set_tcp_keepalive(&keep),
        false => Ok(()),
    });
    if let Err(e) = set {
        tracing::debug!(error = %e, "options of a TCP connection are not set");
    }
}
