//! The analysis as a report: chapters of text, tables and plots, answer first.

mod card;
mod figures;
mod load;
mod variability;

use kendall_fit::open::{
    Answer, Center, LONGEST_WAITING, MOSTLY, MonitoredTier, TierMeans, Waiting, never_full,
    timed_inside, unscored,
};
use kendall_report::document::{Cell, Level, Section, Table, Unit};
use kendall_report::plot::{Axis, Mark, Plot, Point, Series};
use kendall_report::{ModelFile, REPORT_VERSION, Report};
use kendall_stats::estimate::Estimate;
use kendall_units::{Rate, Seconds, counted, exact_f64};

use crate::analysis::{Analysis, FORCED_FLOW, Headroom, TierAnalysis, demand, off_by, rate};
use crate::bins::quantile_bounds;
use crate::fetch::Observed;
use crate::quantity::Quantity;
use crate::system::{Queues, System, Tier};
use crate::windows::present;

/// Points of a drawn curve.
const CURVE: u32 = 60;

/// Points of one series in a plot; of more, means of neighbors are drawn.
const MOST_POINTS: usize = 1_500;

/// A drawn curve ends at so many times the longest response time that was measured or asked for.
const FARTHEST: f64 = 2.0;

/// Quantiles that are bounded by the bins.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

/// Chapters that are open when the page is opened; the others unfold on demand.
const OPEN: [&str; 4] = ["answer", "monitoring", "load", "what-if"];

/// A tier that was seen this busy shows what a request costs when it is full.
const NEAR_FULL: f64 = 0.8;

/// Why a tier is taken as never full.
const UNTOLD: &str = "nothing says how busy its servers are, or how many there are";

/// What usually fills that no query tells of.
const HIDDEN: &str = "a pool of workers or connections, or a lock, may fill before: give it a tier, or take its capacity as the most";

/// What is usually wrong where it is not explained.
const UNITS: &str = "is `response_time` in seconds, `busy` a number of servers (not a share of them), and every tier in \
                     the file?";

/// Everything that was found, as chapters.
pub fn report(
    system: &System,
    observed: &Observed,
    analysis: &Analysis,
    answers: &[Answer],
) -> Report {
    let mut summary = sentences(system, analysis, answers);
    let place = summary.len().min(1);
    summary.splice(place..place, of_one_server(system, observed, analysis));
    let remarks = observed.tiers.iter().flat_map(|tier| tier.left_out.iter().chain(&tier.remarks));
    summary.extend(remarks.map(|what| as_sentence(what)));
    let mut first = Section::new("answer", "The answer");
    first.list(summary.clone());
    let mut sections = vec![
        first,
        monitoring(system, analysis),
        over_time(system, analysis),
        load::arriving(system, observed),
        load::by_class(system, observed, analysis),
        demands(system, analysis),
        against_load(system, analysis, answers),
        load::against_jobs(system, analysis),
        percentiles(system, observed),
        load::durations(system, observed, analysis),
        network(analysis),
        what_if(system, analysis, answers),
    ];
    sections.retain(|section| !section.blocks.is_empty());
    for section in &mut sections {
        section.folded = !OPEN.contains(&section.id);
    }
    let title = system.question.clone().unwrap_or_else(|| format!("What limits {}?", system.name));
    let used = analysis.windows.used().count();
    Report {
        version: REPORT_VERSION,
        name: system.name.clone(),
        byline: format!(
            "{}, {} of {}, {used} used",
            counted(system.tiers.len(), "tier"),
            counted(analysis.windows.all.len(), "window"),
            Seconds::new(exact_f64(analysis.windows.length_s(system))),
        ),
        program: concat!("Kendall ", env!("CARGO_PKG_VERSION")).to_owned(),
        answer: Some(card::card(system, analysis, answers, &title)),
        figures: figures::figures(system, analysis),
        title,
        models: models(analysis),
        summary,
        sections,
    }
}

/// Adds what is answered beside it to the first chapter.
pub fn add(report: &mut Report, sentences: Vec<String>) {
    if let Some(first) = report.sections.first_mut().filter(|_| !sentences.is_empty()) {
        first.list(sentences.clone());
        report.summary.extend(sentences);
    }
}

/// The network as a file that `kendall solve` takes.
fn models(analysis: &Analysis) -> Vec<ModelFile> {
    if analysis.network.is_err() {
        return Vec::new();
    }
    vec![ModelFile {
        file: "network.toml".to_owned(),
        curve: "at the present load".to_owned(),
        model: "open network".to_owned(),
        text: model_file(analysis),
    }]
}

/// Points that a page can carry: beyond some, means of so many neighbors.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    let together = points.len().div_ceil(MOST_POINTS).max(1);
    if together == 1 {
        return points;
    }
    let of = |chunk: &[Point], pick: fn(&Point) -> f64| {
        kendall_stats::sample::mean(&chunk.iter().map(pick).collect::<Vec<f64>>())
    };
    points.chunks(together).map(|c| Point::new(of(c, |p| p.x), of(c, |p| p.y))).collect()
}

fn with_interval(estimate: &Estimate, print: impl Fn(f64) -> String) -> String {
    estimate.interval.map_or_else(
        || print(estimate.center),
        |interval| {
            format!(
                "{} ({} to {})",
                print(estimate.center),
                print(interval.low),
                print(interval.high)
            )
        },
    )
}

