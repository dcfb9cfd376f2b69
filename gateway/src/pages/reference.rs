//! `/docs`: the API description for people, made from `openapi.json` once.

use super::{
    document::Node,
    html::{code, escape, prose},
};
use std::fmt::Write as _;

/// The main part of the page.
pub(super) fn render(document: &Node) -> String {
    let page = Page { document };
    let mut out = String::new();
    let info = document.get("info").expect("an API description has an info object");
    let _ = write!(out, "<h1>{}</h1><p>{}</p>", escape(info.text("title")), prose(info.text("description")));
    page.contents(&mut out);
    for tag in document.get("tags").into_iter().flat_map(Node::elements) {
        let _ = write!(out, "<h2>{}</h2><p>{}</p>", escape(tag.text("name")), prose(tag.text("description")));
        for (path, method, operation) in page.operations() {
            if page.has_tag(operation, tag.text("name")) {
                page.operation(&mut out, path, method, operation);
            }
        }
    }
    page.schemas(&mut out);
    out
}

struct Page<'d> {
    document: &'d Node,
}

impl<'d> Page<'d> {
    fn operations(&self) -> impl Iterator<Item = (&'d str, &'d str, &'d Node)> {
        let paths = self.document.get("paths").into_iter().flat_map(Node::members);
        paths.flat_map(|(path, item)| item.members().map(move |(method, operation)| (path, method, operation)))
    }

    fn has_tag(&self, operation: &Node, tag: &str) -> bool {
        let tag = Node::Scalar(tag.into());
        operation.get("tags").into_iter().flat_map(Node::elements).any(|other| *other == tag)
    }

    /// Follows a `$ref`.
    fn resolve(&self, node: &'d Node) -> &'d Node {
        match node.text("$ref") {
            "" => node,
            reference => self.document.pointer(reference).unwrap_or(node),
        }
    }

    fn contents(&self, out: &mut String) {
        out.push_str("<table><tbody>");
        for (path, method, operation) in self.operations() {
            let _ = write!(
                out,
                "<tr><td><a href=\"#{}\"><code>{} {}</code></a></td><td>{}</td></tr>",
                escape(operation.text("operationId")),
                method.to_uppercase(),
                escape(path),
                prose(operation.text("summary"))
            );
        }
        out.push_str("</tbody></table>");
    }

    fn operation(&self, out: &mut String, path: &str, method: &str, operation: &'d Node) {
        let _ = write!(
            out,
            "<section id=\"{}\"><h3><code>{} {}</code></h3><p><b>{}.</b> {}</p>",
            escape(operation.text("operationId")),
            method.to_uppercase(),
            escape(path),
            prose(operation.text("summary")),
            prose(operation.text("description"))
        );
        self.parameters(out, operation);
        if let Some(body) = operation.get("requestBody") {
            let _ = write!(out, "<h4>Request body</h4><p>{}</p>", prose(body.text("description")));
            self.content(out, body);
        }
        out.push_str("<h4>Answers</h4>");
        for (status, response) in operation.get("responses").into_iter().flat_map(Node::members) {
            self.response(out, status, self.resolve(response));
        }
        out.push_str("</section>");
    }

    fn parameters(&self, out: &mut String, operation: &'d Node) {
        let parameters: Vec<_> = operation.get("parameters").into_iter().flat_map(Node::elements).collect();
        if parameters.is_empty() {
            return;
        }
        out.push_str("<table><thead><tr><th>parameter</th><th>in</th><th></th></tr></thead><tbody>");
        for parameter in parameters.into_iter().map(|parameter| self.resolve(parameter)) {
            let _ = write!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                code(parameter.text("name")),
                escape(parameter.text("in")),
                prose(parameter.text("description"))
            );
        }
        out.push_str("</tbody></table>");
    }

    fn response(&self, out: &mut String, status: &str, response: &'d Node) {
        let _ = write!(out, "<details><summary><b>{status}</b> {}</summary>", prose(response.text("description")));
        let headers: Vec<_> = response.get("headers").into_iter().flat_map(Node::members).collect();
        if !headers.is_empty() {
            out.push_str("<table><tbody>");
            for (name, header) in headers {
                let description = prose(self.resolve(header).text("description"));
                let _ = write!(out, "<tr><td>{}</td><td>{description}</td></tr>", code(name));
            }
            out.push_str("</tbody></table>");
        }
        self.content(out, response);
        out.push_str("</details>");
    }

    /// Schema and examples of a body.
    fn content(&self, out: &mut String, holder: &'d Node) {
        for (media_type, content) in holder.get("content").into_iter().flat_map(Node::members) {
            let _ = write!(out, "<p>{}", code(media_type));
            if let Some(name) = content.get("schema").and_then(schema_name) {
                let _ = write!(out, ": <a href=\"#schema-{0}\">{0}</a>", escape(name));
            }
            out.push_str("</p>");
            let one = content.get("example").into_iter();
            let several = content.get("examples").into_iter().flat_map(Node::members);
            for example in one.chain(several.filter_map(|(_, example)| example.get("value"))) {
                let _ = write!(out, "<pre>{}</pre>", escape(&example.pretty()));
            }
        }
    }

    fn schemas(&self, out: &mut String) {
        out.push_str("<h2>Schemas</h2>");
        let schemas = self.document.pointer("#/components/schemas").into_iter().flat_map(Node::members);
        for (name, schema) in schemas {
            let _ = write!(out, "<section id=\"schema-{0}\"><h3>{0}</h3>", escape(name));
            let _ = write!(out, "<p>{}</p><table><tbody>", prose(schema.text("description")));
            for (member, value) in schema.get("properties").into_iter().flat_map(Node::members) {
                let _ = write!(out, "<tr><td>{}</td><td>{}</td>", code(member), shape(value));
                let _ = write!(out, "<td>{}</td></tr>", prose(value.text("description")));
            }
            out.push_str("</tbody></table></section>");
        }
    }
}

/// What a value of this schema looks like, in a few words.
fn shape(schema: &Node) -> String {
    if let Some(name) = schema_name(schema) {
        return format!("<a href=\"#schema-{0}\">{0}</a>", escape(name));
    }
    if let Some(Node::List(values)) = schema.get("enum") {
        return values.iter().map(|value| code(value.pretty().trim_matches('"'))).collect::<Vec<_>>().join(" ");
    }
    let kind = match schema.get("type") {
        Some(Node::List(kinds)) => {
            kinds.iter().map(|kind| kind.pretty().replace('"', "")).collect::<Vec<_>>().join(" or ")
        }
        _ => schema.text("type").to_owned(),
    };
    let mut words = vec![escape(&kind)];
    if !schema.text("format").is_empty() {
        words.push(code(schema.text("format")));
    }
    let limits = [("minLength", "maxLength"), ("minimum", "maximum"), ("minItems", "maxItems")];
    for (min, max) in limits.map(|(min, max)| (schema.get(min), schema.get(max))) {
        match (min, max) {
            (Some(min), Some(max)) => words.push(format!("{} to {}", min.pretty(), max.pretty())),
            (Some(min), None) => words.push(format!("at least {}", min.pretty())),
            _ => {}
        }
    }
    if let Some(items) = schema.get("items") {
        words.push(format!("of {}", shape(items)));
    }
    words.join(" ")
}

fn schema_name(schema: &Node) -> Option<&str> {
    schema.text("$ref").strip_prefix("#/components/schemas/")
}
