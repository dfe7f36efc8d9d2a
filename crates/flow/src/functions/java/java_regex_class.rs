//! Character classes of Java's regular expressions.

use crate::functions::java::java_regex_syntax::{RegexRewriter, push_literal};

impl RegexRewriter {
    /// Rewrites a class that is not nested in another one; its `[` is already consumed.
    pub(in crate::functions) fn whole_class(&mut self) -> Result<(), String> {
        if !(self.flags.ignore_case && self.flags.unicode_case) {
            return self.class();
        }
        self.out.push_str("(?i:");
        self.class()?;
        self.out.push(')');
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.peek() == Some('^') {
            self.at += 1;
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let c = self.next().ok_or("a `[` is not closed")?;
            match c {
                ']' if !first => break,
                '[' => self.class()?,
                '&' if self.peek() == Some('&') => {
                    self.at += 1;
                    // an intersection without a left operand has no effect
                    if !first {
                        self.out.push_str("&&");
                    }
                }
                c if self.flags.comments && c.is_ascii_whitespace() => continue,
                '\\' if self.peek() == Some('Q') => {
                    self.at += 1;
                    while self.at < self.chars.len() && !self.rest_starts_with("\\E") {
                        self.range(self.chars[self.at], self.chars[self.at]);
                        self.at += 1;
                    }
                    self.at += 2;
                }
                c => self.class_item(c)?,
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// Rewrites one character, range or escape of a class.
    fn class_item(&mut self, c: char) -> Result<(), String> {
        let Some(from) = self.class_char(c)? else { return Ok(()) };
        let end = self.chars.get(self.at + 1).copied();
        if self.peek() != Some('-') || end.is_none_or(|end| matches!(end, ']' | '[')) {
            self.range(from, from);
            return Ok(());
        }
        self.at += 1;
        let end = self.next().unwrap_or('-');
        match self.class_char(end)? {
            Some(to) if to >= from => self.range(from, to),
            Some(to) => return Err(format!("the range {from}-{to} is reversed: write {to}-{from}")),
            None => {
                return Err(format!(
                    "the range that begins with {from} does not end with a single character"
                ));
            }
        }
        Ok(())
    }

    /// Writes a range and, if case is ignored, its ASCII letters in the other case.
    fn range(&mut self, from: char, to: char) {
        push_range(&mut self.out, from, to);
        if !self.flags.ignore_case {
            return;
        }
        for (first, last) in [('a', 'z'), ('A', 'Z')] {
            let (from, to) = (from.max(first), to.min(last));
            if from <= to {
                let other = |c: char| {
                    if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() }
                };
                push_range(&mut self.out, other(from), other(to));
            }
        }
    }

    /// Returns a character of a class, or `None` after writing an escape that stands for a set of characters.
    fn class_char(&mut self, c: char) -> Result<Option<char>, String> {
        if c != '\\' {
            return Ok(Some(c));
        }
        let c = self.next().ok_or("a backslash is the last character")?;
        if let Some(set) = self.set(c)? {
            self.out.push_str(&set);
            return Ok(None);
        }
        self.escaped_char(c).map(Some)
    }
}

fn push_range(out: &mut String, from: char, to: char) {
    push_literal(out, from);
    if to > from {
        out.push('-');
        push_literal(out, to);
    }
}
