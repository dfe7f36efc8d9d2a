//! A connection that ends when the server goes away, so that the caller decides when to connect again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_nats::jetstream::{self, stream};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use tidemill_types::{Error, Result};
use tokio::sync::watch;

use super::options::{LoginMethod, NatsSettings};

/// Messages of a subscription that may wait in the client; later ones are lost.
pub(super) const SUBSCRIPTION_MESSAGES: usize = 65_536;

/// Connection to a server.
pub(super) struct NatsConnection {
    pub client: Client,
    /// Why the connection does not work any more.
    problem: watch::Receiver<Option<String>>,
    /// Messages that the client dropped because they were not taken in time.
    dropped: Arc<AtomicU64>,
    addresses: String,
}

impl NatsConnection {
    /// Connects to one of the servers.
    pub(super) async fn open(settings: &NatsSettings) -> Result<Self> {
        let (sender, problem) = watch::channel(None);
        let dropped = Arc::new(AtomicU64::new(0));
        let count = dropped.clone();
        let mut options = ConnectOptions::new()
            .name(&settings.client_name)
            .connection_timeout(settings.connect_timeout)
            .ping_interval(settings.ping_interval)
            .subscription_capacity(SUBSCRIPTION_MESSAGES)
            // enough to try each server once; after that a new connection is opened
            .max_reconnects(settings.servers.len())
            .require_tls(settings.requires_tls)
            .event_callback(move |event| {
                let problem = match event {
                    Event::Disconnected | Event::Closed => Some("the connection was lost".to_owned()),
                    Event::ServerError(e) => Some(e.to_string()),
                    Event::ClientError(e) => Some(e.to_string()),
                    Event::SlowConsumer(_) => {
                        count.fetch_add(1, Ordering::Relaxed);
                        None
                    }
                    Event::Connected | Event::LameDuckMode | Event::Draining => None,
                };
                if let Some(problem) = problem {
                    // the first one is the cause of others
                    sender.send_if_modified(|first| {
                        let is_first = first.is_none();
                        first.get_or_insert(problem);
                        is_first
                    });
                }
                async {}
            });
        options = match &settings.login {
            LoginMethod::Anonymous => options,
            LoginMethod::User(user, password) => options.user_and_password(user.clone(), password.clone()),
            LoginMethod::Token(token) => options.token(token.clone()),
        };
        if let Some(tls) = &settings.tls {
            options = options.tls_client_config(tls.clone());
        }
        let addresses = settings.addresses.clone();
        match options.connect(settings.servers.clone()).await {
            Ok(client) => Ok(Self { client, problem, dropped, addresses }),
            Err(e) => {
                let why = match e.kind() {
                    ConnectErrorKind::AuthorizationViolation => {
                        "the server refuses the login; check `username`, `password` or `token`".to_owned()
                    }
                    _ => e.to_string(),
                };
                Err(unavailable(&addresses, &why))
            }
        }
    }

    /// Waits until the connection fails, and returns why.
    pub(super) async fn failure(&self) -> Error {
        let mut problem = self.problem.clone();
        let why = match problem.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "the connection ended".to_owned(),
        };
        self.unavailable(&why)
    }

    /// Returns the result of `work`, unless the connection fails before.
    pub(super) async fn with<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            failure = self.failure() => Err(failure),
            done = work => done,
        }
    }

    /// Returns the number of messages that were lost since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Returns an error that says where.
    pub(super) fn unavailable(&self, why: &str) -> Error {
        unavailable(&self.addresses, why)
    }

    /// Returns the name of the stream that has `subject`, creating the stream if needed.
    pub(super) async fn stream_name(
        &self,
        context: &jetstream::Context,
        named: Option<&str>,
        subject: &str,
    ) -> Result<String> {
        if let Some(name) = named {
            let created = context.get_or_create_stream(stream_config(name, subject)).await;
            return match created {
                Ok(_) => Ok(name.to_owned()),
                Err(e) => Err(self.unavailable(&format!("the stream `{name}` cannot be had: {e}"))),
            };
        }
        match self.find_stream(context, subject).await? {
            Some(name) => Ok(name),
            None => {
                let name: String =
                    subject.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
                match context.create_stream(stream_config(&name, subject)).await {
                    Ok(_) => Ok(name),
                    Err(e) => {
                        Err(self.unavailable(&format!("no stream for `{subject}` can be created: {e}")))
                    }
                }
            }
        }
    }

    /// Returns the name of the stream that has `subject`, or `None` if no stream has it.
    pub(super) async fn find_stream(
        &self,
        context: &jetstream::Context,
        subject: &str,
    ) -> Result<Option<String>> {
        use jetstream::context::GetStreamByNameErrorKind;
        match context.stream_by_subject(subject).await {
            Ok(name) => Ok(Some(name)),
            Err(e) if e.kind() == GetStreamByNameErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.unavailable(&format!("JetStream does not answer: {e}"))),
        }
    }
}

fn stream_config(name: &str, subject: &str) -> stream::Config {
    stream::Config { name: name.to_owned(), subjects: vec![subject.to_owned()], ..stream::Config::default() }
}

fn unavailable(addresses: &str, why: &str) -> Error {
    Error::unavailable(format!("NATS at {addresses}: {why}"))
}
