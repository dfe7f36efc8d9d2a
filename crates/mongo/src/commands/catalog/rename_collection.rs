//! `renameCollection`.

use bson::raw::RawDocumentBuf;
use tidemill_docs::DocumentCommand;

use crate::commands::writing::write;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::namespace::stored_name;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

pub(in crate::commands) fn rename_collection(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["to", "dropTarget", "stayTemp"])?;
    if call.database != "admin" {
        let message = "renameCollection may only be run against the admin database.";
        return Err(CommandError::new(Code::Unauthorized, message));
    }
    let from = stored(call, call.name)?;
    let to = stored(call, "to")?;
    if shared.engine.collection_spec(&from).is_err() {
        let message = format!("Source collection {} does not exist", text(call, call.name)?);
        return Err(CommandError::new(Code::NamespaceNotFound, message));
    }
    let drop_target = call.flag("dropTarget", false)?;
    if shared.engine.collection_spec(&to).is_ok() && from != to && !drop_target {
        return Err(CommandError::new(Code::NamespaceExists, "target namespace exists"));
    }
    let command = DocumentCommand::Rename { collection: from, to, drop_target };
    shared.engine.write_documents(command, write::durability(call)?)?;
    Ok(ok(RawDocumentBuf::new()))
}

fn text<'r>(call: &Call<'r>, field: &str) -> Result<&'r str> {
    call.text(field)?.ok_or_else(|| {
        let message = format!("BSON field '{}.{field}' is missing but a required field", call.name);
        CommandError::new(Code::MissingField, message)
    })
}

/// Returns the name in the store of a full name, `database.collection`.
fn stored(call: &Call<'_>, field: &str) -> Result<String> {
    let name = text(call, field)?;
    let Some((database, collection)) = name.split_once('.') else {
        let message = format!("Invalid namespace specified '{name}': expected `database.collection`");
        return Err(CommandError::new(Code::InvalidNamespace, message));
    };
    stored_name(database, collection)
}
