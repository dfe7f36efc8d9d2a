//! Channels of publish and subscribe as a source. Nothing is kept or acknowledged.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, OptionFuture};
use redis::Msg;
use tidemill_connect::{Message, PendingReceipt, SourceConnector, SourceOutput};
use tidemill_types::{Error, Result};

use super::options::RedisSettings;

/// Messages that are handed over at once.
const BATCH_MESSAGES: usize = 1000;
/// Messages that may wait in this program; later ones are lost.
const WAITING_MAX: usize = 65_536;
/// Bytes of messages that may wait.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Interval at which the connection is checked, and timeout for the answer.
const PING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));

/// Source of the messages of channels.
pub(super) struct ChannelReader {
    pub settings: RedisSettings,
    pub channels: Vec<String>,
}

#[async_trait]
impl SourceConnector for ChannelReader {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let (mut sink, mut messages) = self.settings.open_subscriptions().await?.split();
        for channel in &self.channels {
            let subscribed = match channel.contains(['*', '?', '[']) {
                true => sink.psubscribe(channel).await,
                false => sink.subscribe(channel).await,
            };
            subscribed.map_err(|e| self.settings.failed(&format!("no subscription of `{channel}`"), &e))?;
        }
        output.report_connected();
        let lost =
            || Error::unavailable(format!("Redis at {}: the connection was lost", self.settings.address));
        let mut waiting = WaitingMessages::default();
        // handing over waits for the program, and messages have to be taken from the connection all the while
        let mut sending: Option<BoxFuture<'_, Result<PendingReceipt>>> = None;
        let mut pings = tokio::time::interval(PING.0);
        loop {
            if sending.is_none() && !waiting.messages.is_empty() {
                sending = Some(Box::pin(output.send(waiting.take())));
            }
            tokio::select! {
                message = messages.next() => waiting.add(message.ok_or_else(lost)?),
                Some(sent) = OptionFuture::from(sending.as_mut()) => {
                    sent?;
                    sending = None;
                    self.report_dropped(&mut waiting, output);
                }
                _ = pings.tick() => {
                    let answer = tokio::time::timeout(PING.1, sink.ping::<redis::Value>()).await;
                    answer.map_err(|_| lost())?.map_err(|e| self.settings.failed("no answer", &e))?;
                }
            }
        }
    }
}

impl ChannelReader {
    fn report_dropped(&self, waiting: &mut WaitingMessages, output: &SourceOutput) {
        let dropped = std::mem::take(&mut waiting.dropped);
        if dropped > 0 {
            let channels = self.channels.join(",");
            tracing::warn!(channels, messages = dropped, "messages came too fast and are lost");
            output.report_problem(format!(
                "{dropped} messages of `{channels}` came faster than they were taken and are lost; a `stream` keeps them"
            ));
        }
    }
}

/// Messages that the program has not taken.
#[derive(Default)]
struct WaitingMessages {
    messages: VecDeque<Message>,
    bytes: usize,
    dropped: u64,
}

impl WaitingMessages {
    fn add(&mut self, message: Msg) {
        let payload = Bytes::copy_from_slice(message.get_payload_bytes());
        if self.messages.len() >= WAITING_MAX || self.bytes + payload.len() > WAITING_BYTES_MAX {
            self.dropped += 1;
            return;
        }
        self.bytes += payload.len();
        let mut converted = Message::new(payload);
        converted.properties.push(("channel".to_owned(), message.get_channel_name().to_owned()));
        self.messages.push_back(converted);
    }

    fn take(&mut self) -> Vec<Message> {
        let count = self.messages.len().min(BATCH_MESSAGES);
        let taken: Vec<_> = self.messages.drain(..count).collect();
        self.bytes -= taken.iter().map(|message| message.payload.len()).sum::<usize>();
        taken
    }
}
