"""Checks that pymongo, as it is, works with a MongoDB listener: check.py URL (scripts/drivers.sh runs it).

Prints one line per check and exits with 1 when one fails. It writes into a database of its own and drops it in the end.
"""

import datetime
import os
import re
import socket
import sys
import threading
import time
import traceback
import uuid

import bson
import gridfs
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING, DESCENDING, CursorType, DeleteMany, InsertOne, MongoClient, ReplaceOne
from pymongo import ReturnDocument, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure, WriteError
from pymongo.operations import IndexModel

URL = sys.argv[1]
client = MongoClient(URL, serverSelectionTimeoutMS=10_000, socketTimeoutMS=60_000, uuidRepresentation="standard")
db = client["check_pymongo_" + uuid.uuid4().hex[:8]]

CHECKS = []


class Skip(Exception):
    """What the deployment does not offer."""


def check(function):
    CHECKS.append(function)
    return function


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


def fails(error_type, code, call, *args, **kwargs):
    """Calls something that must fail with this error, and returns the error."""
    try:
        result = call(*args, **kwargs)
    except error_type as error:
        equal(error.code, code)
        return error
    raise AssertionError(f"error {code} did not come: {result!r}")


@check
def bson_types():
    document = {
        "_id": bson.ObjectId(),
        "double": -1.5,
        "nan_free_inf": float("inf"),
        "string": "tide \u00fc \U0001f30a \0 mill",
        "document": {"b": 1, "a": {"nested": []}},
        "array": [1, "two", [3.0], {"four": None}],
        "binary": bson.Binary(bytes(range(256)), 0),
        "own_binary": bson.Binary(b"own", 128),
        "uuid": uuid.uuid4(),
        "bool": True,
        "date": datetime.datetime(1969, 7, 20, 20, 17, 40, 123000),
        "null": None,
        "regex": bson.Regex("^a.*z$", re.IGNORECASE | re.MULTILINE),
        "code": bson.Code("return 1"),
        "code_with_scope": bson.Code("return x", {"x": 1}),
        "int32": -(2**31),
        "int64": bson.Int64(2**62),
        "small_int64": bson.Int64(1),
        "timestamp": bson.Timestamp(1_700_000_000, 7),
        "decimal": bson.Decimal128("1234567890.123456789012345678901234"),
        "min": bson.MinKey(),
        "max": bson.MaxKey(),
        "ref": bson.DBRef("other", 5),
    }
    db.types.insert_one(document)
    raw = db.types.with_options(CodecOptions(document_class=RawBSONDocument)).find_one()
    sent = bson.encode(document, codec_options=db.codec_options)
    equal(raw.raw, sent)
    for name in document:
        if name != "regex":  # a pattern as value is a search
            equal(db.types.count_documents({name: document[name]}), 1)
    for number, name in [(1, "double"), (2, "string"), (16, "int32"), (18, "int64"), (19, "decimal")]:
        equal(db.types.count_documents({name: {"$type": number}}), 1)


