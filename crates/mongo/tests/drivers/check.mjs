// Checks that the Node driver `mongodb`, as it is, works with a MongoDB listener: node check.mjs URL (scripts/drivers.sh
// runs it). Prints one line per check and exits with 1 when one fails. It writes into a database of its own and drops it.

import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import zlib from 'node:zlib';

// The driver is not installed beside this file.
const require = createRequire(pathToFileURL(`${process.env.DRIVERS_DIR ?? '.'}/`));
const mongodb = require('mongodb');
const { MongoClient, GridFSBucket, BSON } = mongodb;
const { EJSON } = BSON;

const url = process.argv[2];
const client = new MongoClient(url, {
  serverSelectionTimeoutMS: 10_000,
  socketTimeoutMS: 60_000,
  monitorCommands: true,
});
const db = client.db(`check_node_${randomUUID().slice(0, 8)}`);
const equal = assert.deepEqual;

class Skip extends Error {}

/** Awaits what must fail with this error, and returns the error. */
async function fails(code, promise) {
  let result;
  try {
    result = await promise;
  } catch (error) {
    if (error.code !== code) throw error;
    return error;
  }
  assert.fail(`error ${code} did not come: ${EJSON.stringify(result)}`);
}

/** Returns the commands that the driver sends while `run` runs. */
async function commandsOf(observed, run) {
  const commands = [];
  const note = (event) => commands.push(event);
  observed.on('commandStarted', note);
  await run();
  observed.off('commandStarted', note);
  return commands;
}

