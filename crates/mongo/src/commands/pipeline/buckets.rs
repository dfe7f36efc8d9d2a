//! `$bucket` and `$bucketAuto`.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, RawBson, cstr};
use tidemill_docs::{Collation, DocBytes, Expression, HeldMemory, Key, Variables, value_bytes};
use tidemill_types::budget;

use super::flow::Receiver;
use super::group::GroupStage;
use super::{known, option};
use crate::error::{Code, CommandError, Result};
use crate::fields::whole_number;

/// Returns the `$group` that a `$bucket` stands for: its `_id` is the lower boundary of the value.
pub(super) fn grouping(options: &RawDocument, variables: &Variables) -> Result<RawDocumentBuf> {
    known("$bucket", options, &["groupBy", "boundaries", "default", "output"])?;
    let by = option("$bucket", options, "groupBy")?;
    let RawBsonRef::Array(boundaries) = option("$bucket", options, "boundaries")? else {
        return Err(CommandError {
            code: 40200,
            message: "the boundaries of $bucket must be an array".into(),
        });
    };
    let boundaries: Vec<RawBsonRef<'_>> = boundaries.into_iter().collect::<Result<_, _>>()?;
    if boundaries.len() < 2 {
        return Err(CommandError { code: 40192, message: "$bucket needs at least 2 boundaries".into() });
    }
    let keys: Vec<Key> = boundaries
        .iter()
        .map(|b| Ok(Key::of_bson_by(&Bson::try_from(*b)?, variables.collation.as_ref())?))
        .collect::<Result<_>>()?;
    if keys.windows(2).any(|pair| pair[0] >= pair[1]) {
        let message = "the boundaries of $bucket must be in ascending order".into();
        return Err(CommandError { code: 40194, message });
    }
    let mut branches = RawArrayBuf::new();
    for pair in boundaries.windows(2) {
        let bound = |name: &str, value: RawBsonRef<'_>| -> Result<RawDocumentBuf> {
            let mut literal = RawDocumentBuf::new();
            literal.append(cstr!("$literal"), value);
            let mut operands = RawArrayBuf::new();
            operands.push(by);
            operands.push(literal);
            let mut comparison = RawDocumentBuf::new();
            comparison.append(bson::raw::CString::try_from(name.to_owned())?, operands);
            Ok(comparison)
        };
        let mut both = RawArrayBuf::new();
        both.push(bound("$gte", pair[0])?);
        both.push(bound("$lt", pair[1])?);
        let mut branch = RawDocumentBuf::new();
        branch.append(cstr!("case"), bson::rawdoc! { "$and": RawBson::Array(both) });
        let mut then = RawDocumentBuf::new();
        then.append(cstr!("$literal"), pair[0]);
        branch.append(cstr!("then"), then);
        branches.push(branch);
    }
    let mut switch = RawDocumentBuf::new();
    switch.append(cstr!("branches"), branches);
    if let Some(default) = options.get("default")? {
        let mut literal = RawDocumentBuf::new();
        literal.append(cstr!("$literal"), default);
        switch.append(cstr!("default"), literal);
    }
    let mut group = RawDocumentBuf::new();
    group.append(cstr!("_id"), bson::rawdoc! { "$switch": switch });
    append_output(&mut group, options)?;
    Ok(group)
}

/// Appends the accumulators of `output`; by default the number of documents.
fn append_output(group: &mut RawDocumentBuf, options: &RawDocument) -> Result<()> {
    match options.get("output")? {
        Some(RawBsonRef::Document(output)) => {
            for field in output {
                let (name, value) = field?;
                group.append(name, value);
            }
        }
        Some(_) => return Err(CommandError { code: 40196, message: "`output` must be an object".into() }),
        None => group.append(cstr!("count"), bson::rawdoc! { "$sum": 1 }),
    }
    Ok(())
}

/// `$bucketAuto`
pub(in crate::commands) struct BucketAuto {
    by: Expression,
    buckets: usize,
    output: GroupStage,
    collation: Option<Collation>,
}

impl BucketAuto {
    pub fn parse(options: &RawDocument, variables: &Variables) -> Result<Self> {
        known("$bucketAuto", options, &["groupBy", "buckets", "output", "granularity"])?;
        if options.get("granularity")?.is_some() {
            return Err(CommandError::not_supported("the option `granularity` of $bucketAuto"));
        }
        let buckets = whole_number(option("$bucketAuto", options, "buckets")?);
        let buckets = buckets.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let buckets = buckets.ok_or_else(|| {
            CommandError::new(Code::BadValue, "`buckets` of $bucketAuto must be a whole number above 0")
        })?;
        let mut group = RawDocumentBuf::new();
        group.append(cstr!("_id"), RawBson::Null);
        append_output(&mut group, options)?;
        Ok(Self {
            by: Expression::parse_with(option("$bucketAuto", options, "groupBy")?, variables)?,
            buckets,
            output: GroupStage::parse(&group, variables)?,
            collation: variables.collation.clone(),
        })
    }

    /// Passes on a document for each bucket.
    pub(super) fn apply(&self, documents: Vec<DocBytes>, next: &mut dyn Receiver) -> Result<()> {
        let mut ordered = Vec::with_capacity(documents.len());
        let mut held = HeldMemory::default();
        for document in documents {
            budget::step()?;
            let value = self.by.eval(RawDocument::from_bytes(&document)?)?.unwrap_or(Bson::Null);
            let key = Key::of_bson_by(&value, self.collation.as_ref())?;
            held.add(size_of::<Key>() + key.heap_bytes() + value_bytes(&value))?;
            ordered.push((key, value, document));
        }
        ordered.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        let mut rest = ordered.as_slice();
        let mut left = self.buckets;
        while !rest.is_empty() {
            let mut size = rest.len().div_ceil(left.max(1)).max(1);
            // equal values belong to one bucket
            while size < rest.len() && (left <= 1 || rest[size].0 == rest[size - 1].0) {
                size += 1;
            }
            let (bucket, after) = rest.split_at(size);
            let most = after.first().or(bucket.last()).map_or(&Bson::Null, |(_, value, _)| value);
            let least = bucket.first().map_or(&Bson::Null, |(_, value, _)| value);
            let mut id = RawDocumentBuf::new();
            id.append(cstr!("min"), RawBson::try_from(least.clone())?);
            id.append(cstr!("max"), RawBson::try_from(most.clone())?);
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("_id"), id);
            let documents: Vec<DocBytes> = bucket.iter().map(|(.., document)| document.clone()).collect();
            self.output.append_results(&documents, &mut document)?;
            if next.push(tidemill_docs::validate(document.into_bytes())?)?.is_break() {
                return Ok(());
            }
            rest = after;
            left = left.saturating_sub(1);
        }
        Ok(())
    }
}
