"""Reads and writes with clients of Flight SQL, and compares what they return. Called by scripts/clients.sh.

usage: check.py URL TOKEN [CLIENT …]
"""

import datetime
import decimal
import sys
import threading
import time
import urllib.parse

URL, TOKEN = sys.argv[1:3]
HOST = urllib.parse.urlsplit(URL)
GRPC = f"grpc://{HOST.hostname}:{HOST.port}"
AT = datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.timezone.utc)
LONG = "select count(*) from generate_series(1, 1000000) a cross join generate_series(1, 1000000) b where a.value % 7 = b.value % 11"
CHECKS = {}


def check(client):
    def add(function):
        CHECKS.setdefault(client, []).append(function)
        return function

    return add


def expect(found, expected):
    assert found == expected, f"expected {expected}, found {found}"


def refused(part, call):
    try:
        call()
    except Exception as error:
        assert part in str(error), f"expected `{part}` in: {error}"
        return
    raise AssertionError(f"no error with `{part}`")


def readings(station, rows):
    import pyarrow as pa

    return pa.table({
        "station": pa.array([station] * rows),
        "celsius": pa.array([n / 2 for n in range(rows)], pa.float64()),
        "readings": pa.array(range(rows), pa.int64()),
        "time": pa.array([AT + datetime.timedelta(seconds=n) for n in range(rows)], pa.timestamp("us", "UTC")),
    })


def adbc(**options):
    import adbc_driver_flightsql.dbapi as flight_sql

    return flight_sql.connect(GRPC, db_kwargs=options, autocommit=True)


def adbc_with_token():
    return adbc(**{"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"})


@check("adbc-driver-flightsql")
def rows_and_parameters():
    with adbc(username="admin", password=TOKEN) as connection, connection.cursor() as cursor:
        cursor.execute("select value as n, 'row ' || value as t from generate_series(1, 100000)")
        table = cursor.fetch_arrow_table()
        expect((table.num_rows, table.column_names), (100_000, ["n", "t"]))
        values = (41, "é", 1.5, True, None, decimal.Decimal("12.50"), AT)
        cursor.execute(
            "select $1::bigint + 1, $2, $3::double, $4::boolean, $5::bigint, $6::decimal(10, 2), $7::timestamptz", values
        )
        expect(cursor.fetchone(), (42, "é", 1.5, True, None, decimal.Decimal("12.50"), AT))
        cursor.execute("select count(*) from generate_series(1, 10) where value > $1", (7,))
        expect(cursor.fetchone(), (3,))
        refused("there is no table", lambda: cursor.execute("select * from nothing"))
        refused("has 1 parameters", lambda: cursor.execute("select $1::bigint"))
        refused("authorization", lambda: adbc().cursor().execute("select 1"))


@check("adbc-driver-flightsql")
def catalogs():
    with adbc_with_token() as connection:
        info = connection.adbc_get_info()
        expect((info["vendor_name"], info["driver_name"][:4]), ("Tidemill", "ADBC"))
        expect(sorted(connection.adbc_get_table_types()), ["TABLE", "VIEW"])
        schema = connection.adbc_get_table_schema("weather", db_schema_filter="events")
        expect(str(schema.field("celsius").type), "double")
        objects = connection.adbc_get_objects(depth="all", table_name_filter="weat%").read_all().to_pylist()
        [catalog] = [catalog for catalog in objects if catalog["catalog_name"] == "tidemill"]
        events = [schema for schema in catalog["catalog_db_schemas"] if schema["db_schema_name"] == "events"][0]
        columns = {column["column_name"] for column in events["db_schema_tables"][0]["table_columns"]}
        assert {"station", "celsius", "_time"} <= columns, columns


@check("adbc-driver-flightsql")
def events_are_appended():
    with adbc_with_token() as connection, connection.cursor() as cursor:
        expect(cursor.adbc_ingest("weather", readings("adbc", 30_000), mode="append"), 30_000)
        cursor.execute("select count(*), sum(readings) from weather where station = 'adbc'")
        expect(cursor.fetchone(), (30_000, 449_985_000))
        refused("mode=\"append\"", lambda: cursor.adbc_ingest("weather", readings("x", 1), mode="create"))
        refused("mode=\"append\"", lambda: cursor.adbc_ingest("weather", readings("x", 1), mode="replace"))
        refused("no stream `nothing`", lambda: cursor.adbc_ingest("nothing", readings("x", 1), mode="append"))
        wrong = readings("x", 1).rename_columns(["station", "celsius", "readings", "tame"])
        refused("Did you mean `time`", lambda: cursor.adbc_ingest("weather", wrong, mode="append"))
        cursor.execute("delete from events.weather where station = 'adbc' and readings >= 10")
        expect(cursor.fetchone(), (29_990,))


