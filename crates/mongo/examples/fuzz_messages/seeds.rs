//! Valid messages of all commands.

use bson::{Bson, DateTime, Document, doc, oid::ObjectId};

/// Commands that make the documents those of the beginning.
pub fn begin() -> Vec<Document> {
    let things: Vec<Document> = (0..40)
        .map(|n| {
            doc! {
                "_id": n, "a": n % 7, "b": { "c": n as f64 / 3.0, "d": format!("text {n}") }, "e": [n, n + 1, n % 3],
                "f": [{ "g": n, "h": "x" }, { "g": n + 1 }], "t": DateTime::from_millis(1_700_000_000_000 + i64::from(n) * 3_600_000),
                "o": ObjectId::from_bytes([n as u8; 12]), "s": "a b c",
            }
        })
        .collect();
    vec![
        doc! { "dropDatabase": 1, "$db": "docs" },
        doc! { "dropDatabase": 1, "$db": "shop" },
        doc! { "insert": "things", "documents": things, "$db": "docs" },
        doc! { "createIndexes": "things", "indexes": [{ "key": { "a": 1, "b.c": -1 }, "name": "ab" }, { "key": { "e": 1 }, "name": "e" }], "$db": "docs" },
        doc! { "insert": "tree", "documents": [{ "_id": 1, "up": Bson::Null }, { "_id": 2, "up": 1 }, { "_id": 3, "up": 2 }], "$db": "docs" },
        doc! { "create": "ring", "capped": true, "size": 4096, "max": 10, "$db": "docs" },
        doc! { "insert": "ring", "documents": [{ "_id": 1 }, { "_id": 2 }], "$db": "docs" },
    ]
}

/// All of them, with the operators of filters, updates, pipelines and expressions.
pub fn all() -> Vec<Document> {
    let mut all = administration();
    all.extend(writes());
    all.extend(
        filters().into_iter().map(|filter| doc! { "find": "things", "filter": filter, "$db": "docs" }),
    );
    all.extend(
        filters().into_iter().map(
            |filter| doc! { "delete": "things", "deletes": [{ "q": filter, "limit": 1 }], "$db": "docs" },
        ),
    );
    all.extend(updates().into_iter().map(|update| {
        doc! { "update": "things", "updates": [{ "q": { "_id": 3, "e": { "$gte": 0 } }, "u": update, "upsert": true }], "$db": "docs" }
    }));
    all.extend(projections().into_iter().map(|projection| {
        doc! { "find": "things", "filter": { "e": { "$gt": 1 } }, "projection": projection, "sort": { "a": -1, "b.c": 1 }, "skip": 1, "limit": 9, "$db": "docs" }
    }));
    all.extend(stages().into_iter().map(pipeline));
    for expression in expressions() {
        all.push(pipeline(vec![doc! { "$project": { "x": expression.clone() } }]));
        all.push(doc! { "find": "things", "filter": { "$expr": expression }, "$db": "docs" });
    }
    all
}

fn pipeline(stages: Vec<Document>) -> Document {
    doc! { "aggregate": "things", "pipeline": stages, "cursor": { "batchSize": 10 }, "let": { "v": 1 }, "$db": "docs" }
}