@check
def crud():
    items = db.items
    equal(items.insert_many([{"_id": n, "n": n, "tags": ["a", "b"]} for n in range(10)]).inserted_ids, list(range(10)))
    equal(items.find_one({"_id": 3}), {"_id": 3, "n": 3, "tags": ["a", "b"]})
    found = items.find({"n": {"$gte": 2}}, {"n": 1}).sort("n", DESCENDING).skip(1).limit(2)
    equal(list(found), [{"_id": 8, "n": 8}, {"_id": 7, "n": 7}])
    result = items.update_one({"_id": 1}, {"$inc": {"n": 100}, "$push": {"tags": "c"}})
    equal((result.matched_count, result.modified_count), (1, 1))
    equal(items.find_one({"_id": 1}), {"_id": 1, "n": 101, "tags": ["a", "b", "c"]})
    result = items.update_many({"n": {"$lt": 5}}, [{"$set": {"twice": {"$multiply": ["$n", 2]}}}])
    equal((result.matched_count, result.modified_count), (4, 4))
    equal(items.find_one({"_id": 4})["twice"], 8)
    filters = [{"t": "a"}]
    items.update_one({"_id": 2}, {"$set": {"tags.$[t]": "A"}}, array_filters=filters)
    equal(items.find_one({"_id": 2})["tags"], ["A", "b"])
    result = items.update_one({"_id": "new"}, {"$set": {"n": 0}, "$setOnInsert": {"made": True}}, upsert=True)
    equal((result.matched_count, result.upserted_id), (0, "new"))
    items.replace_one({"_id": "new"}, {"only": 1})
    equal(items.find_one({"_id": "new"}), {"_id": "new", "only": 1})
    equal(items.delete_one({"_id": "new"}).deleted_count, 1)
    equal(items.delete_many({"n": {"$gte": 8}}).deleted_count, 3)
    equal((items.count_documents({}), items.estimated_document_count()), (7, 7))
    equal(sorted(items.distinct("tags")), ["A", "a", "b"])
    fails(DuplicateKeyError, 11000, items.insert_one, {"_id": 3})
    fails(WriteError, 2, items.update_one, {"_id": 3}, {"$push": {"tags": {"$each": 1}}})


@check
def find_and_modify():
    jobs = db.jobs
    jobs.insert_many([{"_id": n, "state": "new"} for n in range(3)])
    take = {"$set": {"state": "taken"}}
    before = jobs.find_one_and_update({"state": "new"}, take, sort=[("_id", DESCENDING)])
    equal(before, {"_id": 2, "state": "new"})
    after = jobs.find_one_and_update({"_id": 1}, take, {"_id": 0}, return_document=ReturnDocument.AFTER)
    equal(after, {"state": "taken"})
    equal(jobs.find_one_and_replace({"_id": 0}, {"n": 1}, return_document=ReturnDocument.AFTER), {"_id": 0, "n": 1})
    equal(jobs.find_one_and_delete({"_id": 0}), {"_id": 0, "n": 1})
    equal(jobs.find_one_and_delete({"_id": 0}), None)
    equal(jobs.find_one_and_update({"_id": 9}, take, upsert=True, return_document=True), {"_id": 9, "state": "taken"})


@check
def bulk_writes():
    bulk = db.bulk
    result = bulk.bulk_write(
        [InsertOne({"_id": n, "n": n}) for n in range(5)]
        + [
            UpdateOne({"_id": 0}, {"$inc": {"n": 10}}),
            UpdateMany({"n": {"$gte": 3}}, {"$set": {"big": True}}),
            UpdateOne({"_id": "x"}, {"$set": {"n": 1}}, upsert=True),
            ReplaceOne({"_id": 1}, {"n": -1}),
            DeleteMany({"big": True}),
        ]
    )
    equal((result.inserted_count, result.modified_count, result.deleted_count), (5, 5, 3))
    equal(result.upserted_ids, {7: "x"})
    equal(sorted(d["n"] for d in bulk.find()), [-1, 1, 2])
    # more than one message has room for
    large = [InsertOne({"_id": f"large{n}", "text": "x" * 500_000}) for n in range(100)]
    equal(bulk.bulk_write(large, ordered=False).inserted_count, 100)
    try:
        bulk.bulk_write([InsertOne({"_id": n}) for n in ("p", 1, "q", 2, "r")], ordered=False)
        raise AssertionError("duplicates were accepted")
    except BulkWriteError as error:
        equal([(e["index"], e["code"]) for e in error.details["writeErrors"]], [(1, 11000), (3, 11000)])
        equal(error.details["nInserted"], 3)
    equal(bulk.count_documents({"_id": {"$in": ["p", "q", "r"]}}), 3)


