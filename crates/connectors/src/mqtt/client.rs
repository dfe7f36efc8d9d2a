//! A connection of either version, which a task of its own drives.

use std::time::Duration;

use bytes::Bytes;
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::v5;
use rumqttc::{Outgoing, TlsConfiguration, Transport};
use tidemill_types::{Error, Result};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::options::MqttSettings;

/// Maximum number of events that wait for the program before the connection waits, besides those that a
/// sink's window of messages causes.
const EVENTS_MAX: usize = 1024;
/// Requests that may wait for the connection.
const REQUESTS_MAX: usize = 1024;
/// Largest message.
const PACKET_BYTES_MAX: usize = 256 << 20;

/// Event of the connection.
pub(super) enum MqttEvent {
    /// The broker answered to a subscription; with what it refused.
    Subscribed(Result<(), String>),
    /// A message arrived.
    Message(Box<Incoming>),
    /// The next message that was published left, with this packet id; 0 for one that is not acknowledged.
    Sent(u16),
    /// The message with this packet id arrived at the broker, or was refused.
    Acknowledged(u16, Result<(), String>),
}

/// Message that arrived.
pub(super) struct Incoming {
    pub topic: String,
    pub payload: Bytes,
    pub qos: u8,
    pub is_retained: bool,
    pub user_properties: Vec<(String, String)>,
    pub acknowledge: Acknowledge,
}

/// Handle that acknowledges a message.
pub(super) enum Acknowledge {
    V4(rumqttc::Publish),
    V5(v5::Publish),
}

/// Connection to a broker; ends when it is dropped.
pub(super) struct MqttConnection {
    client: MqttClient,
    pub events: mpsc::Receiver<Result<MqttEvent>>,
    /// True if the broker has the session of an earlier connection.
    pub session_present: bool,
    /// Largest packet that the broker takes.
    pub packet_bytes_max: usize,
    address: String,
    driver: JoinHandle<()>,
}

enum MqttClient {
    V4(rumqttc::AsyncClient),
    V5(rumqttc::v5::AsyncClient),
}

impl Drop for MqttConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl MqttConnection {
    /// Connects.
    pub(super) async fn open(settings: &MqttSettings) -> Result<Self> {
        let address = settings.address();
        let failed = |e: String| unavailable(&address, &e);
        let opening = async {
            match settings.is_v5 {
                false => Self::open_v4(settings).await,
                true => Self::open_v5(settings).await,
            }
        };
        match tokio::time::timeout(settings.connect_timeout, opening).await {
            Ok(opened) => opened.map_err(failed),
            Err(_) => Err(failed(format!("no answer within {} s", settings.connect_timeout.as_secs()))),
        }
    }

    async fn open_v4(settings: &MqttSettings) -> Result<Self, String> {
        let mut options = rumqttc::MqttOptions::new(&settings.client_id, &settings.host, settings.port);
        options
            .set_keep_alive(settings.keep_alive)
            .set_inflight(settings.inflight_max)
            .set_clean_session(settings.clean_session)
            .set_manual_acks(settings.manual_acks)
            .set_pending_throttle(Duration::ZERO)
            .set_max_packet_size(PACKET_BYTES_MAX, PACKET_BYTES_MAX);
        if let Some((user, password)) = &settings.login {
            options.set_credentials(user, password);
        }
        if let Some(transport) = transport(settings) {
            options.set_transport(transport);
        }
        let (client, mut events) = rumqttc::AsyncClient::new(options, REQUESTS_MAX);
        events.set_network_options(network_options(settings));
        expect_releases(|packet_id| {
            let mut publish = rumqttc::Publish::new("t", rumqttc::QoS::ExactlyOnce, []);
            publish.pkid = packet_id;
            let _ = events.state.handle_incoming_packet(rumqttc::Packet::Publish(publish));
            events.state.events.clear();
        });
        let session_present = match events.poll().await.map_err(|e| e.to_string())? {
            rumqttc::Event::Incoming(rumqttc::Packet::ConnAck(connack)) => connack.session_present,
            other => return Err(format!("the broker answered {other:?}")),
        };
        let (sender, receiver) = mpsc::channel(EVENTS_MAX + 2 * usize::from(settings.inflight_max));
        let address = settings.address();
        let driver = tokio::spawn(async move {
            loop {
                let event = match events.poll().await {
                    Ok(event) => event_v4(event).map(Ok),
                    Err(e) => Some(Err(unavailable(&address, &e.to_string()))),
                };
                let ends = matches!(event, Some(Err(_)));
                if let Some(event) = event
                    && (sender.send(event).await.is_err() || ends)
                {
                    return;
                }
            }
        });
        Ok(Self {
            client: MqttClient::V4(client),
            events: receiver,
            session_present,
            packet_bytes_max: PACKET_BYTES_MAX,
            address: settings.address(),
            driver,
        })
    }

