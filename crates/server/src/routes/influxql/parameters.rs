//! Parameters of a query, in the address or in a form.

use axum::extract::Query;
use axum::http::{HeaderMap, Uri};
use serde::Deserialize;
use tidemill_influxql::{BoundValues, Epoch, InfluxStatement, ReplyFormat, parameters, parse};
use utoipa::{IntoParams, ToSchema};

use crate::error::ApiError;
use crate::negotiate;

/// Rows of a chunk without `chunk_size`.
const CHUNK_ROWS_DEFAULT: usize = 10_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InfluxqlParams {
    /// Statements, separated by `;`.
    q: Option<String>,
    /// Unit of times in the reply: `ns`, `u`, `ms`, `s`, `m`, `h`; RFC 3339 without it.
    epoch: Option<String>,
    /// Values of `$name` in the statements, as a JSON object.
    #[serde(rename = "params")]
    bound: Option<String>,
    /// `true` sends the reply in several JSON texts of `chunk_size` rows.
    chunked: Option<String>,
    /// Maximum number of rows of a chunk, default 10000.
    chunk_size: Option<String>,
    /// `true` writes JSON in lines.
    pretty: Option<String>,
    /// Has no effect: there is one database.
    db: Option<String>,
    /// Has no effect.
    rp: Option<String>,
    /// Has no effect.
    u: Option<String>,
    /// Token, where no header has it.
    p: Option<String>,
}

/// Parameters as a form.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "describes the form")]
pub(crate) struct InfluxqlForm {
    /// Statements, separated by `;`.
    #[schema(example = "SHOW MEASUREMENTS")]
    q: String,
}

/// A query that can be executed.
pub(super) struct InfluxqlRequest {
    pub statements: Vec<InfluxStatement>,
    pub format: ReplyFormat,
    /// Rows of a chunk; `None` for one reply.
    pub chunk_rows: Option<usize>,
}

impl InfluxqlParams {
    /// Reads the parameters of an address and of a form, which takes precedence.
    ///
    /// Errors: unknown names, so that typos are reported instead of ignored.
    pub fn read(address: &str, form: &str) -> Result<Self, ApiError> {
        let (address, form) = (Self::of(address)?, Self::of(form)?);
        Ok(Self {
            q: form.q.or(address.q),
            epoch: form.epoch.or(address.epoch),
            bound: form.bound.or(address.bound),
            chunked: form.chunked.or(address.chunked),
            chunk_size: form.chunk_size.or(address.chunk_size),
            pretty: form.pretty.or(address.pretty),
            db: form.db.or(address.db),
            rp: form.rp.or(address.rp),
            u: form.u.or(address.u),
            p: form.p.or(address.p),
        })
    }

    fn of(form: &str) -> Result<Self, ApiError> {
        let uri = Uri::builder().path_and_query(format!("/?{}", form.trim())).build();
        let uri = uri.map_err(|_| {
            ApiError::invalid(
                "the parameters are not percent-encoded: expected for example `q=SHOW%20MEASUREMENTS`",
            )
        })?;
        let parsed: Result<Query<Self>, _> = Query::try_from_uri(&uri);
        parsed.map(|Query(found)| found).map_err(|e| {
            let text = e.body_text();
            let reason = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            ApiError::invalid(reason.to_owned())
        })
    }

    /// Returns the parameters with other statements.
    pub fn with_text(self, text: &str) -> Self {
        Self { q: Some(text.to_owned()), ..self }
    }

    /// Parses the statements and the form of the reply.
    ///
    /// Errors: the place of what is wrong in the statements; values that a parameter does not take.
    pub fn request(&self, headers: &HeaderMap) -> Result<InfluxqlRequest, ApiError> {
        let text = self.q.as_deref().filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| ApiError::invalid("missing required parameter \"q\""))?;
        let bound = match self.bound.as_deref().filter(|text| !text.trim().is_empty()) {
            Some(json) => parameters(json).map_err(|e| ApiError::invalid(e.to_string()))?,
            None => BoundValues::new(),
        };
        let statements =
            parse(text, &bound).map_err(|e| ApiError::invalid(format!("error parsing query: {e}")))?;
        let epoch = self.epoch.as_deref().unwrap_or_default();
        let epoch = Epoch::of(epoch).ok_or_else(|| {
            ApiError::invalid(format!("epoch `{epoch}`: expected one of ns, u, ms, s, m, h"))
        })?;
        let format = ReplyFormat {
            epoch,
            is_csv: negotiate::is_csv(headers),
            is_pretty: flag("pretty", self.pretty.as_deref())?,
        };
        let chunk_rows = match (flag("chunked", self.chunked.as_deref())?, self.chunk_size.as_deref()) {
            (false, _) => None,
            (true, None | Some("")) => Some(CHUNK_ROWS_DEFAULT),
            (true, Some(size)) => {
                let rows = size.parse().ok().filter(|rows| *rows > 0);
                Some(rows.ok_or_else(|| {
                    ApiError::invalid(format!("chunk_size `{size}`: expected a number of rows above 0"))
                })?)
            }
        };
        Ok(InfluxqlRequest { statements, format, chunk_rows })
    }
}

fn flag(name: &str, value: Option<&str>) -> Result<bool, ApiError> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        Some("true" | "1" | "t") => Ok(true),
        None | Some("" | "false" | "0" | "f") => Ok(false),
        Some(other) => Err(ApiError::invalid(format!("{name} `{other}`: expected true or false"))),
    }
}
