//! The status page, for people.

use std::fmt::Write as _;

use kendall_units::{exact_f64, ratio};

use super::context::Shared;
use super::store::Kind;
use crate::html::escaped;

pub(crate) fn page(shared: &Shared) -> String {
    let mut html = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta http-equiv=\"refresh\" content=\"5\"><title>Kendall cache</title>\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <style>body{font:15px system-ui,sans-serif;margin:2em;max-width:80em}\
         div{overflow-x:auto}table{border-collapse:collapse;margin:1em 0}td{white-space:nowrap}td,th{padding:.3em .6em;text-align:right;\
         border-bottom:1px solid #ccc}th:first-child,td:first-child{text-align:left}</style>\
         <h1>Kendall cache</h1>",
    );
    stores(&mut html, shared);
    let [hits, misses, blob_hits, blob_misses] = shared.metrics.hits();
    put(
        &mut html,
        format_args!(
            "<p>Action results: {} of {} look-ups hit ({}). Blobs: {} of {} ({}).</p>",
            hits,
            hits + misses,
            percent(hits, misses),
            blob_hits,
            blob_hits + blob_misses,
            percent(blob_hits, blob_misses)
        ),
    );
    chart(&mut html, &shared.metrics.minutes());
    put(
        &mut html,
        format_args!(
            "<p>Open uploads: {}. Bytes of unfinished requests: {}.</p>",
            shared.uploads.open.count(),
            shared.budget.held()
        ),
    );
    html
}

fn put(html: &mut String, text: std::fmt::Arguments<'_>) {
    html.write_fmt(text).expect("a text takes all that is written to it");
}

fn stores(html: &mut String, shared: &Shared) {
    html.push_str(
        "<div><table><tr><th>Instance<th>Blobs<th>Results<th>Assets<th>On disk<th>In use<th>Quota\
         <th>Evicted<th>Age at eviction<th>Damaged<th>Index</tr>",
    );
    for (name, store) in shared.instances.stores() {
        let [used, alive, quota] = store.bytes();
        let (counts, memory) = store.entries();
        let count = |kind: Kind| counts.get(&kind).copied().unwrap_or(0);
        let age = shared.metrics.eviction_age(name, store, &shared.clock);
        let age = age.map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.0} s"));
        let shown = if name.is_empty() { "(all)".to_owned() } else { escaped(name) };
        put(
            html,
            format_args!(
                "<tr><td>{shown}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{age}<td>{}<td>{}</tr>",
                count(Kind::Blob),
                count(Kind::Result),
                count(Kind::Asset),
                size(used),
                size(alive),
                size(quota),
                store.counts().evicted.get(),
                store.counts().damaged.get(),
                size(memory),
            ),
        );
    }
    html.push_str("</table></div>");
}

/// Hits of action results, minute by minute: a bar each, as high as the share of hits.
fn chart(html: &mut String, minutes: &[[u64; 4]]) {
    if minutes.iter().all(|[hits, misses, _, _]| hits + misses == 0) {
        return;
    }
    html.push_str(
        "<p>Hit rate of action results, minute by minute until now; the whole height is 100 %, \
         and a minute without a look-up is a gap:</p>",
    );
    let width = 6 * minutes.len();
    put(
        html,
        format_args!(
            "<svg viewBox=\"0 0 {width} 60\" width=\"{width}\" role=\"img\" \
             style=\"max-width:100%;height:auto;border:solid #ccc;border-width:1px 0\">"
        ),
    );
    for (index, [hits, misses, _, _]) in minutes.iter().enumerate() {
        let Some(share) = ratio(*hits, hits + misses) else { continue };
        // A minute of misses alone is a line, so that it is no gap.
        let height = (share * 60.0).max(1.0);
        put(
            html,
            format_args!(
                "<rect x=\"{}\" y=\"{:.1}\" width=\"5\" height=\"{height:.1}\" fill=\"#36c\">\
                 <title>{hits} hits, {misses} misses</title></rect>",
                6 * index,
                60.0 - height
            ),
        );
    }
    html.push_str("</svg>");
}

fn percent(hits: u64, misses: u64) -> String {
    ratio(hits, hits + misses)
        .map_or_else(|| "none yet".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = exact_f64(bytes);
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_of_hours_fits_a_phone_and_tells_misses_from_nothing() {
        let mut minutes = vec![[0, 0, 0, 0]; 118];
        let mut html = String::new();
        chart(&mut html, &minutes);
        assert_eq!(html, "", "there is nothing to draw");
        minutes.extend([[0, 7, 0, 0], [3, 1, 0, 0]]);
        chart(&mut html, &minutes);
        assert!(
            html.contains("viewBox=\"0 0 720 60\"") && html.contains("max-width:100%"),
            "{html}"
        );
        assert_eq!(html.matches("<rect").count(), 2, "{html}");
        assert!(html.contains("height=\"1.0\"") && html.contains("height=\"45.0\""), "{html}");
    }
}