    async fn open_v5(settings: &MqttSettings) -> Result<Self, String> {
        let mut options = rumqttc::v5::MqttOptions::new(&settings.client_id, &settings.host, settings.port);
        options
            .set_keep_alive(settings.keep_alive)
            .set_outgoing_inflight_upper_limit(settings.inflight_max)
            .set_receive_maximum(Some(settings.inflight_max))
            .set_clean_start(settings.clean_session)
            .set_session_expiry_interval(Some(if settings.clean_session { 0 } else { u32::MAX }))
            .set_manual_acks(settings.manual_acks)
            .set_pending_throttle(Duration::ZERO)
            .set_network_options(network_options(settings))
            .set_max_packet_size(Some(PACKET_BYTES_MAX as u32));
        if let Some((user, password)) = &settings.login {
            options.set_credentials(user, password);
        }
        if let Some(transport) = transport(settings) {
            options.set_transport(transport);
        }
        let (client, mut events) = rumqttc::v5::AsyncClient::new(options, REQUESTS_MAX);
        expect_releases(|packet_id| {
            let mut publish =
                v5::Publish::new("t", rumqttc::v5::mqttbytes::QoS::ExactlyOnce, Bytes::new(), None);
            publish.pkid = packet_id;
            let _ = events.state.handle_incoming_packet(v5::Packet::Publish(publish));
            events.state.events.clear();
        });
        let connack = match events.poll().await.map_err(|e| e.to_string())? {
            rumqttc::v5::Event::Incoming(v5::Packet::ConnAck(connack)) => connack,
            other => return Err(format!("the broker answered {other:?}")),
        };
        let limit = connack.properties.as_ref().and_then(|properties| properties.max_packet_size);
        let (sender, receiver) = mpsc::channel(EVENTS_MAX + 2 * usize::from(settings.inflight_max));
        let address = settings.address();
        let driver = tokio::spawn(async move {
            loop {
                let event = match events.poll().await {
                    Ok(event) => event_v5(event).map(Ok),
                    Err(e) => Some(Err(unavailable(&address, &e.to_string()))),
                };
                let ends = matches!(event, Some(Err(_)));
                if let Some(event) = event
                    && (sender.send(event).await.is_err() || ends)
                {
                    return;
                }
            }
        });
        Ok(Self {
            client: MqttClient::V5(client),
            events: receiver,
            session_present: connack.session_present,
            packet_bytes_max: limit.map_or(PACKET_BYTES_MAX, |bytes| bytes as usize),
            address: settings.address(),
            driver,
        })
    }

    /// Returns what happened next.
    ///
    /// Errors: the connection failed.
    pub(super) async fn next(&mut self) -> Result<MqttEvent> {
        self.events.recv().await.unwrap_or_else(|| Err(unavailable(&self.address, "the connection ended")))
    }

    /// Subscribes to filters of topics.
    pub(super) async fn subscribe(&self, filters: &[String], qos: u8) -> Result<()> {
        let subscribed = match &self.client {
            MqttClient::V4(client) => {
                let qos = rumqttc::qos(qos).unwrap_or(rumqttc::QoS::AtLeastOnce);
                let all = filters.iter().map(|f| rumqttc::SubscribeFilter::new(f.clone(), qos));
                client.subscribe_many(all).await.map_err(|e| e.to_string())
            }
            MqttClient::V5(client) => {
                let qos = qos_v5(qos);
                client
                    .subscribe_many(filters.iter().map(|f| v5::Filter::new(f, qos)))
                    .await
                    .map_err(|e| e.to_string())
            }
        };
        subscribed.map_err(|e| unavailable(&self.address, &e))
    }

    /// Publishes a message, as soon as not too many wait.
    pub(super) async fn publish(
        &self,
        topic: String,
        payload: Bytes,
        qos: u8,
        is_retained: bool,
    ) -> Result<()> {
        let published = match &self.client {
            MqttClient::V4(client) => {
                let qos = rumqttc::qos(qos).unwrap_or(rumqttc::QoS::AtLeastOnce);
                client.publish_bytes(topic, qos, is_retained, payload).await.map_err(|e| e.to_string())
            }
            MqttClient::V5(client) => {
                client.publish(topic, qos_v5(qos), is_retained, payload).await.map_err(|e| e.to_string())
            }
        };
        published.map_err(|_| unavailable(&self.address, "the connection ended"))
    }

