//! From files to units.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use tidemill_connect::OnError;
use tidemill_flow::io::connector::ConnectorDirection;
use tidemill_flow::io::file::is_file;
use tidemill_flow::limits::Limits;
use tidemill_flow::plan::{self, AppPlan};
use tidemill_flow::query::Target;
use tidemill_flow::{Registry, catalog};
use tidemill_lang::siddhi;
use tidemill_lang::siddhi::ast::{self, Definition, ExprKind};
use tidemill_lang::{Diagnostic, FileId, Severity, SourceFile, Sources, Span, render_all};
use tidemill_rules::Program;
use tidemill_types::{Error, Field, FieldType, Mismatch, Result, StreamSchema, did_you_mean};

use super::placement::{self, Placement};
use super::{
    InputMapping, LatePolicy, LateRule, OutputMapping, Queries, QueryFile, Unit, late_policy,
    retraction_streams, stream_compat, unit_split,
};
use crate::app::App;
use crate::app::app_toml;
use crate::app::connectors::AppConnector;
use crate::app::settings::Settings;
use crate::app::{AppFile, TableConfig};
use crate::directory::partitioning::{HomeRule, Partitioning};

/// A file that was read and makes sense by itself.
struct ParsedFile {
    name: String,
    sources: Sources,
    app: ast::App,
    plan: AppPlan,
    /// The key of each stream that it defines.
    keys: BTreeMap<String, Option<String>>,
    /// Rule for late events of each stream that has one.
    late: BTreeMap<String, LateRule>,
}

/// A compiled app: rules and queries that know the same streams.
#[derive(Clone)]
pub struct CompiledApp {
    /// The rules, with all streams.
    pub program: Arc<Program>,
    /// The queries.
    pub queries: Arc<Queries>,
    /// Declaration sites of the streams that only queries define.
    query_stream_sites: BTreeMap<String, DeclarationSite>,
}

/// Compiles the app's rules and queries; the queries are placed as in a new data directory with so many partitions as its
/// settings say.
///
/// Errors: `Invalid` with all diagnostics, each with its place and what to type.
pub fn compile_app(app: &App) -> Result<CompiledApp> {
    compile_app_for(app, Partitioning::new(app.settings.partitions))
}

/// The same for a data directory with this partitioning.
pub fn compile_app_for(app: &App, partitioning: Partitioning) -> Result<CompiledApp> {
    let variable = |name: &str| app.vars.get(name).cloned().or_else(|| std::env::var(name).ok());
    let files =
        AppTexts { rules: &app.rules, queries: &app.queries, connected: &app.connected, tables: &app.tables };
    let compiled = compile(&files, partitioning, &app.registry(), limits(&app.settings), &variable)?;
    check_tables(app, &compiled)?;
    check_stored(&compiled)?;
    Ok(compiled)
}

/// Checks that all streams can be stored, so that an app that compiles can be deployed.
fn check_stored(compiled: &CompiledApp) -> Result<()> {
    let wrong = compiled.program.streams().iter().filter_map(|stream| {
        let error = tidemill_zones::check_stream(stream).err()?;
        let site = compiled.stream_site(&stream.name);
        Some(site.map_or_else(|| error.to_string(), |site| format!("{site}: {error}")))
    });
    let wrong: Vec<String> = wrong.collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid(wrong.join("\n"))),
    }
}

/// Checks that every `[tables.NAME]` of `app.toml` names a stream.
fn check_tables(app: &App, compiled: &CompiledApp) -> Result<()> {
    let streams = compiled.program.streams();
    let is_stream = |name: &&String| streams.iter().any(|stream| stream.name == **name);
    match app.tables.keys().find(|name| !is_stream(name)) {
        None => Ok(()),
        Some(name) => {
            let hint = did_you_mean(name, streams.iter().map(|stream| stream.name.as_str()));
            Err(Error::invalid(format!("app.toml: [tables.{name}]: the app has no stream `{name}`{hint}")))
        }
    }
}

/// Limits on the state of each unit.
fn limits(settings: &Settings) -> Limits {
    let rows = settings.query_rows;
    Limits {
        table_rows: rows,
        window_rows: rows,
        aggregation_rows: rows,
        rate_rows: rows,
        ..Limits::default()
    }
}

/// Place in an app that defines a stream or an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationSite {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// True if it is declared there. The key of a stream that a query makes follows from the query.
    pub declared: bool,
}