@check
def bulk_writes_of_the_client():
    one, two = f"{db.name}.bulk_one", f"{db.name}.bulk_two"
    result = client.bulk_write(
        models=[
            InsertOne({"_id": 1}, namespace=one),
            InsertOne({"_id": 1}, namespace=two),
            UpdateOne({"_id": 1}, {"$set": {"n": 2}}, namespace=two),
        ],
        verbose_results=True,
    )
    equal((result.inserted_count, result.modified_count), (2, 1))
    equal(result.update_results[2].modified_count, 1)
    equal(db.bulk_two.find_one(), {"_id": 1, "n": 2})


@check
def cursors():
    many = db.many
    many.insert_many([{"_id": n, "text": "x" * 100} for n in range(5000)])
    equal([d["_id"] for d in many.find(batch_size=7).sort("_id", 1)], list(range(5000)))
    equal(sum(1 for _ in many.find(batch_size=1000)), 5000)
    equal(sum(1 for _ in many.find_raw_batches(batch_size=1000)), 5)
    with many.find(batch_size=10) as cursor:
        next(cursor)
        number = cursor.cursor_id
    # the cursor was closed on the server as well
    fails(OperationFailure, 43, db.command, {"getMore": bson.Int64(number), "collection": "many"})
    equal(sum(1 for _ in many.aggregate([{"$match": {}}], batchSize=99)), 5000)


@check
def aggregation():
    db.orders.insert_many([{"_id": n, "by": f"c{n % 3}", "amount": n} for n in range(30)])
    db.customers.insert_many([{"_id": f"c{n}", "name": f"Customer {n}"} for n in range(2)])
    found = db.orders.aggregate(
        [
            {"$match": {"amount": {"$gte": 3}}},
            {"$group": {"_id": "$by", "total": {"$sum": "$amount"}, "mean": {"$avg": "$amount"}, "n": {"$count": {}}}},
            {"$lookup": {"from": "customers", "localField": "_id", "foreignField": "_id", "as": "customer"}},
            {"$sort": {"_id": 1}},
            {"$project": {"total": 1, "mean": 1, "n": 1, "name": {"$first": "$customer.name"}}},
        ]
    )
    expected = [
        {"_id": "c0", "total": 135, "mean": 15.0, "n": 9, "name": "Customer 0"},
        {"_id": "c1", "total": 144, "mean": 16.0, "n": 9, "name": "Customer 1"},
        {"_id": "c2", "total": 153, "mean": 17.0, "n": 9},
    ]
    equal(list(found), expected)
    inner = {
        "from": "orders",
        "let": {"id": "$_id"},
        "pipeline": [
            {"$match": {"$expr": {"$eq": ["$by", "$$id"]}}},
            {"$sort": {"amount": -1}},
            {"$limit": 1},
        ],
        "as": "largest",
    }
    found = db.customers.aggregate([{"$lookup": inner}, {"$unwind": "$largest"}, {"$sort": {"_id": 1}}])
    equal([d["largest"]["amount"] for d in found], [27, 28])
    db.orders.aggregate([{"$match": {"_id": {"$lt": 5}}}, {"$out": "few_orders"}])
    equal(db.few_orders.count_documents({}), 5)
    fails(OperationFailure, 40324, db.orders.aggregate, [{"$nonsense": {}}])


@check
def indexes():
    things = db.things
    things.insert_many([{"_id": n, "a": n % 10, "b": -n} for n in range(100)])
    equal(things.create_index([("a", ASCENDING), ("b", DESCENDING)]), "a_1_b_-1")
    models = [IndexModel("t", expireAfterSeconds=3600), IndexModel([("h", "hashed")], name="by_hash")]
    equal(things.create_indexes(models), ["t_1", "by_hash"])
    listed = things.index_information()
    equal(sorted(listed), ["_id_", "a_1_b_-1", "by_hash", "t_1"])
    equal((listed["a_1_b_-1"]["key"], listed["t_1"]["expireAfterSeconds"]), ([("a", 1), ("b", -1)], 3600))
    equal([d["_id"] for d in things.find({"a": 3, "b": {"$lt": -80}}).hint("a_1_b_-1").sort("b", 1)], [93, 83])
    things.drop_index("t_1")
    fails(OperationFailure, 27, things.drop_index, "t_1")
    things.drop_indexes()
    equal(list(things.index_information()), ["_id_"])


