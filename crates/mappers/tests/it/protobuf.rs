//! The mapper `protobuf` with a compiled descriptor.

use std::path::Path;

use tidemill_connect::Message;

use crate::fixture::{mapper, read, schema, show, source};

#[test]
fn descriptors_may_be_compiled() {
    let set = protox::compile(["stock.proto"], ["tests/data"]).unwrap();
    let pool = prost_reflect::DescriptorPool::from_file_descriptor_set(set).unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stock.desc");
    std::fs::write(&path, pool.encode_to_vec()).unwrap();
    let options = [("descriptor", path.to_str().unwrap()), ("class", "stock.Trade")];
    let stream = schema("symbol string");
    let mut mapper = source(&stream, mapper("protobuf", &options)).unwrap();
    let (rows, rejected) = read(&stream, mapper.as_mut(), &[Message::new("\x0a\x03IBM")]);
    assert!(rejected.is_empty(), "{rejected:?}");
    assert_eq!(show(&stream, &rows.unwrap(), 0), "\"IBM\"");
}
