//! What goes wrong between a truck and the store: points that are lost, late or nameless, and fields without a value.

use tidemill_bench_cep::random::Random;

/// Points lost, of 1,000.
const LOST: u64 = 100;
/// Points that arrive with the next tick, of 100,000.
const LATE: u64 = 5;
/// Points that do not say which truck sent them, of 10,000.
const NAMELESS: u64 = 11;
/// Points with one field without a value, of 1,000.
const INCOMPLETE: u64 = 90;

/// What becomes of one point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives.
    Arrives(Damage),
}

/// What is wrong with a point that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// It arrives with the next tick.
    pub late: bool,
    /// Its truck is not known.
    pub nameless: bool,
    /// The field without a value.
    pub null_field: Option<usize>,
}

/// Decides the fate of a point with `fields` fields.
pub fn fate(random: &mut Random, fields: u64) -> Fate {
    if random.chance(LOST, 1000) {
        return Fate::Lost;
    }
    let null_field = random.chance(INCOMPLETE, 1000).then(|| random.below(fields) as usize);
    let nameless = random.chance(NAMELESS, 10_000);
    Fate::Arrives(Damage { late: random.chance(LATE, 100_000), nameless, null_field })
}
