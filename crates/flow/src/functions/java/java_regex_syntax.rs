//! Rewrites Java's regular expressions for the `fancy-regex` crate.
//!
//! The two dialects differ: in Java `\d`, `\w` and `\s` are ASCII, `.` stops at five kinds of line end, `$`
//! also matches before a final line end, `\<` is a `<`, `\p{Alpha}` is ASCII, `\Q…\E` quotes. The rewriter
//! expands every construct that differs, so that the crate only sees syntax that means the same in both.

/// Characters that `.` does not match and that `$` allows at the end.
const LINE_ENDS: &str = r"\n\r\x{85}\x{2028}\x{2029}";
/// Matches at the end or before a final line end.
const END: &str = r"(?=(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z)";
const SPACE: &str = r" \t\n\x0B\f\r";
const WORD: &str = "a-zA-Z0-9_";
const HORIZONTAL: &str = r" \t\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";
const VERTICAL: &str = r"\n\x0B\f\r\x{85}\x{2028}\x{2029}";

/// Rewrites `pattern` for `fancy-regex`. `whole`: the pattern must match the whole string, so nothing may
/// follow `$`.
///
/// Errors: the pattern is invalid, as far as the rewriter notices; the crate finds the other errors.
pub(in crate::functions) fn rewrite(pattern: &str, whole: bool) -> Result<String, String> {
    let chars: Vec<char> = pattern.chars().collect();
    let groups = count_groups(&chars);
    let mut rewriter = RegexRewriter {
        chars,
        at: 0,
        out: String::new(),
        flags: Flags::default(),
        outer: vec![],
        groups,
        whole,
    };
    rewriter.run()?;
    Ok(rewriter.out)
}

#[derive(Debug, Clone, Copy, Default)]
pub(in crate::functions) struct Flags {
    pub(in crate::functions) dot_all: bool,
    pub(in crate::functions) multi_line: bool,
    pub(in crate::functions) comments: bool,
    pub(in crate::functions) unix_lines: bool,
    /// `\d`, `\w` and `\s` are Unicode instead of ASCII.
    pub(in crate::functions) unicode: bool,
    pub(in crate::functions) ignore_case: bool,
    /// Case is ignored for all letters, not only for ASCII.
    pub(in crate::functions) unicode_case: bool,
}

pub(in crate::functions) struct RegexRewriter {
    pub(in crate::functions) chars: Vec<char>,
    pub(in crate::functions) at: usize,
    pub(in crate::functions) out: String,
    pub(in crate::functions) flags: Flags,
    /// The flags to restore at the end of each open group.
    outer: Vec<Flags>,
    groups: u32,
    whole: bool,
}

/// Counts the capturing groups: whether `\11` is group 11, or group 1 and a digit, depends on it.
fn count_groups(chars: &[char]) -> u32 {
    let mut count = 0;
    let mut in_class = 0_u32;
    let mut i = 0;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 1,
            '[' => in_class += 1,
            ']' => in_class = in_class.saturating_sub(1),
            '(' if in_class == 0 => {
                let named = chars.get(i + 2) == Some(&'<') && !matches!(chars.get(i + 3), Some('=' | '!'));
                count += u32::from(chars.get(i + 1) != Some(&'?') || named);
            }
            _ => {}
        }
        i += 1;
    }
    count
}