@check
def explain():
    def stages(plan):
        return [plan["stage"]] + (stages(plan["inputStage"]) if "inputStage" in plan else [])

    planned = db.planned
    planned.insert_many([{"_id": n, "a": n} for n in range(50)])
    plan = planned.find({"a": 3}).explain()
    equal(stages(plan["queryPlanner"]["winningPlan"]), ["COLLSCAN"])
    planned.create_index("a")
    plan = planned.find({"a": 3}).explain()
    equal(stages(plan["queryPlanner"]["winningPlan"]), ["FETCH", "IXSCAN"])
    equal(plan["executionStats"]["nReturned"], 1)
    command = {"update": "planned", "updates": [{"q": {"a": 4}, "u": {"$set": {"b": 1}}}]}
    db.command("explain", command, verbosity="queryPlanner")
    equal(planned.count_documents({"b": 1}), 0)


@check
def unique_index():
    users = db.users
    users.create_index("mail", unique=True)
    users.insert_one({"_id": 1, "mail": "a@example.com"})
    error = fails(DuplicateKeyError, 11000, users.insert_one, {"_id": 2, "mail": "a@example.com"})
    equal((error.details["keyPattern"], error.details["keyValue"]), ({"mail": 1}, {"mail": "a@example.com"}))
    equal(users.count_documents({}), 1)


@check
def duplicate_id():
    db.ids.insert_one({"_id": "one"})
    error = fails(DuplicateKeyError, 11000, db.ids.insert_one, {"_id": "one"})
    equal((error.details["keyPattern"], error.details["keyValue"]), ({"_id": 1}, {"_id": "one"}))


@check
def transactions():
    accounts = db.accounts
    accounts.insert_many([{"_id": n, "amount": 100} for n in range(4)])
    amounts = lambda session=None: [d["amount"] for d in accounts.find(session=session).sort("_id", 1)]
    move = lambda session, by: [
        accounts.update_one({"_id": n}, {"$inc": {"amount": by * sign}}, session=session)
        for n, sign in ((0, 1), (3, -1))
    ]
    with client.start_session() as session:
        with session.start_transaction():
            move(session, 10)
            equal((amounts(session), amounts()), ([110, 100, 100, 90], [100] * 4))
        equal(amounts(), [110, 100, 100, 90])
        session.start_transaction()
        move(session, 50)
        session.abort_transaction()
        equal(amounts(), [110, 100, 100, 90])
    with client.start_session() as first, client.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        move(first, 1)
        error = fails(OperationFailure, 112, move, second, 2)
        equal(error.has_error_label("TransientTransactionError"), True)
        first.commit_transaction()
        second.abort_transaction()
    equal(amounts(), [111, 100, 100, 89])

    rounds = []

    def disturbed(session):
        rounds.append(accounts.find_one({"_id": 1}, session=session)["amount"])
        if len(rounds) == 1:
            accounts.update_one({"_id": 1}, {"$inc": {"amount": 5}})
        accounts.update_one({"_id": 1}, {"$set": {"amount": rounds[-1] + 1}}, session=session)

    with client.start_session() as session:
        session.with_transaction(disturbed)
    equal((rounds, accounts.find_one({"_id": 1})["amount"]), ([100, 105], 106))


@check
def snapshot_reads():
    db.moments.insert_many([{"_id": n} for n in range(10)])
    with client.start_session(snapshot=True) as session:
        equal(sum(1 for _ in db.moments.find(session=session)), 10)
        db.moments.insert_one({"_id": "later"})
        equal(sum(1 for _ in db.moments.find(session=session)), 10)
    equal(db.moments.count_documents({}), 11)