fn administration() -> Vec<Document> {
    let lsid = doc! { "id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![7; 16] } };
    vec![
        doc! { "hello": 1, "helloOk": true, "compression": ["snappy", "zlib"], "saslSupportedMechs": "admin.admin", "$db": "admin" },
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"n,,n=admin,r=abcdef".to_vec() }, "$db": "admin" },
        doc! { "saslContinue": 1, "conversationId": 1, "payload": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"c=biws,r=abc,p=AAAA".to_vec() }, "$db": "admin" },
        doc! { "ping": 1, "$db": "admin" },
        doc! { "buildInfo": 1, "$db": "admin" },
        doc! { "connectionStatus": 1, "showPrivileges": true, "$db": "admin" },
        doc! { "whatsmyuri": 1, "$db": "admin" },
        doc! { "create": "new", "validator": { "a": { "$gt": 1 } }, "validationLevel": "strict", "validationAction": "error", "$db": "docs" },
        doc! { "create": "view", "viewOn": "things", "pipeline": [{ "$match": { "a": 1 } }], "$db": "docs" },
        doc! { "find": "view", "filter": { "a": 1 }, "$db": "docs" },
        doc! { "create": "capped", "capped": true, "size": 10_000, "max": 5, "$db": "docs" },
        doc! { "find": "ring", "tailable": true, "awaitData": true, "$db": "docs" },
        doc! { "listCollections": 1, "filter": { "name": { "$regex": "t" } }, "nameOnly": true, "cursor": {}, "$db": "docs" },
        doc! { "listDatabases": 1, "nameOnly": true, "$db": "admin" },
        doc! { "renameCollection": "docs.new", "to": "shop.other", "dropTarget": true, "$db": "admin" },
        doc! { "collMod": "things", "validator": { "$jsonSchema": { "bsonType": "object", "required": ["_id"], "properties": { "a": { "bsonType": ["int", "long"], "minimum": 0, "maximum": 9, "enum": [1, 2] }, "b": { "type": "object", "additionalProperties": false, "patternProperties": { "^c": {} } } }, "minProperties": 1, "anyOf": [{ "not": {} }, { "dependencies": { "a": ["b"] } }] } }, "validationLevel": "moderate", "$db": "docs" },
        doc! { "collMod": "things", "index": { "name": "ab", "hidden": true, "expireAfterSeconds": 100 }, "$db": "docs" },
        doc! { "convertToCapped": "things", "size": 100_000, "$db": "docs" },
        doc! { "collStats": "things", "scale": 1024, "$db": "docs" },
        doc! { "dbStats": 1, "scale": 1, "$db": "docs" },
        doc! { "createIndexes": "things", "indexes": [{ "key": { "t": 1 }, "name": "t", "expireAfterSeconds": 3600 }], "$db": "docs" },
        doc! { "createIndexes": "things", "indexes": [{ "key": { "o": 1 }, "name": "o", "unique": true, "sparse": true }], "$db": "docs" },
        doc! { "createIndexes": "things", "indexes": [{ "key": { "s": "hashed" }, "name": "h" }], "$db": "docs" },
        doc! { "createIndexes": "things", "indexes": [{ "key": { "$**": 1 }, "name": "w", "wildcardProjection": { "b": 1 } }], "$db": "docs" },
        doc! { "createIndexes": "things", "indexes": [{ "key": { "f.g": 1 }, "name": "p", "partialFilterExpression": { "a": { "$gt": 3 } } }], "$db": "docs" },
        doc! { "listIndexes": "things", "cursor": { "batchSize": 2 }, "$db": "docs" },
        doc! { "dropIndexes": "things", "index": ["ab", "e"], "$db": "docs" },
        doc! { "reIndex": "things", "$db": "docs" },
        doc! { "validate": "things", "full": true, "$db": "docs" },
        doc! { "dbHash": 1, "collections": ["things"], "$db": "docs" },
        doc! { "currentOp": 1, "$db": "admin" },
        doc! { "killOp": 1, "op": 5, "$db": "admin" },
        doc! { "top": 1, "$db": "admin" },
        doc! { "fsync": 1, "$db": "admin" },
        doc! { "profile": 0, "$db": "docs" },
        doc! { "getDefaultRWConcern": 1, "$db": "admin" },
        doc! { "setParameter": 1, "x": 1, "$db": "admin" },
        doc! { "replSetGetStatus": 1, "$db": "admin" },
        doc! { "usersInfo": 1, "$db": "admin" },
        doc! { "rolesInfo": 1, "$db": "admin" },
        doc! { "listCommands": 1, "$db": "admin" },
        doc! { "hostInfo": 1, "$db": "admin" },
        doc! { "serverStatus": 1, "$db": "admin" },
        doc! { "getParameter": "*", "$db": "admin" },
        doc! { "getCmdLineOpts": 1, "$db": "admin" },
        doc! { "getLog": "startupWarnings", "$db": "admin" },
        doc! { "startSession": 1, "$db": "admin" },
        doc! { "endSessions": [lsid.clone()], "$db": "admin" },
        doc! { "refreshSessions": [lsid.clone()], "$db": "admin" },
        doc! { "getMore": 5_i64, "collection": "things", "batchSize": 3, "$db": "docs" },
        doc! { "killCursors": "things", "cursors": [5_i64], "$db": "docs" },
        doc! { "explain": { "find": "things", "filter": { "a": 1, "$or": [{ "e": 1 }, { "b.c": { "$gt": 1 } }] }, "sort": { "a": 1 } }, "verbosity": "executionStats", "$db": "docs" },
        doc! { "explain": { "aggregate": "things", "pipeline": [{ "$match": { "a": 1 } }], "cursor": {} }, "verbosity": "queryPlanner", "$db": "docs" },
        doc! { "count": "things", "query": { "a": { "$in": [1, 2] } }, "skip": 1, "limit": 5, "$db": "docs" },
        doc! { "distinct": "things", "key": "f.g", "query": { "a": { "$lt": 5 } }, "$db": "docs" },
        doc! { "insert": "things", "documents": [{ "_id": 900 }], "lsid": lsid.clone(), "txnNumber": 1_i64, "$db": "docs" },
        doc! { "insert": "things", "documents": [{ "_id": 901 }], "lsid": lsid.clone(), "txnNumber": 2_i64, "startTransaction": true, "autocommit": false, "$db": "docs" },
        doc! { "commitTransaction": 1, "lsid": lsid.clone(), "txnNumber": 2_i64, "autocommit": false, "$db": "admin" },
        doc! { "abortTransaction": 1, "lsid": lsid, "txnNumber": 2_i64, "autocommit": false, "$db": "admin" },
        doc! { "drop": "things", "$db": "docs" },
        doc! { "dropDatabase": 1, "$db": "shop" },
    ]
}

