//! The source: messages of a folder, read over IMAP.

use std::sync::Arc;
use std::time::Duration;

use async_imap::error::Error as ImapError;
use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use mail_parser::{HeaderValue, MessageParser};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType, parse_duration,
};
use tidemill_tls::Authorities;
use tidemill_types::Result;

use super::Security;
use super::connection::{ImapServer, ImapSession};
use super::search::{SearchTerm, encode_folder};

/// Bytes of a message that are read. The text is at the beginning; attachments behind it are of no use here.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;
/// Messages that are read at once.
const FETCH_MESSAGES: usize = 16;
/// Intervals above it end the session between polls: servers and routers drop silent connections.
const KEEP_SESSION_MAX: Duration = Duration::from_secs(60);

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("username", "User of the mailbox.").required(),
    OptionSpec::text("password", "Password of the user.").required().secret(),
    OptionSpec::one_of("store", &["imap"], "Protocol of the server; POP3 has no ids from which to continue.")
        .default("imap"),
    OptionSpec::text("host", "Host of the IMAP server.").default("imap.gmail.com"),
    OptionSpec::integer(
        "port",
        1,
        65535,
        "Port of the IMAP server; by default 993, and 143 with ssl.enable='false'.",
    ),
    super::SSL_ENABLE,
    super::STARTTLS,
    super::CA_FILE,
    OptionSpec::text("folder", "Folder that is read.").default("INBOX"),
    OptionSpec::text(
        "search.term",
        "Conditions for messages, such as `subject:alarm, from:name@`: subject, from, to, cc and bcc contain the \
         value; a value with `@` is a whole name, domain or address.",
    ),
    OptionSpec::text(
        "polling.interval",
        "Seconds between looks into the folder, or a time such as `500 ms`.",
    )
    .default("600"),
    OptionSpec::one_of(
        "action.after.processed",
        &["none", "seen", "flagged", "answered", "delete", "move"],
        "What happens to a message when its events are durable.",
    )
    .default("none"),
    OptionSpec::text("folder.to.move", "Folder of action.after.processed='move'; it is created if missing."),
    OptionSpec::one_of(
        "content.type",
        &["text/plain", "text/html"],
        "Form in which the text of a message is wanted; the other form is converted.",
    )
    .default("text/plain"),
];

/// Type of the source.
pub(crate) struct EmailSourceType;

impl SourceType for EmailSourceType {
    fn name(&self) -> &'static str {
        "email"
    }

    fn summary(&self) -> &'static str {
        "Reads the messages of a mail folder over IMAP."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let interval = options.text("polling.interval").trim();
        let interval = match interval.parse::<u32>() {
            Ok(seconds) => Some(Duration::from_secs(seconds.into())),
            Err(_) => parse_duration(interval),
        };
        let interval = interval.filter(|interval| !interval.is_zero()).ok_or_else(|| {
            let message = "expected a number of seconds above 0 or a time such as `500 ms`";
            OptionError::option("polling.interval", message)
        })?;
        let action = match (
            options.text("action.after.processed").to_ascii_lowercase().as_str(),
            options.get("folder.to.move"),
        ) {
            ("none", _) => None,
            ("seen", _) => Some(Action::Flag("\\Seen")),
            ("flagged", _) => Some(Action::Flag("\\Flagged")),
            ("answered", _) => Some(Action::Flag("\\Answered")),
            ("delete", _) => Some(Action::Delete),
            (_, Some(folder)) => Some(Action::Move(encode_folder(folder))),
            (_, None) => {
                let message = "action.after.processed='move' needs the option `folder.to.move`";
                return Err(OptionError::connector(message).expected(["folder.to.move='…'"]));
            }
        };
        let term = SearchTerm::parse(options.text("search.term"))
            .map_err(|e| OptionError::option("search.term", e))?;
        let authorities = super::ca_file(options, context)?;
        let authorities = authorities.map_or(Authorities::System, Authorities::SystemAnd);
        let security = Security::of(options);
        let default_port = if security == Security::Tls { 993 } else { 143 };
        Ok(Box::new(EmailSource {
            server: ImapServer {
                host: options.text("host").to_owned(),
                port: options.integer("port").map_or(default_port, |port| port as u16),
                security,
                authorities,
                user: options.text("username").to_owned(),
                password: options.text("password").to_owned(),
            },
            folder: options.text("folder").to_owned(),
            term,
            interval,
            action,
            wants_html: options.text("content.type").eq_ignore_ascii_case("text/html"),
            unfinished: vec![],
        }))
    }
}

/// Action on a message once its events are durable.
enum Action {
    Flag(&'static str),
    Delete,
    Move(String),
}

struct EmailSource {
    server: ImapServer,
    folder: String,
    term: SearchTerm,
    interval: Duration,
    action: Option<Action>,
    wants_html: bool,
    /// Messages, with the validity of their UIDs, whose events are durable and whose action is not done.
    unfinished: Vec<(u32, u32)>,
}

#[async_trait]
impl SourceConnector for EmailSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        loop {
            let mut session = self.server.log_in().await?;
            if let Some(Action::Move(folder)) = &self.action {
                // the answer NO means that the folder exists; if it means anything else, the move will say so
                match self
                    .server
                    .answer("cannot create the folder", async { Ok(session.create(folder).await) })
                    .await?
                {
                    Ok(()) | Err(ImapError::No(_)) => {}
                    Err(e) => return Err(self.server.failed("cannot create the folder", e)),
                }
            }
            loop {
                self.poll(&mut session, output).await?;
                output.report_connected();
                if self.interval > KEEP_SESSION_MAX {
                    break;
                }
                tokio::time::sleep(self.interval).await;
            }
            // whatever becomes of it, the session is over
            let _ = self.server.answer("cannot log out", session.logout()).await;
            tokio::time::sleep(self.interval).await;
        }
    }
}

