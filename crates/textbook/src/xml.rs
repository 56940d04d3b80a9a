//! As much of XML as model files of other tools need: elements, attributes, text.

/// Deepest nesting.
const MOST_DEEP: usize = 64;
/// Most elements of a document.
const MOST_ELEMENTS: usize = 1_000_000;

/// An element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    /// Its own text, without white space at either end.
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

/// A document that is not XML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct XmlError {
    /// Where, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    elements: usize,
}

/// The root element.
pub(crate) fn parse(text: &str) -> Result<Element, XmlError> {
    let mut reader = Reader { text, at: 0, elements: 0 };
    reader.skip_between()?;
    let root = reader.element(0)?;
    reader.skip_between()?;
    if reader.at < text.len() {
        return Err(reader.wrong("something follows the root element"));
    }
    Ok(root)
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, what: impl Into<String>) -> XmlError {
        let before = &self.text.as_bytes()[..self.at];
        XmlError { line: 1 + before.iter().filter(|b| **b == b'\n').count(), what: what.into() }
    }

    /// Goes behind the next `end`, and returns what is before it.
    fn upto(&mut self, end: &str) -> Result<&'a str, XmlError> {
        let rest = self.rest();
        let Some(found) = rest.find(end) else {
            return Err(self.wrong(format!("`{end}` is missing")));
        };
        self.at += found + end.len();
        Ok(&rest[..found])
    }

    /// Passes white space, comments, declarations and instructions.
    fn skip_between(&mut self) -> Result<(), XmlError> {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            let end = match self.rest() {
                rest if rest.starts_with("<!--") => "-->",
                rest if rest.starts_with("<?") => "?>",
                rest if rest.starts_with("<!DOCTYPE") => ">",
                _ => return Ok(()),
            };
            self.upto(end)?;
        }
    }

    fn name(&mut self) -> Result<String, XmlError> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '>' | '/' | '=' | '<' | '"'))
            .unwrap_or(rest.len());
        if end == 0 {
            return Err(self.wrong("a name is missing"));
        }
        self.at += end;
        Ok(rest[..end].to_owned())
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn element(&mut self, depth: usize) -> Result<Element, XmlError> {
        self.elements += 1;
        if depth > MOST_DEEP || self.elements > MOST_ELEMENTS {
            return Err(self.wrong("too many elements, or too deep"));
        }
        if !self.rest().starts_with('<') {
            return Err(self.wrong("expected an element such as <model>"));
        }
        self.at += 1;
        let mut element = Element { name: self.name()?, ..Element::default() };
        loop {
            self.space();
            if self.rest().starts_with("/>") {
                self.at += 2;
                return Ok(element);
            }
            if self.rest().starts_with('>') {
                self.at += 1;
                break;
            }
            let name = self.name()?;
            self.space();
            if !self.rest().starts_with('=') {
                return Err(self.wrong(format!("attribute `{name}` has no value")));
            }
            self.at += 1;
            self.space();
            let quote = match self.rest().chars().next() {
                Some(quote @ ('"' | '\'')) => quote,
                _ => return Err(self.wrong(format!("attribute `{name}` has no quoted value"))),
            };
            self.at += 1;
            let value = self.upto(quote.encode_utf8(&mut [0; 4]))?;
            element.attributes.push((name, plain(value)));
        }
        self.inside(&mut element, depth)?;
        element.text = element.text.trim().to_owned();
        Ok(element)
    }

    /// Text and children, up to the end of the element.
    fn inside(&mut self, element: &mut Element, depth: usize) -> Result<(), XmlError> {
        loop {
            let rest = self.rest();
            let Some(next) = rest.find('<') else {
                return Err(self.wrong(format!("<{}> has no end", element.name)));
            };
            element.text.push_str(&plain(&rest[..next]));
            self.at += next;
            let rest = self.rest();
            if rest.starts_with("</") {
                self.at += 2;
                let name = self.upto(">")?;
                if name.trim() != element.name {
                    return Err(self.wrong(format!("</{name}> ends <{}>", element.name)));
                }
                return Ok(());
            }
            if rest.starts_with("<![CDATA[") {
                self.at += "<![CDATA[".len();
                element.text.push_str(self.upto("]]>")?);
            } else if rest.starts_with("<!--") || rest.starts_with("<?") {
                self.skip_between()?;
            } else {
                element.children.push(self.element(depth + 1)?);
            }
        }
    }
}

/// With the five characters that are written as `&…;`.
fn plain(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
        .into_iter()
        .fold(text.to_owned(), |text, (coded, character)| text.replace(coded, character))
}

/// Coded as [`plain`] reads it.
pub(crate) fn coded(text: &str) -> String {
    [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;")]
        .into_iter()
        .fold(text.to_owned(), |text, (character, coded)| text.replace(character, coded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_attributes_and_text_are_read() {
        let root = parse(
            "<?xml version=\"1.0\"?>\n<!-- a -->\n<a x='1' y=\"b &amp; c\"><b/> 3 <c>\n<![CDATA[<]]></c>\
             <!-- d --></a>\n",
        )
        .unwrap();
        assert_eq!(root.attribute("y"), Some("b & c"));
        assert_eq!((root.text.as_str(), root.children.len()), ("3", 2));
        assert_eq!(root.child("c").unwrap().text, "<");
        assert_eq!(plain(&coded("a<b>&\"c\"")), "a<b>&\"c\"");
    }

    #[test]
    fn what_is_not_xml_is_refused_with_its_line() {
        let deep = "<a>".repeat(100_000);
        for text in [
            "",
            "a",
            "<",
            "<a",
            "<a>",
            "<a></b>",
            "<a b></a>",
            "<a b=1/>",
            "<a/><b/>",
            "<a b='1/>",
            "<!--",
            "<a>\u{0}</a",
            &deep,
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.line == 1 && error.what.len() > 5, "{error}");
        }
        assert_eq!(parse("<a>\n\n<b></c></a>").unwrap_err().line, 3);
    }
}
