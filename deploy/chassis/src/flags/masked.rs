//! Passwords in URLs, before a sentence with them is shown.

/// `text` with the passwords of its URLs replaced by `***`, or none when it has none.
///
/// A refusal of a flag repeats the value that was given, and a database's URL may hold a password.
pub fn without_passwords(text: &str) -> Option<String> {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some((before, after)) = rest.split_once("://") {
        masked.push_str(before);
        masked.push_str("://");
        let word = after.find(|c: char| c.is_whitespace() || c == '\'' || c == '"').unwrap_or(after.len());
        // A password may hold anything, so it ends at the last @ of the word.
        let login = after[..word].rfind('@').and_then(|at| Some((after[..at].split_once(':')?, at)));
        rest = match login {
            Some(((user, _password), at)) => {
                found = true;
                masked.push_str(user);
                masked.push_str(":***");
                &after[at..]
            }
            None => after,
        };
    }
    masked.push_str(rest);
    found.then_some(masked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_wherever_they_stand() {
        let cases = [
            ("invalid value 'postgres://u:s@h:9/x' for", Some("invalid value 'postgres://u:***@h:9/x' for")),
            ("postgres://u:p@ss/w:rd@h/x and https://a:b@c", Some("postgres://u:***@h/x and https://a:***@c")),
            ("postgres://u@h/x", None),
            ("http://127.0.0.1/a@b", None),
            ("no url: a@b", None),
        ];
        for (text, masked) in cases {
            assert_eq!(without_passwords(text).as_deref(), masked, "{text}");
        }
    }
}
