"""Sends telemetry with the SDK of OpenTelemetry and with Prometheus, and compares what SQL returns. Called by scripts/clients.sh.

usage: telemetry.py URL TOKEN [CLIENT …]     PROMETHEUS names the program of Prometheus
"""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid

URL, TOKEN = sys.argv[1:3]
CHECKS = {}
RUN = uuid.uuid4().hex[:12]


def check(client):
    def add(function):
        CHECKS.setdefault(client, []).append(function)
        return function

    return add


def sql(query):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/plain", "Accept": "application/json"}
    call = urllib.request.Request(URL + "/api/v1/sql", data=query.encode(), headers=headers)
    with urllib.request.urlopen(call) as reply:
        return json.loads(reply.read())


def expect(found, expected):
    assert found == expected, f"expected {expected}, found {found}"


def exporters(kind, token=TOKEN):
    """Exporters of a kind over HTTP and gRPC, with and without compression."""
    if kind == "span":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        path = "traces"
    elif kind == "log":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as Grpc
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as Http

        path = "logs"
    else:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Grpc
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http

        path = "metrics"
    from opentelemetry.exporter.otlp.proto.http import Compression
    from grpc import Compression as GrpcCompression

    bearer = f"Bearer {token}"
    for compression in [Compression.NoCompression, Compression.Gzip]:
        options = {"headers": {"Authorization": bearer}, "compression": compression, "timeout": 20}
        yield f"http {compression.value}", Http(endpoint=f"{URL}/v1/{path}", **options)
    for compression in [GrpcCompression.NoCompression, GrpcCompression.Gzip]:
        options = {"headers": (("authorization", bearer),), "compression": compression, "timeout": 20}
        yield f"grpc {compression.name}", Grpc(endpoint=URL, insecure=True, **options)


def resource(service):
    from opentelemetry.sdk.resources import Resource

    return Resource({"service.name": service, "host.id": 7, "tags": ["a", "b"]})


class Kept:
    """Exporter that hands over what it gets, so that it can be sent more than once."""

    def __init__(self):
        self.all = []

    def export(self, batch, **_):
        from opentelemetry.sdk.trace.export import SpanExportResult

        self.all.extend(batch)
        return SpanExportResult.SUCCESS

    def shutdown(self):
        pass

    def force_flush(self, *_):
        return True


@check("opentelemetry")
def spans():
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

    service = f"spans {RUN}"
    kept = Kept()
    provider = TracerProvider(resource=resource(service))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("lib", "1.2")
    attributes = {"text": 'ä "q"', "yes": True, "n": -(2**62), "x": 0.1, "list": ["a", "b"], "nan": float("nan")}
    with tracer.start_as_current_span("outer", kind=trace.SpanKind.SERVER, attributes=attributes) as outer:
        link = trace.Link(outer.get_span_context(), {"why": "test"})
        with tracer.start_as_current_span("inner", kind=trace.SpanKind.CLIENT, links=[link]) as inner:
            inner.add_event("happened", {"n": 1})
            inner.set_status(trace.StatusCode.ERROR, "it failed")
    for n in range(1000):
        tracer.start_span(f"many {n}").end()
    provider.shutdown()
    for name, exporter in exporters("span"):
        for at in range(0, len(kept.all), 512):
            # each exporter sends the same spans
            result = exporter.export(kept.all[at : at + 512])
            assert result == SpanExportResult.SUCCESS, f"{name}: {result}"
        exporter.shutdown()
    expect(sql(f"select count(*) as n from otel_traces where service_name = '{service}'"), [{"n": 1002}])
    found = sql(
        "select span_name, span_kind, status_code, status_message, span_attributes, events, links, parent_span_id, span_id,"
        " trace_id, scope_name, scope_version, resource_attributes, end_time >= time as ordered, duration_nano > 0 as lasted,"
        f" _extra from otel_traces where service_name = '{service}' and span_name in ('outer', 'inner') order by span_name"
    )
    inner, outer = found
    context = kept.all[0].get_span_context()
    expect((inner["trace_id"], inner["span_id"]), (f"{context.trace_id:032x}", f"{context.span_id:016x}"))
    expect((inner["parent_span_id"], outer["parent_span_id"]), (outer["span_id"], None))
    expect((inner["span_kind"], inner["status_code"], inner["status_message"]), ("Client", "Error", "it failed"))
    expect((outer["span_kind"], outer["status_code"], outer["status_message"]), ("Server", "Unset", None))
    expect(as_json(outer["span_attributes"]), {**attributes, "nan": "NaN"})
    event, = as_json(inner["events"])
    expect((event["name"], event["attributes"]), ("happened", {"n": 1}))
    assert len(event["time"]) >= len("2026-01-05T09:00:00.000000001Z") - 9, event
    link, = as_json(inner["links"])
    expect((link["span_id"], link["attributes"]), (outer["span_id"], {"why": "test"}))
    expect((inner["scope_name"], inner["scope_version"], inner["_extra"]), ("lib", "1.2", None))
    kept_resource = as_json(inner["resource_attributes"])
    expect((kept_resource["service.name"], kept_resource["host.id"], kept_resource["tags"]), (service, 7, ["a", "b"]))
    assert inner["ordered"] and inner["lasted"], inner