fn per_second(value: f64) -> String {
    Rate::per_second(value).to_string()
}

fn times(value: f64) -> String {
    format!("{value:.2}")
}

fn seconds(value: f64) -> String {
    Seconds::new(value).to_string()
}

fn percent(value: f64) -> String {
    format!("{:.0} %", value * 100.0)
}

/// The result in a few sentences.
pub fn sentences(system: &System, analysis: &Analysis, answers: &[Answer]) -> Vec<String> {
    let mut sentences: Vec<String> = first_to_saturate(system, analysis).into_iter().collect();
    sentences.extend(when(system, analysis));
    sentences.extend(analysis.windows.remarks.iter().map(|what| as_sentence(what)));
    sentences.push(trust(analysis));
    sentences.extend(doubts(analysis).map(|what| as_sentence(&what)));
    sentences.extend(own_requests(system, analysis));
    match &analysis.network {
        Ok(network) => sentences.push(match &network.score {
            Some(score) => format!(
                "The network of queues, fitted on the first {}, errs by {} in response time on \
                 the next {} (worst {}).",
                counted(network.fitted_windows, "window"),
                percent(score.median),
                score.points,
                percent(score.worst)
            ),
            None => format!(
                "How far the network of queues is off is not known: {}.",
                unscored(&analysis.monitored)
            ),
        }),
        // What is asked for comes first.
        Err(_) if servers_wanted(system, analysis).is_some() => {}
        Err(reason) => sentences.push(format!("There is no network of queues: {reason}.")),
    }
    sentences.extend(unknown(analysis).map(|tier| format!("In it, {}.", never_full(tier))));
    let inside = analysis.monitored.tiers.iter().filter(|tier| tier.inside);
    sentences.extend(inside.map(|tier| {
        format!("{}. Capacity and utilization do not need it.", timed_inside(&tier.name))
    }));
    sentences.extend(unexplained(analysis).map(|what| format!("{what}: {UNITS}")));
    sentences.extend(outgrown(analysis).map(|what| format!("{what}: {HIDDEN}.")));
    let beside = hidden(analysis).filter(|_| {
        fills_first(analysis).is_none() && (told(analysis) || analysis.bottleneck.is_err())
    });
    sentences.extend(beside.map(|what| format!("{what}.")));
    sentences.extend((!answers.is_empty()).then(|| rests_on(analysis)));
    for answer in answers {
        sentences.push(match &answer.response_time {
            Ok(time) => format!(
                "{}: response time {} at {}{}.",
                answer.question,
                with_interval(time, seconds),
                per_second(answer.arrival_rate_per_s),
                answer.condition.as_ref().map_or_else(String::new, |what| format!(", {what}"))
            ),
            Err(reason) => format!("{}: {reason}.", answer.question),
        });
    }
    sentences
}

/// Tiers of the network of which nothing tells how busy their servers are.
fn unknown(analysis: &Analysis) -> impl Iterator<Item = &MonitoredTier> {
    let centers = analysis.network.iter().flat_map(|network| &network.centers);
    let tiers = centers.zip(&analysis.monitored.tiers);
    tiers.filter(|(center, _)| center.unknown).map(|(_, tier)| tier)
}

/// The time and the load that predictions rest on.
fn rests_on(analysis: &Analysis) -> String {
    let at = |since_s: f64| analysis.seen.minute(since_s);
    let used = analysis.windows.used();
    let (least, most) = analysis.rates_seen_per_s;
    format!(
        "The predictions rest on {} windows between {} and {}, with loads of {} to {}.",
        used.clone().count(),
        at(used.clone().next().map_or(0.0, |first| first.from_s)),
        at(used.last().map_or(0.0, |last| last.to_s)),
        per_second(least),
        per_second(most)
    )
}

/// Which tier saturates first, and at which load; or why this is unknown.
fn first_to_saturate(system: &System, analysis: &Analysis) -> Option<String> {
    let name = |index: usize| system.tiers[index].name.as_str();
    let mut tiers = analysis.tiers.iter().enumerate();
    if let Some((index, found)) = tiers.find_map(|(i, tier)| Some((i, tier.impossible.as_ref()?))) {
        return Some(format!(
            "Cannot tell what saturates first. `{}`: {}.",
            name(index),
            found.why
        ));
    }
    if let Some(what) = fills_first(analysis) {
        return Some(format!("What saturates first is in no tier. {what}: give it a tier."));
    }
    match &analysis.bottleneck {
        Ok(index) => {
            let headroom = analysis.tiers[*index].headroom.as_ref()?;
            if let Some(what) = hidden(analysis).filter(|_| !told(analysis)) {
                return Some(format!(
                    "Cannot tell what saturates first: `{}` at {}, or what no tier shows. {what}: give it a tier.",
                    name(*index),
                    with_interval(&headroom.capacity_per_s, per_second)
                ));
            }
            if let Some(share) = elsewhere(analysis) {
                return Some(format!(
                    "Cannot tell what saturates first: `{}` would at {}, but {} of the response time is in no tier, and what that is may \
                     be full before: give it a tier, or watch it at higher loads.",
                    name(*index),
                    with_interval(&headroom.capacity_per_s, per_second),
                    percent(share)
                ));
            }
            let over = headroom.capacity_per_s.center / analysis.rates_seen_per_s.1;
            let observed = if over > 1.0 {
                format!("{} times the highest observed", times(over))
            } else {
                "as much as was observed at most".to_owned()
            };
            Some(format!(
                "`{}` saturates first: at {}, {} times the present load and {observed}{}.",
                name(*index),
                with_interval(&headroom.capacity_per_s, per_second),
                with_interval(&headroom.ratio, times),
                assumes(analysis, &analysis.tiers[*index]),
            ))
        }
        Err(candidates) if candidates.is_empty() => Some(match servers_wanted(system, analysis) {
            Some(asked) => format!("Cannot tell what saturates first: {asked}."),
            None => uncounted(system, analysis).unwrap_or_else(|| {
                "Cannot tell what saturates first: no tier has a demand that is significantly \
                      above 0; give them queries for `busy`, or analyze a time in which the load \
                      varies."
                    .to_owned()
            }),
        }),
        Err(candidates) => Some(nearest(system, analysis, candidates)),
    }
}