class LosesAnswer:
    """A proxy that loses the answer to the first message with `marker`, and the connection with it."""

    def __init__(self, address, marker):
        self.address, self.marker, self.lost = address, marker, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            inside, _ = self.listener.accept()
            outside = socket.create_connection(self.address)
            losing = threading.Event()
            for args in ((inside, outside, losing, True), (outside, inside, losing, False)):
                threading.Thread(target=self.forward, args=args, daemon=True).start()

    def forward(self, source, target, losing, asks):
        try:
            while data := source.recv(1 << 16):
                if asks and self.marker in data and not self.lost:
                    losing.set()
                if not asks and losing.is_set():
                    self.lost += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@check
def retryable_writes():
    proxy = LosesAnswer(client.address, b"lose the answer")
    user = f"{m[1]}@" if (m := re.match(r"mongodb://(.*)@", URL)) else ""
    with MongoClient(f"mongodb://{user}127.0.0.1:{proxy.port}/?directConnection=true") as through:
        counters = through[db.name].counters
        counters.insert_one({"_id": 1, "n": 0})
        found = counters.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, comment="lose the answer", return_document=True)
    equal((proxy.lost, found, db.counters.find_one()), (1, {"_id": 1, "n": 1}, {"_id": 1, "n": 1}))


def take(stream, count):
    """Returns the next events of a change stream."""
    until, events = time.monotonic() + 10, []
    while len(events) < count:
        if event := stream.try_next():
            events.append(event)
        elif time.monotonic() > until:
            raise AssertionError(f"only these events came: {events!r}")
    return events


@check
def change_stream():
    watched = db.watched
    with watched.watch(max_await_time_ms=500) as stream:
        watched.insert_one({"_id": 1, "n": 1})
        watched.update_one({"_id": 1}, {"$set": {"n": 2}})
        watched.delete_one({"_id": 1})
        events = take(stream, 3)
    equal([e["operationType"] for e in events], ["insert", "update", "delete"])
    equal(events[0]["fullDocument"], {"_id": 1, "n": 1})
    equal(events[1]["updateDescription"]["updatedFields"], {"n": 2})
    equal({(e["documentKey"]["_id"], e["ns"]["db"], e["ns"]["coll"]) for e in events}, {(1, db.name, "watched")})
    watched.insert_one({"_id": 2})
    with watched.watch(resume_after=events[0]["_id"], max_await_time_ms=500) as stream:
        equal([e["operationType"] for e in take(stream, 3)], ["update", "delete", "insert"])
    only = [{"$match": {"operationType": "insert"}}]
    options = {"start_after": events[0]["_id"], "max_await_time_ms": 500}
    with db.watch(only, **options) as of_database, client.watch(only, **options) as of_all:
        equal([take(s, 1)[0]["documentKey"] for s in (of_database, of_all)], [{"_id": 2}] * 2)


