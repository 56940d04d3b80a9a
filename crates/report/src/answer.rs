//! The answer card: the question, the answer in one sentence with its interval, whether to trust it
//! and why, what limits, what the models say, and the next run worth making. "Cannot tell" is an
//! answer, with what would tell.

mod capacity;
mod enough;
mod next;
mod outliers;
mod rate_limit;
mod trust;

use kendall_fit::bottleneck::{Bottleneck, LIMITING, bottleneck};
use kendall_fit::saturation::Saturation;
use kendall_fit::score::{Comparison, Device};
use kendall_observations::{Configuration, Curve, Objective, Observations};
use kendall_stats::analysis::{Analysis, AtOneValue, EffectAtOneValue, Term};
use kendall_stats::compare::ratio;
use kendall_stats::estimate::Estimate;
use kendall_stats::within_run::WithinRun;
use kendall_units::exact_f64;
use serde::Serialize;

use crate::chapters::effects::Response;
use crate::chapters::models::{self, Ranked};
use crate::chapters::{effects, load, searches, trace};
use crate::document::{Table, Unit};
use crate::number::{self, with_interval};
use crate::plot::Plot;
use crate::prepared::Prepared;

pub use trust::{Trust, TrustLevel};

/// What a study answers.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    pub question: String,
    /// The answer in a sentence, with its interval; or that it cannot tell, and what would tell.
    pub answer: String,
    pub told: bool,
    /// Whether to trust the numbers, and why.
    pub trust: Trust,
    /// What limits the system there.
    pub limits: Option<String>,
    /// What the best model says.
    pub model: Option<String>,
    /// The next run worth making.
    pub next: String,
    /// The one plot that shows it.
    pub plot: Option<Plot>,
    /// The configurations in short, for the page.
    #[serde(skip)]
    pub table: Option<Table>,
}

impl Answer {
    /// The card as lines for a terminal, without the plot: a word, and what it says.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let trust = format!("{} – {}", self.trust.level.word(), self.trust.why);
        let mut lines = vec![
            ("question", self.question.clone()),
            ("answer", self.answer.clone()),
            ("trust", trust),
        ];
        lines.extend(self.limits.clone().map(|limits| ("limit", limits)));
        lines.extend(self.model.clone().map(|model| ("model", model)));
        lines.push(("next run", self.next.clone()));
        lines
    }
}

/// A sentence, whether it is an answer, and the configuration that it is about.
struct Found<'a> {
    sentence: String,
    told: bool,
    about: &'a Configuration,
    next: String,
    /// The throughput that is told, where all runs of a curve say it.
    estimate: Option<Estimate>,
    /// What limits, where the curve shows it.
    limit: Option<Limit>,
    /// Whether a processor that others filled held back little of what the curve shows.
    spared: bool,
    /// Whether runs differ since the service works in two modes.
    has_modes: bool,
}

/// What limits, in a sentence; or why that cannot be told, and what would tell.
type Limit = Result<String, String>;

impl<'a> Found<'a> {
    fn new(sentence: String, told: bool, about: &'a Configuration, next: String) -> Self {
        let (estimate, limit) = (None, None);
        Self { sentence, told, about, next, estimate, limit, spared: false, has_modes: false }
    }
}

