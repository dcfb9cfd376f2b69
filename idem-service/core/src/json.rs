//! JSON in one canonical form, so that two bodies that mean the same have the same bytes.
//!
//! One pass, no value tree: members are written as they come and put in order when their object ends. The form is fixed for
//! fingerprint version 1: members sorted by their canonical name, no white space, the shortest escapes, and every number as its
//! significant digits and a power of ten (`1`, `1.0` and `1e0` are all `1e0`; zero is `0`). Numbers are never expanded, so
//! `1e999999999` costs nothing, and never rounded.

use std::ops::Range;

mod number;

pub use number::integer;

/// How deep arrays and objects may nest; deeper bodies are refused rather than risk the stack.
pub const DEPTH_MAX: usize = 64;

/// Why a text is not JSON that has one meaning.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at this byte.
    #[error("the body is not valid JSON at byte {0}")]
    Syntax(usize),
    /// The text ends too early.
    #[error("the body is not valid JSON: it ends too early")]
    Truncated,
    /// Bytes that are not UTF-8.
    #[error("the body is not valid UTF-8 at byte {0}")]
    NotUtf8(usize),
    /// A member name stands twice in one object; readers disagree on which one counts.
    #[error("the body has a duplicate member name before byte {0}")]
    DuplicateMember(usize),
    /// `\ud800` without its other half has no meaning.
    #[error("the body has a lone surrogate at byte {0}")]
    LoneSurrogate(usize),
    /// Deeper than [`DEPTH_MAX`].
    #[error("the body nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

/// The canonical form of a JSON text. An empty text is `{}`.
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    if text.is_empty() {
        return Ok(b"{}".to_vec());
    }
    std::str::from_utf8(text).map_err(|e| JsonError::NotUtf8(e.valid_up_to()))?;
    let mut reader = Reader { text, at: 0, out: Vec::with_capacity(text.len()), spare: Vec::new() };
    reader.skip_space();
    reader.value(0)?;
    reader.skip_space();
    if reader.at == text.len() { Ok(reader.out) } else { Err(JsonError::Syntax(reader.at)) }
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    out: Vec<u8>,
    /// Where members are put in order; kept for reuse.
    spare: Vec<u8>,
}

