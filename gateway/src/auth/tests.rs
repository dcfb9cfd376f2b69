use super::*;
use http::HeaderValue;

const KEYS: &str = r#"[
    {"tenant": "demo-a", "key": "sk_old", "expiresAt": "2030-01-01T00:00:00Z"},
    {"tenant": "demo-a", "key": "sk_new"},
    {"tenant": "demo-b", "sha256": "2BD806C97F0E00AF1A1FC3328FA763A9269723C8DB8FAC4F93AF71DB186D6E90", "operator": true}
]"#;

fn keys() -> ApiKeys {
    ApiKeys { keys: Watched::fixed(file::parse(KEYS.as_bytes()).and_then(build).unwrap()) }
}

fn ask(authorization: &[&str], now: &str) -> Result<(String, bool), Unauthenticated> {
    let headers = authorization.iter().map(|value| (AUTHORIZATION, HeaderValue::from_str(value).unwrap())).collect();
    let now = chassis::clock::parse_rfc3339(now).unwrap();
    let principal = keys().authenticate_at(&headers, || now)?;
    assert_eq!(principal.tenant.scope().as_str(), format!("rest/{}", principal.tenant.as_str()));
    Ok((principal.tenant.as_str().to_owned(), principal.is_operator))
}

#[test]
fn key_names_its_tenant() {
    type Case<'c> = (&'c [&'c str], Result<(&'c str, bool), Unauthenticated>);
    let table: [Case<'_>; 10] = [
        (&["Bearer sk_old"], Ok(("demo-a", false))),
        (&["bearer sk_new"], Ok(("demo-a", false))),
        // given by its digest, in capitals
        (&["Bearer alice"], Ok(("demo-b", true))),
        (&["Bearer  sk_new "], Ok(("demo-a", false))),
        (&[], Err(Unauthenticated::Missing)),
        (&["Bearer sk_new", "Bearer sk_new"], Err(Unauthenticated::Malformed)),
        (&["Basic sk_new"], Err(Unauthenticated::Malformed)),
        (&["Bearer "], Err(Unauthenticated::Malformed)),
        (&["sk_new"], Err(Unauthenticated::Malformed)),
        (&["Bearer sk_newer"], Err(Unauthenticated::Unknown)),
    ];
    for (authorization, expected) in table {
        let expected = expected.map(|(tenant, operator)| (tenant.to_owned(), operator));
        assert_eq!(ask(authorization, "2029-06-01T00:00:00Z"), expected, "{authorization:?}");
    }
}

#[test]
fn expiry_is_judged_at_each_request_and_leaves_the_other_key_valid() {
    assert!(ask(&["Bearer sk_old"], "2029-12-31T23:59:59.999Z").is_ok());
    assert_eq!(ask(&["Bearer sk_old"], "2030-01-01T00:00:00Z"), Err(Unauthenticated::Expired));
    assert!(ask(&["Bearer sk_new"], "2030-01-01T00:00:00Z").is_ok());
}

