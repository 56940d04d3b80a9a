//! A single station by its notation, lowered to a model of one station and one class.

use kendall_keys::{Form, Key, Section};
use kendall_queueing::model::keys::{DISTRIBUTION, SHAPES};
use kendall_queueing::model::{ModelError, Workload};
use kendall_queueing::solver::{Caveat, Solution, SolveError, Solver, solve as solve_model};
use kendall_queueing::station::{GgmFormula, MeasuredWait, StationSolution, mmm_unequal};
use kendall_queueing::{Distribution, Model};
use toml::{Table, Value};

use crate::fields::{ARRIVAL_RATE, SERVICE_RATE, SERVICE_TIME, WHOLE, copy, number, service_time};
use crate::notation::{Letter, Notation, Numbers, Suffix};
use crate::unit::Unit;
use crate::{Answer, Case, TextbookError, named_outputs};

pub(crate) const SHAPE: Form = Form::Table(&[DISTRIBUTION]);

const RATE: &[Key] = &[ARRIVAL_RATE];
const SERVICE: &[Key] = &[SERVICE_TIME, SERVICE_RATE];
const SERVERS: &[Key] = &[Key::new("servers", WHOLE, "m").optional()];
const CAPACITY: &[Key] = &[Key::new("capacity", WHOLE, "K: those in service included").optional()];
const POPULATION: &[Key] = &[Key::new("population", WHOLE, "N").optional()];
const THINK: &[Key] = &[Key::number("think_time_s", "Z, between the requests of a customer")];
const PATIENCE: &[Key] =
    &[Key::number("patience_time_s", "mean time after which a waiting customer leaves unserved")];
const PATIENCE_SHAPE: &[Key] = &[Key::new("patience", SHAPE, "a distribution").optional()];
const BATCH: &[Key] = &[Key::new(
    "batch_size",
    Form::Special(
        "a number, probabilities of 1, 2, …, or { distribution = \"geometric\", mean = 3 }",
    ),
    "how many arrive together",
)];
const MARKOV: &[Key] = &[
    Key::new(
        "join_probabilities",
        Form::Numbers,
        "arrivals that find 0, 1, … customers join with this probability; the last holds for more",
    )
    .optional(),
    Key::new("service_rates_per_s", Form::Numbers, "a rate of its own for each server").optional(),
];
const SERVICE_STAGES: &[Key] =
    &[Key::new("service_stages", Form::Count { from: 1, to: 1_000_000 }, "k of E_k")];
const SERVICE_SCV: &[Key] = &[Key::number("service_scv", "squared coefficient of variation")];
const SERVICE_SHAPE: &[Key] = &[
    Key::new("service", SHAPE, "a distribution").optional(),
    Key::number("service_variance_s2", "instead of `service_scv`"),
    Key::number("service_second_moment_s2", "instead of `service_scv`"),
    Key::number("service_third_moment_s3", "E[S³]"),
];
const GAP_STAGES: &[Key] =
    &[Key::new("interarrival_stages", Form::Count { from: 1, to: 1_000_000 }, "k of E_k")];
const GAP_SCV: &[Key] = &[Key::number("interarrival_scv", "squared coefficient of variation")];
const GAP_SHAPE: &[Key] = &[Key::new("interarrival_time", SHAPE, "a distribution").optional()];
const CLASSES: &[Key] = &[
    Key::new("classes", Form::Tables(&[CLASS]), "one table a class"),
    Key::choice(
        "discipline",
        &["non-preemptive", "preemptive"],
        "whether who is in service is interrupted",
    )
    .or("'non-preemptive'"),
];
const CLASS: &[Key] = &[
    Key::text("name", "its name"),
    Key::new("priority", Form::Count { from: 0, to: 4_294_967_295 }, "1 goes first"),
    ARRIVAL_RATE,
    SERVICE_TIME,
    SERVICE_RATE,
    Key::number("service_scv", "squared coefficient of variation"),
    Key::new("service", SHAPE, "a distribution").optional(),
];

/// Names of the parts of the lowered model; errors about them are about the case itself.
const STATION: &str = "station";

