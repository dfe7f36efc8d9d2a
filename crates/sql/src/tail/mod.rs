//! `tail('events.readings')`: the new rows of a stream, as a result without an end.
//!
//! ```sql
//! SELECT device, speed FROM tail('readings') WHERE speed > 30;          -- from now on
//! SELECT * FROM tail('readings', '0-1042-7,1-388-0') LIMIT 100;         -- behind these rows
//! ```
//!
//! ```text
//!              batches as they are applied            reader
//! LiveRows ───────────────────────────────▶ steps ──▶ takes them, or is slow
//!     │ rows were left out for a slow reader  ▲
//!     └──▶ stored rows behind the positions ──┘ in chunks, partition by partition
//! ```
//!
//! A reader gets every row once, those of a partition in order. What waits for it is bounded: rows that do not fit are left out, and
//! read from the table when it has time for them. Such a statement has no limit of time and takes no place of others: it ends when it is
//! cancelled, when its reader goes, when its caller may not read the stream any more, when the server stops, and after `LIMIT` rows.
//!
//! A plan over such rows is a chain of filters, projections and limits, which are evaluated here batch by batch, so that a row waits for
//! no other. Everything else would wait for the end, and is refused.

mod follow;
mod function;
mod steps;

pub(crate) use follow::Follower;
pub(crate) use function::{TAIL, TailFunction};
pub(crate) use steps::{Steps, has_tail};

/// Returns whether a text may have a call of `tail`, so that it is worth a look at its plan.
pub(crate) fn is_mentioned(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.match_indices(TAIL).any(|(at, _)| {
        let behind = lower[at + TAIL.len()..].trim_start_matches(|c: char| c == '"' || c.is_whitespace());
        behind.starts_with('(')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_a_call_are_looked_at() {
        for text in ["SELECT * FROM tail('a')", "select TAIL ( 'a')", "select * from \"tail\" ('a')"] {
            assert!(is_mentioned(text), "{text}");
        }
        for text in ["SELECT tail FROM a", "SELECT details FROM b", "SELECT 'tail'"] {
            assert!(!is_mentioned(text), "{text}");
        }
    }
}
