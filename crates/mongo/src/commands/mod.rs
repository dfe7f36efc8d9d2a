//! Commands, one file each or one for a few that belong together.

mod administration;
mod aggregate;
pub(crate) mod catalog;
pub(crate) mod change_stream;
mod collation;
mod compatibility;
mod diagnostics;
pub(crate) mod hello;
pub(crate) mod index;
mod pipeline;
pub(crate) mod reading;
mod resume_token;
mod rights;
mod sasl;
mod sessions;
mod split_events;
pub(crate) mod writing;

use std::sync::Arc;

use bson::cstr;
use bson::raw::{RawBsonRef, RawDocumentBuf};

use crate::documents::Documents;
use crate::error::{Code, CommandError, Result, WriteError};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::{MongoServerState, Shared};
use crate::transactions;
use crate::wire::api_version;
use crate::wire::reply::cursor_of;

/// Runs a command. The session changes by logins only.
type Handler = fn(&Shared, &mut Session, &Call<'_>) -> Result<RawDocumentBuf>;

/// A command.
struct Command {
    name: &'static str,
    help: &'static str,
    handler: Handler,
    access: Access,
}

/// Clients that may call a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Anyone,
    /// Clients that have logged in. The command shows what they may read, and changes what is theirs.
    Authenticated,
    /// Those that may read or write the collection that the command names first.
    Read,
    Write,
    /// Those that may read or write all collections of the database.
    ReadDatabase,
    WriteDatabase,
    /// Those that may look at the server.
    ReadServer,
    Administer,
    /// Those that have the rights that [`rights`] finds for the command.
    Special,
}

macro_rules! commands {
    ($($access:ident $name:literal => $handler:path, $help:literal;)*) => {
        const COMMANDS: &[Command] =
            &[$(Command { name: $name, help: $help, handler: $handler, access: Access::$access }),*];
    };
}

