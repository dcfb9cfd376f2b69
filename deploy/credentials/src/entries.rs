//! JSON files with secrets: an array of entries. What is wrong is said by its place, never by what stands there.

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use std::{fmt, marker::PhantomData};

/// The entries of a file. `shape` says what one looks like: `{"id", "key"}`.
///
/// A member that stands twice or is not known, a value of another type and an entry that is no object are refused, with the number of
/// the entry, line and column.
pub fn entries<T: DeserializeOwned>(text: &[u8], shape: &str) -> Result<Vec<T>, String> {
    if text.trim_ascii().is_empty() {
        return Err("the file is empty".to_owned());
    }
    let mut begun = 0;
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = json.deserialize_seq(Entries { begun: &mut begun, entry: PhantomData });
    read.and_then(|entries| json.end().map(|()| entries)).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        match (begun, said(&error)) {
            (0, _) => format!("it is not a JSON array of {shape} (line {line}, column {column})"),
            (entry, Some(what)) => format!("entry {entry}: {what} (line {line}, column {column})"),
            (entry, None) => format!("entry {entry}: it is not {shape} (line {line}, column {column})"),
        }
    })
}

/// What of serde's own sentence may be repeated: the two that name a member of ours. Every other one may quote what it has met, and that
/// may be a secret.
fn said(error: &serde_json::Error) -> Option<String> {
    let sentence = error.to_string();
    let is_ours = ["missing field `", "duplicate field `"].iter().any(|it| sentence.starts_with(it));
    let end = sentence.rfind(" at line ")?;
    is_ours.then(|| sentence[..end].to_owned())
}

struct Entries<'n, T> {
    /// How many entries have begun.
    begun: &'n mut usize,
    entry: PhantomData<T>,
}

/// One entry: an object. A struct alone would take an array of its members too.
struct Entry<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for Entries<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut entries = Vec::new();
        loop {
            *self.begun = entries.len() + 1;
            match seq.next_element_seed(Entry(PhantomData))? {
                Some(entry) => entries.push(entry),
                None => return Ok(entries),
            }
        }
    }
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Entry<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for Entry<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only whether it can be read counts")]
    struct Pair {
        id: String,
        key: Option<String>,
    }

    fn read(text: &str) -> Result<usize, String> {
        entries::<Pair>(text.as_bytes(), "{\"id\", \"key\"}").map(|entries| entries.len())
    }

    #[test]
    fn what_is_wrong_is_said_by_its_place() {
        assert_eq!(read(r#" [{"id":"a"}, {"id":"b","key":"k"}] "#), Ok(2));
        assert_eq!(read("[]"), Ok(0));
        let table = [
            ("", "the file is empty"),
            (" \n", "the file is empty"),
            ("{}", r#"it is not a JSON array of {"id", "key"} (line 1, column "#),
            ("SECRET", r#"it is not a JSON array of {"id", "key"} (line 1, column 1)"#),
            ("[{\"id\":\"a\"},\n {\"key\":\"k\"}]", "entry 2: missing field `id` (line 2, column "),
            (r#"[{"id":"a","id":"b"}]"#, "entry 1: duplicate field `id` (line 1, column "),
            (r#"[{"id":"a"}"#, "entry 2: it is not {"),
            (r#"[{"id":"a"}] x"#, "(line 1, column "),
        ];
        for (text, why) in table {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    #[test]
    fn nothing_that_stands_in_the_file_is_repeated() {
        for text in [
            r#""SECRET""#,
            "SECRET",
            r#"{"SECRET":"SECRET"}"#,
            r#"["SECRET"]"#,
            r#"[["SECRET","SECRET"]]"#,
            r#"[["a",null]]"#,
            r#"[{"SECRET":1}]"#,
            r#"[{"id":"a","SECRET":"missing field `SECRET`"}]"#,
            r#"[{"id":"a","missing field `SECRET` at line ":1}]"#,
            r#"[{"id":["SECRET"]}]"#,
            r#"[{"id":{"SECRET":1}}]"#,
            r#"[{"id":"a","key":"SECRET" SECRET}]"#,
            r#"[{"id":"a","key":"SECRET\u0000SECRET"#,
            "[4815162342]",
            "[-4815162342.5]",
            r#"[{"id":4815162342}]"#,
            r#"[{"id":"a","key":4815162342}]"#,
            r#"[{"id":"a"}]4815162342"#,
            r#"[{"id":"a"},"SECRET"]"#,
        ] {
            let refused = read(text).unwrap_err();
            assert!(!refused.contains("SECRET") && !refused.contains("4815162342"), "{text}: {refused}");
            assert!(refused.contains("(line 1, column "), "{text}: {refused}");
        }
    }
}
