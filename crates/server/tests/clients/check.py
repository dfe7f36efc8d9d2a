"""Writes line protocol with clients of InfluxDB, and compares what SQL returns. Called by scripts/clients.sh.

usage: check.py URL TOKEN [CLIENT …]
"""

import datetime
import gzip
import io
import json
import sys
import urllib.parse
import urllib.request

URL, TOKEN = sys.argv[1:3]
CHECKS = {}
AT = datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.timezone.utc)


def check(client):
    def add(function):
        CHECKS.setdefault(client, []).append(function)
        return function

    return add


def request(path, body, headers):
    headers = {"Authorization": f"Bearer {TOKEN}", **headers}
    with urllib.request.urlopen(urllib.request.Request(URL + path, data=body, headers=headers)) as reply:
        return reply.read(), reply.headers


def sql(query, accept="application/json"):
    body, headers = request("/api/v1/sql", query.encode(), {"Content-Type": "text/plain", "Accept": accept})
    return json.loads(body) if accept == "application/json" else (body, headers)


def stored(station):
    return sql(
        "select station, celsius, readings, calm, note, time, _extra from weather"
        f" where station = '{station}' order by time, _offset, _row"
    )


def expect(found, expected):
    assert found == expected, f"expected {expected}, found {found}"


def row(station, time="2026-01-05T09:00:00Z", extra=None, **values):
    return {
        "station": station, "celsius": None, "readings": None, "calm": None, "note": None,
        "time": time, "_extra": extra, **values,
    }


@check("influxdb-client")
def all_types_by_version_2():
    from influxdb_client import InfluxDBClient, Point, WritePrecision
    from influxdb_client.client.write_api import SYNCHRONOUS

    with InfluxDBClient(url=URL, token=TOKEN, org="any", enable_gzip=True) as client:
        health = client.health()
        assert health.status == "pass", health
        assert client.ping() is True
        assert client.version(), "no version"
        points = Point("weather").tag("station", "v2, a=\"b\" \\c d").field("celsius", -11.5).field("readings", 2**62)
        points = points.field("calm", True).field("note", 'said "no", ä € \\ ').time(AT, WritePrecision.NS)
        api = client.write_api(write_options=SYNCHRONOUS)
        for _ in range(2):
            api.write(bucket="any", record=points)
    found = sql("select celsius, readings, calm, note, station from weather where station like 'v2, %'")
    expect(found, [{
        "celsius": -11.5, "readings": 2**62, "calm": True, "note": 'said "no", ä € \\ ', "station": 'v2, a="b" \\c d',
    }])


@check("influxdb-client")
def bad_lines_are_told_and_good_ones_stored():
    from influxdb_client import InfluxDBClient
    from influxdb_client.client.write_api import SYNCHRONOUS
    from influxdb_client.rest import ApiException

    lines = [
        "weather,station=v2bad celsius=1 1767603600",
        "weather,station=v2bad celsius=",
        "weather,station=v2bad celsius=\"cold\",rain=2i 1767603601",
        "unknown n=1i 1767603602",
    ]
    with InfluxDBClient(url=URL, token=TOKEN, org="any") as client:
        try:
            client.write_api(write_options=SYNCHRONOUS).write(bucket="any", record=lines, write_precision="s")
            raise AssertionError("no error")
        except ApiException as error:
            assert error.status == 400, error
            body = json.loads(error.body)
            assert body["code"] == "invalid" and body["line"] == 2, body
            assert "partial write: 2 of 4 lines were stored" in body["message"], body
            assert "event unknown { time: time, n: long, } id time time time" in body["message"], body
    expect(stored("v2bad"), [
        row("v2bad", celsius=1.0),
        row("v2bad", time="2026-01-05T09:00:01Z", extra='{"celsius":"cold","rain":2}'),
    ])