/// What may saturate first, and why nothing tells which does.
fn nearest(system: &System, analysis: &Analysis, candidates: &[usize]) -> String {
    let name = |index: usize| system.tiers[index].name.as_str();
    let of = |index: &usize| {
        let capacity = &analysis.tiers[*index].headroom.as_ref()?.capacity_per_s;
        // What waits there, and how long it holds the servers up, is not known.
        let untold = |below: &usize| analysis.tiers[*below].demand.is_err();
        let tier = &system.tiers[*index];
        let most = if tier.held && tier.calls.iter().any(untold) { " or less" } else { "" };
        let found = &analysis.tiers[*index];
        let held = if found.by_stay { holds(found) } else { String::new() };
        let capacity = with_interval(capacity, per_second);
        Some(format!("`{}` at {capacity}{most}{held}", name(*index)))
    };
    let nearest: Vec<String> = candidates.iter().filter_map(of).collect();
    format!(
        "Cannot tell what saturates first; nearest is {} ({}).",
        nearest.join(" or "),
        why_not_first(system, analysis)
    )
}

/// Why nothing tells how busy any tier is.
fn uncounted(system: &System, analysis: &Analysis) -> Option<String> {
    let mut all = system.tiers.iter().zip(&analysis.tiers);
    let told = |(tier, found): (&Tier, &TierAnalysis)| {
        let why = found.demand.as_ref().err()?;
        let name = &tier.name;
        Some(format!("Cannot tell what saturates first. `{name}`: {why}; give it `busy`."))
    };
    all.find_map(told)
}

/// Why the nearest tier need not be the first.
fn why_not_first(system: &System, analysis: &Analysis) -> String {
    let without = |fitted: bool| -> Vec<String> {
        let tiers = system.tiers.iter().zip(&analysis.tiers);
        let tiers = tiers.filter(|(_, found)| found.headroom.is_none() && !found.lacks_servers);
        let tiers = tiers.filter(|(_, found)| found.demand.is_ok() == fitted);
        tiers.map(|(tier, _)| format!("`{}`", tier.name)).collect()
    };
    let silent = without(false);
    if !silent.is_empty() {
        return format!(
            "nothing says how busy {} is: it needs `busy` and `servers`",
            silent.join(", ")
        );
    }
    if let Some(asked) = servers_wanted(system, analysis) {
        return asked;
    }
    match without(true).as_slice() {
        [] => {
            "their capacities do not differ significantly: analyze a time with more different loads"
                .to_owned()
        }
        apart => format!(
            "how busy {} is does not follow the load: its `busy` is of something else, or the load hardly varied",
            apart.join(", ")
        ),
    }
}

/// The numbers of servers that nothing tells, although how many are busy is told.
fn servers_wanted(system: &System, analysis: &Analysis) -> Option<String> {
    let tiers = system.tiers.iter().zip(&analysis.tiers);
    let asked: Vec<String> = tiers
        .filter(|(_, found)| found.lacks_servers)
        .map(|(tier, _)| format!("how many {} has `{}`", tier.servers_are(), tier.name))
        .collect();
    (!asked.is_empty()).then(|| {
        let each = if asked.len() == 1 { "" } else { " for each" };
        format!("{}? Write `servers = N`{each} in the file", asked.join(", and "))
    })
}

/// What one server carries where nothing says how many there are.
fn of_one_server(system: &System, observed: &Observed, analysis: &Analysis) -> Vec<String> {
    let tiers = system.tiers.iter().zip(&analysis.tiers).enumerate();
    let lacking = tiers.filter(|(_, (_, it))| it.lacks_servers && it.impossible.is_none());
    let carried = |(index, (tier, _)): (usize, (&Tier, &TierAnalysis))| {
        let busy = observed.tiers[index].series.get(&Quantity::Busy)?;
        let mut windows = analysis.windows.clone();
        for number in 0..windows.all.len() {
            let steps = busy.get(windows.steps_of(number));
            windows.all[number].tiers[index].busy = steps.and_then(present);
        }
        let most = windows.used().filter_map(|one| one.tiers[index].busy).fold(1.0, f64::max);
        let fit = demand(system, &windows, index, most.ceil()).ok()?;
        let demand = &fit.demands.first()?.estimate;
        demand.interval.filter(|interval| interval.low > 0.0)?;
        let servers = tier.servers_are();
        let (one, carries) = (servers.trim_end_matches('s'), demand.map(|seconds| 1.0 / seconds));
        Some(format!(
            "Each {one} of `{}` carries {} of the system's requests at most: one keeps it busy for {}.",
            tier.name,
            with_interval(&carries, per_second),
            with_interval(demand, seconds)
        ))
    };
    lacking.filter_map(carried).collect()
}

