//! `protocol = "http"`.

use serde_json::json;

use crate::factor::text_of;
use crate::section::{Problem, Section};
use crate::workload::{Driver, Protocol, TargetForm};

pub(super) const PROTOCOL: Protocol = Protocol { name: "http", read };

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let scheme = section.choice("scheme", &[("http", "http"), ("https", "https")], Some("http"))?;
    let path = section.text("path", Some("/"))?;
    if !path.starts_with('/') {
        return Err(section.problem("path", format!("`{path}` does not start with `/`")));
    }
    let method = section.text("method", Some("GET"))?;
    let mut options = Vec::new();
    if method != "GET" {
        options.extend(["--method".to_owned(), method]);
    }
    if section.has("body") {
        options.extend(["--body".to_owned(), section.text("body", None)?]);
    }
    // What stands for `{name}` in path and body: `vary = { exponent = "exponential:20" }`, so that
    // a factor can vary it as `workload.vary.exponent`.
    let mut table = section.section("vary")?;
    for (name, value) in table.entries() {
        let values = text_of(value);
        table.effective(name, json!(values));
        options.extend(["--vary".to_owned(), format!("{name}={values}")]);
    }
    let vary = table.finish()?;
    section.effective("vary", vary);
    // Headers and the like go to `kendall load http` as they are.
    options.extend(section.words("options", &[])?);
    Ok(Driver { options, prefill: None, target: TargetForm::Url { scheme, path } })
}
