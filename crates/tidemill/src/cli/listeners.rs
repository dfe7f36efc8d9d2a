//! Listeners of `tidemill run` and `tidemill serve`: which there are, by command line and settings, and their start.

mod beside_http;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use beside_http::FlightBesideHttp;
use tidemill::access::Access;
use tidemill::engine::{ListenProtocol, ListenSettings};
use tidemill::flight::{FlightFrontEnd, FlightOptions, FlightSql};
use tidemill::gateway::{FrontEnd, Gateway, ListenOptions, Listener, Metrics, TlsFiles};
use tidemill::mongo::{MongoFrontEnd, MongoOptions};
use tidemill::postgres::{PostgresFrontEnd, PostgresOptions};
use tidemill::server::{HttpFrontEnd, ServerOptions, Token};
use tidemill::{Error, Tidemill};

use super::address;

/// Area of the problems of listeners.
const AREA: &str = "listeners";

/// Addresses at which callers reach the program. With --until-idle there are only those that are given here.
#[derive(clap::Args)]
pub struct ListenerArgs {
    /// Address of the HTTP server, such as 127.0.0.1:4700, localhost:4700 or 4700, in place of those of the settings. With --until-idle there is one only when this is given.
    #[arg(long, env = "TIDEMILL_LISTEN", value_name = "HOST:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Encrypt the connections of HTTP: a PEM file with the server's certificate, those that signed it, and its private key. It is read again when it has changed.
    #[arg(long, env = "TIDEMILL_LISTEN_TLS", value_name = "FILE")]
    listen_tls: Option<PathBuf>,
    /// Address for MongoDB drivers, such as 127.0.0.1:27017 (the default, unless that port is taken), or `off`, in place of those of the settings. With --until-idle there is one only when this is given.
    #[arg(long, env = "TIDEMILL_MONGO", value_name = "HOST:PORT|off", value_parser = address_or_off)]
    mongo: Option<OptionalAddress>,
    /// Let MongoDB drivers in without user and password, on loopback addresses only: any program on this machine can then read and change documents.
    #[arg(long)]
    mongo_without_login: bool,
    /// Let tests of MongoDB drivers order errors, closed connections and delays by the command `configureFailPoint`. Not for servers that have other clients.
    #[arg(long)]
    mongo_test_commands: bool,
    /// Encrypt the connections of MongoDB drivers: a PEM file with the server's certificate, those that signed it, and its private key. It is read again when it has changed.
    #[arg(long, env = "TIDEMILL_MONGO_TLS", value_name = "FILE")]
    mongo_tls: Option<PathBuf>,
    /// Address for PostgreSQL clients, such as 127.0.0.1:4701 (the default, unless that port is taken), or `off`, in place of those of the settings. With --until-idle there is one only when this is given.
    #[arg(long, env = "TIDEMILL_POSTGRES", value_name = "HOST:PORT|off", value_parser = address_or_off)]
    postgres: Option<OptionalAddress>,
    /// Let PostgreSQL clients in without user and password, on loopback addresses only: any program on this machine can then read everything.
    #[arg(long)]
    postgres_without_login: bool,
    /// Encrypt the connections of PostgreSQL clients that ask for it: a PEM file with the server's certificate, those that signed it, and its private key. It is read again when it has changed.
    #[arg(long, env = "TIDEMILL_POSTGRES_TLS", value_name = "FILE")]
    postgres_tls: Option<PathBuf>,
    /// Address for Arrow Flight SQL alone, such as 127.0.0.1:4702, or `off`, in place of those of the settings. Its clients reach the address of HTTP as well, so an address of its own exists only if it is given.
    #[arg(long, env = "TIDEMILL_FLIGHT", value_name = "HOST:PORT|off", value_parser = address_or_off)]
    flight: Option<OptionalAddress>,
    /// Encrypt the connections of Flight SQL at its own address: a PEM file with the server's certificate, those that signed it, and its private key. It is read again when it has changed.
    #[arg(long, env = "TIDEMILL_FLIGHT_TLS", value_name = "FILE")]
    flight_tls: Option<PathBuf>,
    /// Serve the Model Context Protocol to programs with a language model, at the path /mcp of HTTP, as the setting `server.mcp` does. Its tools read with the rights of their caller.
    #[arg(long, env = "TIDEMILL_MCP", value_parser = clap::builder::BoolishValueParser::new())]
    mcp: bool,
}