commands! {
    Anyone "hello" => hello::hello, "says what the server is";
    Anyone "isMaster" => hello::hello, "hello, by its former name";
    Anyone "ismaster" => hello::hello, "hello, by its former name";
    Anyone "ping" => diagnostics::ping, "answers";
    Anyone "buildInfo" => diagnostics::build_info, "version of the server";
    Anyone "buildinfo" => diagnostics::build_info, "version of the server";
    Anyone "whatsmyuri" => diagnostics::whats_my_uri, "address of the client";
    Anyone "connectionStatus" => diagnostics::connection_status, "who is logged in";
    Anyone "saslStart" => sasl::start, "begins a login";
    Anyone "saslContinue" => sasl::proceed, "continues a login";
    Anyone "logout" => sasl::logout, "ends a login";
    Anyone "endSessions" => sessions::end, "ends sessions";
    Authenticated "startSession" => sessions::start, "begins a session";
    Authenticated "refreshSessions" => sessions::refresh, "keeps sessions open";
    Special "killSessions" => sessions::end, "ends sessions";
    Authenticated "commitTransaction" => sessions::without_transaction, "commits a transaction";
    Authenticated "abortTransaction" => sessions::without_transaction, "takes a transaction back";
    Write "insert" => writing::insert::insert, "inserts documents";
    Read "find" => reading::find::find, "finds documents";
    Special "getMore" => reading::find::get_more, "reads on from a cursor";
    Authenticated "killCursors" => reading::find::kill_cursors, "closes cursors";
    Write "update" => writing::update::update, "updates or replaces documents";
    Write "delete" => writing::delete::delete, "deletes documents";
    Write "findAndModify" => writing::find_and_modify::find_and_modify, "changes one document and returns it";
    Write "findandmodify" => writing::find_and_modify::find_and_modify, "changes one document and returns it";
    Read "count" => reading::count::count, "counts documents";
    Read "distinct" => reading::distinct::distinct, "distinct values of a field";
    Special "aggregate" => aggregate::aggregate, "runs a pipeline";
    Special "bulkWrite" => writing::bulk_write::bulk_write, "writes to several collections";
    Special "explain" => reading::explain::explain, "how a command is answered";
    Write "create" => catalog::collections::create, "creates a collection";
    Write "drop" => catalog::collections::drop, "drops a collection";
    WriteDatabase "dropDatabase" => catalog::collections::drop_database, "drops the collections of a database";
    Authenticated "listCollections" => catalog::collections::list_collections, "collections of a database";
    Authenticated "listDatabases" => catalog::collections::list_databases, "databases";
    Special "renameCollection" => catalog::rename_collection::rename_collection, "gives a collection another name";
    Write "collMod" => catalog::coll_mod::coll_mod, "changes options of a collection or an index";
    Write "convertToCapped" => catalog::coll_mod::convert_to_capped, "gives a collection a maximum size";
    Read "collStats" => catalog::collections::coll_stats, "size of a collection";
    ReadDatabase "dbStats" => catalog::collections::db_stats, "size of a database";
    Write "createIndexes" => index::indexes::create, "creates indexes";
    Read "listIndexes" => index::indexes::list, "indexes of a collection";
    Write "dropIndexes" => index::indexes::drop, "drops indexes";
    Write "reIndex" => administration::re_index, "indexes of a collection";
    Read "validate" => catalog::validate::validate, "checks documents and indexes of a collection";
    ReadDatabase "dbHash" => catalog::validate::db_hash, "hashes of the collections of a database";
    ReadDatabase "dbhash" => catalog::validate::db_hash, "hashes of the collections of a database";
    Authenticated "currentOp" => administration::current_op, "operations in progress";
    Authenticated "killOp" => administration::kill_op, "ends an operation";
    Administer "killAllSessions" => sessions::end, "ends sessions";
    ReadServer "top" => administration::top, "use of the collections";
    Administer "fsync" => administration::fsync, "writes to the disk";
    Administer "profile" => administration::profile, "level of the profiler";
    Authenticated "getDefaultRWConcern" => administration::get_default_rw_concern, "default concerns";
    Administer "setParameter" => administration::set_parameter, "changes a parameter";
    ReadServer "replSetGetStatus" => compatibility::repl_set_get_status, "members of the replica set";
    ReadServer "replSetGetConfig" => compatibility::repl_set_get_config, "definition of the replica set";
    Write "compact" => compatibility::compact, "frees space, which needs no command here";
    Special "dataSize" => compatibility::data_size, "size of a collection";
    Special "datasize" => compatibility::data_size, "size of a collection";
    Write "planCacheClear" => compatibility::plan_cache_clear, "forgets plans; none is kept";
    Read "planCacheListFilters" => compatibility::plan_cache_list_filters, "filters of plans; there are none";
    Administer "setFeatureCompatibilityVersion" => compatibility::set_feature_compatibility_version, "the version of the features";
    Administer "setDefaultRWConcern" => compatibility::set_default_rw_concern, "not available: the defaults stay";
    Administer "fsyncUnlock" => compatibility::fsync_unlock, "unlocks the server, which is never locked";
    ReadServer "connPoolStats" => compatibility::conn_pool_stats, "connections to other servers";
    Write "createSearchIndexes" => index::search_indexes::refuse, "not available: Atlas Search";
    Write "updateSearchIndex" => index::search_indexes::refuse, "not available: Atlas Search";
    Write "dropSearchIndex" => index::search_indexes::refuse, "not available: Atlas Search";
    Read "listSearchIndexes" => index::search_indexes::refuse, "not available: Atlas Search";
    Authenticated "usersInfo" => administration::users_info, "the users";
    Authenticated "rolesInfo" => administration::roles_info, "roles of users";
    Authenticated "createUser" => administration::change_users, "not available: `tidemill users` changes users";
    Authenticated "updateUser" => administration::change_users, "not available: `tidemill users` changes users";
    Authenticated "dropUser" => administration::change_users, "not available: `tidemill users` changes users";
    Authenticated "createRole" => administration::change_users, "not available: `tidemill users` grants roles";
    Authenticated "dropRole" => administration::change_users, "not available: `tidemill users` grants roles";
    Authenticated "grantRolesToUser" => administration::change_users, "not available: `tidemill users` changes users";
    Authenticated "revokeRolesFromUser" => administration::change_users, "not available: `tidemill users` changes users";
    Authenticated "listCommands" => list_commands, "the commands of this server";
    ReadServer "hostInfo" => diagnostics::host_info, "the machine";
    ReadServer "serverStatus" => diagnostics::server_status, "connections and cursors";
    Authenticated "getParameter" => diagnostics::get_parameter, "parameters of the server";
    ReadServer "getCmdLineOpts" => diagnostics::get_cmd_line_opts, "how the server was started";
    Administer "configureFailPoint" => diagnostics::configure_fail_point, "errors for tests of drivers";
    ReadServer "getLog" => diagnostics::get_log, "warnings of the start";
}

