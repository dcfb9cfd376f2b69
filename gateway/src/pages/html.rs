//! The frame of every page, and text that is safe inside it.

const STYLE: &str = include_str!("../../pages/style.css");

/// A whole page around `main`.
pub(super) fn page(title: &str, main: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><nav><a href=\"/docs\">API</a> <a href=\"/docs/idempotency\">Idempotency</a> \
         <a href=\"/docs/errors\">Errors</a> <a href=\"/openapi.json\">openapi.json</a></nav>\n<main>{main}</main></body></html>\n",
        title = escape(title),
    )
}

/// Text as it is.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(char),
        }
    }
    out
}

/// Text with what stands between backticks as code.
pub(super) fn prose(text: &str) -> String {
    let parts = escape(text);
    let parts = parts.split('`').enumerate();
    parts.map(|(place, part)| if place % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }).collect()
}

/// Text as code.
pub(super) fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_stays_text() {
        assert_eq!(prose("a < `b & \"c\"`"), "a &lt; <code>b &amp; &quot;c&quot;</code>");
    }
}
