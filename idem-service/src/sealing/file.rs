//! The `--encryption-keys` file.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chassis::secrets;
use serde::Deserialize;

/// An id stands in every row that its key has sealed.
const ID_BYTES_MAX: usize = 40;
const KEY_BYTES: usize = 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    key: String,
}

/// The keys in their order, each with its id. What is wrong is said without a word of a key.
pub(super) fn parse(text: &[u8]) -> Result<Vec<(String, [u8; KEY_BYTES])>, String> {
    let entries: Vec<Entry> = secrets::entries(text, r#"{"id", "key"}"#)?;
    if entries.is_empty() {
        return Err("there is no entry".to_owned());
    }
    let mut keys: Vec<(String, [u8; KEY_BYTES])> = Vec::with_capacity(entries.len());
    for (place, entry) in entries.into_iter().enumerate() {
        let key = key_of(&entry).map_err(|why| format!("entry {}: {why}", place + 1))?;
        if let Some(twin) = keys.iter().position(|(id, _)| *id == entry.id) {
            return Err(format!("entry {}: its id is that of entry {} too", place + 1, twin + 1));
        }
        keys.push((entry.id, key));
    }
    Ok(keys)
}

fn key_of(entry: &Entry) -> Result<[u8; KEY_BYTES], String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !(1..=ID_BYTES_MAX).contains(&entry.id.len()) || !entry.id.bytes().all(is_plain) {
        return Err(format!("id must be 1 to {ID_BYTES_MAX} letters, digits, dots, dashes or underscores"));
    }
    let key = STANDARD.decode(&entry.key).map_err(|_| "key is not base64".to_owned())?;
    key.try_into()
        .map_err(|_| format!("key must be {KEY_BYTES} bytes in base64, as `openssl rand -base64 32` makes them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_can_be_used() {
        const PAGE: &str = include_str!("../../../docs/security.md");
        let examples = PAGE.split("```json").skip(1).filter_map(|rest| rest.split("```").next());
        let mine: Vec<&str> = examples.filter(|example| example.contains("\"id\"")).collect();
        assert_eq!(mine.len(), 1);
        // Keys that everybody can read would be used by somebody: the page says how to make them instead.
        let key = STANDARD.encode([7; 32]);
        let example = mine[0].replace("<openssl rand -base64 32>", &key).replace('…', &key);
        assert_eq!(parse(example.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_without_a_word_of_a_key() {
        let key = STANDARD.encode([7; 32]);
        assert_eq!(
            parse(format!(r#"[{{"id":"2026-11","key":"{key}"}}]"#).as_bytes()).unwrap(),
            [("2026-11".to_owned(), [7; 32])]
        );
        let short = STANDARD.encode([7; 31]);
        let table = [
            ("".to_owned(), "the file is empty"),
            ("[]".to_owned(), "there is no entry"),
            (format!(r#"{{"id":"a","key":"{key}"}}"#), "not a JSON array"),
            (format!(r#"["{key}"]"#), "entry 1: it is not {"),
            (format!(r#"[{{"id":"a","key":"{key}","active":true}}]"#), "entry 1: it is not {"),
            (format!(r#"[["a","{key}"]]"#), "entry 1: it is not {"),
            (format!(r#"[{{"id":"a","{key}":1}}]"#), "entry 1: it is not {"),
            (format!(r#"[{{"id":"a","key":["{key}"]}}]"#), "entry 1: it is not {"),
            (format!(r#"[{{"id":"{key}"}}]"#), "entry 1: missing field `key`"),
            (format!(r#"[{{"id":"a","key":"{key}","key":"{key}"}}]"#), "entry 1: duplicate field `key`"),
            (format!("\"{key}\""), "not a JSON array"),
            (key.clone(), "not a JSON array"),
            (format!(r#"[{{"id":"","key":"{key}"}}]"#), "entry 1: id must be"),
            (format!(r#"[{{"id":"a\"b","key":"{key}"}}]"#), "entry 1: id must be"),
            (format!(r#"[{{"id":"a","key":"{short}"}}]"#), "entry 1: key must be 32 bytes"),
            (r#"[{"id":"a","key":"*"}]"#.to_owned(), "entry 1: key is not base64"),
            (
                format!(r#"[{{"id":"a","key":"{key}"}},{{"id":"a","key":"{key}"}}]"#),
                "entry 2: its id is that of entry 1 too",
            ),
        ];
        for (text, why) in table {
            let refused = parse(text.as_bytes()).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
            assert!(!refused.contains(&key) && !refused.contains(&short), "{refused}");
        }
    }
}