@check
def capped_collection():
    capped = db.create_collection("capped", capped=True, size=4096, max=10)
    capped.insert_many([{"_id": n} for n in range(15)])
    equal([d["_id"] for d in capped.find()], list(range(5, 15)))
    equal(capped.options()["max"], 10)
    with capped.find(cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(5000) as cursor:
        equal([next(cursor)["_id"] for _ in range(10)], list(range(5, 15)))
        writer = threading.Timer(0.2, capped.insert_one, [{"_id": "late"}])
        writer.start()
        equal((next(cursor)["_id"], cursor.alive), ("late", True))
        writer.join()


@check
def grid_fs():
    data = os.urandom(1_000_000)
    bucket = gridfs.GridFSBucket(db, chunk_size_bytes=100_000)
    number = bucket.upload_from_stream("tide.bin", data, metadata={"kind": "test"})
    equal(db.fs.chunks.count_documents({"files_id": number}), 10)
    with bucket.open_download_stream(number) as stream:
        equal((stream.length, stream.metadata, stream.read() == data), (1_000_000, {"kind": "test"}, True))
        stream.seek(250_000)
        equal(stream.read(10), data[250_000:250_010])
    equal(bucket.open_download_stream_by_name("tide.bin").read() == data, True)
    bucket.delete(number)
    equal((db.fs.chunks.count_documents({}), db.fs.files.count_documents({})), (0, 0))


@check
def validation():
    schema = {"required": ["name"], "properties": {"name": {"bsonType": "string"}}}
    people = db.create_collection("people", validator={"$jsonSchema": schema})
    people.insert_one({"_id": 1, "name": "Ada"})
    error = fails(WriteError, 121, people.insert_one, {"_id": 2, "name": 5})
    equal(error.details["errInfo"]["failingDocumentId"], 2)
    fails(WriteError, 121, people.update_one, {"_id": 1}, {"$unset": {"name": 1}})
    people.with_options().insert_one({"_id": 3}, bypass_document_validation=True)
    equal(people.count_documents({}), 2)


@check
def views():
    db.base.insert_many([{"_id": n, "even": n % 2 == 0} for n in range(10)])
    db.create_collection("even", viewOn="base", pipeline=[{"$match": {"even": True}}, {"$project": {"even": 0}}])
    equal([d for d in db.even.find({"_id": {"$gt": 4}}).sort("_id", 1)], [{"_id": 6}, {"_id": 8}])
    equal(db.even.count_documents({}), 5)
    fails(OperationFailure, 166, db.even.insert_one, {"_id": 20})


@check
def lists():
    db.listed.insert_one({})
    db.create_collection("listed_view", viewOn="listed")
    listed = {c["name"]: c["type"] for c in db.list_collections(filter={"name": {"$regex": "^listed"}})}
    equal(listed, {"listed": "collection", "listed_view": "view"})
    equal("listed" in db.list_collection_names(), True)
    equal(db.name in client.list_database_names(), True)
    equal([d["empty"] for d in client.list_databases() if d["name"] == db.name], [False])
    db.listed.rename("renamed")
    equal(db.list_collection_names(filter={"name": {"$in": ["listed", "renamed"]}}), ["renamed"])
    db.drop_collection("renamed")
    equal("renamed" in db.list_collection_names(), False)


@check
def commands():
    error = fails(OperationFailure, 59, db.command, "noSuchCommand")
    equal(error.details["codeName"], "CommandNotFound")
    equal(db.command("ping")["ok"], 1.0)
    equal(client.server_info()["versionArray"][0] >= 7, True)
    equal(db.command("dbStats")["db"], db.name)
    fails(OperationFailure, 2, db.items.find_one, {"$nonsense": 1})


@check
def many_threads():
    def count(errors):
        try:
            for _ in range(50):
                db.threads.update_one({"_id": "n"}, {"$inc": {"n": 1}}, upsert=True)
        except Exception as error:
            errors.append(error)

    errors = []
    threads = [threading.Thread(target=count, args=[errors]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal((errors, db.threads.find_one()), ([], {"_id": "n", "n": 400}))


@check
def login():
    if "@" not in URL:
        raise Skip("the URL has no user")
    host, port = client.address
    with MongoClient(host, port, username="admin", password="wrong") as stranger:
        fails(OperationFailure, 18, stranger.admin.command, "listDatabases")
    with MongoClient(host, port) as nobody:
        fails(OperationFailure, 13, nobody.admin.command, "listDatabases")


def main():
    # without a server, each check would wait for it
    client.admin.command("ping")
    failed = 0
    for function in CHECKS:
        name = "pymongo: " + function.__name__.replace("_", " ")
        try:
            function()
            print(f"{name}: ok", flush=True)
        except Skip as skip:
            print(f"{name}: skipped: {skip}", flush=True)
        except Exception:
            failed += 1
            print(f"{name}: FAILED", flush=True)
            traceback.print_exc()
    client.drop_database(db.name)
    client.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
