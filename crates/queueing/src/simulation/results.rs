//! What a simulation returns: estimates per class, per station, per class at each station.

use serde::Serialize;

use super::analysis::{around, quantile, ratio};
use super::compile::Layout;
use super::plan::{Kind, Plan, UNLIMITED};
use super::run::Sample;
use super::station::servers_of;
use super::tally::{Cell, Times, Totals};
use super::{Doubt, Measured, Settings};
use crate::model::Model;

/// Probabilities of numbers at a station that are returned: up to this number.
const MOST_PROBABILITIES: usize = 1_000;

/// The answer of a simulation. Half-widths are at `confidence`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulated {
    /// Seed that repeats it.
    pub seed: u64,
    /// Confidence of all intervals.
    pub confidence: f64,
    /// Independent replications, or batches of one.
    pub replications: usize,
    /// The replications are batches of one run.
    pub batch_means: bool,
    /// Simulated time of each replication that was cut as warm-up.
    pub warm_up_s: f64,
    /// Simulated time behind the answer, all replications together.
    pub simulated_s: f64,
    /// Customers completed behind the answer.
    pub completed_customers: u64,
    /// Events behind the answer.
    pub events: u64,
    /// Whether the intervals became as narrow as asked.
    pub precise: bool,
    /// Reasons to trust it less.
    pub doubts: Vec<Doubt>,
    /// Per class, in the order of the model.
    pub classes: Vec<ClassResult>,
    /// Per station, in the order of the model.
    pub stations: Vec<StationResult>,
    /// Per pool, in the order of the model: tokens are servers, holding one is service.
    pub pools: Vec<StationResult>,
}

/// A class in the whole network. Figures are `None` where nothing was observed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassResult {
    /// Its name.
    pub name: String,
    /// Customers (cycles) completed per second, X.
    pub throughput_per_s: Option<Measured>,
    /// From arrival to departure; for a closed class without its think time.
    pub response_time_mean_s: Option<Measured>,
    /// Variance of the response time.
    pub response_time_variance_s2: Option<Measured>,
    /// Quantile (0 to 1) and its value.
    pub response_time_quantiles_s: Vec<(f64, Measured)>,
    /// In the network, not thinking.
    pub number_mean: Option<Measured>,
    /// Share of the offered customers that left without all they came for (full, balked, reneged).
    pub abandoned_share: Option<Measured>,
}

/// A station, all classes together and each by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StationResult {
    /// Its name.
    pub name: String,
    /// Busy share of a server; of a delay the mean number of those served; with rates of its own, share of time in
    /// which it works.
    pub utilization: Option<Measured>,
    /// Mean number there.
    pub number_mean: Option<Measured>,
    /// Variance of the number there over time.
    pub number_variance: Option<Measured>,
    /// Mean number there whose service is over, or held back, as the next station is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_mean: Option<Measured>,
    /// Probability of 0, 1, 2, … there.
    pub number_probabilities: Vec<f64>,
    /// All classes together.
    pub all: StationClassResult,
    /// Per class, in the order of the model.
    pub classes: Vec<StationClassResult>,
}

/// A class at a station. Times are per visit. Figures are `None` where nothing was observed.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct StationClassResult {
    /// Name of the class.
    pub name: String,
    /// Visits begun or tried per second.
    pub arrival_rate_per_s: Option<Measured>,
    /// Visits completed per second.
    pub throughput_per_s: Option<Measured>,
    /// Busy share of a server for this class (its number in service at a delay).
    pub utilization: Option<Measured>,
    /// Mean number there.
    pub number_mean: Option<Measured>,
    /// Mean number not in service.
    pub number_waiting_mean: Option<Measured>,
    /// Waiting and service of those who were served.
    pub response_time_mean_s: Option<Measured>,
    /// Its variance.
    pub response_time_variance_s2: Option<Measured>,
    /// Quantile (0 to 1) and its value.
    pub response_time_quantiles_s: Vec<(f64, Measured)>,
    /// Waiting of those who were served.
    pub waiting_time_mean_s: Option<Measured>,
    /// Its variance.
    pub waiting_time_variance_s2: Option<Measured>,
    /// Quantile (0 to 1) and its value.
    pub waiting_time_quantiles_s: Vec<(f64, Measured)>,
    /// Share of the arrivals turned away because it was full.
    pub loss_probability: Option<Measured>,
    /// Share of the arrivals that did not join.
    pub balking_probability: Option<Measured>,
    /// Share of the arrivals that left while waiting.
    pub reneging_probability: Option<Measured>,
}

/// Shortest replication for intervals of times, in mean stays: it begins empty, without customers who arrived before.
const STAYS: f64 = 5.0;

