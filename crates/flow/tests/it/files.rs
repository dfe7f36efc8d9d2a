//! Files as sources and sinks: compilation of their annotations.

use tidemill_flow::io::file::{FileMapper, InputFile, OutputFile};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::{Registry, replay};

/// Compiles an app with these annotations on its stream.
fn compile(annotations: &str) -> Result<AppPlan, String> {
    let app = format!(
        "{annotations} define stream S (symbol string, price double, at long, n int);\n\
         from S select symbol insert into Out;"
    );
    replay::compile("app.siddhi", &app, &Registry::standard(), &|_| None)
}

fn source(options: &str) -> Result<InputFile, String> {
    compile(&format!("@source(type='file', {options})")).map(|mut plan| plan.file_sources.remove(0))
}

fn sink(options: &str) -> Result<OutputFile, String> {
    compile(&format!("@sink(type='file', {options})")).map(|mut plan| plan.file_sinks.remove(0))
}

#[test]
fn options_are_read() {
    let path = || "a/b.avro".to_owned();
    let avro = |codec: &str| FileMapper::Avro(codec.into());
    let found =
        source("file.uri='file:a/b.avro', event.time='at', tailing='false', @map(type='avro')").unwrap();
    assert_eq!(found, InputFile { stream: 0, path: path(), mapper: avro("null"), time: Some(2) });
    let found = source("file.uri='/x', @map(type='csv', header.present='true', delimiter=';')").unwrap();
    assert_eq!((found.path.as_str(), found.time), ("/x", None));
    assert_eq!(found.mapper, FileMapper::Csv { header: true, delimiter: b';' });
    let found =
        source("file.uri='file:///x.json', @map(type='json', fail.on.missing.attribute='false')").unwrap();
    assert_eq!((found.path.as_str(), found.mapper), ("/x.json", FileMapper::Json { complete: false }));
    let found = sink("file.uri='a/b.avro', @map(type='avro', codec='snappy')").unwrap();
    assert_eq!(found, OutputFile { stream: 0, path: path(), mapper: avro("snappy"), append: false });
    assert!(sink("file.uri='x', @map(type='json')").unwrap().append);
    assert!(!sink("file.uri='x', append='false', @map(type='csv', header='true')").unwrap().append);
    assert_eq!(sink("file.uri='x', @map(type='parquet')").unwrap().mapper, FileMapper::Parquet);
}

#[test]
fn mistakes_are_named() {
    for (options, code, message) in [
        ("@map(type='csv')", "F0613", "`file` needs the path of the file"),
        ("file.uri='x'", "F0611", "a file needs a mapper"),
        ("file.uri='x', @map(type='jsn')", "F0602", "unknown file mapper `jsn`. Did you mean `json`?"),
        ("file.uri='x', @map(type='xml')", "F0602", "the file mapper `xml` is not supported yet"),
        ("file.url='x', @map(type='csv')", "F0612", "unknown option `file.url`. Did you mean `file.uri`?"),
        ("file.uri='x', tailing='true', @map(type='csv')", "F0614", "`tailing` only supports 'false' so far"),
        ("file.uri='x', event.time='n', @map(type='csv')", "F0614", "an attribute of type long"),
        ("file.uri='{{symbol}}', @map(type='csv')", "F0614", "paths that depend on the event"),
        ("file.uri='x', @map(type='csv', delimiter=';;')", "F0614", "one ASCII character"),
        ("file.uri='x', @map(type='csv', header.present='maybe')", "F0614", "must be true or false"),
        (
            "file.uri='x', @map(type='json', @attributes(symbol='$.s'))",
            "F0612",
            "`@attributes` is not supported yet",
        ),
    ] {
        let error = source(options).unwrap_err();
        assert!(error.contains(code) && error.contains(message), "{options}: {error}");
    }
    for (options, code, message) in [
        ("file.uri='x', append='true', @map(type='avro')", "F0614", "only the mappers json and csv"),
        ("file.uri='x', @map(type='avro', codec='lz4')", "F0602", "unknown codec `lz4`"),
        ("file.uri='x', on.error='SHOUT', @map(type='csv')", "F0505", "unknown action `SHOUT`"),
        ("file.uri='x', event.time='at', @map(type='csv')", "F0612", "unknown option `event.time`"),
    ] {
        let error = sink(options).unwrap_err();
        assert!(error.contains(code) && error.contains(message), "{options}: {error}");
    }
}
