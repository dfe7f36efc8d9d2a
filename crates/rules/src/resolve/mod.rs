//! Resolver: turns syntax trees into a program by resolving names, checking types and deciding locality.

mod action;
pub(crate) mod aggregate;
mod codes;
mod declare;
mod emit_loops;
mod expr;
mod locality;
mod names;
mod rule;

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::ast::{Item, Module};
use tidemill_types::StreamSchema;

use crate::aggregate::Aggregate;
use crate::catalog::RuleCatalog;
use crate::plan::RulePlan;

/// The resolved files of an app. Only meaningful if no errors were reported.
pub(crate) struct ResolvedApp {
    pub catalog: RuleCatalog,
    pub rules: Vec<RulePlan>,
    pub aggregates: Vec<Aggregate>,
}

/// Returns the streams that the files of an app declare.
pub(crate) fn declared_streams(modules: &[Module]) -> Vec<Arc<StreamSchema>> {
    declare::declare(modules, &[], &mut DiagnosticSink::default()).streams
}

/// Resolves all files of an app as one. `given`: streams that may be declared elsewhere.
pub(crate) fn resolve(
    modules: &[Module],
    given: &[Arc<StreamSchema>],
    sink: &mut DiagnosticSink,
) -> ResolvedApp {
    let catalog = declare::declare(modules, given, sink);
    let mut resolved = ResolvedApp { catalog, rules: Vec::new(), aggregates: Vec::new() };
    let mut names = HashSet::new();
    for item in modules.iter().flat_map(|m| &m.items) {
        let known = &resolved.catalog;
        match item {
            Item::Rule(decl) if names.insert(&decl.name.name) => {
                let rule = rule::rule(decl, known, sink);
                resolved.rules.extend(rule);
            }
            Item::Aggregate(decl) if names.insert(&decl.name.name) => {
                let aggregate = aggregate::aggregate(decl, known, sink);
                resolved.aggregates.extend(aggregate);
            }
            _ => {}
        }
    }
    emit_loops::warn(&resolved.rules, &resolved.catalog, sink);
    resolved
}
