//! All listeners of a process: start, problems and drain.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidemill_types::open_files;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::accepting;
use crate::listener::Listener;
use crate::metrics::Metrics;
use crate::tls::ServerTls;

/// Listeners among which file handles are shared at least: a process that has one may get another one later.
const LISTENERS_MIN: usize = 2;

/// Running listeners. Dropping it without [`Gateway::shutdown`] closes all connections at once.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<SocketAddr>,
    /// The grace period, once a shutdown begins.
    stop: watch::Sender<Option<Duration>>,
    /// One for each listener; each returns the number of connections that were cut.
    tasks: JoinSet<usize>,
    problems: Problems,
}

impl Gateway {
    /// Begins to accept connections. Must be called inside a tokio runtime with time and I/O enabled.
    pub fn start(listeners: Vec<Listener>, metrics: Arc<Metrics>) -> Self {
        let share_of = listeners.len().max(LISTENERS_MIN);
        let (stop, stopped) = watch::channel(None);
        let addresses = listeners.iter().map(Listener::address).collect();
        let certificates = listeners.iter().filter_map(|listener| {
            let name = format!("{} at {}", listener.front_end.protocol(), listener.address);
            Some((name, Arc::downgrade(listener.tls.as_ref()?)))
        });
        let problems = Problems(certificates.collect());
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let (protocol, address) = (listener.front_end.protocol(), listener.address);
            let encrypted = listener.has_certificate();
            let connections_max = open_files::connections_max(listener.connections_max, share_of);
            tracing::info!(%address, protocol, encrypted, connections_max, "clients can connect");
            tasks.spawn(accepting::run(
                listener,
                connections_max,
                metrics.protocol(protocol),
                stopped.clone(),
            ));
        }
        Self { addresses, stop, tasks, problems }
    }

    /// Returns the addresses of the listeners in their order, with the ports that were selected.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the problems of the listeners, which can be asked as long as somebody wants to.
    pub fn problems(&self) -> Problems {
        self.problems.clone()
    }

    /// Stops in order: accepts no more connections and requests, waits at most `grace` for requests in progress, and closes the rest.
    /// Returns the number of connections that were cut off.
    pub async fn shutdown(mut self, grace: Duration) -> usize {
        // sending fails only if all tasks have ended, and then there is nothing to stop
        let _ = self.stop.send(Some(grace));
        let mut cut = 0;
        while let Some(ended) = self.tasks.join_next().await {
            cut += ended.unwrap_or(0);
        }
        cut
    }
}

/// Problems of the listeners of a [`Gateway`].
#[derive(Debug, Clone)]
pub struct Problems(Vec<(String, Weak<ServerTls>)>);

impl Problems {
    /// Returns present problems, each with the protocol and the address of its listener: files of a certificate that cannot be used.
    pub fn present(&self) -> Vec<String> {
        let problem = |(name, tls): &(String, Weak<ServerTls>)| {
            tls.upgrade()?.problem().map(|problem| format!("{name}: {problem}"))
        };
        self.0.iter().filter_map(problem).collect()
    }
}
