//! From syntax trees to a program: names resolved, types checked, locality decided.

mod action;
pub(crate) mod aggregate;
mod codes;
mod declare;
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
use crate::catalog::Catalog;
use crate::plan::RulePlan;

/// What the files of an app say. It means something only when nothing was wrong.
pub(crate) struct ResolvedApp {
    pub catalog: Catalog,
    pub rules: Vec<RulePlan>,
    pub aggregates: Vec<Aggregate>,
}

/// The streams that the files of an app declare.
pub(crate) fn declared_streams(modules: &[Module]) -> Vec<Arc<StreamSchema>> {
    declare::declare(modules, &[], &mut DiagnosticSink::default()).streams
}

/// Resolves all files of an app together. `given`: streams that may be declared elsewhere.
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
    resolved
}
