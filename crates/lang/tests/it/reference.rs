//! Checks that the example in the language reference can be parsed.

use tidemill_lang::rules::{format, parse};
use tidemill_lang::source::{FileId, SourceFile};

#[test]
fn the_reference_shows_what_can_be_parsed() {
    let reference = include_str!("../../../../docs/rules.md");
    let blocks = reference.split("```").skip(1).step_by(2);
    // the word after the opening fence is the language of the block
    let texts = blocks.filter_map(|b| b.split_once('\n')).filter(|(word, _)| *word == "rules");
    let rules: Vec<&str> = texts.map(|(_, text)| text).filter(|text| text.starts_with("event ")).collect();
    assert!(!rules.is_empty(), "the reference begins with an example");
    for text in rules {
        let file = SourceFile::new(FileId(0), "rules.md", text);
        assert_eq!(parse(&file).diagnostics, []);
        assert!(format(&file).is_ok());
    }
}
