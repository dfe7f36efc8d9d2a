//! Printing of comments and empty lines between constructs.

use super::Printer;
use crate::lexer::Comment;

impl<L> Printer<'_, L> {
    /// Returns the next comment if it begins before the byte `limit`.
    fn comment_before(&self, limit: u32) -> Option<Comment> {
        self.comments.get(self.next_comment).copied().filter(|c| c.span.start < limit)
    }

    /// Returns whether a comment begins in `start..end`.
    pub(crate) fn has_comment(&self, start: u32, end: u32) -> bool {
        let first = self.comments.partition_point(|c| c.span.start < start);
        self.comments.get(first).is_some_and(|c| c.span.start < end)
    }

    /// Prints the comments before the byte `limit`, each on its own line. Called at the start of a line.
    pub(crate) fn leading(&mut self, limit: u32) {
        while let Some(comment) = self.comment_before(limit) {
            self.separate(comment.span.start);
            self.comment(comment);
            self.newline();
        }
    }

    /// Prints the comments after a construct that ended at the byte `end`: those inside it, and those that
    /// begin on its last line before the byte `limit`, where the next construct starts.
    pub(crate) fn trailing(&mut self, end: u32, limit: u32) {
        while let Some(comment) = self.comment_before(limit) {
            let start = comment.span.start;
            let between = self.file.text().get(end as usize..start as usize).unwrap_or("");
            if start >= end && between.contains('\n') {
                return;
            }
            self.write(" ");
            self.comment(comment);
            // nothing can follow a line comment, and a comment of several lines ends on another line
            if comment.line || self.file.slice(comment.span).contains('\n') {
                return;
            }
        }
    }

    fn comment(&mut self, comment: Comment) {
        let mut text = self.file.slice(comment.span).replace("\r\n", "\n");
        // an unterminated block comment, which SiddhiQL allows at the end of the source, is closed
        if !comment.line && (text.len() < "/**/".len() || !text.ends_with("*/")) {
            text.push_str(" */");
        }
        self.write(&text);
        self.next_comment += 1;
    }

    /// Prints an empty line before the construct that begins at the byte `at` if the source has one there or
    /// one is required. Called at the start of a line.
    pub(crate) fn separate(&mut self, at: u32) {
        let blank = std::mem::take(&mut self.force_blank) || self.blank_before(at);
        if !std::mem::take(&mut self.block_start) && blank && !self.out.ends_with("\n\n") {
            self.newline();
        }
    }

    /// Starts a new line for the clause that begins at the byte `start`, after the clause that ended at the
    /// byte `end`.
    pub(crate) fn next_clause(&mut self, end: u32, start: u32) {
        self.trailing(end, start);
        self.newline();
        // empty lines before comments between clauses are dropped
        self.block_start = true;
        self.leading(start);
        self.block_start = false;
    }

    fn blank_before(&self, at: u32) -> bool {
        let before = self.file.text().get(..at as usize).unwrap_or("");
        let space = &before[before.trim_end().len()..];
        space.bytes().filter(|b| *b == b'\n').count() >= 2
    }
}