/// Address of a protocol that can be switched off.
#[derive(Clone, Copy)]
enum OptionalAddress {
    Off,
    At(SocketAddr),
}

impl OptionalAddress {
    /// Returns the address, if one is given.
    fn given(this: Option<Self>) -> Option<SocketAddr> {
        match this {
            Some(Self::At(address)) => Some(address),
            Some(Self::Off) | None => None,
        }
    }
}

fn address_or_off(text: &str) -> Result<OptionalAddress, String> {
    match text {
        "off" => Ok(OptionalAddress::Off),
        text => address(text).map(OptionalAddress::At).map_err(|e| format!("{e}, or `off`")),
    }
}

/// A listener that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PlannedListener {
    protocol: ListenProtocol,
    address: SocketAddr,
    tls: Option<TlsFiles>,
    connections_max: Option<usize>,
    origin: Origin,
}

/// Place that says that there is to be a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The command line.
    Flag,
    /// The listener of this number, from 1, in `[[settings.listen]]`.
    Setting(usize),
    Default,
    /// The commands of this machine, which speak no TLS, where no other listener of HTTP is without it.
    Commands,
}

impl ListenerArgs {
    /// Returns the listeners. Those of the command line take the place of those that the settings have for the protocol.
    ///
    /// Errors: an address of the settings has no such host; a file on the command line is for no listener.
    fn plan(&self, settings: &[ListenSettings], until_idle: bool) -> anyhow::Result<Vec<PlannedListener>> {
        let settings = if until_idle { &[] } else { settings };
        let default = |port| (!until_idle).then_some(SocketAddr::from(([127, 0, 0, 1], port)));
        let http = Plan {
            protocol: ListenProtocol::Http,
            flag: ("--listen", self.listen),
            tls: ("--listen-tls", self.listen_tls.as_deref()),
            default: default(4700),
        };
        let mongo = Plan {
            protocol: ListenProtocol::MongoDb,
            flag: ("--mongo", OptionalAddress::given(self.mongo)),
            tls: ("--mongo-tls", self.mongo_tls.as_deref()),
            default: default(27017),
        };
        let postgres = Plan {
            protocol: ListenProtocol::Postgres,
            flag: ("--postgres", OptionalAddress::given(self.postgres)),
            tls: ("--postgres-tls", self.postgres_tls.as_deref()),
            default: default(4701),
        };
        let flight = Plan {
            protocol: ListenProtocol::Flight,
            flag: ("--flight", OptionalAddress::given(self.flight)),
            tls: ("--flight-tls", self.flight_tls.as_deref()),
            default: None,
        };
        let mut planned = http.listeners(settings)?;
        if !planned.is_empty() && planned.iter().all(|listener| listener.tls.is_some()) {
            planned.push(PlannedListener {
                protocol: ListenProtocol::Http,
                address: ([127, 0, 0, 1], 0).into(),
                tls: None,
                connections_max: None,
                origin: Origin::Commands,
            });
        }
        for (plan, given) in [(mongo, self.mongo), (postgres, self.postgres), (flight, self.flight)] {
            if !matches!(given, Some(OptionalAddress::Off)) {
                planned.extend(plan.listeners(settings)?);
            }
        }
        Ok(planned)
    }
}

/// Sources of the listeners of a protocol.
struct Plan<'a> {
    protocol: ListenProtocol,
    flag: (&'static str, Option<SocketAddr>),
    tls: (&'static str, Option<&'a Path>),
    /// Address without flag and settings; `None` if there is no listener then.
    default: Option<SocketAddr>,
}