/// Share of the response time that is in no tier, where that is most of it.
pub(crate) fn elsewhere(analysis: &Analysis) -> Option<f64> {
    let share = analysis.network.as_ref().ok()?.unexplained(analysis.rates_seen_per_s.0)?;
    (share > MOSTLY).then_some(share)
}

/// What most of the response time consists of, where it is none of the work or waiting that the figures of the
/// tiers explain: then a figure most likely has another unit, and a capacity is off by as much.
fn unexplained(analysis: &Analysis) -> Option<String> {
    let network = analysis.network.as_ref().ok()?;
    if let Some(share) = elsewhere(analysis) {
        return Some(format!("{} of the response time at low load is in no tier", percent(share)));
    }
    let long = |center: &&Center| {
        let fitted = center.residence.waiting == Waiting::Fitted;
        fitted && center.residence.waiting_factor.value > LONGEST_WAITING
    };
    let center = network.centers.iter().find(long)?;
    Some(format!(
        "Requests wait {:.0} times as long at `{}` as its busy servers explain",
        center.residence.waiting_factor.value, center.name
    ))
}

/// That something fills which is in no tier.
fn outgrown(analysis: &Analysis) -> Option<String> {
    let more = percent(analysis.network.as_ref().ok()?.outgrown?);
    Some(format!(
        "At the highest loads the response time is {more} longer than the network of these tiers explains"
    ))
}

/// What fills that is in no tier, where response times tell how much it carries.
fn hidden(analysis: &Analysis) -> Option<String> {
    let found = analysis.network.as_ref().ok()?.hidden.as_ref()?;
    let capacity = found.capacity();
    let ratio = capacity.map(|rate| rate / analysis.rate_now_per_s);
    let servers = match found.sizes() {
        [least, most] if least == most => counted(most, "server"),
        [least, most] => format!("{least} to {most} servers"),
    };
    let uncounted = analysis.monitored.tiers.iter().find(|tier| tier.uncounted);
    let perhaps =
        uncounted.map_or_else(String::new, |tier| format!(" (perhaps those of `{}`)", tier.name));
    Some(format!(
        "Requests wait for what no tier shows, a pool of workers or connections{perhaps}, or a lock: as response times grow, it has \
         {servers} and is full at {}, {} times the present load",
        with_interval(&capacity, per_second),
        with_interval(&ratio, times)
    ))
}

/// The same where it is full before all tiers.
fn fills_first(analysis: &Analysis) -> Option<String> {
    let found = analysis.network.as_ref().ok()?.hidden.as_ref()?;
    let most = found.capacity().interval?.high;
    let mut tiers = analysis.tiers.iter().filter_map(|tier| tier.headroom.as_ref());
    let is_later =
        |tier: &Headroom| tier.capacity_per_s.interval.is_some_and(|interval| interval.low > most);
    hidden(analysis).filter(|_| tiers.all(is_later))
}

/// Whether it is told what saturates first: a tier, and nothing that no tier shows may be full before; or surely that.
fn told(analysis: &Analysis) -> bool {
    let Ok(index) = analysis.bottleneck else { return false };
    let hidden = analysis.network.iter().find_map(|network| network.hidden.as_ref());
    let least = hidden.and_then(|found| found.capacity().interval).map(|all| all.low);
    let tier = analysis.tiers[index].headroom.as_ref().and_then(|it| it.capacity_per_s.interval);
    let is_later = least.zip(tier).is_none_or(|(least, tier)| least > tier.high);
    is_later && elsewhere(analysis).is_none() || fills_first(analysis).is_some()
}

/// What a capacity assumes that no window shows.
fn assumes(analysis: &Analysis, tier: &TierAnalysis) -> String {
    let far = tier.utilization_seen < NEAR_FULL;
    let costs = format!(
        ", if a request costs as much when it is full as at up to {} busy",
        percent(tier.utilization_seen)
    );
    let alone = ", or more, if something keeps it busy without load (the load hardly changed)";
    let all = [
        tier.by_stay.then(|| holds(tier)),
        far.then_some(costs),
        (far && !analysis.monitored.varies()).then(|| alone.to_owned()),
    ];
    all.into_iter().flatten().collect()
}

/// What a number of busy servers assumes that is made of response times.
fn holds(tier: &TierAnalysis) -> String {
    let servers = counted(tier.servers, "server");
    format!(", if a request holds one of its {servers} for all of its response time")
}

/// When the bottleneck saturates at the growth that was seen, where days were.
fn when(system: &System, analysis: &Analysis) -> Option<String> {
    let is_told = told(analysis) && fills_first(analysis).is_none();
    let index = *analysis.bottleneck.as_ref().ok().filter(|_| is_told)?;
    let growth = analysis.growth.as_ref().ok()?;
    let saturation = analysis.saturation(index)?;
    Some(format!(
        "The busiest hour grows by {} per day ({} whole days{}): `{}` saturates {}.",
        with_interval(&growth.per_day_per_s, |value| format!("{value:+.3}/s")),
        growth.days,
        if growth.weekdays { "" } else { ", too few to separate weekdays from growth" },
        system.tiers[index].name,
        saturation.in_words(),
    ))
}