#[test]
fn unusable_files_are_refused_with_the_entry_and_the_reason() {
    let long = format!(r#"[{{"tenant": "{}", "key": "k"}}]"#, "t".repeat(101));
    let table = [
        ("", "the file is empty"),
        ("[]", "there is no entry"),
        ("{}", "not a JSON array"),
        (r#"[{"tenant": "a", "tenant": "b", "key": "k"}]"#, "entry 1: duplicate field `tenant` (line 1, column "),
        (
            r#"[{"tenant": "a", "key": "k", "operator": false, "operator": true}]"#,
            "entry 1: duplicate field `operator`",
        ),
        (r#"[{"tenant": "a"}]"#, "entry 1: sha256 or key is missing"),
        (r#"[{"tenant": "a", "key": "k", "sha256": "00"}]"#, "entry 1: give sha256 or key, not both"),
        (r#"[{"tenant": "a", "sha256": "00"}]"#, "entry 1: sha256 is not 64 hexadecimal digits"),
        (r#"[{"tenant": "a", "key": "k"}, {"key": "l"}]"#, "entry 2: missing field `tenant` (line 1, column "),
        (r#"[{"tenant": "a", "key": "k", "admin": true}]"#, "entry 1: it is not {"),
        (r#"[{"tenant": "a", "key": "k", "expiresAt": "soon"}]"#, "entry 1: expiresAt is not an RFC 3339 timestamp"),
        (r#"[{"tenant": "a", "key": ""}]"#, "entry 1: key must be printable"),
        (r#"[{"tenant": "a", "key": "a b"}]"#, "entry 1: key must be printable"),
        (r#"[{"tenant": "a", "key": "k"}, {"tenant": "b", "key": "k"}]"#, "entry 2: its key is that of entry 1"),
        (r#"[{"tenant": "", "key": "k"}]"#, "tenant must be"),
        (r#"[{"tenant": "a/b", "key": "k"}]"#, "tenant must be"),
        (r#"[{"tenant": "*", "key": "k"}]"#, "tenant must be"),
        (r#"[{"tenant": " a", "key": "k"}]"#, "tenant must be"),
        (r#"[{"tenant": "a\nb", "key": "k"}]"#, "entry 1: tenant must be"),
        (&long, "tenant must be"),
    ];
    for (text, why) in table {
        let refused = file::parse(text.as_bytes()).and_then(build).err().unwrap();
        assert!(refused.contains(why), "{text}: {refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}

#[test]
fn nothing_that_stands_in_the_file_is_repeated() {
    let table = [
        r#"["sk_SECRET"]"#,
        r#""sk_SECRET""#,
        "sk_SECRET",
        "[4815162342]",
        r#"[["a", null, "sk_SECRET", false, null]]"#,
        r#"{"sk_SECRET": "SECRET"}"#,
        r#"[{"tenant": "a", "sk_SECRET": "SECRET"}]"#,
        r#"[{"tenant": "sk_SECRET"}]"#,
        r#"[{"tenant": "sk_SECRET/", "key": "k"}]"#,
        r#"[{"tenant": "sk_SECRET", "key": "k"}, {"tenant": "sk_SECRET", "key": "k"}]"#,
        r#"[{"tenant": ["sk_SECRET"], "key": "k"}]"#,
        r#"[{"tenant": 4815162342, "key": "k"}]"#,
        r#"[{"tenant": "a", "key": 4815162342}]"#,
        r#"[{"tenant": "a", "key": {"sk_SECRET": 1}}]"#,
        r#"[{"tenant": "a", "key": "sk SECRET"}]"#,
        r#"[{"tenant": "a", "key": "sk_SECRET", "key": "sk_SECRET"}]"#,
        r#"[{"tenant": "a", "sha256": "sk_SECRET"}]"#,
        r#"[{"tenant": "a", "key": "sk_SECRET", "sha256": "sk_SECRET"}]"#,
        r#"[{"tenant": "a", "key": "k", "operator": "sk_SECRET"}]"#,
        r#"[{"tenant": "a", "key": "k", "operator": 4815162342}]"#,
        r#"[{"tenant": "a", "key": "k", "expiresAt": "sk_SECRET"}]"#,
        r#"[{"tenant": "a", "key": "k", "expiresAt": ["sk_SECRET"]}]"#,
        r#"[{"tenant": "a", "key": "sk_SECRET" sk_SECRET}]"#,
    ];
    for text in table {
        let why = file::parse(text.as_bytes()).and_then(build).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(!why.contains("SECRET") && !why.contains("4815162342"), "{text}: {why}");
    }
}

#[test]
fn unreadable_file_is_named() {
    let error = ApiKeys::load(Path::new("no-such-file.json")).unwrap_err();
    assert!(chassis::process::sentence(&error).starts_with("cannot read the API keys in no-such-file.json: "));
    let error = ApiKeys::load(Path::new("/dev/zero")).unwrap_err();
    assert_eq!(chassis::process::sentence(&error), "cannot read the API keys in /dev/zero: it is not a regular file");
}

#[test]
fn nothing_of_a_key_is_shown() {
    let entry = ApiKeyEntry {
        tenant: "a".to_owned(),
        secret: ApiKeySecret::Key("sk_secret".to_owned()),
        operator: false,
        expires_at: None,
    };
    let shown = format!("{entry:?} {:?}", ApiKeys::from_entries([entry.clone()]).unwrap());
    assert!(!shown.contains("sk_secret"), "{shown}");
}

#[test]
fn rotated_keys_are_used_without_a_restart_and_a_broken_file_changes_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let entry = |key: &str| format!(r#"{{"tenant": "a", "key": "{key}"}}"#);
    std::fs::write(file.path(), format!("[{}]", entry("one"))).unwrap();
    let keys = ApiKeys::load(file.path()).unwrap();
    let tenant = |key: &str| {
        let headers = [(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {key}")).unwrap())].into_iter().collect();
        keys.authenticate_at(&headers, chassis::clock::wall).ok().map(|it| it.tenant.as_str().to_owned())
    };
    let known = || ["one", "two"].map(|key| tenant(key).is_some());
    assert_eq!(known(), [true, false]);
    for (content, expected) in [
        (format!("[{},{}]", entry("one"), entry("two")), [true, true]),
        (format!("[{},{}]", entry("one"), entry("one")), [true, true]),
        (String::new(), [true, true]),
        (format!("[{}]", entry("two")), [false, true]),
    ] {
        std::fs::write(file.path(), &content).unwrap();
        keys.look();
        assert_eq!(known(), expected, "{content}");
    }
    assert_eq!(tenant("two").as_deref(), Some("a"), "the tenant, and with it every idempotency key, is the same");
}
