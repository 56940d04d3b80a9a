//! `protocol = "http"`.

use kendall_keys::Form;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, Protocol, TargetForm};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "http", keys: &[KEYS], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::choice("scheme", &["http", "https"], "of the addresses").or("'http'"),
    Key::text("path", "of the requests, with its leading slash").or("'/'"),
    Key::text("method", "of the requests").or("'GET'"),
    Key::text("body", "body of every request; may contain placeholders").optional(),
    Key::new(
        "vary",
        Form::Named(&Form::Special("values as `kendall load http --vary` takes them")),
        "values of `{name}` in path and body, such as `{ exponent = \"exponential:20\" }`; factors \
         vary it as `workload.vary.exponent`",
    )
    .optional(),
    Key::text(
        "sequence",
        "file of sequences of requests, which has their paths, methods and bodies",
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
    if let Some(file) = section.opt_text("sequence")?
        && let Some(key) = ["path", "method", "body"].into_iter().find(|key| section.has(key))
    {
        let what = format!("`{file}` has the requests: leave this out, or `sequence`");
        return Err(section.problem(key, what));
    }
    options.extend(section.options(&["body", "sequence", "vary"])?);
    // Headers and the like go to `kendall load http` as they are.
    options.extend(section.words("options")?);
    Ok(Driver { options, target: TargetForm::Url { scheme, path }, ..Driver::default() })
}