/// The answer of a study.
pub(crate) fn of(data: &Prepared<'_>) -> Answer {
    let question = question(data);
    let Some(fastest) = data.fastest() else {
        return Answer {
            question,
            answer: "Cannot tell: no run of this study can be used.".to_owned(),
            told: false,
            trust: Trust::nothing(data),
            limits: None,
            model: None,
            next: "See below why each was rejected or failed, and repeat `kendall run` with \
                   --retry-failed."
                .to_owned(),
            plot: None,
            table: None,
        };
    };
    let found = match objective(data) {
        // At one load, the first number that meets it is enough.
        Some(objective) => (data.load.as_ref())
            .and_then(|_| enough::of(data, fastest, Some(&objective)))
            .unwrap_or_else(|| meeting(data, &objective)),
        None if !data.searches.is_empty() => searched(data, fastest),
        None => enough::of(data, fastest, None).unwrap_or_else(|| without_a_number(data, fastest)),
    };
    let mut limit = bottleneck(&found.about.point);
    if found.spared || matches!(found.limit, Some(Ok(_))) {
        // A host that others filled hides nothing of what the curve shows.
        limit.cannot_tell = None;
    }
    let trust = Trust::of(data, found.about, &limit, (found.estimate.as_ref(), found.has_modes));
    let next = match next::after_failures(&data.runs) {
        Some(next) => next,
        None if trust.level == TrustLevel::Bad => trust.remedy.clone(),
        None => found.next,
    };
    let model = model(data, matches!(found.limit, Some(Ok(_))));
    Answer {
        question,
        answer: found.sentence,
        told: found.told,
        limits: match found.limit {
            Some(Ok(what)) => Some(what),
            Some(Err(why)) => Some(format!("Cannot tell what limits: {why}.")),
            None => limits(&limit),
        },
        model,
        next,
        plot: plot(data).map(Plot::at_levels),
        table: Some(load::in_short(data)),
        trust,
    }
}

/// The answer of a study whose question asks for no number of anything.
fn without_a_number<'a>(data: &'a Prepared<'_>, fastest: &'a Configuration) -> Found<'a> {
    if data.load.is_some() {
        capacity::of(data, fastest)
    } else if data.factors.is_empty() {
        single(data, fastest)
    } else {
        what_matters(data, fastest)
    }
}

/// The study's question, as it is written.
fn written_question(data: &Observations) -> Option<String> {
    let file: toml::Table = data.study.file.parse().ok()?;
    file.get("question")?.as_str().map(str::to_owned)
}

/// The study's question; without one, what its answer is about.
fn question(data: &Observations) -> String {
    written_question(data).unwrap_or_else(|| match objective(data) {
        Some(objective) => format!("What meets {}?", objective.text),
        None if data.is_job() => "How long does the job take, and what limits it?".to_owned(),
        None if data.load.is_none() && data.searches.is_empty() && !data.factors.is_empty() => {
            let of = if effects::answers_all(data) { "response time" } else { "throughput" };
            format!("What matters for the {of}, and how much?")
        }
        None => "How much load does it carry, and what limits it?".to_owned(),
    })
}

fn objective(data: &Observations) -> Option<Objective> {
    let file: toml::Table = data.study.file.parse().ok()?;
    Objective::parse(file.get("objective")?.as_str()?).ok()
}

fn rate_of(configuration: &Configuration) -> String {
    configuration
        .throughput_estimate()
        .map_or_else(|| "–".to_owned(), |estimate| with_interval(&estimate, number::rate))
}

/// How a configuration stands to an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meets {
    Yes,
    No,
    /// Its interval holds the limit, or there is none.
    CannotTell,
}

fn of_objective(configuration: &Configuration, objective: &Objective) -> Option<Estimate> {
    match objective.quantile {
        Some(quantile) => configuration.percentile_estimate(quantile).ok(),
        None => configuration.response_estimate(),
    }
}

fn meets(configuration: &Configuration, objective: &Objective) -> Meets {
    let limit = objective.below.get();
    let interval = of_objective(configuration, objective).and_then(|estimate| estimate.interval);
    match interval {
        Some(interval) if interval.high < limit => Meets::Yes,
        Some(interval) if interval.low >= limit => Meets::No,
        _ => Meets::CannotTell,
    }
}