impl Plan<'_> {
    fn listeners(&self, settings: &[ListenSettings]) -> anyhow::Result<Vec<PlannedListener>> {
        let protocol = self.protocol;
        let one = |address, origin| {
            let tls = self.tls.1.map(TlsFiles::one);
            vec![PlannedListener { protocol, address, tls, connections_max: None, origin }]
        };
        if let Some(address) = self.flag.1 {
            return Ok(one(address, Origin::Flag));
        }
        let own = (1..).zip(settings).filter(|(_, listener)| listener.protocol == protocol);
        let planned: Vec<PlannedListener> =
            own.map(|(number, listener)| of_settings(number, listener)).collect::<anyhow::Result<_>>()?;
        match (planned.is_empty(), self.tls) {
            (true, (flag, Some(_))) if self.default.is_none() => {
                bail!(
                    "{flag} is for the address of {}, which is not given: give {} too",
                    self.flag.0,
                    self.flag.0
                )
            }
            (true, _) => Ok(self.default.map(|address| one(address, Origin::Default)).unwrap_or_default()),
            (false, (flag, Some(_))) => bail!(
                "{flag} is for the address of {}, and the settings have other ones: give {}, or write tls_file into [[settings.listen]]",
                self.flag.0,
                self.flag.0
            ),
            (false, (_, None)) => Ok(planned),
        }
    }
}

fn of_settings(number: usize, listener: &ListenSettings) -> anyhow::Result<PlannedListener> {
    let address = address(&listener.address).map_err(|expected| {
        anyhow::anyhow!("setting listen, listener {number}: address = \"{}\": {expected}", listener.address)
    })?;
    let tls = match (&listener.tls_file, &listener.certificate_file, &listener.key_file) {
        (Some(file), ..) => Some(TlsFiles::one(file)),
        (None, Some(certificate), Some(key)) => Some(TlsFiles::separate(certificate, key)),
        // the settings were checked
        (None, ..) => None,
    };
    let connections_max = listener.connections_max.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let (protocol, origin) = (listener.protocol, Origin::Setting(number));
    Ok(PlannedListener { protocol, address, tls, connections_max, origin })
}

impl PlannedListener {
    /// Adds to the error of a bind what to change.
    fn context(&self, error: Error) -> Error {
        match (self.origin, self.protocol) {
            (Origin::Setting(number), _) => {
                error.context(format_args!("listener {number} of [[settings.listen]]"))
            }
            (Origin::Commands, _) => error.context("the listener for commands of this machine"),
            (_, ListenProtocol::Http) => error.context("HTTP (another address: --listen 127.0.0.1:PORT)"),
            (_, ListenProtocol::MongoDb) => {
                error.context("MongoDB drivers (another address: --mongo 127.0.0.1:PORT)")
            }
            (_, ListenProtocol::Postgres) => {
                error.context("PostgreSQL clients (another address: --postgres 127.0.0.1:PORT)")
            }
            (_, ListenProtocol::Flight) => {
                error.context("Flight SQL (another address: --flight 127.0.0.1:PORT)")
            }
        }
    }

    /// Returns the message for a taken address by which the server does without the protocol; `None` if it is an error.
    fn done_without(&self, error: &Error) -> Option<String> {
        match (self.origin, self.protocol) {
            (Origin::Default, ListenProtocol::MongoDb) => Some(format!(
                "MongoDB drivers cannot connect: {error} (another address: --mongo 127.0.0.1:PORT)"
            )),
            (Origin::Default, ListenProtocol::Postgres) => Some(format!(
                "PostgreSQL clients cannot connect: {error} (another address: --postgres 127.0.0.1:PORT)"
            )),
            _ => None,
        }
    }
}

/// Running listeners.
pub struct Listeners {
    gateway: Gateway,
    /// Address and scheme of the first listener of HTTP that was asked for, `http://127.0.0.1:4700`.
    http: Option<String>,
    /// Address at which commands of this machine speak HTTP.
    commands: Option<SocketAddr>,
}

/// Callers that the listeners know.
pub struct KnownCallers<'a> {
    /// Returns the token of the first administrator, and makes it at the first start.
    pub token: &'a dyn Fn() -> anyhow::Result<String>,
    /// Users and tokens beside it.
    pub access: Arc<Access>,
}

