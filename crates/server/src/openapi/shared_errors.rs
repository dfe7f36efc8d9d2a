//! Error replies that many operations share, added to the API description in one place.

use utoipa::PartialSchema;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Ref;
use utoipa::openapi::{ContentBuilder, OpenApi, Response, ResponseBuilder};

use crate::guard::concurrency;
use crate::paths::api_version::ApiVersion;
use crate::paths::telemetry_path;

/// Operations to which a shared error reply applies.
#[derive(Clone, Copy)]
enum AppliesTo {
    All,
    /// Operations that need the token.
    Guarded,
    /// Operations that the concurrency limit covers.
    Counted,
    /// Operations with a request body.
    WithBody,
}

/// Status, operations to which it applies, and description.
const SHARED: [(&str, AppliesTo, &str); 10] = [
    ("400", AppliesTo::WithBody, "The request is wrong"),
    ("401", AppliesTo::Guarded, "No token, or a wrong one"),
    ("403", AppliesTo::Guarded, "The caller lacks the right; the message has the command that grants it"),
    ("408", AppliesTo::WithBody, "The body did not arrive in time: send it again"),
    ("413", AppliesTo::WithBody, "The body is too large: send it in parts"),
    ("415", AppliesTo::WithBody, "Not a content type, charset or content encoding that is read"),
    (
        "421",
        AppliesTo::All,
        "A loopback address was asked under the name of another machine, or by a page from elsewhere",
    ),
    ("429", AppliesTo::Counted, "Too much at one time: send it again after `Retry-After` seconds"),
    ("500", AppliesTo::All, "Stored bytes are damaged, or a defect: the server's log says more"),
    (
        "503",
        AppliesTo::Counted,
        "Shutting down, or no answer in time: send it again after `Retry-After` seconds",
    ),
];

/// Adds the shared error replies; those that an operation declares itself take precedence.
pub(crate) fn add(api: &mut OpenApi) {
    for (path, item) in &mut api.paths.paths {
        let methods = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in methods.into_iter().flatten() {
            for (status, of, description) in SHARED {
                if applies(path, operation, of) {
                    let responses = &mut operation.responses.responses;
                    responses.entry(status.to_owned()).or_insert_with(|| refusal(path, description).into());
                }
            }
        }
    }
}

fn applies(path: &str, operation: &Operation, of: AppliesTo) -> bool {
    match of {
        AppliesTo::All => true,
        // an operation without its own security has that of the whole API
        AppliesTo::Guarded => operation.security.is_none(),
        AppliesTo::Counted => concurrency::is_counted(path),
        AppliesTo::WithBody => operation.request_body.is_some(),
    }
}

fn refusal(path: &str, description: &str) -> Response {
    let is_otlp = telemetry_path::http_signal(path).is_some();
    let other = if is_otlp { "OtlpStatus" } else { "ErrorBody" };
    let schema = ApiVersion::of_path(path).map_or(other, ApiVersion::schema_name);
    if path == telemetry_path::REMOTE_WRITE {
        let text = ContentBuilder::new().schema(Some(String::schema())).build();
        return ResponseBuilder::new().description(description).content("text/plain", text).build();
    }
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}