    /// Acknowledges a message that arrived.
    pub(super) async fn acknowledge(&self, message: &Acknowledge) -> Result<()> {
        let acknowledged = match (&self.client, message) {
            (MqttClient::V4(client), Acknowledge::V4(publish)) => client.ack(publish).await.is_ok(),
            (MqttClient::V5(client), Acknowledge::V5(publish)) => client.ack(publish).await.is_ok(),
            _ => true,
        };
        match acknowledged {
            true => Ok(()),
            false => Err(unavailable(&self.address, "the connection ended")),
        }
    }
}

/// Lets the client answer to releases of messages that an earlier connection took: it knows only its own, and would
/// end the connection each time the broker, rightly, repeats such a release.
fn expect_releases(expect: impl FnMut(u16)) {
    (1..=u16::MAX).for_each(expect);
}

/// Sends small packets at once: acknowledgements must not wait for each other.
fn network_options(settings: &MqttSettings) -> rumqttc::NetworkOptions {
    let mut options = rumqttc::NetworkOptions::new();
    options.set_tcp_nodelay(true);
    options.set_connection_timeout(settings.connect_timeout.as_secs());
    options
}

fn transport(settings: &MqttSettings) -> Option<Transport> {
    settings.tls.clone().map(|tls| Transport::tls_with_config(TlsConfiguration::Rustls(tls)))
}

fn qos_v5(qos: u8) -> rumqttc::v5::mqttbytes::QoS {
    use rumqttc::v5::mqttbytes::QoS;
    match qos {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    }
}

fn unavailable(address: &str, problem: &str) -> Error {
    Error::unavailable(format!("MQTT broker at {address}: {problem}"))
}

fn event_v4(event: rumqttc::Event) -> Option<MqttEvent> {
    use rumqttc::{Event, Packet};
    Some(match event {
        Event::Outgoing(Outgoing::Publish(packet_id)) => MqttEvent::Sent(packet_id),
        Event::Incoming(Packet::PubAck(ack)) => MqttEvent::Acknowledged(ack.pkid, Ok(())),
        Event::Incoming(Packet::PubComp(ack)) => MqttEvent::Acknowledged(ack.pkid, Ok(())),
        Event::Incoming(Packet::SubAck(ack)) => MqttEvent::Subscribed(
            match ack.return_codes.iter().any(|code| matches!(code, v4::SubscribeReasonCode::Failure)) {
                true => Err("the broker refuses to subscribe to a topic".into()),
                false => Ok(()),
            },
        ),
        Event::Incoming(Packet::Publish(publish)) => MqttEvent::Message(Box::new(Incoming {
            topic: publish.topic.clone(),
            payload: publish.payload.clone(),
            qos: publish.qos as u8,
            is_retained: publish.retain,
            user_properties: vec![],
            acknowledge: Acknowledge::V4(publish),
        })),
        _ => return None,
    })
}

fn event_v5(event: rumqttc::v5::Event) -> Option<MqttEvent> {
    use rumqttc::v5::Event;
    use v5::{Packet, PubAckReason, PubRecReason, SubscribeReasonCode};
    Some(match event {
        Event::Outgoing(Outgoing::Publish(packet_id)) => MqttEvent::Sent(packet_id),
        Event::Incoming(Packet::PubAck(ack)) => {
            let is_taken = matches!(ack.reason, PubAckReason::Success | PubAckReason::NoMatchingSubscribers);
            let reason = || format!("the broker refuses the message: {:?}", ack.reason);
            MqttEvent::Acknowledged(ack.pkid, if is_taken { Ok(()) } else { Err(reason()) })
        }
        Event::Incoming(Packet::PubRec(ack)) => {
            match matches!(ack.reason, PubRecReason::Success | PubRecReason::NoMatchingSubscribers) {
                true => return None,
                false => MqttEvent::Acknowledged(
                    ack.pkid,
                    Err(format!("the broker refuses the message: {:?}", ack.reason)),
                ),
            }
        }
        Event::Incoming(Packet::PubComp(ack)) => MqttEvent::Acknowledged(ack.pkid, Ok(())),
        Event::Incoming(Packet::SubAck(ack)) => MqttEvent::Subscribed(
            match ack.return_codes.iter().find(|code| !matches!(code, SubscribeReasonCode::Success(_))) {
                Some(code) => Err(format!("the broker refuses to subscribe to a topic: {code:?}")),
                None => Ok(()),
            },
        ),
        Event::Incoming(Packet::Publish(publish)) => MqttEvent::Message(Box::new(Incoming {
            topic: String::from_utf8_lossy(&publish.topic).into_owned(),
            payload: publish.payload.clone(),
            qos: publish.qos as u8,
            is_retained: publish.retain,
            user_properties: publish
                .properties
                .as_ref()
                .map(|properties| properties.user_properties.clone())
                .unwrap_or_default(),
            acknowledge: Acknowledge::V5(publish),
        })),
        _ => return None,
    })
}
