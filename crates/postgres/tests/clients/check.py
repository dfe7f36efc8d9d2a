"""Reads the catalogs and writes events with clients of PostgreSQL. Called by scripts/clients.sh.

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


@check("psql")
def a_file_that_is_copied_in():
    expect(psql("\\copy events.\"Sent\" (id, client, n) from program 'printf \"a,psql,1\\\\nb,psql,\\\\n\"' csv"), "COPY 2\n")
    expect(psql("INSERT INTO \"Sent\" (id, client, n) VALUES ('c', 'psql', 3) RETURNING id"), "c\nINSERT 0 1\n")
    expect(psql("SELECT id, n FROM \"Sent\" WHERE client = 'psql' ORDER BY id"), "a|1\nb|\nc|3\n")


def psycopg_connection(**options):
    import psycopg

    return psycopg.connect(host=HOST, port=PORT, user="admin", password=PASSWORD, dbname="tidemill", **options)


def sent(connection, client):
    rows = connection.execute('SELECT id FROM events."Sent" WHERE client = %s ORDER BY id', (client,))
    return [row[0] for row in rows]


@check("sqlalchemy")
def psycopg_inserts():
    import datetime

    from psycopg.types.json import Json

    at = datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.timezone.utc)
    insert = 'INSERT INTO "Sent" (id, client, n, big, speed, seen, at, meta) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)'
    rows = [(f"r{row}", "psycopg", row, 1 << 40, row / 2, row % 2 == 0, at, Json({"row": row})) for row in range(3)]
    with psycopg_connection() as connection:
        connection.execute(insert, rows[0])
        connection.rollback()
        connection.cursor().executemany(insert, rows)
        expect(sent(connection, "psycopg"), [])
        connection.commit()
        expect(sent(connection, "psycopg"), ["r0", "r1", "r2"])
        found = connection.execute('SELECT n, big, speed, seen, at, meta FROM "Sent" WHERE id = %s', ("r1",)).fetchone()
        expect(found, (1, 1 << 40, 0.5, False, at, '{"row": 1}'))
    with psycopg_connection(autocommit=True) as connection:
        for binary in (False, True):
            cursor = connection.cursor(binary=binary)
            cursor.execute(insert, (f"b{binary}", "psycopg-auto", 7, 7, None, None, None, None), binary=binary)
            expect(cursor.rowcount, 1)
        with connection.pipeline():
            for row in range(100):
                connection.execute(insert, (f"p{row:03}", "psycopg-pipe", row, None, None, None, None, None))
        expect(len(sent(connection, "psycopg-pipe")), 100)
        cursor = connection.execute(
            'INSERT INTO "Sent" (id, client) VALUES (%s, %s), (%s, %s) ON CONFLICT (id) DO NOTHING RETURNING id',
            ("p000", "psycopg-pipe", "p100", "psycopg-pipe"))
        expect(cursor.fetchall(), [("p100",)])
        for prepared in range(12):
            connection.execute('INSERT INTO "Sent" (id, client, n) VALUES (%s, %s, %s)', (f"q{prepared}", "psycopg-prep", prepared))
        expect(len(sent(connection, "psycopg-prep")), 12)


@check("sqlalchemy")
def psycopg_copies():
    import psycopg

    columns = '(id, client, n, speed, seen)'
    with psycopg_connection(autocommit=True) as connection:
        with connection.cursor().copy(f'COPY "Sent" {columns} FROM STDIN') as copy:
            for row in range(20_000):
                copy.write_row((f"t{row}", "copy-text", row, row / 2, None))
        expect(len(sent(connection, "copy-text")), 20_000)
        with connection.cursor().copy(f'COPY "Sent" {columns} FROM STDIN (FORMAT binary)') as copy:
            copy.set_types(["text", "text", "int4", "float8", "bool"])
            for row in range(1_000):
                copy.write_row((f"b{row}\t\\", "copy-binary", row, row / 2, row % 2 == 0))
        expect(len(sent(connection, "copy-binary")), 1_000)
        try:
            with connection.cursor().copy(f'COPY "Sent" {columns} FROM STDIN') as copy:
                copy.write("x\tcopy-bad\t1\t1\tt\ny\tcopy-bad\tmany\t1\tt\n")
        except psycopg.errors.InvalidTextRepresentation as error:
            expect(error.diag.context, "COPY Sent, line 2, column n")
        else:
            raise AssertionError("a bad row was accepted")
        try:
            with connection.cursor().copy(f'COPY "Sent" {columns} FROM STDIN') as copy:
                copy.write("x\tcopy-bad\t1\t1\tt\n")
                raise KeyError("the program fails")
        except KeyError:
            pass
        expect(sent(connection, "copy-bad"), [])


@check("sqlalchemy")
def many_values():
    from sqlalchemy import MetaData, Table, insert, select

    import warnings

    # the address of an event, its primary key, is given by the server
    warnings.filterwarnings("ignore", message="Column 'events.Sent")
    source = engine("psycopg")
    table = Table("Sent", MetaData(), schema="events", autoload_with=source)
    with source.begin() as connection:
        connection.execute(insert(table), [{"id": f"m{row}", "client": "alchemy", "n": row, "speed": 0.5} for row in range(2_500)])
    with source.connect() as connection:
        connection.execute(insert(table).values(id="lost", client="alchemy"))
        connection.rollback()
        ids = connection.scalars(select(table.c.id).where(table.c.client == "alchemy")).all()
    expect(len(set(ids)), 2_500)
    assert "lost" not in ids


@check("sqlalchemy")
def new_rows_with_psycopg():
    insert = 'INSERT INTO "Sent" (id, client, n) VALUES (%s, %s, %s)'
    tail = "SELECT id, n FROM tail('Sent', 'start') WHERE client = 'psycopg-tail'"
    with psycopg_connection(autocommit=True) as reader, psycopg_connection(autocommit=True) as writer:
        writer.execute(insert, ("w0", "psycopg-tail", 0))
        rows = reader.cursor().stream(tail)
        expect(next(rows), ("w0", 0))
        for row in range(1, 4):
            writer.execute(insert, (f"w{row}", "psycopg-tail", row))
            expect(next(rows), (f"w{row}", row))
        # a generator that is closed cancels its statement
        rows.close()
        expect(reader.execute("SELECT 1").fetchone(), (1,))
    with psycopg_connection() as reader, psycopg_connection(autocommit=True) as writer:
        cursor = reader.cursor("new_rows")
        cursor.execute(tail)
        found = []
        while len(found) < 4:
            rows = cursor.fetchmany(100)
            assert rows, "a cursor without an end has waited for a row"
            found += rows
        expect(sorted(found), [(f"w{row}", row) for row in range(4)])
        writer.execute(insert, ("w4", "psycopg-tail", 4))
        expect(cursor.fetchmany(100), [("w4", 4)])
        cursor.close()


@check("asyncpg")
def records_that_are_copied():
    import asyncio
    import datetime

    import asyncpg

    async def write():
        connection = await asyncpg.connect(host=HOST, port=int(PORT), user="admin", password=PASSWORD, database="tidemill")
        at = datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.timezone.utc)
        count = 'SELECT count(*) FROM "Sent" WHERE client = $1'
        records = [(f"a{row}", "asyncpg", row, row / 2, row % 2 == 0, at) for row in range(20_000)]
        columns = ["id", "client", "n", "speed", "seen", "at"]
        tag = await connection.copy_records_to_table("Sent", records=records, columns=columns, schema_name="events")
        expect((tag, await connection.fetchval(count, "asyncpg")), ("COPY 20000", 20_000))
        insert = 'INSERT INTO "Sent" (id, client, n, at) VALUES ($1, $2, $3, $4)'
        await connection.executemany(insert, [(f"m{row}", "asyncpg-many", row, at) for row in range(500)])
        expect(await connection.fetchval(count, "asyncpg-many"), 500)
        try:
            async with connection.transaction():
                await connection.execute(insert, "t1", "asyncpg-tx", 1, at)
                raise KeyError("the program fails")
        except KeyError:
            pass
        async with connection.transaction():
            await connection.execute(insert, "t2", "asyncpg-tx", 2, None)
        expect(await connection.fetchval(count, "asyncpg-tx"), 1)
        try:
            await connection.executemany(insert, [("x1", "asyncpg-bad", 1, at), ("x2", "asyncpg-bad", 1 << 40, at)])
        except asyncpg.DataError:
            pass
        expect(await connection.fetchval(count, "asyncpg-bad"), 0)
        await connection.close()

    asyncio.run(write())


@check("sqlalchemy")
def lists_and_one_moment_with_psycopg():
    import psycopg

    with psycopg_connection(autocommit=True) as connection:
        with connection.cursor().copy('COPY "Sent" (id, client, n) FROM STDIN') as copy:
            for row in range(10):
                copy.write_row((f"l{row}", "psycopg-list", row))
        select = 'SELECT n FROM "Sent" WHERE client = %s AND n = ANY(%s) ORDER BY n'
        for binary in (False, True):
            rows = connection.cursor(binary=binary).execute(select, ("psycopg-list", [3, 5, 77]), binary=binary).fetchall()
            expect(rows, [(3,), (5,)])
        rows = connection.execute('SELECT id FROM "Sent" WHERE id = ANY(%s) AND n <> ALL(%s)', (["l1", "l2", None], [2])).fetchall()
        expect(rows, [("l1",)])
        expect(connection.execute(select, ("psycopg-list", [])).fetchall(), [])
        column = connection.execute('SELECT n AS m FROM "Sent" LIMIT 1').pgresult
        expect(column.ftablecol(0), 3)
        table = connection.execute("SELECT 'events.\"Sent\"'::regclass::oid").fetchone()[0]
        expect(column.ftable(0), table)
    count = 'SELECT count(*) FROM "Sent" WHERE client = %s'
    with psycopg_connection() as reader, psycopg_connection(autocommit=True) as writer:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        before = reader.execute(count, ("psycopg-moment",)).fetchone()
        writer.execute('INSERT INTO "Sent" (id, client) VALUES (%s, %s)', ("o1", "psycopg-moment"))
        expect(reader.execute(count, ("psycopg-moment",)).fetchone(), before)
        reader.commit()
        expect(reader.execute(count, ("psycopg-moment",)).fetchone(), (before[0] + 1,))


@check("asyncpg")
def lists_with_asyncpg():
    import asyncio
    import datetime

    import asyncpg

    async def read():
        connection = await asyncpg.connect(host=HOST, port=int(PORT), user="admin", password=PASSWORD, database="tidemill")
        at = datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.timezone.utc)
        rows = [(f"k{row}", "asyncpg-list", row, row / 2, row % 2 == 0, at) for row in range(10)]
        columns = ["id", "client", "n", "speed", "seen", "at"]
        await connection.copy_records_to_table("Sent", records=rows, columns=columns, schema_name="events")
        for condition, value, count in [
            ("n = ANY($2)", [1, 2, 99], 2), ("n = ANY($2::int[])", [1, None], 1), ("id = ANY($2::text[])", ["k1", "x"], 1),
            ("speed <> ALL($2)", [0.5, 1.0], 8), ("seen = ANY($2::bool[])", [True], 5), ("at = ANY($2)", [at], 10),
            ("big = ANY($2)", [1], 0), ("n > ALL($2)", [], 10),
        ]:
            text = f'SELECT count(*) FROM "Sent" WHERE client = $1 AND {condition}'
            expect((condition, await connection.fetchval(text, "asyncpg-list", value)), (condition, count))
        sent = await connection.execute(
            'INSERT INTO "Sent" (id, client, n) SELECT unnest($1::text[]), \'asyncpg-unnest\', unnest($2::int[])', ["u1", "u2"], [1, 2])
        expect(sent, "INSERT 0 2")
        async with connection.transaction(isolation="repeatable_read"):
            expect(await connection.fetchval("SHOW transaction_isolation"), "repeatable read")
        await connection.close()

    asyncio.run(read())


@check("pgjdbc")
def batches_and_copies():
    jar = os.path.join(DIRECTORY, "postgresql.jar")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Writes.java")
    done = subprocess.run(
        ["java", "-cp", jar, source, f"jdbc:postgresql://{ADDRESS}/tidemill", "admin", PASSWORD],
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for rewrite in ("false", "true"):
        for line in [f"stored batch-{rewrite}-: 300", f"lost batch-{rewrite}-: 0", f"kept batch-{rewrite}-: 10"]:
            assert line in lines, f"{line} is not in {done.stdout}"
    for line in ["copied: 20000", "stored copy: 20000", "refused: 22P02", "stored bad: 0", "returned: one|0"]:
        assert line in lines, f"{line} is not in {done.stdout}"


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
