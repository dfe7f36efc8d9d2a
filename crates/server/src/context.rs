//! Context of a request, as handlers get it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tidemill_access::{Action, Principal};
use tidemill_types::Result;

use crate::Engine;
use crate::app::AppState;
use crate::error::ApiError;
use crate::guard::concurrency::RequestPermit;

/// Context of a request: the shared state, the caller, and the request's permit.
pub(crate) struct RequestContext {
    pub app: Arc<AppState>,
    /// The caller; one without rights on a path that needs no token.
    pub principal: Principal,
    pub permit: Option<RequestPermit>,
}

impl RequestContext {
    /// Calls the engine on a blocking thread, within the request timeout.
    pub async fn engine<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.engine_within(self.app.options.request_timeout, ask).await
    }

    /// Calls the engine on a blocking thread, within `timeout`. Errors do not name objects that the caller may not see.
    pub async fn engine_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        ask: impl FnOnce(&Engine) -> Result<T> + Send + 'static,
    ) -> Result<T, ApiError> {
        // hints have the names of all objects
        let knows_names = self.principal.can_everywhere(Action::Read);
        let ask = move |app: &AppState| match ask(&app.engine) {
            Err(error) if !knows_names => Err(error.without_hint()),
            answer => answer,
        };
        self.app.blocking(self.permit.clone(), timeout, ask).await
    }
}

impl FromRequestParts<Arc<AppState>> for RequestContext {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<AppState>) -> Result<Self, Self::Rejection> {
        let principal = parts.extensions.get::<Principal>().cloned();
        Ok(Self {
            app: app.clone(),
            principal: principal.unwrap_or_else(|| Principal::user("anonymous", vec![])),
            permit: parts.extensions.get::<RequestPermit>().cloned(),
        })
    }
}
