//! Messages of MCP, and the table of tools.

use std::borrow::Cow;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::schemars::JsonSchema;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use tidemill_access::Principal;
use tidemill_database::Database;
use tidemill_types::{Error, Result, did_you_mean};

use crate::arguments::{
    BacktestArguments, ExplainArguments, NoArguments, PlanArguments, SqlArguments, WhyArguments,
};
use crate::engine::McpEngine;
use crate::errors::tool_error;
use crate::options::McpOptions;
use crate::tools::{apps, catalog, sql, why};

const INSTRUCTIONS: &str = "Tidemill keeps every event of its streams, and runs rules and queries on them. Begin with list_streams; ask \
    with sql, where the events of the stream S are the table events.\"S\" with the time column _time. why explains what a rule did with \
    an event. backtest shows what changed queries would have emitted. No tool changes anything.";

/// Engine, database, limits and caller of a tool.
#[derive(Clone)]
pub(crate) struct ToolContext {
    pub engine: Arc<dyn McpEngine>,
    pub database: Arc<dyn Database>,
    pub options: Arc<McpOptions>,
    /// Caller, with all of its rights.
    pub principal: Principal,
}

type Run = fn(ToolContext, Json) -> BoxFuture<'static, Result<String>>;

/// A tool: its description, and what it runs.
struct ToolEntry {
    name: &'static str,
    description: &'static str,
    schema: fn() -> Arc<Map<String, Json>>,
    run: Run,
}

/// Returns the entry of a tool whose arguments are `A`.
macro_rules! tool {
    ($name:literal, $arguments:ty, $run:path, $description:literal) => {
        ToolEntry {
            name: $name,
            description: $description,
            schema: schema_of::<$arguments>,
            run: |context, arguments| {
                async move { $run(context, arguments_of::<$arguments>($name, arguments)?).await }.boxed()
            },
        }
    };
}

const TOOLS: [ToolEntry; 7] = [
    tool!(
        "list_streams",
        NoArguments,
        catalog::list_streams,
        "Lists the streams that the caller may read: fields with types, key, id, time field, and the number of stored events."
    ),
    tool!(
        "list_rules",
        NoArguments,
        catalog::list_rules,
        "Lists the rules, and the queries of *.siddhi files, that the caller may read: what they look at, how often they fired or emitted, and their last error."
    ),
    tool!(
        "sql",
        SqlArguments,
        sql::query,
        "Runs one SQL statement that reads, and returns its columns and rows. Tables: events.\"STREAM\", docs.\"COLLECTION\", system.*; information_schema.columns lists them. Answers have at most max_rows rows."
    ),
    tool!(
        "plan",
        PlanArguments,
        sql::plan,
        "Shows how a SELECT would be run, without running it: operators, filters, and which files of events are read."
    ),
    tool!(
        "why",
        WhyArguments,
        why::why,
        "Explains why a rule fired for an event, or why not; or why a query of a *.siddhi file emits nothing."
    ),
    tool!(
        "explain",
        ExplainArguments,
        apps::explain,
        "Shows where the queries of the deployed app run, why, and what they keep; or with `files` those of a changed app, whose errors it reports."
    ),
    tool!(
        "backtest",
        BacktestArguments,
        apps::backtest,
        "Runs the deployed queries and changed ones over stored events, and shows which events come out differently. Nothing is deployed or written. Rules do not run."
    ),
];

fn schema_of<A: JsonSchema + 'static>() -> Arc<Map<String, Json>> {
    schema_for_type::<A>()
}

/// Reads the arguments of a tool.
///
/// Errors: `Invalid` with the argument that is missing, unknown, or of another type.
fn arguments_of<A: DeserializeOwned>(tool: &str, arguments: Json) -> Result<A> {
    serde_json::from_value(arguments).map_err(|e| Error::invalid(format!("arguments of `{tool}`: {e}")))
}

impl ToolEntry {
    fn described(&self) -> Tool {
        let annotations = ToolAnnotations::new().read_only(true).open_world(false);
        Tool::new(self.name, self.description, (self.schema)()).with_annotations(annotations)
    }

    fn named(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }
}

/// Handler of the messages of one request.
#[derive(Clone)]
pub(crate) struct Handler {
    engine: Arc<dyn McpEngine>,
    database: Arc<dyn Database>,
    options: Arc<McpOptions>,
}

impl Handler {
    pub fn new(engine: Arc<dyn McpEngine>, database: Arc<dyn Database>, options: McpOptions) -> Self {
        Self { engine, database, options: Arc::new(options) }
    }

    /// Returns what a tool needs for the caller of a request.
    fn context(&self, request: &RequestContext<RoleServer>) -> Result<ToolContext, ErrorData> {
        let parts = request.extensions.get::<Parts>();
        let principal = parts.and_then(|parts| parts.extensions.get::<Principal>()).cloned();
        let principal =
            principal.ok_or_else(|| ErrorData::internal_error("the request has no caller", None))?;
        let (engine, database, options) = (self.engine.clone(), self.database.clone(), self.options.clone());
        Ok(ToolContext { engine, database, options, principal })
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("tidemill", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        ToolEntry::named(name).map(ToolEntry::described)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.iter().map(ToolEntry::described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let CallToolRequestParams { name, arguments, .. } = request;
        let tool = ToolEntry::named(&name).ok_or_else(|| {
            let hint = did_you_mean(&name, TOOLS.iter().map(|tool| tool.name));
            let message = format!("no tool `{name}`{hint}. tools/list lists them");
            ErrorData::invalid_params(Cow::Owned(message), None)
        })?;
        let of_tool = self.context(&context)?;
        // hints have the names of all objects
        let knows_names = of_tool.principal.can_everywhere(tidemill_access::Action::Read);
        let limit = self.options.tool_timeout;
        let work =
            tokio::time::timeout(limit, (tool.run)(of_tool, Json::Object(arguments.unwrap_or_default())));
        let done = tokio::select! {
            done = work => done,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the request was cancelled", None)),
        };
        let result = done.unwrap_or_else(|_| {
            Err(Error::limit(format!("`{name}` took longer than {limit:?}: ask for less, or a shorter time")))
        });
        Ok(match result {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(error) if knows_names => tool_error(&error),
            Err(error) => tool_error(&error.without_hint()),
        }
        .into())
    }
}