impl Listeners {
    /// Binds all addresses, prints them, and lets callers in. A default address for MongoDB drivers or PostgreSQL clients may be taken, which
    /// is printed.
    ///
    /// Errors: those of [`Listener::bind`], with what to change.
    pub async fn start(
        tidemill: &Tidemill,
        args: &ListenerArgs,
        callers: KnownCallers<'_>,
        until_idle: bool,
    ) -> anyhow::Result<Self> {
        let planned = args.plan(&tidemill.engine().app().settings.listen, until_idle)?;
        let metrics = Arc::new(Metrics::default());
        if planned.is_empty() {
            return Ok(Self { gateway: Gateway::start(vec![], metrics), http: None, commands: None });
        }
        let front_ends = FrontEnds::new(tidemill, args, callers, &planned, &metrics)?;
        let (mut listeners, mut lines) = (vec![], vec![]);
        let (mut http, mut commands) = (None, None);
        for planned in &planned {
            let (front_end, connections_max) = front_ends.of(planned.protocol);
            let options = ListenOptions {
                tls: planned.tls.clone(),
                connections_max: planned.connections_max.unwrap_or(connections_max),
                ..ListenOptions::new(planned.address)
            };
            let listener = match Listener::bind(front_end, options).await {
                Ok(listener) => listener,
                Err(error) => match planned.done_without(&error) {
                    Some(message) => {
                        eprintln!("{message}");
                        continue;
                    }
                    None => return Err(planned.context(error).into()),
                },
            };
            let (address, encrypted) = (listener.address(), listener.has_certificate());
            if planned.protocol == ListenProtocol::Http && !encrypted {
                commands.get_or_insert(address);
            }
            lines.push(match (planned.protocol, planned.origin) {
                (ListenProtocol::Http, Origin::Commands) => {
                    format!("Commands of this machine: http://{address}")
                }
                (ListenProtocol::Http, _) => {
                    let url = format!("{}://{address}", if encrypted { "https" } else { "http" });
                    http.get_or_insert_with(|| url.clone());
                    let mcp = match front_ends.serves_mcp {
                        true => format!("\nMCP clients: {url}/mcp (the token as bearer)"),
                        false => String::new(),
                    };
                    format!("Listening on {url}{mcp}")
                }
                (ListenProtocol::MongoDb, _) => front_ends.mongo_line(address, encrypted),
                (ListenProtocol::Postgres, _) => front_ends.postgres_line(address, encrypted),
                (ListenProtocol::Flight, _) => {
                    let scheme = if encrypted { "grpc+tls" } else { "grpc" };
                    format!(
                        "Flight SQL clients: {scheme}://{address} (the token as bearer, or user and password)"
                    )
                }
            });
            listeners.push(listener);
        }
        let gateway = Gateway::start(listeners, metrics);
        let problems = gateway.problems();
        tidemill.engine().watch_problems(AREA, move || problems.present());
        for line in lines {
            println!("{line}");
        }
        Ok(Self { gateway, http, commands })
    }

    /// Returns the URL of the first listener of HTTP.
    pub fn http(&self) -> Option<&str> {
        self.http.as_deref()
    }

    /// Returns the address at which commands of this machine speak HTTP.
    pub fn commands(&self) -> Option<SocketAddr> {
        self.commands
    }

    /// Stops in order: accepts no more connections and requests, waits at most `grace` for requests in progress, and closes the rest.
    pub async fn shutdown(self, grace: Duration) {
        self.gateway.shutdown(grace).await;
    }
}

/// Returns HTTP with MCP beside its routes.
#[cfg(feature = "mcp")]
fn with_mcp(http: HttpFrontEnd, tidemill: &Tidemill) -> anyhow::Result<HttpFrontEnd> {
    use tidemill::McpOverEngine;
    use tidemill::mcp::{McpOptions, McpService};

    let engine = Arc::new(McpOverEngine(tidemill.engine().clone()));
    let service = McpService::new(engine, tidemill.database(), McpOptions::default());
    Ok(http.with_mounted(Arc::new(beside_http::McpBesideHttp::new(service))))
}

#[cfg(not(feature = "mcp"))]
fn with_mcp(_: HttpFrontEnd, _: &Tidemill) -> anyhow::Result<HttpFrontEnd> {
    anyhow::bail!(
        "this build has no MCP: leave out --mcp and the setting server.mcp, or build with the feature `mcp`"
    )
}