impl fmt::Display for DeclarationSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl CompiledApp {
    /// Returns the place where the stream `name` is declared, or the first query that makes it.
    pub fn stream_site(&self, name: &str) -> Option<DeclarationSite> {
        let catalog = self.program.catalog();
        let span = catalog.stream(name).and_then(|at| catalog.stream_spans.get(at).copied().flatten());
        span.and_then(|span| self.site(span)).or_else(|| self.query_stream_sites.get(name).cloned())
    }

    /// Returns the place where the entity `name` is declared.
    pub fn entity_site(&self, name: &str) -> Option<DeclarationSite> {
        let catalog = self.program.catalog();
        self.site(catalog.entities[catalog.entity(name)?].span)
    }

    fn site(&self, span: Span) -> Option<DeclarationSite> {
        declaration_site(self.program.sources(), span, true)
    }
}

fn declaration_site(sources: &Sources, span: Span, declared: bool) -> Option<DeclarationSite> {
    let file = sources.get(span.file)?;
    Some(DeclarationSite { file: file.name().to_owned(), line: file.position(span.start).line, declared })
}

/// Parts of an app that are compiled.
struct AppTexts<'a> {
    rules: &'a [AppFile],
    queries: &'a [AppFile],
    connected: &'a [AppConnector],
    tables: &'a BTreeMap<String, TableConfig>,
}

