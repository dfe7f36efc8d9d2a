//! Authorization: what each route needs, in one table.
//!
//! A route that is not in the table is for administrators. Lists are open to every caller, and show what the caller may read.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use tidemill_access::{Action, Principal, Resource};

use crate::app::AppState;
use crate::error::ApiError;

/// Right that a caller needs for a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the route has no data.
    Nothing,
    /// A token. The handler shows what the caller may read, or checks what the body names.
    Token,
    /// A right on an object.
    Right(Action, Object),
}

/// Object of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Object {
    Server,
    AllRules,
    /// Objects whose name is in the path.
    Stream,
    Collection,
    Rule,
    Query,
}

use Action::{Administer, Author, Read, Write};
use Need::{Nothing, Right, Token};
use Object::{AllRules, Collection, Query, Rule, Server, Stream};

/// Needs by route.
pub(crate) const NEEDS: [(Method, &str, Need); 50] = [
    (Method::GET, "/", Nothing),
    (Method::GET, "/livez", Nothing),
    (Method::GET, "/readyz", Nothing),
    (Method::GET, "/ping", Nothing),
    (Method::GET, "/health", Nothing),
    (Method::GET, "/metrics", Right(Read, Server)),
    (Method::GET, "/api/v1/openapi.json", Token),
    (Method::GET, "/api/v1/streams", Token),
    (Method::GET, "/api/v1/streams/{stream}", Right(Read, Stream)),
    (Method::POST, "/api/v1/streams/{stream}", Right(Write, Stream)),
    (Method::GET, "/api/v1/streams/{stream}/tail", Right(Read, Stream)),
    // the streams that the lines name are checked one by one
    (Method::POST, "/write", Token),
    (Method::POST, "/api/v2/write", Token),
    (Method::POST, "/api/v3/write_lp", Token),
    // a stream that the caller may not read does not exist for its statements
    (Method::GET, "/query", Token),
    (Method::POST, "/query", Token),
    // and so are those of the kinds of telemetry
    (Method::POST, "/v1/logs", Token),
    (Method::POST, "/v1/metrics", Token),
    (Method::POST, "/v1/traces", Token),
    (Method::POST, "/opentelemetry.proto.collector.logs.v1.LogsService/Export", Token),
    (Method::POST, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", Token),
    (Method::POST, "/opentelemetry.proto.collector.trace.v1.TraceService/Export", Token),
    (Method::POST, "/api/v1/write", Token),
    (Method::GET, "/api/v1/sinks", Token),
    (Method::GET, "/api/v1/undelivered", Token),
    (Method::POST, "/api/v1/undelivered/retry", Right(Author, Server)),
    (Method::POST, "/api/v1/undelivered/discard", Right(Author, Server)),
    (Method::GET, "/api/v1/cluster", Right(Read, Server)),
    (Method::GET, "/api/v1/set-aside", Right(Author, Server)),
    (Method::POST, "/api/v1/set-aside/rerun", Right(Author, Server)),
    (Method::POST, "/api/v1/set-aside/forget", Right(Author, Server)),
    (Method::GET, "/api/v1/collections", Token),
    (Method::POST, "/api/v1/collections/{collection}/documents", Right(Write, Collection)),
    (Method::GET, "/api/v1/collections/{collection}/documents/{id}", Right(Read, Collection)),
    (Method::PUT, "/api/v1/collections/{collection}/documents/{id}", Right(Write, Collection)),
    (Method::PATCH, "/api/v1/collections/{collection}/documents/{id}", Right(Write, Collection)),
    (Method::DELETE, "/api/v1/collections/{collection}/documents/{id}", Right(Write, Collection)),
    (Method::POST, "/api/v1/collections/{collection}/find", Right(Read, Collection)),
    (Method::POST, "/api/v1/collections/{collection}/update", Right(Write, Collection)),
    (Method::POST, "/api/v1/collections/{collection}/delete", Right(Write, Collection)),
    // the tables that a statement names are resolved among those that the caller may read
    (Method::POST, "/api/v1/sql", Token),
    (Method::GET, "/api/v1/statements", Token),
    (Method::DELETE, "/api/v1/statements/{id}", Token),
    (Method::POST, "/api/v1/siddhi/query", Token),
    (Method::GET, "/api/v1/queries/{query}/why", Right(Read, Query)),
    (Method::GET, "/api/v1/rules", Token),
    (Method::GET, "/api/v1/rules/{rule}/why", Right(Read, Rule)),
    (Method::POST, "/api/v1/rules/{rule}/run", Right(Author, Rule)),
    (Method::GET, "/api/v1/why", Right(Read, AllRules)),
    (Method::POST, "/api/v1/backup", Right(Administer, Server)),
];

/// Refuses a request whose caller lacks the right that its route needs.
///
/// The check comes before the handler looks for the object, so that the answer does not say whether there is one.
pub(crate) async fn check(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let Some(route) = request.extensions().get::<MatchedPath>().cloned() else {
        // the reply to an unknown path depends on no data
        return Ok(next.run(request).await);
    };
    let method = if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    if !app.description.methods(route.as_str()).contains(&method) {
        // the reply says which methods there are
        return Ok(next.run(request).await);
    }
    let (mut parts, body) = request.into_parts();
    let known = NEEDS.iter().find(|(known, path, _)| *known == method && *path == route.as_str());
    if let Right(action, object) = known.map_or(Right(Administer, Server), |(.., need)| *need) {
        let principal = parts.extensions.get::<Principal>().cloned();
        let principal = principal.ok_or_else(|| ApiError::unauthorized("no token"))?;
        let params = RawPathParams::from_request_parts(&mut parts, &()).await;
        let params = params.map_err(|e| {
            ApiError::invalid(format!("path {}: Invalid URL: {}", parts.uri.path(), e.body_text()))
        })?;
        principal.may(action, &resource(object, &params))?;
    }
    Ok(next.run(Request::from_parts(parts, body)).await)
}

/// Returns the object that a path names.
fn resource(object: Object, params: &RawPathParams) -> Resource<'_> {
    let named = |wanted: &str| params.iter().find(|(name, _)| *name == wanted).map_or("", |(_, value)| value);
    match object {
        Server => Resource::SERVER,
        AllRules => Resource::all_rules(),
        Stream => Resource::stream(named("stream")),
        Collection => Resource::collection(named("collection")),
        Rule => Resource::rule(named("rule")),
        Query => Resource::query(named("query")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_says_what_it_needs() {
        let api = crate::router::openapi();
        let mut described: Vec<(String, Method)> = vec![];
        for (path, item) in &api.paths.paths {
            for (method, operation) in [
                (Method::GET, &item.get),
                (Method::POST, &item.post),
                (Method::PUT, &item.put),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ] {
                described.extend(operation.as_ref().map(|_| (path.clone(), method)));
            }
        }
        let mut known: Vec<(String, Method)> =
            NEEDS.iter().map(|(method, path, _)| ((*path).to_owned(), method.clone())).collect();
        let sort = |routes: &mut Vec<(String, Method)>| {
            routes.sort_by(|a, b| (&a.0, a.1.as_str()).cmp(&(&b.0, b.1.as_str())));
        };
        sort(&mut described);
        sort(&mut known);
        assert_eq!(known, described);
    }

    #[test]
    fn a_path_has_the_name_of_its_object() {
        for (_, path, need) in NEEDS {
            let name = match need {
                Right(_, Stream) => "{stream}",
                Right(_, Collection) => "{collection}",
                Right(_, Rule) => "{rule}",
                Right(_, Query) => "{query}",
                _ => continue,
            };
            assert!(path.contains(name), "{path}");
        }
    }
}
