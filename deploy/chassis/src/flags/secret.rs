//! Text that must not end up in a log.

use std::{fmt, str::FromStr};

/// A secret given by flag or environment. Its `Debug` shows nothing, and it has no `Display`.
///
/// Beside it, `#[arg(hide_env_values = true)]` keeps `--help` from printing what the environment holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A secret without content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a secret must not be empty; is the variable that it comes from set?")]
pub struct EmptySecret;

impl Secret {
    /// A secret made in code. Not `From`: clap would take that way, around the check of `FromStr`.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Secret {
    type Err = EmptySecret;

    /// An empty one is what an unset variable leaves behind in a deployment: anybody could guess it.
    fn from_str(text: &str) -> Result<Self, EmptySecret> {
        if text.trim().is_empty() { Err(EmptySecret) } else { Ok(Self(text.to_owned())) }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        let secret: Secret = "whsec_1".parse().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(secret.expose(), "whsec_1");
    }
    #[test]
    fn an_empty_secret_is_none() {
        for text in ["", " ", "\t\n"] {
            assert_eq!(text.parse::<Secret>(), Err(EmptySecret));
        }
    }
}
