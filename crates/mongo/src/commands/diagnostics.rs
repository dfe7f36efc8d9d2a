//! What clients ask about the server itself.

use bson::DateTime;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocumentBuf};
use bson::{cstr, rawdoc};

use super::administration;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

/// The release of MongoDB whose features this server has.
pub(super) const RELEASE: &str = "8.0";

/// Version of MongoDB whose behaviour this server follows; drivers and shells read it.
const VERSION: [i32; 4] = [8, 0, 0, 0];

fn version() -> String {
    VERSION[..3].iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
}

pub(super) fn ping(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    Ok(ok(RawDocumentBuf::new()))
}

pub(super) fn build_info(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("version"), version());
    reply.append(cstr!("tidemill"), env!("CARGO_PKG_VERSION"));
    reply.append(cstr!("gitVersion"), "");
    reply.append(cstr!("modules"), RawArrayBuf::new());
    let mut numbers = RawArrayBuf::new();
    VERSION.into_iter().for_each(|number| numbers.push(number));
    reply.append(cstr!("versionArray"), numbers);
    reply.append(cstr!("bits"), 64);
    reply.append(cstr!("debug"), cfg!(debug_assertions));
    reply.append(cstr!("maxBsonObjectSize"), 16 << 20);
    reply.append(cstr!("storageEngines"), RawArrayBuf::new());
    Ok(ok(reply))
}

pub(super) fn whats_my_uri(_: &Shared, session: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("you"), session.peer.to_string());
    Ok(ok(reply))
}

pub(super) fn connection_status(
    shared: &Shared,
    session: &mut Session,
    _: &Call<'_>,
) -> Result<RawDocumentBuf> {
    let mut users = RawArrayBuf::new();
    let mut roles = RawArrayBuf::new();
    if let (Some(_), Some(principal)) = (&shared.credentials, &session.principal) {
        roles = administration::roles_of(principal);
        let mut user = RawDocumentBuf::new();
        user.append(cstr!("user"), principal.name());
        user.append(cstr!("db"), "admin");
        users.push(user);
    }
    let mut info = RawDocumentBuf::new();
    info.append(cstr!("authenticatedUsers"), users);
    info.append(cstr!("authenticatedUserRoles"), roles);
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("authInfo"), info);
    Ok(ok(reply))
}

pub(super) fn host_info(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut system = RawDocumentBuf::new();
    system.append(cstr!("currentTime"), DateTime::now());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    system.append(cstr!("numCores"), cores as i32);
    system.append(cstr!("cpuArch"), std::env::consts::ARCH);
    let mut os = RawDocumentBuf::new();
    os.append(cstr!("type"), std::env::consts::OS);
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("system"), system);
    reply.append(cstr!("os"), os);
    reply.append(cstr!("extra"), RawDocumentBuf::new());
    Ok(ok(reply))
}

pub(super) fn server_status(shared: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("version"), version());
    reply.append(cstr!("process"), "tidemill");
    reply.append(cstr!("pid"), i64::from(std::process::id()));
    let uptime = shared.started.elapsed();
    reply.append(cstr!("uptime"), uptime.as_secs_f64());
    reply.append(cstr!("uptimeMillis"), uptime.as_millis() as i64);
    reply.append(cstr!("localTime"), DateTime::now());
    let mut connections = RawDocumentBuf::new();
    connections.append(cstr!("current"), shared.connections() as i32);
    connections.append(
        cstr!("available"),
        shared.options.connections_max.saturating_sub(shared.connections()) as i32,
    );
    reply.append(cstr!("connections"), connections);
    let mut open = RawDocumentBuf::new();
    open.append(cstr!("total"), shared.cursors.len() as i64);
    let mut cursor = RawDocumentBuf::new();
    cursor.append(cstr!("open"), open);
    let mut metrics = RawDocumentBuf::new();
    metrics.append(cstr!("cursor"), cursor);
    reply.append(cstr!("metrics"), metrics);
    Ok(ok(reply))
}

/// `getParameter`: one of the parameters that clients ask for, or all (`"*"`).
///
/// Errors: `InvalidOptions` if none of the names is known.
pub(super) fn get_parameter(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut compatibility = RawDocumentBuf::new();
    compatibility.append(cstr!("version"), RELEASE);
    let mut mechanisms = RawArrayBuf::new();
    mechanisms.push("SCRAM-SHA-256");
    let parameters = rawdoc! {
        "authenticationMechanisms": mechanisms,
        "enableTestCommands": shared.options.test_commands,
        "featureCompatibilityVersion": compatibility,
        "localLogicalSessionTimeoutMinutes": 30,
        "requireApiVersion": false,
        "transactionLifetimeLimitSeconds": 60,
    };
    let asks_all = match call.get(call.name) {
        Some(RawBsonRef::String(asked)) => asked == "*",
        Some(RawBsonRef::Document(options)) => {
            options.get("allParameters")? == Some(RawBsonRef::Boolean(true))
        }
        _ => false,
    };
    let mut reply = RawDocumentBuf::new();
    for element in &parameters {
        let (name, value) = element?;
        if asks_all || call.get(name.as_str()).is_some() {
            reply.append(name, value);
        }
    }
    match reply.is_empty() {
        true => Err(CommandError::new(Code::InvalidOptions, "no option found to get")),
        false => Ok(ok(reply)),
    }
}

pub(super) fn get_cmd_line_opts(shared: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut parsed = RawDocumentBuf::new();
    if shared.credentials.is_some() {
        parsed.append(cstr!("security"), rawdoc! { "authorization": "enabled" });
    }
    if shared.options.test_commands {
        parsed.append(cstr!("setParameter"), rawdoc! { "enableTestCommands": "1" });
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("argv"), RawArrayBuf::new());
    reply.append(cstr!("parsed"), parsed);
    Ok(ok(reply))
}

/// `configureFailPoint`: orders errors for tests of drivers.
///
/// Errors: the server was not started for such tests.
pub(super) fn configure_fail_point(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    let Some(points) = &shared.fail_points else {
        let message = "no such command: 'configureFailPoint' (it is for tests of drivers: start the server with \
                       --mongo-test-commands)";
        return Err(CommandError::new(Code::CommandNotFound, message));
    };
    if call.database != "admin" {
        let message = "configureFailPoint may only be run against the admin database.";
        return Err(CommandError::new(Code::Unauthorized, message));
    }
    Ok(ok(rawdoc! { "count": points.configure(call)? }))
}

pub(super) fn get_log(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("totalLinesWritten"), 0);
    reply.append(cstr!("log"), RawArrayBuf::new());
    Ok(ok(reply))
}
