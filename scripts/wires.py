"""Wires on which events arrive, each as a client sends on it, for kill_wires.py.

A wire sends the rows of a range of numbers. The number decides everything in a row, its id as well, so rows that are sent a second time
are the same. `send` returns how many rows from the first on were acknowledged, or raises.
"""

import json
import logging
import struct

PATIENCE_S = 60
BASE_S = 1767603600
# exporters write a line for each retry
logging.disable(logging.CRITICAL)


class Wire:
    """A client, and where its rows are found."""

    stream = number = None
    where = "true"

    def __init__(self, server):
        self.server = server

    def send(self, first, end):
        raise NotImplementedError

    def reset(self):
        """Forgets connections after a failure."""


class HttpJson(Wire):
    title, stream, number = "HTTP JSON", "json", "n"
    # of the ids; another one makes other events of the same numbers
    prefix = ""

    def send(self, first, end):
        rows = "".join(json.dumps({"id": f"{self.prefix}{n}", "n": n}) + "\n" for n in range(first, end))
        self.server.post("/api/v1/streams/json", rows.encode(), {"content-type": "application/x-ndjson"})
        return end - first


class Postgres(Wire):
    number = "n"
    connection = None

    def cursor(self):
        import psycopg

        if self.connection is None:
            server = self.server
            self.connection = psycopg.connect(
                host="127.0.0.1", port=server.postgres, user="admin", password=server.token, dbname="tidemill",
                autocommit=True, connect_timeout=PATIENCE_S, options=f"-c statement_timeout={PATIENCE_S}s",
            )
        return self.connection.cursor()

    def reset(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class PostgresInsert(Postgres):
    title, stream = "PostgreSQL INSERT", "pg_insert"

    def send(self, first, end):
        rows = [(str(n), n) for n in range(first, end)]
        cursor = self.cursor()
        if first % 2 == 0:
            values = ", ".join(["(%s, %s)"] * len(rows))
            cursor.execute(f"INSERT INTO pg_insert (id, n) VALUES {values}", [value for row in rows for value in row])
        else:
            with self.connection.transaction():
                cursor.executemany("INSERT INTO pg_insert (id, n) VALUES (%s, %s)", rows)
        return len(rows)


class PostgresCopyText(Postgres):
    title, stream = "PostgreSQL COPY, text", "pg_copy_text"
    format = "text"

    def send(self, first, end):
        with self.cursor().copy(f"COPY {self.stream} (id, n) FROM STDIN (FORMAT {self.format})") as copy:
            copy.set_types(["text", "int8"])
            for n in range(first, end):
                copy.write_row((str(n), n))
        return end - first


class PostgresCopyBinary(PostgresCopyText):
    title, stream, format = "PostgreSQL COPY, binary", "pg_copy_binary", "binary"


def table(first, end):
    import pyarrow

    numbers = range(first, end)
    return pyarrow.table({"id": [str(n) for n in numbers], "n": pyarrow.array(numbers, pyarrow.int64())})


class FlightPut(Wire):
    title, stream, number = "Flight DoPut", "flight_put", "n"
    client = None

    def send(self, first, end):
        import pyarrow.flight as flight

        if self.client is None:
            self.client = flight.FlightClient(f"grpc://127.0.0.1:{self.server.http}")
        options = flight.FlightCallOptions(PATIENCE_S, headers=[(b"authorization", f"Bearer {self.server.token}".encode())])
        acknowledged = 0
        try:
            rows = table(first, end)
            writer, replies = self.client.do_put(flight.FlightDescriptor.for_path(self.stream), rows.schema, options)
            middle = rows.num_rows // 2
            for part in [rows.slice(0, middle), rows.slice(middle)]:
                writer.write_table(part)
            writer.done_writing()
            while (reply := replies.read()) is not None:
                acknowledged = updated(bytes(reply))
            writer.close()
        except (flight.FlightError, OSError):
            if acknowledged == 0:
                raise
        return acknowledged

    def reset(self):
        self.client = None


def updated(result):
    """Returns the number of a DoPutUpdateResult, which is its only field."""
    assert result[0] == 8, result
    return sum((byte & 127) << 7 * at for at, byte in enumerate(result[1:]))


class FlightIngest(Wire):
    title, stream, number = "Flight CommandStatementIngest", "flight_ingest", "n"
    connection = None

    def send(self, first, end):
        import adbc_driver_flightsql.dbapi as flight_sql

        if self.connection is None:
            options = {
                "adbc.flight.sql.authorization_header": f"Bearer {self.server.token}",
                "adbc.flight.sql.rpc.timeout_seconds.update": str(PATIENCE_S),
            }
            self.connection = flight_sql.connect(f"grpc://127.0.0.1:{self.server.http}", db_kwargs=options, autocommit=True)
        with self.connection.cursor() as cursor:
            return cursor.adbc_ingest(self.stream, table(first, end), mode="append")

    def reset(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def lines(measurement, first, end):
    return [f"{measurement},host=h{n % 7} n={n}i {(BASE_S * 1_000_000 + n) * 1000}" for n in range(first, end)]


class LineProtocol1(Wire):
    title, stream, number = "line protocol, /write", "line_1", "n"

    def send(self, first, end):
        from influxdb import InfluxDBClient

        client = InfluxDBClient("127.0.0.1", self.server.http, "any", self.server.token, "any", timeout=PATIENCE_S, retries=10)
        assert client.write_points(lines(self.stream, first, end), protocol="line")
        return end - first


class LineProtocol2(Wire):
    title, stream, number = "line protocol, v2", "line_2", "n"

    def send(self, first, end):
        from influxdb_client import InfluxDBClient
        from influxdb_client.client.write.retry import WritesRetry
        from influxdb_client.client.write_api import SYNCHRONOUS

        retries = WritesRetry(total=5, retry_interval=1, max_retry_delay=2)
        options = {"token": self.server.token, "org": "any", "retries": retries, "timeout": PATIENCE_S * 1000}
        with InfluxDBClient(self.server.url, **options) as client:
            client.write_api(write_options=SYNCHRONOUS).write(bucket="any", record=lines(self.stream, first, end))
        return end - first


class LineProtocol3(Wire):
    title, stream, number = "line protocol, v3", "line_3", "n"

    def send(self, first, end):
        from influxdb_client_3 import SYNCHRONOUS, InfluxDBClient3, WriteOptions, write_client_options

        writes = write_client_options(write_options=WriteOptions(write_type=SYNCHRONOUS.write_type, use_v2_api=False))
        with InfluxDBClient3(self.server.url, token=self.server.token, database="any", write_client_options=writes) as client:
            client.write(lines(self.stream, first, end))
        return end - first


class Otlp(Wire):
    exporter = None

    def send(self, first, end):
        from opentelemetry.sdk.resources import Resource

        if self.exporter is None:
            self.exporter = self.connected()
        result = self.exporter.export(self.records(Resource({"service.name": "killed"}), range(first, end)))
        if result.name != "SUCCESS":
            raise ConnectionError(result)
        return end - first

    def reset(self):
        if self.exporter is not None:
            self.exporter.shutdown()
            self.exporter = None


class OtlpHttpLogs(Otlp):
    title, stream, number = "OTLP over HTTP, logs", "otel_logs", "CAST(body AS bigint)"

    def connected(self):
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        return OTLPLogExporter(f"{self.server.url}/v1/logs", headers=self.server.bearer, timeout=PATIENCE_S)

    def records(self, resource, numbers):
        from opentelemetry._logs import LogRecord
        from opentelemetry.sdk._logs import ReadableLogRecord

        one = lambda n: LogRecord(timestamp=BASE_S * 10**9 + n, observed_timestamp=BASE_S * 10**9, body=str(n))
        return [ReadableLogRecord(one(n), resource) for n in numbers]


class OtlpHttpMetrics(Otlp):
    title, stream, number = "OTLP over HTTP, metrics", "otel_metrics_gauge", "int_value"

    def connected(self):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter(f"{self.server.url}/v1/metrics", headers=self.server.bearer, timeout=PATIENCE_S)

    def records(self, resource, numbers):
        from opentelemetry.sdk.metrics.export import Gauge, Metric, MetricsData, NumberDataPoint, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        points = [NumberDataPoint({"p": n % 7}, 0, BASE_S * 10**9 + n, n) for n in numbers]
        scope = ScopeMetrics(InstrumentationScope("killed"), [Metric("level", "", "", Gauge(points))], "")
        return MetricsData([ResourceMetrics(resource, [scope], "")])


class OtlpGrpcTraces(Otlp):
    title, stream, number = "OTLP over gRPC, traces", "otel_traces", "CAST(span_name AS bigint)"

    def connected(self):
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        headers = tuple((name.lower(), value) for name, value in self.server.bearer.items())
        return OTLPSpanExporter(self.server.url, insecure=True, headers=headers, timeout=PATIENCE_S)

    def records(self, resource, numbers):
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext

        at = BASE_S * 10**9
        one = lambda n: ReadableSpan(
            str(n), SpanContext(n // 3 + 1, n + 1, is_remote=False), resource=resource, start_time=at + n, end_time=at + n + 1
        )
        return [one(n) for n in numbers]


def field(number, value):
    """Returns a field of Protocol Buffers: a text, bytes, a whole number or a float."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    head = b""
    while value > 127:
        head, value = head + bytes([value & 127 | 128]), value >> 7
    return head + bytes([value])


class RemoteWrite1(Wire):
    """There is no client for Python: the messages are made here, as the specification has them."""

    title, stream, number, where = "remote write 1", "prometheus", "CAST(value AS bigint)", "job = 'version 1'"
    headers = {"content-type": "application/x-protobuf"}

    def send(self, first, end):
        import pyarrow

        headers = {"content-encoding": "snappy", **self.headers}
        body = pyarrow.compress(self.message(first, end), codec="snappy", asbytes=True)
        self.server.post("/api/v1/write", body, headers)
        return end - first

    def samples(self, first, end):
        return b"".join(field(2, field(1, float(n)) + field(2, BASE_S * 1000 + n)) for n in range(first, end))

    def message(self, first, end):
        labels = [("__name__", "level"), ("job", "version 1")]
        labels = b"".join(field(1, field(1, name) + field(2, value)) for name, value in labels)
        return field(1, labels + self.samples(first, end))


class RemoteWrite2(RemoteWrite1):
    title, where = "remote write 2", "job = 'version 2'"
    headers = {
        "content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request", "x-prometheus-remote-write-version": "2.0.0",
    }

    def message(self, first, end):
        symbols = b"".join(field(4, symbol) for symbol in ["", "__name__", "level", "job", "version 2"])
        return symbols + field(5, field(1, bytes([1, 2, 3, 4])) + self.samples(first, end))


WIRES = [
    HttpJson, PostgresInsert, PostgresCopyText, PostgresCopyBinary, FlightPut, FlightIngest, LineProtocol1, LineProtocol2,
    LineProtocol3, OtlpHttpLogs, OtlpHttpMetrics, OtlpGrpcTraces, RemoteWrite1, RemoteWrite2,
]

RULES = """
event json { id: string, n: long } id id key id;
event pg_insert { id: string, n: long } id id key id;
event pg_copy_text { id: string, n: long } id id key id;
event pg_copy_binary { id: string, n: long } id id key id;
event flight_put { id: string, n: long } id id key id;
event flight_ingest { id: string, n: long } id id key id;
event line_1 { time: time, host: string, n: long } id host, time key host time time;
event line_2 { time: time, host: string, n: long } id host, time key host time time;
event line_3 { time: time, host: string, n: long } id host, time key host time time;
"""
