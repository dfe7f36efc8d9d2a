//! Lines of a request as events of their streams.

use tidemill_access::{Action, Principal, Resource};
use tidemill_engine::{Durability, Engine, SendOptions};
use tidemill_mappers::line_protocol::{LineDecoder, LineOptions, Precision};
use tidemill_types::{BadRow, Error, ErrorKind, Result};

use super::declarations::Declarations;

/// Maximum bytes of the name of a measurement.
const MEASUREMENT_BYTES_MAX: usize = 1024;

/// Settings of a request.
#[derive(Debug, Clone)]
pub(crate) struct StoreOptions {
    pub precision: Precision,
    /// True if good lines are stored when others are refused.
    pub accepts_partial: bool,
    /// Durability before the reply; default: the engine's setting.
    pub durability: Option<Durability>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { precision: Precision::default(), accepts_partial: true, durability: None }
    }
}

/// Outcome of the lines of a request.
pub(crate) struct LinesOutcome {
    /// Lines that are stored.
    pub stored: u64,
    /// Lines that are not, in order.
    pub refused: Vec<BadRow>,
    /// True if nothing was stored because other lines were refused.
    pub is_withdrawn: bool,
}

/// Stores the lines of a body.
///
/// Errors: `Forbidden` when the caller may write to none of the streams; those of [`Engine::send_rows`].
pub(crate) fn store_lines(
    engine: &Engine,
    principal: &Principal,
    body: &[u8],
    options: &StoreOptions,
) -> Result<LinesOutcome> {
    let (mut unknown, mut forbidden) = (vec![], None);
    let lookup = |name: &str| {
        if name.len() > MEASUREMENT_BYTES_MAX {
            return Err(format!("the name of the measurement has more than {MEASUREMENT_BYTES_MAX} bytes"));
        }
        // asked before the stream is looked for, so that the answer does not say whether there is one
        principal.may(Action::Write, &Resource::stream(name)).map_err(|e| {
            let reason = e.to_string();
            forbidden.get_or_insert(e);
            reason
        })?;
        engine.stream_schema(name).cloned().map_err(|e| {
            unknown.push(name.to_owned());
            let error = if principal.can_everywhere(Action::Read) { e } else { e.without_hint() };
            format!("measurement `{name}`: {error}")
        })
    };
    let line_options = LineOptions {
        precision: options.precision,
        fills_time: true,
        keeps_mismatches: true,
        ..LineOptions::default()
    };
    let mut decoder = LineDecoder::new(line_options, lookup);
    decoder.push_body(body, engine.now());
    let mut rows = decoder.finish();
    drop(decoder);
    if let Some(error) = forbidden
        && rows.rows.is_empty()
        && unknown.is_empty()
        && rows.rejected.iter().all(|bad| bad.stream.is_none())
    {
        return Err(Error::new(ErrorKind::Forbidden, error.message().to_owned()));
    }
    let mut refused = rows.rejected.clone();
    Declarations::of(unknown).add_to(&mut refused);
    let is_withdrawn = !options.accepts_partial && !refused.is_empty();
    if is_withdrawn {
        rows.rows = Default::default();
    }
    let send =
        SendOptions { durability: options.durability, wait: false, origin: crate::routes::ORIGIN.to_owned() };
    let reply = engine.send_rows(rows, &send)?;
    Ok(LinesOutcome { stored: reply.accepted, refused, is_withdrawn })
}
