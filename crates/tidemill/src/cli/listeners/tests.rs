use clap::Parser;

use super::*;

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    listeners: ListenerArgs,
}

fn listen(protocol: ListenProtocol, address: &str, tls_file: Option<&str>) -> ListenSettings {
    ListenSettings {
        protocol,
        address: address.to_owned(),
        tls_file: tls_file.map(PathBuf::from),
        certificate_file: None,
        key_file: None,
        connections_max: None,
    }
}

/// Returns the planned listeners as texts.
fn plan(arguments: &[&str], settings: &[ListenSettings], until_idle: bool) -> Result<Vec<String>, String> {
    let arguments = [&["command"], arguments].concat();
    let args = Command::try_parse_from(arguments).unwrap().listeners;
    let planned = args.plan(settings, until_idle).map_err(|e| e.to_string())?;
    let show = |one: &PlannedListener| {
        let tls = if one.tls.is_some() { " TLS" } else { "" };
        format!("{:?} {}{tls} {:?}", one.protocol, one.address, one.origin)
    };
    Ok(planned.iter().map(show).collect())
}

#[test]
fn listeners_are_those_of_flags_settings_and_defaults() {
    use ListenProtocol::{Flight, Http, MongoDb, Postgres};
    let none: &[ListenSettings] = &[];
    let both = &[
        listen(Http, "4800", None),
        listen(MongoDb, "0.0.0.0:27018", Some("server.pem")),
        listen(Http, "0.0.0.0:443", Some("server.pem")),
        listen(Postgres, "4801", None),
        listen(Flight, "4802", None),
    ];
    let encrypted = &[listen(Http, "443", Some("server.pem"))];
    for (arguments, settings, until_idle, expected) in [
        (
            &[][..],
            none,
            false,
            &[
                "Http 127.0.0.1:4700 Default",
                "MongoDb 127.0.0.1:27017 Default",
                "Postgres 127.0.0.1:4701 Default",
            ][..],
        ),
        (&[], none, true, &[]),
        (&[], both, true, &[]),
        (&["--listen", "0"], both, true, &["Http 127.0.0.1:0 Flag"]),
        (
            &[],
            both,
            false,
            &[
                "Http 127.0.0.1:4800 Setting(1)",
                "Http 0.0.0.0:443 TLS Setting(3)",
                "MongoDb 0.0.0.0:27018 TLS Setting(2)",
                "Postgres 127.0.0.1:4801 Setting(4)",
                "Flight 127.0.0.1:4802 Setting(5)",
            ],
        ),
        (
            &["--listen", "1", "--mongo", "off", "--postgres", "off", "--flight", "off"],
            both,
            false,
            &["Http 127.0.0.1:1 Flag"],
        ),
        (
            &["--flight", "4", "--flight-tls", "server.pem", "--listen", "5"],
            none,
            true,
            &["Http 127.0.0.1:5 Flag", "Flight 127.0.0.1:4 TLS Flag"],
        ),
        (
            &["--mongo", "2", "--mongo-tls", "server.pem", "--postgres", "3", "--postgres-tls", "other.pem"],
            encrypted,
            false,
            &[
                "Http 127.0.0.1:443 TLS Setting(1)",
                "Http 127.0.0.1:0 Commands",
                "MongoDb 127.0.0.1:2 TLS Flag",
                "Postgres 127.0.0.1:3 TLS Flag",
            ],
        ),
        (
            &["--listen-tls", "server.pem", "--mongo", "off", "--postgres", "off"],
            none,
            false,
            &["Http 127.0.0.1:4700 TLS Default", "Http 127.0.0.1:0 Commands"],
        ),
    ] {
        assert_eq!(plan(arguments, settings, until_idle).unwrap(), expected, "{arguments:?}");
    }
    let error = plan(&["--mongo-tls", "server.pem"], both, false).unwrap_err();
    assert!(
        error.contains("--mongo-tls is for the address of --mongo") && error.contains("tls_file"),
        "{error}"
    );
    let error = plan(&["--flight-tls", "server.pem"], none, false).unwrap_err();
    assert!(error.contains("--flight-tls is for the address of --flight, which is not given"), "{error}");
    let error = plan(&[], &[listen(Http, "no.such.host.invalid:1", None)], false).unwrap_err();
    assert!(
        error.starts_with("setting listen, listener 1: address") && error.contains("no address"),
        "{error}"
    );
}
