//! What others published of the same experiment, beside what was measured here.

use std::fmt;

use kendall_observations::{
    Configuration, Curve, Observations, Published, PublishedCurve, PublishedEffect, PublishedKnee,
    PublishedQuantity as Quantity,
};
use kendall_stats::analysis::Analysis;
use kendall_stats::estimate::{Estimate, Interval};

use crate::document::{Cell, Level, Section, Table, Unit};
use crate::plot::{Axis, Mark, Plot, Point, Series};
use crate::prepared::Prepared;

use super::effects::{self, Response};

/// Whether a published figure and what was measured lead to the same conclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    Differs,
    CannotTell,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::CannotTell => "cannot tell",
        })
    }
}

impl Verdict {
    /// Of the sign of a change, and an interval around it.
    fn of_sign(published: f64, here: &Estimate) -> Self {
        match here.interval {
            Some(interval) if interval.low > 0.0 || interval.high < 0.0 => {
                if (interval.low > 0.0) == (published > 0.0) { Self::Same } else { Self::Differs }
            }
            _ => Self::CannotTell,
        }
    }

    /// Of an effect, where the means there and here are known: an interval around 0 differs too if it holds no effect
    /// of the published share of the mean.
    fn of_effect(published: f64, here: &Estimate, means: Option<(f64, f64)>) -> Self {
        match (Self::of_sign(published, here), means, here.interval) {
            (Self::CannotTell, Some((there, mean)), Some(interval))
                if !interval.contains(published / there * mean) =>
            {
                Self::Differs
            }
            (verdict, ..) => verdict,
        }
    }
}

/// Which of [`effects::responses`], or the queue behind them, a number is of, and its value.
const fn place(quantity: Quantity) -> (usize, f64) {
    match quantity {
        Quantity::Throughput(value) => (0, value),
        Quantity::Time(value) => (1, value),
        Quantity::Waiting(value) => (2, value),
    }
}

pub(crate) fn chapter(data: &Prepared<'_>) -> Option<Section> {
    let published = Published::of_file(&data.study.file)?;
    let mut section = Section::new("published", "Beside what was published");
    section.text(format!("Published: {}.", published.source.trim_end_matches('.')));
    if let Some(conclusion) = &published.conclusion {
        section.text(format!("The authors' conclusion: {conclusion}"));
    }
    let at = section.blocks.len();
    let mut verdicts = Vec::new();
    knees(data, &published.knees, &mut section, &mut verdicts);
    for (index, (response, value)) in effects::responses().iter().enumerate() {
        let of = |quantity: Quantity| Some(place(quantity)).filter(|p| p.0 == index).map(|p| p.1);
        let wanted: Vec<(&PublishedEffect, f64)> =
            published.effects.iter().filter_map(|one| Some((one, of(one.effect)?))).collect();
        if !wanted.is_empty() {
            match effects::additive(data, *value) {
                Ok(analysis) => {
                    let there = published.mean.and_then(of);
                    let table = of_effects(data, (response, there), &wanted, &analysis);
                    verdicts.extend(table.1);
                    section.table(table.0);
                }
                Err(error) => {
                    let what = format!("Effects on the {}: not analyzed: {error}.", response.name);
                    section.note(Level::Doubt, what);
                }
            }
        }
        curves(data, &published.curves, (index, response), &mut section, &mut verdicts);
    }
    let queue = Response {
        key: "waiting".to_owned(),
        name: "queue of the first tier".to_owned(),
        unit: Unit::Plain(4),
        label: "requests".to_owned(),
        share: Unit::Percent,
        covariate: String::new(),
    };
    curves(data, &published.curves, (2, &queue), &mut section, &mut verdicts);
    section.blocks.insert(at, crate::document::Block::Text(in_words(&verdicts)));
    Some(section)
}

/// The published curves of one quantity.
fn curves(
    data: &Observations,
    curves: &[PublishedCurve],
    (index, response): (usize, &Response),
    section: &mut Section,
    verdicts: &mut Vec<Verdict>,
) {
    for (number, curve) in (1..).zip(curves) {
        let Ok(points) = curve.points() else { continue };
        let points: Vec<(&str, f64)> = points
            .into_iter()
            .filter_map(|(level, value)| {
                Some((level, Some(place(value)).filter(|(of, _)| *of == index)?.1))
            })
            .collect();
        if points.is_empty() {
            continue;
        }
        let measured = measured(data, curve, &points, index);
        verdicts.extend(shape(&measured));
        let id = format!("published-{}-{number}", response.key);
        let (table, plot) = of_curve(&id, curve, response, &measured);
        section.plot(plot);
        section.table(table);
    }
}

fn in_words(verdicts: &[Verdict]) -> String {
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    format!(
        "Of {} published figures that can be compared, {} lead to the same conclusion here, {} differ, and of {} \
         the runs cannot tell. Machines differ, so what is compared is the sign of an effect, the range of a \
         knee, and the change from the first to the last level of a curve: \u{201c}same\u{201d} stands where \
         the whole interval has the published sign, or the range contains the published knee. An effect whose \
         interval is around 0 differs if it holds none as large, as a share of the mean.",
        verdicts.len(),
        count(Verdict::Same),
        count(Verdict::Differs),
        count(Verdict::CannotTell)
    )
}

