//! The `--service-tokens` file.

use super::{
    TokenGrant,
    grant::{Grant, RpcPattern, ScopePattern},
};
use crate::clock;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::{fs, io, path::Path, path::PathBuf, sync::Arc};

/// A `--service-tokens` file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServiceAuthError {
    /// The file could not be read.
    #[error("cannot read the service tokens in {}", path.display())]
    Read {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file does not say what it must.
    #[error("the service tokens in {} cannot be used: {why}", path.display())]
    Content {
        /// Where it is.
        path: PathBuf,
        /// Which entry, and what is wrong with it.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    service: String,
    sha256: Option<String>,
    token: Option<String>,
    scopes: Vec<String>,
    rpcs: Vec<String>,
    expires_at: Option<String>,
}

pub(super) fn load(path: &Path) -> Result<Vec<TokenGrant>, ServiceAuthError> {
    let text = fs::read_to_string(path).map_err(|source| ServiceAuthError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|why| ServiceAuthError::Content { path: path.to_owned(), why })
}

pub(super) fn parse(text: &str) -> Result<Vec<TokenGrant>, String> {
    if text.trim().is_empty() {
        return Err("the file is empty".to_owned());
    }
    let entries: Vec<serde_json::Value> =
        serde_json::from_str(text).map_err(|error| format!("it is not a JSON array of entries ({error})"))?;
    if entries.is_empty() {
        return Err("it has no entry, so nobody could call".to_owned());
    }
    let mut grants: Vec<TokenGrant> = Vec::with_capacity(entries.len());
    for (place, value) in entries.into_iter().enumerate() {
        let name = name_of(place, &value);
        let grant = parse_entry(value).map_err(|why| format!("{name}: {why}"))?;
        if let Some(twin) = grants.iter().position(|other| other.digest == grant.digest) {
            return Err(format!("{name}: its token is that of entry {} too", twin + 1));
        }
        grants.push(grant);
    }
    Ok(grants)
}

fn name_of(place: usize, value: &serde_json::Value) -> String {
    match value.get("service").and_then(serde_json::Value::as_str) {
        Some(service) => format!("entry {} (`{service}`)", place + 1),
        None => format!("entry {}", place + 1),
    }
}

fn parse_entry(value: serde_json::Value) -> Result<TokenGrant, String> {
    let entry: Entry = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if entry.service.is_empty() {
        return Err("service is empty".to_owned());
    }
    let digest = match (&entry.sha256, &entry.token) {
        (Some(digest), None) => parse_digest(digest)?,
        (None, Some(token)) => digest_of(token)?,
        (Some(_), Some(_)) => return Err("give sha256 or token, not both".to_owned()),
        (None, None) => return Err("sha256 or token is missing".to_owned()),
    };
    let expires_at = entry.expires_at.as_deref().map(clock::parse_rfc3339).transpose();
    let grant = Grant {
        service: entry.service,
        scopes: entry.scopes.iter().map(|text| ScopePattern::parse(text)).collect::<Result<_, _>>()?,
        rpcs: entry.rpcs.iter().map(|text| RpcPattern::parse(text)).collect::<Result<_, _>>()?,
        anonymous: false,
    };
    Ok(TokenGrant {
        digest,
        expires_at: expires_at.map_err(|error| format!("expiresAt {error}"))?,
        grant: Arc::new(grant),
    })
}

fn parse_digest(text: &str) -> Result<[u8; 32], String> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).map_err(|_| "sha256 is not 64 hexadecimal digits".to_owned())?;
    Ok(digest)
}

fn digest_of(token: &str) -> Result<[u8; 32], String> {
    // Anything else could never arrive in a header.
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("token is empty or has characters other than visible ASCII".to_owned());
    }
    Ok(Sha256::digest(token).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_one_sentence_that_names_the_entry() {
        let table = [
            ("", "the file is empty"),
            ("  \n", "the file is empty"),
            ("[]", "no entry"),
            ("{}", "not a JSON array"),
            ("[", "not a JSON array"),
            (r#"[7]"#, "entry 1: "),
            (r#"[{"service":"a","scopes":[],"rpcs":[]}]"#, "entry 1 (`a`): sha256 or token is missing"),
            (
                r#"[{"service":"a","token":"t","sha256":"00","scopes":[],"rpcs":[]}]"#,
                "entry 1 (`a`): give sha256 or token, not both",
            ),
            (
                r#"[{"service":"a","sha256":"00","scopes":[],"rpcs":[]}]"#,
                "entry 1 (`a`): sha256 is not 64 hexadecimal digits",
            ),
            (
                r#"[{"service":"a","token":"t","scopes":[],"rpcs":[],"expires":"x"}]"#,
                "entry 1 (`a`): unknown field `expires`",
            ),
            (r#"[{"service":"a","token":"t","rpcs":[]}]"#, "entry 1 (`a`): missing field `scopes`"),
            (r#"[{"service":"a","token":"t","scopes":[]}]"#, "entry 1 (`a`): missing field `rpcs`"),
            (r#"[{"token":"t","scopes":[],"rpcs":[]}]"#, "entry 1: missing field `service`"),
            (r#"[{"service":"","token":"t","scopes":[],"rpcs":[]}]"#, "service is empty"),
            (r#"[{"service":"a","token":"","scopes":[],"rpcs":[]}]"#, "token is empty"),
            (r#"[{"service":"a","token":"t t","scopes":[],"rpcs":[]}]"#, "visible ASCII"),
            (r#"[{"service":"a","token":"t","scopes":["x*y"],"rpcs":[]}]"#, "scope `x*y`"),
            (r#"[{"service":"a","token":"t","scopes":[],"rpcs":["Res*"]}]"#, "rpc `Res*`"),
            (
                r#"[{"service":"a","token":"t","scopes":[],"rpcs":[],"expiresAt":"soon"}]"#,
                "expiresAt `soon` is not an RFC 3339 timestamp",
            ),
            (
                r#"[{"service":"a","token":"t","scopes":[],"rpcs":[]},{"service":"b","token":"t","scopes":[],"rpcs":[]}]"#,
                "entry 2 (`b`): its token is that of entry 1 too",
            ),
        ];
        for (text, expected) in table {
            let why = parse(text).err().unwrap_or_else(|| panic!("accepted: {text}"));
            assert!(why.contains(expected), "{text}\n  {why}");
            assert!(!why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn a_missing_file_says_where_it_should_be() {
        let error = load(Path::new("/nowhere/tokens.json")).err().unwrap();
        assert!(
            crate::process::sentence(&error).starts_with("cannot read the service tokens in /nowhere/tokens.json: ")
        );
    }

    #[test]
    fn a_file_that_is_wrong_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = load(file.path()).err().unwrap();
        assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
    }
}