impl RegexRewriter {
    pub(in crate::functions) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(in crate::functions) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    pub(in crate::functions) fn rest_starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.chars.get(self.at + i) == Some(&c))
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.whole_class()?,
                '(' => self.group()?,
                ')' => {
                    self.flags = self.outer.pop().ok_or("a `)` has no `(`")?;
                    self.out.push(')');
                }
                '.' if self.flags.dot_all => self.out.push_str("(?s:.)"),
                '.' if self.flags.unix_lines => self.out.push_str(r"[^\n]"),
                '.' => self.out.push_str(&format!("[^{LINE_ENDS}]")),
                '^' if self.flags.multi_line => self.out.push_str("(?m:^)"),
                '^' => self.out.push('^'),
                '$' if self.flags.multi_line => self.out.push_str("(?m:$)"),
                '$' if self.whole => self.out.push('$'),
                '$' => self.out.push_str(END),
                '*' | '+' | '?' | '|' => self.out.push(c),
                '{' => self.repetition()?,
                '#' if self.flags.comments => while self.next().is_some_and(|c| c != '\n') {},
                c if self.flags.comments && c.is_ascii_whitespace() => {}
                c => self.literal(c),
            }
        }
        if !self.outer.is_empty() {
            return Err("a `(` has no `)`".into());
        }
        Ok(())
    }

    /// Copies a repetition: `{n}`, `{n,}` or `{n,m}`.
    fn repetition(&mut self) -> Result<(), String> {
        let text = self.braced().unwrap_or_default();
        let (least, most) = text.split_once(',').unwrap_or((&text, ""));
        let number = |t: &str| t.chars().all(|c| c.is_ascii_digit());
        if least.is_empty() || !number(least) || !number(most) {
            return Err(
                "expected a repetition such as `{2,3}` after `{`; write `\\{` for the character".into()
            );
        }
        self.out.push_str(&format!("{{{text}}}"));
        Ok(())
    }

    fn group(&mut self) -> Result<(), String> {
        if self.peek() != Some('?') {
            self.outer.push(self.flags);
            self.out.push('(');
            return Ok(());
        }
        for opening in ["?:", "?=", "?!", "?<=", "?<!", "?>", "?<"] {
            if self.rest_starts_with(opening) {
                self.at += opening.len();
                self.outer.push(self.flags);
                self.out.push('(');
                self.out.push_str(opening);
                if opening == "?<" {
                    self.group_name()?;
                }
                return Ok(());
            }
        }
        self.at += 1;
        self.inline_flags()
    }

    /// Copies the rest of `<name>`.
    fn group_name(&mut self) -> Result<(), String> {
        while let Some(c) = self.next() {
            self.out.push(c);
            match c {
                '>' => return Ok(()),
                c if c.is_ascii_alphanumeric() => {}
                _ => break,
            }
        }
        Err("a group name must consist of letters and digits".into())
    }

    /// Parses the rest of `(?i)` or `(?i-s:`. The rewriter expands all flags; it passes none on.
    fn inline_flags(&mut self) -> Result<(), String> {
        let before = self.flags;
        let mut on = true;
        loop {
            match self.next() {
                Some('-') => on = false,
                Some('i') => self.flags.ignore_case = on,
                Some('u') => self.flags.unicode_case = on,
                Some('s') => self.flags.dot_all = on,
                Some('m') => self.flags.multi_line = on,
                Some('x') => self.flags.comments = on,
                Some('d') => self.flags.unix_lines = on,
                Some('U') => (self.flags.unicode, self.flags.unicode_case) = (on, on),
                Some(')') => return Ok(()),
                Some(':') => {
                    self.outer.push(before);
                    self.out.push_str("(?:");
                    return Ok(());
                }
                Some(c) => return Err(format!("unknown flag `{c}`")),
                None => return Err("a `(?` is not closed".into()),
            }
        }
    }

    /// Writes a literal character; if case is ignored, one that matches both cases.
    fn literal(&mut self, c: char) {
        if self.flags.ignore_case && (c.is_ascii_alphabetic() || self.flags.unicode_case) {
            let mut one = String::new();
            push_literal(&mut one, c);
            if self.flags.unicode_case {
                self.out.push_str(&format!("(?i:{one})"));
            } else {
                self.out.push_str(&format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase()));
            }
        } else {
            push_literal(&mut self.out, c);
        }
    }

    /// Rewrites an escape outside a class; the backslash is already consumed.
    fn escape(&mut self) -> Result<(), String> {
        let c = self.next().ok_or("a backslash is the last character")?;
        match c {
            'b' | 'B' | 'A' | 'z' | 'G' => self.out.push_str(&format!("\\{c}")),
            'Z' if self.whole => self.out.push_str(r"\z"),
            'Z' => self.out.push_str(END),
            'R' => self.out.push_str(&format!(r"(?:\r\n|[{VERTICAL}])")),
            '1'..='9' => self.back_reference(c),
            'k' => {
                self.out.push_str("\\k");
                let open = self.next();
                if open != Some('<') {
                    return Err("`\\k` must be followed by `<name>`".into());
                }
                self.out.push('<');
                self.group_name()?;
            }
            'Q' => self.quoted(),
            _ => match self.set(c)? {
                Some(set) => self.out.push_str(&set),
                None => {
                    let c = self.escaped_char(c)?;
                    self.literal(c);
                }
            },
        }
        Ok(())
    }

    fn back_reference(&mut self, first: char) {
        let mut group = first.to_digit(10).unwrap_or(0);
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            if group * 10 + digit > self.groups {
                break;
            }
            group = group * 10 + digit;
            self.at += 1;
        }
        let case = if self.flags.ignore_case { "i" } else { "" };
        self.out.push_str(&format!("(?{case}:\\{group})"));
    }

    /// Writes the characters between `\Q` and `\E` as literals.
    fn quoted(&mut self) {
        while self.at < self.chars.len() {
            if self.rest_starts_with("\\E") {
                self.at += 2;
                return;
            }
            self.literal(self.chars[self.at]);
            self.at += 1;
        }
    }

    /// Returns the class that an escape stands for, or `None` if the escape is a single character.
    pub(in crate::functions) fn set(&mut self, c: char) -> Result<Option<String>, String> {
        let inner = match c.to_ascii_lowercase() {
            'd' | 'w' | 's' if self.flags.unicode => return Ok(Some(format!("[\\{c}]"))),
            'd' => "0-9".to_owned(),
            'w' => WORD.to_owned(),
            's' => SPACE.to_owned(),
            'h' => HORIZONTAL.to_owned(),
            'v' => VERTICAL.to_owned(),
            'p' => self.property()?,
            _ => return Ok(None),
        };
        let not = if c.is_ascii_uppercase() { "^" } else { "" };
        Ok(Some(format!("[{not}{inner}]")))
    }

    /// Parses the property after `\p`; returns the content of the equivalent class.
    fn property(&mut self) -> Result<String, String> {
        let name: String = match self.next() {
            Some('{') => self.braced()?,
            Some(c) => c.to_string(),
            None => return Err("`\\p` must be followed by a property".into()),
        };
        let ascii = match name.as_str() {
            "Lower" => "a-z",
            "Upper" => "A-Z",
            "ASCII" => r"\x00-\x7F",
            "Alpha" => "a-zA-Z",
            "Digit" => "0-9",
            "Alnum" => "a-zA-Z0-9",
            "Punct" => r"!-/:-@\[-`{-\~",
            "Graph" => r"!-\~",
            "Print" => r" -\~",
            "Blank" => r" \t",
            "Cntrl" => r"\x00-\x1F\x7F",
            "XDigit" => "0-9a-fA-F",
            "Space" => SPACE,
            "javaLowerCase" => r"\p{Lowercase}",
            "javaUpperCase" => r"\p{Uppercase}",
            "javaWhitespace" => r"\s",
            "L1" => r"\x00-\xFF",
            _ => {
                let known = name.strip_prefix("Is").unwrap_or(&name);
                let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '=' | ' ');
                if known.is_empty() || !known.chars().all(usable) || known.starts_with("In") {
                    return Err(format!("unknown property `{name}`"));
                }
                return Ok(format!(r"\p{{{known}}}"));
            }
        };
        Ok(ascii.to_owned())
    }

    /// Returns the character that an escape stands for.
    pub(in crate::functions) fn escaped_char(&mut self, c: char) -> Result<char, String> {
        Ok(match c {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'f' => '\u{C}',
            'a' => '\u{7}',
            'e' => '\u{1B}',
            '0' => self.octal()?,
            'x' if self.peek() == Some('{') => {
                self.at += 1;
                code(&self.braced()?)?
            }
            'x' => code(&self.hex_digits(2)?)?,
            'u' => self.utf16()?,
            'c' => {
                let letter = self.next().ok_or("`\\c` must be followed by a character")?;
                char::from_u32(letter as u32 ^ 64).ok_or("`\\c` must be followed by a letter")?
            }
            c if c.is_ascii_alphabetic() => return Err(format!("unknown escape `\\{c}`")),
            c => c,
        })
    }

    /// Consumes the characters up to the next `}` and returns them without it.
    fn braced(&mut self) -> Result<String, String> {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|c| *c == '}').ok_or("a `{` is not closed")?;
        self.at += length + 1;
        Ok(rest[..length].iter().collect())
    }

    /// Consumes `count` hexadecimal digits.
    fn hex_digits(&mut self, count: usize) -> Result<String, String> {
        let digits = self.chars.get(self.at..self.at + count).unwrap_or_default();
        if digits.is_empty() || !digits.iter().all(char::is_ascii_hexdigit) {
            return Err(format!("the escape must be followed by {count} hexadecimal digits"));
        }
        self.at += count;
        Ok(digits.iter().collect())
    }

    /// Parses up to three octal digits, at most 377.
    fn octal(&mut self) -> Result<char, String> {
        let mut value = None;
        for _ in 0..3 {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
            let next = value.unwrap_or(0) * 8 + digit;
            if next > 0o377 {
                break;
            }
            value = Some(next);
            self.at += 1;
        }
        value.and_then(char::from_u32).ok_or_else(|| "`\\0` must be followed by octal digits".into())
    }

    /// Parses four hexadecimal digits. Two such escapes may form a surrogate pair.
    fn utf16(&mut self) -> Result<char, String> {
        let unit = |digits: &str| u16::from_str_radix(digits, 16).map_err(|_| bad_code(digits));
        let first = unit(&self.hex_digits(4)?)?;
        let mut units = vec![first];
        if (0xD800..0xDC00).contains(&first) && self.rest_starts_with("\\u") {
            self.at += 2;
            units.push(unit(&self.hex_digits(4)?)?);
        }
        let char = String::from_utf16(&units).ok().and_then(|s| s.chars().next());
        char.ok_or_else(|| bad_code(&format!("{first:x}")))
    }
}

fn code(digits: &str) -> Result<char, String> {
    u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).ok_or_else(|| bad_code(digits))
}

fn bad_code(digits: &str) -> String {
    format!("`{digits}` is not the code of a character")
}

pub(in crate::functions) fn push_literal(out: &mut String, c: char) {
    if r"\.+*?()|[]{}^$#&-~".contains(c) {
        out.push('\\');
        out.push(c);
    } else {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
}
