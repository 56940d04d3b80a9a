//! How many of something are enough, where that is the question: workers, threads, instances.

use kendall_fit::saturation::{PLATEAU, Shape};
use kendall_observations::{Configuration, Factor, Objective, Observations, short};
use kendall_stats::estimate::{Estimate, Interval};
use kendall_store::FactorLevel;

use super::{Found, Meets, meets, next, with_interval, written_question};
use crate::number;
use crate::prepared::Prepared;

/// What a system with so many of them carries.
struct Level<'a> {
    number: f64,
    /// Its configuration of highest throughput.
    at: &'a Configuration,
    carries: Estimate,
    /// Whether throughput still grew at the highest load.
    grows: bool,
}

/// The number that the question asks for, of what meets the objective where there is one; `None` where it asks for none, or only
/// one number meets it.
pub(super) fn of<'a>(
    data: &'a Prepared<'_>,
    fastest: &'a Configuration,
    objective: Option<&Objective>,
) -> Option<Found<'a>> {
    let factor = asked(data)?;
    let Some(objective) = objective else {
        return Some(answer(data, factor, &levels(data, factor, fastest, None)?));
    };
    let all = data.configurations.iter().filter(|c| meets(c, objective) == Meets::Yes);
    let fastest = all.max_by(|a, b| a.throughput().total_cmp(&b.throughput()))?;
    let mut found = answer(data, factor, &levels(data, factor, fastest, Some(objective))?);
    found.sentence = format!("Where {}: {}", objective.text, found.sentence);
    Some(found)
}

/// The factor that the written question names, where it is a number of things that do the work.
fn asked(data: &Observations) -> Option<&Factor> {
    let question = written_question(data)?.to_lowercase();
    let words: Vec<&str> = question.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let named = |factor: &&Factor| {
        let name = short(&factor.key);
        let one = name.strip_suffix('s');
        let number = |level: &FactorLevel| level.number.is_some_and(|n| n.fract().abs() < 1e-9);
        !factor.key.starts_with("workload.")
            && one.is_some_and(|one| words.iter().any(|word| *word == name || *word == one))
            && factor.levels.iter().all(number)
    };
    let mut all = data.factors.iter().filter(named);
    let first = all.next()?;
    // A design of several factors asks which of them matter.
    let alone = data.load.is_some() || data.factors.len() == 1;
    (all.next().is_none() && alone).then_some(first)
}

/// Its levels by number, all else but the load as at the highest throughput; of what meets the objective.
fn levels<'a>(
    data: &'a Prepared<'_>,
    factor: &Factor,
    fastest: &Configuration,
    objective: Option<&Objective>,
) -> Option<Vec<Level<'a>>> {
    let load = data.load.as_ref().map(|load| load.key.as_str());
    let others = || {
        let keys = data.factors.iter().map(|factor| factor.key.as_str());
        keys.filter(|key| *key != factor.key && Some(*key) != load)
    };
    let text = |c: &Configuration, key: &str| c.level(key).map(|level| level.text.clone());
    let alike = |c: &Configuration| others().all(|key| text(c, key) == text(fastest, key));
    let of = |number: f64| {
        let has = |c: &&Configuration| {
            let here = c.level(&factor.key).and_then(|level| level.number);
            let fits = objective.is_none_or(|objective| meets(c, objective) == Meets::Yes);
            here.is_some_and(|here| here.total_cmp(&number).is_eq()) && alike(c) && fits
        };
        let all = data.configurations.iter().filter(has);
        let at = all.max_by(|a, b| a.throughput().total_cmp(&b.throughput()))?;
        let found = data
            .saturations()
            .find(|(curve, _)| data.along(curve).any(|c| c.number == at.number))
            .and_then(|(_, found)| found)
            .filter(|_| objective.is_none());
        // All runs of a curve say more than those of its highest load.
        let curve = found.and_then(|found| found.curve.as_ref());
        let carries = match curve {
            Some(curve) => curve.capacity.clone(),
            None => at.throughput_estimate()?,
        };
        let grows = found.is_some_and(|found| found.shape == Shape::StillGrowing);
        Some(Level { number, at, carries, grows })
    };
    let mut levels: Vec<Level<'_>> =
        factor.levels.iter().filter_map(|level| of(level.number?)).collect();
    levels.sort_by(|a, b| a.number.total_cmp(&b.number));
    (levels.len() > 1).then_some(levels)
}

/// How many times as much the second carries. The two are independent and their intervals are of
/// logarithms, so the squares of their half-widths add.
fn times(from: &Level<'_>, to: &Level<'_>) -> Estimate {
    let center = to.carries.center / from.carries.center;
    let half = |level: &Level<'_>| {
        level.carries.interval.map(|ends| ((ends.high / ends.low).ln() / 2.0, ends.confidence))
    };
    let interval = half(from).zip(half(to)).map(|((a, confidence), (b, _))| {
        let by = a.hypot(b).exp();
        Interval { low: center / by, high: center * by, confidence }
    });
    Estimate { center, interval, caveats: Vec::new() }
}

/// What a number of them does to the throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// More carry significantly more.
    TooFew,
    /// More carry no more than [`PLATEAU`] more.
    Enough,
    CannotTell,
}

