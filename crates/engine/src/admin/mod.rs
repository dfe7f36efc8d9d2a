//! Work of operators: backups, verification, trials of connections, explanations of the past.

pub mod backup;
pub mod connection_trial;
pub mod reevaluation;
pub mod verify;
