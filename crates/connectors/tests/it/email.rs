//! E-mail over real servers: a sink sends over SMTP, a source reads over IMAP what arrived.

use std::fs;
use std::path::{Path, PathBuf};

use tidemill_types::FieldType;
use url::Url;

use crate::helpers::{deliver, deliver_all, sink, sink_error, source_error, wait_until};
use crate::positioned::{PositionedSource, mapped};
use crate::servers::{self, SharedServer};

const FIELDS: &[(&str, FieldType)] = &[("text", FieldType::String), ("n", FieldType::Long)];

/// Both servers, with the options that reach them.
struct Mail {
    smtp: SharedServer,
    imap: SharedServer,
}

impl Mail {
    fn start() -> Option<Self> {
        Some(Self { smtp: servers::shared("smtp")?, imap: servers::shared("imap")? })
    }

    fn ca(&self) -> &str {
        self.imap.address("SERVERS_MAIL_CA")
    }

    fn smtp_port(&self, variable: &str) -> String {
        Url::parse(self.smtp.address(variable)).unwrap().port().unwrap().to_string()
    }

    fn imap_port(&self, variable: &str) -> String {
        Url::parse(self.imap.address(variable)).unwrap().port().unwrap().to_string()
    }

    /// Returns the messages of a user that are in a folder of the Maildir.
    fn stored(&self, user: &str, folder: &str) -> Vec<PathBuf> {
        let user = Path::new(self.smtp.address("SERVERS_MAIL_STORE")).join(user).join(folder);
        let mut files = vec![];
        for part in ["new", "cur"] {
            let Ok(entries) = fs::read_dir(user.join(part)) else { continue };
            files.extend(entries.map(|entry| entry.unwrap().path()));
        }
        files.sort();
        files
    }

    fn source(&self, user: &str, options: &[(&str, &str)], attributes: &[&str]) -> PositionedSource {
        let port = self.imap_port("SERVERS_IMAP");
        let common = [
            ("host", "127.0.0.1"),
            ("port", port.as_str()),
            ("ssl.enable", "false"),
            ("ssl.ca.location", self.ca()),
            ("username", user),
            ("password", "tidemill"),
            ("polling.interval", "50 ms"),
        ];
        let config = mapped("email", &[&common, options].concat(), "json", attributes);
        PositionedSource::open(FIELDS, config, Path::new("."))
    }
}

fn sender<'a>(port: &'a str, ca: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("host", "127.0.0.1"),
        ("port", port),
        ("ssl.enable", "false"),
        ("ssl.ca.location", ca),
        ("address", "Tide Mill <mill@example.com>"),
        ("username", "mill"),
        ("password", "tidemill"),
    ]
}

#[test]
fn a_message_has_what_the_options_say() {
    let Some(mail) = Mail::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("all")).unwrap();
    fs::create_dir(dir.path().join("all/nested")).unwrap();
    for (name, content) in [("all/b.txt", "second"), ("all/a.bin", "first\0"), ("one.txt", "single")] {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let attachments = format!("{0}/one.txt, {0}/all", dir.path().display());
    let port = mail.smtp_port("SERVERS_SMTP");
    let mut options = sender(&port, mail.ca());
    options.extend([
        ("to", "{{text}}@example.com, Second <parts-to@example.com>"),
        ("cc", "parts-cc@example.com"),
        ("bcc", "parts-bcc@example.com"),
        ("subject", "Größe {{n}}\r\nBcc: parts-injected@example.com"),
        ("content.type", "text/html"),
        ("attachments", &attachments),
    ]);
    let mut sink = sink("email", &options);
    let (progress, delivered) = deliver(&mut sink, &[("parts", 7)]);
    delivered.unwrap();
    assert_eq!((progress.delivered, progress.refused.len()), (1, 0));
    for user in ["parts", "parts-to", "parts-cc", "parts-bcc"] {
        assert_eq!(mail.stored(user, "").len(), 1, "{user}");
    }
    assert!(mail.stored("parts-injected", "").is_empty());
    let stored = fs::read(&mail.stored("parts", "")[0]).unwrap();
    let message = mail_parser::MessageParser::default().parse(&stored).unwrap();
    assert_eq!(message.subject(), Some("Größe 7 Bcc: parts-injected@example.com"));
    assert_eq!(message.from().unwrap().first().unwrap().address(), Some("mill@example.com"));
    assert_eq!(message.header_raw("X-Sender").map(str::trim), Some("mill@example.com"));
    assert!(message.bcc().is_none());
    assert_eq!(message.body_html(0).unwrap(), "{\"event\":{\"text\":\"parts\",\"n\":7}}");
    let attached: Vec<_> = message
        .attachments()
        .map(|part| {
            use mail_parser::MimeHeaders as _;
            (part.attachment_name().unwrap(), part.contents())
        })
        .collect();
    let expected: [(&str, &[u8]); 3] = [("one.txt", b"single"), ("a.bin", b"first\0"), ("b.txt", b"second")];
    assert_eq!(attached, expected);
}

