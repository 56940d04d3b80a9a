//! Metrics as Prometheus reads them: its text format.

use std::fmt::{Display, Write as _};

/// Names and values of labels.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// A metric of a page, to which samples are added.
#[derive(Debug)]
pub struct Metric<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Exposition {
    /// Begins a metric; `kind` is `counter`, `gauge` or `histogram`.
    pub fn metric<'a>(&'a mut self, name: &'a str, kind: &str, help: &str) -> Metric<'a> {
        let text = &mut self.text;
        // Writing to a string does not fail.
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").unwrap_or_default();
        Metric { text, name }
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

impl Metric<'_> {
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.part("", labels, value);
    }

    /// A histogram: how many values are at most each bound, the sum of all, and their number.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        at_most: impl IntoIterator<Item = (String, u64)>,
        sum: impl Display,
        count: u64,
    ) {
        for (bound, values) in at_most.into_iter().chain([("+Inf".to_owned(), count)]) {
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.part("_bucket", &labels, values);
        }
        self.part("_sum", labels, sum);
        self.part("_count", labels, count);
    }

    fn part(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        let text = &mut *self.text;
        text.push_str(self.name);
        text.push_str(suffix);
        for (place, (name, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(text, "{before}{name}=\"{value}\"").unwrap_or_default();
        }
        let end = if labels.is_empty() { "" } else { "}" };
        writeln!(text, "{end} {value}").unwrap_or_default();
    }
}
