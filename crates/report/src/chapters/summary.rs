//! The result in words.

use kendall_fit::bottleneck::bottleneck;
use kendall_fit::saturation::{Saturation, Shape};

use crate::answer;
use crate::document::{Level, Section};
use crate::number;
use crate::prepared::Prepared;
use kendall_observations::{Configuration, Observations, short};

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let mut section = Section::new("summary", "Summary");
    if data.configurations.is_empty() {
        section.note(
            Level::Bad,
            "No run of this study can be used, so there is nothing to report. The chapter on \
             threats to validity says why each was rejected or failed.",
        );
        return Some(section);
    }
    section.list(sentences(data));
    let unusable = data.unusable().count();
    if unusable > 0 {
        section.note(
            Level::Doubt,
            format!(
                "{} of {} were rejected or failed and are not in the numbers; see threats to \
                 validity.",
                unusable,
                number::count(data.runs.len(), "run")
            ),
        );
    }
    Some(section)
}

/// How much was measured, in a line.
pub(crate) fn byline(data: &Observations) -> String {
    let usable: usize = data.configurations.iter().map(|c| c.repetitions.len()).sum();
    let when = data.runs.first().map_or_else(String::new, |run| {
        format!(" · first run {}", utc_minutes(run.started_unix_ns))
    });
    let planned = data
        .study
        .planned_runs
        .filter(|&planned| u64::try_from(usable).is_ok_and(|usable| usable < planned));
    let of = planned.map_or_else(String::new, |planned| format!(" of {planned} planned"));
    format!(
        "{}{of} usable · {}{when}",
        number::count(usable, "run"),
        number::count(data.configurations.len(), "configuration")
    )
}

/// The result in a few sentences, which change with the data.
pub(crate) fn sentences(data: &Prepared<'_>) -> Vec<String> {
    let Some(fastest) = data.fastest() else {
        return vec![format!(
            "No run of this study can be used, so there is nothing to report: of {}, none \
             succeeded.",
            number::count(data.runs.len(), "run")
        )];
    };
    let mut sentences = Vec::new();
    // Of a design of effects they are what it asks for, and its best cell is one among several.
    if data.load.is_none() && !data.factors.is_empty() && data.searches.is_empty() {
        sentences.extend(effects_sentence(data));
    }
    sentences.push(highest(data, fastest));
    if data.searches.is_empty() {
        sentences.extend(range_of_curves(data));
    } else {
        sentences.extend(super::searches::summary(data));
    }
    sentences.extend(limit(data, fastest));
    sentences.extend(certainty(data));
    sentences.extend(clean(data));
    sentences
}

fn highest(data: &Observations, fastest: &Configuration) -> String {
    let estimate = fastest.throughput_estimate();
    let interval = estimate.as_ref().and_then(|estimate| estimate.interval);
    let interval = number::in_interval(interval, number::rate);
    let p99 = fastest.percentile_estimate(0.99).ok().map_or_else(String::new, |p99| {
        format!(", 99th percentile {}", number::with_interval(&p99, number::time))
    });
    let rivals = match alike(data, fastest).as_slice() {
        [] => String::new(),
        [one] => format!(" (not significantly different from {})", data.name_of(one)),
        several => format!(" (not significantly different from {} others)", several.len()),
    };
    let time = fastest.point.client.response_time_s;
    let takes = if time.is_finite() {
        format!("; {} then takes {} on average{p99}", one_of(data), response_in_words(fastest))
    } else {
        String::new()
    };
    format!(
        "The highest throughput is {}{interval}, measured with {}{rivals}{takes}.",
        number::rate(fastest.throughput()),
        data.name_of(fastest)
    )
}

/// The mean response time of a configuration with its interval.
pub(crate) fn response_in_words(configuration: &Configuration) -> String {
    configuration.response_estimate().map_or_else(
        || number::time(configuration.point.client.response_time_s),
        |estimate| number::with_interval(&estimate, number::time),
    )
}

