//! JSON bodies, read strictly: every member is asked for by name, and what nobody asked for is refused.
//!
//! Numbers are exact (`2`, `2.0` and `2e0` are the same integer), a member name stands at most once, and every refusal
//! names the member it is about.

use idem_layer::Problem;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, ops::RangeInclusive};

/// How much of a member name that nobody knows is repeated to its sender.
const NAME_SHOWN_MAX: usize = 60;

/// An object whose members are taken one by one.
pub(crate) struct Object<'b> {
    path: String,
    members: BTreeMap<Cow<'b, str>, &'b RawValue>,
}

/// A value with its place in the body.
pub(crate) struct Value<'b> {
    path: String,
    raw: &'b RawValue,
}

/// Refuses a body that carries anything, for routes that need none: empty or `{}`.
pub(crate) fn expect_empty(body: &[u8]) -> Result<(), Problem> {
    Object::root(body)?.finish()
}

// === impl Object ===

impl<'b> Object<'b> {
    /// The whole body. An empty one is `{}`, as for the fingerprint.
    pub(crate) fn root(body: &'b [u8]) -> Result<Self, Problem> {
        idem_core::json::canonical(body).map_err(|error| Problem::invalid_json(&error))?;
        if body.is_empty() {
            return Ok(Self { path: String::new(), members: BTreeMap::new() });
        }
        let raw = serde_json::from_slice(body).map_err(|_| Problem::invalid_request("the body is not valid JSON"))?;
        Value { path: String::new(), raw }.object()
    }

    /// The member `name`, which must be there.
    pub(crate) fn take(&mut self, name: &str) -> Result<Value<'b>, Problem> {
        let path = self.path_of(name);
        match self.members.remove(name) {
            Some(raw) => Ok(Value { path, raw }),
            None => Err(Problem::invalid_request(format!("`{path}` is missing")).reason("missing_member")),
        }
    }

    /// Refuses what was not taken.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        match self.members.keys().next() {
            None => Ok(()),
            Some(name) => {
                let path = self.path_of(&name.chars().take(NAME_SHOWN_MAX).collect::<String>());
                let detail = format!("`{path}` is not a member of this request");
                Err(Problem::invalid_request(detail).reason("unknown_member"))
            }
        }
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

// === impl Value ===

impl<'b> Value<'b> {
    /// Text of 1 to `max` characters without control characters.
    pub(crate) fn text(&self, max: usize) -> Result<String, Problem> {
        let text: String = self.read("a string")?;
        if text.is_empty() || text.chars().nth(max).is_some() || text.chars().any(char::is_control) {
            return Err(self.refused(format_args!("have 1 to {max} characters, none of them a control character")));
        }
        Ok(text)
    }