/// The highest load, or the cheapest configuration, that meets an objective.
fn meeting<'a>(data: &'a Observations, objective: &Objective) -> Found<'a> {
    let best = if data.curves.is_empty() {
        // Levels are in the order of the study file: the cheapest comes first.
        data.configurations.iter().find(|c| meets(c, objective) == Meets::Yes)
    } else {
        let highest =
            data.curves.iter().filter_map(|curve| highest_meeting(data, curve, objective));
        highest.max_by(|a, b| a.throughput().total_cmp(&b.throughput()))
    };
    let value = |c: &Configuration| {
        of_objective(c, objective)
            .map_or_else(|| "too few requests".to_owned(), |e| with_interval(&e, number::time))
    };
    let what = objective.text.split('<').next().unwrap_or_default().trim();
    if let Some(best) = best {
        let sort = if data.curves.is_empty() { "The cheapest" } else { "The highest load" };
        let sentence = format!(
            "{sort} that meets {}: {}, at {}; its {what} is {}.",
            objective.text,
            data.name_of(best),
            rate_of(best),
            value(best)
        );
        return Found::new(sentence, true, best, next::around(data, best));
    }
    let nearest = data.configurations.iter().min_by(|a, b| {
        let of = |c: &Configuration| of_objective(c, objective).map_or(f64::INFINITY, |e| e.center);
        of(a).total_cmp(&of(b))
    });
    let about = nearest.unwrap_or(&data.configurations[0]);
    let none = data.configurations.iter().all(|c| meets(c, objective) == Meets::No);
    let sentence = if none {
        format!(
            "No measured configuration meets {}: the nearest is {}, whose {what} is {}.",
            objective.text,
            data.name_of(about),
            value(about)
        )
    } else {
        format!(
            "Cannot tell whether anything meets {}: the nearest is {}, whose {what} is {}; more \
             repetitions, longer runs or a quieter machine would tell.",
            objective.text,
            data.name_of(about),
            value(about)
        )
    };
    let next = if none { next::lower(data) } else { next::repeat(data) };
    Found::new(sentence, none, about, next)
}

/// The highest load of a curve up to which every load meets the objective.
fn highest_meeting<'a>(
    data: &'a Observations,
    curve: &'a Curve,
    objective: &Objective,
) -> Option<&'a Configuration> {
    data.along(curve).take_while(|c| meets(c, objective) == Meets::Yes).last()
}

fn searched<'a>(data: &'a Observations, fastest: &'a Configuration) -> Found<'a> {
    let told = data.searches.iter().any(|line| line.found.is_some());
    let sentence = searches::answer(data).unwrap_or_else(|| {
        let why = data.searches.first().map_or("", |line| line.without.as_str());
        format!("Cannot tell: the search found nothing, since {why}.")
    });
    Found::new(sentence, told, fastest, next::limit(data, fastest))
}

/// The curve that holds the fastest configuration, and what is known of its upper end.
fn best_curve<'a>(
    data: &'a Prepared<'_>,
    fastest: &Configuration,
) -> Option<(&'a Curve, &'a Saturation)> {
    let holds = |curve: &Curve| {
        data.along(curve).any(|configuration| configuration.number == fastest.number)
    };
    let (curve, found) = data.saturations().find(|(curve, _)| holds(curve))?;
    Some((curve, found?))
}

/// Whether the curve of the fastest configuration shows what limits, where the answer asks for nothing else.
pub(crate) fn is_shown(data: &Prepared<'_>, fastest: &Configuration) -> bool {
    let asks_for_load = objective(data).is_none() && data.searches.is_empty();
    best_curve(data, fastest)
        .filter(|_| asks_for_load)
        .is_some_and(|(curve, found)| matches!(capacity::limit(data, curve, found), Some(Ok(_))))
}

/// The name of a curve, and of those whose highest throughput does not differ from its own significantly.
fn rivals(data: &Observations, best: &Curve) -> String {
    const MOST_NAMED: usize = 3;
    let top = |curve: &Curve| -> Vec<f64> {
        let most = data.along(curve).max_by(|a, b| a.throughput().total_cmp(&b.throughput()));
        let runs = most.into_iter().flat_map(|c| &c.repetitions);
        runs.map(|repetition| repetition.point.client.throughput_per_s).collect()
    };
    let of_best = top(best);
    let alike = |curve: &&Curve| {
        let compared = ratio(&top(curve), &of_best, data.study.confidence);
        curve.name != best.name
            && compared.and_then(|ratio| ratio.interval).is_none_or(|interval| interval.low <= 1.0)
    };
    let others: Vec<&str> =
        data.curves.iter().filter(alike).map(|curve| curve.name.as_str()).collect();
    match others.as_slice() {
        [] => best.name.clone(),
        few if few.len() <= MOST_NAMED => {
            format!("{} (not significantly different from {})", best.name, few.join("; "))
        }
        many => format!("{} (not significantly different from {} others)", best.name, many.len()),
    }
}