fn judged(level: &Level<'_>, best: &Level<'_>) -> Is {
    match times(level, best).interval {
        Some(ends) if ends.low > 1.0 => Is::TooFew,
        Some(ends) if ends.high <= 1.0 + PLATEAU => Is::Enough,
        _ => Is::CannotTell,
    }
}

fn answer<'a>(data: &Prepared<'_>, factor: &Factor, levels: &[Level<'a>]) -> Found<'a> {
    let things = short(&factor.key);
    let most =
        |a: &usize, b: &usize| levels[*a].carries.center.total_cmp(&levels[*b].carries.center);
    let best = (0..levels.len()).max_by(most).unwrap_or(0);
    let few = levels[..best].iter().rposition(|level| judged(level, &levels[best]) == Is::TooFew);
    let first = few.map_or(0, |few| few + 1);
    let (enough, top) = (&levels[first], &levels[best]);
    let proven = first == best || judged(enough, top) == Is::Enough;
    let carries = with_interval(&enough.carries, number::rate);
    let up_to = up_to(data);
    if !proven {
        return undecided(data, &things, few.map(|few| &levels[few]), (enough, top));
    }
    let below = few.map(|few| {
        let low = &levels[few];
        (low.number, change(low, enough))
    });
    let (sentence, next) = match below {
        Some((_, gain)) if first + 1 == levels.len() => (
            format!("At least {} {things}: {gain}, to {carries}{up_to}.", plain(enough)),
            next::more_of(data, &factor.key, enough.number, enough.grows),
        ),
        below => {
            let last = &levels[levels.len() - 1];
            let beyond = (first + 1 < levels.len()).then(|| change(enough, last));
            let low = below.as_ref().map_or(0.0, |(low, _)| *low);
            let gains = below.map(|(_, gain)| gain);
            let why: Vec<String> = gains.into_iter().chain(beyond).collect();
            let next = if enough.number > low + 1.0 {
                next::between(&factor.key, low, enough.number)
            } else {
                next::limit(data, enough.at)
            };
            (
                format!(
                    "{}, which {} {carries}{up_to}: {}.",
                    number::load(&plain(enough), &things),
                    if enough.number > 1.0 { "carry" } else { "carries" },
                    why.join("; ")
                ),
                next,
            )
        }
    };
    let estimate = Some(enough.carries.clone());
    Found { estimate, ..Found::new(sentence, true, enough.at, next) }
}

/// Where the runs do not tell whether a number below the best is enough.
fn undecided<'a>(
    data: &Prepared<'_>,
    things: &str,
    few: Option<&Level<'a>>,
    (enough, top): (&Level<'a>, &Level<'a>),
) -> Found<'a> {
    let gain = times(enough, top);
    let why = match gain.interval {
        Some(ends) if ends.says_nothing() => change(enough, top),
        Some(_) => format!("{}, which may be something or nothing", change(enough, top)),
        None => "each was run once, so how far another run would differ is not known".to_owned(),
    };
    let carries = with_interval(&top.carries, number::rate);
    let up_to = up_to(data);
    let sentence = match few {
        Some(few) => format!(
            "More than {}; whether {} {things} are enough cannot be told: {why}. {} carry \
             {carries}{up_to}.",
            plain(few),
            plain(enough),
            plain(top)
        ),
        None => {
            format!("Cannot tell how many {things}: {why}. {} carry {carries}{up_to}.", plain(top))
        }
    };
    let estimate = Some(top.carries.clone());
    Found { estimate, ..Found::new(sentence, few.is_some(), top.at, next::repeat(data)) }
}

/// ` at up to 64 clients`: what was offered bounds what many can show.
fn up_to(data: &Observations) -> String {
    data.load.as_ref().map_or_else(String::new, |load| {
        format!(" at up to {} {}", number::plain(next::highest_load(data)), load.unit)
    })
}

fn plain(level: &Level<'_>) -> String {
    number::plain(level.number)
}

/// `from 8 to 32 throughput gained 2.6 times (1.5 to 4.4)`; where it is not much, in percent.
fn change(from: &Level<'_>, to: &Level<'_>) -> String {
    const MUCH: f64 = 1.5;
    let factor = times(from, to);
    let (from, to) = (plain(from), plain(to));
    match factor.interval.filter(Interval::says_nothing) {
        Some(ends) if ends.low > 1.0 => {
            let least = number::plain_to(ends.low, 2);
            return format!("from {from} to {to} throughput gained at least {least} times");
        }
        Some(_) => {
            return format!(
                "the runs differ too much to say what throughput does from {from} to {to}"
            );
        }
        None => {}
    }
    let gained = if factor.center > MUCH {
        let plain = |factor| number::plain_to(factor, 2);
        let ends = factor.interval.map_or_else(
            || "no interval".to_owned(),
            |ends| format!("{} to {}", plain(ends.low), plain(ends.high)),
        );
        format!("gained {} times ({ends})", plain(factor.center))
    } else {
        let percent = factor.map(|factor| factor - 1.0);
        format!("changed by {}", with_interval(&percent, number::signed_percent))
    };
    format!("from {from} to {to} throughput {gained}")
}
