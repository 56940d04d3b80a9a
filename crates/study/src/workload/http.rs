//! `protocol = "http"`.

use kendall_keys::Form;
use serde_json::json;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, Protocol, TargetForm};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "http", keys: &[KEYS], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::choice("scheme", &["http", "https"], "of the addresses").or("'http'"),
    Key::text("path", "of the requests, with its leading slash").or("'/'"),
    Key::text("method", "of the requests").or("'GET'"),
    Key::text("body", "of the requests").optional(),
    Key::new(
        "vary",
        Form::Named(&Form::Special("values as `kendall load http --vary` takes them")),
        "values of `{name}` in path and body, such as `{ exponent = \"exponential:20\" }`; factors \
         vary it as `workload.vary.exponent`",
    )
    .optional(),
    Key::texts("options", "further arguments of `kendall load http`, such as headers"),
];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let scheme = section.choice("scheme", &[("http", "http"), ("https", "https")])?;
    let path = section.text("path")?;
    if !path.starts_with('/') {
        return Err(section.problem("path", format!("`{path}` does not start with `/`")));
    }
    let method = section.text("method")?;
    let mut options = Vec::new();
    if method != "GET" {
        options.extend(["--method".to_owned(), method]);
    }
    if let Some(body) = section.opt_text("body")? {
        options.extend(["--body".to_owned(), body]);
    }
    // What stands for `{name}` in path and body: `vary = { exponent = "exponential:20" }`, so that
    // a factor can vary it as `workload.vary.exponent`.
    let mut table = section.section("vary")?;
    for (name, value) in table.entries() {
        let values = kendall_keys::text_of(value);
        table.effective(name, json!(values));
        options.extend(["--vary".to_owned(), format!("{name}={values}")]);
    }
    section.effective("vary", table.named());
    // Headers and the like go to `kendall load http` as they are.
    options.extend(section.words("options")?);
    Ok(Driver { options, target: TargetForm::Url { scheme, path }, ..Driver::default() })
}
