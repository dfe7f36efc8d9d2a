//! Metrics that Prometheus scrapes: one HTTP server for each address, which sinks share.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::{Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::metric::{LabelledMetric, MetricSpec};
use crate::ports::{PortService, Ports, SharedPort};

/// Type of Prometheus' text format.
pub(super) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

static PORTS: Ports<MetricServer> = Ports::new();

/// Metrics of one address, by name.
#[derive(Default)]
pub(super) struct MetricServer {
    metrics: Mutex<BTreeMap<String, Arc<Mutex<LabelledMetric>>>>,
}

/// Opens the server of an address, or joins it.
///
/// Errors: the operating system does not give the port.
pub(super) async fn open(host: &str, port: u16) -> tidemill_types::Result<Arc<SharedPort<MetricServer>>> {
    PORTS.open(host, port, MetricServer::default).await
}

impl MetricServer {
    /// Returns the metric of this name, which several sinks can share.
    ///
    /// Errors: another sink has declared it differently.
    pub(super) fn metric(&self, spec: &MetricSpec) -> Result<Arc<Mutex<LabelledMetric>>, String> {
        let mut metrics = self.metrics.lock();
        let new = || Arc::new(Mutex::new(LabelledMetric::new(spec.clone())));
        let metric = metrics.entry(spec.name.clone()).or_insert_with(new).clone();
        match metric.lock().spec == *spec {
            true => Ok(metric.clone()),
            false => Err(format!(
                "another sink of this address has a metric `{}` of another type or with other labels",
                spec.name
            )),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let metrics: Vec<_> = self.metrics.lock().values().cloned().collect();
        let now = Instant::now();
        metrics.iter().for_each(|metric| metric.lock().write(now, &mut out));
        out
    }
}

impl PortService for MetricServer {
    async fn serve(self: Arc<Self>, stream: TcpStream, _peer: SocketAddr) {
        let answer = service_fn(|request: http::Request<Incoming>| {
            let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
            let (status, body) = match (is_read, request.uri().path()) {
                (false, _) => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
                (_, "/" | "/metrics") => (StatusCode::OK, self.text()),
                _ => (StatusCode::NOT_FOUND, "the metrics are at /metrics\n".to_owned()),
            };
            let mut response = Response::new(Full::new(Bytes::from(body)));
            *response.status_mut() = status;
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(TEXT_FORMAT));
            async { Ok::<_, Infallible>(response) }
        });
        let http = auto::Builder::new(TokioExecutor::new());
        if let Err(e) = http.serve_connection(TokioIo::new(stream), answer).await {
            tracing::debug!(error = %e, "a connection for metrics ended");
        }
    }
}
