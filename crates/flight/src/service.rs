//! The calls of Flight: the caller and the message of each, and what answers it.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, BasicAuth, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, Result as ActionResult, SchemaResult, Ticket,
};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use crate::error::{Result, unsupported};
use crate::login::Password;
use crate::shared::{Caller, ServerState};
use crate::{actions, flights, put};

/// Answers calls whose caller is known.
#[derive(Clone)]
pub(crate) struct Calls {
    state: Arc<ServerState>,
}

impl Calls {
    pub fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }
}

/// Returns the caller, who was found before the message was read.
fn caller<T>(request: &Request<T>) -> Result<Caller> {
    request
        .extensions()
        .get::<Caller>()
        .cloned()
        .ok_or_else(|| Status::unauthenticated("the caller is not known"))
}

#[tonic::async_trait]
impl FlightService for Calls {
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo>>;
    type DoGetStream = BoxStream<'static, Result<FlightData>>;
    type DoPutStream = BoxStream<'static, Result<PutResult>>;
    type DoActionStream = BoxStream<'static, Result<ActionResult>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType>>;
    type DoExchangeStream = BoxStream<'static, Result<FlightData>>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>> {
        let (metadata, _, mut messages) = request.into_parts();
        let headers = metadata.into_headers();
        // clients that show their password in the headers send no message, or one that is empty
        let password = match headers.contains_key(http::header::AUTHORIZATION) {
            true => None,
            false => messages.message().await?.and_then(|message| BasicAuth::decode(message.payload).ok()),
        };
        let password = password.filter(|shown| !shown.username.is_empty());
        let password = password.map(|BasicAuth { username, password }| Password { user: username, password });
        let token = self.state.login.handshake(&headers, password).await?;
        let bearer = MetadataValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Status::internal("the token of a session cannot be sent"))?;
        let reply = HandshakeResponse { protocol_version: 0, payload: token.into() };
        let mut response = Response::new(stream::iter([Ok(reply)]).boxed());
        response.metadata_mut().insert("authorization", bearer);
        Ok(response)
    }

    async fn list_flights(&self, request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>> {
        caller(&request)?;
        Err(unsupported("flights are not listed: ask for tables by CommandGetTables"))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>> {
        let caller = caller(&request)?;
        flights::info(&self.state, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>> {
        let caller = caller(&request)?;
        // a statement runs when its rows are asked for, so there is nothing to wait for
        let info = flights::info(&self.state, &caller, request.into_inner()).await?;
        Ok(Response::new(PollInfo {
            info: Some(info),
            flight_descriptor: None,
            progress: Some(1.0),
            expiration_time: None,
        }))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>> {
        let caller = caller(&request)?;
        let schema = flights::schema(&self.state, &caller, request.into_inner()).await?;
        Ok(Response::new(SchemaResult { schema }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>> {
        let caller = caller(&request)?;
        let ticket = request.into_inner().ticket;
        flights::get(&self.state, &caller, &ticket).await.map(Response::new)
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>> {
        let caller = caller(&request)?;
        put::put(&self.state, &caller, request.into_inner()).await.map(Response::new)
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>> {
        let caller = caller(&request)?;
        let (metadata, _, action) = request.into_parts();
        let result = actions::act(&self.state, &caller, &metadata.into_headers(), &action).await?;
        let result = result.map(|body| Ok(ActionResult { body }));
        Ok(Response::new(stream::iter(result).boxed()))
    }

    async fn list_actions(&self, request: Request<Empty>) -> Result<Response<Self::ListActionsStream>> {
        caller(&request)?;
        Ok(Response::new(stream::iter(actions::list().map(Ok)).boxed()))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>> {
        caller(&request)?;
        Err(unsupported("DoExchange is not supported: read by DoGet, and write by DoPut"))
    }
}