pub(crate) fn solve(notation: &Notation, mut case: Case<'_>) -> Result<Answer, TextbookError> {
    declare(notation, &mut case.section);
    case.section.known()?;
    let numbers = notation.numbers(&mut case.section)?;
    if notation.suffix == Suffix::Priority {
        return priority(notation, &numbers, case);
    }
    if let Some(rates) = unequal(notation, &numbers, &mut case.section)? {
        let lambda = crate::fields::need(&mut case.section, "arrival_rate_per_s")?;
        let solved = mmm_unequal(lambda, &rates)?;
        let mut answer = describe(&solved, numbers.servers, case.unit);
        answer.caveats.push(unequal_error(&rates, solved.utilization).to_string());
        return Ok(answer);
    }
    let mut lowered = Lowered::new(notation, &numbers, &mut case.section)?;
    let model = lowered.model()?;
    let solution = solve_model(&model, Solver::Auto).map_err(of_case)?;
    let mut answer = answer(&model, &solution, &numbers, case.unit);
    if lowered.spread_unknown {
        without_spread(&mut answer);
    }
    if let Some(station) = solution.station.as_ref().filter(|_| !lowered.spread_unknown) {
        for name in case.wanted {
            named_outputs::station(&mut answer, name, station, case.unit);
        }
    }
    let plain = notation.suffix == Suffix::None && numbers.capacity.is_none();
    if plain && !notation.is_closed() && (notation.arrivals, notation.service).general() {
        formulas(&mut answer, &model, case.unit);
        if let Some(demand) = model.stations[0].demand_at(0) {
            moments(&mut answer, &demand.service, case.unit);
        }
    }
    Ok(answer)
}

trait General {
    fn general(self) -> bool;
}

impl General for (Letter, Letter) {
    /// Whether formulas of two moments are of use.
    fn general(self) -> bool {
        self.0 != Letter::Markov || self.1 == Letter::General
    }
}

/// Errors of the lowered model without the places that the case does not have.
fn of_case(error: SolveError) -> TextbookError {
    match error {
        SolveError::Station { source, .. } => source.into(),
        SolveError::Network { source, .. } => source.into(),
        SolveError::Model(error) => of_model(error),
        other => other.into(),
    }
}

pub(crate) fn of_model(error: ModelError) -> TextbookError {
    let Some(path) = error.path() else { return error.into() };
    let own = path.replace("stations[0].", "").replace("classes[0].", "");
    let text = error.to_string();
    let what = text.strip_prefix(path).map_or(text.as_str(), |rest| rest.trim_start_matches(": "));
    TextbookError::key(own, what.trim_start())
}

/// The keys that this notation may have, and no others.
fn declare(notation: &Notation, section: &mut Section<'_>) {
    let mut more = |keys: &'static [Key], wanted: bool| {
        if wanted {
            section.declare(keys);
        }
    };
    let closed = notation.is_closed();
    more(SERVERS, notation.servers_given());
    more(CAPACITY, notation.capacity_given());
    if notation.suffix == Suffix::Priority {
        more(CLASSES, true);
        return;
    }
    more(RATE, !closed);
    more(POPULATION, notation.population_given());
    more(THINK, closed);
    more(SERVICE, true);
    let general = notation.suffix == Suffix::ImpatientGeneral;
    more(PATIENCE, notation.suffix == Suffix::Impatient || general);
    more(PATIENCE_SHAPE, general);
    more(BATCH, notation.batches);
    let markov = (notation.arrivals, notation.service) == (Letter::Markov, Letter::Markov);
    let plain = notation.suffix == Suffix::None && !notation.batches;
    more(MARKOV, markov && !closed && plain);
    more(SERVICE_STAGES, notation.service == Letter::Erlang(None));
    more(GAP_STAGES, notation.arrivals == Letter::Erlang(None));
    let spread = |letter| matches!(letter, Letter::Hyperexponential | Letter::General);
    more(SERVICE_SCV, spread(notation.service));
    more(SERVICE_SHAPE, spread(notation.service));
    more(GAP_SCV, spread(notation.arrivals));
    more(GAP_SHAPE, spread(notation.arrivals));
}