#[test]
fn every_way_of_encryption_works() {
    let Some(mail) = Mail::start() else { return };
    let (plain, tls) = (mail.smtp_port("SERVERS_SMTP"), mail.smtp_port("SERVERS_SMTPS"));
    let (imap, imaps) = (mail.imap_port("SERVERS_IMAP"), mail.imap_port("SERVERS_IMAPS"));
    let cases = [
        ("false", "none", &plain, &imap),
        ("false", "optional", &plain, &imap),
        ("false", "required", &plain, &imap),
        ("true", "none", &tls, &imaps),
    ];
    for (index, (ssl, starttls, smtp_port, imap_port)) in cases.into_iter().enumerate() {
        let options = [
            ("host", "127.0.0.1"),
            ("ssl.enable", ssl),
            ("starttls", starttls),
            ("ssl.ca.location", mail.ca()),
            ("password", "tidemill"),
        ];
        let more = [
            ("port", smtp_port.as_str()),
            ("address", "a@example.com"),
            ("to", "ways@example.com"),
            ("subject", "way"),
        ];
        deliver_all(&mut sink("email", &[&options[..], &more].concat()), &[("way", index as i64)]);
        let more = [("port", imap_port.as_str()), ("username", "ways"), ("polling.interval", "50 ms")];
        let config = mapped("email", &[&options[..], &more].concat(), "json", &[]);
        let mut source = PositionedSource::open(FIELDS, config, Path::new("."));
        assert_eq!(source.poll_rows(index + 1)[index], format!("way|{index}"), "{ssl} {starttls}");
    }

    // a certificate of an authority that is not trusted
    let options =
        [("host", "127.0.0.1"), ("port", tls.as_str()), ("password", "tidemill"), ("address", "a@b.c")];
    let mut untrusting =
        sink("email", &[&options[..], &[("to", "ways@example.com"), ("subject", "x")]].concat());
    let error = deliver(&mut untrusting, &[("a", 1)]).1.unwrap_err();
    assert!(error.kind().is_retryable() && error.to_string().contains("certificate"), "{error}");
    let options = [("host", "127.0.0.1"), ("port", imaps.as_str()), ("password", "x"), ("username", "y")];
    let mut source = PositionedSource::open(FIELDS, mapped("email", &options, "json", &[]), Path::new("."));
    let problem = source.wait_problem();
    assert!(
        problem.contains("cannot encrypt the connection") && problem.contains("certificate"),
        "{problem}"
    );
}

