//! Search for inputs that a decoder does not survive, for examples such as `fuzz_messages` of `tidemill-postgres`.
//!
//! ```no_run
//! use tidemill_fuzzing::{InputBounds, ByteChanges, StdRng, Target};
//!
//! struct Numbers(ByteChanges);
//!
//! impl Target for Numbers {
//!     fn next(&mut self, number: u64, random: &mut StdRng) -> Vec<u8> {
//!         self.0.next(number, random)
//!     }
//!
//!     fn receive(&mut self, input: &[u8]) -> String {
//!         format!("{:?}", std::str::from_utf8(input).map(str::parse::<f64>))
//!     }
//! }
//!
//! tidemill_fuzzing::main(InputBounds::default(), || {
//!     Numbers(ByteChanges::new(vec![b"-1.5e3".to_vec()], &[b"e", b"inf"]))
//! });
//! ```
//!
//! The program then takes `--seconds 600`, `--seed N` and `--replay HEX`. Inputs run in a child process, so that a stack overflow
//! is a finding and not the end of the search:
//!
//! ```text
//! parent ── seed ──▶ child: next ──▶ input, also in a file ──▶ receive ── panic, end, too much time or memory
//!   ▲                                                                        │
//!   └──────────── prints the input of the file, starts the next child ◀──────┘
//! ```
//!
//! The allocator of a program that uses the crate counts what is allocated.

mod changes;
mod memory;
mod search;

pub use changes::ByteChanges;
pub use rand::rngs::StdRng;
pub use search::{InputBounds, Target, main};
