//! Formatting of lists and blocks over several lines.

use super::Printer;
use super::inline::ListElement;

impl Printer<'_> {
    /// Prints elements in brackets; `open` is the byte of the opening one in the source. On one line if the
    /// list fits and has no comment in it, otherwise one element per line.
    pub(super) fn list<T: ListElement>(&mut self, open: u32, brackets: (&str, &str), elements: &[T]) {
        let (opener, closer) = brackets;
        let close = self.closer(open);
        if !self.has_comment(open, close)
            && let Some(text) = self.inline_within(self.room(), |flat| flat.list(opener, closer, elements))
        {
            return self.write(&text);
        }
        self.write(opener);
        self.indent += 1;
        self.block_start = true;
        self.trailing(open + 1, elements.first().map_or(close, |e| e.range().0));
        self.newline();
        for (i, element) in elements.iter().enumerate() {
            let (start, end) = element.range();
            self.leading(start);
            self.separate(start);
            element.print(self);
            self.write(",");
            self.trailing(end, elements.get(i + 1).map_or(close, |next| next.range().0));
            self.newline();
        }
        self.leading(close);
        self.indent -= 1;
        self.write(closer);
        self.block_start = false;
    }

    /// Prints statements in braces, one per line; `open` is the byte of the opening brace in the source.
    /// `range` returns the offsets of a statement's first byte and one past its last; `print` prints it with
    /// its terminator.
    pub(super) fn block<T>(
        &mut self,
        open: u32,
        statements: &[T],
        range: impl Fn(&T) -> (u32, u32),
        print: impl Fn(&mut Self, &T),
    ) {
        let close = self.closer(open);
        self.write("{");
        self.indent += 1;
        self.block_start = true;
        self.trailing(open + 1, statements.first().map_or(close, |s| range(s).0));
        self.newline();
        for (i, statement) in statements.iter().enumerate() {
            let (start, end) = range(statement);
            self.leading(start);
            self.separate(start);
            print(self, statement);
            self.trailing(end, statements.get(i + 1).map_or(close, |next| range(next).0));
            self.newline();
        }
        self.leading(close);
        self.indent -= 1;
        self.write("}");
        self.block_start = false;
    }
}
