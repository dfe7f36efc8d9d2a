//! First bytes of entries.

pub const EVENTS: u8 = 1;
pub const COMMAND: u8 = 2;
pub const PUT: u8 = 3;
pub const TICK: u8 = 4;
pub const FORWARDED: u8 = 5;
pub const ON_DEMAND: u8 = 6;
pub const TRANSACTION: u8 = 7;
pub const SESSION_COMMAND: u8 = 8;
pub const COLLECT_CHANGES: u8 = 9;
pub const REDELIVER: u8 = 10;
pub const ORDERED_INSERT: u8 = 11;
pub const RERUN: u8 = 12;
pub const CLAIM_SOURCES: u8 = 13;
pub const DELIVERED: u8 = 14;
pub const ORDER_TRANSACTION: u8 = 15;
pub const ORDERED_TRANSACTION: u8 = 16;

/// In the place of the provenance of events that have none: the node that appended them asks for their outcome.
pub const ANSWERED: u8 = 2;

/// In the place of the provenance of events that follow from others: it is there, and how many led to them follows it.
pub const FOLLOWING: u8 = 3;