/// Compiles rules, queries and connectors together.
///
/// Errors: `Invalid` with all diagnostics of the first kind of file that has some.
fn compile(
    files: &AppTexts<'_>,
    partitioning: Partitioning,
    registry: &Registry,
    limits: Limits,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<CompiledApp> {
    let mut sources = Sources::default();
    for file in files.rules {
        sources.add(&file.name, &file.text);
    }
    let mut declared = Program::declared_streams(&sources);
    let mut read = Vec::new();
    for file in files.queries {
        let file = parse_file(file, registry, variable)?;
        stream_compat::check_declared(&file.app, &file.plan, &declared)
            .map_err(|wrong| Error::invalid(render_all(&wrong, &file.sources)))?;
        read.push(file);
    }
    // what one file only writes, another may define: definitions come first
    for file in &read {
        for (name, key) in &file.keys {
            if let Some(stream) = file.plan.catalog.find(name)
                && !declared.iter().any(|s| s.name == *name)
            {
                declared.push(schema(&file.plan.catalog.streams()[stream], key.as_deref()));
            }
        }
    }
    let mut placements = Vec::new();
    for file in &read {
        placements.push(declare_streams(file, &mut declared, partitioning, registry)?);
    }
    // connectors of `app.toml` know the streams of all files
    for connector in files.connected {
        let file =
            parse_shown_file(&connector.file(&declared)?, Some(connector.app_toml()), registry, variable)?;
        placements.push(declare_streams(&file, &mut declared, partitioning, registry)?);
        read.push(file);
    }
    let mut program = Program::compile_with(&sources, &declared)
        .map_err(|wrong| Error::invalid(render_all(&wrong, &sources)))?;
    for (name, _) in files.tables.iter().filter(|(_, table)| table.mismatch == Mismatch::Keep) {
        program.keep_mismatches(name);
    }
    let mut places = BTreeMap::new();
    for file in &read {
        for stream in engine_streams(&file.plan).chain(fault_streams(&file.plan)) {
            let defined = file.keys.contains_key(&stream.name);
            let found = declaration_site(&file.sources, stream.span, defined);
            match places.get(&stream.name) {
                // what one file only reads or writes, another may define
                Some(DeclarationSite { declared, .. }) if *declared || !defined => {}
                _ => places.extend(found.map(|place| (stream.name.clone(), place))),
            }
        }
    }
    let home_rule = partitioning.home_rule;
    let context = UnitContext { registry, limits, program: &program, home_rule };
    let mut all = Queries { home_rule, ..Queries::default() };
    for (number, (file, placement)) in read.into_iter().zip(placements).enumerate() {
        let parts = unit_split::split_file(&file.app, &placement, &file.plan.catalog);
        for (part, everywhere) in parts.into_iter().zip([true, false]) {
            if let Some(part) = part {
                all.units.push(compile_unit(&file, &without_files(&part), number, everywhere, &context)?);
            }
        }
        all.document_tables.add_file(
            &file.name,
            file.plan.catalog.stored_tables(),
            &program,
            (partitioning.partitions, placement::SHARED_STORES_HOME.0),
        )?;
        let (home, home_reason) = placement::home(&file.name, &file.plan, &placement, partitioning);
        all.files.push(QueryFile {
            idle: idle_option(&file.app)
                .map_err(|wrong| Error::invalid(render_all(&[wrong], &file.sources)))?,
            identity: identity(&file.app, registry),
            stores: store_names(&file.app),
            home,
            home_reason,
            warnings: render_all(&file.plan.warnings, &file.sources),
            placements: placement.elements,
            plan: Arc::new(file.plan),
            name: file.name,
        });
    }
    Ok(CompiledApp {
        queries: Arc::new(all.connect(&program)),
        program: Arc::new(program),
        query_stream_sites: places,
    })
}

/// Adds the streams of a file that are new to `declared`, and decides where its elements run.
fn declare_streams(
    file: &ParsedFile,
    declared: &mut Vec<Arc<StreamSchema>>,
    partitioning: Partitioning,
    registry: &Registry,
) -> Result<Placement> {
    let failed = |wrong: Vec<Diagnostic>| Error::invalid(render_all(&wrong, &file.sources));
    let key = |s: &Arc<StreamSchema>| s.key.map(|i| s.fields[i].name.clone());
    let keys = declared.iter().map(|s| (s.name.clone(), key(s))).collect();
    placement::check_parallel(&file.app).map_err(|wrong| failed(vec![wrong]))?;
    let placement = placement::place(&file.app, registry, &keys, partitioning, file.plan.corrected.is_some());
    for stream in engine_streams(&file.plan).chain(fault_streams(&file.plan)) {
        if !declared.iter().any(|s| s.name == stream.name) {
            let key = placement.keys.get(&stream.name).cloned().flatten();
            declared.push(schema(stream, key.as_deref()));
        }
    }
    stream_compat::check_declared(&file.app, &file.plan, declared).map_err(failed)?;
    retraction_streams::declare(&file.plan, declared).map_err(failed)?;
    Ok(placement)
}

fn parse_file(
    file: &AppFile,
    registry: &Registry,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ParsedFile> {
    parse_shown_file(file, None, registry, variable)
}

/// Parses a file. One that stands for a part of `app.toml` has its lines, and errors show them.
fn parse_shown_file(
    file: &AppFile,
    app_toml: Option<&str>,
    registry: &Registry,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ParsedFile> {
    let rendered = |wrong: &[Diagnostic], sources: &Sources| match app_toml {
        Some(app_toml) => Error::invalid(app_toml::render(wrong, sources, app_toml)),
        None => Error::invalid(render_all(wrong, sources)),
    };
    let written = SourceFile::new(FileId(0), file.name.as_str(), file.text.as_str());
    let unknown = |wrong: Vec<Diagnostic>| {
        let mut sources = Sources::default();
        sources.add(&file.name, &file.text);
        rendered(&wrong, &sources)
    };
    let takes_open_values = registry.takes_open_values();
    let kept = |name: &str| variable(name).or_else(|| Some(format!("${{{name}}}")));
    let text = match siddhi::substitute(&written, variable) {
        Err(wrong) if takes_open_values => {
            let text = siddhi::substitute(&written, kept).map_err(unknown)?;
            // elsewhere than in texts there is nothing that could stand for a variable
            let is_variable = |d: &Diagnostic| wrong.iter().any(|variable| variable.code == d.code);
            if siddhi::parse(&text).diagnostics.iter().any(is_variable) {
                return Err(unknown(wrong));
            }
            text
        }
        replaced => replaced.map_err(unknown)?,
    };
    // places are places in the replaced text
    let mut sources = Sources::default();
    sources.add(&file.name, text.text());
    let failed = |wrong: &[Diagnostic]| rendered(wrong, &sources);
    let parsed = siddhi::parse(&text);
    if parsed.has_errors() {
        return Err(failed(&parsed.diagnostics));
    }
    let mut plan = plan::compile(&parsed.app, registry).map_err(|wrong| failed(&wrong))?;
    if takes_open_values {
        let open = siddhi::substitute(&text, |_| None).err().unwrap_or_default();
        let warning = |of| {
            Diagnostic { severity: Severity::Warning, ..of }
                .note("`tidemill check` leaves connections with it out, `tidemill run` refuses the app")
        };
        plan.warnings.splice(0..0, open.into_iter().map(warning));
    }
    let keys = stream_compat::stream_keys(&parsed.app).map_err(|wrong| failed(&wrong))?;
    let late = late_policy::late_rules(&parsed.app).map_err(|wrong| failed(&wrong))?;
    Ok(ParsedFile { name: file.name.clone(), app: parsed.app, plan, keys, late, sources })
}

/// The streams of a file that are streams of the engine.
pub fn engine_streams(plan: &AppPlan) -> impl Iterator<Item = &catalog::CatalogStream> {
    let streams = plan.catalog.streams().iter().enumerate();
    streams
        .filter(|(i, s)| plan.catalog.window(*i).is_none() && !s.name.starts_with(['#', '!']))
        .map(|(_, stream)| stream)
}

/// The fault streams that get the events which sinks refuse. They are streams of the engine too: their events come
/// from the threads that deliver.
fn fault_streams(plan: &AppPlan) -> impl Iterator<Item = &catalog::CatalogStream> {
    plan.connectors.iter().filter_map(|connector| match &connector.direction {
        ConnectorDirection::Out(config) if config.on_error == OnError::Stream => {
            let of = &plan.catalog.streams()[connector.stream].name;
            plan.catalog.find(&format!("!{of}")).map(|fault| &plan.catalog.streams()[fault])
        }
        _ => None,
    })
}

/// Returns the schema of a stream of a file, spread by `key`.
pub fn schema(stream: &catalog::CatalogStream, key: Option<&str>) -> Arc<StreamSchema> {
    let fields = stream.attributes.iter().map(|(name, ty)| Field::new(name.clone(), *ty));
    let key = key.and_then(|key| {
        stream.attributes.iter().position(|(name, ty)| name == key && *ty != FieldType::Object)
    });
    Arc::new(StreamSchema {
        name: stream.name.clone(),
        fields: fields.collect(),
        key,
        id: vec![],
        time: None,
    })
}

/// Parts of an app that its units have in common.
struct UnitContext<'a> {
    registry: &'a Registry,
    limits: Limits,
    program: &'a Program,
    home_rule: HomeRule,
}

/// A part of a file, compiled and connected to the program's streams.
fn compile_unit(
    file: &ParsedFile,
    part: &ast::App,
    number: usize,
    everywhere: bool,
    context: &UnitContext<'_>,
) -> Result<Unit> {
    let UnitContext { registry, limits, program, home_rule } = *context;
    let plan = plan::compile(part, registry).map_err(|wrong| {
        Error::internal(format!("a part of {} is wrong:\n{}", file.name, render_all(&wrong, &file.sources)))
    })?;
    let mut inputs = HashMap::new();
    for name in read_streams(part, &plan, registry, home_rule) {
        let (Some(stream), Some(at)) = (program.stream_index(&name), plan.catalog.find(&name)) else {
            continue;
        };
        let schema = &program.streams()[stream];
        let attributes = &plan.catalog.streams()[at].attributes;
        let fields = attributes.iter().filter_map(|(name, ty)| Some((schema.field_index(name)?, *ty)));
        let late = match plan.corrected {
            Some(allowed) => Some(LateRule { allowed, policy: LatePolicy::Correct }),
            None => file.late.get(&name).cloned(),
        };
        inputs.insert(stream, InputMapping { stream: at, fields: fields.collect(), late });
    }
    let (mut outputs, mut retractions) = (HashMap::new(), HashMap::new());
    let writes: Vec<&str> = written_streams(&plan).filter(|_| plan.corrected.is_some()).collect();
    for stream in engine_streams(&plan) {
        let Some(at) = program.stream_index(&stream.name) else { continue };
        let output = |at: usize| {
            let fields = program.streams()[at].fields.iter();
            let attributes = fields.map(|f| stream.attributes.iter().position(|(name, _)| *name == f.name));
            OutputMapping { stream: at, attributes: attributes.collect() }
        };
        outputs.insert(stream.name.clone(), output(at));
        let companion = program.stream_index(&retraction_streams::retraction_stream(&stream.name));
        if let Some(at) = companion.filter(|_| writes.contains(&stream.name.as_str())) {
            retractions.insert(stream.name.clone(), output(at));
        }
    }
    let of = |name: &str| [outputs.get(name), retractions.get(name)].into_iter().flatten();
    let writes = written_streams(&plan).flat_map(of).map(|output| output.stream).collect();
    let identity = identity(part, registry);
    let plan = Arc::new(plan.with_limits(limits));
    Ok(Unit { file: number, partitioned: everywhere, plan, identity, inputs, outputs, retractions, writes })
}

/// The streams to which something comes from inside: from queries, triggers and topics.
pub fn written_streams(plan: &AppPlan) -> impl Iterator<Item = &str> {
    let queries = plan.all_queries().filter_map(|query| match query.target {
        Target::Stream(stream) => Some(stream),
        Target::Inner(_) | Target::Window(_) | Target::Table(..) => None,
    });
    let others = plan.triggers.iter().map(|(stream, _)| *stream).chain(plan.sources.iter().map(|s| s.stream));
    queries.chain(others).map(|stream| plan.catalog.streams()[stream].name.as_str())
}

/// The streams whose events a part wants.
fn read_streams(part: &ast::App, plan: &AppPlan, registry: &Registry, home_rule: HomeRule) -> Vec<String> {
    let is_read_by_sink =
        |name: &str| plan.sinks.iter().any(|sink| plan.catalog.streams()[sink.stream].name == name);
    let mut reads = Vec::new();
    for element in &part.elements {
        let queries = match element {
            ast::ExecutionElement::Query(query) => std::slice::from_ref(query.as_ref()),
            ast::ExecutionElement::Partition(block) => block.queries.as_slice(),
        };
        reads.extend(queries.iter().flat_map(|query| super::properties::analyze(query, registry).reads));
    }
    for definition in &part.definitions {
        match definition {
            Definition::Aggregation(a) => reads.push(catalog::full_name(&a.input.stream)),
            // what goes to a topic may come back to another stream; files and connectors take what is stored, and older directories have
            // forwarded it to queries all the same
            Definition::Stream(s) if s.annotations.iter().any(|a| a.is("sink") && !is_file(a)) => {
                let name = catalog::full_name(&s.id);
                if home_rule == HomeRule::First || is_read_by_sink(&name) {
                    reads.push(name);
                }
            }
            _ => {}
        }
    }
    reads.sort();
    reads.dedup();
    reads
}

fn store_names(app: &ast::App) -> Vec<String> {
    let stores = app
        .definitions
        .iter()
        .filter(|d| matches!(d, Definition::Table(_) | Definition::Window(_) | Definition::Aggregation(_)));
    stores.map(|d| d.name().name.clone()).collect()
}

/// Hash of what a file means to its state. The files that its streams are read from and written to are not
/// part of it.
fn identity(app: &ast::App, registry: &Registry) -> u64 {
    let mut text = siddhi::structural_text(&without_files(app));
    // another model is another meaning; most apps have none, and keep the hash that they had before there were any
    let named: Vec<_> =
        registry.model_files().iter().filter(|(path, _)| text.contains(path.as_str())).collect();
    named.into_iter().for_each(|(path, hash)| text.push_str(&format!("\nmodel {path} {hash:x}")));
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

/// The app without the files of its streams, which are read and written outside of its units.
fn without_files(app: &ast::App) -> ast::App {
    let mut app = app.clone();
    for definition in &mut app.definitions {
        if let Definition::Stream(stream) = definition {
            stream.annotations.retain(|a| !is_file(a));
        }
    }
    app
}

/// `@app:playback(idle.time='…', increment='…')`.
fn idle_option(app: &ast::App) -> Result<Option<(i64, i64)>, Diagnostic> {
    let Some(playback) = app.annotation("playback") else { return Ok(None) };
    let part = |key: &str| playback.element(key).map(time_option).transpose();
    Ok(part("idle.time")?.zip(part("increment")?))
}

/// Returns a time of an annotation, in milliseconds. Errors: it is not a time, or not above 0.
pub fn time_option(element: &ast::AnnotationEntry) -> Result<i64, Diagnostic> {
    let file = SourceFile::new(FileId(0), "time", element.value.value.as_str());
    let ms = match siddhi::parse_expression(&file).map(|e| e.kind) {
        Ok(ExprKind::Time(time)) => Some(time.ms),
        Ok(ExprKind::Literal(ast::Literal::Int(ms))) => Some(i64::from(ms)),
        Ok(ExprKind::Literal(ast::Literal::Long(ms))) => Some(ms),
        _ => None,
    };
    ms.filter(|ms| *ms > 0).ok_or_else(|| {
        let message = format!("`{}` is not a time", element.value.value);
        Diagnostic::error("E0104", element.span, message).expected(["'100 millisec'"])
    })
}
