//! Damaged files: valid rows are read, all others are reported.

use std::sync::Arc;

use arrow_array::RecordBatch;
use proptest::prelude::*;
use tidemill_files::{Codec, EventFileWriter, Format, ReadOptions, WriteOptions};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{FieldType, StreamSchema, Timestamp};

use crate::stream;

fn trades() -> Arc<StreamSchema> {
    stream(&[("symbol", FieldType::String), ("volume", FieldType::Long)])
}

/// Returns the number of rows read, the messages of the rejected ones, and the error that ended reading.
fn read(bytes: &[u8], format: &Format, reading: ReadOptions) -> (usize, Vec<String>, Option<String>) {
    let mut reader =
        match tidemill_files::read(std::io::Cursor::new(bytes.to_vec()), format, &trades(), reading) {
            Ok(reader) => reader,
            Err(e) => return (0, vec![], Some(e.to_string())),
        };
    let mut rows = 0;
    let mut error = None;
    for batch in reader.by_ref() {
        match batch {
            Ok(batch) => rows += batch.num_rows(),
            Err(e) => error = Some(e.to_string()),
        }
    }
    (rows, reader.take_rejected().iter().map(ToString::to_string).collect(), error)
}

#[test]
fn json_lines() {
    let text = b"{\"symbol\":\"A\",\"volume\":1}\n\n{\"symbol\":\"B\",\"volume\":\"x\"}\n{\"event\":{\"symbol\":\"C\",\"volume\":3}}\n\
        {\"symbol\":\"D\"}\n[{\"symbol\":\"E\",\"volume\":5},{\"symbol\":7},{\"symbol\":\"F\",\"volume\":null}]\n{\"symbol\":";
    let (rows, bad, error) = read(text, &Format::Json, ReadOptions::default());
    assert_eq!((rows, error), (5, None));
    assert_eq!(
        bad,
        [
            "line 3, byte 27: field `volume`: expected long (a whole number of 64 bits), found \"x\"",
            "line 6, byte 106: field `symbol`: expected string (text in quotes), found 7",
            "line 7, byte 176: not valid JSON: EOF while parsing a value at byte 10",
        ]
    );
    let complete = ReadOptions { complete: true, ..ReadOptions::default() };
    let (rows, bad, _) = read(text, &Format::Json, complete);
    assert_eq!(rows, 4);
    assert_eq!(bad[1], "line 5, byte 91: field `volume` is missing");
}

#[test]
fn csv_rows() {
    let format = Format::Csv { header: true, delimiter: b',' };
    let text = b"volume,other,symbol\n1,x,A\nmany,x,B\n2,C\n3,\"x\ny\",\xff\n4,x,\"D\"\n";
    let (rows, bad, error) = read(text, &format, ReadOptions::default());
    assert_eq!((rows, error), (2, None));
    assert_eq!(
        bad,
        [
            "line 3, byte 26: field `volume`: expected long (a whole number of 64 bits), found text \"many\"",
            "line 4, byte 35: expected 3 cells as in the header, found 2",
            "line 5, byte 39: column 3 is not UTF-8",
        ]
    );
    let (_, _, error) = read(b"volume,symbl\n", &format, ReadOptions::default());
    assert_eq!(error.unwrap(), "there is no column `symbol`. Did you mean `symbl`?");
}

fn batch(rows: i64) -> RecordBatch {
    let mut builder = BatchBuilder::new(trades());
    for n in 0..rows {
        let text = format!("symbol {n}").repeat(20);
        builder.push_values(&[FieldValue::Text(text), FieldValue::Int(n)], Timestamp(0)).unwrap();
    }
    builder.finish()
}

/// Returns a container with `blocks` blocks of ten rows, and the positions of the blocks.
fn container(codec: Codec, blocks: usize) -> (Vec<u8>, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.avro");
    let mut writer =
        EventFileWriter::create(&path, &Format::Avro(codec), &trades(), &WriteOptions::default()).unwrap();
    (0..blocks).for_each(|_| writer.write(&batch(10)).unwrap());
    writer.finish().unwrap();
    let bytes = std::fs::read(path).unwrap();
    let sync = &bytes[bytes.len() - 16..];
    let begins = (16..=bytes.len() - 16).filter(|at| &bytes[at - 16..*at] == sync).collect();
    (bytes, begins)
}

#[test]
fn a_damaged_block_does_not_take_the_others_with_it() {
    for codec in [Codec::Null, Codec::Deflate, Codec::Snappy] {
        let format = Format::Avro(codec);
        let (whole, begins) = container(codec, 5);
        assert_eq!(begins.len(), 5);
        assert_eq!(read(&whole, &format, ReadOptions::default()), (50, vec![], None));
        // Damage the sync marker of the second block.
        let mut bytes = whole.clone();
        bytes[begins[2] - 3] ^= 1;
        let (rows, bad, error) = read(&bytes, &format, ReadOptions::default());
        // The third block is lost, too: its sync marker is the first one found.
        assert_eq!((rows, error), (30, None), "{codec:?}");
        assert_eq!(bad, [format!("byte {}: the block does not end where it says", begins[1])]);
        // Truncate the file.
        let bytes = &whole[..whole.len() - 20];
        let (rows, bad, error) = read(bytes, &format, ReadOptions::default());
        assert_eq!((rows, error), (40, None));
        assert_eq!(bad, [format!("byte {}: the file ends inside a block", begins[4])]);
        // Damage the content of the fourth block, after its two leading numbers.
        for batch_rows in [3, 10, 25, 1000] {
            let mut bytes = whole.clone();
            let content = begins[3] + 3;
            bytes[content..content + 12].fill(0xff);
            let reading = ReadOptions { batch_rows, ..ReadOptions::default() };
            let (rows, bad, error) = read(&bytes, &format, reading);
            assert_eq!((rows, error), (40, None), "{codec:?} {bad:?}");
            assert_eq!(bad.len(), 1);
            assert!(bad[0].starts_with(&format!("byte {}: ", begins[3])), "{bad:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(
        codec in prop::sample::select(vec![Codec::Null, Codec::Deflate, Codec::Snappy]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let (mut bytes, _) = container(codec, 3);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        // There may be more rows than written only where a count is damaged.
        let (rows, _, _) = read(&bytes, &Format::Avro(codec), ReadOptions::default());
        prop_assert!(rows <= bytes.len() * 20);
    }

    #[test]
    fn nor_any_text(text in prop::collection::vec(any::<u8>(), 0..80)) {
        read(&text, &Format::Json, ReadOptions::default());
        read(&text, &Format::Csv { header: false, delimiter: b',' }, ReadOptions::default());
    }
}

#[test]
fn other_files_are_refused() {
    let (rows, bad, error) = read(b"not one", &Format::Avro(Codec::Null), ReadOptions::default());
    assert_eq!((rows, bad.len()), (0, 0));
    assert!(error.unwrap().starts_with("not an Avro object container: "));
}