/// Names of commands that MongoDB has and this server does not support yet, to distinguish them from misspelt
/// ones.
const MISSING: &[&str] = &["mapReduce", "mapreduce", "applyOps", "analyze", "logRotate", "shutdown"];

/// Runs the command of a request.
pub(crate) fn run(
    server: &Arc<MongoServerState>,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    check_allowed(server, session, call)?;
    let client = session.principal.clone();
    let answer = &mut |shared: &Shared| match (answer(shared, session, call), shared.take_error_details()) {
        (Err(error), Some(details)) => WriteError { error, details }.reply(),
        (reply, _) => reply,
    };
    let started = server.profiler.begin();
    let reply = transactions::run(server, client.as_ref(), call, answer);
    if let (Ok(reply), Some(principal)) = (&reply, &session.principal)
        && call.name != "getMore"
        && cursor_of(reply) != 0
    {
        server.cursors.set_opener(cursor_of(reply), principal, rights::needs(call)?);
    }
    server.profiler.note(call, session, started, &reply);
    let unmet = match &reply {
        Ok(_) => writing::write_concern::unmet(call)?,
        // the error of the command counts more than one of its write concern
        Err(_) => writing::write_concern::unmet(call).ok().flatten(),
    };
    let Some(unmet) = unmet else { return reply };
    let mut reply = reply.unwrap_or_else(|error| error.reply());
    reply.append(cstr!("writeConcernError"), unmet);
    Ok(reply)
}

/// Refuses a command of a client that may not call it, or that says wrongly how it is to be called.
fn check_allowed(server: &MongoServerState, session: &mut Session, call: &Call<'_>) -> Result<()> {
    // the first command of a connection may come in a form that has no database
    if !call.has_database() && !matches!(call.name, "hello" | "isMaster" | "ismaster") {
        let message = "OP_MSG requests require a $db argument";
        return Err(CommandError { code: 40571, message: message.to_owned() });
    }
    api_version::check(call)?;
    session.renew(server.options.access.as_deref());
    if command_of(call)?.access == Access::Anyone {
        return Ok(());
    }
    let Some(principal) = &session.principal else {
        let message = format!("Command {} requires authentication", call.name);
        return Err(CommandError::new(Code::Unauthorized, message));
    };
    rights::check(server, principal, call)
}

/// Runs a command that was found and allowed, on a collection or a view.
fn answer(shared: &Shared, session: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    if let Some(reply) = catalog::system_collections::run(shared, session, call) {
        return reply;
    }
    // the most frequent query; a view has no documents of its own to be found by it
    if call.name == "find"
        && let Some(reply) = reading::find::find_by_id(shared, call)?
    {
        return Ok(reply);
    }
    if call.get("autocommit").is_some() {
        refuse_in_transaction(shared, call)?;
    } else if reads_snapshot(call)? && !matches!(call.name, "find" | "aggregate" | "distinct" | "getMore") {
        let message =
            format!("read concern `snapshot` is not supported by `{}` outside of a transaction", call.name);
        return Err(CommandError::new(Code::InvalidOptions, message));
    }
    index::hint::check(shared, call)?;
    if let Some(reply) = catalog::views::run(shared, session, call) {
        return reply;
    }
    if call.name == "aggregate" && call.flag("explain", false)? {
        return reading::explain::pipeline(shared, call);
    }
    (command_of(call)?.handler)(shared, session, call)
}

