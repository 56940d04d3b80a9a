//! `protocol = "grpc"`.

use kendall_keys::Form;

use crate::section::{Key, Problem, Section};
use crate::workload::{Driver, Jobs, Protocol};

pub(super) const PROTOCOL: Protocol =
    Protocol { name: "grpc", keys: &[KEYS], read, jobs: Jobs::Never };

const KEYS: &[Key] = &[
    Key::text("call", "the method, as `package.Service/Method`"),
    Key::text("data", "the message of each call as JSON, with `{name}` for what varies").or("'{}'"),
    Key::texts("proto", "files that describe the method; the service is asked unless given"),
    Key::new(
        "vary",
        Form::Named(&Form::Special("values as `kendall load grpc --vary` takes them")),
        "values of `{name}` that are drawn for each call, such as `{ id = \"zipf:1000,1.1\" }`",
    )
    .optional(),
    Key::new(
        "metadata",
        Form::Named(&Form::Special("a text or a number")),
        "what is sent with each call",
    )
    .optional(),
    Key::texts("options", "further arguments of `kendall load grpc`, such as `--tls`"),
];

fn read(section: &mut Section<'_>) -> Result<Driver, Problem> {
    let mut options = section.options(&["call", "data", "proto", "vary", "metadata"])?;
    options.extend(section.words("options")?);
    Ok(Driver { options, ..Driver::default() })
}
