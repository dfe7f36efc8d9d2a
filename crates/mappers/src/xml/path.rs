//! XPath, as much as sources need: `/events/event`, `//p:stock[2]/@id`, `company[@kind='a']/symbol/text()`.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Document, Name};

/// Path to elements, attributes or texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XPath {
    is_absolute: bool,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    /// True if the step also starts at all elements inside, as after `//`.
    is_deep: bool,
    target: Target,
    predicates: Vec<Predicate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Itself,
    Parent,
    Child(Test),
    Attribute(Test),
    Text,
}

/// Name and namespace; `None` stands for any.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Test(Option<(String, String)>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Predicate {
    Position(usize),
    Last,
    Exists(XPath),
    Equals(XPath, String),
}

/// Node that a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    /// The document, whose only child is the root element.
    Document,
    /// Element of this index.
    Element(usize),
    /// Attribute of an element, with its index.
    Attribute(usize, usize),
    /// Text of an element.
    Text(usize),
}

impl XPath {
    /// Parses a path. `namespaces` has those of its prefixes.
    ///
    /// Errors: what was expected and where.
    pub(crate) fn parse(text: &str, namespaces: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut parser = PathParser { rest: text.trim(), namespaces };
        let path = parser.path().and_then(|path| match parser.rest {
            "" => Ok(path),
            rest => Err(format!("found `{rest}`")),
        });
        path.map_err(|e| {
            format!("`{text}` is not an XPath that is known here: {e}; expected one such as `a/b[1]/@c`")
        })
    }

    /// Returns whether the path begins at the document.
    pub(crate) fn is_absolute(&self) -> bool {
        self.is_absolute
    }

    /// Returns what the path leads to from a node, in the order of the document.
    pub(crate) fn select(&self, document: &Document<'_>, from: Node) -> Vec<Node> {
        let mut nodes = BTreeSet::from([if self.is_absolute { Node::Document } else { from }]);
        for step in &self.steps {
            if step.is_deep {
                nodes = with_inner_elements(document, nodes);
            }
            nodes = nodes.into_iter().flat_map(|node| step.select(document, node)).collect();
        }
        nodes.into_iter().collect()
    }
}

impl Step {
    fn select(&self, document: &Document<'_>, from: Node) -> Vec<Node> {
        let mut found = match (&self.target, from) {
            (Target::Itself, node) => vec![node],
            (Target::Parent, Node::Element(index)) => {
                vec![document.element(index).parent.map_or(Node::Document, Node::Element)]
            }
            (Target::Parent, Node::Attribute(index, _) | Node::Text(index)) => vec![Node::Element(index)],
            (Target::Child(test), node) => {
                let all = children(document, node).iter().copied();
                let all = all.filter(|index| test.is_met(&document.element(*index).name));
                all.map(Node::Element).collect()
            }
            (Target::Attribute(test), Node::Element(index)) => {
                let all = document.element(index).attributes.iter().enumerate();
                let all = all.filter(|(_, (name, _))| test.is_met(name));
                all.map(|(attribute, _)| Node::Attribute(index, attribute)).collect()
            }
            (Target::Text, Node::Element(index)) if !document.element(index).text.is_empty() => {
                vec![Node::Text(index)]
            }
            _ => vec![],
        };
        for predicate in &self.predicates {
            found = match predicate {
                Predicate::Position(n) => found.get(n - 1).copied().into_iter().collect(),
                Predicate::Last => found.last().copied().into_iter().collect(),
                Predicate::Exists(path) => {
                    found.into_iter().filter(|node| !path.select(document, *node).is_empty()).collect()
                }
                Predicate::Equals(path, text) => {
                    let equals = |node: &Node| {
                        path.select(document, *node).iter().any(|found| node_text(document, *found) == text)
                    };
                    found.into_iter().filter(equals).collect()
                }
            };
        }
        found
    }
}

impl Test {
    fn is_met(&self, name: &Name) -> bool {
        match &self.0 {
            None => true,
            Some((namespace, local)) => *local == name.local && *namespace == name.namespace,
        }
    }
}