/// Whether the monitoring agrees with itself.
fn trust(analysis: &Analysis) -> String {
    let broken: Vec<String> = analysis
        .laws
        .iter()
        .filter(|law| !law.holds)
        .map(|law| match law.lag_s {
            Some(lag_s) => format!("`{}` (its clock, by {lag_s:+.0} s)", law.tier),
            None if law.is_unrelated() => format!("`{}` (it does not follow the entry)", law.tier),
            None => format!("`{}` ({})", law.tier, off_by(law.difference)),
        })
        .collect();
    if analysis.laws.is_empty() {
        "The monitoring cannot be checked: no tier has both arrivals and throughput, or both a \
         number of requests and a response time."
            .to_owned()
    } else if broken.is_empty() {
        format!("The monitoring is consistent by {}.", counted(analysis.laws.len(), "law"))
    } else {
        format!("The monitoring contradicts itself at {}: see the checks.", broken.join(", "))
    }
}

/// What a tier serves that does not come from the entry.
fn own_requests(system: &System, analysis: &Analysis) -> Vec<String> {
    let all = system.tiers.iter().zip(&analysis.tiers);
    let told = all.filter_map(|(tier, found)| {
        let own = with_interval(found.own_per_s.as_ref()?, per_second);
        Some(format!(
            "`{}` serves {own} without load, such as the queries of an exporter: its visits leave them out.",
            tier.name
        ))
    });
    told.collect()
}

/// What cannot be told of the monitoring.
pub(crate) fn doubts(analysis: &Analysis) -> impl Iterator<Item = String> {
    let known = analysis.maybe_twice.iter().chain(&analysis.lacking);
    untold(analysis).chain(known.cloned())
}

/// A doubt, which begins with a small letter.
pub(crate) fn as_sentence(doubt: &str) -> String {
    let (first, rest) = doubt.split_at(doubt.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}.", first.to_uppercase())
}

/// Tiers that may serve other requests than those of the entry.
fn untold(analysis: &Analysis) -> impl Iterator<Item = String> {
    analysis.untold.iter().map(|(tier, why)| {
        format!("cannot tell whether `{tier}` serves the requests of the entry: {why}")
    })
}

fn monitoring(system: &System, analysis: &Analysis) -> Section {
    let mut section = Section::new("monitoring", "Can the monitoring be trusted?");
    section.text(
        "These laws hold for any system over any time. Where one does not, the figures describe \
         different requests or different times: fix the monitoring before you trust the model.",
    );
    let mut table = Table::new("laws", "Operational laws, left side against right side")
        .column("law", "Law", Unit::Text)
        .column("tier", "Tier", Unit::Text)
        .column("difference", "Mean difference (%)", Unit::SignedPercent)
        .column("spread", "Standard deviation (%)", Unit::Percent)
        .column("windows", "Windows", Unit::Count)
        .column("verdict", "Verdict", Unit::Text);
    for law in &analysis.laws {
        let verdict = if law.holds {
            "holds".to_owned()
        } else {
            let late = law.lag_s.map_or_else(String::new, |lag_s| {
                format!(
                    " best after a shift of \
                                                                    {lag_s:.0} s;"
                )
            });
            format!("does not hold;{late} usually {}", law.explanation)
        };
        table.push(vec![
            law.law.into(),
            law.tier.clone().into(),
            law.difference.into(),
            law.spread.into(),
            exact_f64(law.windows as u64).into(),
            verdict.into(),
        ]);
    }
    for (tier, why) in &analysis.untold {
        let nothing = || Cell::Empty(why.clone());
        table.push(vec![
            FORCED_FLOW.into(),
            tier.clone().into(),
            nothing(),
            nothing(),
            nothing(),
            format!("cannot tell: {why}").into(),
        ]);
    }
    section.table(table);
    let mut windows = Table::new("windows", "Windows that are left out, and why")
        .column("from_s", "From (s)", Unit::Plain(6))
        .column("to_s", "To (s)", Unit::Plain(6))
        .column("throughput_per_s", "Throughput (1/s)", Unit::PerSecond)
        .column("why", "Why", Unit::Text)
        .folded();
    for window in &analysis.windows.all {
        if let Some(why) = &window.left_out {
            let throughput = rate(system, window);
            windows.push(vec![
                window.from_s.into(),
                window.to_s.into(),
                Cell::number_or(throughput, "no scrape"),
                why.clone().into(),
            ]);
        }
    }
    section.table(windows);
    section
}

/// Label of an axis of time, and the seconds of its unit.
fn time_axis(system: &System, analysis: &Analysis) -> (&'static str, f64) {
    let length_s = analysis.windows.all.last().map_or(0.0, |window| window.to_s);
    match length_s {
        // A day that was compressed has other hours.
        _ if system.day_s != 86_400 => ("Time (s)", 1.0),
        long if long > 3.0 * 86_400.0 => ("Time (days)", 86_400.0),
        long if long > 3.0 * 3_600.0 => ("Time (h)", 3_600.0),
        long if long > 10.0 * 60.0 => ("Time (min)", 60.0),
        _ => ("Time (s)", 1.0),
    }
}