/// Rates of the servers, where each has its own.
fn unequal(
    notation: &Notation,
    numbers: &Numbers,
    section: &mut Section<'_>,
) -> Result<Option<Vec<f64>>, TextbookError> {
    if !section.has("service_rates_per_s") {
        return Ok(None);
    }
    let rates = section.numbers("service_rates_per_s")?.unwrap_or_default();
    let servers = numbers.servers.map(|m| usize::try_from(m).unwrap_or(usize::MAX));
    let other = ["service_rate_per_s", "service_time_s", "join_probabilities"];
    if let Some(key) = other.into_iter().find(|key| section.has(key)) {
        return Err(section
            .problem(key, "is beside service_rates_per_s: write one of them")
            .into());
    }
    if servers != Some(rates.len()) || numbers.capacity.is_some() || notation.is_closed() {
        let what = format!("has {} rates; write one for each server of an M/M/m", rates.len());
        return Err(section.problem("service_rates_per_s", what).into());
    }
    Ok(Some(rates))
}

/// A model file that says the same.
struct Lowered {
    class: Table,
    station: Table,
    /// Whether nothing is said of the spread of service, because means do not need it.
    spread_unknown: bool,
}

impl Lowered {
    fn new(
        notation: &Notation,
        numbers: &Numbers,
        section: &mut Section<'_>,
    ) -> Result<Self, TextbookError> {
        let mut lowered =
            Self { class: Table::new(), station: Table::new(), spread_unknown: false };
        lowered.class.insert("name".into(), "customers".into());
        lowered.station.insert("name".into(), STATION.into());
        lowered.customers(notation, numbers, section)?;
        lowered.service(notation, numbers, section)?;
        match numbers.servers {
            Some(servers) => lowered.station.insert("servers".into(), whole(servers)),
            None => lowered.station.insert("type".into(), "delay".into()),
        };
        if let Some(capacity) = numbers.capacity {
            lowered.station.insert("capacity".into(), whole(capacity));
        }
        let discipline = match notation.suffix {
            Suffix::Ps => Some("ps"),
            Suffix::Lcfs => Some("lcfs"),
            Suffix::LcfsPr => Some("lcfs-pr"),
            Suffix::Siro => Some("siro"),
            Suffix::Sjf => Some("sjf"),
            Suffix::Srpt => Some("srpt"),
            Suffix::None | Suffix::Priority | Suffix::Impatient | Suffix::ImpatientGeneral => None,
        };
        if let Some(discipline) = discipline {
            lowered.station.insert("discipline".into(), discipline.into());
        }
        if notation.suffix == Suffix::Impatient {
            if !section.has("patience_time_s") {
                return Err(TextbookError::missing("patience_time_s", "a number"));
            }
            copy(section, &["patience_time_s"], &mut lowered.station);
        }
        if notation.suffix == Suffix::ImpatientGeneral {
            if !section.has("patience") {
                return Err(TextbookError::missing("patience", "a distribution"));
            }
            copy(section, &["patience", "patience_time_s"], &mut lowered.station);
        }
        if section.has("join_probabilities") {
            copy(section, &["join_probabilities"], &mut lowered.station);
        }
        Ok(lowered)
    }

    fn customers(
        &mut self,
        notation: &Notation,
        numbers: &Numbers,
        section: &mut Section<'_>,
    ) -> Result<(), TextbookError> {
        if let Some(population) = numbers.population {
            if notation.arrivals != Letter::Markov || notation.service != Letter::Markov {
                let what = "a finite population needs exponential times: write M/M/m//N";
                return Err(TextbookError::key("kind", what));
            }
            let think = crate::fields::need(section, "think_time_s")?;
            self.class.insert("population".into(), whole(population));
            self.class.insert("think_time_s".into(), think.into());
            return Ok(());
        }
        if notation.batches {
            copy(section, &["batch_size"], &mut self.class);
            if !section.has("batch_size") {
                return Err(TextbookError::missing("batch_size", "a number"));
            }
        }
        let has_shape = matches!(notation.arrivals, Letter::Hyperexponential | Letter::General)
            && section.has("interarrival_time");
        if !has_shape && !section.has("arrival_rate_per_s") {
            return Err(TextbookError::missing("arrival_rate_per_s", "a number"));
        }
        copy(section, &["arrival_rate_per_s"], &mut self.class);
        if notation.arrivals != Letter::Markov {
            let shape = shape(notation.arrivals, "interarrival", section)?;
            let shape = shape.ok_or_else(|| {
                TextbookError::missing("interarrival_scv", "a number (or interarrival_time)")
            })?;
            self.class.insert("interarrival_time".into(), shape);
        }
        Ok(())
    }

