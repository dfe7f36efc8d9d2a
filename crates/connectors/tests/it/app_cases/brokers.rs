//! Brokers of messages: MQTT, RabbitMQ, NATS.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Connection, ConnectionProperties, ExchangeKind};
use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tidemill_connect::runtime;

use super::ends::{End, Server};
use crate::servers::OwnServer;

/// Topics of MQTT.
pub struct Mqtt(pub Server);

impl End for Mqtt {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("MQTT", self.0.address("SERVERS_MOSQUITTO"))]
    }

    /// Makes the subscription of a client, which the broker keeps.
    fn create(&mut self, client_and_topic: &str) {
        let (client, topic) = client_and_topic.split_once(' ').unwrap();
        self.session(client, async |client, events| {
            client.subscribe(topic, QoS::AtLeastOnce).await.unwrap();
            while !matches!(events.poll().await.unwrap(), Event::Incoming(Packet::SubAck(_))) {}
        });
    }

    fn send(&mut self, topic: &str, lines: &[String]) {
        self.session("cases", async |client, events| {
            for line in lines {
                client.publish(topic, QoS::AtLeastOnce, false, line.clone()).await.unwrap();
                while !matches!(events.poll().await.unwrap(), Event::Incoming(Packet::PubAck(_))) {}
            }
        });
    }

    fn server(&self) -> Option<&OwnServer> {
        self.0.own()
    }
}

impl Mqtt {
    fn session(&self, id: &str, work: impl AsyncFnOnce(&AsyncClient, &mut rumqttc::EventLoop)) {
        let url = url::Url::parse(&self.0.address("SERVERS_MOSQUITTO")).unwrap();
        let mut options = MqttOptions::new(id, url.host_str().unwrap(), url.port().unwrap());
        options.set_clean_session(false).set_keep_alive(Duration::from_secs(60));
        runtime().block_on(async {
            let (client, mut events) = AsyncClient::new(options, 100);
            work(&client, &mut events).await;
            client.disconnect().await.unwrap();
            while !matches!(events.poll().await, Err(_) | Ok(Event::Outgoing(rumqttc::Outgoing::Disconnect)))
            {
            }
        });
    }
}

/// Queues of RabbitMQ, each bound to an exchange with its name by a key with its name.
pub struct RabbitMq {
    server: Server,
    /// Messages that were taken, by queue.
    taken: BTreeMap<String, Vec<String>>,
}

impl RabbitMq {
    pub fn new(server: Server) -> Self {
        Self { server, taken: BTreeMap::new() }
    }

    fn with_channel<T>(&self, work: impl AsyncFnOnce(lapin::Channel) -> T) -> T {
        runtime().block_on(async {
            let url = self.server.address("SERVERS_RABBITMQ");
            let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
            let done = work(connection.create_channel().await.unwrap()).await;
            // the channel, which ends too, may be faster
            let _ = connection.close(200, "done".into()).await;
            done
        })
    }
}

impl End for RabbitMq {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("RABBITMQ", self.server.address("SERVERS_RABBITMQ"))]
    }

    fn create(&mut self, name: &str) {
        self.with_channel(async |channel| {
            let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
            channel
                .exchange_declare(name.into(), ExchangeKind::Direct, durable, FieldTable::default())
                .await
                .unwrap();
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(name.into(), durable, FieldTable::default()).await.unwrap();
            let options = QueueBindOptions::default();
            let bound =
                channel.queue_bind(name.into(), name.into(), name.into(), options, FieldTable::default());
            bound.await.unwrap();
        });
    }

    fn send(&mut self, name: &str, lines: &[String]) {
        self.with_channel(async |channel| {
            channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
            for line in lines {
                let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
                let sent =
                    channel.basic_publish(name.into(), name.into(), options, line.as_bytes(), properties);
                assert!(sent.await.unwrap().await.unwrap().is_ack());
            }
        });
    }

    fn read(&mut self, name: &str) -> Vec<String> {
        let new = self.with_channel(async |channel| {
            let (mut new, options) = (vec![], BasicGetOptions { no_ack: true });
            while let Some(message) = channel.basic_get(name.into(), options).await.unwrap() {
                new.push(String::from_utf8_lossy(&message.delivery.data).into_owned());
            }
            new
        });
        let taken = self.taken.entry(name.into()).or_default();
        taken.extend(new);
        taken.clone()
    }

    fn server(&self) -> Option<&OwnServer> {
        self.server.own()
    }
}

/// Subjects of NATS.
pub struct Nats(pub Server);

impl End for Nats {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("NATS", self.0.address("SERVERS_NATS"))]
    }

    /// Makes a stream of JetStream with a subject of the same name.
    fn create(&mut self, subject: &str) {
        runtime().block_on(async {
            let client = async_nats::connect(self.0.address("SERVERS_NATS")).await.unwrap();
            let stream = async_nats::jetstream::stream::Config {
                name: subject.replace('.', "_"),
                subjects: vec![subject.into()],
                ..Default::default()
            };
            async_nats::jetstream::new(client).create_stream(stream).await.unwrap();
        });
    }

    fn send(&mut self, subject: &str, lines: &[String]) {
        runtime().block_on(async {
            let client = async_nats::connect(self.0.address("SERVERS_NATS")).await.unwrap();
            let stream = async_nats::jetstream::new(client);
            for line in lines {
                let stored = stream.publish(subject.to_owned(), line.clone().into()).await.unwrap();
                stored.await.unwrap();
            }
        });
    }

    fn server(&self) -> Option<&OwnServer> {
        self.0.own()
    }
}