def as_json(value):
    return json.loads(value) if isinstance(value, str) else value


@check("opentelemetry")
def logs():
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    at = time.time_ns() // 1000 * 1000 + 7
    for name, exporter in exporters("log"):
        service = f"logs {RUN} {name}"
        provider = LoggerProvider(resource=resource(service))
        provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        logger = provider.get_logger("lib")
        options = {"timestamp": at, "severity_number": SeverityNumber.ERROR, "severity_text": "ERROR"}
        logger.emit(LogRecord(body="it broke: ä", attributes={"user": "u1", "n": 3}, event_name="broken", **options))
        logger.emit(LogRecord(body={"k": [1, "x", None]}, **options))
        # equal ones are events of their own
        for _ in range(2000):
            logger.emit(LogRecord(body="again", observed_timestamp=at, **options))
        assert provider.force_flush()
        provider.shutdown()
        found = sql(
            "select body, log_attributes, severity_number, severity_text, event_name, nanos, trace_id, _extra from otel_logs"
            f" where service_name = '{service}' and body <> 'again' order by event_name nulls last"
        )
        expect([(row["body"], as_json(row["log_attributes"]), row["event_name"]) for row in found], [
            ("it broke: ä", {"user": "u1", "n": 3}, "broken"), ('{"k":[1,"x",null]}', None, None),
        ])
        for row in found:
            expect((row["severity_number"], row["severity_text"], row["nanos"], row["_extra"]), (17, "ERROR", 7, None))
        # a batch is a request: equal records of two of them are one event
        count = sql(f"select count(*) as n from otel_logs where service_name = '{service}' and body = 'again'")[0]["n"]
        assert 1 <= count <= 2000, count


