//! Any options of any connector and mapper: wrong ones are refused with what was expected, nothing panics, and no secret
//! is shown. What the catalog gets in future is tried as well.

use std::sync::Arc;

use tidemill_connect::{
    ConnectorConfig, MapperConfig, OptionKind, OptionSpec, StoreConfig, StoreContext, StoreMonitor,
};

use crate::helpers::{catalog, context, schema};

/// Part of a value that is confidential.
const SECRET: &str = "hunter2";

/// Values with a secret for options that also have other parts, such as URLs and headers.
const LOGINS: [&str; 14] = [
    "tcp://u:hunter2@127.0.0.1:1/x",
    "x://u:hunter2@127.0.0.1:1",
    "nats://u:hunter2@127.0.0.1",
    "nats://127.0.0.1:1,nats://u:hunter2@[::1",
    "amqp://u:hunter2@127.0.0.1:x/%2f",
    "redis://:hunter2@127.0.0.1:1/x",
    "http://u:hunter2@:1",
    "u:hunter2@127.0.0.1:1",
    "jdbc:postgresql://127.0.0.1:1/db?user=u&password=hunter2",
    "jdbc:mysql://u:hunter2@127.0.0.1:x/db",
    "jdbc:foo://127.0.0.1:1/db;password=hunter2",
    "'Authorization: Bearer hunter2'",
    "'Authorization: Bearer hunter2",
    "sasl.password:hunter2,acks",
];

/// Returns whether an option is confidential as a whole.
fn is_login(name: &str) -> bool {
    ["password", "secret", "token", "passphrase"].iter().any(|word| name.contains(word))
}

/// Returns whether values of an option are URLs, addresses or lists that users put logins into.
fn may_have_login(name: &str) -> bool {
    let words = ["url", "uri", "servers", "headers", "configuration", "properties"];
    words.iter().any(|word| name.contains(word))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Source,
    Sink,
    Store,
    SourceMapper,
    SinkMapper,
}

/// Everything that has options: what, name, options.
fn everything() -> Vec<(Kind, &'static str, &'static [OptionSpec])> {
    let catalog = catalog();
    let mut all = vec![];
    all.extend(catalog.sources().map(|of| (Kind::Source, of.name(), of.options())));
    all.extend(catalog.sinks().map(|of| (Kind::Sink, of.name(), of.options())));
    all.extend(catalog.stores().map(|of| (Kind::Store, of.name(), of.options())));
    all.extend(catalog.source_mappers().map(|of| (Kind::SourceMapper, of.name(), of.options())));
    all.extend(catalog.sink_mappers().map(|of| (Kind::SinkMapper, of.name(), of.options())));
    all
}

/// Creates it with these options. Errors: why not.
fn create(kind: Kind, name: &str, options: &[(String, String)]) -> Result<(), String> {
    let (name, options) = (name.to_owned(), options.to_vec());
    let context = context("app", "S");
    let mapper = MapperConfig { kind: name.clone(), options: options.clone(), ..MapperConfig::default() };
    let connector = ConnectorConfig { kind: name.clone(), options: options.clone(), mapper: None };
    let created = match kind {
        Kind::Source => catalog().create_source(&connector, &context).map(drop),
        Kind::Sink => catalog().open_sink(&connector, &context).map(drop),
        Kind::SourceMapper => catalog().create_source_mapper(&mapper, &context).map(drop),
        Kind::SinkMapper => catalog().create_sink_mapper(&mapper, &context).map(drop),
        Kind::Store => {
            let place = StoreContext {
                table: "S".into(),
                writer: "app".into(),
                schema: schema("S"),
                primary_key: vec![],
                indexes: vec![],
                special_indexes: vec![],
                long_texts: vec![],
                monitor: Arc::new(StoreMonitor::default()),
            };
            catalog().create_store(&StoreConfig { kind: name, options }, &place).map(drop)
        }
    };
    created.map_err(|e| e.to_string())
}

/// Returns a name for an option, also for one that stands for many.
fn written_name(spec: &OptionSpec) -> String {
    spec.name.replace('*', "x")
}

