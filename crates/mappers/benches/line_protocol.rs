//! Decoding of line protocol to rows.
//!
//! `cargo bench -p tidemill-mappers --bench line_protocol`: a body of 10,000 readings of the TSBS data set, with 4 tags and 7 fields each, and the
//! same with an escape in a tag of each line.

use std::fmt::Write;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use tidemill_mappers::line_protocol::{LineDecoder, LineOptions};
use tidemill_types::{Field, FieldType, StreamSchema, Timestamp};

const LINES: usize = 10_000;
const TAGS: [&str; 4] = ["name", "fleet", "driver", "model"];
const FIELDS: [&str; 7] =
    ["latitude", "longitude", "elevation", "velocity", "heading", "grade", "fuel_consumption"];

fn main() {
    divan::main();
}

fn stream() -> Arc<StreamSchema> {
    let mut fields = vec![Field::new("time", FieldType::Time)];
    fields.extend(TAGS.map(|name| Field::new(name, FieldType::String)));
    fields.extend(FIELDS.map(|name| Field::new(name, FieldType::Double)));
    Arc::new(StreamSchema { name: "readings".into(), fields, key: Some(1), id: vec![0, 1], time: Some(0) })
}

fn body(model: &str) -> String {
    let mut body = String::new();
    for n in 0..LINES {
        let truck = n % 1000;
        write!(body, "readings,name=truck_{truck},fleet=South,driver=Trish,model={model} ").unwrap();
        for (at, field) in FIELDS.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(body, "{comma}{field}={}.{:05}", (n * 7 + at) % 90, (n * 7919 + at * 13) % 100_000)
                .unwrap();
        }
        writeln!(body, " {}", 1_451_606_400_000_000_000_i64 + (n as i64 / 1000) * 10_000_000_000).unwrap();
    }
    body
}

fn decode(bencher: Bencher<'_, '_>, body: &str) {
    let stream = stream();
    bencher.counter(ItemsCount::new(LINES)).bench_local(|| {
        let stream = stream.clone();
        let mut decoder = LineDecoder::new(LineOptions::default(), move |_| Ok(stream.clone()));
        decoder.push_body(body.as_bytes(), Timestamp(0));
        let rows = decoder.finish();
        assert_eq!((rows.rows.len(), rows.rejected.len()), (LINES, 0));
        rows
    });
}

#[divan::bench]
fn plain(bencher: Bencher<'_, '_>) {
    decode(bencher, &body("H-2"));
}

#[divan::bench]
fn with_escapes(bencher: Bencher<'_, '_>) {
    decode(bencher, &body("H\\ 2"));
}