/// What going from the low to the high level of a factor does: `+3932/s (3800/s to 4060/s) from 8 to
/// 32`, or a factor; an effect is half of it. Nothing for interactions, which have no such step.
fn effect_in_words(response: &Response, analysis: &Analysis, term: &Term) -> String {
    let [factor] = term.factors.as_slice() else { return String::new() };
    let signed: fn(f64) -> String = match response.unit {
        Unit::Milliseconds => |value| number::signed(value, number::time),
        _ => |value| number::signed(value, number::rate),
    };
    let times = |value: f64| format!("×{}", number::significant(value, 4));
    let step = match (&term.multiplier, &term.effect) {
        (Some(multiplier), _) => with_interval(&multiplier.map(|factor| factor * factor), times),
        (None, Some(effect)) => with_interval(&effect.map(|half| 2.0 * half), signed),
        (None, None) => return String::new(),
    };
    format!(", {step} from {}", two_levels(analysis, *factor))
}

/// The two levels of a factor, `8 to 32`; where they are whole commands, which of them they are.
fn two_levels(analysis: &Analysis, factor: usize) -> String {
    const LONGEST: usize = 24;
    let levels = analysis.layout.factors.get(factor).map(|factor| factor.levels.as_slice());
    match levels {
        Some([low, high]) if low.chars().count().max(high.chars().count()) <= LONGEST => {
            format!("{low} to {high}")
        }
        _ => "its low to its high level".to_owned(),
    }
}

/// The significant effects, largest first.
fn told_effects(analysis: &Analysis) -> Vec<&Term> {
    let mut terms: Vec<&Term> =
        effects_of(analysis).filter(|term| term.significant == Some(true)).collect();
    terms.sort_by(|a, b| b.share.total_cmp(&a.share));
    terms
}

/// Which factors matter, and how much.
fn what_matters<'a>(data: &'a Observations, fastest: &'a Configuration) -> Found<'a> {
    let cannot = |why: String| {
        let sentence = format!("Cannot tell what matters: {why}.");
        Found::new(sentence, false, fastest, next::repeat(data))
    };
    let (response, analysis) = effects::of_answer(data);
    let analysis = match analysis {
        Ok(analysis) => analysis,
        Err(error) => return cannot(error.to_string()),
    };
    match effects_in_words(&response, &analysis) {
        Ok(mut sentence) => {
            sentence.push_str(&at_one_speed(&response, &analysis));
            let first = told_effects(&analysis).first().map(|term| term.label.clone());
            Found::new(sentence, true, fastest, next::levels(first.as_deref()))
        }
        Err(why) => {
            let mut found = cannot(why);
            found.sentence.push_str(&at_one_speed(&response, &analysis));
            found
        }
    }
}

/// The largest significant effect of one factor, or the largest where none is significant, at one speed of the
/// machine; empty where the probe of the runs narrows nothing, or none of the significant ones.
fn at_one_speed(response: &Response, analysis: &Analysis) -> String {
    let Some(found) = effects::at_one_speed(analysis) else { return String::new() };
    let there = |term| of_one_factor(found, term);
    let told = told_effects(analysis);
    let best = if told.is_empty() {
        analysis
            .fit
            .terms
            .iter()
            .filter_map(there)
            .max_by(|(a, _), (b, _)| a.share.total_cmp(&b.share))
    } else {
        told.into_iter().find_map(there)
    };
    let Some((term, one)) = best else { return String::new() };
    let effect = Some(one.effect.clone());
    let there = Term { effect, multiplier: one.multiplier.clone(), ..term.clone() };
    format!(
        " At one speed of the machine, by the probe of each run, {}{}: intervals at least {:.1} times \
         narrower; all else is as measured.",
        term.label,
        effect_in_words(response, analysis, &there).trim_start_matches(','),
        found.narrower
    )
}

/// The effect of a term of one factor at one speed, where there is one.
fn of_one_factor<'a>(
    found: &'a AtOneValue,
    term: &'a Term,
) -> Option<(&'a Term, &'a EffectAtOneValue)> {
    let effect = found.effect(&term.name)?;
    (term.factors.len() == 1).then_some((term, effect))
}