#[test]
fn refused_messages_do_not_stop_the_others() {
    let Some(mail) = Mail::start() else { return };
    let port = mail.smtp_port("SERVERS_SMTP");
    for pool in ["1", "4"] {
        let mut options = sender(&port, mail.ca());
        options.extend([("to", "{{text}}"), ("subject", "news"), ("connection.pool.size", pool)]);
        let mut sink = sink("email", &options);
        let kept = format!("kept{pool}@example.com");
        let (progress, delivered) = deliver(
            &mut sink,
            &[(&kept, 1), ("refused@example.com", 2), ("no address", 3), (&kept, 4), ("", 5), (&kept, 6)],
        );
        delivered.unwrap();
        assert_eq!(progress.delivered, 6);
        let reasons: Vec<_> = progress.refused.iter().map(|r| (r.row, r.reason.as_str())).collect();
        assert_eq!(reasons.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [1, 2, 4]);
        assert!(reasons[0].1.contains("550") || reasons[0].1.contains("no such mailbox"), "{reasons:?}");
        assert!(reasons[1].1.starts_with("`to`: expected addresses"), "{reasons:?}");
        assert_eq!(mail.stored(&format!("kept{pool}"), "").len(), 3);
    }
    let mut options = sender(&port, mail.ca());
    options.extend([("to", "kept@example.com"), ("subject", "{{text}}"), ("attachments", "none.{{n}}")]);
    let (progress, delivered) = deliver(&mut sink("email", &options), &[("a", 1)]);
    delivered.unwrap();
    assert!(progress.refused[0].reason.contains("none.1 cannot be read"), "{progress:?}");
    options.pop();
    let huge = "x".repeat(2 << 20);
    let (progress, delivered) =
        deliver(&mut sink("email", &options), &[("a virus", 1), (&huge, 2), ("a", 3)]);
    delivered.unwrap();
    assert_eq!((progress.delivered, progress.refused.len()), (3, 2));
    assert!(progress.refused[0].reason.contains("not wanted"), "{progress:?}");
    assert_eq!(mail.stored("kept", "").len(), 1);
}

#[test]
fn what_a_server_does_not_take_now_is_sent_again() {
    let Some(mail) = Mail::start() else { return };
    let port = mail.smtp_port("SERVERS_SMTP");
    let mut options = sender(&port, mail.ca());
    options.extend([("to", "{{text}}@example.com"), ("subject", "news")]);
    let mut sink = sink("email", &options);
    let (progress, delivered) = deliver(&mut sink, &[("again", 1), ("later-1", 2), ("again", 3)]);
    let error = delivered.unwrap_err();
    assert_eq!((progress.delivered, progress.refused.len()), (1, 0));
    assert!(error.kind().is_retryable() && error.message().contains("try again later"), "{error}");
    deliver_all(&mut sink, &[("later-1", 2), ("again", 3)]);
    assert_eq!((mail.stored("later-1", "").len(), mail.stored("again", "").len()), (1, 2));

    // the id of a message is that of its event
    let ids = |user: &str| -> Vec<String> {
        let of = |file: PathBuf| {
            let bytes = fs::read(file).unwrap();
            let message = mail_parser::MessageParser::default().parse(&bytes).unwrap();
            message.message_id().unwrap().to_owned()
        };
        mail.stored(user, "").into_iter().map(of).collect()
    };
    deliver_all(&mut sink, &[("twice", 1)]);
    deliver_all(&mut sink, &[("twice", 1)]);
    assert_eq!(ids("twice"), ["0.0.0.app-S@tidemill", "0.0.0.app-S@tidemill"]);

    // a wrong password must not drop events
    let wrong = options.iter().map(|(k, v)| if *k == "password" { (*k, "hunter2") } else { (*k, *v) });
    let (progress, delivered) =
        deliver(&mut self::sink("email", &wrong.collect::<Vec<_>>()), &[("again", 1)]);
    let error = delivered.unwrap_err();
    assert!(error.kind().is_retryable() && progress.delivered == 0, "{error}");
    assert!(error.message().contains("535") || error.message().contains("credentials"), "{error}");
    assert!(!error.to_string().contains("hunter2"));
}

#[test]
fn messages_wait_while_the_server_is_away() {
    let Some(smtp) = servers::own("smtp") else { return };
    let port = Url::parse(smtp.address("SERVERS_SMTP")).unwrap().port().unwrap().to_string();
    let options = [("starttls", "none"), ("auth", "false"), ("subject", "s"), ("to", "away@example.com")];
    let options = [&options[..], &[("host", "127.0.0.1"), ("port", &port), ("ssl.enable", "false")]].concat();
    let mut sink = sink("email", &[&options[..], &[("address", "a@example.com")]].concat());
    deliver_all(&mut sink, &[("a", 1)]);
    smtp.kill();
    let (progress, delivered) = deliver(&mut sink, &[("b", 2)]);
    let error = delivered.unwrap_err();
    assert_eq!(progress.delivered, 0);
    assert!(error.kind().is_retryable(), "{error}");
    assert!(error.message().starts_with(&format!("cannot send with smtp://127.0.0.1:{port}: ")), "{error}");
    smtp.start_again();
    deliver_all(&mut sink, &[("b", 2)]);
    let store = Path::new(smtp.address("SERVERS_MAIL_STORE")).join("away/new");
    assert_eq!(fs::read_dir(store).unwrap().count(), 2);
}

