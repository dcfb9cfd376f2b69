//! What an operator writes: files of keys and tokens, addresses of stores and services, durations. Nonsense is refused in one
//! sentence that gives no secret away.

use std::io::{Seek, Write};

use chassis::{
    flags::{self, Endpoint},
    service_auth::ServiceAuth,
};
use database::StoreUrl;
use fuzz::{Panics, hold};
use gateway::ApiKeys;
use proptest::{collection::vec, prelude::*, sample::select};

const SECRET: &str = "hunter2secret";

const VALUES: [&str; 27] = [
    "null",
    "true",
    "1",
    "\"\"",
    "\"a\"",
    "\"*\"",
    "\"a*b\"",
    "[]",
    "[\"*\"]",
    "[\"rest/*\"]",
    "[\"a*b\"]",
    "[1]",
    "{}",
    "\"2030-01-01T00:00:00Z\"",
    "\"9999-12-31T23:59:59Z\"",
    "\"-2030-01-01T00:00:00Z\"",
    "\"2030-13-45T99:99:99Z\"",
    "\"soon\"",
    "\"\\u0000\"",
    "\"\\ud83c\\udf9f\"",
    "\"7b0a4d1e54f15b7c9a570f4c5a2d9e117b0a4d1e54f15b7c9a570f4c5a2d9e11\"",
    "1e999",
    // The secret, where it does not belong.
    "\"hunter2secret\"",
    "[\"hunter2secret*x\"]",
    "[[\"hunter2secret\"]]",
    "{\"hunter2secret\":1}",
    "\"hunter2secret\",\"hunter2secret\":1",
];

fn entries(members: &'static [&'static str], secret: &'static str) -> impl Strategy<Value = String> {
    let value = select(VALUES.to_vec());
    let entry = vec(value, members.len()).prop_flat_map(move |values| {
        let members: Vec<String> =
            members.iter().zip(values).map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let (count, secret) = (members.len(), format!("\"{secret}\":\"{SECRET}\""));
        (proptest::sample::subsequence(members, 0..=count), Just(secret), any::<bool>())
    });
    let entry = entry.prop_map(|(mut members, secret, with_secret)| {
        members.extend(with_secret.then_some(secret));
        format!("{{{}}}", members.join(","))
    });
    let bare = select(VALUES.to_vec()).prop_map(str::to_owned);
    let file = vec(prop_oneof![9 => entry, 1 => bare], 0..3);
    file.prop_map(|entries| format!("[{}]", entries.join(",")))
}

/// Loads the text from a file, and says what was refused.
fn load<T, E: std::error::Error + 'static>(
    file: &mut tempfile::NamedTempFile,
    text: &str,
    load: impl Fn(&std::path::Path) -> Result<T, E>,
) -> Option<String> {
    // Padded over what was there before: a file that is cut is written to the disk at once.
    let inner = file.as_file_mut();
    inner.rewind().unwrap();
    inner.write_all(format!("{text:4096}").as_bytes()).unwrap();
    assert!(text.len() <= 4096);
    load(file.path()).err().map(|error| chassis::process::sentence(&error))
}

#[test]
fn files_of_tokens_and_keys_are_taken_or_refused_in_a_sentence_without_the_secret() {
    let panics = Panics::watch();
    let tokens = entries(&["service", "scopes", "rpcs", "expiresAt", "sha256"], "token");
    let keys = entries(&["tenant", "operator", "expiresAt", "sha256", "unknown"], "key");
    let file = std::cell::RefCell::new(tempfile::NamedTempFile::new().unwrap());
    hold("files", 1_500, (tokens, keys), |(tokens, keys)| {
        let file = &mut *file.borrow_mut();
        for refused in [load(file, &tokens, ServiceAuth::load), load(file, &keys, ApiKeys::load)].into_iter().flatten()
        {
            prop_assert!(!refused.contains(SECRET) && !refused.contains('\n'), "{refused}");
        }
        Ok(())
    });
    // They can be taken at all.
    let file = &mut *file.borrow_mut();
    let token = format!(r#"[{{"service":"a","token":"{SECRET}","scopes":["*"],"rpcs":["*"]}}]"#);
    assert_eq!(load(file, &token, ServiceAuth::load), None);
    assert_eq!(load(file, &format!(r#"[{{"tenant":"a","key":"{SECRET}"}}]"#), ApiKeys::load), None);
    panics.assert_none();
}

const PIECES: [&str; 44] = [
    "postgres://",
    "postgresql://",
    "sqlite:",
    "http://",
    "https://",
    "u",
    "@",
    ":",
    "/",
    "//",
    "?",
    "&",
    "=",
    "%",
    "%00",
    "%zz",
    "%2F",
    "[",
    "]",
    "::1",
    "127.0.0.1",
    "host",
    "5432",
    "65536",
    "0",
    ",",
    "db",
    "sslmode=require",
    "sslmode=disable",
    "sslmode=verify-full",
    "sslrootcert=",
    "sslrootcert=system",
    "sslcert=/a&sslkey=/b",
    "connect_timeout=1",
    "options=-c",
    "hostaddr=1.2.3.4",
    "port=1,2",
    "user=u",
    "#",
    " ",
    "é",
    "\0",
    ":memory:",
    "target_session_attrs=any",
];

#[test]
fn addresses_of_stores_are_read_or_refused_and_passwords_never_shown() {
    let panics = Panics::watch();
    let soup = || vec(select(PIECES.to_vec()), 0..8).prop_map(|pieces| pieces.concat());
    hold("store-urls", 10_000, soup(), |text| {
        // Whatever it is, it is said and not thrown.
        let _ = text.parse::<StoreUrl>().map(|url| url.to_string());
        Ok(())
    });
    // A password where passwords are, and anything after it.
    hold("store-urls-secret", 10_000, (soup(), any::<bool>()), |(rest, is_parameter)| {
        let text = match is_parameter {
            true => format!("postgres://u@host/db?password={SECRET}&{rest}"),
            false => format!("postgres://u:{SECRET}@{rest}"),
        };
        let shown = match text.parse::<StoreUrl>() {
            Ok(url) => format!("{url} {url:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        prop_assert!(!shown.contains(SECRET), "{shown}");
        Ok(())
    });
    panics.assert_none();
}

#[test]
fn endpoints_and_durations_are_read_or_refused() {
    let panics = Panics::watch();
    hold("endpoints", 10_000, vec(select(PIECES.to_vec()), 0..6).prop_map(|pieces| pieces.concat()), |text| {
        if let Ok(endpoint) = text.parse::<Endpoint>() {
            let shown = endpoint.to_string();
            prop_assert_eq!(shown.parse::<Endpoint>(), Ok(endpoint.clone()), "{}", shown);
            prop_assert!(!endpoint.host().is_empty());
            prop_assert_eq!(endpoint.uri().port_u16(), Some(endpoint.port()));
        }
        Ok(())
    });
    let units = vec![
        "0",
        "1",
        "60",
        "999",
        "18446744073709551615",
        "99999999999999999999",
        "s",
        "ms",
        "h",
        "ns",
        "us",
        "years",
        "d",
        "m",
        " ",
        "-",
        "+",
        ".",
        "é",
        "\0",
    ];
    hold("durations", 10_000, vec(select(units), 0..6).prop_map(|pieces| pieces.concat()), |text| {
        let read = flags::duration(&text);
        let positive = flags::positive_duration(&text);
        prop_assert_eq!(read.as_ref().is_ok_and(|it| !it.is_zero()), positive.is_ok());
        prop_assert!(read.is_err() || text.chars().any(|c| c.is_ascii_digit()));
        Ok(())
    });
    panics.assert_none();
}
