//! Bytes of control records and snapshots.

use std::hash::Hasher;

use proptest::prelude::*;
use tidemill_cluster::{
    Heartbeat, HybridTime, Incarnation, Join, PROTOCOL_MAX, RECORD_BYTES_MAX, Record, Remove, Resigned, State,
};
use tidemill_types::{ErrorKind, Offset, PartitionId};

use crate::log::{CLOCK_MS, Log, join, name};

/// A record of each kind.
fn records() -> Vec<Record> {
    vec![
        Record::Join(join("node-1", 16)),
        Record::Heartbeat(Heartbeat {
            node: name("node-1"),
            incarnation: Incarnation(7),
            sequence: 300,
            clock_ms: CLOCK_MS,
            reserve: HybridTime::new(CLOCK_MS, 3),
            applied: vec![(PartitionId(0), Offset(4)), (PartitionId(9), Offset(70_000))],
        }),
        Record::Remove(Remove {
            node: name("node-1"),
            incarnation: Incarnation(7),
            last_sequence: 300,
            by: name("node-2"),
        }),
        Record::Drain { node: name("node-1") },
        Record::Resigned(Resigned {
            partition: PartitionId(9),
            epoch: Offset(1_000),
            stamp: HybridTime::new(CLOCK_MS, 3),
        }),
        Record::Move { partition: PartitionId(9), to: name("node-2") },
        Record::Deploy { app: "5a17".into() },
        Record::Finalize { protocol: 2 },
    ]
}