fn writes() -> Vec<Document> {
    vec![
        doc! { "insert": "things", "documents": [{ "_id": 100, "a": 1 }, { "_id": { "x": 1 }, "e": [] }], "ordered": false, "$db": "docs" },
        doc! { "update": "things", "updates": [{ "q": { "f.g": 3 }, "u": { "$set": { "f.$[x].h": 1, "f.$[].k": 2 } }, "arrayFilters": [{ "x.g": { "$gt": 1 } }], "multi": true }], "$db": "docs" },
        doc! { "update": "things", "updates": [{ "q": { "e": 3 }, "u": { "$inc": { "e.$": 1 } } }], "$db": "docs" },
        doc! { "update": "things", "updates": [{ "q": { "a": 1 }, "u": [{ "$set": { "z": { "$add": ["$a", 1] } } }, { "$unset": ["b"] }, { "$replaceWith": "$$ROOT" }], "multi": true }], "$db": "docs" },
        doc! { "update": "things", "updates": [{ "q": { "_id": 1 }, "u": { "new": 1 }, "upsert": true, "sort": { "a": 1 } }], "$db": "docs" },
        doc! { "delete": "things", "deletes": [{ "q": { "a": 6 }, "limit": 0 }], "$db": "docs" },
        doc! { "findAndModify": "things", "query": { "a": 2 }, "sort": { "b.c": -1 }, "update": { "$inc": { "a": 1 } }, "new": true, "fields": { "a": 1 }, "$db": "docs" },
        doc! { "findAndModify": "things", "query": { "a": 2 }, "remove": true, "$db": "docs" },
        doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "_id": 5 } }, { "update": 0, "filter": { "a": 1 }, "updateMods": { "$inc": { "a": 1 } }, "multi": true }, { "delete": 1, "filter": {} }], "nsInfo": [{ "ns": "docs.things" }, { "ns": "shop.items" }], "$db": "admin" },
        doc! { "insert": "deep", "documents": [{ "a": { "a": { "a": [[[[{ "a": 1 }]]]] } } }], "$db": "docs" },
    ]
}

