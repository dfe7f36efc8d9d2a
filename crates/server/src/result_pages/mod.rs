//! Statements that wait until the next page of their rows is asked for, by its token.
//!
//! A token is of one page, one caller and one start of the server, and is in force for ten minutes. What became of it afterwards is
//! remembered for as long, so that the answer can say it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures::FutureExt;
use parking_lot::Mutex;
use tidemill_access::Principal;
use tidemill_database::{Format, PageStream};
use tidemill_gateway::Clock;
use tidemill_types::{Error, ErrorKind};

use crate::error::ApiError;

/// Maximum statements with pages, and of one caller.
const STATEMENTS_MAX: usize = 64;
const STATEMENTS_MAX_CALLER: usize = 8;
/// Time for which a token is in force.
const LIFETIME: Duration = Duration::from_secs(600);
/// Maximum tokens that are remembered after their end.
const ENDED_MAX: usize = 1_024;

/// Token of a page.
type Token = [u8; 16];

/// A statement whose next page can be asked for.
pub(crate) struct KeptPages {
    pub pages: Box<dyn PageStream>,
    pub format: Format,
    pub columns: Option<HeaderValue>,
    /// Number of the statement.
    pub statement: u64,
    /// Caller, with its rights when the statement began.
    pub principal: Principal,
    pub _place: PagePlace,
}

/// Statements with pages, by the tokens of their next pages.
pub(crate) struct PageStore {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

#[derive(Default)]
struct State {
    kept: HashMap<Token, (KeptPages, Instant)>,
    /// Statements of each caller, those included whose page is being made.
    places: HashMap<String, usize>,
    ended: VecDeque<EndedToken>,
}

struct EndedToken {
    token: Token,
    caller: String,
    /// Time until which it is remembered.
    until: Instant,
    reason: EndReason,
}

#[derive(Clone)]
enum EndReason {
    Taken,
    Expired,
    /// The statement was ended, with this error.
    Statement(String),
}

/// Place of a statement with pages, free again when it is dropped.
pub(crate) struct PagePlace {
    state: Arc<Mutex<State>>,
    caller: String,
}

impl Drop for PagePlace {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(count) = state.places.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                state.places.remove(&self.caller);
            }
        }
    }
}

impl State {
    fn end(&mut self, token: Token, caller: String, until: Instant, reason: EndReason) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(EndedToken { token, caller, until, reason });
    }

    /// Takes out tokens whose time is over, and those of statements that were ended. They are to be dropped without the lock.
    fn sweep(&mut self, now: Instant) -> Vec<KeptPages> {
        self.ended.retain(|ended| ended.until > now);
        let is_over = |(pages, end): &(KeptPages, Instant)| *end <= now || pages.pages.has_ended();
        let over: Vec<Token> =
            self.kept.iter().filter(|(_, kept)| is_over(kept)).map(|(token, _)| *token).collect();
        let mut taken = Vec::with_capacity(over.len());
        for token in over {
            let Some((mut kept, end)) = self.kept.remove(&token) else { continue };
            let reason = match end <= now {
                true => EndReason::Expired,
                // its error is there at once
                false => EndReason::Statement(match kept.pages.next_page().now_or_never() {
                    Some(Err(error)) => error.to_string(),
                    _ => format!("statement {} was ended before this page was taken", kept.statement),
                }),
            };
            self.end(token, kept.principal.caller(), now + LIFETIME, reason);
            taken.push(kept);
        }
        taken
    }
}

impl PageStore {
    pub fn new(clock: Clock) -> Self {
        Self { state: Arc::default(), clock }
    }

    /// Takes a place for a statement of a caller.
    ///
    /// Errors: 429 when the caller has too many, or all have.
    pub fn place(&self, principal: &Principal) -> Result<PagePlace, ApiError> {
        self.tick();
        let caller = principal.caller();
        let mut state = self.state.lock();
        let all: usize = state.places.values().sum();
        let own = state.places.get(&caller).copied().unwrap_or(0);
        let refused = |found: String| {
            Error::limit(format!(
                "{found} wait for their next page, which is the limit: take their pages to the end, or end one with \
                 KILL QUERY and the number in the header Tidemill-Statement. After {} minutes they end by themselves",
                LIFETIME.as_secs() / 60
            ))
        };
        if own >= STATEMENTS_MAX_CALLER {
            return Err(refused(format!("{own} statements of `{caller}`")).into());
        }
        if all >= STATEMENTS_MAX {
            return Err(refused(format!("{all} statements of all users")).into());
        }
        *state.places.entry(caller.clone()).or_default() += 1;
        Ok(PagePlace { state: self.state.clone(), caller })
    }

    /// Keeps a statement, and returns the token of its next page.
    pub fn keep(&self, pages: KeptPages) -> String {
        let token: Token = rand::random();
        let end = (self.clock)() + LIFETIME;
        self.state.lock().kept.insert(token, (pages, end));
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }

    /// Takes the statement whose next page has this token.
    ///
    /// Errors: 404 for a token that the server does not know, or that is of another caller; 410 for one that was used, whose time is over, or
    /// whose caller has other rights now; 409 when the statement was ended meanwhile.
    pub fn take(&self, token: &str, principal: &Principal) -> Result<KeptPages, ApiError> {
        let caller = principal.caller();
        let unknown = || {
            Error::not_found(format!(
                "no page has this token for `{caller}`: the server has been started anew since, the token is of another user, or it is not \
                 one. Send the query again with page_rows"
            ))
        };
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).map_err(|_| unknown())?;
        let token: Token = bytes.try_into().map_err(|_| unknown())?;
        self.tick();
        let now = (self.clock)();
        let mut state = self.state.lock();
        let is_own = |kept: &KeptPages| kept.principal.caller() == caller;
        if state.kept.get(&token).is_some_and(|(kept, _)| is_own(kept)) {
            let Some((kept, _)) = state.kept.remove(&token) else { return Err(unknown().into()) };
            state.end(token, caller.clone(), now + LIFETIME, EndReason::Taken);
            drop(state);
            return match kept.principal.grants() == principal.grants() {
                true => Ok(kept),
                false => Err(gone(format!(
                    "the rights of `{caller}` have changed since the statement began: send the query again with page_rows"
                ))),
            };
        }
        let ended = state.ended.iter().find(|ended| ended.token == token && ended.caller == caller);
        Err(match ended.map(|ended| ended.reason.clone()) {
            None => unknown().into(),
            Some(EndReason::Taken) => gone(
                "the page of this token was taken: each is sent once, and the token of the one behind it is in its header \
                 Tidemill-Next-Page. If it is lost, send the query again with page_rows",
            ),
            Some(EndReason::Expired) => gone(format!(
                "the page of this token was to be asked for within {} minutes, and that time is over: send the query again with page_rows",
                LIFETIME.as_secs() / 60
            )),
            Some(EndReason::Statement(message)) => Error::conflict(message).into(),
        })
    }

    /// Ends statements whose time is over.
    pub fn tick(&self) {
        let now = (self.clock)();
        let over = self.state.lock().sweep(now);
        drop(over);
    }

    /// Ends all statements.
    pub fn clear(&self) {
        let kept = std::mem::take(&mut self.state.lock().kept);
        drop(kept);
    }
}

fn gone(message: impl Into<String>) -> ApiError {
    ApiError::with_status(StatusCode::GONE, ErrorKind::NotFound, message)
}