struct Reader<'a> {
    model: &'a Model,
    plan: &'a Plan,
    totals: &'a [Totals],
    settings: &'a Settings,
    /// The replications are long enough for intervals.
    long_enough: bool,
    /// Simulated time of a replication: what was cut, and what was kept.
    warm_up_s: f64,
    kept_s: f64,
}

pub(super) fn simulated(
    model: &Model,
    plan: &Plan,
    layout: &Layout,
    sample: &Sample,
    settings: &Settings,
) -> Simulated {
    let time: f64 = sample.totals.iter().map(|totals| totals.time).sum();
    let replications = if sample.batch_means { 1.0 } else { count(sample.totals.len() as u64) };
    let (warm_up_s, kept_s) = (sample.warm_up_s, time / replications);
    let totals = &sample.totals;
    let long_enough = sample.long_enough;
    let reader = Reader { model, plan, totals, settings, long_enough, warm_up_s, kept_s };
    let mut doubts = sample.doubts.clone();
    let stays = (0..model.classes.len()).map(|class| reader.stay(class)).filter(|s| s.is_finite());
    let longest = stays.fold(0.0, f64::max);
    if long_enough && reader.is_short(longest) {
        doubts.push(Doubt::TooShortForTimes { stay_s: longest, simulated_s: warm_up_s + kept_s });
    }
    if layout.order_assumed {
        doubts.push(Doubt::OrderAssumed);
    }
    let station = |index: usize| reader.station(model.stations[index].name.clone(), index, layout);
    let pool = |index: usize| {
        reader.station(model.pools[index].name.clone(), layout.pools[index] as usize, layout)
    };
    let classes: Vec<ClassResult> =
        (0..model.classes.len()).map(|class| reader.class(class)).collect();
    let quantiles = classes.iter().flat_map(|class| &class.response_time_quantiles_s);
    let without = quantiles.filter(|(_, found)| found.half_width.is_none()).map(|(p, _)| *p);
    if let Some(quantile) = without.min_by(f64::total_cmp).filter(|_| long_enough) {
        doubts.push(Doubt::NoInterval { quantile });
    }
    Simulated {
        seed: settings.seed,
        confidence: settings.confidence,
        replications: sample.totals.len(),
        batch_means: sample.batch_means,
        warm_up_s: sample.warm_up_s,
        simulated_s: sample.totals.iter().map(|totals| totals.time).sum(),
        completed_customers: sample
            .totals
            .iter()
            .flat_map(|totals| totals.systems.iter().zip(&plan.classes))
            .filter(|(_, class)| !matches!(class.kind, Kind::Child))
            .map(|(system, _)| system.completions)
            .sum(),
        events: sample.events,
        precise: sample.precise,
        doubts,
        classes,
        stations: (0..model.stations.len()).map(station).collect(),
        pools: (0..model.pools.len()).map(pool).collect(),
    }
}

