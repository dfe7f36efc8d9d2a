//! Fuzzes the rule parser and formatter with arbitrary bytes: no input panics, and the formatted source
//! parses to an equal tree and is unchanged by formatting it again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_lang::rules::{format, parse, structural_text};
use tidemill_lang::{FileId, SourceFile, Sources, render_all};

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = SourceFile::from_bytes(FileId(0), "fuzz.rules", bytes) else { return };
    let parsed = parse(&file);
    let mut sources = Sources::default();
    sources.add("fuzz.rules", file.text());
    render_all(&parsed.diagnostics, &sources);
    for diagnostic in &parsed.diagnostics {
        diagnostic.to_report(&sources);
    }
    let Ok(canonical) = format(&file) else { return };
    let again = SourceFile::new(FileId(0), "again.rules", canonical.clone());
    assert_eq!(format(&again).as_deref(), Ok(canonical.as_str()), "formatting twice differs");
    assert_eq!(
        structural_text(&parse(&again).module),
        structural_text(&parsed.module),
        "formatting changed the tree"
    );
});
