//! How each number was made.

use crate::document::{Section, Table, Unit};
use crate::prepared::Prepared;

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let mut section = Section::new("method", "How each number was computed");
    let table = Table::of("method", "Definitions", DEFINITIONS)
        .column("number", "Number", Unit::Text, |(number, _)| *number)
        .column("definition", "How it was made", Unit::Text, |(_, definition)| *definition);
    section.table(table.table());
    section.text(format!(
        "Confidence of every interval: {}. Seed: {}. Digest of the study's effective values: {}.",
        crate::number::percent(data.study.confidence),
        data.study.seed,
        data.study.fingerprint
    ));
    Some(section)
}

const DEFINITIONS: &[(&str, &str)] = &[
    (
        "Measured window",
        "The part of a run that remains after warm-up and cool-down are cut, by the rule stored \
         with it. Clients and tiers are cut at the same moments of one clock.",
    ),
    ("Throughput", "Requests answered without an error within the window, over its length."),
    (
        "Response time",
        "From when a request was due (not from when it could be sent) to its last byte. The mean is \
         over all requests of all repetitions; so are the times in stages.",
    ),
    (
        "Percentiles",
        "Of all requests of all repetitions: their histograms, which keep three significant digits, \
         merged. Refused where fewer than five requests lie beyond it.",
    ),
    (
        "! beside a number",
        "Caveats of the runs of this configuration; the chapter on threats to validity has all.",
    ),
    (
        "Knee, saturated",
        "The lowest load within 5 % of the highest throughput. Saturated: the last step gained no \
         more than 5 %, or something of the system was 95 % busy at the highest load.",
    ),
    (
        "N*",
        "Where the asymptotes of light and heavy load cross: Xmax·(Rmin + Z). Of an adaptive \
         search: lowest load times Xmax over X there, from runs made after both were chosen.",
    ),
    (
        "Effect, share of variation",
        "Least squares on coded levels; the sum of squares of a term over the total.",
    ),
    (
        "± and bars, from … to",
        "An interval over repetitions, each run being one observation: the jackknife on the \
         logarithm, with Student's t, so that no rate and no time has an interval that reaches 0. \
         Where runs differ so much that it would span more than a factor of 7, or not at all, there is none.",
    ),
    (
        "Waiting, service and backend time",
        "By the tier's own clock: from the last byte of a request read to a worker taking it; from \
         there to the answer handed to the kernel; from the last byte sent to a backend to the \
         last backend's last byte.",
    ),
    (
        "Queue length, workers busy",
        "Time-weighted means: the integral of the level over the window, over its length.",
    ),
    (
        "Visits, requests a batch",
        "How often a worker, or a connection, was used per request: once, or one over the mean \
         batch where a worker serves several requests at once. The service time of such a visit is \
         the time of the whole batch, measured once a batch.",
    ),
    (
        "CPU",
        "User and system time of each process by the operating system's accounting, between the \
         samples nearest to the window's ends, over the time between them.",
    ),
    ("Demand", "Busy servers over throughput: seconds of a resource that one request needs."),
    (
        "Error of a model",
        "Predicted over measured, minus one; means are over points that did not calibrate it.",
    ),
];