#[test]
fn a_source_reads_every_message_once() {
    let Some(mail) = Mail::start() else { return };
    let port = mail.smtp_port("SERVERS_SMTP");
    let mut options = sender(&port, mail.ca());
    options.extend([("to", "reader@example.com"), ("subject", "number {{n}}")]);
    let mut sink = sink("email", &options);
    let mut source = mail.source("reader", &[], &[]);
    for round in 0..4_i64 {
        // the last round is more than is fetched at once
        let count = if round == 3 { 40 } else { 3 };
        for n in 0..count {
            deliver_all(&mut sink, &[("über", round * 100 + n)]);
        }
        source.poll_rows(source.rows.len() + count as usize);
        source.restart();
    }
    let mut other = mail.source("reader", &[], &["trp:Subject", "trp:uid"]);
    other.poll_rows(49);
    let numbers = [0, 1, 2, 100, 101, 102, 200, 201, 202].into_iter().chain(300..340);
    let expected: Vec<String> = numbers.clone().map(|n| format!("über|{n}")).collect();
    assert_eq!(source.rows, expected);
    let expected: Vec<String> = numbers.enumerate().map(|(i, n)| format!("number {n}|{}", i + 1)).collect();
    assert_eq!(other.rows, expected);
    assert!(source.rejected.is_empty() && other.rejected.is_empty());

    // a message that is not an event is rejected, and the source continues
    fs::write(
        Path::new(mail.smtp.address("SERVERS_MAIL_STORE")).join("reader/new/bad"),
        b"Subject: x\r\n\r\nhello",
    )
    .unwrap();
    deliver_all(&mut sink, &[("good", 1)]);
    assert_eq!(source.poll_rows(50)[49], "good|1");
    source.poll_until("the message is rejected", |source| source.rejected.len() == 1);
}

