//! The API description as a tree that keeps the order of its members, as its author wrote them.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use std::fmt;

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Node {
    Scalar(serde_json::Value),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Node {
    /// Parses a description that this crate carries.
    pub(crate) fn parse(text: &str) -> Self {
        serde_json::from_str(text).expect("the API description is JSON, as a test checks")
    }

    /// The member `name`, if this is an object that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.members().find(|(member, _)| *member == name).map(|(_, value)| value)
    }

    /// The text of the member `name`; empty when there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Node::Scalar(serde_json::Value::String(text))) => text,
            _ => "",
        }
    }

    /// The members, in order; none unless this is an object.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Node)> {
        let members = if let Node::Object(members) = self { members.as_slice() } else { &[] };
        members.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The elements, in order; none unless this is a list.
    pub(crate) fn elements(&self) -> impl Iterator<Item = &Node> {
        let elements = if let Node::List(elements) = self { elements.as_slice() } else { &[] };
        elements.iter()
    }

    /// What `#/a/b` in this document points to.
    pub(crate) fn pointer(&self, reference: &str) -> Option<&Node> {
        reference.strip_prefix("#/")?.split('/').try_fold(self, |node, name| node.get(name))
    }

    /// As indented JSON; short objects and lists stay on one line.
    pub(crate) fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, indent: usize) {
        const LINE: usize = 76;
        let flat = self.flat();
        if flat.len() + indent <= LINE {
            out.push_str(&flat);
            return;
        }
        let (open, close) = if matches!(self, Node::List(_)) { ('[', ']') } else { ('{', '}') };
        let items: Vec<(Option<&str>, &Node)> = match self {
            Node::Scalar(_) => return out.push_str(&flat),
            Node::List(elements) => elements.iter().map(|value| (None, value)).collect(),
            Node::Object(members) => members.iter().map(|(name, value)| (Some(name.as_str()), value)).collect(),
        };
        out.push(open);
        for (place, (name, value)) in items.into_iter().enumerate() {
            out.push_str(if place == 0 { "\n" } else { ",\n" });
            out.push_str(&" ".repeat(indent + 2));
            if let Some(name) = name {
                out.push_str(&format!("{}: ", quoted(name)));
            }
            value.write(out, indent + 2);
        }
        out.push_str(&format!("\n{}{close}", " ".repeat(indent)));
    }

    fn flat(&self) -> String {
        match self {
            Node::Scalar(value) => value.to_string(),
            Node::List(elements) => format!("[{}]", elements.iter().map(Node::flat).collect::<Vec<_>>().join(", ")),
            Node::Object(members) => {
                let members = members.iter().map(|(name, value)| format!("{}: {}", quoted(name), value.flat()));
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Node::Object(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Node::List(elements))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(serde_json::Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_long_objects_are_indented() {
        let text = r#"{"b":1,"a":[true,null,-2],"c":{"x":"é\"","y":{}}}"#;
        let node = Node::parse(text);
        assert_eq!(node.pretty(), r#"{"b": 1, "a": [true, null, -2], "c": {"x": "é\"", "y": {}}}"#);
        let long = Node::Object(vec![("first".to_owned(), node.clone()), ("second".to_owned(), node)]);
        let pretty = long.pretty();
        assert!(pretty.starts_with("{\n  \"first\": {\"b\": 1,"), "{pretty}");
        assert_eq!(Node::parse(&pretty), long);
        assert_eq!(long.pointer("#/second/c/x"), Some(&Node::Scalar("é\"".into())));
        assert_eq!(long.pointer("#/third"), None);
    }
}
