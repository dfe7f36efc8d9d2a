// Checks that mongosh, as it is, works with a MongoDB listener: mongosh URL --file check.mongosh.js (scripts/drivers.sh
// runs it, and types the commands that are no JavaScript). Prints one line per check and exits with 1 when one fails. It
// writes into a database of its own and drops it.

const name = `check_mongosh_${new ObjectId()}`;
let failed = 0;

/** Compares with types and order of fields. (The objects of the shell are not of the same realm, so `assert` is no help.) */
function equal(found, expected) {
  const [is, want] = [found, expected].map((value) => EJSON.stringify(value, { relaxed: false }));
  if (is !== want) throw new Error(`found ${is}, expected ${want}`);
}

/** Runs what must fail with this error, and returns the error. */
function fails(code, run) {
  let result;
  try {
    result = run();
  } catch (error) {
    if (error.code !== code) throw error;
    return error;
  }
  throw new Error(`error ${code} did not come: ${EJSON.stringify(result)}`);
}

function check(what, run) {
  try {
    run();
    print(`mongosh: ${what}: ok`);
  } catch (error) {
    if (error.skip) return print(`mongosh: ${what}: skipped: ${error.skip}`);
    failed += 1;
    print(`mongosh: ${what}: FAILED: ${error}`);
  }
}

use(name);

check('insertMany and find', () => {
  const documents = Array.from({ length: 50 }, (_, n) => ({ _id: n, n: n % 5, text: `text ${n}` }));
  equal(db.c.insertMany(documents).acknowledged, true);
  equal(db.c.find({ n: 3 }, { n: 1 }).sort({ _id: -1 }).limit(2).toArray(), [{ _id: 48, n: 3 }, { _id: 43, n: 3 }]);
  equal(db.c.findOne({ _id: 7 }), documents[7]);
  equal(db.c.countDocuments(), 50);
  equal(db.c.distinct('n'), [0, 1, 2, 3, 4]);
});

check('types', () => {
  const document = {
    _id: ObjectId(),
    long: NumberLong('9007199254740993'),
    decimal: NumberDecimal('0.1'),
    date: ISODate('2024-02-29T12:00:00Z'),
    uuid: UUID(),
    bytes: BinData(0, 'AAECAw=='),
    timestamp: Timestamp({ t: 5, i: 6 }),
    regex: /^a/i,
    min: MinKey(),
  };
  db.types.insertOne(document);
  equal(db.types.findOne({ long: document.long }), document);
});

check('updates and deletes', () => {
  equal(db.c.updateOne({ _id: 1 }, { $inc: { n: 10 } }).modifiedCount, 1);
  equal(db.c.updateMany({ n: 2 }, [{ $set: { n: { $add: ['$n', 100] } } }]).modifiedCount, 10);
  equal(db.c.findOneAndUpdate({ _id: 1 }, { $set: { n: 0 } }, { returnNewDocument: true }).n, 0);
  equal(db.c.findAndModify({ query: { _id: 49 }, remove: true })._id, 49);
  equal(db.c.deleteMany({ n: 102 }).deletedCount, 10);
  equal(db.c.bulkWrite([{ insertOne: { document: { _id: 'b' } } }, { deleteOne: { filter: { _id: 'b' } } }]).deletedCount, 1);
  equal(db.c.countDocuments({}), 39);
});

check('cursors', () => {
  db.pages.insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n })));
  const cursor = db.pages.find().sort({ _id: 1 }).batchSize(7);
  const found = [];
  while (cursor.hasNext()) found.push(cursor.next()._id);
  equal(found, Array.from({ length: 50 }, (_, n) => n));
  equal(db.pages.find().itcount(), 50);
});

check('show', () => {
  equal(show('dbs').value.some((shown) => shown.name === name && shown.sizeOnDisk > 0), true);
  equal(show('collections').value.map((shown) => shown.name).sort(), ['c', 'pages', 'types']);
  equal(db.getMongo().getDBNames().includes(name), true);
  equal(db.getCollectionInfos({ name: 'c' }).map((info) => info.type), ['collection']);
});

check('aggregation', () => {
  const pipeline = [{ $group: { _id: '$n', count: { $sum: 1 } } }, { $sort: { _id: 1 } }];
  equal(db.c.aggregate(pipeline).toArray().slice(0, 2), [{ _id: 0, count: 11 }, { _id: 1, count: 9 }]);
  const lookup = { from: 'pages', localField: '_id', foreignField: '_id', as: 'page' };
  equal(db.c.aggregate([{ $match: { _id: 5 } }, { $lookup: lookup }]).next().page, [{ _id: 5 }]);
});

