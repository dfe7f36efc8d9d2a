//! Integration tests: text cases, and the properties that cases cannot show.

mod cases;
mod compare;
mod distributed;
mod documents;
mod exact;
mod fixture;
mod flips;
mod history;
mod hostile;
mod hot;
mod limits;
mod moment;
mod origins;
mod output;
mod pages;
mod parameters;
mod pruning;
mod rights;
mod statements;
mod wide;
mod years;
mod zones;
