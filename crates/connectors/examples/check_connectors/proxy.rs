//! The network between the program and a server, which can be cut in the middle of a message or stand still.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;

/// Bytes that are passed on without end.
const NO_LIMIT: i64 = i64::MAX;

/// A port whose connections go to a server.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    connections: Mutex<Vec<TcpStream>>,
    /// Bytes that still pass before all connections are cut.
    left: AtomicI64,
    is_still: AtomicBool,
    /// True if new connections are refused.
    is_cut: AtomicBool,
}

impl Proxy {
    /// Starts a proxy for a port of this machine.
    pub fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State { left: AtomicI64::new(NO_LIMIT), ..State::default() });
        let shared = state.clone();
        // it ends with the process
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", server));
                let (Ok(server), false) = (server, shared.is_cut.load(Ordering::SeqCst)) else { continue };
                shared.connect(client, server);
            }
        });
        Ok(Self { port, state })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections after `bytes` more bytes, in whatever they are, and refuses others for `pause`.
    pub fn cut(&self, bytes: i64, pause: Duration) {
        self.state.left.store(bytes, Ordering::SeqCst);
        std::thread::sleep(pause);
        self.state.is_cut.store(true, Ordering::SeqCst);
        self.state.cut();
        std::thread::sleep(pause);
        self.state.is_cut.store(false, Ordering::SeqCst);
        self.state.left.store(NO_LIMIT, Ordering::SeqCst);
    }

    /// Passes nothing on for `pause`.
    pub fn stall(&self, pause: Duration) {
        self.state.is_still.store(true, Ordering::SeqCst);
        std::thread::sleep(pause);
        self.state.is_still.store(false, Ordering::SeqCst);
    }
}

impl State {
    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let streams = [(client.try_clone(), server.try_clone()), (server.try_clone(), client.try_clone())];
        for (from, to) in streams {
            let (Ok(from), Ok(to)) = (from, to) else { return };
            let state = self.clone();
            std::thread::spawn(move || state.copy(from, to));
        }
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.extend([client, server]);
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count) = from.read(&mut buffer) {
            while self.is_still.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if count == 0 {
                break;
            }
            let left = match self.left.load(Ordering::SeqCst) {
                NO_LIMIT => NO_LIMIT,
                _ => self.left.fetch_sub(count as i64, Ordering::SeqCst),
            };
            let passed = count.min(left.max(0) as usize);
            if to.write_all(&buffer[..passed]).is_err() {
                break;
            }
            if passed < count {
                self.cut();
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn cut(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}