/// What the load consists of: `a request`, or `a task` of a job with an end.
pub(crate) fn one_of(data: &Observations) -> &'static str {
    if data.is_job() { "a task of the job" } else { "a request" }
}

/// What the factors do, or that the runs do not tell.
fn effects_sentence(data: &Observations) -> Option<String> {
    let (response, analysis) = super::effects::of_answer(data);
    Some(match crate::answer::effects_in_words(&response, &analysis.ok()?) {
        Ok(words) => words,
        Err(why) => format!("Cannot tell what matters for the {}: {why}.", response.name),
    })
}

/// Configurations whose throughput does not differ significantly from that of the fastest.
fn alike<'a>(data: &'a Observations, fastest: &'a Configuration) -> Vec<&'a Configuration> {
    let runs = |c: &Configuration| -> Vec<f64> {
        c.repetitions.iter().map(|r| r.point.client.throughput_per_s).collect()
    };
    let best = runs(fastest);
    let told = |c: &Configuration| {
        let compared = kendall_stats::compare::ratio(&runs(c), &best, data.study.confidence);
        compared.and_then(|ratio| ratio.interval).is_some_and(|interval| interval.low > 1.0)
    };
    data.configurations.iter().filter(|c| c.number != fastest.number && !told(c)).collect()
}

/// Where the curves saturate.
fn range_of_curves(data: &Prepared<'_>) -> Option<String> {
    let load = data.load.as_ref()?;
    let found: Vec<(&str, &Saturation)> = data
        .saturations()
        .filter_map(|(curve, found)| Some((curve.name.as_str(), found?)))
        .collect();
    let saturated: Vec<&(&str, &Saturation)> =
        found.iter().filter(|(_, s)| s.shape.is_reached()).collect();
    let unit = &load.unit;
    let unknown: Vec<&(&str, &Saturation)> =
        found.iter().filter(|(_, s)| s.shape == Shape::CannotTell).collect();
    if saturated.is_empty() {
        let up_to = number::significant(
            data.configurations
                .iter()
                .filter_map(|c| c.level(&load.key)?.number)
                .fold(0.0, f64::max),
            4,
        );
        return match unknown.first() {
            Some((name, first)) => {
                let why = first.unknown.as_ref().map_or_else(String::new, |why| why.in_words(unit));
                Some(format!(
                    "The runs do not tell whether curves saturate ({} of {}). {name}: {why}.",
                    unknown.len(),
                    found.len()
                ))
            }
            None => (!found.is_empty()).then(|| {
                format!(
                    "Throughput grows up to the highest measured load ({up_to} {unit}), so \
                     the capacity was not reached."
                )
            }),
        };
    }
    let knee = |found: &Saturation| match found.below_knee {
        None => format!("at or below {}", number::plain(found.knee.load)),
        Some(below) => {
            format!("between {} and {}", number::plain(below), number::plain(found.knee.load))
        }
    };
    let at = if let ([(_, only)], 1) = (saturated.as_slice(), found.len()) {
        knee(only)
    } else if saturated.len() <= 4 {
        let each: Vec<String> =
            saturated.iter().map(|(name, s)| format!("{name} {}", knee(s))).collect();
        each.join("; ")
    } else {
        let loads = || saturated.iter().map(|(_, s)| s.knee.load);
        let (low, high) = (loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max));
        format!("at or below {} to {}", number::plain(low), number::plain(high))
    };
    let overloaded = saturated.iter().filter(|(_, s)| s.shape == Shape::Overloaded).count();
    let fall = if overloaded > 0 {
        format!("; beyond it, throughput falls again in {overloaded} of them")
    } else {
        String::new()
    };
    let cannot = match unknown.len() {
        0 => String::new(),
        count => format!(" For {count} the runs do not tell."),
    };
    Some(format!(
        "Curves that saturate: {} of {}. The knee in {unit}: {at}{fall}. More load beyond it only \
         adds response time.{cannot}",
        saturated.len(),
        found.len()
    ))
}