fn filters() -> Vec<Document> {
    vec![
        doc! { "a": 1, "b.c": { "$gt": 1.5, "$lte": 9 }, "b.d": { "$ne": "text 1" } },
        doc! { "a": { "$in": [1, "x", Bson::Null, [1]] }, "e": { "$nin": [5] } },
        doc! { "$and": [{ "a": 1 }, { "$or": [{ "b": 1 }, { "$nor": [{ "c": 1 }] }] }] },
        doc! { "e": { "$all": [1, 2], "$size": 3, "$elemMatch": { "$gt": 1, "$lt": 5 } } },
        doc! { "f": { "$elemMatch": { "g": { "$gte": 1 }, "h": "x" } }, "f.0.g": 1 },
        doc! { "b.d": { "$regex": "^te(x|y)+t [0-9]*$", "$options": "im" }, "a": { "$type": ["int", "string"] } },
        doc! { "a": { "$mod": [3, 1], "$exists": true, "$bitsAllSet": [0, 1], "$bitsAnyClear": 5 } },
        doc! { "a": { "$not": { "$gt": 3, "$bitsAllClear": 2, "$bitsAnySet": 7 } }, "$comment": "x" },
        doc! { "$expr": { "$eq": ["$a", "$$NOW"] } },
        doc! { "$jsonSchema": { "required": ["a"], "properties": { "e": { "items": { "type": "number" }, "minItems": 1, "uniqueItems": true } } } },
        doc! { "_id": 3 },
        doc! { "_id": { "$in": [1, 2, 3] }, "o": ObjectId::from_bytes([1; 12]), "t": DateTime::from_millis(5) },
        doc! { "b.d": Bson::RegularExpression(bson::Regex { pattern: "a.*(b|c){2,5}".try_into().expect("no NUL"), options: "s".try_into().expect("no NUL") }) },
        doc! { "$alwaysFalse": 1 },
    ]
}

fn updates() -> Vec<Document> {
    vec![
        doc! { "$set": { "a": 1, "x.y.z": [1] }, "$unset": { "b": "" }, "$setOnInsert": { "n": 1 } },
        doc! { "$inc": { "a": 5, "b.c": 1.5 }, "$mul": { "x": 3_i64 } },
        doc! { "$min": { "a": 0 }, "$max": { "b.c": 99 }, "$rename": { "s": "r.s" } },
        doc! { "$push": { "e": { "$each": [1, 2, 3], "$position": 1, "$slice": -5, "$sort": -1 } } },
        doc! { "$push": { "f": { "$each": [{ "g": 5 }], "$sort": { "g": 1 } } }, "$pop": { "e": 1 } },
        doc! { "$pull": { "e": { "$gt": 2 }, "f": { "g": 1 } } },
        doc! { "$pullAll": { "e": [1, 2] }, "$addToSet": { "f": { "$each": [1, { "x": 1 }] } } },
        doc! { "$bit": { "a": { "and": 5, "or": 3, "xor": 1_i64 } }, "$currentDate": { "t": true, "u": { "$type": "timestamp" } } },
        doc! { "$set": { "e.5": 1, "e.100": 2 } },
    ]
}

fn projections() -> Vec<Document> {
    vec![
        doc! { "a": 1, "b.c": 1 },
        doc! { "e": { "$slice": [1, 2] }, "_id": 0 },
        doc! { "f": { "$elemMatch": { "g": 5 } }, "x": { "$add": ["$a", 1] } },
        doc! { "e.$": 1 },
        doc! { "b": 0, "f.g": 0 },
        doc! { "b": { "c": 1, "y": "$a" } },
    ]
}