fn over_time(system: &System, analysis: &Analysis) -> Section {
    let mut section = Section::new("time", "Load over time");
    let series = |pick: &dyn Fn(&TierMeans) -> Option<f64>| -> Vec<Series> {
        system
            .tiers
            .iter()
            .enumerate()
            .map(|(index, tier)| Series {
                name: tier.name.clone(),
                mark: Mark::Line,
                color: index,
                points: thinned(
                    analysis
                        .windows
                        .all
                        .iter()
                        .filter_map(|w| Some(Point::new(w.from_s, pick(&w.tiers[index])?)))
                        .collect(),
                ),
            })
            .collect()
    };
    section.plot(Plot {
        id: "throughput-time".to_owned(),
        title: "Throughput of each tier".to_owned(),
        description: "One point per window, including those left out.".to_owned(),
        x: Axis::from_zero("Time (s)"),
        y: Axis::from_zero("Throughput (1/s)"),
        series: series(&|means| means.throughput_per_s),
    });
    section.plot(Plot {
        id: "response-time".to_owned(),
        title: "Response time of each tier".to_owned(),
        description: "One point per window, mean over its requests.".to_owned(),
        x: Axis::from_zero("Time (s)"),
        y: Axis::from_zero("Response time (ms)"),
        series: series(&|means| means.response_time_s.map(|time| time * 1e3)),
    });
    section
}

fn demands(system: &System, analysis: &Analysis) -> Section {
    let mut section = Section::new("demands", "Demands and headroom");
    section.text(
        "Demand is the time for which one request of the system keeps a server of the tier busy, from \
         busy servers against throughput over all windows used. Capacity is the load at which all its \
         servers would be busy: a bound, since response times grow before it. It assumes that a request costs \
         as much then as in the windows. Of servers with a queue each, the busiest is full first: its share \
         of the requests counts.",
    );
    let mut table = Table::new("demands", "Demands, capacities, headroom")
        .column("tier", "Tier", Unit::Text)
        .column("servers", "Servers", Unit::Count)
        .column("visits", "Visits", Unit::Plain(4))
        .column("demand_s", "Demand (ms)", Unit::Milliseconds)
        .column("background", "Busy without load", Unit::Plain(3))
        .column("utilization_seen", "Highest utilization observed (%)", Unit::Percent)
        .column("busiest", "Busiest server over the mean", Unit::Plain(3))
        .column("capacity_per_s", "Capacity (1/s)", Unit::PerSecond)
        .column("headroom", "Times the present load", Unit::Plain(3));
    for (tier, found) in system.tiers.iter().zip(&analysis.tiers) {
        let (demand, background) = match &found.demand {
            Ok(fit) => (
                Cell::estimate_or(fit.demands.first().map(|demand| &demand.estimate), "none"),
                fit.background.as_ref().map_or_else(
                    || Cell::Empty("not significant".to_owned()),
                    |part| Cell::Estimate(part.estimate.clone()),
                ),
            ),
            Err(why) => (Cell::Empty(why.clone()), Cell::Empty(why.clone())),
        };
        let why = found
            .demand
            .as_ref()
            .err()
            .map_or("its demand is not significantly above 0", |why| why);
        let headroom = found.headroom.as_ref();
        table.push(vec![
            tier.name.clone().into(),
            Cell::number_or(
                found.servers_told.then(|| exact_f64(found.servers)),
                "neither the file nor a query says it",
            ),
            Cell::Estimate(found.visits.clone()),
            demand,
            background,
            found.utilization_seen.into(),
            busiest(tier, found),
            Cell::estimate_or(headroom.map(|h| &h.capacity_per_s), why),
            Cell::estimate_or(headroom.map(|h| &h.ratio), why),
        ]);
    }
    section.table(table);
    section
}

/// Requests of the busiest server over the mean of all.
fn busiest(tier: &Tier, found: &TierAnalysis) -> Cell {
    let over = found
        .shares
        .as_ref()
        .and_then(|shares| Some(shares.first()? * exact_f64(shares.len() as u64)));
    Cell::number_or(
        over,
        match tier.queues {
            Queues::One => "one queue for all",
            Queues::Each => "no query for `each` gives one series per server: taken as alike",
        },
    )
}

fn against_load(system: &System, analysis: &Analysis, answers: &[Answer]) -> Section {
    let mut section = Section::new("load", "Against the load");
    let measured = |index: usize, pick: &dyn Fn(&TierMeans) -> Option<f64>| {
        let windows = analysis.windows.used();
        thinned(
            windows
                .filter_map(|w| Some(Point::new(rate(system, w)?, pick(&w.tiers[index])?)))
                .collect(),
        )
    };
    let utilization: Vec<Series> = system
        .tiers
        .iter()
        .enumerate()
        .map(|(index, tier)| {
            let m = exact_f64(analysis.tiers[index].servers);
            Series {
                name: tier.name.clone(),
                mark: Mark::Points,
                color: index,
                points: measured(index, &|means| means.busy.map(|busy| busy / m * 100.0)),
            }
        })
        .collect();
    section.plot(Plot {
        id: "utilization-load".to_owned(),
        title: "Utilization against load".to_owned(),
        description: "One point per used window.".to_owned(),
        x: Axis::from_zero("Load (1/s)"),
        y: Axis::from_zero("Utilization (%)"),
        series: utilization,
    });
    let measured_s = measured(system.entry, &|means| means.response_time_s.map(|time| time * 1e3));
    let response = responses(system, analysis, measured_s, answers);
    section.plot(Plot {
        id: "response-load".to_owned(),
        title: "Response time at the entry against load".to_owned(),
        description:
            "Points are windows, those left out in another color (the chapter on the monitoring \
             says why each is); the dashed line is the network's prediction."
                .to_owned(),
        x: Axis::from_zero("Load (1/s)"),
        y: Axis::from_zero("Response time (ms)"),
        series: response,
    });
    section
}

