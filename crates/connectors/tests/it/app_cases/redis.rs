//! Streams of Redis.

use redis::streams::StreamRangeReply;
use tidemill_connect::runtime;

use super::ends::{End, Server};
use crate::servers::OwnServer;

/// Entries have their message in the field `payload`.
pub struct Redis(pub Server);

impl Redis {
    fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        runtime().block_on(async {
            let client = redis::Client::open(self.0.address("SERVERS_REDIS")).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let mut command = redis::Cmd::new();
            command.arg(words);
            command.query_async(&mut connection).await.unwrap()
        })
    }
}

impl End for Redis {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("REDIS", self.0.address("SERVERS_REDIS"))]
    }

    fn send(&mut self, stream: &str, lines: &[String]) {
        for line in lines {
            self.command::<String>(&["XADD", stream, "*", "payload", line]);
        }
    }

    fn read(&mut self, stream: &str) -> Vec<String> {
        let entries: StreamRangeReply = self.command(&["XRANGE", stream, "-", "+"]);
        let payload = |entry: &redis::streams::StreamId| entry.get("payload").unwrap_or_default();
        entries.ids.iter().map(payload).collect()
    }

    fn server(&self) -> Option<&OwnServer> {
        self.0.own()
    }
}
