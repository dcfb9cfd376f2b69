//! The `--api-keys` file.

use super::{ApiKeyEntry, ApiKeySecret};
use chassis::secrets;
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

const SHAPE: &str = r#"{"tenant", "sha256" or "key", "operator", "expiresAt"}"#;

/// What is wrong is said by the entry's number: what stands in it may be a key, wherever it stands.
pub(super) fn parse(text: &[u8]) -> Result<Vec<ApiKeyEntry>, String> {
    let numbered = secrets::entries(text, SHAPE)?.into_iter().enumerate();
    numbered.map(|(place, it)| entry(it).map_err(|why| format!("entry {}: {why}", place + 1))).collect()
}

fn entry(entry: Entry) -> Result<ApiKeyEntry, String> {
    let secret = match (entry.sha256, entry.key) {
        (Some(digest), None) => ApiKeySecret::Sha256(digest_from_hex(&digest)?),
        (None, Some(key)) => ApiKeySecret::Key(key),
        (Some(_), Some(_)) => return Err("give sha256 or key, not both".to_owned()),
        (None, None) => return Err("sha256 or key is missing".to_owned()),
    };
    let expires_at = entry.expires_at.as_deref().map(chassis::clock::parse_rfc3339).transpose();
    let expires_at = expires_at.map_err(|_| "expiresAt is not an RFC 3339 timestamp such as 2030-01-02T03:04:05Z")?;
    Ok(ApiKeyEntry { tenant: entry.tenant, secret, operator: entry.operator, expires_at })
}

fn digest_from_hex(text: &str) -> Result<[u8; 32], String> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).map_err(|_| "sha256 is not 64 hexadecimal digits".to_owned())?;
    Ok(digest)
}