@check("opentelemetry")
def metrics():
    from opentelemetry.metrics import Observation
    from opentelemetry.sdk.metrics import Histogram, MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View

    for name, exporter in exporters("metric"):
        service = f"metrics {RUN} {name}"
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
        view = View(instrument_type=Histogram, instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
        provider = MeterProvider([reader], resource=resource(service), views=[view])
        meter = provider.get_meter("lib")
        counter = meter.create_counter("requests", unit="1", description="Requests.")
        counter.add(2**60 + 1, {"path": "/"})
        meter.create_up_down_counter("open").add(-2.5)
        meter.create_observable_gauge("level", [lambda _: [Observation(1e300, {"tank": 1})]])
        for value in [0.0, 3, 7, 12_000]:
            meter.create_histogram("durations", unit="ms", explicit_bucket_boundaries_advisory=[5.0, 10.0]).record(value)
            meter.create_histogram("exponential").record(value)
        assert provider.force_flush(), name
        provider.shutdown()
        of = f"where service_name = '{service}'"
        row, = sql(f"select metric_name, value, attributes from otel_metrics_gauge {of} and metric_name = 'level' limit 1")
        expect(as_json(row["attributes"]), {"tank": 1})
        expect(row["value"], 1e300)
        found = sql(
            "select metric_name, max(int_value) as n, max(value) as x, bool_or(is_monotonic) as up, min(aggregation_temporality) as kind,"
            f" min(metric_unit) as unit from otel_metrics_sum {of} group by metric_name order by metric_name"
        )
        expect(found, [
            {"metric_name": "open", "n": None, "x": -2.5, "up": False, "kind": "Cumulative", "unit": None},
            {"metric_name": "requests", "n": 2**60 + 1, "x": float(2**60), "up": True, "kind": "Cumulative", "unit": "1"},
        ])
        row = sql(f"select count, sum, min, max, bucket_counts, explicit_bounds from otel_metrics_histogram {of}")[0]
        expect((row["count"], row["sum"], row["min"], row["max"]), (4, 12_010.0, 0.0, 12_000.0))
        expect((as_json(row["bucket_counts"]), as_json(row["explicit_bounds"])), ([2, 1, 1], [5.0, 10.0]))
        row = sql(f"select count, zero_count, scale, positive_bucket_counts as buckets from otel_metrics_exponential_histogram {of}")[0]
        expect((row["count"], row["zero_count"], sum(as_json(row["buckets"]))), (4, 1, 3))


@check("opentelemetry")
def a_wrong_token_is_told():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

    kept = Kept()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    provider.get_tracer("lib").start_span("never").end()
    for name, exporter in exporters("span", token="wrong"):
        result = exporter.export(kept.all)
        assert result == SpanExportResult.FAILURE, f"{name}: {result}"
        exporter.shutdown()
    expect(sql("select count(*) as n from otel_traces where span_name = 'never'"), [{"n": 0}])


class Target(http.server.BaseHTTPRequestHandler):
    """Page of metrics that Prometheus reads; it is gone from the fourth time on, so that its series end."""

    scrapes = 0

    def do_GET(self):
        Target.scrapes += 1
        if Target.scrapes > 3:
            return self.send_error(503)
        text = (
            "# HELP orders_total Orders.\n# TYPE orders_total counter\n"
            f'orders_total{{code="200",path="/\\"ä\\""}} {Target.scrapes}\n'
            '# TYPE level gauge\nlevel{tank="1"} +Inf\nlevel{tank="2"} NaN\n'
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


@check("prometheus")
def prometheus_itself():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Target)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_port
    with tempfile.TemporaryDirectory() as directory:
        settings = os.path.join(directory, "prometheus.yml")
        job = f"job-{RUN}"
        with open(settings, "w") as file:
            file.write(
                f"global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: {job}\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
                f"remote_write:\n- url: {URL}/api/v1/write\n  authorization: {{credentials: {TOKEN}}}\n"
                "  send_exemplars: true\n  send_native_histograms: true\n  metadata_config: {send: true, send_interval: 1s}\n"
                "  queue_config: {batch_send_deadline: 200ms, retry_on_http_429: false}\n"
            )
        arguments = [
            os.environ["PROMETHEUS"], f"--config.file={settings}", f"--storage.tsdb.path={directory}/data",
            "--web.listen-address=127.0.0.1:0", "--enable-feature=native-histograms,exemplar-storage",
        ]
        with open(os.path.join(directory, "log"), "w+") as log:
            program = subprocess.Popen(arguments, stdout=log, stderr=log)
            try:
                stale = f"select count(*) as n from prometheus where job = '{job}' and metric_name = 'orders_total' and is_stale"
                deadline = time.time() + 60
                while time.time() < deadline and sql(stale)[0]["n"] == 0:
                    time.sleep(0.3)
                described = "select metric_type, metric_help from prometheus_metadata where metric_name = 'orders_total'"
                while time.time() < deadline and not sql(described):
                    time.sleep(0.3)
            finally:
                program.terminate()
                program.wait()
            log.seek(0)
            errors = [line for line in log if ("level=error" in line or "level=warn" in line) and "SIGTERM" not in line]
            assert not errors, errors
    of = f"from prometheus where job = '{job}'"
    expect(sql(f"select value {of} and metric_name = 'orders_total' and not is_stale order by time"), [
        {"value": 1.0}, {"value": 2.0}, {"value": 3.0},
    ])
    row = sql(f"select labels, instance, value, is_stale {of} and metric_name = 'orders_total' order by time desc limit 1")[0]
    labels = {"code": "200", "path": '/"ä"', "job": job, "instance": f"127.0.0.1:{port}"}
    expect((as_json(row["labels"]), row["instance"], row["value"], row["is_stale"]), (labels, labels["instance"], None, True))
    expect(sql(f"select count(*) as n {of} and metric_name = 'level' and not is_stale"), [{"n": 6}])
    expect(sql(f"select count(distinct value) as n {of} and metric_name = 'up'"), [{"n": 2}])
    expect(sql("select metric_type, metric_help from prometheus_metadata where metric_name = 'orders_total'"), [
        {"metric_type": "counter", "metric_help": "Orders."},
    ])


failed = 0
for name in sys.argv[3:] or list(CHECKS):
    for function in CHECKS.get(name, []):
        title = f"{name}: {function.__name__.replace('_', ' ')}"
        try:
            function()
            print(f"{title}: ok", flush=True)
        except Exception as error:  # each check is told, and the next one runs
            failed = 1
            print(f"{title}: FAILED: {type(error).__name__}: {error}", flush=True)
sys.exit(failed)
