use super::*;
use crate::rules::{parse, structural_text};
use crate::source::FileId;

fn file(text: &str) -> SourceFile {
    SourceFile::new(FileId(0), "t.rules", text)
}

fn formatted(text: &str) -> String {
    let once = format(&file(text)).expect("parses");
    let twice = format(&file(&once)).expect("what was formatted parses");
    assert_eq!(once, twice);
    assert_eq!(structural_text(&parse(&file(text)).module), structural_text(&parse(&file(&once)).module));
    once
}

#[test]
fn comments_stay_where_they_belong() {
    let text = "// head\nevent A{a:int,//first\n/*second*/b:int}key a;//tail\n\n\n// alone\n\nrule R{when{// w\nx:A(a>1,// why\nb // inner\n<2);/*m*/}/*n*/then{\nemit /*o*/ B(/*p*/x.a /*q*/+1);}// end\n}//last";
    let expected = "\
// head
event A {
  a: int, //first
  /*second*/
  b: int,
} key a; //tail

// alone

rule R {
  when { // w
    x: A(
      a > 1, // why
      b < 2, // inner
    ); /*m*/
  } then { /*n*/
    emit B( /*o*/ /*p*/
      x.a + 1, /*q*/
    );
  } // end
} //last
";
    assert_eq!(formatted(text), expected);
}

#[test]
fn long_lines_break_at_commas_and_operators() {
    let text = "rule R { when { x: A(origin in [\"a\", \"b\"]); (x.aaaaaaaaaaaaaaaaaaaaaaaaa == 1 or x.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb == 2) and x.cccccccccccccccccccccccccccc != coalesce(x.d, 1_000); } then { insert D { aaaaaaaaaaaaaaaaaaaaa: x.aaaaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbbbbb: { ccccccccccccccc: 1, ddddddddddd: 2 } }; } }";
    let expected = "\
rule R {
  when {
    x: A(origin in [\"a\", \"b\"]);
    (x.aaaaaaaaaaaaaaaaaaaaaaaaa == 1 or x.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb == 2)
      and x.cccccccccccccccccccccccccccc != coalesce(x.d, 1_000);
  } then {
    insert D {
      aaaaaaaaaaaaaaaaaaaaa: x.aaaaaaaaaaaaaaaaaaaa,
      bbbbbbbbbbbbbbbbbbbbb: { ccccccccccccccc: 1, ddddddddddd: 2 },
    };
  }
}
";
    assert_eq!(formatted(text), expected);
}