impl EmailSource {
    /// Hands over the messages that arrived since the last poll.
    async fn poll(&mut self, session: &mut ImapSession, output: &SourceOutput) -> Result<()> {
        let server = &self.server;
        let what = format!("cannot open the folder `{}`", self.folder);
        let selected = server.answer(&what, session.select(encode_folder(&self.folder))).await?;
        // UIDs count from 1 and never mean another message while the validity stays the same
        let validity = selected
            .uid_validity
            .ok_or_else(|| server.failed(&what, "the server has no UIDVALIDITY, so messages have no ids"))?;
        self.finish(session, validity).await?;
        let split: Arc<str> = format!("{}#{validity}", self.folder).into();
        let next = output.position(&split).unwrap_or(1);
        let found =
            self.server.answer("the search failed", session.uid_search(self.term.query(next))).await?;
        // a search for `7:*` also finds the last message below 7
        let mut uids: Vec<u32> = found.into_iter().filter(|uid| u64::from(*uid) >= next).collect();
        uids.sort_unstable();
        for uids in uids.chunks(FETCH_MESSAGES) {
            let (messages, read) = self.fetch(session, uids).await?;
            let position = u64::from(uids[uids.len() - 1]) + 1;
            let pending = output.send_split(&split, messages, position).await?;
            if self.action.is_some() {
                pending.wait().await?;
                self.unfinished.extend(read.iter().map(|uid| (validity, *uid)));
                self.finish(session, validity).await?;
            }
        }
        Ok(())
    }

    /// Reads messages. Returns those that match, and their UIDs, in order.
    async fn fetch(&self, session: &mut ImapSession, uids: &[u32]) -> Result<(Vec<Message>, Vec<u32>)> {
        let query = format!("(UID BODY.PEEK[]<0.{MESSAGE_BYTES_MAX}>)");
        let fetching = async { session.uid_fetch(uid_set(uids), query).await?.try_collect::<Vec<_>>().await };
        let mut fetched = self.server.answer("cannot read messages", fetching).await?;
        fetched.sort_by_key(|one| one.uid);
        let (mut messages, mut read) = (vec![], vec![]);
        for one in &fetched {
            // servers may report changed flags of other messages in between
            let (Some(uid), Some(body)) = (one.uid, one.body()) else { continue };
            if !uids.contains(&uid) {
                continue;
            }
            let Some(parsed) = MessageParser::default().parse(body) else {
                messages.push(Message {
                    payload: Bytes::copy_from_slice(body),
                    number: uid.into(),
                    ..Message::default()
                });
                read.push(uid);
                continue;
            };
            if self.term.matches(&parsed) {
                messages.push(self.message(&parsed, uid));
                read.push(uid);
            }
        }
        Ok((messages, read))
    }

    fn message(&self, parsed: &mail_parser::Message<'_>, uid: u32) -> Message {
        let text = if self.wants_html { parsed.body_html(0) } else { parsed.body_text(0) };
        // line ends of e-mail are CR LF, and the text of a part ends with one
        let text = text.unwrap_or_default().replace("\r\n", "\n");
        let mut properties =
            vec![("uid".to_owned(), uid.to_string()), ("folder".to_owned(), self.folder.clone())];
        for (header, (name, raw)) in parsed.headers().iter().zip(parsed.headers_raw()) {
            let value = match &header.value {
                HeaderValue::Text(text) => text.trim().to_owned(),
                _ => raw.split_whitespace().collect::<Vec<_>>().join(" "),
            };
            properties.push((name.to_owned(), value));
        }
        Message {
            payload: Bytes::from(text.trim_end_matches('\n').to_owned()),
            properties,
            number: uid.into(),
            ..Message::default()
        }
    }

    /// Does to messages what is wanted after their events are durable.
    async fn finish(&mut self, session: &mut ImapSession, validity: u32) -> Result<()> {
        // a folder with other UIDs does not have these messages any more
        self.unfinished.retain(|(of, _)| *of == validity);
        let (Some(action), false) = (&self.action, self.unfinished.is_empty()) else { return Ok(()) };
        let set = uid_set(&self.unfinished.iter().map(|(_, uid)| *uid).collect::<Vec<_>>());
        let acting = async {
            match action {
                Action::Flag(flag) => store(session, &set, flag).await,
                Action::Delete => delete(session, &set).await,
                Action::Move(folder) => {
                    if session.capabilities().await?.has_str("MOVE") {
                        return session.uid_mv(&set, folder).await;
                    }
                    session.uid_copy(&set, folder).await?;
                    delete(session, &set).await
                }
            }
        };
        self.server.answer("cannot change messages", acting).await?;
        self.unfinished.clear();
        Ok(())
    }
}

async fn store(session: &mut ImapSession, set: &str, flag: &str) -> Result<(), ImapError> {
    session.uid_store(set, format!("+FLAGS.SILENT ({flag})")).await?.try_collect::<Vec<_>>().await.map(drop)
}

/// Deletes messages; a server without UIDPLUS also removes others that are marked as deleted.
async fn delete(session: &mut ImapSession, set: &str) -> Result<(), ImapError> {
    store(session, set, "\\Deleted").await?;
    match session.capabilities().await?.has_str("UIDPLUS") {
        true => session.uid_expunge(set).await?.try_collect::<Vec<_>>().await.map(drop),
        false => session.expunge().await?.try_collect::<Vec<_>>().await.map(drop),
    }
}

fn uid_set(uids: &[u32]) -> String {
    uids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