/// Where a member stands in the output.
struct Member {
    name: Range<usize>,
    whole: Range<usize>,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<(), JsonError> {
        match self.peek()? {
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => self.string(),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(JsonError::Syntax(self.at)),
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), JsonError> {
        self.open(depth, b'{')?;
        let start = self.out.len();
        let mut members: Vec<Member> = Vec::new();
        if self.take_if(b'}') {
            self.out.push(b'}');
            return Ok(());
        }
        loop {
            let name_start = self.out.len();
            if self.peek()? != b'"' {
                return Err(JsonError::Syntax(self.at));
            }
            self.string()?;
            let name = name_start..self.out.len();
            self.skip_space();
            self.expect(b':')?;
            self.out.push(b':');
            self.skip_space();
            self.value(depth)?;
            members.push(Member { name, whole: name_start..self.out.len() });
            self.out.push(b',');
            self.skip_space();
            if self.take_if(b'}') {
                break;
            }
            self.expect(b',')?;
            self.skip_space();
        }
        self.order(start, members)?;
        // The last member's comma becomes the end.
        self.out.pop();
        self.out.push(b'}');
        Ok(())
    }

    /// Puts the members written since `start` in the order of their names; refuses a name that stands twice.
    fn order(&mut self, start: usize, mut members: Vec<Member>) -> Result<(), JsonError> {
        let out = &self.out;
        let name = |m: &Member| &out[m.name.clone()];
        if members.is_sorted_by(|a, b| name(a) < name(b)) {
            return Ok(());
        }
        members.sort_by(|a, b| name(a).cmp(name(b)));
        if members.windows(2).any(|pair| name(&pair[0]) == name(&pair[1])) {
            return Err(JsonError::DuplicateMember(self.at));
        }
        self.spare.clear();
        for member in &members {
            self.spare.extend_from_slice(&self.out[member.whole.clone()]);
            self.spare.push(b',');
        }
        self.out.truncate(start);
        self.out.extend_from_slice(&self.spare);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonError> {
        self.open(depth, b'[')?;
        if self.take_if(b']') {
            self.out.push(b']');
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.skip_space();
            if self.take_if(b']') {
                self.out.push(b']');
                return Ok(());
            }
            self.expect(b',')?;
            self.out.push(b',');
            self.skip_space();
        }
    }

    fn open(&mut self, depth: usize, bracket: u8) -> Result<(), JsonError> {
        if depth > DEPTH_MAX {
            return Err(JsonError::TooDeep);
        }
        self.at += 1;
        self.out.push(bracket);
        self.skip_space();
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        self.out.push(b'"');
        loop {
            let run = self.at;
            while self.text.get(self.at).is_some_and(|b| !matches!(b, b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            self.out.extend_from_slice(&self.text[run..self.at]);
            match self.peek()? {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => return Err(JsonError::Syntax(self.at)),
            }
        }
        self.at += 1;
        self.out.push(b'"');
        Ok(())
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.at += 1;
        let char = match self.peek()? {
            b'u' => return self.unicode_escape(start),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            byte @ (b'"' | b'\\' | b'/') => char::from(byte),
            _ => return Err(JsonError::Syntax(self.at)),
        };
        self.at += 1;
        self.push_char(char);
        Ok(())
    }

    fn unicode_escape(&mut self, start: usize) -> Result<(), JsonError> {
        let first = self.hex4()?;
        let code = match first {
            0xd800..=0xdbff => {
                if self.text.get(self.at..self.at + 2) != Some(b"\\u") {
                    return Err(JsonError::LoneSurrogate(start));
                }
                self.at += 1;
                match self.hex4()? {
                    second @ 0xdc00..=0xdfff => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err(JsonError::LoneSurrogate(start)),
                }
            }
            code => code,
        };
        let char = char::from_u32(code).ok_or(JsonError::LoneSurrogate(start))?;
        self.push_char(char);
        Ok(())
    }

    /// Reads `uXXXX`.
    fn hex4(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.peek()?).to_digit(16).ok_or(JsonError::Syntax(self.at))?;
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn push_char(&mut self, char: char) {
        match char {
            '"' | '\\' => self.out.extend_from_slice(&[b'\\', char as u8]),
            '\0'..='\u{1f}' => self.out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes()),
            _ => self.out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(JsonError::Syntax(self.at));
        }
        self.at += word.len();
        self.out.extend_from_slice(word);
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let number = number::read(&self.text[self.at..]).map_err(|at| match self.at + at {
            end if end == self.text.len() => JsonError::Truncated,
            at => JsonError::Syntax(at),
        })?;
        self.at += number.len;
        number.write(&mut self.out);
        Ok(())
    }

    fn skip_space(&mut self) {
        while self.text.get(self.at).is_some_and(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, JsonError> {
        self.text.get(self.at).copied().ok_or(JsonError::Truncated)
    }

    fn take_if(&mut self, byte: u8) -> bool {
        let is_there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.peek()? != byte {
            return Err(JsonError::Syntax(self.at));
        }
        self.at += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canon(text: &str) -> Result<String, JsonError> {
        canonical(text.as_bytes()).map(|c| String::from_utf8(c).unwrap())
    }

    #[test]
    fn texts_that_mean_the_same_have_one_form() {
        let groups: &[&[&str]] = &[
            &["", "{}", " {\n} "],
            &[
                r#"{"a":1,"b":[true,null]}"#,
                r#" { "b" : [ true , null ] , "a" : 1.0 } "#,
                r#"{"\u0061":1e0,"b":[true,null]}"#,
            ],
            &["1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0", "1.000"],
            &["0", "-0", "0.0", "-0e99", "0e-5"],
            &["1e999999999", "10e999999998", "0.1e1000000000"],
            &["1e99999999999999999999999999", "10e99999999999999999999999998"],
            &["1e-10000000000000000000000", "0.1e-9999999999999999999999"],
            &[r#""é\n\/""#, r#""\u00e9\u000a/""#],
            &[r#""🎟""#, r#""\ud83c\udf9f""#],
        ];
        for group in groups {
            let first = canon(group[0]).unwrap();
            for text in *group {
                assert_eq!(canon(text).as_ref(), Ok(&first), "{text}");
                assert_eq!(canon(&first), Ok(first.clone()), "the form of {first} is itself");
            }
        }
    }

    #[test]
    fn texts_that_differ_in_meaning_keep_different_forms() {
        let texts = [
            "{}",
            "[]",
            "null",
            r#"{"a":null}"#,
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            "[1,2]",
            "[2,1]",
            "9007199254740993",
            "9007199254740992",
            "1e1",
            "1e-1",
            "-1",
            "1",
            r#""1""#,
            r#""1 ""#,
            "true",
            "false",
            "0",
            "[[]]",
            "[{}]",
            "1e99999999999999999999999999",
            "1e99999999999999999999999998",
            "123456789012345678901234567890",
        ];
        let forms: std::collections::BTreeSet<_> = texts.iter().map(|t| canon(t).unwrap()).collect();
        assert_eq!(forms.len(), texts.len());
    }

    #[test]
    fn texts_without_one_meaning_are_refused() {
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(canon(&deep(64)).is_ok());
        let cases = [
            (deep(65), JsonError::TooDeep),
            (r#"{"a":1,"a":2}"#.into(), JsonError::DuplicateMember(13)),
            (r#"{"b":0,"a":1,"\u0061":2}"#.into(), JsonError::DuplicateMember(24)),
            (r#""\ud800""#.into(), JsonError::LoneSurrogate(1)),
            (r#""\udc00""#.into(), JsonError::LoneSurrogate(1)),
            (r#""\ud800\u0041""#.into(), JsonError::LoneSurrogate(1)),
            (" ".into(), JsonError::Truncated),
            ("{".into(), JsonError::Truncated),
            ("[1,]".into(), JsonError::Syntax(3)),
            ("{\"a\":1,}".into(), JsonError::Syntax(7)),
            ("01".into(), JsonError::Syntax(1)),
            ("1.".into(), JsonError::Truncated),
            ("1.x".into(), JsonError::Syntax(2)),
            ("-".into(), JsonError::Truncated),
            ("+1".into(), JsonError::Syntax(0)),
            ("1e".into(), JsonError::Truncated),
            ("\"a\nb\"".into(), JsonError::Syntax(2)),
            ("nul".into(), JsonError::Syntax(0)),
            ("{} {}".into(), JsonError::Syntax(3)),
            ("\u{feff}{}".into(), JsonError::Syntax(0)),
            ("NaN".into(), JsonError::Syntax(0)),
        ];
        for (text, error) in cases {
            assert_eq!(canon(&text), Err(error), "{text}");
        }
        assert_eq!(canonical(b"\"\xff\""), Err(JsonError::NotUtf8(1)));
    }
}