@check("influxdb-client")
def batches_and_a_wrong_token():
    from influxdb_client import InfluxDBClient, WriteOptions
    from influxdb_client.client.write_api import SYNCHRONOUS
    from influxdb_client.rest import ApiException

    with InfluxDBClient(url=URL, token=TOKEN, org="any") as client:
        with client.write_api(write_options=WriteOptions(batch_size=5000)) as api:
            for n in range(20_000):
                api.write(bucket="any", record=f"counted,writer=v2 n={n}i 1767603600000000000")
    expect(sql("select count(*) as n, sum(n) as s from counted where writer = 'v2'"), [{"n": 20_000, "s": 199_990_000}])
    with InfluxDBClient(url=URL, token="wrong", org="any") as client:
        try:
            client.write_api(write_options=SYNCHRONOUS).write(bucket="any", record="counted,writer=x n=1i")
            raise AssertionError("no error")
        except ApiException as error:
            assert error.status == 401 and json.loads(error.body)["code"] == "unauthorized", error


@check("influxdb")
def points_by_version_1():
    from influxdb import InfluxDBClient
    from influxdb.exceptions import InfluxDBClientError

    address = urllib.parse.urlsplit(URL)
    client = InfluxDBClient(address.hostname, address.port, "any", TOKEN, "any", gzip=True)
    assert client.ping(), "no version"
    client.create_database("any")
    point = {
        "measurement": "weather", "tags": {"station": "v1"}, "time": "2026-01-05T09:00:00Z",
        "fields": {"celsius": 1.5, "readings": 7, "calm": False, "note": 'a "b" c'},
    }
    for precision in [None, "s", "ms", "u"]:
        assert client.write_points([point], time_precision=precision)
    expect(stored("v1"), [row("v1", celsius=1.5, readings=7, calm=False, note='a "b" c')])
    try:
        client.write_points([{"measurement": "unknown", "fields": {"n": 1}}])
        raise AssertionError("no error")
    except InfluxDBClientError as error:
        assert error.code == 400 and "partial write: 0 of 1 lines were stored" in str(error.content), error


@check("influxdb")
def queries_by_version_1():
    from influxdb import InfluxDBClient
    from influxdb.exceptions import InfluxDBClientError

    address = urllib.parse.urlsplit(URL)
    client = InfluxDBClient(address.hostname, address.port, "any", TOKEN, "any")
    lines = [f"counted,writer=q{n % 2} n={n}i {1767603600 + n}" for n in range(600)]
    assert client.write_points(lines, time_precision="s", protocol="line")
    expect(client.get_list_database(), [{"name": "tidemill"}])
    assert {"name": "counted"} in client.get_list_measurements()
    assert client.get_list_retention_policies("any")[0]["default"] is True
    found = client.query("SELECT sum(n), count(n) FROM counted WHERE writer =~ /^q/ GROUP BY writer")
    expect(list(found.get_points(tags={"writer": "q1"})), [{"time": "1970-01-01T00:00:00Z", "sum": 90_000, "count": 300}])
    where = "time >= '2026-01-05T09:00:00Z' AND time < '2026-01-05T09:10:00Z' AND writer = $writer"
    text = f"SELECT mean(n) FROM counted WHERE {where} GROUP BY time(5m) fill(none)"
    found = client.query(text, bind_params={"writer": "q0"}, epoch="s")
    expect(list(found.get_points()), [{"time": 1767603600, "mean": 149}, {"time": 1767603900, "mean": 449}])
    chunks = client.query("SELECT n FROM counted WHERE writer =~ /^q/", chunked=True, chunk_size=100)
    expect([len(list(one.get_points())) for one in chunks], [100] * 6)
    both = client.query("SHOW TAG KEYS FROM counted; SHOW FIELD KEYS FROM counted")
    expect([list(one.get_points()) for one in both], [[{"tagKey": "writer"}], [{"fieldKey": "n", "fieldType": "integer"}]])
    for text, said in [("SELECT n FRM counted", "found FRM, expected FROM"), ("SELECT foo(n) FROM counted", "undefined function")]:
        try:
            client.query(text)
            raise AssertionError("no error")
        except InfluxDBClientError as error:
            assert said in str(error), error


