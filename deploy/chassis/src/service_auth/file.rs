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

const SHAPE: &str =
    r#"{"service", "sha256" or "token" or "certificate", "scopes": [text], "rpcs": [text], "expiresAt"}"#;

/// What is wrong is said by the entry's number: what stands in it may be a token, wherever it stands.
pub(super) fn parse(text: &[u8]) -> Result<Grants, String> {
    let entries: Vec<Entry> = credentials::entries(text, SHAPE)?;
    if entries.is_empty() {
        return Err("it has no entry, so nobody could call".to_owned());
    }
    let mut grants: Vec<CallerGrant> = Vec::with_capacity(entries.len());
    for (place, entry) in entries.into_iter().enumerate() {
        let name = format!("entry {}", place + 1);
        let grant = read(entry).map_err(|why| format!("{name}: {why}"))?;
        if let Some(twin) = grants.iter().position(|other| other.proof == grant.proof) {
            let what = if matches!(grant.proof, Proof::Token(_)) { "token" } else { "certificate" };
            return Err(format!("{name}: its {what} is that of entry {} too", twin + 1));
        }
        grants.push(grant);
    }
    Ok(grants.into())
}

fn read(entry: Entry) -> Result<CallerGrant, String> {
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
        scopes: each("scope", &entry.scopes, ScopePattern::parse)?,
        rpcs: each("rpc", &entry.rpcs, RpcPattern::parse)?,
        anonymous: false,
    };
    Ok(CallerGrant {
        proof,
        expires_at: expires_at
            .map_err(|_| "expiresAt is not an RFC 3339 timestamp such as 2030-01-02T03:04:05Z".to_owned())?,
        grant: Arc::new(grant),
    })
}

fn each<T>(kind: &str, texts: &[String], parse: impl Fn(&str) -> Result<T, &'static str>) -> Result<Vec<T>, String> {
    let numbered = texts.iter().enumerate();
    numbered.map(|(place, text)| parse(text).map_err(|why| format!("{kind} {} {why}", place + 1))).collect()
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
            ("[", "entry 1: it is not {"),
            (
                r#"[{"service":"a","service":"b","token":"t","scopes":[],"rpcs":[]}]"#,
                "entry 1: duplicate field `service`",
            ),
            (
                r#"[{"service":"a","token":"t","scopes":[],"rpcs":[],"scopes":["*"]}]"#,
                "entry 1: duplicate field `scopes`",
            ),
            (r#"[7]"#, "entry 1: "),
            (r#"[{"service":"a","scopes":[],"rpcs":[]}]"#, "entry 1: sha256, token or certificate is missing"),
            (
                r#"[{"service":"a","token":"t","sha256":"00","scopes":[],"rpcs":[]}]"#,
                "entry 1: give one of sha256, token and certificate",
            ),
            (
                r#"[{"service":"a","sha256":"00","scopes":[],"rpcs":[]}]"#,
                "entry 1: sha256 is not 64 hexadecimal digits",
            ),
            (r#"[{"service":"a","token":"t","scopes":[],"rpcs":[],"expires":"x"}]"#, "entry 1: it is not {"),
            (r#"[{"service":"a","token":"t","rpcs":[]}]"#, "entry 1: missing field `scopes` (line 1, column "),
            (r#"[{"service":"a","token":"t","scopes":[]}]"#, "entry 1: missing field `rpcs` (line 1, column "),
            (r#"[{"token":"t","scopes":[],"rpcs":[]}]"#, "entry 1: missing field `service`"),
            (r#"[{"service":"","token":"t","scopes":[],"rpcs":[]}]"#, "service is empty"),
            (r#"[{"service":"a","token":"","scopes":[],"rpcs":[]}]"#, "token is empty"),
            (r#"[{"service":"a","token":"t t","scopes":[],"rpcs":[]}]"#, "visible ASCII"),
            (
                r#"[{"service":"a","token":"t","scopes":["x*y"],"rpcs":[]}]"#,
                "entry 1: scope 1 has a `*` before its end",
            ),
            (r#"[{"service":"a","token":"t","scopes":[],"rpcs":["Res*"]}]"#, "entry 1: rpc 1 is none of *, Method"),
            (
                r#"[{"service":"a","token":"t","scopes":[],"rpcs":[],"expiresAt":"soon"}]"#,
                "entry 1: expiresAt is not an RFC 3339 timestamp",
            ),
            (
                r#"[{"service":"a","token":"t","scopes":[],"rpcs":[]},{"service":"b","token":"t","scopes":[],"rpcs":[]}]"#,
                "entry 2: its token is that of entry 1 too",
            ),
        ];
        for (text, expected) in table {
            let why = parse(text.as_bytes()).err().unwrap_or_else(|| panic!("accepted: {text}"));
            assert!(why.contains(expected), "{text}\n  {why}");
            assert!(!why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn nothing_that_stands_in_the_file_is_repeated() {
        // Each member in turn has a value that does not belong there, and one that nobody knows.
        let good = [
            ("service", r#""a""#),
            ("token", r#""t""#),
            ("scopes", r#"["*"]"#),
            ("rpcs", r#"["*"]"#),
            ("expiresAt", r#""2030-01-01T00:00:00Z""#),
        ];
        let file = |members: &[(&str, &str)]| {
            let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            format!("[{{{}}}]", members.join(","))
        };
        assert!(parse(file(&good).as_bytes()).is_ok());
        let values = [
            r#""st SECRET*SECRET""#,
            "4815162342",
            "[4815162342]",
            r#"["st SECRET*SECRET"]"#,
            r#"[["SECRET"]]"#,
            r#"{"SECRET":4815162342}"#,
            "true",
        ];
        let mut files = vec![
            r#"["st_SECRET"]"#.to_owned(),
            r#""st_SECRET""#.to_owned(),
            "st_SECRET".to_owned(),
            "[4815162342]".to_owned(),
            r#"[["st_SECRET",null,"st_SECRET",null,["*"],["*"],null]]"#.to_owned(),
            file(&[("service", r#""SECRET""#), ("sha256", r#""SECRET""#), ("scopes", "[]"), ("rpcs", "[]")]),
            file(&[("service", r#""SECRET""#), ("scopes", "[]"), ("rpcs", "[]")]),
        ];
        for (place, (name, _)) in good.iter().enumerate() {
            for value in values {
                let mut members = good;
                members[place] = (name, value);
                files.push(file(&members));
            }
            let mut members = good;
            members[place] = ("st_SECRET", r#""SECRET""#);
            files.push(file(&members));
            files.push(file(&[&good[..], &[(name, r#""SECRET""#)]].concat()));
        }
        let mut refused = 0;
        for text in files {
            let Err(why) = parse(text.as_bytes()) else { continue };
            refused += 1;
            assert!(!why.contains("SECRET") && !why.contains("4815162342"), "{text}: {why}");
        }
        // Only the name may be any text.
        assert_eq!(refused, 7 + 5 * 9 - 1, "a file that must be refused was taken");
    }

    #[test]
    fn the_published_example_can_be_used() {
        const PAGE: &str = include_str!("../../../../docs/security.md");
        let examples = PAGE.split("```json").skip(1).filter_map(|rest| rest.split("```").next());
        let mine: Vec<&str> = examples.filter(|example| example.contains("\"service\"")).collect();
        assert_eq!(mine.len(), 1);
        let grants = parse(mine[0].as_bytes()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((grants.tokens.len(), grants.certificates.len()), (2, 2));
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