/// What the terms leave: error between repetitions; or, where nothing was repeated, what no fitted term explains.
fn left_over(analysis: &Analysis) -> String {
    let cells = &analysis.fit.cells;
    let repeated = cells.iter().any(|cell| cell.replications > 1);
    if repeated || analysis.fit.left_out.is_empty() {
        return "random error between repetitions".to_owned();
    }
    "left to interactions that are taken for random error, since nothing was repeated".to_owned()
}

/// The most that any effect may change the response by, of what it is on average; `None` where one has no
/// interval.
fn most_change(analysis: &Analysis) -> Option<f64> {
    let of = |term: &Term| match (&term.multiplier, &term.effect) {
        (Some(times), _) => {
            let ends = times.interval?;
            Some((ends.high.powi(2) - 1.0).max(1.0 - ends.low.powi(2)))
        }
        (None, Some(effect)) => {
            let ends = effect.interval?;
            Some(2.0 * ends.high.abs().max(ends.low.abs()) / analysis.fit.mean.center.abs())
        }
        (None, None) => None,
    };
    effects_of(analysis).map(of).try_fold(0.0, |most, change| Some(f64::max(most, change?)))
}

/// All terms but blocks.
fn effects_of(analysis: &Analysis) -> impl Iterator<Item = &Term> {
    analysis.fit.terms.iter().filter(|term| !term.factors.is_empty())
}

/// Whether the largest of the effects is significant even among all of them (Bonferroni).
fn is_told_among_all(analysis: &Analysis) -> bool {
    let confidence = analysis.fit.mean.interval.map_or(0.95, |interval| interval.confidence);
    let all = exact_f64(effects_of(analysis).count());
    effects_of(analysis).filter_map(|term| term.p_value).any(|p| p * all < 1.0 - confidence)
}

/// The effects in a sentence; or why they cannot be determined.
pub(crate) fn effects_in_words(response: &Response, analysis: &Analysis) -> Result<String, String> {
    const MOST: usize = 3;
    const MOSTLY: f64 = 0.5;
    // As much as runs of one configuration may differ by before one of them is repeated.
    const NEGLIGIBLE: f64 = 0.1;
    let error = analysis.fit.error.as_ref().map(|error| error.share);
    let told = told_effects(analysis);
    let shares = || {
        let words = told.iter().take(MOST).map(|term| {
            format!(
                "{} ({} of the variation{})",
                term.label,
                number::share(term.share),
                effect_in_words(response, analysis, term)
            )
        });
        words.collect::<Vec<_>>().join("; ")
    };
    let noise = error.map_or_else(String::new, |share| {
        format!(
            "{} of the variation of the {} is {}",
            number::share(share),
            response.name,
            left_over(analysis)
        )
    });
    if error.is_none() {
        return Err(
            "every combination was run once, so the error cannot be estimated; repetitions \
                    would tell"
                .to_owned(),
        );
    }
    let remedy = "more repetitions, a quieter machine or levels further apart would tell";
    match (told.first(), most_change(analysis).filter(|most| *most < 1.0)) {
        (None, Some(most)) if most <= NEGLIGIBLE => Ok(format!(
            "Nothing that was varied matters for the {}: no effect is significant, and none changes it by more \
             than {}, by its interval. {noise}.",
            response.name,
            number::percent(most)
        )),
        (None, most) => {
            let bound = most.map_or_else(String::new, |most| {
                format!(
                    " (none changes it by more than {}, by its interval)",
                    number::percent(most)
                )
            });
            Err(format!("{noise}, and no effect is significant{bound}; {remedy}"))
        }
        // More repetitions leave the error its share of the variation, and narrow the intervals.
        (Some(_), _)
            if error.is_some_and(|share| share > MOSTLY) && !is_told_among_all(analysis) =>
        {
            Err(format!("{noise}. Significant all the same: {}. For the rest, {remedy}", shares()))
        }
        (Some(_), _) => {
            Ok(format!("What matters for the {}: {}. {noise}.", response.name, shares()))
        }
    }
}