/// Response times against the load: as measured in the windows that are used, in those left out, and by
/// the network.
fn responses(
    system: &System,
    analysis: &Analysis,
    measured: Vec<Point>,
    answers: &[Answer],
) -> Vec<Series> {
    let told = answers.iter().filter_map(|answer| {
        let time = answer.response_time.as_ref().ok()?;
        Some(Point::new(answer.arrival_rate_per_s, time.center * 1e3))
    });
    let told: Vec<Point> = told.collect();
    // The curve ends where it leaves what was measured or asked behind: near its capacity it is without bounds.
    let highest = measured.iter().chain(&told).map(|point| point.y).fold(0.0, f64::max);
    let farthest = told.iter().map(|point| point.x).fold(analysis.rates_seen_per_s.1, f64::max);
    let mut response = vec![Series {
        name: "measured".to_owned(),
        mark: Mark::Points,
        color: 0,
        points: measured,
    }];
    let left_out = analysis.windows.all.iter().filter(|window| window.left_out.is_some());
    let outside = left_out.filter_map(|window| {
        let time = window.tiers[system.entry].response_time_s?;
        Some(Point::new(rate(system, window)?, time * 1e3))
    });
    response.push(Series {
        name: "windows left out".to_owned(),
        mark: Mark::Points,
        color: 2,
        points: thinned(outside.collect()),
    });
    if let Ok(network) = &analysis.network {
        let most = farthest * 1.2;
        let points = (1..=CURVE)
            .filter_map(|step| {
                let load = most * f64::from(step) / f64::from(CURVE);
                Some(Point::new(load, network.at(load).ok()?.response_time_s * 1e3))
            })
            .take_while(|point| point.y <= FARTHEST * highest)
            .collect();
        let name = "network of queues".to_owned();
        response.push(Series { name, mark: Mark::Dashed, color: 0, points });
    }
    response.retain(|series| !series.points.is_empty());
    response
}

fn percentiles(system: &System, observed: &Observed) -> Section {
    let mut section = Section::new("percentiles", "Percentiles, as bins");
    section.text(
        "In one bin, it is surely in that bin and may be anywhere in it: only more bounds in the application's histogram tell \
         more. In several, it is in one of them with 95 %: too few requests were seen to tell in which."
            .to_owned(),
    );
    let mut table = Table::new("percentiles", "Response times over the whole time, by bins")
        .column("tier", "Tier", Unit::Text);
    for quantile in QUANTILES {
        let label = format!("{} % of requests", quantile * 100.0);
        table = table.column(format!("p{}", quantile * 100.0), label, Unit::Text);
    }
    let steps = 0..observed.grid.len();
    for (tier, series) in system.tiers.iter().zip(&observed.tiers) {
        if series.buckets.is_empty() {
            continue;
        }
        let mut row: Vec<Cell> = vec![tier.name.clone().into()];
        for quantile in QUANTILES {
            let step_s = exact_f64(system.step_s);
            row.push(match quantile_bounds(series, steps.clone(), step_s, quantile) {
                Some(bounds) if bounds.at_most_s.is_infinite() => {
                    format!("above {}, the last bound", seconds(bounds.above_s)).into()
                }
                Some(bounds) => {
                    let (low, high) = (seconds(bounds.above_s), seconds(bounds.at_most_s));
                    let bins = if bounds.bins == 1 { "in the bin" } else { "in the bins" };
                    format!("{bins} of {low} to {high}").into()
                }
                None => Cell::Empty("no requests".to_owned()),
            });
        }
        table.push(row);
    }
    section.table(table);
    section
}