    /// An ISO 4217 code.
    pub(crate) fn currency(&self) -> Result<String, Problem> {
        let code: String = self.read("a string")?;
        if code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase()) {
            return Ok(code);
        }
        Err(self.refused(format_args!("be an ISO 4217 code of three capital letters")))
    }

    /// A whole number within `range`, however it is written.
    pub(crate) fn integer(&self, range: RangeInclusive<i64>) -> Result<i64, Problem> {
        idem_core::json::integer(self.raw.get())
            .filter(|value| range.contains(value))
            .ok_or_else(|| self.refused(format_args!("be an integer from {} to {}", range.start(), range.end())))
    }

    /// A list whose length is within `range`.
    pub(crate) fn list(&self, range: RangeInclusive<usize>) -> Result<Vec<Value<'b>>, Problem> {
        let values: Vec<&'b RawValue> = self.read("an array")?;
        if !range.contains(&values.len()) {
            return Err(self.refused(format_args!("have {} to {} elements", range.start(), range.end())));
        }
        let numbered = values.into_iter().enumerate();
        Ok(numbered.map(|(place, raw)| Value { path: format!("{}[{place}]", self.path), raw }).collect())
    }

    /// An object.
    pub(crate) fn object(self) -> Result<Object<'b>, Problem> {
        let members = self.read("an object")?;
        Ok(Object { path: self.path, members })
    }

    /// A refusal of this value: it must `what`.
    pub(crate) fn refused(&self, what: std::fmt::Arguments<'_>) -> Problem {
        let name = if self.path.is_empty() { "the body".to_owned() } else { format!("`{}`", self.path) };
        Problem::invalid_request(format!("{name} must {what}")).reason("invalid_value")
    }

    fn read<T: Deserialize<'b>>(&self, kind: &str) -> Result<T, Problem> {
        serde_json::from_str(self.raw.get()).map_err(|_| self.refused(format_args!("be {kind}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail<T>(result: Result<T, Problem>) -> String {
        let Err(problem) = result else { return "accepted".to_owned() };
        assert_eq!(problem.error(), "invalid_request");
        let document: serde_json::Value = serde_json::from_slice(&problem.document("", "")).unwrap();
        document["detail"].as_str().unwrap().to_owned()
    }

    fn read(body: &str) -> Result<(String, i64), Problem> {
        let mut root = Object::root(body.as_bytes())?;
        let name = root.take("name")?.text(5)?;
        let mut price = root.take("price")?.object()?;
        let amount = price.take("amount")?.integer(0..=100)?;
        price.finish()?;
        root.finish()?;
        Ok((name, amount))
    }

    #[test]
    fn equal_spellings_give_equal_values() {
        for body in [
            r#"{"name":"é","price":{"amount":2}}"#,
            r#" { "price" : { "amount" : 2.0 } , "n\u0061me" : "\u00e9" } "#,
            r#"{"name":"é","price":{"amount":20e-1}}"#,
        ] {
            let (name, amount) = read(body).unwrap();
            assert_eq!((name.as_str(), amount), ("é", 2), "{body}");
        }
    }

    #[test]
    fn each_fault_is_named_with_its_member() {
        let table = [
            ("", "`name` is missing"),
            ("[]", "the body must be an object"),
            ("\"x\"", "the body must be an object"),
            ("null", "the body must be an object"),
            ("{", "the body is not valid JSON: it ends too early"),
            (r#"{"name":"a","name":"b"}"#, "the body has a duplicate member name before byte 23"),
            (r#"{"name":"a"}"#, "`price` is missing"),
            (r#"{"name":null,"price":{"amount":1}}"#, "`name` must be a string"),
            (r#"{"name":1,"price":{"amount":1}}"#, "`name` must be a string"),
            (
                r#"{"name":"","price":{"amount":1}}"#,
                "`name` must have 1 to 5 characters, none of them a control character",
            ),
            (
                r#"{"name":"abcdef","price":{"amount":1}}"#,
                "`name` must have 1 to 5 characters, none of them a control character",
            ),
            (
                r#"{"name":"a\n","price":{"amount":1}}"#,
                "`name` must have 1 to 5 characters, none of them a control character",
            ),
            (r#"{"name":"a","price":[]}"#, "`price` must be an object"),
            (r#"{"name":"a","price":{}}"#, "`price.amount` is missing"),
            (r#"{"name":"a","price":{"amount":"1"}}"#, "`price.amount` must be an integer from 0 to 100"),
            (r#"{"name":"a","price":{"amount":1.5}}"#, "`price.amount` must be an integer from 0 to 100"),
            (r#"{"name":"a","price":{"amount":101}}"#, "`price.amount` must be an integer from 0 to 100"),
            (r#"{"name":"a","price":{"amount":1e99999999999}}"#, "`price.amount` must be an integer from 0 to 100"),
            (r#"{"name":"a","price":{"amount":-1}}"#, "`price.amount` must be an integer from 0 to 100"),
            (r#"{"name":"a","price":{"amount":true}}"#, "`price.amount` must be an integer from 0 to 100"),
            (r#"{"name":"a","price":{"amount":1,"tax":0}}"#, "`price.tax` is not a member of this request"),
            (r#"{"name":"a","price":{"amount":1},"colour":0}"#, "`colour` is not a member of this request"),
            (r#"{"name":"\ud800","price":{"amount":1}}"#, "the body has a lone surrogate at byte 9"),
        ];
        for (body, expected) in table {
            assert_eq!(detail(read(body)), expected, "{body}");
        }
    }

    #[test]
    fn lists_have_a_length_and_number_their_elements() {
        let list = |body: &'static str| Object::root(body.as_bytes())?.take("a")?.list(1..=2);
        assert_eq!(detail(list(r#"{"a":{}}"#)), "`a` must be an array");
        assert_eq!(detail(list(r#"{"a":[]}"#)), "`a` must have 1 to 2 elements");
        assert_eq!(detail(list(r#"{"a":[1,2,3]}"#)), "`a` must have 1 to 2 elements");
        let values = list(r#"{"a":[1,"x"]}"#).unwrap();
        assert_eq!(detail(values[1].integer(0..=1)), "`a[1]` must be an integer from 0 to 1");
        assert_eq!(detail(values[1].currency()), "`a[1]` must be an ISO 4217 code of three capital letters");
    }

    #[test]
    fn a_body_is_not_asked_for_where_none_is_needed() {
        assert!(expect_empty(b"").is_ok() && expect_empty(b" {} ").is_ok());
        assert_eq!(detail(expect_empty(br#"{"a":1}"#)), "`a` is not a member of this request");
        assert_eq!(detail(expect_empty(b"null")), "the body must be an object");
    }
}