/// One run, with the intervals that its own seconds carry. A percentile without one is left out.
fn by_itself(run: &WithinRun, mean: &Estimate) -> String {
    let p99 = run.quantile(0.99).filter(|estimate| estimate.interval.is_some());
    let throughput = &run.throughput_per_s;
    let none = throughput.interval.is_none() && mean.interval.is_none() && p99.is_none();
    let how_sure = match throughput.caveats.first().filter(|_| none) {
        Some(why) => format!("The run carries no interval: {why}."),
        None => "Intervals are of this run: another one may differ more.".to_owned(),
    };
    let print = |estimate: &Estimate, text: fn(f64) -> String| {
        if none { text(estimate.center) } else { with_interval(estimate, text) }
    };
    format!(
        "In its one run it answers {}; a request takes {} on average{}. {how_sure}",
        print(throughput, number::rate),
        print(mean, number::time),
        p99.map_or_else(String::new, |estimate| format!(
            ", the 99th percentile is {}",
            with_interval(estimate, number::time)
        ))
    )
}

/// Several runs, with the intervals over them.
fn over_its_runs(only: &Configuration) -> String {
    let mean = only
        .response_estimate()
        .map_or_else(|| "–".to_owned(), |estimate| with_interval(&estimate, number::time));
    let p99 = only.percentile_estimate(0.99).map_or_else(
        |_| String::new(),
        |estimate| format!(", the 99th percentile is {}", with_interval(&estimate, number::time)),
    );
    format!("It answers {}; a request takes {mean} on average{p99}.", rate_of(only))
}

fn single<'a>(data: &'a Observations, only: &'a Configuration) -> Found<'a> {
    let unsteady = trace::drifting(data);
    let steady = match unsteady.first() {
        None => String::new(),
        Some(first) => format!(" It is not a steady state ({first})."),
    };
    let alone = only.alone().and_then(|run| Some((run, run.response_time_mean_s.as_ref()?)));
    let sentence = match only.makespan_estimate() {
        Some(makespan) => format!(
            "The job takes {}; its tasks complete at {}.",
            with_interval(&makespan, number::time),
            rate_of(only)
        ),
        None => {
            let said = match alone {
                None => over_its_runs(only),
                Some((run, mean)) => by_itself(run, mean),
            };
            format!("{said}{steady}")
        }
    };
    let next = if data.repetitions() < 2 { next::repeat(data) } else { next::limit(data, only) };
    Found::new(sentence, true, only, next)
}

fn limits(found: &Bottleneck) -> Option<String> {
    let first = found.evidence.first()?;
    Some(match (&found.limiting, &found.cannot_tell) {
        (_, Some(why)) => format!("Cannot tell: {why}."),
        (Some(_), None) => format!("{}.", crate::chapters::capitalized(first)),
        (None, None) => format!("Not known: {first}."),
    })
}

/// The best model of the curve of highest throughput, in a sentence, with its error over all curves; beside it
/// the station that the curve shows, where that is what limits.
fn model(data: &Prepared<'_>, shown: bool) -> Option<String> {
    let (curve, found) = best_curve(data, data.fastest()?)?;
    let Some((best, errors)) = models::best(data, curve) else {
        let (_, beside) = data.models().find(|(one, _)| one.name == curve.name)?;
        let why = beside.left_out.first()?;
        return Some(format!("No model applies: {} is left out, since {}.", why.model, why.why));
    };
    let station = found.station.as_ref().filter(|_| shown);
    let other = || {
        let what = station.and_then(|_| names_another(best))?;
        Some(format!("has a {}, but {what}", errors.errors_in_words()))
    };
    if let Some(why) = unfit(best, &errors).or_else(other) {
        let of_curve = station.map_or_else(String::new, |station| {
            format!(
                " The {} that the curve shows errs by at most {} in the throughput at any load.",
                capacity::kind_of(station),
                number::percent(station.worst_error)
            )
        });
        let of = if station.is_some() { "No model of what is counted" } else { "No model" };
        return Some(format!("{of} is good enough: the best, “{}”, {why}.{of_curve}", best.model));
    }
    let names = named(best).map_or_else(String::new, |device| format!("; it {}", names(device)));
    Some(format!("Best is “{}”: {}{names}.", best.model, errors.errors_in_words()))
}

/// The bottleneck of a model, as it names it: a single station has nothing else to name.
fn named(best: &Comparison) -> Option<&Device> {
    let name = best.bottleneck.as_ref().filter(|_| best.devices.len() > 1)?;
    best.devices.iter().find(|device| device.name == *name)
}

