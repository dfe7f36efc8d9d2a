//! The compiled rules of an app.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tidemill_docs::CollectionSpec;
use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::parse;
use tidemill_lang::{Diagnostic, Severity, Sources, Span, render_all};
use tidemill_types::StreamSchema;

use crate::aggregate::Aggregate;
use crate::catalog::{Catalog, Entity};
use crate::index::StreamIndex;
use crate::plan::{Action, RulePlan};
use crate::resolve;

/// The rules of an app: declarations resolved, types checked, conditions compiled. It does not change.
#[derive(Debug)]
pub struct Program {
    sources: Sources,
    catalog: Catalog,
    collections: Vec<CollectionSpec>,
    rules: Vec<RulePlan>,
    indexes: Vec<StreamIndex>,
    aggregates: Vec<Aggregate>,
    warnings: Vec<Diagnostic>,
}

/// What people want to know about a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// Its name.
    pub name: String,
    /// The stream on whose events it runs.
    pub stream: String,
    /// Higher runs first.
    pub priority: i32,
    /// Its file.
    pub file: String,
    /// The line on which it begins, from 1.
    pub line: u32,
    /// Its text.
    pub text: String,
}

/// Why an app does not compile, with the files that it is about. Its text is what a terminal shows.
#[derive(Debug, Clone)]
pub struct CompileError {
    /// What is wrong, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The files.
    pub sources: Sources,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render_all(&self.diagnostics, &self.sources))
    }
}

impl std::error::Error for CompileError {}

impl From<CompileError> for tidemill_types::Error {
    fn from(error: CompileError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl Program {
    /// Compiles the `*.rules` files of an app.
    ///
    /// Errors: everything that is wrong with them, in the order of the text, warnings included. A program that
    /// compiles keeps its warnings, see [`Self::warnings`].
    pub fn compile(sources: &Sources) -> Result<Self, Vec<Diagnostic>> {
        Self::build(sources, &[], true)
    }

    /// The same for rules that share streams with others: what the files do not declare of `given` they know all the
    /// same. A stream that both declare is the files'.
    pub fn compile_with(sources: &Sources, given: &[Arc<StreamSchema>]) -> Result<Self, Vec<Diagnostic>> {
        Self::build(sources, given, true)
    }

    /// The streams that the files declare, whatever else is wrong with them.
    pub fn declared_streams(sources: &Sources) -> Vec<Arc<StreamSchema>> {
        let modules: Vec<_> = sources.iter().map(|file| parse(file).module).collect();
        resolve::declared_streams(&modules)
    }

    /// The same from names and texts of files.
    pub fn from_texts<N, T>(files: impl IntoIterator<Item = (N, T)>) -> Result<Self, CompileError>
    where
        N: Into<String>,
        T: Into<String>,
    {
        let mut sources = Sources::default();
        for (name, text) in files {
            sources.add(name, text);
        }
        Self::compile(&sources).map_err(|diagnostics| CompileError { diagnostics, sources })
    }

    /// The same as [`Self::compile`] without any index over rules: every condition is computed. It does the same, more slowly; tests
    /// compare the two.
    pub fn compile_unindexed(sources: &Sources) -> Result<Self, Vec<Diagnostic>> {
        Self::build(sources, &[], false)
    }

    fn build(sources: &Sources, given: &[Arc<StreamSchema>], indexed: bool) -> Result<Self, Vec<Diagnostic>> {
        let mut sink = DiagnosticSink::default();
        let mut modules = Vec::new();
        for file in sources.iter() {
            let parsed = parse(file);
            parsed.diagnostics.into_iter().for_each(|d| sink.push(d));
            modules.push(parsed.module);
        }
        // after mistakes of form the tree has holes: what a hole hides would be reported as unknown
        let parsed = sink.finish();
        if parsed.iter().any(|d| d.severity == Severity::Error) {
            return Err(parsed);
        }
        let mut sink = DiagnosticSink::default();
        parsed.into_iter().for_each(|d| sink.push(d));
        let resolved = resolve::resolve(&modules, given, &mut sink);
        let diagnostics = sink.finish();
        if diagnostics.iter().any(|d| d.severity == Severity::Error) {
            return Err(diagnostics);
        }
        let resolve::ResolvedApp { catalog, rules, aggregates } = resolved;
        let indexes = (0..catalog.streams.len()).map(|stream| {
            let members: Vec<usize> = (0..rules.len()).filter(|i| rules[*i].stream == stream).collect();
            StreamIndex::new(&rules, &members, indexed)
        });
        Ok(Self {
            sources: sources.clone(),
            indexes: indexes.collect(),
            collections: catalog.entities.iter().map(Entity::spec).collect(),
            catalog,
            rules,
            aggregates,
            warnings: diagnostics,
        })
    }

    /// The streams in order of declaration. Their positions are what the rest of this crate calls a stream.
    pub fn streams(&self) -> &[Arc<StreamSchema>] {
        &self.catalog.streams
    }

    /// The position of the stream `name`.
    pub fn stream_index(&self, name: &str) -> Option<usize> {
        self.catalog.stream(name)
    }

    /// The collections that the entities are, in order of declaration.
    pub fn collections(&self) -> &[CollectionSpec] {
        &self.collections
    }

    /// The entities in order of declaration: the collections with their key and shard fields.
    pub fn entities(&self) -> &[Entity] {
        &self.catalog.entities
    }

    /// All declarations.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The field whose value is the `_id` of the documents of `entity`; `None` when there is no such entity.
    pub fn entity_key(&self, entity: &str) -> Option<&str> {
        self.catalog.entity(entity).map(|e| self.catalog.entities[e].key.as_str())
    }

    /// The rules on events, in order of declaration. Aggregates are in [`Self::aggregates`].
    pub fn rules(&self) -> Vec<RuleInfo> {
        let info = |rule: &RulePlan| RuleInfo {
            name: rule.name.to_string(),
            stream: self.catalog.streams[rule.stream].name.clone(),
            priority: rule.priority,
            file: self.sources.get(rule.span.file).map_or(String::new(), |f| f.name().to_owned()),
            line: self.line(rule.span),
            text: self.text(rule.span).to_owned(),
        };
        self.rules.iter().map(info).collect()
    }

    /// The streams that rules emit into, each once, in order.
    pub fn emits(&self) -> Vec<usize> {
        let actions = self.rules.iter().flat_map(|rule| &rule.actions);
        let streams = actions.filter_map(|action| match action {
            Action::Emit { stream, .. } => Some(*stream),
            _ => None,
        });
        streams.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The rules over all partitions.
    pub fn aggregates(&self) -> &[Aggregate] {
        &self.aggregates
    }

    /// What works, but perhaps not as meant.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The files it was compiled from.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The compiled rules, in order of declaration.
    pub fn plans(&self) -> &[RulePlan] {
        &self.rules
    }

    /// The index of the rules of a stream.
    pub fn stream_rules(&self, stream: usize) -> &StreamIndex {
        &self.indexes[stream]
    }

    /// The source text of `span`.
    pub(crate) fn text(&self, span: Span) -> &str {
        self.sources.get(span.file).map_or("", |f| f.slice(span))
    }

    /// The line on which `span` begins, from 1.
    pub(crate) fn line(&self, span: Span) -> u32 {
        self.sources.get(span.file).map_or(0, |f| f.position(span.start).line)
    }
}
