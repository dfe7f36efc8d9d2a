//! Fragments and their replies as bytes.
//!
//! A fragment is a message of Protocol Buffers: the plan as DataFusion encodes it, whose leaf is a [`TabletScanMessage`], and what else the node
//! needs. DataFusion's encoding is that of one version, and so both nodes must have the same one.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use bytes::{Buf, BufMut, Bytes};
use datafusion::DATAFUSION_VERSION;
use datafusion::common::Result as PlanResult;
use datafusion::execution::{FunctionRegistry, SessionState, TaskContext};
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr_with_converter;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    DefaultPhysicalProtoConverter, PhysicalExtensionCodec, PhysicalPlanDecodeContext,
    PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf;
use object_store::path::Path;
use prost::Message;
use tidemill_types::ipc::{BatchEncoder, decode_batch};
use tidemill_types::{Error, Result};
use tidemill_zones::Checksums;

use super::scan::{ScanSpec, ScannedFile, TabletScanExec};
use crate::error::to_datafusion;
use crate::functions::{bounded, bounds_of};

/// Version of the messages here.
const FORMAT: u32 = 1;

/// A fragment, as it is sent.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FragmentMessage {
    /// [`versions`] of the sender.
    #[prost(string, tag = "1")]
    pub versions: String,
    /// Name of the node that got the statement.
    #[prost(string, tag = "2")]
    pub node: String,
    /// The statement, as much of it as is shown.
    #[prost(string, tag = "3")]
    pub statement: String,
    /// Rows of a batch.
    #[prost(uint64, tag = "4")]
    pub batch_rows: u64,
    /// Time that is left to the statement.
    #[prost(uint64, tag = "5")]
    pub time_left_ms: u64,
    /// The plan.
    #[prost(bytes = "bytes", tag = "6")]
    pub plan: Bytes,
}

/// The leaf of a plan.
#[derive(Clone, PartialEq, Message)]
struct TabletScanMessage {
    #[prost(message, optional, tag = "1")]
    schema: Option<protobuf::Schema>,
    /// False for all columns of the table.
    #[prost(bool, tag = "2")]
    has_projection: bool,
    #[prost(message, repeated, tag = "3")]
    projection: Vec<ColumnMessage>,
    #[prost(message, optional, tag = "4")]
    predicate: Option<protobuf::PhysicalExprNode>,
    #[prost(message, repeated, tag = "5")]
    files: Vec<FileMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ColumnMessage {
    #[prost(message, optional, tag = "1")]
    expr: Option<protobuf::PhysicalExprNode>,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct FileMessage {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(uint64, tag = "2")]
    size: u64,
    #[prost(string, optional, tag = "3")]
    checksums: Option<String>,
}

/// Returns what two nodes must have in common to exchange fragments.
pub(super) fn versions() -> String {
    format!("{} {FORMAT} {DATAFUSION_VERSION}", env!("CARGO_PKG_VERSION"))
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::invalid(format!("a fragment of a statement cannot be read: {what}"))
}

/// Encodes the plan of a fragment.
///
/// Errors: those of DataFusion, for operators and expressions that it cannot encode.
pub(super) fn encode_plan(plan: &Arc<dyn ExecutionPlan>) -> PlanResult<Bytes> {
    let converter = DefaultPhysicalProtoConverter {};
    let node = converter.execution_plan_to_proto(plan, &Codec { build: None, state: None })?;
    Ok(node.encode_to_vec().into())
}

/// Decodes the plan of a fragment; `build` makes the scan of its tablets.
///
/// Errors: `Invalid` for other bytes; those of DataFusion and of `build`.
pub(super) fn decode_plan(
    plan: &[u8],
    state: &SessionState,
    context: &TaskContext,
    build: impl Fn(ScanSpec, Vec<ScannedFile>) -> PlanResult<Arc<dyn ExecutionPlan>> + Send + Sync + 'static,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let node = protobuf::PhysicalPlanNode::decode(plan).map_err(|e| to_datafusion(malformed(e)))?;
    let codec = Codec { build: Some(Box::new(build)), state: Some(state.clone()) };
    DefaultPhysicalProtoConverter {}
        .proto_to_execution_plan(&node, &PhysicalPlanDecodeContext::new(context, &codec))
}

type BuildScan = dyn Fn(ScanSpec, Vec<ScannedFile>) -> PlanResult<Arc<dyn ExecutionPlan>> + Send + Sync;

/// Encoding of the parts that DataFusion leaves to us: the leaf, and functions with bounds. Other functions are those of the session, by name.
struct Codec {
    build: Option<Box<BuildScan>>,
    /// Functions of the session, for decoding.
    state: Option<SessionState>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> PlanResult<()> {
        let Some(TabletScanExec { spec, files, .. }) = node.downcast_ref::<TabletScanExec>() else {
            return Err(to_datafusion(malformed(format!("no message for {}", node.name()))));
        };
        let expr =
            |expr: &Arc<dyn PhysicalExpr>| serialize_physical_expr_with_converter(expr, self, converter);
        let column = |column: &ProjectionExpr| {
            Ok(ColumnMessage { expr: Some(expr(&column.expr)?), name: column.alias.clone() })
        };
        let columns = spec.projection.iter().flat_map(ProjectionExprs::iter).map(column);
        let file = |file: &ScannedFile| FileMessage {
            path: file.path.to_string(),
            size: file.size,
            checksums: file.checksums.as_ref().map(|sums| sums.to_text()),
        };
        let message = TabletScanMessage {
            schema: Some(spec.schema.as_ref().try_into()?),
            has_projection: spec.projection.is_some(),
            projection: columns.collect::<PlanResult<_>>()?,
            predicate: spec.predicate.as_ref().map(expr).transpose()?,
            files: files.iter().map(file).collect(),
        };
        message.encode(buffer).map_err(|e| to_datafusion(malformed(e)))
    }