fn network(analysis: &Analysis) -> Section {
    let mut section = Section::new("network", "The network of queues");
    let network = match &analysis.network {
        Ok(network) => network,
        Err(reason) => {
            section.note(Level::Doubt, format!("There is none: {reason}."));
            return section;
        }
    };
    section.text(format!(
        "Open network, one center per tier; fitted on the first {} used windows, scored on the \
         others. Waiting is that of M/M/m times a fitted factor, (c_a² + c_s²)/2 after Allen and \
         Cunneen. A request is held up for the whole service time, unless the windows show that it is \
         answered sooner: parts of it are worked on at the same time, or later, or a limited processor \
         lends its full speed for a moment; or later: it also waits for what keeps no server busy, such as a \
         network. Time that is in none of the tiers is a delay of {}.",
        network.fitted_windows,
        seconds(network.elsewhere_s.value)
    ));
    if let Some(found) = &network.hidden {
        section.text(format!(
            "Requests also wait for a station that no tier shows, M/M/{} with holds of {} and {} times its waiting, which was \
             fitted to the response times. The servers may be held while tiers work.",
            found.servers,
            seconds(found.hold_s()),
            times(found.waiting_factor)
        ));
    }
    let mut table = Table::new("centers", "Centers and fitted parameters")
        .column("tier", "Tier", Unit::Text)
        .column("servers", "Servers", Unit::Count)
        .column("visits", "Visits", Unit::Plain(4))
        .column("service_time_s", "Service time (ms)", Unit::Milliseconds)
        .column("service_time_error_s", "± (ms)", Unit::Milliseconds)
        .column("waiting_factor", "Waiting factor", Unit::Plain(3))
        .column("held_up", "Held up (%)", Unit::Percent)
        .column("rests_on", "Rests on", Unit::Text);
    for center in &network.centers {
        table.push(vec![
            center.name.clone().into(),
            Cell::number_or((!center.unknown).then(|| exact_f64(center.servers)), UNTOLD),
            center.visits.into(),
            center.service_time_s.value.into(),
            center.service_time_s.standard_error.into(),
            center.residence.waiting_factor.value.into(),
            center.residence.held_up.value.into(),
            rests_on_of(center).into(),
        ]);
    }
    section.table(table);
    variability::structures(&mut section, network);
    if let Some(found) = &analysis.class_network {
        load::class_network(&mut section, network, found);
    }
    section.heading("The model as a file");
    section.text("At the present load, for `kendall solve` (without the waiting factors and what no tier shows, with whole service times, longer where a tier has requests of its own).");
    section.blocks.push(kendall_report::document::Block::Verbatim(model_file(analysis)));
    section
}

/// What a center's waiting rests on.
fn rests_on_of(center: &Center) -> String {
    if center.unknown {
        return format!("a delay: {UNTOLD}");
    }
    if center.held {
        return "servers are held while those behind them work".to_owned();
    }
    let waiting = match center.residence.waiting {
        Waiting::Fitted => "waiting fitted to the windows",
        Waiting::Measured => "factor from the measured variabilities",
        Waiting::Assumed if center.queue_each => {
            "waiting assumed as in M/M/1: too little of it to fit, or it calls others"
        }
        Waiting::Assumed => {
            "waiting assumed as in M/M/m: too little of it to fit, or it calls others"
        }
    };
    if center.queue_each {
        format!("each server has its own queue; {waiting}")
    } else {
        waiting.to_owned()
    }
}

/// The network at the load of now, as a model file.
pub fn model_file(analysis: &Analysis) -> String {
    use std::fmt::Write as _;
    let Ok(network) = &analysis.network else { return String::new() };
    let mut text =
        format!("name = {:?}\narrival_rate_per_s = {}\n", network.name, analysis.rate_now_per_s);
    let Ok(model) = network.model(analysis.rate_now_per_s) else { return text };
    for station in &model.stations {
        let demand = station.demand_at(0);
        write!(text, "\n[[stations]]\nname = {:?}\n", station.name).unwrap_or_default();
        if station.is_delay() {
            text.push_str("kind = \"delay\"\n");
        } else {
            writeln!(text, "servers = {}", station.servers).unwrap_or_default();
        }
        if let Some(demand) = demand {
            let (service, visits) = (demand.service.mean(), demand.visits);
            writeln!(text, "service_time_s = {service}\nvisits = {visits}").unwrap_or_default();
        }
    }
    for pool in &model.pools {
        let names: Vec<&str> =
            pool.stations.iter().map(|index| model.stations[*index].name.as_str()).collect();
        write!(
            text,
            "\n[[pools]]\nname = {:?}\ntokens = {}\nstations = {names:?}\n",
            pool.name, pool.tokens
        )
        .unwrap_or_default();
    }
    text
}

fn what_if(system: &System, analysis: &Analysis, answers: &[Answer]) -> Section {
    let mut section = Section::new("what-if", "What if");
    if answers.is_empty() {
        return section;
    }
    section.text(rests_on(analysis));
    let mut table = Table::new("what-if", "Predictions with 95 % intervals")
        .column("question", "Question", Unit::Text)
        .column("arrival_rate_per_s", "Load (1/s)", Unit::PerSecond)
        .column("response_time_s", "Response time (ms)", Unit::Milliseconds);
    for tier in &system.tiers {
        let key = format!("utilization_{}", tier.name);
        table = table.column(key, format!("U of {} (%)", tier.name), Unit::Percent);
    }
    for answer in answers {
        let mut row: Vec<Cell> = vec![
            answer.question.clone().into(),
            answer.arrival_rate_per_s.into(),
            match &answer.response_time {
                Ok(time) => Cell::Estimate(time.clone()),
                Err(reason) => Cell::Empty(reason.clone()),
            },
        ];
        row.extend(answer.utilizations.iter().map(|used| Cell::estimate_or(used.as_ref(), UNTOLD)));
        table.push(row);
    }
    section.table(table);
    for answer in answers {
        for caveat in &answer.caveats {
            section.note(Level::Doubt, format!("{}: {caveat}.", answer.question));
        }
        if let Err(reason) = &answer.response_time {
            section.note(Level::Bad, format!("{}: {reason}.", answer.question));
        }
    }
    section
}
