//! Who reads and writes the files of apps: the engine or the connector.

use tidemill_flow::io::connector::ConnectorDirection;

use crate::apps::compile;

/// Returns who has the file of an annotation, or the diagnostics.
fn route(annotation: &str) -> String {
    route_in("", annotation)
}

fn route_in(app: &str, annotation: &str) -> String {
    let text = format!(
        "{app} {annotation} define stream S (text string, n int, at long);\n\
         from S select text insert into Out;"
    );
    match compile(&text) {
        Err(diagnostics) => diagnostics,
        Ok(plan) => match (plan.file_sources.len() + plan.file_sinks.len(), plan.connectors.as_slice()) {
            (1, []) => "engine".into(),
            (0, [connector]) => match &connector.direction {
                ConnectorDirection::In(config) => format!("connector {}", config.kind),
                ConnectorDirection::Out(config) => format!("connector {}", config.destinations[0].kind),
            },
            other => format!("{other:?}"),
        },
    }
}

#[test]
fn options_of_one_side_lead_to_it() {
    for (annotation, expected) in [
        // whole files, as before
        ("@source(type='file', file.uri='a.csv', @map(type='csv'))", "engine"),
        (
            "@source(type='file', file.uri='a.csv', event.time='at', @map(type='csv', header.present='true'))",
            "engine",
        ),
        ("@source(type='file', file.uri='file:/a.avro', @map(type='avro'))", "engine"),
        ("@source(type='file', file.uri='file:/a.parquet', mode='LINE', @map(type='parquet'))", "engine"),
        ("@source(type='file', file.uri='file:/a.csv', tailing='false', @map(type='csv'))", "engine"),
        (
            "@source(type='file', file.uri='a', mode='line', tailing='false', action.after.process='KEEP', @map(type='json'))",
            "engine",
        ),
        ("@sink(type='file', file.uri='/a.json', on.error='LOG', @map(type='json'))", "engine"),
        (
            "@sink(type='file', file.uri='a.csv', append='false', add.line.separator='true', @map(type='csv'))",
            "engine",
        ),
        ("@sink(type='file', file.uri='a.avro', @map(type='avro', codec='snappy'))", "engine"),
        // as Siddhi reads and writes them
        ("@source(type='file', file.uri='file:/a.csv', @map(type='csv'))", "connector file"),
        (
            "@source(type='file', file.uri='file:/a.csv', mode='LINE', tailing='true', @map(type='csv'))",
            "connector file",
        ),
        ("@source(type='file', file.uri='a.csv', tailing='true', @map(type='csv'))", "connector file"),
        ("@source(type='file', dir.uri='file:/a', mode='text.full', @map(type='json'))", "connector file"),
        (
            "@source(type='file', dir.uri='file:/a', tailing='false', action.after.process='move', \
             move.after.process='file:/b', header.present='true', \
             @map(type='csv', delimiter='|', @attributes(text='0', n='1', at='2')))",
            "connector file",
        ),
        ("@source(type='file', file.uri='a', @map(type='xml'))", "connector file"),
        (
            "@source(type='file', file.uri='a', @map(type='json', @attributes(text='$.t', n='$.n', at='trp:eof')))",
            "connector file",
        ),
        (
            "@source(type='file', file.uri='a', @map(type='csv', fail.on.unknown.attribute='false'))",
            "connector file",
        ),
        ("@sink(type='file', file.uri='/a/{{text}}.json', @map(type='json'))", "connector file"),
        ("@sink(type='file', file.uri='a', @map(type='text', @payload('{{text}}')))", "connector file"),
        ("@sink(type='file', file.uri='a', @map(type='json', @payload('{{text}}')))", "connector file"),
        ("@sink(type='file', file.uri='a', roll.max.bytes='1000', @map(type='json'))", "connector file"),
        ("@sink(type='file', file.uri='a', add.line.separator='false', @map(type='json'))", "connector file"),
        ("@source(type='fileeventlistener', dir.uri='file:/a')", "three attributes of type string"),
    ] {
        let found = route(annotation);
        assert!(found.contains(expected), "{annotation}: {found}");
    }
    let by_default = "@source(type='file', file.uri='file:/a.csv', @map(type='csv'))";
    assert_eq!(route_in("@app:playback", by_default), "engine");
}

#[test]
fn options_of_both_sides_do_not_go_together() {
    let found =
        route("@source(type='file', file.uri='a', event.time='at', tailing='true', @map(type='csv'))");
    for expected in [
        "error[F0616]: `event.time='at'` and `tailing='true'` cannot be used together",
        "the engine reads a whole file once, with file.uri, mode, tailing, action.after.process, event.time",
        "the connector `file` has file.uri, dir.uri, mode",
    ] {
        assert!(found.contains(expected), "{found}");
    }
    let found = route("@sink(type='file', file.uri='{{text}}', @map(type='parquet'))");
    assert!(found.contains("`@map(type='parquet')` and `file.uri` cannot be used together"), "{found}");
    for annotation in [
        "@source(type='file', file.url='a', @map(type='csv'))",
        "@source(type='file', file.url='a', tailing='true', @map(type='xml'))",
        "@sink(type='file', file.url='a', @map(type='csv'))",
    ] {
        let found = route(annotation);
        assert!(
            found.contains("unknown option `file.url`") && found.contains("Did you mean `file.uri`?"),
            "{found}"
        );
        assert!(found.contains("the connector `file` has"), "{found}");
    }
    let found =
        route("@source(type='file', file.uri='sftp://u:hunter2@h/a', tailing='true', @map(type='csv'))");
    assert!(found.contains("files are not read or written over `sftp`"), "{found}");
}