fn of_effects(
    data: &Observations,
    (response, there): (&Response, Option<f64>),
    wanted: &[(&PublishedEffect, f64)],
    analysis: &Analysis,
) -> (Table, Vec<Verdict>) {
    let Response { key, name, unit, label, .. } = response;
    let (unit, mut verdicts) = (*unit, Vec::new());
    let means = there.map(|there| (there, analysis.fit.mean.center));
    let mut table =
        Table::new(format!("published-effects-{key}"), format!("Effects on the {name}"))
            .column("factors", "Factors", Unit::Text)
            .column("published", format!("Published ({label})"), unit)
            .column("here", format!("Here ({label})"), unit)
            .column("published_share", "Published variation (%)", Unit::Percent)
            .column("share", "Variation here (%)", Unit::Percent)
            .column("verdict", "Verdict", Unit::Text);
    for (effect, value) in wanted {
        let mut factors: Vec<Option<usize>> =
            effect.of.iter().map(|key| data.factors.iter().position(|f| f.key == *key)).collect();
        factors.sort_unstable();
        let term = analysis.fit.terms.iter().find(|term| {
            term.factors.len() == factors.len()
                && term.factors.iter().all(|factor| factors.contains(&Some(*factor)))
        });
        let here = term.and_then(|term| term.effect.as_ref());
        let of = |here| Verdict::of_effect(*value, here, means);
        let verdict = here.map_or(Verdict::CannotTell, of);
        verdicts.push(verdict);
        let names: Vec<String> =
            effect.of.iter().map(|key| kendall_observations::short(key)).collect();
        table.push(vec![
            names.join(" × ").into(),
            (*value).into(),
            Cell::estimate_or(here, "no such effect of two levels"),
            Cell::number_or(effect.share.map(|share| share / 100.0), "not published"),
            Cell::number_or(term.map(|term| term.share), "no such term"),
            verdict.to_string().into(),
        ]);
    }
    (table, verdicts)
}

fn knees(
    data: &Prepared<'_>,
    knees: &[PublishedKnee],
    section: &mut Section,
    verdicts: &mut Vec<Verdict>,
) {
    let unit = data.load.as_ref().map_or("load", |load| load.unit.as_str());
    let mut table = Table::new("published-knees", "Knee of each curve")
        .column("curve", "Curve", Unit::Text)
        .column("published", format!("Published ({unit})"), Unit::Level)
        .column("above", format!("Here: above ({unit})"), Unit::Level)
        .column("to", "to", Unit::Level)
        .column("verdict", "Range", Unit::Text);
    for knee in knees {
        let is_meant = |curve: &Curve| data.along(curve).all(|c| knee.at.are_of(&c.levels));
        for (curve, found) in data.saturations().filter(|(curve, _)| is_meant(curve)) {
            let found = found.filter(|found| found.shape.is_reached());
            let verdict = match found {
                None => Verdict::CannotTell,
                Some(found) if found.knee.load < knee.load => Verdict::Differs,
                Some(found) if found.below_knee.is_some_and(|below| below >= knee.load) => {
                    Verdict::Differs
                }
                Some(_) => Verdict::Same,
            };
            verdicts.push(verdict);
            table.push(vec![
                curve.name.as_str().into(),
                knee.load.into(),
                Cell::number_or(found.and_then(|found| found.below_knee), "not known"),
                Cell::number_or(found.map(|found| found.knee.load), "not reached"),
                verdict.to_string().into(),
            ]);
        }
    }
    section.table(table);
}

/// A level with its published and its measured value.
struct Both<'a> {
    level: &'a str,
    /// The level as a number; its place where it is a word.
    x: f64,
    published: f64,
    here: Option<Estimate>,
}