    fn service(
        &mut self,
        notation: &Notation,
        numbers: &Numbers,
        section: &mut Section<'_>,
    ) -> Result<(), TextbookError> {
        let own = matches!(notation.service, Letter::Hyperexponential | Letter::General)
            && section.has("service");
        if !own || section.has("service_time_s") || section.has("service_rate_per_s") {
            let mean = service_time(section)?;
            self.station.insert("service_time_s".into(), mean.into());
        }
        if notation.service == Letter::Markov {
            return Ok(());
        }
        // Means of these do not depend on the spread of service.
        let insensitive = matches!(notation.suffix, Suffix::Ps | Suffix::LcfsPr)
            || numbers.servers.is_none()
            || numbers.capacity.is_some() && numbers.capacity == numbers.servers;
        let shape = match shape(notation.service, "service", section)? {
            None if insensitive && notation.service == Letter::General => {
                self.spread_unknown = true;
                let mut table = Table::new();
                table.insert("distribution".into(), "general".into());
                table.insert("scv".into(), 1.0.into());
                Value::Table(table)
            }
            None => {
                let form = "a number (or service, service_variance_s2, service_second_moment_s2)";
                return Err(TextbookError::missing("service_scv", form));
            }
            Some(shape) => shape,
        };
        self.station.insert("service".into(), shape);
        Ok(())
    }

    fn model(&mut self) -> Result<Model, TextbookError> {
        one_station(&self.class, &self.station)
    }
}

/// The model of one class at one station; what it refuses is said of the keys of the case.
pub(crate) fn one_station(class: &Table, station: &Table) -> Result<Model, TextbookError> {
    let mut table = Table::new();
    let list = |table: &Table| Value::Array(vec![Value::Table(table.clone())]);
    table.insert("classes".into(), list(class));
    table.insert("stations".into(), list(station));
    Model::read(&table).map_err(of_model)
}

pub(crate) fn whole(number: u64) -> Value {
    i64::try_from(number).map_or(Value::Integer(i64::MAX), Value::Integer)
}

/// The distribution that a letter and its keys say; `None` when its spread is not said.
fn shape(
    letter: Letter,
    stem: &str,
    section: &mut Section<'_>,
) -> Result<Option<Value>, TextbookError> {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| {
        table.insert(key.to_owned(), value);
    };
    match letter {
        Letter::Markov => put("distribution", "exponential".into()),
        Letter::Deterministic => put("distribution", "deterministic".into()),
        Letter::Erlang(stages) => {
            let stages = match stages {
                Some(stages) => u64::from(stages),
                None => section.count(&format!("{stem}_stages"))?,
            };
            put("distribution", "erlang".into());
            put("stages", whole(stages));
        }
        Letter::Hyperexponential | Letter::General => {
            return spread(letter, stem, section);
        }
    }
    Ok(Some(Value::Table(table)))
}