fn limit(data: &Prepared<'_>, fastest: &Configuration) -> Option<String> {
    let found = bottleneck(&fastest.point);
    let first = found.evidence.first()?;
    let disturbed = if found.disturbed { "; other programs used the machine too" } else { "" };
    Some(match (&found.limiting, &found.cannot_tell) {
        (_, Some(_)) if answer::is_shown(data, fastest) => {
            "No counter tells what limits it there, but the curve does: see the answer.".to_owned()
        }
        (_, Some(why)) => format!("Cannot tell what limits it there: {why}."),
        (Some(_), None) => format!("What limits it there: {first}{disturbed}."),
        (None, None) => format!("No counter shows what limits it there: {first}{disturbed}."),
    })
}

fn certainty(data: &Observations) -> Option<String> {
    let mut widths: Vec<f64> = data
        .configurations
        .iter()
        .filter_map(|c| c.throughput_estimate()?.relative_half_width())
        // A rate that was kept exactly differs by roundings only.
        .map(|width| if width < 1e-9 { 0.0 } else { width })
        .collect();
    if widths.is_empty() && data.repetitions() > 1 {
        return Some(format!(
            "{} of a configuration at most are too few, or differ too much: no number here has an \
             interval.",
            number::count(data.repetitions(), "repetition")
        ));
    }
    if widths.is_empty() {
        return Some(
            "Every configuration was run once, so it is unknown how much a repetition would differ."
                .to_owned(),
        );
    }
    widths.sort_by(f64::total_cmp);
    let median = widths[widths.len() / 2];
    let without = data.configurations.len() - widths.len();
    let none = if without == 0 {
        String::new()
    } else {
        format!("; {} of {} have none", without, data.configurations.len())
    };
    Some(format!(
        "With up to {} of each configuration, the {} interval of the throughput is ±{} in the middle \
         one and ±{} in the worst{none}.",
        number::count(data.repetitions(), "repetition"),
        number::percent(data.study.confidence),
        number::percent(median),
        number::percent(widths[widths.len() - 1])
    ))
}

fn clean(data: &Observations) -> Option<String> {
    let all = data.configurations.iter().map(Configuration::counts);
    let (completed, errors, hits, misses) = all.fold((0, 0, 0, 0), |sum, c| {
        (sum.0 + c.completed, sum.1 + c.errors, sum.2 + c.hits, sum.3 + c.misses)
    });
    let errors = kendall_units::ratio(errors, completed + errors)?;
    let misses = kendall_units::ratio(misses, hits + misses).filter(|share| *share > 0.0);
    let failed = if errors > 0.0 {
        format!("{} failed", number::percent(errors))
    } else {
        "none failed".to_owned()
    };
    let missed = misses.map_or_else(String::new, |share| {
        format!(", and {} of the reads found nothing", number::percent(share))
    });
    Some(format!(
        "Of {} {} in the measured windows {failed}{missed}.",
        number::fixed(kendall_units::exact_f64(completed), 0),
        if data.is_job() { "tasks" } else { "requests" }
    ))
}

/// `2026-11-21 09:30 UTC` of a time in nanoseconds since 1970.
pub fn utc_minutes(unix_ns: u64) -> String {
    let date = kendall_units::utc(i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX));
    format!("{} UTC", date.rsplit_once(':').map_or("", |(minutes, _)| minutes))
}

/// The factors' short names, for a sentence.
pub(super) fn factor_names(data: &Observations) -> String {
    data.factors.iter().map(|factor| short(&factor.key)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::utc_minutes;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc_minutes(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc_minutes(951_782_400_000_000_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc_minutes(1_795_253_400_000_000_000), "2026-11-21 09:30 UTC");
    }
}
