"""Reads the catalogs with clients of PostgreSQL. Called by scripts/clients.sh.

usage: check.py HOST:PORT PASSWORD DIRECTORY [CLIENT …]
"""

import os
import subprocess
import sys

ADDRESS, PASSWORD, DIRECTORY = sys.argv[1:4]
HOST, PORT = ADDRESS.rsplit(":", 1)
CHECKS = {}
COLUMNS = ["id", "device", "speed", "lanes", "at", "_time", "_extra", "_received", "_partition", "_offset", "_row"]


def check(client):
    def add(function):
        CHECKS.setdefault(client, []).append(function)
        return function

    return add


def expect(found, expected):
    assert found == expected, f"expected {expected}, found {found}"


def psql(*commands, options="-At"):
    arguments = [argument for command in commands for argument in ("-c", command)]
    done = subprocess.run(
        ["psql", "-X", options, "-h", HOST, "-p", PORT, "-U", "admin", "tidemill", *arguments],
        env={**os.environ, "PGPASSWORD": PASSWORD}, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )
    # a list without rows is told there, too
    assert done.returncode == 0 and "ERROR" not in done.stderr, f"{commands}: {done.stderr}"
    return done.stdout


@check("psql")
def lists_of_relations():
    tables = psql("\\dt")
    for row in ["docs|Device|table|admin", "events|Reading|table|admin", "events|TakeOff|table|admin"]:
        assert row in tables.splitlines(), tables
    assert "system|statements|table|admin" in psql("\\d")
    assert "events|Reading_pkey|index|admin|Reading" in psql("\\di").splitlines()
    for command in ["\\dt+", "\\d+", "\\dv", "\\dm", "\\ds", "\\di+", "\\dp", "\\dd", "\\dT", "\\dT int4", "\\df",
                    "\\df pg_catalog.array*", "\\da", "\\dx", "\\db", "\\dA", "\\dO", "\\dL", "\\dD", "\\drds", "\\ddp",
                    "\\dRp", "\\dRs", "\\dX", "\\dP", "\\dF", "\\dy", "\\des", "\\det", "\\dew", "\\dc", "\\dconfig",
                    "\\dS pg_class", "\\z"]:
        psql(command)


@check("psql")
def a_stream():
    described = psql('\\d events."Reading"')
    for row in ["id|text|||", "speed|double precision|||", "lanes|integer|||", "_time|timestamp with time zone||not null|"]:
        assert row in described.splitlines(), described
    described = psql('\\d events."Reading"', options="-A")
    assert '"Reading_pkey" PRIMARY KEY, btree (_partition, _offset, _row)' in described, described
    assert '"Reading_id_key" UNIQUE CONSTRAINT, btree (id)' in described, described
    assert "key: its values select the partition" in psql('\\d+ events."Reading"')
    assert "_id|text|||" in psql('\\d docs."Device"')


@check("psql")
def schemas_databases_roles():
    expect(psql("\\dn"), "docs|admin\nevents|admin\nsystem|admin\n")
    expect(psql("\\l").split("|")[:3], ["tidemill", "admin", "UTF8"])
    expect(psql("\\du"), "admin|Superuser|{}\n")


def engine(driver):
    from sqlalchemy import create_engine

    return create_engine(f"postgresql+{driver}://admin:{PASSWORD}@{ADDRESS}/tidemill")