/// Bytes of [`records`], of protocol 1. They never change: nodes of other builds read them.
const BYTES: [&str; 8] = [
    "544d4352010001a9646e6f6465666e6f64652d316b696e6361726e6174696f6e0167616464726573736b6e6f64652d31\
     3a37313731647a6f6e65606677656967687418646c70726f746f636f6c5f6d696e016c70726f746f636f6c5f6d617801\
     67636c7573746572a46269646263316a706172746974696f6e73106361707064617070316674696d696e67a66c686561\
     7274626561745f6d7318fa686c656173655f6d731903e86c737573706963696f6e5f6d731905dc706f776e5f7265636f\
     7264735f72656164047174616b655f6f7665725f776169745f6d7319044c69736574746c655f6d7319753068636c6f63\
     6b5f6d731b000001a3185c5000",
    "544d4352010002a6646e6f6465666e6f64652d316b696e6361726e6174696f6e076873657175656e636519012c68636c\
     6f636b5f6d731b000001a3185c500067726573657276651b01a3185c50000003676170706c6965648282000482091a00\
     011170",
    "544d4352010003a4646e6f6465666e6f64652d316b696e6361726e6174696f6e076d6c6173745f73657175656e636519\
     012c626279666e6f64652d32",
    "544d4352010004a1646e6f6465666e6f64652d31",
    "544d4352010005a369706172746974696f6e096565706f63681903e8657374616d701b01a3185c50000003",
    "544d4352010006a269706172746974696f6e0962746f666e6f64652d32",
    "544d4352010007a1636170706435613137",
    "544d4352010008a16870726f746f636f6c02",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_of_each_kind_stay_as_they_are() {
    for (record, expected) in records().iter().zip(BYTES) {
        let bytes = record.encode().unwrap();
        assert_eq!(hex(&bytes), expected, "{}", record.kind());
        assert_eq!(Record::decode(&bytes).unwrap(), *record);
    }
}

#[test]
fn rule_of_homes_and_origin_are_left_out_of_clusters_that_have_none() {
    let mut with = join("node-1", 16);
    (with.cluster.home_rule, with.cluster.origin) = (1, "3fa85f64a1b2".into());
    let bytes = Record::Join(with.clone()).encode().unwrap();
    assert_eq!(Record::decode(&bytes).unwrap(), Record::Join(with));
    let before = Record::Join(join("node-1", 16)).encode().unwrap();
    for field in ["home_rule", "origin"].map(str::as_bytes) {
        let has = |bytes: &[u8]| bytes.windows(field.len()).any(|part| part == field);
        assert!(has(&bytes) && !has(&before));
    }
}

/// A change of this number is a change of what nodes compute from the same records: it needs a new protocol.
const STATE_DIGEST: u64 = 8_052_247_211_000_806_357;

#[test]
fn the_state_that_records_lead_to_stays_as_it_is() {
    let mut log = Log::settled(5, 32, 2);
    log.remove(&name("node-3"));
    log.append(Record::Drain { node: name("node-1") });
    log.settle();
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(&log.state.encode().unwrap());
    assert_eq!(hasher.finish(), STATE_DIGEST);
}

/// FNV-1a: the standard library's hashers may change.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

#[test]
fn a_record_of_a_later_protocol_names_the_build_that_reads_it() {
    let mut bytes = records()[3].encode().unwrap();
    bytes[4..6].copy_from_slice(&(PROTOCOL_MAX + 2).to_le_bytes());
    let error = Record::decode(&bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(
        text.contains("protocol 3; this build speaks 1 to 1")
            && text.contains("a build that speaks protocol 3"),
        "{text}"
    );
    let mut snapshot = State::default().encode().unwrap();
    snapshot[4] = 9;
    assert!(State::decode(&snapshot).unwrap_err().to_string().contains("protocol 9"));
}

#[test]
fn bytes_that_are_no_record_are_refused_with_what_is_wrong() {
    let good = records()[3].encode().unwrap();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let error = Record::decode(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.to_string()
    };
    assert!(changed(&|b| b.clear()).contains("0 bytes"));
    assert!(changed(&|b| b.truncate(5)).contains("5 bytes"));
    assert!(changed(&|b| b.truncate(6)).contains("before its kind"));
    assert!(changed(&|b| b[0] = b'{').contains("another program writes to this partition"));
    assert!(changed(&|b| b[4] = 0).contains("protocol 0"));
    assert!(changed(&|b| b[6] = 99).contains("kind 99"));
    assert!(changed(&|b| b.push(0)).contains("1 bytes after its end"));
    assert!(changed(&|b| b.truncate(9)).contains("`drain`"));
    assert!(changed(&|b| *b.last_mut().unwrap() = b' ').contains("letters, digits"));
    assert!(changed(&|b| b.resize(RECORD_BYTES_MAX + 1, 0)).contains("at most"));
}

#[test]
fn values_out_of_bounds_are_neither_written_nor_read() {
    let wrong = |record: Record| record.encode().unwrap_err().to_string();
    let join_with = |change: fn(&mut Join)| {
        let mut join = join("a", 4);
        change(&mut join);
        wrong(Record::Join(join))
    };
    assert!(join_with(|j| j.weight = 0).contains("weight 0"));
    assert!(join_with(|j| j.protocol_min = 3).contains("3 to 1"));
    assert!(join_with(|j| j.cluster.partitions = 0).contains("cluster.partitions 0"));
    assert!(join_with(|j| j.address = String::new()).contains("address of 0 bytes"));
    assert!(join_with(|j| j.zone = "z".repeat(256)).contains("zone of 256 bytes"));
    assert!(join_with(|j| j.cluster.timing.lease_ms = 1).contains("lease_ms = 1"));
    assert!(wrong(Record::Move { partition: PartitionId(65_536), to: name("a") }).contains("65536"));
    let mut heartbeat = match &records()[1] {
        Record::Heartbeat(heartbeat) => heartbeat.clone(),
        other => panic!("{other:?}"),
    };
    heartbeat.applied.reverse();
    assert!(wrong(Record::Heartbeat(heartbeat.clone())).contains("ascending"));
    heartbeat.applied.clear();
    heartbeat.sequence = 0;
    assert!(wrong(Record::Heartbeat(heartbeat)).contains("sequence 0"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_record_or_an_error(kind in 0_u8..12, body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [b"TMCR\x01\x00".as_slice(), &[kind], &body].concat();
        _ = Record::decode(&bytes);
        _ = Record::decode(&body);
        _ = State::decode(&[b"TMCS\x01\x00".as_slice(), &body].concat());
    }

    #[test]
    fn changed_records_can_be_applied_or_are_refused(
        index in 0_usize..8, at in any::<proptest::sample::Index>(), byte: u8, cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = records()[index].encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if byte % 3 == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(record) = Record::decode(&bytes) {
            let mut state = State::default();
            state.apply(Offset(0), &Record::Join(join("node-1", 4))).unwrap();
            state.apply(Offset(1), &record).unwrap();
            prop_assert_eq!(State::decode(&state.encode().unwrap()).unwrap(), state);
        }
    }

    #[test]
    fn changed_snapshots_are_a_state_or_an_error(at in any::<proptest::sample::Index>(), byte: u8) {
        let mut log = Log::new();
        log.append(Record::Join(join("node-1", 2)));
        log.append(Record::Join(join("node-2", 2)));
        let mut bytes = log.state.encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(mut state) = State::decode(&bytes) {
            for record in records() {
                let next = state.next();
                if next < Offset(u64::MAX) {
                    state.apply(next, &record).unwrap();
                }
            }
        }
    }
}