fn stages() -> Vec<Vec<Document>> {
    let one = |stage: Document| vec![stage];
    vec![
        vec![
            doc! { "$match": { "a": { "$gt": 1 } } },
            doc! { "$sort": { "b.c": -1, "_id": 1 } },
            doc! { "$skip": 2 },
            doc! { "$limit": 3 },
        ],
        one(
            doc! { "$group": { "_id": { "k": "$a" }, "n": { "$count": {} }, "s": { "$sum": "$b.c" }, "m": { "$avg": "$a" }, "p": { "$push": "$$ROOT" }, "t": { "$addToSet": "$e" }, "d": { "$stdDevPop": "$a" }, "e": { "$stdDevSamp": "$a" }, "o": { "$mergeObjects": "$b" } } },
        ),
        one(
            doc! { "$group": { "_id": Bson::Null, "f": { "$firstN": { "n": 3, "input": "$a" } }, "l": { "$lastN": { "n": 2, "input": "$a" } }, "x": { "$maxN": { "n": 2, "input": "$a" } }, "t": { "$topN": { "n": 2, "sortBy": { "a": 1 }, "output": ["$a", "$b"] } }, "b": { "$bottom": { "sortBy": { "a": 1 }, "output": "$a" } }, "m": { "$median": { "input": "$a", "method": "approximate" } }, "p": { "$percentile": { "input": "$a", "p": [0.5, 0.9], "method": "approximate" } } } },
        ),
        one(
            doc! { "$unwind": { "path": "$f", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true } },
        ),
        vec![doc! { "$unwind": "$e" }, doc! { "$sortByCount": "$e" }],
        one(
            doc! { "$bucket": { "groupBy": "$a", "boundaries": [0, 3, 5], "default": "x", "output": { "n": { "$sum": 1 } } } },
        ),
        one(doc! { "$bucketAuto": { "groupBy": "$b.c", "buckets": 3, "granularity": "R5" } }),
        one(doc! { "$facet": { "a": [{ "$count": "n" }], "b": [{ "$sample": { "size": 2 } }] } }),
        one(doc! { "$lookup": { "from": "tree", "localField": "a", "foreignField": "_id", "as": "x" } }),
        one(
            doc! { "$lookup": { "from": "tree", "let": { "k": "$a" }, "pipeline": [{ "$match": { "$expr": { "$eq": ["$_id", "$$k"] } } }], "as": "x" } },
        ),
        one(
            doc! { "$graphLookup": { "from": "tree", "startWith": "$a", "connectFromField": "up", "connectToField": "_id", "as": "x", "maxDepth": 3, "depthField": "d", "restrictSearchWithMatch": { "_id": { "$gt": 0 } } } },
        ),
        one(doc! { "$unionWith": { "coll": "tree", "pipeline": [{ "$set": { "x": 1 } }] } }),
        one(
            doc! { "$setWindowFields": { "partitionBy": "$a", "sortBy": { "_id": 1 }, "output": { "r": { "$rank": {} }, "d": { "$denseRank": {} }, "n": { "$documentNumber": {} }, "s": { "$sum": "$a", "window": { "documents": [-2, "current"] } }, "q": { "$shift": { "output": "$a", "by": -1, "default": 0 } } } } },
        ),
        one(
            doc! { "$setWindowFields": { "sortBy": { "t": 1 }, "output": { "s": { "$push": "$a", "window": { "range": [-2, 2], "unit": "hour" } } } } },
        ),
        one(
            doc! { "$densify": { "field": "a", "partitionByFields": ["s"], "range": { "step": 1, "bounds": [0, 50] } } },
        ),
        one(
            doc! { "$densify": { "field": "t", "range": { "step": 30, "unit": "minute", "bounds": "full" } } },
        ),
        one(
            doc! { "$fill": { "partitionByFields": ["a"], "sortBy": { "_id": 1 }, "output": { "x": { "method": "linear" }, "y": { "method": "locf" }, "z": { "value": "$a" } } } },
        ),
        one(
            doc! { "$redact": { "$cond": { "if": { "$gt": ["$a", 3] }, "then": "$$DESCEND", "else": "$$PRUNE" } } },
        ),
        vec![
            doc! { "$addFields": { "x": { "y": "$a" }, "b.z": 1 } },
            doc! { "$unset": ["a", "b.c"] },
            doc! { "$replaceRoot": { "newRoot": { "$mergeObjects": ["$b", { "q": 1 }] } } },
        ],
        vec![doc! { "$set": { "e": { "$concatArrays": ["$e", "$e"] } } }, doc! { "$out": "out" }],
        one(
            doc! { "$merge": { "into": "merged", "on": "_id", "whenMatched": [{ "$set": { "x": "$$new.a" } }], "whenNotMatched": "insert" } },
        ),
        one(doc! { "$collStats": { "count": {} } }),
        one(doc! { "$indexStats": {} }),
        one(doc! { "$changeStream": { "fullDocument": "updateLookup" } }),
        vec![
            doc! { "$documents": [{ "x": 1 }, { "x": [2] }] },
            doc! { "$project": { "x": { "$size": "$x" } } },
        ],
    ]
}

