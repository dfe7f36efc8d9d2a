//! Rows that a client takes page by page: `page_rows=N`, then `page=TOKEN` until a reply has no token.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use std::num::NonZeroUsize;
use tidemill_database::{Format, PagedReply, QueryRequest};
use tidemill_types::Error;
use tokio::time::{Instant, timeout_at};

use super::{COLUMNS, columns_header, too_long};
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::result_pages::KeptPages;

/// Header with the token of the next page. The last page has none.
const NEXT_PAGE: HeaderName = HeaderName::from_static("tidemill-next-page");
/// Header with the number of the statement.
const STATEMENT: HeaderName = HeaderName::from_static("tidemill-statement");

/// Starts a statement and replies with its first page.
pub(super) async fn first(
    call: &RequestContext,
    request: QueryRequest,
    format: Format,
    page_rows: NonZeroUsize,
) -> Result<Response, ApiError> {
    let place = call.app.pages.place(&call.principal)?;
    let deadline = Instant::now() + call.app.options.query_timeout;
    let started = timeout_at(deadline, call.app.database.query_paged(request, format, page_rows)).await;
    let PagedReply { columns, statement, pages } =
        started.map_err(|_| Error::unavailable(too_long(call)))??;
    let columns = columns_header(&columns);
    let kept =
        KeptPages { pages, format, columns, statement, principal: call.principal.clone(), _place: place };
    reply(call, kept, deadline).await
}

/// Replies with the page of a token.
pub(super) async fn next(call: &RequestContext, token: &str) -> Result<Response, ApiError> {
    let kept = call.app.pages.take(token, &call.principal)?;
    reply(call, kept, Instant::now() + call.app.options.query_timeout).await
}

/// Makes the next page, and keeps the statement if others follow.
async fn reply(call: &RequestContext, mut kept: KeptPages, deadline: Instant) -> Result<Response, ApiError> {
    let page = timeout_at(deadline, kept.pages.next_page()).await;
    let page = page.map_err(|_| Error::unavailable(too_long(call)))??;
    let mut response = Response::new(Body::from(page.pieces.concat()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kept.format.content_type()));
    headers.insert(STATEMENT, HeaderValue::from(kept.statement));
    if let Some(columns) = &kept.columns {
        headers.insert(COLUMNS, columns.clone());
    }
    if !page.is_last {
        let token = HeaderValue::try_from(call.app.pages.keep(kept));
        let token = token.map_err(|e| Error::internal("a token does not fit a header").with_source(e))?;
        headers.insert(NEXT_PAGE, token);
    }
    Ok(response)
}
