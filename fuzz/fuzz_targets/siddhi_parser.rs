//! Fuzzes the SiddhiQL parser, formatter and planner with arbitrary bytes: no input panics, the formatted
//! source parses to an equal tree and is unchanged by formatting it again, and the planner accepts the app or
//! reports diagnostics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_flow::{Registry, plan};
use tidemill_lang::siddhi::{format, parse, parse_on_demand, structural_text, substitute};
use tidemill_lang::{FileId, SourceFile, Sources, render_all};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = SourceFile::from_bytes(FileId(0), "fuzz.siddhi", bytes) else { return };
    let Ok(file) = substitute(&file, &|name: &str| (name.len() % 2 == 0).then(|| "5".to_owned())) else {
        return;
    };
    let _ = parse_on_demand(&file);
    let parsed = parse(&file);
    let mut sources = Sources::default();
    sources.add("fuzz.siddhi", file.text());
    render_all(&parsed.diagnostics, &sources);
    for diagnostic in &parsed.diagnostics {
        diagnostic.to_report(&sources);
    }
    let Ok(canonical) = format(&file) else { return };
    let again = SourceFile::new(FileId(0), "again.siddhi", canonical.clone());
    assert_eq!(format(&again).as_deref(), Ok(canonical.as_str()), "formatting twice differs");
    assert_eq!(
        structural_text(&parse(&again).app),
        structural_text(&parsed.app),
        "formatting changed the tree"
    );
    if let Err(diagnostics) = plan::compile(&parsed.app, &Registry::standard()) {
        assert!(!diagnostics.is_empty(), "refused without a reason");
        render_all(&diagnostics, &sources);
    }
});
