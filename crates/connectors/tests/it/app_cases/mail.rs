//! Mailboxes behind an SMTP server.

use std::fs;
use std::path::Path;

use super::ends::{End, Server};
use crate::servers::OwnServer;

/// Mail server without encryption.
pub struct Mail(pub Server);

impl End for Mail {
    fn variables(&self) -> Vec<(&'static str, String)> {
        let url = url::Url::parse(&self.0.address("SERVERS_SMTP")).unwrap();
        vec![("SMTP_HOST", url.host_str().unwrap().into()), ("SMTP_PORT", url.port().unwrap().to_string())]
    }

    /// Returns subject and text of each message of a user, in order of these, because mailboxes have no order.
    fn read(&mut self, user: &str) -> Vec<String> {
        let directory = self.0.address("SERVERS_MAIL_STORE");
        let Ok(entries) = fs::read_dir(Path::new(&directory).join(user).join("new")) else { return vec![] };
        let message = |path: &Path| {
            let bytes = fs::read(path).unwrap();
            let message = mail_parser::MessageParser::default().parse(&bytes).unwrap();
            let (subject, text) = (message.subject().unwrap_or_default(), message.body_text(0));
            format!("{subject}: {}", text.unwrap_or_default().trim().replace("\r\n", " / "))
        };
        let mut messages: Vec<String> = entries.map(|entry| message(&entry.unwrap().path())).collect();
        messages.sort();
        messages
    }

    fn server(&self) -> Option<&OwnServer> {
        self.0.own()
    }
}
