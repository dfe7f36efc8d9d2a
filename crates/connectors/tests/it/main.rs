//! Connectors against real servers and clients.

mod aggregation_stores;
mod any_options;
mod app_cases;
mod apps;
mod bad_options;
mod cdc;
mod email;
mod file;
mod file_route;
mod googlepubsub;
mod grpc;
mod helpers;
mod http;
mod http_client;
mod http_server;
mod influxdb_store;
mod jms;
mod kafka;
mod logs;
mod mongodb_store;
mod mqtt;
mod nats;
mod positioned;
mod prometheus;
mod python;
mod rabbitmq;
mod rdbms;
mod redis;
mod redis_store;
mod simulator;
mod sse;
mod statements;
mod stored;
mod tcp;
mod websocket;

use tidemill_test_servers as servers;
