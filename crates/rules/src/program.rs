//! The compiled rules of an app.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tidemill_docs::CollectionSpec;
use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::parse;
use tidemill_lang::{Diagnostic, Severity, Sources, Span, render_all};
use tidemill_types::{Mismatch, StreamSchema};

use crate::aggregate::Aggregate;
use crate::catalog::{Entity, RuleCatalog};
use crate::index::StreamIndex;
use crate::plan::{Action, RulePlan};
use crate::resolve;

/// The compiled rules of an app: declarations resolved, types checked, conditions compiled. Immutable.
#[derive(Debug)]
pub struct Program {
    sources: Sources,
    catalog: RuleCatalog,
    collections: Vec<CollectionSpec>,
    rules: Vec<RulePlan>,
    indexes: Vec<StreamIndex>,
    aggregates: Vec<Aggregate>,
    warnings: Vec<Diagnostic>,
}

/// Description of a rule for users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// Name of the rule.
    pub name: String,
    /// Stream on whose events the rule runs.
    pub stream: String,
    /// Rules with a higher priority run first.
    pub priority: i32,
    /// Name of the source file.
    pub file: String,
    /// Line on which the rule begins, counted from 1.
    pub line: u32,
    /// Source text of the rule.
    pub text: String,
}

/// Errors of an app that does not compile, with its files. Displays as a terminal report.
#[derive(Debug, Clone)]
pub struct CompileError {
    /// Errors and warnings, in order of the source.
    pub diagnostics: Vec<Diagnostic>,
    /// Files that the diagnostics refer to.
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
    /// Errors: all diagnostics, warnings included, in order of the source. The warnings of a program that
    /// compiles are in [`Self::warnings`].
    pub fn compile(sources: &Sources) -> Result<Self, Vec<Diagnostic>> {
        Self::build(sources, &[], true)
    }

    /// Compiles files that share streams with other parts of the app: the streams in `given` count as
    /// declared. If the files declare a stream of that name, their declaration wins.
    pub fn compile_with(sources: &Sources, given: &[Arc<StreamSchema>]) -> Result<Self, Vec<Diagnostic>> {
        Self::build(sources, given, true)
    }

    /// Returns the streams that the files declare, even if the files have errors.
    pub fn declared_streams(sources: &Sources) -> Vec<Arc<StreamSchema>> {
        let modules: Vec<_> = sources.iter().map(|file| parse(file).module).collect();
        resolve::declared_streams(&modules)
    }

    /// Compiles files given as pairs of name and source text.
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

    /// Compiles as [`Self::compile`] does, but without indexes over rules: every condition is computed. The
    /// program gives equal results, more slowly; tests compare the two.
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
        // syntax errors leave holes in the tree: names declared there would be reported as unknown
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

    /// Keeps events of the stream `name` with a value that does not have the type of its field, except for the key, the id and
    /// the time, without which an event has no place.
    pub fn keep_mismatches(&mut self, name: &str) {
        let stream = self.catalog.streams.iter_mut().find(|stream| stream.name == name);
        let Some(stream) = stream.map(Arc::make_mut) else { return };
        let roles = stream.key.iter().chain(&stream.id).chain(&stream.time).copied().collect::<Vec<_>>();
        for (_, field) in stream.fields.iter_mut().enumerate().filter(|(index, _)| !roles.contains(index)) {
            field.mismatch = Mismatch::Keep;
        }
    }

    /// Returns the streams in order of declaration. Elsewhere in this crate a stream is its index in this
    /// slice.
    pub fn streams(&self) -> &[Arc<StreamSchema>] {
        &self.catalog.streams
    }

    /// Returns the index of the stream `name`.
    pub fn stream_index(&self, name: &str) -> Option<usize> {
        self.catalog.stream(name)
    }

    /// Returns the collection definitions of the entities, in order of declaration.
    pub fn collections(&self) -> &[CollectionSpec] {
        &self.collections
    }

    /// Returns the entities in order of declaration, with their key and shard fields.
    pub fn entities(&self) -> &[Entity] {
        &self.catalog.entities
    }

    /// Returns all declarations.
    pub fn catalog(&self) -> &RuleCatalog {
        &self.catalog
    }

    /// Returns the field whose value is the `_id` of the documents of `entity`; `None` for an unknown entity.
    pub fn entity_key(&self, entity: &str) -> Option<&str> {
        self.catalog.entity(entity).map(|e| self.catalog.entities[e].key.as_str())
    }

    /// Returns the rules on events, in order of declaration. Aggregates are in [`Self::aggregates`].
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

    /// Returns the streams that rules emit into, each once, ascending.
    pub fn emits(&self) -> Vec<usize> {
        let actions = self.rules.iter().flat_map(|rule| &rule.actions);
        let streams = actions.filter_map(|action| match action {
            Action::Emit { stream, .. } => Some(*stream),
            _ => None,
        });
        streams.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the aggregate rules.
    pub fn aggregates(&self) -> &[Aggregate] {
        &self.aggregates
    }

    /// Returns the warnings: code that compiles, but may not do what was meant.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// Returns the files that the program was compiled from.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Returns the compiled rules, in order of declaration.
    pub fn plans(&self) -> &[RulePlan] {
        &self.rules
    }

    /// Returns the index over the rules of a stream.
    pub fn stream_rules(&self, stream: usize) -> &StreamIndex {
        &self.indexes[stream]
    }

    /// Returns the source text of `span`.
    pub(crate) fn text(&self, span: Span) -> &str {
        self.sources.get(span.file).map_or("", |f| f.slice(span))
    }

    /// Returns the line on which `span` begins, counted from 1.
    pub(crate) fn line(&self, span: Span) -> u32 {
        self.sources.get(span.file).map_or(0, |f| f.position(span.start).line)
    }
}
