//! The app of a run, and where its events come from and go to.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rumqttc::{Client, Event, MqttOptions, Outgoing, Packet, QoS};
use tidemill_connect::runtime;
use tidemill_relational::{DatabaseConnection, DatabaseUrl};

use crate::proxy::Proxy;
use crate::servers::Servers;

/// Partitions of each topic.
pub const PARTITIONS: i32 = 2;
/// PostgreSQL refuses rows whose number leaves this rest by [`REFUSED_OF`].
pub const REFUSED: u64 = 7;
/// See [`REFUSED`].
pub const REFUSED_OF: u64 = 500;

/// The other sides of a run.
pub struct Places {
    dir: PathBuf,
    /// Distinguishes the topics and tables of this run.
    name: String,
    pub kafka: String,
    pub mqtt: String,
    /// Connections of the program to databases and brokers go through these.
    pub proxies: Vec<(&'static str, Proxy)>,
    postgres: String,
    mariadb: String,
    pub redis: String,
}

impl Places {
    pub fn new(dir: &Path, servers: &Servers, name: String) -> Result<Self> {
        let proxied = ["postgres", "mariadb", "mosquitto", "redis"];
        let proxies: Result<Vec<_>> =
            proxied.into_iter().map(|server| Ok((server, Proxy::start(servers.port(server)?)?))).collect();
        Ok(Self {
            dir: dir.to_owned(),
            name,
            kafka: format!("127.0.0.1:{}", servers.port("kafka")?),
            mqtt: format!("127.0.0.1:{}", servers.port("mosquitto")?),
            proxies: proxies?,
            postgres: format!("postgresql://127.0.0.1:{}/tidemill", servers.port("postgres")?),
            mariadb: format!("mariadb://127.0.0.1:{}/tidemill", servers.port("mariadb")?),
            redis: format!("redis://127.0.0.1:{}", servers.port("redis")?),
        })
    }

    pub fn topic_in(&self) -> String {
        format!("in-{}", self.name)
    }

    pub fn topic_out(&self) -> String {
        format!("out-{}", self.name)
    }

    pub fn table(&self) -> String {
        format!("out_{}", self.name.replace('-', "_"))
    }

    pub fn app_dir(&self) -> PathBuf {
        self.dir.join("app")
    }

    /// Connects to a database without a proxy.
    pub fn connect(&self, server: &str) -> Result<DatabaseConnection> {
        let url = if server == "postgres" { &self.postgres } else { &self.mariadb };
        let url = DatabaseUrl::parse(url).map_err(anyhow::Error::msg)?;
        Ok(runtime().block_on(DatabaseConnection::connect(&url, Some("tidemill"), Some("tidemill")))?)
    }

    /// Creates topics and tables.
    pub fn create(&self) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.kafka).create()?;
        for topic in [self.topic_in(), self.topic_out()] {
            let topic = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1));
            let created = runtime().block_on(admin.create_topics([&topic], &AdminOptions::new()))?;
            for outcome in created {
                outcome.map_err(|(topic, code)| anyhow::anyhow!("topic {topic}: {code}"))?;
            }
        }
        // without a key a doubled row would not be refused
        let columns = "n bigint, k varchar(20), c bigint, origin varchar(10)";
        for (server, check) in
            [("postgres", format!(", CHECK (n % {REFUSED_OF} <> {REFUSED})")), ("mariadb", String::new())]
        {
            let sql = format!("CREATE TABLE {} ({columns}{check})", self.table());
            let mut db = self.connect(server)?;
            runtime().block_on(db.run(&sql)).context(server)?;
        }
        self.subscribe()
    }

    /// Subscribes as the source will do, so that the broker stores events for it before it comes.
    fn subscribe(&self) -> Result<()> {
        let (host, port) = self.mqtt.split_once(':').unwrap_or_default();
        let mut options = MqttOptions::new(self.topic_in(), host, port.parse()?);
        options.set_clean_session(false);
        let (client, mut connection) = Client::new(options, 10);
        client.subscribe(self.topic_in(), QoS::AtLeastOnce)?;
        for event in connection.iter() {
            match event? {
                Event::Incoming(Packet::SubAck(_)) => client.disconnect()?,
                Event::Outgoing(Outgoing::Disconnect) => break,
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes topics and tables.
    pub fn remove(&self) -> Result<()> {
        for server in ["postgres", "mariadb"] {
            let mut db = self.connect(server)?;
            runtime().block_on(db.run(&format!("DROP TABLE {}", self.table())))?;
        }
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.kafka).create()?;
        let topics = [self.topic_in(), self.topic_out()];
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        runtime().block_on(admin.delete_topics(&topics, &AdminOptions::new()))?;
        let mut redis = redis::Client::open(self.redis.as_str())?.get_connection()?;
        redis::cmd("DEL").arg(self.topic_out()).exec(&mut redis)?;
        Ok(())
    }

    /// Writes the app.
    pub fn write_app(&self) -> Result<()> {
        let dir = self.app_dir();
        std::fs::create_dir_all(&dir)?;
        let [kafka, table, topic_in, topic_out] =
            [&self.kafka, &self.table(), &self.topic_in(), &self.topic_out()];
        let proxy = |server: &str| {
            let proxy = self.proxies.iter().find(|(name, _)| *name == server);
            proxy.map(|(_, proxy)| format!("127.0.0.1:{}", proxy.port())).unwrap_or_default()
        };
        let [postgres, mariadb, mosquitto, redis] = ["postgres", "mariadb", "mosquitto", "redis"].map(proxy);
        std::fs::write(
            dir.join("streams.rules"),
            "event FromKafka { n: long, k: string } key k id k, n;\n\
             event FromMqtt { n: long, k: string } key k id k, n;\n",
        )?;
        std::fs::write(
            dir.join("app.toml"),
            format!(
                r#"name = "check"
[settings]
partitions = 2

[[source]]
type = "kafka"
stream = "FromKafka"
options = {{ bootstrap.servers = "{kafka}", topic.list = "{topic_in}", group.id = "{topic_in}" }}
map = {{ type = "json", options = {{ fail.on.missing.attribute = "true" }} }}

[[source]]
type = "mqtt"
stream = "FromMqtt"
options = {{ url = "tcp://{mosquitto}", topic = "{topic_in}", client.id = "{topic_in}", clean.session = "false", quality.of.service = "1" }}
map = {{ type = "json", options = {{ fail.on.missing.attribute = "true" }} }}
"#
            ),
        )?;
        std::fs::write(
            dir.join("count.siddhi"),
            format!(
                "define stream FromKafka (n long, k string);
define stream FromMqtt (n long, k string);

@sink(type='kafka', bootstrap.servers='{kafka}', topic='{topic_out}', key='{{{{k}}}}', delivery.guarantee='exactly.once', @map(type='json'))
@sink(type='rdbms', jdbc.url='jdbc:postgresql://{postgres}/tidemill?sslmode=disable', username='tidemill', password='tidemill', table.name='{table}', on.error='STORE')
@sink(type='rdbms', jdbc.url='jdbc:mariadb://{mariadb}/tidemill', username='tidemill', password='tidemill', table.name='{table}')
@sink(type='redis', url='redis://{redis}', stream='{topic_out}', @map(type='json'))
@key('k')
define stream Counted (n long, k string, c long, origin string);

@info(name='CountKafka')
from FromKafka select n, k, count() as c, 'kafka' as origin group by k insert into Counted;
@info(name='CountMqtt')
from FromMqtt select n, k, count() as c, 'mqtt' as origin group by k insert into Counted;
"
            ),
        )?;
        Ok(())
    }
}