/// H and G: a distribution of its own, or a second moment.
fn spread(
    letter: Letter,
    stem: &str,
    section: &mut Section<'_>,
) -> Result<Option<Value>, TextbookError> {
    let own = if stem == "service" { "service" } else { "interarrival_time" };
    let mut moments = vec![format!("{stem}_scv")];
    if stem == "service" {
        moments.extend(["service_variance_s2".to_owned(), "service_second_moment_s2".to_owned()]);
    }
    let given: Vec<&String> = moments.iter().filter(|key| section.has(key)).collect();
    if let (true, Some(key)) = (section.has(own), given.first()) {
        return Err(section.problem(key, format!("is beside {own}: write one of them")).into());
    }
    if let [_, second, ..] = given[..] {
        return Err(section.problem(second, format!("is beside {}", given[0])).into());
    }
    if let Some(value) = section.raw(own) {
        let named = value.get("distribution").and_then(Value::as_str).unwrap_or_default();
        if letter == Letter::Hyperexponential && named != "hyperexponential" {
            let what = format!("`{named}` is not the hyperexponential that the kind says");
            return Err(section.problem(own, what).into());
        }
        if !SHAPES.contains(&named) {
            let what = format!("has no known `distribution`; known are {}", SHAPES.join(", "));
            return Err(section.problem(own, what).into());
        }
        return Ok(Some(value.clone()));
    }
    let Some(key) = given.first() else { return Ok(None) };
    let value = section.number(key)?.unwrap_or_default();
    let scv = if key.ends_with("_scv") {
        value
    } else {
        let mean = service_time(section)?;
        let second = if key.as_str() == "service_variance_s2" { 0.0 } else { 1.0 };
        value / (mean * mean) - second
    };
    if !(scv >= -1e-12 && scv.is_finite()) {
        let what = format!("`{value}` is less than the mean allows");
        return Err(section.problem(key, what).into());
    }
    let mut table = Table::new();
    let name = if letter == Letter::Hyperexponential { "hyperexponential" } else { "general" };
    table.insert("distribution".into(), name.into());
    table.insert("scv".into(), scv.max(0.0).into());
    if stem == "service"
        && let Some(third) = section.number("service_third_moment_s3")?
    {
        if letter == Letter::Hyperexponential {
            let what = "is for service of kind G; H2 has two moments, with balanced means";
            return Err(section.problem("service_third_moment_s3", what).into());
        }
        table.insert("third_moment_s3".into(), third.into());
    }
    Ok(Some(Value::Table(table)))
}

fn priority(
    notation: &Notation,
    numbers: &Numbers,
    mut case: Case<'_>,
) -> Result<Answer, TextbookError> {
    let Some(servers) = numbers.servers.filter(|_| numbers.capacity.is_none()) else {
        return Err(TextbookError::key("kind", "priorities are for M/G/1 and M/M/m"));
    };
    let preemptive = case.section.text("discipline")? == "preemptive";
    let mut station = Table::new();
    station.insert("name".into(), STATION.into());
    station.insert("servers".into(), whole(servers));
    let rule = if preemptive { "priority-preemptive" } else { "priority-non-preemptive" };
    station.insert("discipline".into(), rule.into());
    let (mut classes, mut times, mut shapes) = (Vec::new(), Table::new(), Table::new());
    for mut section in case.section.sections("classes")? {
        section.known()?;
        let name = section.text("name")?;
        let mut class = Table::new();
        crate::fields::need(&mut section, "arrival_rate_per_s")?;
        copy(&section, &["name", "priority", "arrival_rate_per_s"], &mut class);
        section.count("priority")?;
        if !section.has("service") || section.has("service_time_s") {
            times.insert(name.clone(), service_time(&mut section)?.into());
        }
        if notation.service == Letter::Markov {
            if let Some(key) = ["service", "service_scv"].into_iter().find(|key| section.has(key)) {
                let what = "is for service of kind G; the kind says M";
                return Err(section.problem(key, what).into());
            }
        } else if let Some(shape) = of_class(notation.service, &mut section)? {
            shapes.insert(name, shape);
        }
        classes.push(Value::Table(class));
    }
    if classes.is_empty() {
        return Err(TextbookError::missing("classes", "a list of tables"));
    }
    for (key, table) in [("service_time_s", times), ("service", shapes)] {
        if !table.is_empty() {
            station.insert(key.into(), Value::Table(table));
        }
    }
    let mut table = Table::new();
    table.insert("classes".into(), Value::Array(classes));
    table.insert("stations".into(), Value::Array(vec![Value::Table(station)]));
    let model = Model::read(&table).map_err(of_model)?;
    let solution = solve_model(&model, Solver::Auto).map_err(of_case)?;
    Ok(by_class(&solution, case.unit))
}

pub(crate) fn of_class(
    letter: Letter,
    section: &mut Section<'_>,
) -> Result<Option<Value>, TextbookError> {
    match (section.raw("service"), section.raw("service_scv")) {
        (Some(_), Some(_)) => {
            Err(section.problem("service_scv", "is beside service: write one of them").into())
        }
        (Some(value), None) => Ok(Some(value.clone())),
        (None, Some(scv)) if letter == Letter::General && number(scv).is_some() => {
            let mut table = Table::new();
            table.insert("distribution".into(), "general".into());
            table.insert("scv".into(), scv.clone());
            Ok(Some(Value::Table(table)))
        }
        (None, Some(scv)) => {
            let what = format!("`{scv}` is not a number beside service of kind G");
            Err(section.problem("service_scv", what).into())
        }
        (None, None) if letter == Letter::General => {
            let path = section.path_of("service_scv");
            Err(TextbookError::missing(&path, "a number (or service)"))
        }
        (None, None) => shape(letter, "service", section),
    }
}

