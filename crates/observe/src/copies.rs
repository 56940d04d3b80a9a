//! Jobs that scrape one application: what they count stands alike at every moment, whatever the names of their targets.

use std::collections::BTreeMap;

use crate::discover::Job;
use crate::grid::Grid;
use crate::preset::Stands;
use crate::source::Source;
use crate::system::System;
use crate::twice::Twice;

/// Times until now that are looked at: a server that was started lately has counters for a short one only.
const SEEN_S: [u64; 3] = [3_600, 600, 120];

/// Compares the jobs that one preset knows. What is not answered stays unknown.
pub(crate) fn compare(jobs: &mut [Job], source: &mut dyn Source, now_s: u64) {
    let mut alike: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        if let Some(preset) = job.preset().filter(|preset| preset.stands != Stands::Machine) {
            alike.entry(&preset.name).or_default().push(at);
        }
    }
    for (preset, places) in alike.into_iter().filter(|(_, places)| places.len() > 1) {
        let of: Vec<&Job> = places.iter().map(|at| &jobs[*at]).collect();
        let Ok(system) = System::parse(&Job::together(preset, &of)) else { continue };
        let mut found = BTreeMap::new();
        for seen_s in SEEN_S {
            let grid = Grid::new(now_s.saturating_sub(seen_s), now_s, system.step_s);
            let beside = grid.ok().and_then(|grid| {
                let part =
                    |labels: &BTreeMap<String, String>| of.iter().position(|job| job.has(labels));
                let twice = Twice::of(&system, source, &grid).ok()?;
                twice.beside(&system.tiers[0], source, part).ok()
            });
            // A longer time tells more.
            for (pair, beside) in beside.unwrap_or_default() {
                found.entry(pair).or_insert(beside);
            }
        }
        let selectors: Vec<String> = of.iter().map(|job| job.selector()).collect();
        for ((one, two), beside) in found {
            jobs[places[one]].beside.insert(selectors[two].clone(), beside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;
    use crate::twice::Beside;

    /// Pages each 15 s, for some minutes: an application that is scraped by two jobs, and the one that it calls once a
    /// request, of which only the times differ, by 5 %.
    fn after(minutes: u32) -> [Option<Beside>; 2] {
        let mut samples = Samples::default();
        let names = ["api", "back", "copy"];
        for at_s in (0..=60 * minutes).step_by(15).map(f64::from) {
            for (name, of) in names.into_iter().zip([1.0, 0.95, 1.0]) {
                let (requests, seconds) = (at_s * 20.0, at_s * 4.0 * of);
                let page = format!(
                    "up 1\nhttp_request_duration_seconds_count {requests}\nhttp_request_duration_seconds_sum {seconds}\n"
                );
                let labels = [("job", name.to_owned()), ("instance", format!("{name}:80"))];
                let labels = labels.map(|(label, value)| (label.to_owned(), value));
                samples.add_page(&page, 1e9 + at_s, &labels.into()).unwrap();
            }
        }
        let of = |name: &str| Job {
            name: name.to_owned(),
            passed_by: None,
            instances: vec![format!("{name}:80")],
            scrape_s: Some(15),
            lag_s: None,
            places: Vec::new(),
            metrics: vec!["http_request_duration_seconds_count".to_owned()],
            beside: BTreeMap::new(),
        };
        let mut jobs = names.map(of);
        compare(&mut jobs, &mut samples, 1_000_000_000 + 60 * u64::from(minutes));
        let api = jobs[0].selector();
        [2, 1].map(|at| jobs[at].beside.get(&api).copied())
    }

    /// Requests alone are as many in all tiers that each request visits once. What is young tells less.
    #[test]
    fn one_application_under_two_names_is_told_from_the_next_in_a_chain() {
        assert_eq!(after(120), [Some(Beside::Same), Some(Beside::Other)]);
        assert_eq!(after(10), [Some(Beside::Alike), Some(Beside::Alike)]);
    }
}
