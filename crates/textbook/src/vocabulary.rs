//! Elements and attributes of a format: what its reader does not know is listed, rather than passed over.

use roxmltree::Node;

/// An element, its attributes, and what may stand in it; `"result-*"` is all that begins so. What stands in an
/// element that has no such row is not looked at, and `"*"` stands for any attribute.
pub(crate) type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

pub(crate) fn elements<'a>(of: Node<'a, 'a>) -> impl Iterator<Item = Node<'a, 'a>> {
    of.children().filter(Node::is_element)
}

pub(crate) fn tag(element: Node<'_, '_>) -> String {
    format!("<{}>", element.tag_name().name())
}

/// Unknown elements and attributes, with where they begin.
pub(crate) fn unknown(root: Node<'_, '_>, rows: &[Row]) -> Vec<(usize, String)> {
    let (mut found, mut left) = (Vec::new(), vec![root]);
    while let Some(element) = left.pop() {
        let name = element.tag_name().name();
        let Some((_, attributes, parts)) = rows.iter().find(|row| row.0 == name) else { continue };
        let called = element.attribute("name").or(element.attribute("id"));
        let called =
            called.map_or_else(|| tag(element), |name| format!("{} `{name}`", tag(element)));
        let own = element.attributes().filter(|one| one.namespace().is_none());
        let known = |name: &str| attributes.contains(&"*") || attributes.contains(&name);
        for one in own.filter(|one| !known(one.name())) {
            let what = format!("attribute `{}` of {called}", one.name());
            found.push((one.range().start, what));
        }
        for part in elements(element) {
            let name = part.tag_name().name();
            let is = |known: &&str| match known.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => *known == name,
            };
            if parts.iter().any(is) {
                left.push(part);
            } else {
                found.push((part.range().start, format!("{} in {called}", tag(part))));
            }
        }
    }
    found
}