/// The protocols, and the maximum of connections of a listener that has no other one.
struct FrontEnds {
    http: (Arc<dyn FrontEnd>, usize),
    serves_mcp: bool,
    mongo: (Arc<dyn FrontEnd>, usize),
    mongo_needs_login: bool,
    postgres: (Arc<dyn FrontEnd>, usize),
    postgres_needs_login: bool,
    flight: (Arc<dyn FrontEnd>, usize),
}

impl FrontEnds {
    fn new(
        tidemill: &Tidemill,
        args: &ListenerArgs,
        callers: KnownCallers<'_>,
        planned: &[PlannedListener],
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let (token, access) = ((callers.token)()?, callers.access);
        let engine = tidemill.engine();
        let options = ServerOptions {
            token: Some(Token::new(token.clone())?),
            access: Some(access.clone()),
            ..tidemill.server_options()
        };
        let http_max = options.connections_max;
        let flight_options = FlightOptions {
            token: Some(token.clone()),
            access: Some(access.clone()),
            ..FlightOptions::default()
        };
        let flight_max = flight_options.connections_max;
        let flight = FlightSql::new(tidemill.database(), flight_options);
        let http = HttpFrontEnd::new(engine.clone(), tidemill.database(), options, metrics.clone())?
            .with_grpc(Arc::new(FlightBesideHttp::new(flight.clone())));
        let serves_mcp = args.mcp || engine.app().settings.server.mcp;
        let http = if serves_mcp { with_mcp(http, tidemill)? } else { http };
        let needs_login = !args.mongo_without_login;
        let mut options = MongoOptions {
            password: needs_login.then(|| token.clone()),
            access: needs_login.then(|| access.clone()),
            test_commands: args.mongo_test_commands,
            ..tidemill.mongo_options()
        };
        let mongo_max = options.connections_max;
        // all listeners together, as clients see it
        let own = planned.iter().filter(|listener| listener.protocol == ListenProtocol::MongoDb);
        options.connections_max = own.map(|listener| listener.connections_max.unwrap_or(mongo_max)).sum();
        let mongo = MongoFrontEnd::new(engine.clone(), options);
        let postgres_needs_login = !args.postgres_without_login;
        let options = PostgresOptions {
            password: postgres_needs_login.then_some(token),
            access: postgres_needs_login.then_some(access),
            ..PostgresOptions::default()
        };
        let postgres_max = options.connections_max;
        let postgres = PostgresFrontEnd::new(tidemill.database(), options);
        Ok(Self {
            http: (Arc::new(http), http_max),
            serves_mcp,
            mongo: (Arc::new(mongo), mongo_max),
            mongo_needs_login: needs_login,
            postgres: (Arc::new(postgres), postgres_max),
            postgres_needs_login,
            flight: (Arc::new(FlightFrontEnd::new(flight)), flight_max),
        })
    }

    fn of(&self, protocol: ListenProtocol) -> (Arc<dyn FrontEnd>, usize) {
        match protocol {
            ListenProtocol::Http => self.http.clone(),
            ListenProtocol::MongoDb => self.mongo.clone(),
            ListenProtocol::Postgres => self.postgres.clone(),
            ListenProtocol::Flight => self.flight.clone(),
        }
    }

    fn mongo_line(&self, address: SocketAddr, encrypted: bool) -> String {
        let encrypted = if encrypted { "/?tls=true" } else { "" };
        match self.mongo_needs_login {
            true => {
                format!("MongoDB drivers: mongodb://admin@{address}{encrypted} (the password is the token)")
            }
            false => format!("MongoDB drivers: mongodb://{address}{encrypted} (without login)"),
        }
    }

    fn postgres_line(&self, address: SocketAddr, encrypted: bool) -> String {
        let encrypted = if encrypted { "?sslmode=require" } else { "" };
        match self.postgres_needs_login {
            true => format!(
                "PostgreSQL clients: postgresql://admin@{address}/tidemill{encrypted} (the password is the token)"
            ),
            false => {
                format!("PostgreSQL clients: postgresql://{address}/tidemill{encrypted} (without login)")
            }
        }
    }
}

#[cfg(test)]
mod tests;