const checks = {
  async 'bson types'() {
    const document = {
      _id: new mongodb.ObjectId(),
      double: new mongodb.Double(2),
      string: 'tide \u00fc \u{1f30a} \0 mill',
      document: { b: 1, a: { nested: [] } },
      array: [1, 'two', [3.5], { four: null }],
      binary: new mongodb.Binary(randomBytes(300), 0),
      uuid: new mongodb.UUID(),
      bool: false,
      date: new Date(-14182940000),
      null: null,
      regex: new mongodb.BSONRegExp('^a.*z$', 'im'),
      code: new mongodb.Code('return x', { x: 1 }),
      int32: new mongodb.Int32(-(2 ** 31)),
      int64: mongodb.Long.fromString('4611686018427387905'),
      timestamp: new mongodb.Timestamp({ t: 1_700_000_000, i: 7 }),
      decimal: mongodb.Decimal128.fromString('1234567890.123456789012345678901234'),
      min: new mongodb.MinKey(),
      max: new mongodb.MaxKey(),
      ref: new mongodb.DBRef('other', new mongodb.ObjectId()),
    };
    await db.collection('types').insertOne(document);
    const raw = await db.collection('types').findOne({}, { raw: true });
    equal(Buffer.from(raw), Buffer.from(BSON.serialize(document)));
    const found = await db.collection('types').findOne({ decimal: document.decimal, int64: document.int64 });
    equal(found._id, document._id);
    equal([found.double, found.date, found.uuid.toString()], [2, document.date, document.uuid.toString()]);
    for (const [name, alias] of Object.entries({ double: 'double', int32: 'int', int64: 'long', uuid: 'binData' })) {
      equal(await db.collection('types').countDocuments({ [name]: { $type: alias } }), 1, name);
    }
  },

  async crud() {
    const items = db.collection('items');
    const documents = Array.from({ length: 10 }, (_, n) => ({ _id: n, n, tags: ['a', 'b'] }));
    equal((await items.insertMany(documents)).insertedCount, 10);
    equal(await items.findOne({ _id: 3 }), documents[3]);
    const some = items.find({ n: { $gte: 2 } }, { projection: { n: 1 }, sort: { n: -1 }, skip: 1, limit: 2 });
    equal(await some.toArray(), [{ _id: 8, n: 8 }, { _id: 7, n: 7 }]);
    const updated = await items.updateMany({ n: { $lt: 5 } }, { $inc: { n: 100 }, $push: { tags: 'c' } });
    equal([updated.matchedCount, updated.modifiedCount], [5, 5]);
    equal(await items.findOne({ _id: 1 }), { _id: 1, n: 101, tags: ['a', 'b', 'c'] });
    const upserted = await items.updateOne({ _id: 'new' }, [{ $set: { n: { $add: [1, 2] } } }], { upsert: true });
    equal([upserted.upsertedCount, upserted.upsertedId], [1, 'new']);
    await items.replaceOne({ _id: 'new' }, { only: 1 });
    equal(await items.findOne({ _id: 'new' }), { _id: 'new', only: 1 });
    equal((await items.deleteMany({ _id: { $in: ['new', 8, 9] } })).deletedCount, 3);
    equal([await items.countDocuments(), await items.estimatedDocumentCount()], [8, 8]);
    equal((await items.distinct('tags')).sort(), ['a', 'b', 'c']);
  },

  async 'find and modify'() {
    const jobs = db.collection('jobs');
    await jobs.insertMany([{ _id: 1 }, { _id: 2 }]);
    const take = { $set: { taken: true } };
    equal(await jobs.findOneAndUpdate({ taken: null }, take, { sort: { _id: -1 } }), { _id: 2 });
    const after = await jobs.findOneAndUpdate({ taken: null }, take, { returnDocument: 'after' });
    equal(after, { _id: 1, taken: true });
    equal(await jobs.findOneAndReplace({ _id: 1 }, { n: 1 }, { returnDocument: 'after' }), { _id: 1, n: 1 });
    const whole = await jobs.findOneAndDelete({ _id: 1 }, { includeResultMetadata: true });
    equal([whole.value, whole.lastErrorObject.n], [{ _id: 1, n: 1 }, 1]);
    equal(await jobs.findOneAndDelete({ _id: 1 }), null);
  },

  async 'bulk writes'() {
    const bulk = db.collection('bulk');
    const result = await bulk.bulkWrite([
      ...[0, 1, 2, 3].map((n) => ({ insertOne: { document: { _id: n, n } } })),
      { updateOne: { filter: { _id: 0 }, update: { $set: { n: 10 } } } },
      { updateOne: { filter: { _id: 'x' }, update: { $set: { n: 1 } }, upsert: true } },
      { replaceOne: { filter: { _id: 1 }, replacement: { n: -1 } } },
      { deleteMany: { filter: { _id: { $in: [2, 3] } } } },
    ]);
    equal([result.insertedCount, result.modifiedCount, result.deletedCount, result.upsertedIds], [4, 2, 2, { 5: 'x' }]);
    equal((await bulk.find().toArray()).map((d) => d.n).sort(), [-1, 1, 10]);
    const error = await fails(11000, bulk.insertMany([{ _id: 'p' }, { _id: 1 }, { _id: 'q' }], { ordered: false }));
    equal([error.writeErrors.map((e) => e.index), error.result.insertedCount], [[1], 2]);
  },

  async 'bulk writes of the client'() {
    const [one, two] = ['one', 'two'].map((name) => `${db.databaseName}.bulk_${name}`);
    const result = await client.bulkWrite(
      [
        { name: 'insertOne', namespace: one, document: { _id: 1 } },
        { name: 'insertOne', namespace: two, document: { _id: 1 } },
        { name: 'updateOne', namespace: two, filter: { _id: 1 }, update: { $set: { n: 2 } } },
      ],
      { verboseResults: true },
    );
    equal([result.insertedCount, result.updateResults.get(2).modifiedCount], [2, 1]);
    equal(await db.collection('bulk_two').findOne(), { _id: 1, n: 2 });
  },

  async cursors() {
    const many = db.collection('many');
    await many.insertMany(Array.from({ length: 3000 }, (_, n) => ({ _id: n, text: 'x'.repeat(100) })));
    let next = 0;
    const commands = await commandsOf(client, async () => {
      for await (const document of many.find({}, { batchSize: 100 }).sort({ _id: 1 })) equal(document._id, next++);
    });
    equal(next, 3000);
    equal(commands.filter((c) => c.commandName === 'getMore').length >= 29, true);
    const cursor = many.find({}, { batchSize: 10 });
    await cursor.next();
    const id = cursor.id;
    await cursor.close();
    await fails(43, db.command({ getMore: id, collection: 'many' }));
  },

  async aggregation() {
    const orders = Array.from({ length: 30 }, (_, n) => ({ _id: n, by: `c${n % 3}`, amount: n }));
    await db.collection('orders').insertMany(orders);
    await db.collection('customers').insertMany([{ _id: 'c0', name: 'Zero' }, { _id: 'c1', name: 'One' }]);
    const found = await db
      .collection('orders')
      .aggregate([
        { $group: { _id: '$by', total: { $sum: '$amount' }, last: { $max: '$amount' } } },
        { $lookup: { from: 'customers', localField: '_id', foreignField: '_id', as: 'customer' } },
        { $sort: { _id: 1 } },
        { $project: { total: 1, last: 1, name: { $first: '$customer.name' } } },
      ])
      .toArray();
    equal(found, [
      { _id: 'c0', total: 135, last: 27, name: 'Zero' },
      { _id: 'c1', total: 145, last: 28, name: 'One' },
      { _id: 'c2', total: 155, last: 29 },
    ]);
    await fails(40324, db.collection('orders').aggregate([{ $nonsense: {} }]).toArray());
  },

  async indexes() {
    const things = db.collection('things');
    await things.insertMany(Array.from({ length: 50 }, (_, n) => ({ _id: n, a: n % 10, b: n })));
    equal(await things.createIndex({ a: 1, b: -1 }), 'a_1_b_-1');
    equal(await things.createIndexes([{ key: { t: 1 }, name: 'old', expireAfterSeconds: 60 }]), ['old']);
    equal((await things.indexes()).map((index) => index.name), ['_id_', 'a_1_b_-1', 'old']);
    equal(await things.indexExists(['old', 'a_1_b_-1']), true);
    await things.dropIndex('old');
    await fails(27, things.dropIndex('old'));
    const plan = await things.find({ a: 3 }).explain();
    equal(plan.queryPlanner.winningPlan.inputStage.indexName, 'a_1_b_-1');
    equal(plan.executionStats.nReturned, 5);
    equal((await things.find({ b: 3 }).explain('queryPlanner')).queryPlanner.winningPlan.stage, 'COLLSCAN');
  },

  async 'duplicate id'() {
    await db.collection('ids').insertOne({ _id: 'one' });
    const error = await fails(11000, db.collection('ids').insertOne({ _id: 'one' }));
    equal([error.errorResponse.keyPattern, error.errorResponse.keyValue], [{ _id: 1 }, { _id: 'one' }]);
  },

  async 'unique index'() {
    const users = db.collection('users');
    await users.createIndex({ mail: 1 }, { unique: true });
    await users.insertOne({ _id: 1, mail: 'a' });
    const error = await fails(11000, users.insertOne({ _id: 2, mail: 'a' }));
    equal([error.errorResponse.keyPattern, error.errorResponse.keyValue], [{ mail: 1 }, { mail: 'a' }]);
    equal(await users.countDocuments(), 1);
  },

  async transactions() {
    const accounts = db.collection('accounts');
    await accounts.insertMany([0, 1, 2, 3].map((n) => ({ _id: n, amount: 100 })));
    const amounts = async (session) =>
      (await accounts.find({}, { session }).sort({ _id: 1 }).toArray()).map((d) => d.amount);
    const add = (session, _id, amount) => accounts.updateOne({ _id }, { $inc: { amount } }, { session });
    await client.withSession(async (session) => {
      await session.withTransaction(async () => {
        await add(session, 0, 10);
        await add(session, 3, -10);
        equal([await amounts(session), await amounts()], [[110, 100, 100, 90], [100, 100, 100, 100]]);
      });
      equal(await amounts(), [110, 100, 100, 90]);
      session.startTransaction();
      await add(session, 1, 50);
      await session.abortTransaction();
      equal(await amounts(), [110, 100, 100, 90]);
    });
    await client.withSession((first) =>
      client.withSession(async (second) => {
        first.startTransaction();
        second.startTransaction();
        await add(first, 0, 1);
        const error = await fails(112, add(second, 0, 2));
        equal(error.hasErrorLabel('TransientTransactionError'), true);
        await first.commitTransaction();
        await second.abortTransaction();
      }),
    );
    equal(await amounts(), [111, 100, 100, 90]);
    const seen = [];
    await client.withSession((session) =>
      session.withTransaction(async () => {
        seen.push((await accounts.findOne({ _id: 1 }, { session })).amount);
        if (seen.length === 1) await add(undefined, 1, 5);
        await add(session, 1, 1);
      }),
    );
    equal([seen, (await amounts())[1]], [[100, 105], 106]);
  },

  async 'snapshot reads'() {
    const moments = db.collection('moments');
    await moments.insertMany([{ _id: 1 }, { _id: 2 }]);
    await client.withSession({ snapshot: true }, async (session) => {
      equal((await moments.distinct('_id', {}, { session })).length, 2);
      await moments.insertOne({ _id: 3 });
      equal((await moments.find({}, { session }).toArray()).length, 2);
      equal(await moments.findOne({ _id: 3 }, { session }), null);
      equal(await moments.countDocuments({}, { session }), 2);
    });
    equal(await moments.countDocuments(), 3);
  },

  // A proxy loses the answer to a write, and the connection with it: the driver sends the write again.
  async 'retryable writes'() {
    let lost = 0;
    const [host, port] = client.topology.s.seedlist.map((address) => [address.host, address.port])[0];
    const proxy = net.createServer((inside) => {
      const outside = net.connect(port, host);
      let losing = false;
      inside.on('data', (data) => {
        losing ||= !lost && data.includes('lose the answer');
        outside.write(data);
      });
      outside.on('data', (data) => {
        if (!losing) return inside.write(data);
        lost += 1;
        inside.destroy();
        return outside.destroy();
      });
      for (const [end, other] of [[inside, outside], [outside, inside]]) {
        end.on('error', () => {});
        end.on('close', () => other.destroy());
      }
    });
    await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
    const user = url.match(/\/\/(.*@)/)?.[1] ?? '';
    const through = new MongoClient(`mongodb://${user}127.0.0.1:${proxy.address().port}/?directConnection=true`);
    const counters = through.db(db.databaseName).collection('counters');
    await counters.insertOne({ _id: 1, n: 0 });
    const result = await counters.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { comment: 'lose the answer' });
    await through.close();
    proxy.close();
    equal([lost, result.modifiedCount], [1, 1]);
    equal(await db.collection('counters').findOne(), { _id: 1, n: 1 });
  },

  async 'change stream'() {
    const watched = db.collection('watched');
    const take = async (stream, count) => {
      const events = [];
      for (const until = Date.now() + 10_000; events.length < count; ) {
        const event = await stream.tryNext();
        if (event) events.push(event);
        else assert.ok(Date.now() < until, `only these events came: ${EJSON.stringify(events)}`);
      }
      await stream.close();
      return events;
    };
    const options = { maxAwaitTimeMS: 300 };
    const stream = watched.watch([], options);
    equal(await stream.tryNext(), null);
    await watched.insertOne({ _id: 1, n: 1 });
    await watched.updateOne({ _id: 1 }, { $set: { n: 2 }, $unset: { old: 1 } });
    await watched.deleteOne({ _id: 1 });
    const events = await take(stream, 3);
    equal(events.map((e) => e.operationType), ['insert', 'update', 'delete']);
    equal([events[0].fullDocument, events[1].updateDescription.updatedFields], [{ _id: 1, n: 1 }, { n: 2 }]);
    await watched.insertOne({ _id: 2 });
    const resumed = await take(watched.watch([], { ...options, resumeAfter: events[0]._id }), 3);
    equal(resumed.map((e) => e.operationType), ['update', 'delete', 'insert']);
    const only = [{ $match: { operationType: 'insert' } }];
    const [event] = await take(client.watch(only, { ...options, startAfter: events[2]._id }), 1);
    equal([event.ns, event.documentKey], [{ db: db.databaseName, coll: 'watched' }, { _id: 2 }]);
  },

  async 'capped collection'() {
    const create = db.createCollection('capped', { capped: true, size: 4096, max: 10 });
    const capped = await create;
    await capped.insertMany(Array.from({ length: 15 }, (_, n) => ({ _id: n })));
    equal(await capped.isCapped(), true);
    const cursor = capped.find({}, { tailable: true, awaitData: true, maxAwaitTimeMS: 5000 });
    for (let n = 5; n < 15; n++) equal(await cursor.next(), { _id: n });
    const late = sleep(200).then(() => capped.insertOne({ _id: 'late' }));
    equal(await cursor.next(), { _id: 'late' });
    await late;
    await cursor.close();
  },

  async 'grid fs'() {
    const bucket = new GridFSBucket(db, { chunkSizeBytes: 100_000 });
    const data = randomBytes(1_000_000);
    const upload = bucket.openUploadStream('tide.bin', { metadata: { kind: 'test' } });
    const done = new Promise((resolve, reject) => upload.on('finish', resolve).on('error', reject));
    upload.end(data);
    await done;
    equal(await db.collection('fs.chunks').countDocuments({ files_id: upload.id }), 10);
    const [file] = await bucket.find({ filename: 'tide.bin' }).toArray();
    equal([file.length, file.metadata], [1_000_000, { kind: 'test' }]);
    const read = async (stream) => Buffer.concat(await stream.toArray());
    equal((await read(bucket.openDownloadStream(upload.id))).equals(data), true);
    const part = await read(bucket.openDownloadStreamByName('tide.bin', { start: 250_000, end: 250_010 }));
    equal(part, data.subarray(250_000, 250_010));
    await bucket.delete(upload.id);
    equal(await db.collection('fs.chunks').countDocuments(), 0);
  },

  async validation() {
    const $jsonSchema = { required: ['name'], properties: { name: { bsonType: 'string' } } };
    const people = await db.createCollection('people', { validator: { $jsonSchema } });
    await people.insertOne({ _id: 1, name: 'Ada' });
    const error = await fails(121, people.insertOne({ _id: 2, name: 5 }));
    equal(error.errInfo.failingDocumentId, 2);
    await people.insertOne({ _id: 3 }, { bypassDocumentValidation: true });
    equal(await people.countDocuments(), 2);
  },

  async views() {
    await db.collection('base').insertMany([1, 2, 3, 4].map((n) => ({ _id: n, even: n % 2 === 0 })));
    const pipeline = [{ $match: { even: true } }, { $project: { even: 0 } }];
    const even = await db.createCollection('even', { viewOn: 'base', pipeline });
    equal(await even.find().sort({ _id: 1 }).toArray(), [{ _id: 2 }, { _id: 4 }]);
    await fails(166, even.insertOne({ _id: 6 }));
  },

  async lists() {
    await db.collection('listed').insertOne({});
    const listed = await db.listCollections({ name: /^listed/ }).toArray();
    equal(listed.map((c) => [c.name, c.type]), [['listed', 'collection']]);
    const { databases } = await client.db().admin().listDatabases({ nameOnly: true });
    equal(databases.filter((d) => d.name === db.databaseName).length, 1);
    await db.collection('listed').drop();
    equal(await db.listCollections({ name: 'listed' }).toArray(), []);
  },

  async commands() {
    const error = await fails(59, db.command({ noSuchCommand: 1 }));
    equal(error.codeName, 'CommandNotFound');
    equal((await db.command({ ping: 1 })).ok, 1);
    equal((await db.stats()).db, db.databaseName);
    equal(parseInt((await db.admin().serverInfo()).version) >= 7, true);
  },

  // The raw bytes go through a proxy which looks for the header of a compressed message, OP_COMPRESSED.
  async compression() {
    const OP_COMPRESSED = 2012;
    const compressed = { inside: 0, outside: 0 };
    const [{ host, port }] = client.topology.s.seedlist;
    const proxy = net.createServer((inside) => {
      const outside = net.connect(port, host);
      const count = (name) => (data) => {
        if (data.length >= 16 && data.readInt32LE(12) === OP_COMPRESSED) compressed[name] += 1;
      };
      inside.on('data', count('inside')).on('error', () => {});
      outside.on('data', count('outside')).on('error', () => {});
      inside.pipe(outside).pipe(inside);
    });
    await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
    const user = url.match(/\/\/(.*@)/)?.[1] ?? '';
    const options = 'directConnection=true&compressors=zlib&zlibCompressionLevel=9';
    const through = new MongoClient(`mongodb://${user}127.0.0.1:${proxy.address().port}/?${options}`);
    const texts = through.db(db.databaseName).collection('texts');
    const text = zlib.gzipSync(randomBytes(1000)).toString('hex').repeat(20);
    await texts.insertMany([1, 2, 3].map((n) => ({ _id: n, text })));
    equal((await texts.find().toArray()).map((d) => d.text === text), [true, true, true]);
    await through.close();
    proxy.close();
    assert.ok(compressed.inside >= 2 && compressed.outside >= 2, `compressed: ${EJSON.stringify(compressed)}`);
  },

  async login() {
    if (!url.includes('@')) throw new Skip('the URL has no user');
    const { authInfo } = await db.command({ connectionStatus: 1 });
    equal(authInfo.authenticatedUsers, [{ user: 'admin', db: 'admin' }]);
    const wrong = new MongoClient(url.replace(/:[^:@]*@/, ':wrong@'));
    await fails(18, wrong.db('docs').command({ listCollections: 1 }));
    await wrong.close();
    const nobody = new MongoClient(url.replace(/\/\/.*@/, '//'));
    await fails(13, nobody.db('docs').command({ listCollections: 1 }));
    await nobody.close();
  },
};

let failed = 0;
await client.connect();
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`node: ${name}: ok`);
  } catch (error) {
    if (error instanceof Skip) {
      console.log(`node: ${name}: skipped: ${error.message}`);
      continue;
    }
    failed += 1;
    console.log(`node: ${name}: FAILED`);
    console.error(error);
  }
}
await db.dropDatabase();
await client.close();
process.exitCode = failed ? 1 : 0;
