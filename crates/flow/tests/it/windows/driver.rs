//! Runs a single window as the app runtime does.

use tidemill_flow::batch::{Batch, EventKind};
use tidemill_flow::compiler::{ColumnRef, Compiler, Scope};
use tidemill_flow::registry::{Attribute, Parameter, WindowInput};
use tidemill_flow::snapshot::{Reader, SnapshotWriter};
use tidemill_flow::store::{RowId, RowStore};
use tidemill_flow::window::{self, RowChanges, TimerQueue, Window, WindowConstructor, WindowContext};
use tidemill_flow::{Registry, Value};
use tidemill_lang::siddhi::ast::{self, AttributeRef, Definition, ExprKind};
use tidemill_lang::{Diagnostic, FileId, SourceFile, siddhi};
use tidemill_types::FieldType;

use super::aggregates;

/// Step of a case.
#[derive(Debug, Clone)]
pub enum Step {
    Clock(i64),
    Chunk(Vec<Event>),
    Restart,
    Held,
}

/// Timestamp and values.
pub type Event = (i64, Vec<Value>);

impl Step {
    pub fn parse(line: &str, types: &[FieldType]) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "clock" => Self::Clock(rest.parse().unwrap()),
            "event" => Self::Chunk(vec![event(rest, types)]),
            "chunk" => Self::Chunk(rest.split(';').map(|text| event(text, types)).collect()),
            "restart" => Self::Restart,
            "held" => Self::Held,
            _ => panic!("no step: `{line}`"),
        }
    }
}

/// Parses an event; strings with spaces are quoted.
fn event(text: &str, types: &[FieldType]) -> Event {
    let mut words: Vec<String> = vec![];
    for (i, part) in text.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    let time = words.remove(0).parse().unwrap();
    assert_eq!(words.len(), types.len(), "values in `{text}`");
    (time, words.iter().zip(types).map(|(word, ty)| value(word, *ty)).collect())
}

fn value(word: &str, ty: FieldType) -> Value {
    match ty {
        _ if word == "null" => Value::Null,
        FieldType::Int => Value::Int(word.parse().unwrap()),
        FieldType::Long => Value::Long(word.parse().unwrap()),
        FieldType::Float => Value::Float(word.parse().unwrap()),
        FieldType::Double => Value::Double(word.parse().unwrap()),
        FieldType::Bool => Value::Bool(word.parse().unwrap()),
        _ => Value::text(word),
    }
}

pub struct Driver {
    make: WindowConstructor,
    window: Box<dyn Window>,
    store: RowStore,
    timers: TimerQueue,
    out: RowChanges,
    clock: i64,
    wants_expired: bool,
    searched: bool,
    /// Chunks whose rows are already in the store, for [`Driver::append_ahead`].
    appended: std::collections::VecDeque<std::ops::Range<RowId>>,
}

impl Driver {
    /// Parses a header such as `length(2) of k string, v int, all events`.
    pub fn new(header: &str) -> Result<Self, String> {
        let (call, columns) = header.rsplit_once(" of ").expect("`window <call> of <columns>`");
        let (columns, searched) = flag(columns, ", searched");
        let (columns, wants_expired) = flag(columns, ", all events");
        let text = format!("define window W ({columns}) {call};");
        let parsed = siddhi::parse(&SourceFile::new(FileId::default(), "case", text));
        if let Some(diagnostic) = parsed.diagnostics.first() {
            return Err(diagnostic.message.clone());
        }
        let Some(Definition::Window(definition)) = parsed.app.definitions.first() else {
            panic!("no window")
        };
        let make = make(definition)?;
        let types = definition.attributes.iter().map(|a| a.ty.ty).collect();
        let window = make();
        let mut driver = Self {
            make,
            window,
            store: RowStore::new(types),
            timers: TimerQueue::default(),
            out: RowChanges::default(),
            clock: 0,
            wants_expired,
            searched,
            appended: Default::default(),
        };
        driver.call(0, |window, context| {
            window.start(context);
            Ok(())
        });
        Ok(driver)
    }

    pub fn types(&self) -> &[FieldType] {
        self.store.types()
    }

    pub fn rows(&self) -> u64 {
        self.store.rows()
    }

    /// Runs a step; returns a line per output chunk.
    pub fn run(&mut self, step: &Step) -> Vec<String> {
        let lines = match step {
            Step::Clock(to) => self.advance(*to),
            Step::Chunk(events) => {
                let mut lines = self.advance(events.last().unwrap().0);
                let rows = self.appended.pop_front().unwrap_or_else(|| self.append(events));
                lines.extend(self.call(self.clock, |window, context| window.process(rows, context)));
                lines
            }
            Step::Restart => {
                let mut state = Vec::new();
                let mut out = SnapshotWriter::new(&mut state).unwrap();
                out.section("window").unwrap();
                self.window.save(&mut out).unwrap();
                out.finish().unwrap();
                if self.appended.is_empty() {
                    let numbers = window::retained_row_ids(self.window.as_ref(), &self.store);
                    let rows = self.store.rows_at(&numbers);
                    let types = self.store.types().to_vec();
                    self.store = RowStore::from_rows(types, numbers, &rows, self.store.next_id());
                }
                let timers = serde_json::to_value(&self.timers).unwrap();
                self.timers = serde_json::from_value(timers).unwrap();
                self.window = (self.make)();
                let mut input = state.as_slice();
                let mut from = Reader::new(&mut input).unwrap();
                from.section("window").unwrap();
                self.window.restore(&mut from, &self.store).unwrap();
                from.finish().unwrap();
                vec![]
            }
            Step::Held => {
                let names: Vec<String> = self.window.rows().iter().map(|seq| self.name(*seq)).collect();
                vec![if names.is_empty() { "nothing".to_owned() } else { names.join(" ") }]
            }
        };
        if self.appended.is_empty() {
            window::evict_unneeded(self.window.as_ref(), &mut self.store);
        }
        lines
    }

