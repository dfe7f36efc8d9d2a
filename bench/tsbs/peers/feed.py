"""The data set as Arrow batches in order of arrival."""
import duckdb

BATCH_ROWS = 10_000
COLUMNS = {
    "readings": {
        "seq": "BIGINT", "time": "BIGINT", "tags_id": "INTEGER", "latitude": "DOUBLE", "longitude": "DOUBLE",
        "elevation": "DOUBLE", "velocity": "DOUBLE", "heading": "DOUBLE", "grade": "DOUBLE",
        "fuel_consumption": "DOUBLE",
    },
    "diagnostics": {
        "seq": "BIGINT", "time": "BIGINT", "tags_id": "INTEGER", "fuel_state": "DOUBLE", "current_load": "DOUBLE",
        "status": "BIGINT",
    },
    "tags": {
        "id": "INTEGER", "name": "VARCHAR", "fleet": "VARCHAR", "driver": "VARCHAR", "model": "VARCHAR",
        "device_version": "VARCHAR", "load_capacity": "DOUBLE", "fuel_capacity": "DOUBLE",
        "nominal_fuel_consumption": "DOUBLE",
    },
}


def sql_columns(table, types):
    """The columns of a table for CREATE TABLE; `types` has the peer's word for each type of ours."""
    words = {"BIGINT": "long", "INTEGER": "int", "DOUBLE": "double", "VARCHAR": "string"}
    columns = [(name, words[type_]) for name, type_ in COLUMNS[table].items() if name != "seq"]
    return ", ".join(f"{name} {types['time' if name == 'time' else type_]}" for name, type_ in columns)


def read(data, table):
    """A table in order of arrival, `seq` included."""
    path = data / f"{table}.csv"
    if not path.exists():
        path = data / f"{table}.csv.zst"
    connection = duckdb.connect()
    columns = COLUMNS[table]
    fields = ", ".join("make_timestamp(time) AS time" if name == "time" else name for name in columns)
    order = "ORDER BY seq" if "seq" in columns else "ORDER BY id"
    query = f"SELECT {fields} FROM read_csv('{path}', header = true, columns = {columns}) {order}"
    return connection.sql(query).to_arrow_table()


def tags(data):
    """The trucks."""
    return read(data, "tags")


def batches(data):
    """Batches of one table each, ordered by the arrival of their last rows, as (table, rows)."""
    cut = []
    for table in ("readings", "diagnostics"):
        rows = read(data, table)
        for start in range(0, rows.num_rows, BATCH_ROWS):
            batch = rows.slice(start, BATCH_ROWS)
            last = batch["seq"][batch.num_rows - 1].as_py()
            cut.append((last, table, batch.drop_columns(["seq"]).combine_chunks()))
    return [(table, batch) for _, table, batch in sorted(cut, key=lambda batch: batch[0])]
