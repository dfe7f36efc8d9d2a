//! Generated description of the API, and what replies to unknown routes say with it.

use std::collections::BTreeMap;

use axum::http::Method;
use bytes::Bytes;
use tidemill_types::nearest;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::PathItem;

/// Maximum length of a path for which a suggestion is made, in bytes.
pub(crate) const SUGGEST_PATH_BYTES_MAX: usize = 200;

/// Generated description of the API.
pub(crate) struct ApiDescription {
    /// Contents of `openapi.json`.
    pub json: Bytes,
    /// Methods of each route template.
    routes: BTreeMap<String, Vec<Method>>,
}

impl ApiDescription {
    pub fn new(api: &OpenApi) -> Self {
        let json = api.to_json().expect("the description is plain data");
        let routes = api.paths.paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect();
        Self { json: json.into(), routes }
    }

    /// Returns the existing path that is closest to `path`.
    pub fn suggestion(&self, path: &str) -> Option<String> {
        if path.len() > SUGGEST_PATH_BYTES_MAX {
            return None;
        }
        let filled: Vec<String> = self.routes.keys().map(|template| fill(template, path)).collect();
        nearest(path, filled.iter().map(String::as_str)).map(str::to_owned)
    }

    /// Returns the methods of a route template; none for an unknown one.
    pub fn methods(&self, route: &str) -> &[Method] {
        self.routes.get(route).map_or(&[], Vec::as_slice)
    }
}

fn methods(item: &PathItem) -> Vec<Method> {
    let declared = [
        (Method::GET, item.get.is_some()),
        (Method::HEAD, item.get.is_some()),
        (Method::POST, item.post.is_some()),
        (Method::PUT, item.put.is_some()),
        (Method::PATCH, item.patch.is_some()),
        (Method::DELETE, item.delete.is_some()),
    ];
    declared.into_iter().filter(|(_, there)| *there).map(|(method, _)| method).collect()
}

/// Fills the template's parameters with the segments at their positions in `path`.
fn fill(template: &str, path: &str) -> String {
    let mut given = path.split('/');
    let segments = template.split('/').map(|segment| {
        let found = given.next();
        if segment.starts_with('{') { found.filter(|s| !s.is_empty()).unwrap_or(segment) } else { segment }
    });
    segments.collect::<Vec<_>>().join("/")
}
