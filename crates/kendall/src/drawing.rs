//! Drawings as files, one below the other: a picture or a page.

use std::path::Path;

use anyhow::anyhow;
use kendall_report::plot::network::Network;
use kendall_report::plot::{Plot, svg};

use crate::exit::{Exit, exit_with};
use crate::output;

/// A drawing and its size.
pub(crate) struct Drawn {
    svg: String,
    size: (f64, f64),
}

impl From<&Plot> for Drawn {
    fn from(plot: &Plot) -> Self {
        Self { svg: svg::standalone(plot), size: (800.0, 500.0) }
    }
}

impl From<&Network> for Drawn {
    fn from(network: &Network) -> Self {
        let (drawing, size) = network.draw();
        Self { svg: drawing.svg, size }
    }
}

/// Writes drawings into a file that ends in .svg or .html.
pub(crate) fn write(path: &Path, title: &str, drawings: &[Drawn]) -> anyhow::Result<()> {
    let drawn = match (path.extension().and_then(|ending| ending.to_str()), drawings) {
        (Some("svg" | "html"), []) => {
            let error = anyhow!("{}: nothing to draw: more than a picture holds", path.display());
            return Err(exit_with(Exit::Refused, error));
        }
        (Some("svg"), [one]) => one.svg.clone(),
        (Some("svg"), several) => stacked(several),
        (Some("html"), all) => format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
             <body>{}</body></html>\n",
            all.iter().map(|one| one.svg.as_str()).collect::<Vec<_>>().join("\n")
        ),
        _ => {
            let error = anyhow!("{}: a plot is written as .svg or .html", path.display());
            return Err(exit_with(Exit::Refused, error));
        }
    };
    output::file(path, &drawn)
}

/// Drawings in one file, one below the other.
fn stacked(drawings: &[Drawn]) -> String {
    let width = drawings.iter().map(|one| one.size.0).fold(0.0, f64::max);
    let height: f64 = drawings.iter().map(|one| one.size.1).sum();
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">"
    );
    let mut y = 0.0;
    for Drawn { svg, size } in drawings {
        text.push_str(&format!(
            "<svg x=\"0\" y=\"{y:.0}\" width=\"{:.0}\" height=\"{:.0}\">{svg}</svg>",
            size.0, size.1
        ));
        y += size.1;
    }
    text.push_str("</svg>\n");
    text
}
