//! A protocol of lines, and clients for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tidemill_gateway::{Connection, Encryption, FrontEnd, Gateway, ListenOptions, Listener, Metrics};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Time after which a test that waits has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Length of a reply that the buffers of the system do not take at once.
pub const FAREWELL_BYTES: usize = 16 << 20;

/// Protocol of lines. A client sends one of these and gets a line for it:
///
/// | line | |
/// | --- | --- |
/// | `ping` | `pong` |
/// | `login` | the client is known from now on |
/// | `work` | `done`, when the test releases it |
/// | `encrypt` | `go`, then the handshake begins |
/// | `socket` | what the protocol knows of the connection |
/// | `names` | the names of the client's certificate |
/// | `farewell` | [`FAREWELL_BYTES`] dots, and the connection ends |
/// | `panic` | the protocol has a defect |
pub struct Lines {
    pub protocol: &'static str,
    pub requires_login: bool,
    pub encryption: Encryption,
    /// One permit lets one `work` end.
    pub release: Semaphore,
    /// Requests `work` that have begun.
    pub begun: AtomicUsize,
    pub ticks: AtomicUsize,
    pub drained: AtomicBool,
}

impl Lines {
    pub fn new() -> Arc<Self> {
        Self::named("lines")
    }

    pub fn named(protocol: &'static str) -> Arc<Self> {
        Self::with(protocol, Encryption::FromTheStart)
    }

    pub fn with(protocol: &'static str, encryption: Encryption) -> Arc<Self> {
        Arc::new(Self {
            protocol,
            requires_login: false,
            encryption,
            release: Semaphore::new(0),
            begun: AtomicUsize::new(0),
            ticks: AtomicUsize::new(0),
            drained: AtomicBool::new(false),
        })
    }

    /// Waits until so many requests `work` have begun.
    pub async fn wait_for_work(&self, begun: usize) {
        until(|| self.begun.load(Ordering::SeqCst) >= begun).await;
    }

    async fn answer(&self, connection: &mut Connection, line: &str) -> Option<String> {
        Some(match line {
            "ping" => "pong".to_owned(),
            "login" => {
                connection.handle.trust();
                "welcome".to_owned()
            }
            "work" => {
                self.begun.fetch_add(1, Ordering::SeqCst);
                self.release.acquire().await.ok()?.forget();
                "done".to_owned()
            }
            "socket" => {
                let socket = &connection.socket;
                let hash = socket.certificate_hash().map(hex).unwrap_or_default();
                let alpn = String::from_utf8_lossy(socket.alpn().unwrap_or_default()).into_owned();
                assert!(connection.peer.ip().is_loopback() && connection.local == connection.listener);
                format!("encrypted={} alpn={alpn} hash={hash}", socket.is_encrypted())
            }
            "names" => match connection.socket.client_certificate() {
                None => "none".to_owned(),
                Some(certificate) => {
                    assert!(certificate.is_for(&certificate.names()[0]) && !certificate.der().is_empty());
                    certificate.names().join(" ")
                }
            },
            "panic" => panic!("as the test asked"),
            other => format!("unknown {other}"),
        })
    }
}

impl FrontEnd for Lines {
    fn protocol(&self) -> &'static str {
        self.protocol
    }

    fn requires_login(&self) -> bool {
        self.requires_login
    }

    fn encryption(&self) -> Encryption {
        self.encryption
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"lines/1"]
    }

    fn serve(self: Arc<Self>, mut connection: Connection) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let handle = connection.handle.clone();
                let line = tokio::select! {
                    () = handle.draining() => return,
                    line = read_line(&mut connection.socket) => line,
                };
                let Some(line) = line else { return };
                let Some(_request) = handle.begin() else { return };
                if line == "encrypt" {
                    assert!(connection.can_encrypt());
                    if connection.socket.write_all(b"go\n").await.is_err() {
                        return;
                    }
                    let Ok(encrypted) = connection.encrypt().await else { return };
                    connection = encrypted;
                    continue;
                }
                if line == "farewell" {
                    let _ = connection.socket.write_all(&vec![b'.'; FAREWELL_BYTES]).await;
                    let _ = connection.socket.shutdown().await;
                    return;
                }
                let Some(answer) = self.answer(&mut connection, &line).await else { return };
                if connection.socket.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        })
    }

    fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
    }

    fn drain(&self) {
        self.drained.store(true, Ordering::SeqCst);
    }
}

async fn read_line(socket: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut line = vec![];
    loop {
        match socket.read_u8().await.ok()? {
            b'\n' => return String::from_utf8(line).ok(),
            byte => line.push(byte),
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until something is the case.
pub async fn until(is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it never came");
}

/// Settings of a listener at a free port of this machine.
pub fn local(connections_max: usize) -> ListenOptions {
    ListenOptions { connections_max, ..ListenOptions::new(([127, 0, 0, 1], 0).into()) }
}

/// Starts a gateway with one listener.
pub async fn start(front_end: &Arc<Lines>, options: ListenOptions) -> (Gateway, Arc<Metrics>) {
    let listener = Listener::bind(front_end.clone(), options).await.unwrap();
    let metrics = Arc::new(Metrics::default());
    (Gateway::start(vec![listener], metrics.clone()), metrics)
}

/// A client.
pub struct Client<S>(BufReader<S>);

impl Client<TcpStream> {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub fn over(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    pub fn into_inner(self) -> S {
        self.0.into_inner()
    }

    pub async fn send(&mut self, line: &str) {
        self.write(&format!("{line}\n")).await;
    }

    /// Sends a part of a line.
    pub async fn write(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads a line; `None` if the connection is closed.
    pub async fn read(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_line(&mut line)).await.expect("no answer");
        match read {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }

    /// Sends a line and returns the answer; `None` if the connection is closed.
    pub async fn ask(&mut self, line: &str) -> Option<String> {
        let sent = self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await;
        sent.ok()?;
        self.read().await
    }
}