fn measured<'a>(
    data: &Observations,
    curve: &PublishedCurve,
    points: &[(&'a str, f64)],
    quantity: usize,
) -> Vec<Both<'a>> {
    let value = |configuration: &Configuration| match (quantity, data.is_job()) {
        (0, _) => configuration.throughput_estimate(),
        (2, _) => configuration.estimate(|run| Some(run.point.first_tier()?.queue_length)),
        (_, false) => configuration.response_estimate(),
        (_, true) => configuration.makespan_estimate(),
    };
    let both = |(place, (level, published)): (usize, &(&'a str, f64))| {
        let found = data.configurations.iter().find(|configuration| {
            let along = configuration.level(&curve.along);
            along.is_some_and(|along| along.text == *level)
                && curve.at.are_of(&configuration.levels)
        });
        let x = level.parse().ok().or_else(|| found?.level(&curve.along)?.number);
        let x = x.unwrap_or_else(|| kendall_units::exact_f64(place));
        Both { level, x, published: *published, here: found.and_then(value) }
    };
    points.iter().enumerate().map(both).collect()
}

/// Whether the change from the first to the last level that was measured has the published direction.
fn shape(points: &[Both<'_>]) -> Option<Verdict> {
    let mut there = points.iter().filter_map(|point| Some((point.published, point.here.as_ref()?)));
    let (first, last) = (there.next()?, there.next_back()?);
    let half_width = |estimate: &Estimate| {
        estimate.interval.filter(|interval| interval.low > 0.0).map(|i| (i.high / i.low).ln() / 2.0)
    };
    let change = (last.1.center / first.1.center).ln();
    let interval = half_width(first.1).zip(half_width(last.1)).map(|(a, b)| {
        Interval::around(change, a.hypot(b), first.1.interval.map_or(0.95, |i| i.confidence))
    });
    let here = Estimate { interval, ..Estimate::exact(change) };
    Some(Verdict::of_sign((last.0 / first.0).ln(), &here))
}

fn of_curve(
    id: &str,
    curve: &PublishedCurve,
    response: &Response,
    points: &[Both<'_>],
) -> (Table, Plot) {
    let Response { name, unit, label, .. } = response;
    let unit = *unit;
    let along = kendall_observations::short(&curve.along);
    let mut table =
        Table::new(id.to_owned(), format!("{} against {along}", super::capitalized(name)))
            .column("level", super::capitalized(&along), Unit::Text)
            .column("published", format!("Published ({label})"), unit)
            .column("here", format!("Here ({label})"), unit)
            .column("ratio", "Here / published", Unit::Plain(3));
    let factor = if unit == Unit::Milliseconds { 1e3 } else { 1.0 };
    let mut here = Vec::new();
    for point in points {
        table.push(vec![
            point.level.into(),
            point.published.into(),
            Cell::estimate_or(point.here.as_ref(), "not measured"),
            Cell::number_or(
                point.here.as_ref().map(|h| h.center / point.published),
                "not measured",
            ),
        ]);
        here.extend(point.here.as_ref().map(|estimate| super::point(point.x, estimate, factor)));
    }
    let published = points.iter().map(|p| Point::new(p.x, p.published * factor)).collect();
    let series =
        |name: &str, mark, color, points| Series { name: name.to_owned(), mark, color, points };
    let plot = Plot {
        id: format!("plot-{id}"),
        title: format!("{} against {along}, published and here", super::capitalized(name)),
        description: "The published values, and what was measured here.".to_owned(),
        series: vec![
            series("published", Mark::Dashed, 1, published),
            series("here", Mark::Line, 0, here),
        ],
        x: Axis::around_data(along),
        y: Axis::from_zero(format!("{name} ({label})")),
    };
    (table, plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, high: f64) -> Estimate {
        let center = f64::midpoint(low, high);
        Estimate::with_interval(center, Interval { low, high, confidence: 0.95 })
    }

    #[test]
    fn a_verdict_needs_an_interval_that_carries_it() {
        assert_eq!(Verdict::of_sign(-5.0, &estimate(-3.0, -1.0)), Verdict::Same);
        assert_eq!(Verdict::of_sign(5.0, &estimate(-3.0, -1.0)), Verdict::Differs);
        assert_eq!(Verdict::of_sign(5.0, &estimate(-1.0, 3.0)), Verdict::CannotTell);
        assert_eq!(Verdict::of_sign(5.0, &Estimate::exact(3.0)), Verdict::CannotTell);
    }

    #[test]
    fn an_effect_that_is_surely_smaller_than_the_published_one_differs() {
        // A tenth of the mean there; here between −1 and 3 % of it.
        let of = |published, means| Verdict::of_effect(published, &estimate(-10.0, 30.0), means);
        assert_eq!(of(10.0, Some((100.0, 1_000.0))), Verdict::Differs);
        assert_eq!(of(-10.0, Some((100.0, 1_000.0))), Verdict::Differs);
        assert_eq!(of(2.0, Some((100.0, 1_000.0))), Verdict::CannotTell);
        assert_eq!(of(10.0, None), Verdict::CannotTell);
    }

    #[test]
    fn a_curve_is_compared_from_its_first_to_its_last_measured_level() {
        let both = |published, here| Both { level: "1", x: 1.0, published, here };
        let rising = |high| {
            shape(&[
                both(10.0, Some(estimate(90.0, 110.0))),
                both(15.0, None),
                both(20.0, Some(estimate(115.0, high))),
                both(30.0, None),
            ])
        };
        assert_eq!(rising(125.0), Some(Verdict::Same));
        assert_eq!(
            shape(&[
                both(10.0, Some(estimate(90.0, 110.0))),
                both(5.0, Some(estimate(200.0, 210.0)))
            ]),
            Some(Verdict::Differs)
        );
        assert_eq!(
            shape(&[
                both(10.0, Some(estimate(90.0, 110.0))),
                both(5.0, Some(estimate(95.0, 115.0)))
            ]),
            Some(Verdict::CannotTell)
        );
        assert_eq!(shape(&[both(10.0, None)]), None);
    }
}