@check("sqlalchemy")
def an_inspector():
    from sqlalchemy import inspect

    inspector = inspect(engine("psycopg"))
    expect(sorted(inspector.get_schema_names()), ["docs", "events", "information_schema", "system"])
    assert {"Reading", "TakeOff"} <= set(inspector.get_table_names(schema="events"))
    assert {"Reading", "Device", "statements"} <= set(inspector.get_table_names())
    expect(inspector.get_view_names(schema="events"), [])
    assert inspector.has_table("Reading", schema="events") and not inspector.has_table("reading", schema="events")
    columns = inspector.get_columns("Reading", schema="events")
    expect([column["name"] for column in columns], COLUMNS)
    expect([str(column["type"]) for column in columns[:5]], ["TEXT", "TEXT", "DOUBLE PRECISION", "INTEGER", "TIMESTAMP"])
    expect([column["nullable"] for column in columns[4:7]], [True, False, True])
    key = inspector.get_pk_constraint("Reading", schema="events")
    expect((key["constrained_columns"], key["name"]), (["_partition", "_offset", "_row"], "Reading_pkey"))
    unique = inspector.get_unique_constraints("Reading", schema="events")
    expect([constraint["column_names"] for constraint in unique], [["id"]])
    indexes = inspector.get_indexes("Reading", schema="events")
    expect([(index["name"], index["column_names"], index["unique"]) for index in indexes], [("Reading_id_key", ["id"], True)])
    expect(inspector.get_foreign_keys("Reading", schema="events"), [])
    expect(inspector.get_table_comment("Reading", schema="events")["text"], "stream; id id; key device; time at")


@check("sqlalchemy")
def tables_that_are_reflected():
    from sqlalchemy import MetaData, Table, func, select

    source = engine("psycopg")
    metadata = MetaData()
    metadata.reflect(source, schema="events")
    assert {"events.Reading", "events.TakeOff"} <= set(metadata.tables)
    metadata.reflect(source, schema="system")
    reading = metadata.tables["events.Reading"]
    with source.connect() as connection:
        expect(connection.scalar(select(func.count()).select_from(reading).where(reading.c.lanes > 1)), 0)
        device = Table("Device", MetaData(), schema="docs", autoload_with=connection)
        expect([column.name for column in device.primary_key], ["_id"])


@check("asyncpg")
def a_pool_and_codecs():
    import asyncio

    import asyncpg

    async def read():
        pool = await asyncpg.create_pool(
            host=HOST, port=int(PORT), user="admin", password=PASSWORD, database="tidemill", min_size=1, max_size=2)
        async with pool.acquire() as connection:
            await connection.set_type_codec("json", encoder=str, decoder=str, schema="pg_catalog")
            rows = await connection.fetch(
                "select oid, relname, relkind from pg_class where relname = $1 and relnamespace = $2::regnamespace",
                "Reading", "events")
            expect([(row["relname"], row["relkind"]) for row in rows], [("Reading", b"r")])
            expect(await connection.fetchval("select current_schemas(false)"), ["events", "docs", "system"])
        await pool.close()

    asyncio.run(read())


@check("pgjdbc")
def metadata_of_the_database():
    jar = os.path.join(DIRECTORY, "postgresql.jar")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Metadata.java")
    done = subprocess.run(
        ["java", "-cp", jar, source, f"jdbc:postgresql://{ADDRESS}/tidemill", "admin", PASSWORD],
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line in [
        "catalogs: tidemill",
        "schemas: docs|tidemill",
        "tables: tidemill|events|Reading|TABLE|stream; id id; key device; time at",
        "columns: Reading|speed|8|float8|17",
        "columns: Reading|lanes|4|int4|10",
        "columns: Reading|_time|93|timestamptz|35",
        "keys: Reading|_partition|1|Reading_pkey",
        "keys: Reading|_row|3|Reading_pkey",
        "indexes: Reading|f|Reading_id_key|3|1|id|A",
        "best row: _partition|4",
        "types: float8|8",
        "functions: array_to_string",
    ]:
        assert line in lines, f"{line} is not in {done.stdout}"
    for name in ["imported keys", "exported keys", "cross reference", "procedures"]:
        assert not any(line.startswith(name + ": ") for line in lines), done.stdout


failed = False
for client in sys.argv[4:]:
    for function in CHECKS[client]:
        name = f"{client}: {function.__name__.replace('_', ' ')}"
        try:
            function()
            print(f"{name}: ok")
        except Exception as error:
            failed = True
            print(f"{name}: FAILED: {type(error).__name__}: {error}")
sys.exit(1 if failed else 0)
