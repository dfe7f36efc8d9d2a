//! Methods, as URLs name them: `grpc://host:port/service/method`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill_connect::{OptionError, Options};
use url::Url;

use super::message::MessageForm;

/// Names of the service `EventService`. The first is the one that users write; what goes over the wire was another one in
/// some versions of SiddhiQL's connectors.
const EVENT_SERVICES: [&str; 3] =
    ["org.wso2.grpc.EventService", "org.wso2.grpc.eventservice.EventService", "eventservice.EventService"];
/// The name without package, which users may write too.
const EVENT_SERVICE: &str = "EventService";

/// A method of a server.
#[derive(Debug, Clone)]
pub(super) struct GrpcMethod {
    pub(super) host: String,
    pub(super) port: u16,
    /// Names that the service may have.
    services: Vec<String>,
    /// Index of the name that the server knows, as far as it is known.
    service: Arc<AtomicUsize>,
    name: String,
    /// Sequence that the receiver should run, a header of events.
    pub(super) sequence: Option<String>,
    pub(super) form: MessageForm,
}

impl GrpcMethod {
    /// Reads the URL in `option`. `event_method` is the method that the connector needs if the service is `EventService`.
    ///
    /// Errors: what is wrong with the URL.
    pub(super) fn of(
        options: &Options,
        option: &'static str,
        event_method: &str,
    ) -> Result<Self, OptionError> {
        Self::parse(options.text(option), event_method).map_err(|e| {
            let example = format!("{option}='grpc://localhost:8888/{}/{event_method}'", EVENT_SERVICES[0]);
            OptionError::option(option, e).expected([example])
        })
    }

    fn parse(text: &str, event_method: &str) -> Result<Self, String> {
        let url = Url::parse(text.trim()).map_err(|e| format!("not a URL: {e}"))?;
        if url.scheme() != "grpc" {
            return Err(format!("unknown scheme `{}`", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL has a user name; use metadata=\"'authorization:Basic …'\"".into());
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("the URL has no host")?;
        let port = url.port().ok_or("the URL has no port")?;
        let parts: Vec<&str> = url.path().trim_start_matches('/').split('/').collect();
        if let Some(wrong) = parts.iter().find(|part| !is_name(part)) {
            return Err(match wrong.is_empty() {
                true => "the path has an empty part".to_owned(),
                false => format!("`{wrong}` is no name of a service or method"),
            });
        }
        let (service, name, sequence) = match parts.as_slice() {
            [sequence] => (EVENT_SERVICES[0], event_method, Some((*sequence).to_owned())),
            [service, name] => (*service, *name, None),
            [service, name, sequence] => (*service, *name, Some((*sequence).to_owned())),
            _ => return Err("the path has more than a service, a method and a sequence".into()),
        };
        let is_event_service = service == EVENT_SERVICE || EVENT_SERVICES.contains(&service);
        if is_event_service && name != event_method {
            return Err(format!("the method of EventService is `{event_method}` here, not `{name}`"));
        }
        if !is_event_service && sequence.is_some() {
            return Err("only EventService has sequences".into());
        }
        let mut services = vec![service.to_owned()];
        if is_event_service {
            services = EVENT_SERVICES.map(str::to_owned).to_vec();
            // the name that is written is tried first
            services.sort_by_key(|name| name != service);
        }
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            services,
            service: Arc::default(),
            name: name.to_owned(),
            sequence,
            form: if is_event_service { MessageForm::Event } else { MessageForm::Raw },
        })
    }

    /// Returns all paths of the method.
    pub(super) fn paths(&self) -> Vec<String> {
        self.services.iter().map(|service| format!("/{service}/{}", self.name)).collect()
    }

    /// Returns the path that is called.
    pub(super) fn path(&self) -> String {
        let index = self.service.load(Ordering::Relaxed).min(self.services.len() - 1);
        format!("/{}/{}", self.services[index], self.name)
    }

    /// Notes that the server does not know `path`, so that another one is called. Returns whether there is another one.
    pub(super) fn is_unknown(&self, path: &str) -> bool {
        let unknown = self.paths().iter().position(|known| known == path).unwrap_or_default();
        self.service.store((unknown + 1) % self.services.len(), Ordering::Relaxed);
        self.services.len() > 1
    }
}

impl std::fmt::Display for GrpcMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "grpc://{host}:{}{}", self.port, self.path())
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_methods() {
        for (url, expected) in [
            (
                "grpc://localhost:8888/org.wso2.grpc.EventService/consume",
                "/org.wso2.grpc.EventService/consume Event",
            ),
            ("grpc://a:1/EventService/consume", "/org.wso2.grpc.EventService/consume Event"),
            ("grpc://a:1/EventService/consume/seq", "/org.wso2.grpc.EventService/consume Event seq"),
            ("grpc://a:1/seq", "/org.wso2.grpc.EventService/consume Event seq"),
            ("grpc://[::1]:1/eventservice.EventService/consume", "/eventservice.EventService/consume Event"),
            ("grpc://a:1/shop.Orders/Send", "/shop.Orders/Send Raw"),
        ] {
            let method = GrpcMethod::parse(url, "consume").unwrap();
            let found =
                format!("{} {:?} {}", method.path(), method.form, method.sequence.unwrap_or_default());
            assert_eq!(found.trim(), expected, "{url}");
        }
        for (url, expected) in [
            ("http://a:1/b/c", "unknown scheme `http`"),
            ("grpc://a/b/c", "no port"),
            ("grpc://a:1", "empty part"),
            ("grpc://a:1/b//c", "empty part"),
            ("grpc://a:1/b/c/d", "only EventService has sequences"),
            ("grpc://a:1/b/c/d/e", "more than a service"),
            ("grpc://a:1/b/ü", "no name of a service or method"),
            ("grpc://u:p@a:1/b/c", "has a user name"),
            ("grpc://a:1/EventService/process", "is `consume` here, not `process`"),
        ] {
            let found = GrpcMethod::parse(url, "consume").unwrap_err();
            assert!(found.contains(expected), "{url}: {found}");
        }
    }

    #[test]
    fn a_server_may_know_another_name() {
        let method = GrpcMethod::parse("grpc://a:1/EventService/consume", "consume").unwrap();
        let mut tried = vec![];
        for _ in 0..3 {
            tried.push(method.path());
            assert!(method.is_unknown(&tried[tried.len() - 1]));
        }
        assert_eq!(tried, method.paths());
        assert_eq!(method.path(), tried[0]);
    }
}
