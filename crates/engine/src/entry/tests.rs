//! Entries come back as they were.

use bson::oid::ObjectId;
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Field, FieldType, Timestamp};

use super::*;

fn stream() -> Arc<StreamSchema> {
    let field = |name: &str, ty| Field::new(name, ty);
    Arc::new(StreamSchema {
        name: "S".into(),
        fields: vec![field("id", FieldType::String), field("n", FieldType::Long)],
        key: Some(0),
        id: vec![],
        time: None,
    })
}

fn events() -> Entry {
    let mut builder = BatchBuilder::new(stream());
    for i in 0..3 {
        builder.push_json(format!(r#"{{"id":"k{i}","n":{i},"x":true}}"#).as_bytes(), Timestamp(7)).unwrap();
    }
    Entry::Events(Events {
        source: Some(SourcePosition { name: "file".into(), position: 3, epoch: Some(7) }),
        provenance: Some((PartitionId(1), Offset(9))),
        answered: false,
        forwarded: true,
        depth: 5,
        parts: vec![(stream(), builder.finish())],
        order: Some(vec![0, 0, 0]),
        rejected: vec![RejectedRow {
            stream: "S".into(),
            kind: "malformed".into(),
            reason: "r".into(),
            raw: "{".into(),
            origin: "http".into(),
        }],
    })
}

fn streams() -> Streams {
    HashMap::from([("S".to_owned(), (stream(), stream().batch_schema()))])
}

#[test]
fn entries_round_trip() {
    let bytes = Bytes::from(EntryEncoder::default().encode(&events()).unwrap());
    let (Entry::Events(a), Entry::Events(b)) = (events(), decode(&bytes, &streams()).unwrap()) else {
        panic!()
    };
    assert_eq!(
        (a.source, a.provenance, a.forwarded, a.depth, a.order, a.rejected),
        (b.source, b.provenance, b.forwarded, b.depth, b.order, b.rejected)
    );
    assert_eq!(provenance(&bytes).unwrap(), Some((PartitionId(1), Offset(9), ArrivalKind::Forwarded)));
    assert_eq!(a.parts[0].1, b.parts[0].1);
}

#[test]
fn ticks_and_on_demand_queries_round_trip() {
    let round = |entry: Entry| {
        let bytes = Bytes::from(EntryEncoder::default().encode(&entry).unwrap());
        decode(&bytes, &streams()).unwrap()
    };
    let jumps = vec![("a.siddhi".to_owned(), -5), ("b.siddhi".to_owned(), 1 << 40)];
    let Entry::Tick { jumps: back } = round(Entry::Tick { jumps: jumps.clone() }) else { panic!() };
    assert_eq!(jumps, back);
    let query = Entry::OnDemand { file: "a.siddhi".into(), text: "delete T on true".into() };
    let Entry::OnDemand { file, text } = round(query) else { panic!() };
    assert_eq!((file.as_str(), text.as_str()), ("a.siddhi", "delete T on true"));
    let again = vec!["a: S to x#0-7-0".to_owned(), String::new()];
    let Entry::Redeliver { ids } = round(Entry::Redeliver { ids: again.clone() }) else { panic!() };
    assert_eq!(again, ids);
    let Entry::ClaimSources { epoch } = round(Entry::ClaimSources { epoch: 9 }) else { panic!() };
    assert_eq!(epoch, 9);
    let last = (Offset(12), 3);
    let Entry::Delivered { sink, last: back } = round(Entry::Delivered { sink: "a: S to x".into(), last })
    else {
        panic!()
    };
    assert_eq!((sink.as_str(), back), ("a: S to x", last));
}

#[test]
fn positions_of_sources_round_trip_with_and_without_an_epoch() {
    for epoch in [None, Some(0), Some(u64::MAX)] {
        let source = Some(SourcePosition { name: "a#0".into(), position: 5, epoch });
        let load = Entry::LoadDocuments { source, collection: "C".into(), documents: Bytes::new() };
        let bytes = Bytes::from(EntryEncoder::default().encode(&load).unwrap());
        assert_eq!(decode(&bytes, &streams()).unwrap().source(), load.source());
    }
}

#[test]
fn events_of_a_rerun_round_trip_without_duplicates() {
    let Entry::Events(mut events) = events() else { panic!() };
    for forwarded in [false, true] {
        events.forwarded = forwarded;
        let keep = vec![Some(BooleanBuffer::from(vec![true, false, true]))];
        let kept = events.kept(&keep).unwrap();
        let bytes = Bytes::from(EntryEncoder::default().encode(&Entry::Rerun(kept)).unwrap());
        let Entry::Rerun(back) = decode(&bytes, &streams()).unwrap() else { panic!() };
        let rows = back.rows();
        assert_eq!((back.forwarded, back.provenance, back.source, rows), (forwarded, None, None, 2));
        assert_eq!((back.order, back.rejected.len()), (Some(vec![0, 0]), 0));
        assert_eq!(provenance(&bytes).unwrap(), None);
    }
}

#[test]
fn transactions_round_trip() {
    let part = |places: Option<Vec<u32>>, cause| TransactionPart {
        id: ObjectId::from_bytes([7; 12]),
        order: -3,
        participants: vec![PartitionId(0), PartitionId(2)],
        since: Offset(4),
        writes: Bytes::from_static(b"w"),
        session: None,
        places,
        cause,
    };
    let cause = Some((PartitionId(0), Offset(9)));
    for entry in
        [part(None, None), part(Some(vec![1, 3]), None), part(None, cause), part(Some(vec![]), cause)]
    {
        let bytes = Bytes::from(EntryEncoder::default().encode(&Entry::Transaction(entry.clone())).unwrap());
        let Entry::Transaction(back) = decode(&bytes, &streams()).unwrap() else { panic!() };
        assert_eq!(back, entry);
        let arrival = entry.cause.map(|(from, offset)| (from, offset, ArrivalKind::Transaction));
        assert_eq!(provenance(&bytes).unwrap(), arrival);
    }
    let parts = vec![part(None, None), part(Some(vec![5]), None)];
    let bytes = EntryEncoder::default().encode(&Entry::OrderTransaction(parts.clone())).unwrap();
    let Entry::OrderTransaction(back) = decode(&Bytes::from(bytes.clone()), &streams()).unwrap() else {
        panic!()
    };
    assert_eq!(back, parts);
    for end in 0..bytes.len() {
        assert!(decode(&Bytes::copy_from_slice(&bytes[..end]), &streams()).is_err(), "{end} bytes");
    }
}

#[test]
fn no_prefix_and_no_flipped_byte_panics() {
    let bytes = EntryEncoder::default().encode(&events()).unwrap();
    for end in 0..bytes.len() {
        assert!(decode(&Bytes::copy_from_slice(&bytes[..end]), &streams()).is_err());
    }
    for i in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[i] ^= 0x55;
        // may still decode if only a value changed; the log's checksum detects damage
        let _ = decode(&Bytes::from(damaged), &streams());
    }
}