/// Returns whether a command asks for the documents of one moment.
fn reads_snapshot(call: &Call<'_>) -> Result<bool> {
    const LEVELS: [&str; 5] = ["local", "available", "majority", "linearizable", "snapshot"];
    let level = call.document("readConcern")?.map(|concern| concern.get("level")).transpose()?.flatten();
    match level {
        None => Ok(false),
        Some(RawBsonRef::String(level)) if LEVELS.contains(&level) => Ok(level == "snapshot"),
        Some(RawBsonRef::String(level)) => {
            let message = format!(
                "Enumeration value '{level}' for field 'readConcern.level' is not valid: expected one of {}",
                LEVELS.join(", ")
            );
            Err(CommandError::new(Code::BadValue, message))
        }
        Some(other) => Err(call.wrong_type("readConcern.level", other, "a string")),
    }
}

/// Refuses what a transaction cannot do, although it can do the same of another collection or with other stages.
fn refuse_in_transaction(shared: &Shared, call: &Call<'_>) -> Result<()> {
    let message = match call.name {
        "aggregate" if writing::write_concern::writes(call) => {
            "$out and $merge cannot be used in a transaction"
        }
        "createIndexes" if creates_indexes_of_others(shared, call)? => {
            "a transaction can create indexes of a collection that it has created only"
        }
        _ => return Ok(()),
    };
    Err(CommandError { code: 263, message: message.to_owned() })
}

/// Returns whether `createIndexes` would create one of a collection that the transaction has not created.
fn creates_indexes_of_others(shared: &Shared, call: &Call<'_>) -> Result<bool> {
    let collection = call.collection()?;
    match shared.engine.collection_spec(&collection) {
        Ok(spec) => Ok(!shared.engine.has_created(&collection) && !index::indexes::has_all(call, &spec)?),
        Err(_) => Ok(false),
    }
}

/// Returns the command that a client calls. Errors: the command is unknown.
fn command_of(call: &Call<'_>) -> Result<&'static Command> {
    COMMANDS.iter().find(|command| command.name == call.name).ok_or_else(|| {
        let missing = match MISSING.contains(&call.name) {
            true => " (MongoDB has it; this server does not have it yet)",
            false => "",
        };
        CommandError::new(Code::CommandNotFound, format!("no such command: '{}'{missing}", call.name))
    })
}

/// Runs a command that takes so little time that the thread of the connections may run it; `None` for another one.
pub(crate) fn run_quick(
    server: &Arc<MongoServerState>,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<Option<RawDocumentBuf>> {
    match call.name {
        "hello" | "ping" | "isMaster" | "ismaster" => run(server, session, call).map(Some),
        // a collection of the system has no name that a command could use elsewhere
        "find" if call.collection().is_ok() && reading::find::is_quick(call) => {
            check_allowed(server, session, call)?;
            let documents = Documents::present(server.whole_engine.clone(), None);
            if let Some(reply) = reading::find::find_by_id(&Shared::new(server.clone(), documents), call)? {
                return Ok(Some(reply));
            }
            // the pipeline of a view may take any time
            match server.whole_engine.view(&call.collection()?)? {
                None => run(server, session, call).map(Some),
                Some(_) => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

fn list_commands(_: &Shared, _: &mut Session, _: &Call<'_>) -> Result<RawDocumentBuf> {
    use bson::cstr;
    let mut commands = RawDocumentBuf::new();
    for command in COMMANDS {
        let mut one = RawDocumentBuf::new();
        one.append(cstr!("help"), command.help);
        one.append(cstr!("requiresAuth"), command.access != Access::Anyone);
        let name = bson::raw::CString::try_from(command.name.to_owned())?;
        commands.append(name, one);
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("commands"), commands);
    Ok(crate::wire::reply::ok(reply))
}
