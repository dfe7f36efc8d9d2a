//! All routes with their descriptions, and the replies to unknown routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use tidemill_types::{Error, ErrorKind};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::Modify;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::error::ApiError;
use crate::grpc::GrpcService;
use crate::guard::{auth, concurrency, host, observe, permissions};
use crate::openapi::description::{ApiDescription, SUGGEST_PATH_BYTES_MAX};
use crate::openapi::shared_errors;
use crate::routes::{
    backup, cluster, documents, events, find, influxql, line_protocol, otlp, remote_write, rules, set_aside,
    siddhi, sinks, sql, statements, system, tail,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidemill",
        description = "Events in, every one of them queryable, rules that act on them.\n\n\
            Every reply that is not a success has the body `{\"error\": {\"kind\", \"message\", \"retryable\"}}`; \
            replies with `Retry-After` may be sent again.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    tags(
        (name = "events", description = "Streams and the events sent to them"),
        (name = "sinks", description = "Events on their way to other systems, and those that were refused there"),
        (name = "line protocol", description = "InfluxDB's routes for writing: each line is an event of the stream that its measurement names"),
        (name = "influxql", description = "InfluxDB's route for queries: streams are measurements"),
        (name = "telemetry", description = "OpenTelemetry's logs, metrics and spans, and Prometheus' samples: each record is an event of the stream of its kind"),
        (name = "documents", description = "Collections of JSON documents, in MongoDB's relaxed Extended JSON"),
        (name = "sql", description = "Queries over everything"),
        (name = "queries", description = "SiddhiQL: what queries hold"),
        (name = "rules", description = "What rules did, and why"),
        (name = "system", description = "Health, metrics and this description"),
    ),
    components(schemas(events::DurabilityName)),
    servers(
        (url = "http://127.0.0.1:4700", description = "The default address"),
        (url = "/", description = "The server that gave this description"),
    ),
    security(("token" = [])),
    modifiers(&TokenScheme),
)]
struct Api;

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A token that `tidemill tokens new` made, or that of the first administrator, in the file `token` of the data \
                 directory",
            ))
            .build();
        api.components.get_or_insert_default().add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

fn documented_routes() -> OpenApiRouter<Arc<AppState>> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(system::index))
        .routes(routes!(system::livez))
        .routes(routes!(system::readyz))
        .routes(routes!(system::metrics))
        .routes(routes!(system::openapi))
        .routes(routes!(events::list))
        .routes(routes!(events::get, events::send))
        .routes(routes!(tail::tail))
        .routes(routes!(line_protocol::write_v1))
        .routes(routes!(line_protocol::write_v2))
        .routes(routes!(line_protocol::write_v3))
        .routes(routes!(influxql::get, influxql::post))
        .routes(routes!(line_protocol::health::ping))
        .routes(routes!(line_protocol::health::health))
        .routes(routes!(otlp::logs))
        .routes(routes!(otlp::metrics))
        .routes(routes!(otlp::traces))
        .routes(routes!(otlp::grpc::logs))
        .routes(routes!(otlp::grpc::metrics))
        .routes(routes!(otlp::grpc::traces))
        .routes(routes!(remote_write::write))
        .routes(routes!(sinks::list))
        .routes(routes!(sinks::undelivered))
        .routes(routes!(sinks::retry))
        .routes(routes!(sinks::discard))
        .routes(routes!(set_aside::list))
        .routes(routes!(set_aside::rerun))
        .routes(routes!(set_aside::forget))
        .routes(routes!(cluster::show))
        .routes(routes!(documents::collections))
        .routes(routes!(documents::insert))
        .routes(routes!(documents::get, documents::replace, documents::update, documents::delete))
        .routes(routes!(find::find))
        .routes(routes!(find::update))
        .routes(routes!(find::delete))
        .routes(routes!(sql::query))
        .routes(routes!(statements::list))
        .routes(routes!(statements::cancel))
        .routes(routes!(siddhi::query))
        .routes(routes!(siddhi::why))
        .routes(routes!(rules::list))
        .routes(routes!(rules::why_rule))
        .routes(routes!(rules::run))
        .routes(routes!(rules::why))
        .routes(routes!(backup::backup))
}

/// Returns the description of all routes.
pub(crate) fn openapi() -> utoipa::openapi::OpenApi {
    let mut api = documented_routes().into_openapi();
    shared_errors::add(&mut api);
    api
}

/// Returns the description of all routes.
pub(crate) fn describe() -> ApiDescription {
    ApiDescription::new(&openapi())
}

/// Creates the router with all middleware.
pub(crate) fn router(app: Arc<AppState>) -> Router {
    let (router, _) = documented_routes().split_for_parts();
    let panicking = app.clone();
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(app.clone(), concurrency::limit))
        .layer(from_fn_with_state(app.clone(), permissions::check))
        .layer(from_fn_with_state(app.clone(), auth::check))
        .layer(from_fn_with_state(app.clone(), host::check))
        .layer(CatchPanicLayer::custom(move |payload: Box<dyn std::any::Any + Send>| {
            panicking.panicked(&*payload).into_response()
        }))
        .layer(from_fn(line_protocol::errors::own_form))
        .layer(from_fn_with_state(app.clone(), observe::observe))
        // outside of the metrics: an error of gRPC has the status 200
        .layer(from_fn(otlp::errors::own_form))
        .with_state(app)
}

/// Creates the router of calls of gRPC, which have other errors and callers than the routes.
pub(crate) fn grpc_router(app: Arc<AppState>, service: Arc<dyn GrpcService>) -> Router {
    let panicking = app.clone();
    let mut router = Router::new();
    for path in service.paths() {
        let service = service.clone();
        let answer = move |request: Request| service.answer(request);
        router = router.route(path, any(answer));
    }
    router
        .layer(from_fn_with_state(app.clone(), host::check))
        .layer(CatchPanicLayer::custom(move |payload: Box<dyn std::any::Any + Send>| {
            panicking.panicked(&*payload).into_response()
        }))
        .layer(from_fn_with_state(app, observe::observe))
}

/// Conventional health paths that probes use, and their routes.
const ALIASES: [(&str, &str); 1] = [("/ready", "/readyz")];

/// Rewrites the path of a request to an alias into the route's own.
pub(crate) fn resolve_alias<B>(request: &mut axum::http::Request<B>) {
    let path = request.uri().path();
    let Some((_, route)) = ALIASES.iter().find(|(alias, _)| *alias == path) else {
        return;
    };
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(route));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

async fn no_route(State(app): State<Arc<AppState>>, request: Request) -> ApiError {
    let path = request.uri().path();
    let shown: String = path.chars().take(SUGGEST_PATH_BYTES_MAX).collect();
    let hint = match app.description.suggestion(path) {
        Some(near) => format!(". Did you mean `{near}`?"),
        None => ". All routes: /api/v1/openapi.json".to_owned(),
    };
    Error::not_found(format!("no route `{shown}`{hint}")).into()
}

async fn no_method(State(app): State<Arc<AppState>>, request: Request) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|m| m.as_str().to_owned()).unwrap_or_default();
    let allowed: Vec<&str> = app.description.methods(&route).iter().map(Method::as_str).collect();
    let allowed = allowed.join(", ");
    let mut error = ApiError::with_status(
        StatusCode::METHOD_NOT_ALLOWED,
        ErrorKind::Invalid,
        format!("method {} on `{route}`: expected {allowed}", request.method()),
    );
    if let Ok(value) = HeaderValue::from_str(&allowed) {
        error = error.with_header(header::ALLOW, value);
    }
    error.into_response()
}
