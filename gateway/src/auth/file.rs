//! The `--api-keys` file.

use super::{ApiKeyEntry, ApiKeySecret};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    tenant: String,
    sha256: Option<String>,
    key: Option<String>,
    #[serde(default)]
    operator: bool,
    expires_at: Option<String>,
}

pub(super) fn parse(text: &[u8]) -> Result<Vec<ApiKeyEntry>, String> {
    if text.trim_ascii().is_empty() {
        return Err("the file is empty".to_owned());
    }
    let entries: Vec<serde_json::Value> =
        serde_json::from_slice(text).map_err(|error| format!("it is not a JSON array of entries ({error})"))?;
    let numbered = entries.into_iter().enumerate();
    numbered.map(|(place, value)| entry(value).map_err(|why| format!("entry {}: {why}", place + 1))).collect()
}

fn entry(value: serde_json::Value) -> Result<ApiKeyEntry, String> {
    let entry: Entry = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let secret = match (entry.sha256, entry.key) {
        (Some(digest), None) => ApiKeySecret::Sha256(digest_from_hex(&digest)?),
        (None, Some(key)) => ApiKeySecret::Key(key),
        (Some(_), Some(_)) => return Err("give sha256 or key, not both".to_owned()),
        (None, None) => return Err("sha256 or key is missing".to_owned()),
    };
    let expires_at = entry.expires_at.as_deref().map(chassis::clock::parse_rfc3339).transpose();
    let expires_at = expires_at.map_err(|error| format!("expiresAt {error}"))?;
    Ok(ApiKeyEntry { tenant: entry.tenant, secret, operator: entry.operator, expires_at })
}

fn digest_from_hex(text: &str) -> Result<[u8; 32], String> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).map_err(|_| "sha256 is not 64 hexadecimal digits".to_owned())?;
    Ok(digest)
}
