//! Plots as files, one below the other: a drawing or a page.

use std::path::Path;

use anyhow::anyhow;
use kendall_report::plot::{Plot, svg};

use crate::exit::{Exit, exit_with};
use crate::output;

/// Writes plots into a file that ends in .svg or .html.
pub(crate) fn write(path: &Path, title: &str, plots: &[Plot]) -> anyhow::Result<()> {
    let drawings: Vec<String> = plots.iter().map(svg::standalone).collect();
    let drawn = match (path.extension().and_then(|ending| ending.to_str()), drawings.as_slice()) {
        (Some("svg"), [one]) => one.clone(),
        (Some("svg"), several) => stacked(several),
        (Some("html"), all) => format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
             <body>{}</body></html>\n",
            all.join("\n")
        ),
        _ => {
            let error = anyhow!("{}: a plot is written as .svg or .html", path.display());
            return Err(exit_with(Exit::Refused, error));
        }
    };
    output::file(path, &drawn)
}

/// Drawings in one file, one below the other.
fn stacked(drawings: &[String]) -> String {
    const HEIGHT: usize = 500;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"{0}\" \
         viewBox=\"0 0 800 {0}\">",
        HEIGHT * drawings.len()
    );
    for (index, drawing) in drawings.iter().enumerate() {
        text.push_str(&format!(
            "<svg x=\"0\" y=\"{}\" width=\"800\" height=\"{HEIGHT}\">{drawing}</svg>",
            index * HEIGHT
        ));
    }
    text.push_str("</svg>\n");
    text
}