@check("influxdb3-python")
def points_by_version_3():
    from influxdb_client_3 import InfluxDBClient3, Point, WriteOptions, SYNCHRONOUS, write_client_options

    own = {"use_v2_api": False}
    for at, api in enumerate([{}, own, {"accept_partial": False, **own}, {"no_sync": True, **own}]):
        try:
            options = WriteOptions(write_type=SYNCHRONOUS.write_type, **api)
        except TypeError as error:
            print(f"  skipped: {api}: {error}")
            continue
        with InfluxDBClient3(host=URL, token=TOKEN, database="any",
                             write_client_options=write_client_options(write_options=options)) as client:
            station = f"v3 {at}"
            client.write(Point("weather").tag("station", station).field("celsius", 1.5).field("readings", 3).time(AT))
            expect(stored(station), [row(station, celsius=1.5, readings=3)])
            try:
                client.write([f"weather,station={station.replace(' ', '_')} celsius=1", "unknown n=1i"])
                raise AssertionError("no error")
            except AssertionError:
                raise
            except Exception as error:
                assert "no stream `unknown`" in f"{error} {vars(error)}", error
            # all lines or none where that was asked for
            expect(len(stored(station.replace(" ", "_"))), 1 if api.get("accept_partial", True) else 0)


@check("pyarrow")
def columns_in_and_out():
    import pyarrow as pa
    import pyarrow.ipc as ipc
    import pyarrow.parquet as pq

    rows = 1000
    table = pa.table({
        "station": pa.array([f"arrow {n}" for n in range(rows)]).dictionary_encode(),
        "celsius": pa.array([None if n % 3 == 0 else n / 2 for n in range(rows)], pa.float32()),
        "readings": pa.array(range(rows), pa.int32()),
        "time": pa.array([AT] * rows, pa.timestamp("us", "UTC")),
    })
    stream = io.BytesIO()
    with ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    compressed = gzip.compress(stream.getvalue())
    file = io.BytesIO()
    pq.write_table(table, file)
    for media, body, headers, duplicates in [
        ("application/vnd.apache.arrow.stream", compressed, {"Content-Encoding": "gzip"}, 0),
        ("application/vnd.apache.parquet", file.getvalue(), {}, rows),
    ]:
        reply, _ = request("/api/v1/streams/weather?wait=true", body, {"Content-Type": media, **headers})
        reply = json.loads(reply)
        expect((reply["accepted"], reply["duplicates"]), (rows, duplicates))
    query = "select station, celsius, readings, time from weather where station like 'arrow %' order by readings"
    expected = table.select(["celsius", "readings"]).to_pydict()
    body, headers = sql(query, "application/vnd.apache.arrow.stream")
    names = [column["name"] for column in json.loads(headers["Tidemill-Columns"])]
    expect(names, ["station", "celsius", "readings", "time"])
    found = ipc.open_stream(body).read_all()
    expect(found.select(["celsius", "readings"]).to_pydict(), expected)
    assert found.schema.field("time").type == pa.timestamp("us", "UTC"), found.schema
    body, _ = sql(query, "application/vnd.apache.parquet")
    found = pq.read_table(io.BytesIO(body))
    expect(found.select(["celsius", "readings"]).to_pydict(), expected)
    many, _ = sql("select value as n from generate_series(1, 1000000)", "application/vnd.apache.parquet")
    expect(pq.read_table(io.BytesIO(many)).num_rows, 1_000_000)


@check("mcp")
def tools_over_http():
    import asyncio

    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def call():
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            async with Client(streamable_http_client(f"{URL}/mcp", http_client=http)) as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
                rows = await client.call_tool("sql", {"query": "SELECT 1 AS one"})
                refused = await client.call_tool("sql", {"query": "DELETE FROM events.weather"})
                return tools, rows, refused

    tools, rows, refused = asyncio.run(call())
    expect(tools, ["list_streams", "list_rules", "sql", "plan", "why", "explain", "backtest"])
    expect((rows.is_error, rows.content[0].text), (False, 'columns: one bigint\n{"one":1}\n1 rows\n'))
    assert refused.is_error and "only read" in refused.content[0].text, refused


failed = 0
for name in sys.argv[3:] or list(CHECKS):
    for function in CHECKS.get(name, []):
        title = f"{name}: {function.__name__.replace('_', ' ')}"
        try:
            function()
            print(f"{title}: ok")
        except Exception as error:  # each check is told, and the next one runs
            failed = 1
            print(f"{title}: FAILED: {type(error).__name__}: {error}")
sys.exit(failed)
