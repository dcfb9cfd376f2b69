//! The `--service-tokens` file.

use super::{
    CallerGrant, Grants, Proof,
    grant::{Grant, RpcPattern, ScopePattern},
};
use crate::clock;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    service: String,
    sha256: Option<String>,
    token: Option<String>,
    certificate: Option<String>,
    scopes: Vec<String>,
    rpcs: Vec<String>,
    expires_at: Option<String>,
}

pub(super) fn parse(text: &[u8]) -> Result<Grants, String> {
    if text.trim_ascii().is_empty() {
        return Err("the file is empty".to_owned());
    }
    let entries: Vec<serde_json::Value> =
        serde_json::from_slice(text).map_err(|error| format!("it is not a JSON array of entries ({error})"))?;
    if entries.is_empty() {
        return Err("it has no entry, so nobody could call".to_owned());
    }
    let mut grants: Vec<CallerGrant> = Vec::with_capacity(entries.len());
    for (place, value) in entries.into_iter().enumerate() {
        let name = name_of(place, &value);
        let grant = parse_entry(value).map_err(|why| format!("{name}: {why}"))?;
        if let Some(twin) = grants.iter().position(|other| other.proof == grant.proof) {
            let what = if matches!(grant.proof, Proof::Token(_)) { "token" } else { "certificate" };
            return Err(format!("{name}: its {what} is that of entry {} too", twin + 1));
        }
        grants.push(grant);
    }
    Ok(grants.into())
}

fn name_of(place: usize, value: &serde_json::Value) -> String {
    match value.get("service").and_then(serde_json::Value::as_str) {
        Some(service) => format!("entry {} (`{service}`)", place + 1),
        None => format!("entry {}", place + 1),
    }
}

fn parse_entry(value: serde_json::Value) -> Result<CallerGrant, String> {
    let entry: Entry = serde_json::from_value(value).map_err(|error| error.to_string())?;
    if entry.service.is_empty() {
        return Err("service is empty".to_owned());
    }
    let proof = match (&entry.sha256, &entry.token, entry.certificate) {
        (Some(digest), None, None) => Proof::Token(parse_digest(digest)?),
        (None, Some(token), None) => Proof::Token(digest_of(token)?),
        (None, None, Some(name)) if name.trim().is_empty() => return Err("certificate is empty".to_owned()),
        (None, None, Some(name)) => Proof::Certificate(name),
        (None, None, None) => return Err("sha256, token or certificate is missing".to_owned()),
        _ => return Err("give one of sha256, token and certificate".to_owned()),
    };
    let expires_at = entry.expires_at.as_deref().map(clock::parse_rfc3339).transpose();
    let grant = Grant {
        service: entry.service,
        scopes: entry.scopes.iter().map(|text| ScopePattern::parse(text)).collect::<Result<_, _>>()?,
        rpcs: entry.rpcs.iter().map(|text| RpcPattern::parse(text)).collect::<Result<_, _>>()?,
        anonymous: false,
    };
    Ok(CallerGrant {
        proof,
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
    use crate::service_auth::ServiceAuth;
    use std::path::Path;

    #[test]
    fn every_fault_is_one_sentence_that_names_the_entry() {
        let table = [
            ("", "the file is empty"),
            ("  \n", "the file is empty"),
            ("[]", "no entry"),
            ("{}", "not a JSON array"),
            ("[", "not a JSON array"),
            (r#"[7]"#, "entry 1: "),
            (r#"[{"service":"a","scopes":[],"rpcs":[]}]"#, "entry 1 (`a`): sha256, token or certificate is missing"),
            (
                r#"[{"service":"a","token":"t","sha256":"00","scopes":[],"rpcs":[]}]"#,
                "entry 1 (`a`): give one of sha256, token and certificate",
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
            let why = parse(text.as_bytes()).err().unwrap_or_else(|| panic!("accepted: {text}"));
            assert!(why.contains(expected), "{text}\n  {why}");
            assert!(!why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn a_missing_or_broken_file_is_named() {
        let error = ServiceAuth::load(Path::new("/nowhere/tokens.json")).err().unwrap();
        assert!(
            crate::process::sentence(&error).starts_with("cannot read the service tokens in /nowhere/tokens.json: ")
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = ServiceAuth::load(file.path()).err().unwrap();
        assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
    }
}