/// What is known of the error at unequal servers of which any free one alike takes an arrival: measured with rates
/// within a factor of four.
fn unequal_error(rates: &[f64], utilization: f64) -> Caveat {
    let (low, high) =
        rates.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), r| (l.min(*r), h.max(*r)));
    let like = (2..=5).contains(&rates.len()) && (0.1..=0.9).contains(&utilization);
    if like && high <= 4.0 * low {
        Caveat::MeasuredWait(MeasuredWait { waiting_percent: 30.0, response_percent: 18.0 })
    } else {
        Caveat::UnknownError
    }
}

fn by_class(solution: &Solution, unit: Unit) -> Answer {
    let mut answer = Answer::new(&solution.solver, solution.accuracy.name());
    let station = &solution.stations[0];
    let times = |list: &[f64]| list.iter().map(|time| unit.time(*time)).collect::<Vec<f64>>();
    answer.list("mean_wait_by_class", times(&station.waiting_time), unit.name);
    answer.list("mean_response_by_class", times(&station.response_time), unit.name);
    answer.list("mean_jobs_by_class", station.number.clone(), "jobs");
    let waiting = station.waiting_time.iter().zip(&station.throughput).map(|(w, x)| w * x);
    answer.list("mean_queue_by_class", waiting.collect(), "jobs");
    answer.list("utilization_by_class", station.utilization.clone(), "1");
    answer.number("utilization", station.utilization.iter().sum(), "1");
    answer.number("mean_jobs", station.number.iter().sum(), "jobs");
    answer.caveats = solution.caveats.iter().map(ToString::to_string).collect();
    answer
}

/// All metrics of a solved model of one station and class.
fn answer(model: &Model, solution: &Solution, numbers: &Numbers, unit: Unit) -> Answer {
    let mut answer = match &solution.station {
        Some(station) => describe(station, numbers.servers, unit),
        None => idle(model, solution, unit),
    };
    let caveats = solution.caveats.iter().filter(|caveat| **caveat != Caveat::NoPercentiles);
    answer.caveats = caveats.map(ToString::to_string).collect();
    answer
}

/// A station without customers.
fn idle(model: &Model, solution: &Solution, unit: Unit) -> Answer {
    let mut answer = Answer::new(&solution.solver, solution.accuracy.name());
    let station = &solution.stations[0];
    answer.number("utilization", station.utilization[0], "1");
    answer.number("throughput", unit.rate(station.throughput[0]), &unit.per());
    answer.number("mean_jobs", station.number[0], "jobs");
    if let Workload::Open { arrival_rate_per_s, .. } = model.classes[0].workload
        && arrival_rate_per_s <= 0.0
    {
        answer.number("p0", 1.0, "1");
        answer.number("ln_p0", 0.0, "1");
        answer.number("mean_queue", 0.0, "jobs");
        answer.number("p_queueing", 0.0, "1");
        answer.number("p_loss", 0.0, "1");
    } else {
        answer.number("mean_response", unit.time(station.response_time[0]), unit.name);
        answer.number("mean_wait", unit.time(station.waiting_time[0]), unit.name);
    }
    answer
}

/// What is printed of a distribution unless other percentiles are asked for.
pub(crate) const PERCENTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];