impl Reader<'_> {
    /// Mean time in the network by Little's law, which counts those who did not leave; where some give up, rather more.
    fn stay(&self, class: usize) -> f64 {
        let systems = || self.totals.iter().map(|totals| &totals.systems[class]);
        let area: f64 = systems().map(|system| system.present.area).sum();
        area / count(systems().map(|system| system.completions).sum())
    }

    /// Whether a replication is too short for times of so long a stay.
    fn is_short(&self, stay: f64) -> bool {
        self.warm_up_s + self.kept_s < STAYS * stay
    }

    /// A figure, with its interval only where the run is long enough for any.
    fn stated(&self, found: Measured) -> Measured {
        Measured { half_width: found.half_width.filter(|_| self.long_enough), ..found }
    }

    /// A time, with its interval only where the run is long enough for it.
    fn timed(&self, stay: f64, found: Measured) -> Measured {
        let stated = self.stated(found);
        Measured { half_width: stated.half_width.filter(|_| !self.is_short(stay)), ..found }
    }

    /// A mean of times. Those who left by a moment had not stayed for longer than the run, which makes the mean of
    /// exponential stays too small by so much.
    fn mean(&self, stay: f64, times: &[Times]) -> Option<Measured> {
        let found = self.timed(stay, mean(times, self.settings.confidence)?);
        let cut = self.warm_up_s / stay;
        let lacking = stay * (stay / self.kept_s) * (1.0 + cut) * (-cut).exp();
        let lacking = if lacking > 1e-12 * stay { lacking } else { 0.0 };
        Some(Measured { half_width: found.half_width.map(|half| half + lacking), ..found })
    }

    fn ratio(&self, of: impl Fn(&Totals) -> (f64, f64)) -> Option<Measured> {
        let pairs: Vec<(f64, f64)> = self.totals.iter().map(of).collect();
        ratio(&pairs, self.settings.confidence).map(|found| self.stated(found))
    }

    fn variance(&self, stay: f64, times: &[Times]) -> Option<Measured> {
        let own: Vec<f64> = times.iter().filter_map(variance).collect();
        let mut all = Times::default();
        times.iter().for_each(|t| all.add(t));
        let around = |center| around(center, &own, self.settings.confidence);
        variance(&all).map(around).map(|found| self.timed(stay, found))
    }

    fn quantiles(&self, stay: f64, times: &[Times]) -> Vec<(f64, Measured)> {
        let confidence = self.settings.confidence;
        let of = |p: f64| quantile(times, p, confidence).map(|found| (p, self.timed(stay, found)));
        self.settings.quantiles.iter().filter_map(|p| of(*p)).collect()
    }

    fn class(&self, class: usize) -> ClassResult {
        let system = |totals: &Totals| totals.systems[class].clone();
        let times: Vec<Times> =
            self.totals.iter().map(|t| t.systems[class].response.clone()).collect();
        let stay = self.stay(class);
        ClassResult {
            name: self.model.classes[class].name.clone(),
            throughput_per_s: self.ratio(|t| (count(t.systems[class].completions), t.time)),
            response_time_mean_s: self.mean(stay, &times),
            response_time_variance_s2: self.variance(stay, &times),
            response_time_quantiles_s: self.quantiles(stay, &times),
            number_mean: self.ratio(|t| (t.systems[class].present.area, t.time)),
            abandoned_share: self.ratio(|t| {
                let system = system(t);
                let offered = if self.model.classes[class].is_open() {
                    system.offered
                } else {
                    system.completions
                };
                (count(system.abandoned), count(offered))
            }),
        }
    }

    fn station(&self, name: String, index: usize, layout: &Layout) -> StationResult {
        let branches = layout.branches.get(index).copied().flatten();
        // A station that forks is busy where its branches are.
        let busy: Vec<usize> = match branches {
            Some((first, count)) => (first as usize..(first + count) as usize).collect(),
            None => vec![index],
        };
        let servers = servers_of(&self.plan.stations[busy[0]]).unwrap_or(1.0)
            * kendall_units::exact_f64(busy.len());
        let all: Vec<usize> = (0..self.plan.classes.len()).collect();
        let of_class = |class: usize| -> Vec<usize> {
            all.iter().copied().filter(|c| self.plan.classes[*c].reported == class).collect()
        };
        let tally = |t: &Totals| (t.stations[index].area, t.stations[index].area_of_squares);
        let own: Vec<f64> = self
            .totals
            .iter()
            .map(|t| about_the_mean(tally(t).0 / t.time, tally(t).1 / t.time))
            .collect();
        let time: f64 = self.totals.iter().map(|t| t.time).sum();
        let mean = self.totals.iter().map(|t| tally(t).0).sum::<f64>() / time;
        let second = self.totals.iter().map(|t| tally(t).1).sum::<f64>() / time;
        let variance = about_the_mean(mean, second);
        StationResult {
            name,
            utilization: self.ratio(|t| {
                (busy.iter().map(|s| t.stations[*s].busy).sum::<f64>(), t.time * servers)
            }),
            number_mean: self.ratio(|t| (tally(t).0, t.time)),
            number_variance: Some(self.stated(around(variance, &own, self.settings.confidence))),
            blocked_mean: self
                .ratio(|t| (t.stations[index].blocked.area, t.time))
                .filter(|blocked| blocked.center > 0.0),
            number_probabilities: self.probabilities(index, time),
            all: self.cell("all".to_owned(), index, &all, &busy),
            classes: (0..self.model.classes.len())
                .map(|class| {
                    let name = self.model.classes[class].name.clone();
                    self.cell(name, index, &of_class(class), &busy)
                })
                .collect(),
        }
    }

    fn probabilities(&self, station: usize, time: f64) -> Vec<f64> {
        let length =
            self.totals.iter().map(|t| t.stations[station].time_with.len()).max().unwrap_or(0);
        let mut sums = vec![0.0; length.min(MOST_PROBABILITIES + 1)];
        for totals in self.totals {
            for (sum, part) in sums.iter_mut().zip(&totals.stations[station].time_with) {
                *sum += part / time;
            }
        }
        while sums.last().is_some_and(|p| *p <= 0.0) {
            sums.pop();
        }
        sums
    }

    /// Classes of the plan together at one station of it.
    fn cell(
        &self,
        name: String,
        station: usize,
        classes: &[usize],
        busy: &[usize],
    ) -> StationClassResult {
        let width = self.plan.classes.len();
        let cells = |t: &Totals, at: usize| -> Vec<Cell> {
            classes.iter().map(|c| t.cells[at * width + c].clone()).collect()
        };
        let parts: Vec<Vec<Cell>> = self.totals.iter().map(|t| cells(t, station)).collect();
        if parts.iter().flatten().all(|cell| cell.arrivals == 0 && cell.present.area <= 0.0) {
            return StationClassResult { name, ..StationClassResult::default() };
        }
        let sum = |of: &dyn Fn(&Cell) -> f64, by: &dyn Fn(&Cell, &Totals) -> f64| {
            let pairs: Vec<(f64, f64)> = parts
                .iter()
                .zip(self.totals)
                .map(|(cells, totals)| {
                    let over: f64 = cells.iter().map(|cell| by(cell, totals)).sum();
                    (cells.iter().map(of).sum(), over)
                })
                .collect();
            ratio(&pairs, self.settings.confidence).map(|found| self.stated(found))
        };
        let parts_count = kendall_units::exact_f64(classes.len());
        let by_time = |_: &Cell, totals: &Totals| totals.time / parts_count;
        let arrivals = |cell: &Cell, _: &Totals| count(cell.arrivals);
        let times = |of: &dyn Fn(&Cell) -> &Times| -> Vec<Times> {
            let join = |cells: &Vec<Cell>| {
                let mut all = Times::default();
                cells.iter().for_each(|cell| all.add(of(cell)));
                all
            };
            parts.iter().map(join).collect()
        };
        let response = times(&|cell| &cell.response);
        let waiting = times(&|cell| &cell.waiting);
        let cells = || parts.iter().flatten();
        let stay = cells().map(|cell| cell.present.area).sum::<f64>()
            / count(cells().map(|cell| cell.completions).sum());
        let number = sum(&|cell| cell.present.area, &by_time);
        let served = sum(&|cell| cell.work, &by_time);
        StationClassResult {
            name,
            arrival_rate_per_s: sum(&|cell| count(cell.arrivals), &by_time),
            throughput_per_s: sum(&|cell| count(cell.completions), &by_time),
            utilization: self.utilization(classes, busy),
            number_waiting_mean: number.zip(served).and_then(|_| {
                sum(&|cell| (cell.present.area - self.in_service(cell, station)).max(0.0), &by_time)
            }),
            number_mean: number,
            response_time_mean_s: self.mean(stay, &response),
            response_time_variance_s2: self.variance(stay, &response),
            response_time_quantiles_s: self.quantiles(stay, &response),
            waiting_time_mean_s: self.mean(stay, &waiting),
            waiting_time_variance_s2: self.variance(stay, &waiting),
            waiting_time_quantiles_s: self.quantiles(stay, &waiting),
            loss_probability: sum(&|cell| count(cell.lost), &arrivals),
            balking_probability: sum(&|cell| count(cell.balked), &arrivals),
            reneging_probability: sum(&|cell| count(cell.reneged), &arrivals),
        }
    }

    /// Integral of those in service; where servers are shared, the service that was given.
    fn in_service(&self, cell: &Cell, station: usize) -> f64 {
        let plan = &self.plan.stations[station];
        match plan.service {
            super::plan::Service::Shared { .. } if plan.speeds.is_empty() => cell.work,
            _ => cell.serving.area,
        }
    }

    fn utilization(&self, classes: &[usize], busy: &[usize]) -> Option<Measured> {
        let width = self.plan.classes.len();
        let plan = &self.plan.stations[busy[0]];
        if !plan.speeds.is_empty() && classes.len() < width {
            // How a load-dependent rate divides among classes is not defined.
            return None;
        }
        let servers = servers_of(plan).filter(|_| plan.servers != UNLIMITED).unwrap_or(1.0)
            * kendall_units::exact_f64(busy.len());
        if !plan.speeds.is_empty() {
            return self.ratio(|t| {
                (busy.iter().map(|s| t.stations[*s].busy).sum::<f64>(), t.time * servers)
            });
        }
        self.ratio(|t| {
            let given = busy.iter().flat_map(|s| classes.iter().map(move |c| (*s, *c)));
            let area = given.map(|(s, c)| self.in_service(&t.cells[s * width + c], s));
            (area.sum::<f64>(), t.time * servers)
        })
    }
}

fn count(n: u64) -> f64 {
    kendall_units::exact_f64(n)
}

fn mean(times: &[Times], confidence: f64) -> Option<Measured> {
    let pairs: Vec<(f64, f64)> = times.iter().map(|t| (t.sum, count(t.count))).collect();
    ratio(&pairs, confidence)
}

fn variance(times: &Times) -> Option<f64> {
    (times.count > 0).then(|| {
        let n = count(times.count);
        about_the_mean(times.sum / n, times.sum_of_squares / n)
    })
}

/// Variance from the first two moments. Where nothing varies, rounding leaves a little less than 0.
fn about_the_mean(first: f64, second: f64) -> f64 {
    (second - first * first).max(0.0)
}
