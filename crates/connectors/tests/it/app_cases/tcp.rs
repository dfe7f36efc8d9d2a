//! A client of Siddhi's protocol over TCP, with its binary form of events.

use std::io::Write;
use std::net::TcpStream;

use super::ends::End;
use crate::helpers::{free_port, wait_until};

/// The port of an app's source, and a client of it.
pub struct Tcp {
    port: u16,
    client: Option<TcpStream>,
}

impl Tcp {
    pub fn new() -> Self {
        Self { port: free_port(), client: None }
    }
}

impl End for Tcp {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("TCP_PORT", self.port.to_string())]
    }

    /// Sends a message with all lines, each of which is an event such as `string:WSO2 double:55.6`.
    fn send(&mut self, channel: &str, lines: &[String]) {
        let mut content = (lines.len() as i32).to_be_bytes().to_vec();
        for line in lines {
            content.extend(1_700_000_000_000_i64.to_be_bytes());
            line.split(' ').for_each(|value| encode(value, &mut content));
        }
        let parts = [b"cases".as_slice(), channel.as_bytes(), &content];
        let length: usize = parts.iter().map(|part| part.len() + 4).sum();
        let mut frame = vec![2];
        frame.extend((length as i32).to_be_bytes());
        for part in parts {
            frame.extend((part.len() as i32).to_be_bytes());
            frame.extend(part);
        }
        let client = self.client.get_or_insert_with(|| {
            let (mut client, port) = (None, self.port);
            wait_until("the source listens", || {
                client = TcpStream::connect(("127.0.0.1", port)).ok();
                client.is_some()
            });
            client.unwrap()
        });
        client.write_all(&frame).unwrap();
    }
}

fn encode(value: &str, content: &mut Vec<u8>) {
    match value.split_once(':').unwrap() {
        ("string", text) => {
            content.extend((text.len() as i32).to_be_bytes());
            content.extend(text.as_bytes());
        }
        ("int", number) => content.extend(number.parse::<i32>().unwrap().to_be_bytes()),
        ("long", number) => content.extend(number.parse::<i64>().unwrap().to_be_bytes()),
        ("double", number) => content.extend(number.parse::<f64>().unwrap().to_be_bytes()),
        (other, _) => panic!("there is no type {other} in cases"),
    }
}