fn expressions() -> Vec<Document> {
    let mut all = vec![
        doc! { "$cond": [{ "$gt": ["$a", 3] }, "$b.c", { "$literal": "$x" }] },
        doc! { "$switch": { "branches": [{ "case": { "$eq": ["$a", 1] }, "then": 1 }], "default": 2 } },
        doc! { "$let": { "vars": { "x": "$a", "y": 2 }, "in": { "$multiply": ["$$x", "$$y"] } } },
        doc! { "$map": { "input": "$e", "as": "q", "in": { "$add": ["$$q", 1] } } },
        doc! { "$filter": { "input": "$e", "as": "q", "cond": { "$gt": ["$$q", 2] }, "limit": 2 } },
        doc! { "$reduce": { "input": "$e", "initialValue": [], "in": { "$concatArrays": ["$$value", ["$$this"]] } } },
        doc! { "$reduce": { "input": { "$range": [0, 10] }, "initialValue": "x", "in": { "$concat": ["$$value", "$$value"] } } },
        doc! { "$convert": { "input": "$b.d", "to": "int", "onError": -1, "onNull": 0 } },
        doc! { "$dateAdd": { "startDate": "$t", "unit": "month", "amount": 3, "timezone": "Europe/Berlin" } },
        doc! { "$dateDiff": { "startDate": "$t", "endDate": "$$NOW", "unit": "week", "startOfWeek": "mon" } },
        doc! { "$dateFromParts": { "year": 2020, "month": 14, "day": -3, "hour": 5, "timezone": "+02:00" } },
        doc! { "$dateFromParts": { "isoWeekYear": 2020, "isoWeek": 53, "isoDayOfWeek": 7 } },
        doc! { "$dateFromString": { "dateString": "2020-02-30T10:00:00Z", "format": "%Y-%m-%dT%H:%M:%SZ", "onError": 1 } },
        doc! { "$dateToParts": { "date": "$t", "iso8601": true } },
        doc! { "$dateToString": { "date": "$t", "format": "%Y-%m-%d %H:%M:%S.%L %z %j %G-%V-%u", "timezone": "America/New_York" } },
        doc! { "$dateTrunc": { "date": "$t", "unit": "week", "binSize": 2, "startOfWeek": "tue" } },
        doc! { "$firstN": { "n": 2, "input": "$e" } },
        doc! { "$maxN": { "n": 2, "input": "$e" } },
        doc! { "$getField": { "field": "a", "input": "$$ROOT" } },
        doc! { "$setField": { "field": "a.b", "input": "$$ROOT", "value": 1 } },
        doc! { "$median": { "input": "$e", "method": "approximate" } },
        doc! { "$percentile": { "input": "$e", "p": [0.1], "method": "approximate" } },
        doc! { "$regexFindAll": { "input": "$b.d", "regex": "(t)(e|x)?", "options": "i" } },
        doc! { "$regexMatch": { "input": "$b.d", "regex": "^t" } },
        doc! { "$replaceAll": { "input": "$b.d", "find": "t", "replacement": "tt" } },
        doc! { "$sortArray": { "input": "$f", "sortBy": { "g": -1 } } },
        doc! { "$trim": { "input": "$b.d", "chars": "t x" } },
        doc! { "$zip": { "inputs": ["$e", [1, 2]], "useLongestLength": true, "defaults": [0, 1] } },
        doc! { "$substrCP": ["$b.d", 1, 3] },
        doc! { "$substrBytes": ["$b.d", 1, 3] },
        doc! { "$indexOfCP": ["$b.d", "x", 0, 5] },
        doc! { "$indexOfArray": ["$e", 2, 0, 5] },
        doc! { "$range": [0, "$a", 2] },
        doc! { "$slice": ["$e", -2, 2] },
        doc! { "$round": ["$b.c", 2] },
        doc! { "$trunc": ["$b.c", -1] },
        doc! { "$ifNull": ["$zz", "$a", 1] },
        doc! { "$and": ["$a", { "$or": [false, "$b"] }, { "$not": ["$c"] }] },
        doc! { "$in": [1, "$e"] },
        doc! { "$split": ["$s", " "] },
        doc! { "$arrayToObject": [[["k", 1], ["l", 2]]] },
        doc! { "$mergeObjects": ["$b", { "x": 1 }] },
        doc! { "$concat": ["$s", "-", "$b.d"] },
        doc! { "$toDecimal": "1.5E+3" },
        doc! { "$multiply": [Bson::Decimal128("1.1".parse().expect("a decimal")), "$a"] },
        doc! { "$pow": [Bson::Decimal128("2".parse().expect("a decimal")), 100] },
    ];
    for name in [
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "cos",
        "exp",
        "floor",
        "ln",
        "log10",
        "sqrt",
        "toBool",
        "toDate",
        "toDouble",
        "toInt",
        "toLong",
        "toString",
        "type",
        "bitNot",
        "degreesToRadians",
        "isNumber",
    ] {
        all.push(doc! { format!("${name}"): "$a" });
    }
    for name in [
        "add", "subtract", "multiply", "divide", "mod", "pow", "log", "atan2", "cmp", "eq", "gte", "bitAnd",
        "bitXor",
    ] {
        all.push(doc! { format!("${name}"): ["$a", 2] });
    }
    for name in [
        "allElementsTrue",
        "anyElementTrue",
        "first",
        "last",
        "isArray",
        "reverseArray",
        "size",
        "sum",
        "avg",
        "min",
        "max",
    ] {
        all.push(doc! { format!("${name}"): ["$e"] });
    }
    for name in ["setUnion", "setIntersection", "setDifference", "setEquals", "setIsSubset"] {
        all.push(doc! { format!("${name}"): ["$e", [1, 2]] });
    }
    for name in
        ["toLower", "toUpper", "strLenBytes", "strLenCP", "toObjectId", "toUUID", "binarySize", "toDecimal"]
    {
        all.push(doc! { format!("${name}"): "$s" });
    }
    for name in [
        "year",
        "month",
        "week",
        "isoWeek",
        "isoWeekYear",
        "dayOfYear",
        "dayOfWeek",
        "hour",
        "minute",
        "second",
        "millisecond",
    ] {
        all.push(doc! { format!("${name}"): { "date": "$t", "timezone": "Asia/Tokyo" } });
    }
    for name in ["objectToArray", "bsonSize"] {
        all.push(doc! { format!("${name}"): "$$ROOT" });
    }
    all
}
