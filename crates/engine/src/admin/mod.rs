//! Work of operators: backups, growth into clusters, verification, trials of connections, explanations of the past.

pub mod backup;
pub mod connection_trial;
pub mod growth;
pub mod reevaluation;
pub mod verify;