@check("adbc-driver-flightsql")
def a_statement_is_cancelled():
    with adbc_with_token() as connection, connection.cursor() as cursor, adbc_with_token() as other:
        failed = []

        def run():
            try:
                cursor.execute(LONG)
                cursor.fetchall()
            except Exception as error:
                failed.append(str(error))

        def running():
            with other.cursor() as statements:
                statements.execute(
                    "select count(*) from system.statements where origin = 'flight' and phase = 'running' and statement like '%cross join%'"
                    " and statement not like '%system.statements%'"
                )
                return statements.fetchone()[0]

        thread = threading.Thread(target=run)
        thread.start()
        while running() == 0 and thread.is_alive():
            time.sleep(0.01)
        cursor.adbc_cancel()
        thread.join(60)
        assert not thread.is_alive() and failed and "ancel" in failed[0], failed
        deadline = time.monotonic() + 30
        while running() > 0:
            assert time.monotonic() < deadline, "the statement runs on"
            time.sleep(0.05)


def command(name, *fields):
    """Returns a command of Flight SQL whose fields from number 1 on are texts."""
    def text(number, value):
        value = value if isinstance(value, bytes) else value.encode()
        length, prefix = len(value), b""
        while length > 127:
            prefix, length = prefix + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + prefix + bytes([length]) + value

    message = b"".join(text(number, value) for number, value in enumerate(fields, 1))
    return text(1, f"type.googleapis.com/arrow.flight.protocol.sql.{name}") + text(2, message)


@check("pyarrow")
def flight_with_a_session():
    import pyarrow.flight as flight

    with flight.FlightClient(GRPC) as client:
        refused("authorization", lambda: list(client.list_actions()))
        options = flight.FlightCallOptions(headers=[client.authenticate_basic_token("admin", TOKEN)])
        descriptor = flight.FlightDescriptor.for_command(command("CommandStatementQuery", "select value from generate_series(1, 3)"))
        info = client.get_flight_info(descriptor, options)
        expect(info.schema.names, ["value"])
        expect(client.do_get(info.endpoints[0].ticket, options).read_all().to_pydict(), {"value": [1, 2, 3]})
        writer, replies = client.do_put(flight.FlightDescriptor.for_path("weather"), readings("pyarrow", 1).schema, options)
        for _ in range(3):
            writer.write_table(readings("pyarrow", 100))
        # an acknowledgement of what was sent so far
        assert replies.read() is not None
        writer.close()
        query = flight.FlightDescriptor.for_command(
            command("CommandStatementQuery", "select count(*) as n from weather where station = 'pyarrow'")
        )
        info = client.get_flight_info(query, options)
        expect(client.do_get(info.endpoints[0].ticket, options).read_all().to_pydict(), {"n": [100]})
        assert "CancelFlightInfo" in {action.type for action in client.list_actions(options)}
        refused("not one of this server", lambda: client.do_get(
            flight.Ticket(command("TicketStatementQuery", b"\1\2\3")), options).read_all())
        wrong = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer wrong")])
        refused("wrong", lambda: client.get_flight_info(query, wrong))


@check("influxdb3-python")
def queries_by_version_3():
    from influxdb_client_3 import InfluxDBClient3

    with InfluxDBClient3(host=URL, token=TOKEN, database="any") as client:
        table = client.query("select value as n from generate_series(1, 5000)", language="sql")
        expect((table.num_rows, table.column_names), (5000, ["n"]))
        refused("there is no table", lambda: client.query("select * from nothing", language="sql"))
        refused("InfluxQL", lambda: client.query("show measurements", language="influxql"))
        refused("parameters with names", lambda: client.query(
            "select $n", language="sql", query_parameters={"n": 1}))
    with InfluxDBClient3(host=URL, token="wrong", database="any") as client:
        refused("token is wrong", lambda: client.query("select 1", language="sql"))


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