check('getIndexes and explain', () => {
  equal(db.c.find({ n: 3 }).explain().queryPlanner.winningPlan.stage, 'COLLSCAN');
  equal(db.c.createIndex({ n: 1 }), 'n_1');
  equal(db.c.getIndexes().map((index) => [index.name, index.key]), [['_id_', { _id: 1 }], ['n_1', { n: 1 }]]);
  const plan = db.c.find({ n: 3 }).explain('executionStats');
  equal([plan.queryPlanner.winningPlan.inputStage.stage, Number(plan.executionStats.nReturned)], ['IXSCAN', 10]);
  equal(db.c.explain().aggregate([{ $match: { n: 3 } }]).ok, 1);
  equal(db.c.dropIndex('n_1').ok, 1);
});

check('duplicate keys', () => {
  const error = fails(11000, () => db.c.insertOne({ _id: 0 }));
  equal(error.errorResponse.keyPattern, { _id: 1 });
});

check('unique index', () => {
  db.users.createIndex({ mail: 1 }, { unique: true });
  db.users.insertOne({ mail: 'a' });
  equal(fails(11000, () => db.users.insertOne({ mail: 'a' })).errorResponse.keyValue, { mail: 'a' });
});

check('capped collection', () => {
  db.createCollection('capped', { capped: true, size: 4096, max: 3 });
  db.capped.insertMany([1, 2, 3, 4].map((n) => ({ _id: n })));
  equal([db.capped.isCapped(), db.capped.find().toArray().map((d) => d._id)], [true, [2, 3, 4]]);
  const cursor = db.capped.find().tailable();
  for (const n of [2, 3, 4]) equal(cursor.tryNext(), { _id: n });
  db.capped.insertOne({ _id: 5 });
  equal(cursor.tryNext(), { _id: 5 });
  cursor.close();
});

check('validation and views', () => {
  db.createCollection('people', { validator: { name: { $type: 'string' } } });
  fails(121, () => db.people.insertOne({ name: 5 }));
  db.createView('small', 'c', [{ $match: { _id: { $lt: 3 } } }, { $project: { _id: 1 } }]);
  equal(db.small.find().sort({ _id: 1 }).toArray(), [{ _id: 0 }, { _id: 1 }]);
});

check('transactions', () => {
  const session = db.getMongo().startSession();
  const things = session.getDatabase(name).c;
  session.startTransaction();
  things.updateOne({ _id: 0 }, { $set: { state: 'changed' } });
  equal([things.findOne({ _id: 0 }).state, db.c.findOne({ _id: 0 }).state], ['changed', undefined]);
  session.abortTransaction();
  session.withTransaction(() => things.updateOne({ _id: 1 }, { $set: { state: 'kept' } }));
  equal(db.c.find({ state: { $exists: true } }).map((d) => d._id).toArray(), [1]);
  const other = db.getMongo().startSession();
  session.startTransaction();
  other.startTransaction();
  things.updateOne({ _id: 0 }, { $set: { state: 'first' } });
  const update = () => other.getDatabase(name).c.updateOne({ _id: 0 }, { $set: { state: 'second' } });
  equal(fails(112, update).hasErrorLabel('TransientTransactionError'), true);
  session.abortTransaction();
  session.endSession();
  other.endSession();
});

check('change stream', () => {
  const next = (stream) => {
    for (const until = Date.now() + 10000; Date.now() < until; ) {
      const event = stream.tryNext();
      if (event) return event;
    }
    throw new Error('no event came');
  };
  const stream = db.watched.watch([], { maxAwaitTimeMS: 200 });
  stream.tryNext();
  db.watched.insertOne({ _id: 1 });
  db.watched.deleteOne({ _id: 1 });
  const first = next(stream);
  stream.close();
  equal([first.operationType, first.fullDocument], ['insert', { _id: 1 }]);
  const resumed = db.watch([], { resumeAfter: first._id, maxAwaitTimeMS: 200 });
  equal(next(resumed).operationType, 'delete');
  resumed.close();
});

check('status', () => {
  const stats = db.stats();
  equal([stats.db, stats.ok, stats.objects > 50], [name, 1, true]);
  equal([db.c.stats().count, db.c.dataSize() > 0, db.c.validate().valid], [39, true, true]);
  const status = db.serverStatus();
  equal([status.ok, status.connections.current > 0, status.uptime >= 0], [1, true, true]);
  equal([db.version().length > 0, db.hello().isWritablePrimary], [true, true]);
  equal(db.currentOp().ok, 1);
  equal(db.adminCommand({ ping: 1 }).ok, 1);
});

check('unknown command', () => {
  equal(fails(59, () => db.runCommand({ noSuchCommand: 1 })).codeName, 'CommandNotFound');
});

check('drop', () => {
  equal(db.pages.drop(), true);
  equal(db.getCollectionNames().includes('pages'), false);
  equal(db.dropDatabase(), { ok: 1, dropped: name });
  equal(db.getMongo().getDBNames().includes(name), false);
});

quit(failed ? 1 : 0);