    /// Appends the rows of all chunks to the store before the first chunk is processed, as a batch does.
    pub fn append_ahead(&mut self, steps: &[Step]) {
        for step in steps {
            if let Step::Chunk(events) = step {
                let rows = self.append(events);
                self.appended.push_back(rows);
            }
        }
    }

    fn append(&mut self, events: &[Event]) -> std::ops::Range<RowId> {
        let mut batch = Batch::new(self.store.types().to_vec());
        for (time, values) in events {
            for (column, value) in batch.columns.iter_mut().zip(values) {
                column.push(value.clone());
            }
            batch.times.push(*time);
            batch.kinds.push(EventKind::Current);
        }
        let first = self.store.append(&batch, 0..events.len());
        first..self.store.next_id()
    }

    fn advance(&mut self, to: i64) -> Vec<String> {
        let mut lines = vec![];
        while let Some(at) = self.window.next_scheduled(self.clock).filter(|at| *at <= to) {
            self.clock = at;
            lines.extend(self.run_timers());
            lines.extend(self.call(at, |window, context| window.on_schedule(at, context)));
        }
        self.clock = self.clock.max(to);
        lines.extend(self.run_timers());
        lines
    }

    fn run_timers(&mut self) -> Vec<String> {
        let mut lines = vec![];
        while let Some(due) = self.timers.pop_due(self.clock) {
            lines.extend(self.call(self.clock, |window, context| window.on_timer(due, context)));
        }
        lines
    }

    fn call(
        &mut self,
        now: i64,
        what: impl FnOnce(&mut dyn Window, &mut WindowContext<'_>) -> Result<(), tidemill_flow::EvalError>,
    ) -> Vec<String> {
        let mark = self.out.mark();
        let result = what(
            self.window.as_mut(),
            &mut WindowContext {
                now,
                rows: &mut self.store,
                out: &mut self.out,
                timers: &mut self.timers,
                wants_expired: self.wants_expired,
                searched: self.searched,
            },
        );
        if let Err(failure) = result {
            self.out.rewind(mark);
            return vec![format!("failure: {}", failure)];
        }
        let out = std::mem::take(&mut self.out);
        assert_eq!(out.ends.last().copied().unwrap_or(0), out.items.len(), "a chunk is not ended");
        let mut start = 0;
        let mut lines = vec![];
        for end in out.ends {
            let words: Vec<String> = out.items[start..end].iter().map(|signal| self.word(signal)).collect();
            lines.push(format!("[{}]", words.join(" ")));
            start = end;
        }
        lines
    }

    fn word(&self, signal: &window::RowChange) -> String {
        let mark = match signal.kind {
            EventKind::Reset => return "R".to_owned(),
            EventKind::Current => '+',
            EventKind::Expired => '-',
        };
        let mut word = format!("{}{mark}", self.name(signal.seq));
        if signal.time != self.store.time(signal.seq) {
            word += &format!("@{}", signal.time);
        }
        if let Some(column) = self.window.rewritten_column() {
            word += &format!("({})", self.store.value(signal.seq, column));
        }
        word
    }

    fn name(&self, seq: RowId) -> String {
        self.store.value(seq, 0).to_string()
    }
}

fn flag<'t>(text: &'t str, flag: &str) -> (&'t str, bool) {
    text.strip_suffix(flag).map_or((text, false), |rest| (rest, true))
}

struct Columns<'a>(&'a [Attribute]);

impl Scope for Columns<'_> {
    fn all_names(&self) -> Vec<String> {
        self.0.iter().map(|known| known.name.clone()).collect()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let known = self.0.iter().find(|known| known.name == attribute.name.name);
        known.map(|known| ColumnRef { slot: 0, column: known.column, ty: known.ty }).ok_or_else(|| {
            Diagnostic::error("T0001", attribute.span, format!("no attribute `{}`", attribute.name.name))
        })
    }
}

fn make(definition: &ast::WindowDefinition) -> Result<WindowConstructor, String> {
    let registry: Registry = aggregates::registry();
    let attributes: Vec<Attribute> = definition
        .attributes
        .iter()
        .enumerate()
        .map(|(column, a)| Attribute { name: a.name.name.clone(), ty: a.ty.ty, column })
        .collect();
    let call = &definition.window;
    let name = match &call.namespace {
        Some(namespace) => format!("{}:{}", namespace.name, call.name.name),
        None => call.name.name.clone(),
    };
    let parameter = |argument: &ast::Expr| {
        let mut scope = Columns(&attributes);
        let mut compiler = Compiler { scope: &mut scope, registry: &registry, aggregates: None };
        let attribute = match &argument.kind {
            ExprKind::Attribute(a) => Some(a.name.name.clone()),
            _ => None,
        };
        let expr = compiler.compile(argument).map_err(|d| d.message)?;
        Ok(Parameter { expr, attribute, text: argument.to_string() })
    };
    let parameters = call.args.list().iter().map(parameter).collect::<Result<Vec<_>, String>>()?;
    let source = WindowInput { names: &["S"], attributes: &attributes, selected: None, registry: &registry };
    let build = registry.find_window(&name)?;
    build(&parameters, &source).map_err(|e| format!("{name}: {e}"))
}