/// All metrics in the unit of the case.
fn describe(s: &StationSolution, servers: Option<u64>, unit: Unit) -> Answer {
    let mut answer = Answer::new(&format!("{}: {}", s.notation, s.method), s.accuracy.name());
    let a = &mut answer;
    let square = format!("{}^2", unit.name);
    let per = unit.per();
    let time2 = |value: f64| value / (unit.seconds * unit.seconds);
    a.number("utilization", s.utilization, "1");
    a.number("utilization_per_server", s.utilization, "1");
    a.number("offered_load", s.offered_load, "erlang");
    let busy = servers.map_or(1.0, kendall_units::exact_f64) * s.utilization;
    a.number("mean_busy_servers", busy, "servers");
    a.maybe("p0", s.p0, "1");
    a.maybe("ln_p0", s.ln_p0, "1");
    a.maybe("p_queueing", s.p_queueing, "1");
    a.number("p_loss", s.loss_probability, "1");
    a.number("throughput", unit.rate(s.throughput), &per);
    a.number("effective_arrival_rate", unit.rate(s.accepted_rate()), &per);
    a.number("loss_rate", unit.rate(s.arrival_rate * s.loss_probability), &per);
    for (name, moments) in [("jobs", s.number), ("queue", s.number_waiting)] {
        a.number(&format!("mean_{name}"), moments.mean, "jobs");
        a.maybe(&format!("var_{name}"), moments.variance, "jobs^2");
    }
    for (name, moments) in [("response", s.response_time), ("wait", s.waiting_time)] {
        a.number(&format!("mean_{name}"), unit.time(moments.mean), unit.name);
        a.maybe(&format!("var_{name}"), moments.variance.map(time2), &square);
    }
    for (name, q) in PERCENTILES {
        a.maybe(
            &format!("response_{name}"),
            s.response_quantile(q).map(|t| unit.time(t)),
            unit.name,
        );
        a.maybe(&format!("wait_{name}"), s.waiting_quantile(q).map(|t| unit.time(t)), unit.name);
    }
    if let Some(busy) = &s.busy_period {
        a.number("busy_period_mean", unit.time(busy.duration.mean), unit.name);
        a.maybe("busy_period_var", busy.duration.variance.map(time2), &square);
        a.number("jobs_per_busy_period_mean", busy.served.mean, "jobs");
        a.maybe("jobs_per_busy_period_var", busy.served.variance, "jobs^2");
    }
    if let Some(states) = &s.states {
        a.list("p_n", states.first(21), "1");
    }
    for (name, value) in &s.more {
        let (value, unit) = if name.ends_with("_per_s") {
            (unit.rate(*value), per.as_str())
        } else if name.ends_with("_s") {
            (unit.time(*value), unit.name)
        } else {
            (*value, "1")
        };
        a.number(name.trim_end_matches("_per_s").trim_end_matches("_s"), value, unit);
    }
    answer
}

/// Leaves out what depends on the spread of service.
fn without_spread(answer: &mut Answer) {
    answer.outputs.retain(|name, _| {
        let starts = ["var_response", "var_wait", "response_p", "wait_p", "busy_period_var"];
        !starts.iter().any(|start| name.starts_with(start)) && name != "jobs_per_busy_period_var"
    });
}

/// Of service, as far as the file says them.
fn moments(answer: &mut Answer, service: &Distribution, unit: Unit) {
    let (mean, spread) = (service.mean(), service.variance());
    answer.number("service_time", unit.time(mean), unit.name);
    for (name, moment, order) in [
        ("service_variance", Some(spread), 2),
        ("service_second_moment", Some(mean * mean + spread), 2),
        ("service_third_moment", service.moment(3), 3),
    ] {
        let moment = moment.map(|value| value / unit.seconds.powi(order));
        answer.maybe(name, moment, &format!("{}^{order}", unit.name));
    }
}

/// The waits that the G/G/m formulas give, whichever was taken.
fn formulas(answer: &mut Answer, model: &Model, unit: Unit) {
    for (name, formula) in [
        ("allen_cunneen", GgmFormula::AllenCunneen),
        ("klb", GgmFormula::KraemerLangenbachBelz),
        ("whitt", GgmFormula::Whitt),
        ("marchal", GgmFormula::Marchal),
        ("kingman", GgmFormula::Kingman),
    ] {
        let solved = solve_model(model, Solver::Ggm(formula)).ok();
        let Some(solved) = solved.and_then(|solution| solution.station) else { continue };
        let wait = unit.time(solved.waiting_time.mean);
        let response = unit.time(solved.response_time.mean);
        answer.number(&format!("{name}_mean_wait"), wait, unit.name);
        answer.number(&format!("{name}_mean_response"), response, unit.name);
        answer.number(&format!("{name}_mean_jobs"), solved.number.mean, "jobs");
    }
}
