//! A client that sends messages one by one and shows the replies as text.

use std::fmt::Write as _;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection without a driver.
pub struct Raw {
    pub stream: TcpStream,
    /// Number and key of the session, for requests to cancel.
    pub key: (u32, Vec<u8>),
}

/// A message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub letter: char,
    pub content: Vec<u8>,
}

pub fn startup(minor: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut content = ((3_u32 << 16) | minor).to_be_bytes().to_vec();
    for (name, value) in parameters {
        content.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    content.push(0);
    [&(content.len() as u32 + 4).to_be_bytes()[..], &content].concat()
}

pub fn message(letter: char, content: &[u8]) -> Vec<u8> {
    [&[letter as u8][..], &(content.len() as u32 + 4).to_be_bytes(), content].concat()
}

impl Raw {
    /// Opens a connection that says nothing.
    pub async fn open(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), key: (0, vec![]) }
    }

    /// Opens a session where no login is required.
    pub async fn session(address: SocketAddr) -> Self {
        let mut raw = Self::open(address).await;
        raw.send(&startup(0, &[("user", "ana")])).await;
        for reply in raw.until_ready().await {
            if reply.letter == 'K' {
                let process = u32::from_be_bytes(*reply.content.first_chunk().unwrap());
                raw.key = (process, reply.content[4..].to_vec());
            }
        }
        raw
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Returns the next reply; `None` at the end of the connection.
    pub async fn reply(&mut self) -> Option<Reply> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize;
        let mut content = vec![0; length - 4];
        self.stream.read_exact(&mut content).await.ok()?;
        Some(Reply { letter: char::from(head[0]), content })
    }

    /// Returns the replies up to `ReadyForQuery`, or the end of the connection.
    pub async fn until_ready(&mut self) -> Vec<Reply> {
        self.until(&['Z']).await
    }

    /// Returns the replies up to one with such a letter, or the end of the connection.
    pub async fn until(&mut self, letters: &[char]) -> Vec<Reply> {
        let mut replies = vec![];
        while let Some(reply) = self.reply().await {
            let is_last = letters.contains(&reply.letter);
            replies.push(reply);
            if is_last {
                break;
            }
        }
        replies
    }

    pub async fn query(&mut self, text: &str) -> Vec<Reply> {
        self.send(&message('Q', format!("{text}\0").as_bytes())).await;
        self.until_ready().await
    }
}

/// Reader of the content of a reply.
struct Content<'a>(&'a [u8]);

impl Content<'_> {
    fn take(&mut self, count: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn text(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap();
        let text = String::from_utf8_lossy(self.take(end)).into_owned();
        self.take(1);
        text
    }
}

fn bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\t' && c != '\n') => {
            text.replace('\n', "\\n").replace('\t', "\\t")
        }
        _ => bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    }
}

/// Returns a reply as a line of text.
pub fn show(reply: &Reply) -> String {
    let mut content = Content(&reply.content);
    match reply.letter {
        'Z' => format!("ReadyForQuery {}", char::from(content.take(1)[0])),
        'C' => format!("CommandComplete {}", content.text()),
        'E' | 'N' => {
            let mut out = if reply.letter == 'E' { "Error".to_owned() } else { "Notice".to_owned() };
            while content.0.first().is_some_and(|name| *name != 0) {
                let name = char::from(content.take(1)[0]);
                let value = content.text();
                match name {
                    'V' | 'C' => out += &format!(" {value}"),
                    'M' => out += &format!(" {value:?}"),
                    'H' => out += &format!(" hint {value:?}"),
                    'P' => out += &format!(" at {value}"),
                    'W' => out += &format!(" context {value:?}"),
                    _ => {}
                }
            }
            out
        }
        'T' => {
            let mut out = "RowDescription".to_owned();
            for _ in 0..content.u16() {
                let name = content.text();
                let (table, number) = (content.i32(), content.u16());
                let (oid, size, modifier, format) =
                    (content.i32(), content.u16().cast_signed(), content.i32(), content.u16());
                let _ = write!(out, " {name}:{oid}/{size}");
                if modifier != -1 {
                    let _ = write!(out, "/{modifier}");
                }
                if table != 0 || number != 0 {
                    let _ = write!(out, " of {table}.{number}");
                }
                if format == 1 {
                    out += " binary";
                }
            }
            out
        }
        'D' => {
            let mut out = "DataRow".to_owned();
            for _ in 0..content.u16() {
                let length = content.i32();
                match usize::try_from(length) {
                    Ok(length) => out += &format!(" [{}]", bytes(content.take(length))),
                    Err(_) => out += " NULL",
                }
            }
            out
        }
        't' => {
            let oids: Vec<String> = (0..content.u16()).map(|_| content.i32().to_string()).collect();
            format!("ParameterDescription {}", oids.join(" "))
        }
        'S' => format!("ParameterStatus {} = {}", content.text(), content.text()),
        'H' => {
            let format = content.take(1)[0];
            format!("CopyOut format {format}, {} columns", content.u16())
        }
        'G' => {
            let format = content.take(1)[0];
            format!("CopyIn format {format}, {} columns", content.u16())
        }
        'd' => format!("CopyData [{}]", bytes(&reply.content)),
        '1' => "ParseComplete".to_owned(),
        '2' => "BindComplete".to_owned(),
        '3' => "CloseComplete".to_owned(),
        'n' => "NoData".to_owned(),
        's' => "PortalSuspended".to_owned(),
        'I' => "EmptyQueryResponse".to_owned(),
        'c' => "CopyDone".to_owned(),
        'R' => format!("Authentication {}", content.i32()),
        'K' => "BackendKeyData".to_owned(),
        'v' => {
            let (version, count) = (content.i32(), content.i32());
            let names: Vec<String> = (0..count).map(|_| content.text()).collect();
            format!("NegotiateProtocolVersion {}.{} {}", version >> 16, version & 0xffff, names.join(" "))
                .trim_end()
                .to_owned()
        }
        other => format!("{other} {}", bytes(&reply.content)),
    }
}
