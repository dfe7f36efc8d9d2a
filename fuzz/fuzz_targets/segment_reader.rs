//! Fuzzes the scan of a log segment with arbitrary bytes: the scan must not panic, must not return a record
//! whose checksum fails, and must agree with the decoder of single records.
//!
//! The first byte selects the use of the rest: as a whole file; as the records after a valid header; or as a
//! script that builds a valid segment and then changes bytes in it, which reaches the code past the
//! checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_log::format::{
    Checksum, RECORD_HEADER_BYTES, RecordHead, SEGMENT_HEADER_BYTES, SegmentHeader, decode_record,
    encode_record,
};
use tidemill_log::scan::scan;

const HEADER: SegmentHeader = SegmentHeader {
    partition: 3,
    base: 1000,
    salt: 0x5a17,
    encrypted: false,
};

fuzz_target!(|data: &[u8]| {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    let bytes = match mode % 3 {
        0 => rest.to_vec(),
        1 => [&HEADER.encode()[..], rest].concat(),
        _ => scripted(rest),
    };
    check(&bytes);
});

/// Encodes a segment whose record payloads have the lengths given by the script, then applies changes of 4
/// bytes each: position (2 bytes), kind, and value.
fn scripted(script: &[u8]) -> Vec<u8> {
    let mut out = HEADER.encode().to_vec();
    let Some((records, script)) = script.split_first() else {
        return out;
    };
    let records = usize::from(records % 32);
    let (sizes, changes) = script.split_at(records.min(script.len()));
    for (i, size) in sizes.iter().enumerate() {
        let head = RecordHead {
            payload_bytes: 0,
            crc: 0,
            offset: HEADER.base + i as u64,
            time: 0,
            unsynced: u32::from(size % 4),
            group_end: size % 3 != 0,
            encrypted: size % 7 == 0,
            padding: if size % 5 == 0 { u16::from(*size) * 16 } else { 0 },
        };
        encode_record(
            &mut out,
            Checksum::new(HEADER.salt),
            &head,
            &vec![*size; usize::from(*size) * 5],
        );
    }
    for change in changes.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % out.len();
        match change[2] % 3 {
            0 => out[at] ^= change[3],
            1 => out.truncate(at.max(1)),
            // a sector that did not reach the disk
            _ => {
                let from = at / 512 * 512;
                let to = (from + 512).min(out.len());
                out[from..to].fill(0);
            }
        }
    }
    out
}

fn check(bytes: &[u8]) {
    let mut records: Vec<(RecordHead, u64)> = Vec::new();
    let Ok(found) = scan(bytes, |head, pos| records.push((*head, pos))) else {
        return;
    };
    let (mut at, mut next) = (SEGMENT_HEADER_BYTES as u64, found.header.base);
    for (head, pos) in &records {
        assert_eq!((*pos, head.offset), (at, next));
        let decoded = decode_record(&bytes[at as usize..], Checksum::new(found.header.salt), next);
        assert_eq!(decoded.as_ref(), Ok(head));
        assert!(head.record_bytes() >= RECORD_HEADER_BYTES);
        at += head.record_bytes() as u64;
        next = next.saturating_add(1);
    }
    assert!(found.end_pos <= at && at <= bytes.len() as u64);
    assert!(found.next <= next && found.next - found.header.base <= records.len() as u64);
    assert_eq!(found.fault.is_none(), found.end_pos == bytes.len() as u64);
    if let Some(fault) = &found.fault {
        assert_eq!((fault.pos, fault.expected), (at, next));
    }
}