#[test]
fn unknown_options_are_refused() {
    for (kind, name, _) in everything() {
        let error = create(kind, name, &[("no.such.option".into(), SECRET.into())]).unwrap_err();
        assert!(
            error.contains("`no.such.option`") && error.contains("has no such option"),
            "{name}: {error}"
        );
        assert!(!error.contains(SECRET), "{kind:?} {name}: {error}");
    }
}

#[test]
fn missing_options_are_named() {
    for (kind, name, specs) in everything() {
        if let Some(first) = specs.iter().find(|spec| spec.required) {
            let error = create(kind, name, &[]).unwrap_err();
            assert!(
                error.contains(&format!("needs the option `{}`", first.name)),
                "{kind:?} {name}: {error}"
            );
        }
    }
}

#[test]
fn wrong_values_are_refused() {
    for (kind, name, specs) in everything() {
        for spec in specs.iter().filter(|spec| spec.kind != OptionKind::Text) {
            let error = create(kind, name, &[(written_name(spec), SECRET.into())]).unwrap_err();
            let is_clear = error.contains(&format!("`{}`", written_name(spec))) && error.contains("expected");
            assert!(is_clear, "{kind:?} {name}: {error}");
            assert!(!spec.secret || !error.contains(SECRET), "{kind:?} {name}: {error}");
        }
    }
}

/// Passwords and the like are declared as such.
#[test]
fn confidential_options_are_declared() {
    for (kind, name, specs) in everything() {
        for spec in specs {
            let is_key = is_login(spec.name) && !spec.name.ends_with(".url");
            assert!(spec.secret || !is_key, "{kind:?} {name}: the option `{}` is no secret", spec.name);
        }
    }
}

#[test]
fn any_values_are_taken_or_refused() {
    let seed = std::env::var("TIDEMILL_SEED").map_or(1, |seed| seed.parse::<u64>().unwrap());
    let mut state = seed;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let values = [
        "",
        " ",
        "true",
        "0",
        "1",
        "-1",
        "65536",
        "99999999999999999999",
        "5 sec",
        "a",
        "a,b",
        "a:b,c",
        "'a:b",
        "a=b",
        "{{text}}",
        "{{}}",
        "{{x}}",
        "{{",
        "/",
        "//",
        "://",
        "http://127.0.0.1:1/x",
        "tcp://127.0.0.1:1/x",
        "nats://:@127.0.0.1:1",
        "amqp://127.0.0.1:1/%2f",
        "redis://127.0.0.1:1/x",
        "ws://127.0.0.1:1",
        "jdbc:postgresql://127.0.0.1:1/db?a=b",
        "jdbc:",
        "[::1]:1",
        "localhost:99999",
        "file:%",
        "(",
        "(?<x>a*",
        "\0",
        "ä\u{202e}\u{1f980}",
    ];
    for (kind, name, specs) in everything() {
        let mut taken = 0;
        for _ in 0..100 {
            let mut options: Vec<(String, String)> = vec![];
            for spec in specs {
                if spec.required || random(specs.len().max(4)) < 3 {
                    let value = match (spec.secret, spec.kind, random(3)) {
                        (true, OptionKind::Text, _) if is_login(spec.name) => {
                            format!("{SECRET}{}", values[random(values.len())])
                        }
                        (true, OptionKind::Text, _) => LOGINS[random(LOGINS.len())].to_owned(),
                        (_, OptionKind::Text, 0) if may_have_login(spec.name) => {
                            LOGINS[random(LOGINS.len())].to_owned()
                        }
                        (_, OptionKind::OneOf(all), 0 | 1) => all[random(all.len())].to_owned(),
                        (_, OptionKind::Integer { min, .. }, 0 | 1) => min.to_string(),
                        (_, OptionKind::Flag, 0 | 1) => ["true", "false"][random(2)].to_owned(),
                        _ => values[random(values.len())].to_owned(),
                    };
                    options.push((written_name(spec), value));
                }
            }
            match create(kind, name, &options) {
                Ok(()) => taken += 1,
                Err(error) => {
                    assert!(!error.contains(SECRET), "{kind:?} {name}, seed {seed}: {error}\n{options:?}");
                    assert!(error.len() > 10 && error.len() < 2000, "{kind:?} {name}: {error}\n{options:?}");
                }
            }
        }
        println!("{kind:?} {name}: {taken} of 100 taken");
    }
}