#[test]
fn search_terms_choose_messages() {
    let Some(mail) = Mail::start() else { return };
    let port = mail.smtp_port("SERVERS_SMTP");
    for (n, (from, subject)) in [
        ("joe@a.example", "big Alarm"),
        ("jjoe@a.example", "alarm"),
        ("joe@b.example", "alarm"),
        ("joe@a.example", "x"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut options = sender(&port, mail.ca());
        options.retain(|(name, _)| *name != "address");
        options.extend([("address", from), ("to", "chooser@example.com"), ("subject", subject)]);
        deliver_all(&mut sink("email", &options), &[("m", n as i64)]);
    }
    for (term, expected) in [
        ("subject:alarm", &["m|0", "m|1", "m|2"][..]),
        ("subject:alarm, from:joe@", &["m|0", "m|2"]),
        ("from:@a.example", &["m|0", "m|1", "m|3"]),
        ("from:joe@b.example, to:chooser", &["m|2"]),
        ("from:jo", &["m|0", "m|1", "m|2", "m|3"]),
    ] {
        let mut source = mail.source("chooser", &[("search.term", term)], &[]);
        source.poll_until("the last message was seen", |source| source.positions.values().any(|p| *p >= 3));
        assert_eq!(source.poll_rows(expected.len()), expected, "{term}");
    }
}

#[test]
fn messages_are_marked_moved_and_deleted() {
    let Some(mail) = Mail::start() else { return };
    let port = mail.smtp_port("SERVERS_SMTP");
    let mut options = sender(&port, mail.ca());
    options.extend([("to", "{{text}}@example.com"), ("subject", "s")]);
    let mut sink = sink("email", &options);
    for (action, flag) in [("seen", 'S'), ("FLAGGED", 'F'), ("answered", 'R'), ("none", ' ')] {
        let user = format!("do-{}", action.to_lowercase());
        deliver_all(&mut sink, &[(&user, 1), (&user, 2)]);
        let mut source = mail.source(&user, &[("action.after.processed", action)], &[]);
        source.poll_rows(2);
        let flags =
            |file: &PathBuf| file.to_string_lossy().rsplit_once(",").map_or(String::new(), |(_, f)| f.into());
        let expected = if flag == ' ' { String::new() } else { flag.to_string() };
        wait_until(&format!("the messages are marked as {action}"), || {
            source.poll();
            mail.stored(&user, "")
                .iter()
                .filter(|file| {
                    flags(file) == expected || file.parent().unwrap().ends_with("new") && expected.is_empty()
                })
                .count()
                == 2
        });
    }
    deliver_all(&mut sink, &[("do-delete", 1), ("do-move", 1), ("do-move", 2)]);
    let mut source = mail.source("do-delete", &[("action.after.processed", "delete")], &[]);
    source.poll_rows(1);
    wait_until("the message is gone", || {
        source.poll();
        mail.stored("do-delete", "").is_empty()
    });
    let options = [("action.after.processed", "move"), ("folder.to.move", "Erledigt ü")];
    let mut source = mail.source("do-move", &options, &[]);
    source.poll_rows(2);
    wait_until("the messages are moved", || {
        source.poll();
        mail.stored("do-move", "").is_empty() && mail.stored("do-move", ".Erledigt &APw-").len() == 2
    });
    let mut moved = mail.source("do-move", &[("folder", "Erledigt ü")], &[]);
    assert_eq!(moved.poll_rows(2), ["do-move|1", "do-move|2"]);
}

#[test]
fn a_wrong_login_is_reported_without_the_password() {
    let Some(mail) = Mail::start() else { return };
    let port = mail.imap_port("SERVERS_IMAP");
    let options =
        [("host", "127.0.0.1"), ("port", port.as_str()), ("ssl.enable", "false"), ("starttls", "none")];
    let options = [&options[..], &[("username", "joe"), ("password", "hunter2")]].concat();
    let mut source = PositionedSource::open(FIELDS, mapped("email", &options, "json", &[]), Path::new("."));
    let problem = source.wait_problem();
    assert!(problem.starts_with(&format!("imap://127.0.0.1:{port}: cannot log in as `joe`: ")), "{problem}");
    assert!(!problem.contains("hunter2"));
}

#[test]
fn wrong_options_are_refused() {
    let sink = [("address", "a@example.com"), ("password", "x"), ("to", "b@example.com"), ("subject", "s")];
    for (change, expected) in [
        (("address", "nobody"), "option `address`: this is no address"),
        (("to", "b@example.com, c"), "option `to`: expected addresses such as `name@example.com`, found"),
        (("cc", "{{none}}"), "option `cc`: the stream has no attribute `none`"),
        (("content.type", "html"), "option `content.type`: this is no content type; expected text/html"),
        (("ssl.ca.location", "/none.pem"), "option `ssl.ca.location`: cannot read /none.pem"),
        (("starttls", "maybe"), "option `starttls`: expected one of none, optional, required, found `maybe`"),
        (("auth", "true"), "the sink `email` needs the option `password`"),
    ] {
        let mut options: Vec<_> = sink.into_iter().filter(|(name, _)| *name != change.0).collect();
        if change.0 == "auth" {
            options.retain(|(name, _)| *name != "password");
        }
        options.push(change);
        let found = sink_error("email", &options);
        assert!(found.starts_with(expected), "{found}");
    }
    let source = [("username", "a"), ("password", "x")];
    for (change, expected) in [
        (("search.term", "body:x"), "option `search.term`: expected pairs `key:value`"),
        (("polling.interval", "0"), "option `polling.interval`: expected a number of seconds above 0"),
        (
            ("action.after.processed", "move"),
            "action.after.processed='move' needs the option `folder.to.move`",
        ),
        (("store", "pop3"), "option `store`: expected one of imap, found `pop3`"),
    ] {
        let found = source_error("email", &[&source[..], &[change]].concat());
        assert!(found.starts_with(expected), "{found}");
    }
}
