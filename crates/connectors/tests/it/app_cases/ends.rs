//! The other ends of the connectors of an app: its servers, files and clients.

use std::collections::BTreeMap;
use std::path::Path;

use super::case::Case;
use super::{brokers, databases, files, kafka, mail, redis, tcp, web};
use crate::servers::{self, OwnServer, SharedServer};

/// One end. `to` and `from` are what it has: topics, queues, tables, files.
pub trait End {
    /// Returns the variables with its address.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// Makes what must be there before the app starts.
    fn create(&mut self, what: &str) {
        panic!("`create` makes no {what} here");
    }

    /// Sends a message for each line.
    fn send(&mut self, to: &str, _lines: &[String]) {
        panic!("nothing can be sent to {to} here");
    }

    /// Returns what is there, a line for each message or row.
    fn read(&mut self, from: &str) -> Vec<String> {
        panic!("{from} cannot be read here");
    }

    /// Returns the server that the end is, if there is one that can be stopped.
    fn server(&self) -> Option<&OwnServer> {
        None
    }
}

/// Server at an end.
pub enum Server {
    Shared(SharedServer),
    /// A server that the case stops and starts.
    Own(OwnServer),
}

impl Server {
    fn start(name: &'static str, case: &Case) -> Option<Self> {
        match case.stops(name) {
            true => servers::own(name).map(Self::Own),
            false => servers::shared(name).map(Self::Shared),
        }
    }

    pub fn address(&self, variable: &str) -> String {
        match self {
            Self::Shared(server) => server.address(variable).into(),
            Self::Own(server) => server.address(variable).into(),
        }
    }

    pub fn own(&self) -> Option<&OwnServer> {
        match self {
            Self::Shared(_) => None,
            Self::Own(server) => Some(server),
        }
    }
}

/// Ends of a case by name.
pub struct Ends(BTreeMap<&'static str, Box<dyn End>>);

impl Ends {
    /// Opens the ends whose variables `text` has. `None`, with a message, if a server cannot be had.
    pub fn open(text: &str, case: &Case, dir: &Path) -> Option<Self> {
        let mut ends: BTreeMap<&'static str, Box<dyn End>> = BTreeMap::new();
        ends.insert("file", Box::new(files::Files::new(dir)));
        let uses = |variable: &str| text.contains(&format!("${{{variable}"));
        if uses("KAFKA") {
            ends.insert("kafka", Box::new(kafka::Kafka(Server::start("kafka", case)?)));
        }
        if uses("MQTT") {
            ends.insert("mqtt", Box::new(brokers::Mqtt(Server::start("mosquitto", case)?)));
        }
        if uses("RABBITMQ") {
            ends.insert("rabbitmq", Box::new(brokers::RabbitMq::new(Server::start("rabbitmq", case)?)));
        }
        if uses("NATS") {
            ends.insert("nats", Box::new(brokers::Nats(Server::start("nats", case)?)));
        }
        if uses("REDIS") {
            ends.insert("redis", Box::new(redis::Redis(Server::start("redis", case)?)));
        }
        for (name, variable) in [("postgres", "POSTGRES"), ("mariadb", "MARIADB")] {
            if uses(variable) {
                ends.insert(name, Box::new(databases::Database::open(name, variable)?));
            }
        }
        if uses("SQLITE") {
            ends.insert("sqlite", Box::new(databases::Database::file(dir, "SQLITE")));
        }
        if uses("SMTP") {
            ends.insert("mail", Box::new(mail::Mail(Server::start("smtp", case)?)));
        }
        if uses("HTTP") {
            ends.insert("http", Box::new(web::Web::start()));
        }
        if uses("TCP") {
            ends.insert("tcp", Box::new(tcp::Tcp::new()));
        }
        Some(Self(ends))
    }

    /// Returns the variables with the addresses that `text` uses.
    pub fn variables(&self, text: &str) -> Vec<(String, String)> {
        let all = self.0.values().flat_map(|end| end.variables());
        all.filter(|(name, _)| text.contains(&format!("${{{name}}}")))
            .map(|(name, value)| (name.into(), value))
            .collect()
    }

    pub fn get(&mut self, name: &str) -> &mut dyn End {
        let known: Vec<&str> = self.0.keys().copied().collect();
        match self.0.get_mut(name) {
            Some(end) => end.as_mut(),
            None => panic!("the app has no end {name}, but {known:?}"),
        }
    }
}