    fn try_decode(
        &self,
        buffer: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let lacks = |what: &str| to_datafusion(malformed(format!("it has no {what}")));
        let message = TabletScanMessage::decode(buffer).map_err(|e| to_datafusion(malformed(e)))?;
        let schema = message.schema.as_ref().ok_or_else(|| lacks("schema"))?;
        let schema: SchemaRef = Arc::new(Schema::try_from(schema)?);
        let decoding = PhysicalPlanDecodeContext::new(context, self);
        let expr = |expr: &protobuf::PhysicalExprNode| {
            parse_physical_expr_with_converter(expr, &schema, &decoding, converter)
        };
        let column = |column: &ColumnMessage| {
            let found = column.expr.as_ref().ok_or_else(|| lacks("expression of a column"))?;
            Ok(ProjectionExpr::new(expr(found)?, column.name.clone()))
        };
        let columns = message.projection.iter().map(column).collect::<PlanResult<Vec<_>>>()?;
        let predicate = message.predicate.as_ref().map(expr).transpose()?;
        let file = |file: &FileMessage| {
            let sums = |text| Checksums::parse(text, file.size).map(Arc::new);
            let checksums = match file.checksums.as_deref() {
                Some(text) => Some(sums(text).ok_or_else(|| lacks("checksums of its files"))?),
                None => None,
            };
            let path = Path::parse(&file.path).map_err(|e| to_datafusion(malformed(e)))?;
            Ok(ScannedFile { path, size: file.size, checksums })
        };
        let files = message.files.iter().map(file).collect::<PlanResult<_>>()?;
        let projection = message.has_projection.then(|| ProjectionExprs::new(columns));
        let build = self.build.as_ref().ok_or_else(|| lacks("reader"))?;
        build(ScanSpec { schema, projection, predicate }, files)
    }

    fn try_encode_udf(&self, function: &ScalarUDF, buffer: &mut Vec<u8>) -> PlanResult<()> {
        if let Some((_, bytes_max)) = bounds_of(function) {
            buffer.put_u64_le(bytes_max as u64);
        }
        Ok(())
    }

    fn try_decode_udf(&self, name: &str, mut buffer: &[u8]) -> PlanResult<Arc<ScalarUDF>> {
        let state = self.state.as_ref().ok_or_else(|| to_datafusion(malformed("it has functions")))?;
        let inner = state.udf(name)?;
        let bytes_max = buffer.try_get_u64_le().map_err(|e| to_datafusion(malformed(e)))?;
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let function = bounded(inner, bytes_max);
        function.map(Arc::new).ok_or_else(|| to_datafusion(malformed(format!("`{name}` has no bound"))))
    }
}

/// A reply of a node.
#[derive(Debug, PartialEq)]
pub(super) enum FragmentReply {
    /// Rows.
    Rows(RecordBatch),
    /// There are no more: the node has sent this many. A stream that ends without it was cut off.
    End { rows: u64 },
}

const ROWS: u8 = 1;
const END: u8 = 2;

/// Encodes rows. Shape: `1 │ u32 length of the message, little-endian │ message │ buffers`, which Arrow IPC defines.
///
/// Errors: `Internal` for a batch that Arrow IPC does not have.
pub(super) fn encode_rows(encoder: &mut BatchEncoder, rows: &RecordBatch) -> Result<Bytes> {
    let encoded = encoder.encode(rows)?;
    let mut out = Vec::with_capacity(5 + encoded.message.len() + encoded.data.len());
    out.put_u8(ROWS);
    out.put_u32_le(encoded.message.len() as u32);
    out.extend(encoded.message);
    out.extend(encoded.data);
    Ok(out.into())
}

/// Encodes the end. Shape: `2 │ u64 rows, little-endian`.
pub(super) fn encode_end(rows: u64) -> Bytes {
    let mut out = vec![END];
    out.put_u64_le(rows);
    out.into()
}

/// Decodes a reply whose rows have `schema`.
///
/// Errors: `Corrupt` for other bytes.
pub(super) fn decode_reply(mut reply: Bytes, schema: &SchemaRef) -> Result<FragmentReply> {
    let other = || Error::corrupt("a reply to a fragment of a statement is damaged");
    match reply.try_get_u8().map_err(|_| other())? {
        ROWS => {
            let length = reply.try_get_u32_le().map_err(|_| other())? as usize;
            if length > reply.len() {
                return Err(other());
            }
            let message = reply.split_to(length);
            Ok(FragmentReply::Rows(decode_batch(&message, reply, schema.clone())?))
        }
        END if reply.len() == 8 => Ok(FragmentReply::End { rows: reply.get_u64_le() }),
        _ => Err(other()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};

    #[test]
    fn replies_come_back_and_damaged_ones_are_refused() {
        let columns: [(&str, arrow::array::ArrayRef); 2] = [
            ("n", Arc::new(Int64Array::from(vec![Some(1), None]))),
            ("t", Arc::new(StringArray::from(vec!["a", ""]))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let schema = rows.schema();
        let bytes = encode_rows(&mut BatchEncoder::default(), &rows).unwrap();
        assert_eq!(decode_reply(bytes.clone(), &schema).unwrap(), FragmentReply::Rows(rows));
        assert_eq!(decode_reply(encode_end(7), &schema).unwrap(), FragmentReply::End { rows: 7 });
        for cut in [0, 1, 4, 5, 20] {
            assert!(decode_reply(bytes.slice(..cut), &schema).is_err(), "{cut} bytes");
        }
        assert!(decode_reply(encode_end(7).slice(..5), &schema).is_err());
        assert!(decode_reply(Bytes::from_static(&[9, 9]), &schema).is_err());
    }
}