fn children<'d>(document: &'d Document<'_>, node: Node) -> &'d [usize] {
    match node {
        Node::Document => &[0],
        Node::Element(index) => &document.element(index).children,
        Node::Attribute(..) | Node::Text(_) => &[],
    }
}

fn with_inner_elements(document: &Document<'_>, nodes: BTreeSet<Node>) -> BTreeSet<Node> {
    let mut all = BTreeSet::new();
    let mut open: Vec<Node> = nodes.into_iter().collect();
    while let Some(node) = open.pop() {
        if all.insert(node) {
            open.extend(children(document, node).iter().map(|index| Node::Element(*index)));
        }
    }
    all
}

/// Returns the text of an attribute, or the text directly inside of an element.
pub(crate) fn node_text<'d>(document: &'d Document<'_>, node: Node) -> &'d str {
    match node {
        Node::Document => "",
        Node::Element(index) | Node::Text(index) => &document.element(index).text,
        Node::Attribute(index, attribute) => &document.element(index).attributes[attribute].1,
    }
}

struct PathParser<'t> {
    rest: &'t str,
    namespaces: &'t BTreeMap<String, String>,
}

impl PathParser<'_> {
    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn path(&mut self) -> Result<XPath, String> {
        let mut is_deep = self.take("//");
        let is_absolute = is_deep || self.take("/");
        let mut steps = vec![];
        if is_absolute && !is_deep && self.rest.is_empty() {
            return Ok(XPath { is_absolute, steps });
        }
        loop {
            steps.push(self.step(is_deep)?);
            is_deep = self.take("//");
            if !is_deep && !self.take("/") {
                return Ok(XPath { is_absolute, steps });
            }
        }
    }

    fn step(&mut self, is_deep: bool) -> Result<Step, String> {
        let target = match () {
            () if self.take("..") => Target::Parent,
            () if self.take(".") => Target::Itself,
            () if self.take("@") || self.take("attribute::") => Target::Attribute(self.test()?),
            () if self.take("text()") => Target::Text,
            () => {
                self.take("child::");
                Target::Child(self.test()?)
            }
        };
        let mut predicates = vec![];
        while self.take("[") {
            predicates.push(self.predicate()?);
            if !self.take("]") {
                return Err("expected `]`".to_owned());
            }
        }
        Ok(Step { is_deep, target, predicates })
    }

    fn test(&mut self) -> Result<Test, String> {
        if self.take("*") {
            return Ok(Test(None));
        }
        let first = self.name()?;
        if self.rest.starts_with("::") || !self.take(":") {
            return Ok(Test(Some((String::new(), first))));
        }
        let namespace = self
            .namespaces
            .get(&first)
            .ok_or_else(|| format!("the prefix `{first}` needs the option namespaces='{first}=…'"))?;
        Ok(Test(Some((namespace.clone(), self.name()?))))
    }

    fn name(&mut self) -> Result<String, String> {
        let is_inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        let end = self.rest.find(|c| !is_inside(c)).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Err("expected a name".to_owned());
        }
        self.rest = self.rest[end..].trim_start();
        Ok(name.to_owned())
    }

    fn predicate(&mut self) -> Result<Predicate, String> {
        if self.take("last()") {
            return Ok(Predicate::Last);
        }
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        if digits > 0 {
            let (number, rest) = self.rest.split_at(digits);
            self.rest = rest.trim_start();
            let number = number.parse().ok().filter(|n| *n > 0);
            return number.map(Predicate::Position).ok_or_else(|| "positions begin with 1".to_owned());
        }
        let path = self.path()?;
        if !self.take("=") {
            return Ok(Predicate::Exists(path));
        }
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or("expected a text in quotes behind `=`")?;
        let (text, rest) = self.rest[1..].split_once(quote).ok_or("the text has no quote at its end")?;
        self.rest = rest.trim_start();
        Ok(Predicate::Equals(path, text.to_owned()))
    }
}
