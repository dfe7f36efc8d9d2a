//! `validate` and `dbHash`: whether documents and indexes are as they should be, and whether two databases are equal.

use bson::cstr;
use bson::raw::{CString, RawArrayBuf, RawDocumentBuf};
use bson::rawdoc;
use sha2::{Digest, Sha256};
use tidemill_docs::DocBytes;
use tidemill_types::budget;

use crate::commands::catalog::collections::{no_collection, of_database};
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::namespace::split_stored_name;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

pub(in crate::commands) fn validate(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["full", "repair", "metadata", "checkBSONConformance", "background", "scandata"])?;
    call.refuse("repair")?;
    if call.flag("full", false)? && call.flag("background", false)? {
        let message =
            "Running the validate command with both { background: true } and { full: true } is not supported";
        return Err(CommandError::new(Code::InvalidOptions, message));
    }
    let stored = call.collection()?;
    let spec = shared.engine.collection_spec(&stored).map_err(|_| no_collection(call))?;
    let mut errors = RawArrayBuf::new();
    let mut contradictions = 0;
    let (mut documents, mut invalid) = (0_i64, 0_i64);
    let mut keys = vec![0_i64; spec.indexes.len()];
    shared.engine.read_collection(&stored, |collection| {
        for document in collection.iter() {
            budget::step()?;
            documents += 1;
            if let Err(error) = tidemill_docs::validate(document.clone()) {
                invalid += 1;
                errors.push(error.message());
            }
        }
        for (count, index) in keys.iter_mut().zip(&spec.indexes) {
            *count = count.saturating_add_unsigned(collection.index_entries(&index.name).unwrap_or(0));
        }
        contradictions += collection.contradictions();
        for wrong in collection.check_indexes() {
            errors.push(wrong.as_str());
        }
        Ok(())
    })?;
    let mut keys_per_index = rawdoc! { "_id_": documents };
    for (count, index) in keys.iter().zip(&spec.indexes) {
        keys_per_index.append(CString::try_from(index.name.clone())?, *count);
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("ns"), call.namespace());
    reply.append(cstr!("nInvalidDocuments"), invalid);
    reply.append(cstr!("nrecords"), documents);
    reply.append(cstr!("nIndexes"), spec.indexes.len() as i32 + 1);
    reply.append(cstr!("keysPerIndex"), keys_per_index);
    reply.append(cstr!("valid"), errors.is_empty());
    reply.append(cstr!("repaired"), false);
    let mut warnings = RawArrayBuf::new();
    if contradictions > 0 {
        warnings.push(
            format!("{contradictions} documents of the entity have an _id that is not the value of its key")
                .as_str(),
        );
    }
    reply.append(cstr!("warnings"), warnings);
    reply.append(cstr!("errors"), errors);
    Ok(ok(reply))
}

/// Returns for each collection that the client may read a hash of its documents in the order of their bytes.
pub(in crate::commands) fn db_hash(
    shared: &Shared,
    session: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["collections"])?;
    let wanted: Option<Vec<String>> = match call.get("collections") {
        Some(bson::RawBsonRef::Array(names)) => {
            let mut wanted = Vec::new();
            for name in names {
                wanted.extend(name?.as_str().map(str::to_owned));
            }
            Some(wanted).filter(|wanted| !wanted.is_empty())
        }
        _ => None,
    };
    let mut collections = RawDocumentBuf::new();
    let (mut all, mut capped) = (Sha256::new(), RawArrayBuf::new());
    for info in of_database(shared, call.database)? {
        let name = split_stored_name(&info.name).1;
        let is_wanted = wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|one| one == name));
        if !is_wanted || !session.can_read(&info.name) {
            continue;
        }
        let parts = shared.engine.read_collection(&info.name, |collection| Ok(collection.documents()));
        // dropped since the names were read
        let Ok(parts) = parts else { continue };
        let mut documents: Vec<DocBytes> = parts.into_iter().flatten().collect();
        documents.sort_unstable();
        if shared.engine.collection_spec(&info.name).is_ok_and(|spec| spec.options.capped.is_some()) {
            capped.push(name);
        }
        let mut hasher = Sha256::new();
        for document in &documents {
            budget::step()?;
            hasher.update(document);
        }
        let hash = hex(&hasher.finalize());
        all.update(name.as_bytes());
        all.update([0]);
        all.update(hash.as_bytes());
        collections.append(CString::try_from(name.to_owned())?, hash);
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("host"), "");
    reply.append(cstr!("collections"), collections);
    reply.append(cstr!("capped"), capped);
    reply.append(cstr!("md5"), hex(&all.finalize()));
    Ok(ok(reply))
}

/// Formats the first 16 bytes, as many as MongoDB's hash has.
fn hex(hash: &[u8]) -> String {
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
