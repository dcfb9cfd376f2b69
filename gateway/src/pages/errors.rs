//! `/docs/errors`: every error, made from the catalogue, so that none can be missing.

use super::html::{code, escape};
use crate::error::catalogue::{self, Kind};
use std::fmt::Write as _;

/// The main part of the page.
pub(super) fn render() -> String {
    let mut out = String::from(
        "<h1>Errors</h1><p>Every error of a request is <code>application/problem+json</code> (RFC 9457); what is no HTTP request, such as \
         a head with a control character or over 32 KiB, is answered with 400 or 431 without a body. Its <code>type</code> leads to the \
         entry below. <code>error</code> names it, <code>code</code> tells apart cases that share a name, and \
         <code>retryable</code> says whether the same request with the same key may be sent again unchanged. Quote \
         <code>traceId</code> when you ask for help.</p>",
    );
    let mut names: Vec<&str> = Vec::new();
    for kind in catalogue::ALL {
        if !names.contains(&kind.error) {
            names.push(kind.error);
        }
    }
    contents(&mut out, &names);
    for name in names {
        entry(&mut out, name);
    }
    out
}

fn contents(out: &mut String, names: &[&str]) {
    out.push_str("<p>");
    for name in names {
        let _ = write!(out, "<a href=\"#{name}\">{}</a> ", code(name));
    }
    out.push_str("</p>");
}

fn entry(out: &mut String, name: &str) {
    let cases: Vec<&Kind> = catalogue::ALL.iter().copied().filter(|kind| kind.error == name).collect();
    let status = cases.first().map(|kind| kind.status).unwrap_or_default();
    let _ = write!(out, "<section id=\"{name}\"><h2>{} <small>{status}</small></h2>", code(name));
    for kind in cases {
        if let Some(code) = kind.code {
            let _ = write!(out, "<h3 id=\"{name}-{code}\"><code>{name}</code> / <code>{code}</code></h3>");
        }
        let retry = if kind.retryable {
            "<b>A retry is safe</b>: the same request with the same key."
        } else {
            "<b>Do not send it again unchanged</b>: the answer would be the same."
        };
        let _ = write!(
            out,
            "<p><b>{}.</b> {}</p><p>What to do: {}</p><p>{retry}</p>",
            escape(kind.title),
            escape(kind.happened),
            escape(kind.advice)
        );
    }
    out.push_str("</section>");
}