/// Why a model is not to be named where the curve shows what limits: it names what had time left.
fn names_another(best: &Comparison) -> Option<String> {
    let device = named(best)?;
    let had_time = device.measured_utilization.is_some_and(|busy| busy < LIMITING);
    had_time.then(|| names(device))
}

fn names(device: &Device) -> String {
    format!("names {} as the bottleneck{}", device.name, busy_in_words(device))
}

/// Why a model is not to be named: it errs, or what it takes for full was not.
fn unfit(best: &Comparison, errors: &Ranked<'_>) -> Option<String> {
    const MOST_ERROR: f64 = 0.25;
    if errors.mean.is_nan() || errors.mean > MOST_ERROR {
        return Some(format!("has a {}", errors.errors_in_words()));
    }
    let device =
        best.devices.iter().find(|device| best.bottleneck.as_ref() == Some(&device.name))?;
    let (model, measured) = (device.utilization?, device.measured_utilization?);
    ((model - measured).abs() > MOST_ERROR).then(|| {
        format!(
            "has a {}, but takes {} for {} busy, where {} was measured",
            errors.errors_in_words(),
            device.name,
            number::percent(model),
            number::percent(measured)
        )
    })
}

/// ` (94 % busy by the model, 91 % measured)`: where the two differ, the model is not to be believed.
fn busy_in_words(device: &Device) -> String {
    match (device.utilization, device.measured_utilization) {
        (Some(model), Some(measured)) => format!(
            " ({} busy by the model, {} measured)",
            number::percent(model),
            number::percent(measured)
        ),
        _ => String::new(),
    }
}

fn plot(data: &Observations) -> Option<Plot> {
    let plot = match &data.load {
        Some(of) if objective(data).is_some() => load::percentiles(data, &of.label),
        // What an open loop offers it mostly gets: its answer is how long requests take.
        Some(of) if data.configurations.iter().all(|c| c.point.population.is_none()) => {
            load::response_time(data, &of.label)
        }
        Some(of) => load::throughput(data, &of.label),
        None if data.factors.is_empty() => trace::throughput(data)?,
        None => effects::shares_of_answer(data)?,
    };
    Some(Plot { id: "plot-answer".to_owned(), ..plot })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(utilization: Option<f64>, measured_utilization: Option<f64>) -> Device {
        Device {
            name: "network thread of proxies 2".to_owned(),
            stands_for: None,
            servers: Some(1.0),
            visits: 1.0,
            service_time_s: 50e-6,
            utilization,
            number_at_center: None,
            measured_utilization,
        }
    }

    /// A lock was what limits, and the processors of the host, half of them idle, what the model named.
    #[test]
    fn a_model_that_names_what_had_time_left_is_not_named_beside_what_the_curve_shows() {
        let of = |measured| Comparison {
            model: "network".to_owned(),
            family: "network".to_owned(),
            assumes: String::new(),
            calibrated_on: String::new(),
            variable: kendall_fit::score::Variable::Throughput,
            points: Vec::new(),
            devices: vec![device(Some(0.52), measured), device(None, None)],
            bottleneck: Some("network thread of proxies 2".to_owned()),
            caveats: Vec::new(),
            calibrated: None,
            solutions: Vec::new(),
        };
        let why = names_another(&of(Some(0.5))).unwrap();
        let names = "names network thread of proxies 2 as the bottleneck";
        assert_eq!(why, format!("{names} (52 % busy by the model, 50 % measured)"));
        assert_eq!(names_another(&of(Some(0.95))), None);
        assert_eq!(names_another(&of(None)), None, "it may have been full");
    }

    /// A model named a network thread as the bottleneck that was measured 16 % busy, and the card said no
    /// word of it.
    #[test]
    fn a_bottleneck_of_a_model_stands_beside_what_was_measured_of_it() {
        let said = busy_in_words(&device(Some(0.94), Some(0.16)));
        assert_eq!(said, " (94 % busy by the model, 16 % measured)");
        assert_eq!(busy_in_words(&device(Some(0.94), None)), "");
    }
}
