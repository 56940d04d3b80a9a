//! The keys of a model file, declared: what `wire` reads, `docs/models.md` lists, and
//! `kendall schema model` prints.

use kendall_keys::{Form, Key, Keys};

use super::{Discipline, WhenFull};

/// Disciplines by their names in files.
pub(super) const DISCIPLINES: [(&str, Discipline); 14] = [
    ("fcfs", Discipline::Fcfs),
    ("ps", Discipline::Ps),
    ("lcfs", Discipline::Lcfs),
    ("lcfs-pr", Discipline::LcfsPr),
    ("siro", Discipline::Siro),
    ("sjf", Discipline::Sjf),
    ("srpt", Discipline::Srpt),
    ("dps", Discipline::Dps),
    ("gps", Discipline::Gps),
    ("edf", Discipline::Edf),
    ("edf-preemptive", Discipline::EdfPreemptive),
    ("is", Discipline::Is),
    ("priority-non-preemptive", Discipline::PriorityNonPreemptive),
    ("priority-preemptive", Discipline::PriorityPreemptive),
];
const DISCIPLINE_NAMES: [&str; 14] = names(&DISCIPLINES);

/// What becomes of customers who find a station full, by its name in files.
pub(super) const WHEN_FULL: [(&str, WhenFull); 4] = [
    ("lost", WhenFull::Lost),
    ("block-after-service", WhenFull::BlockAfterService),
    ("block-before-service", WhenFull::BlockBeforeService),
    ("repeat-service", WhenFull::RepeatService),
];
const WHEN_FULL_NAMES: [&str; 4] = names(&WHEN_FULL);

const fn names<T: Copy, const N: usize>(table: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = table[at].0;
        at += 1;
    }
    names
}

/// The value of a name in files.
pub(super) fn value<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The name of a value in files.
pub(super) fn name<T: PartialEq>(table: &[(&'static str, T)], value: T) -> Option<&'static str> {
    table.iter().find(|(_, known)| *known == value).map(|(name, _)| *name)
}

/// A number, or a table with one for each class.
const BY_CLASS: Form = Form::Either(&[Form::Number, Form::Named(&Form::Number)]);
/// A distribution, or a table with one for each class.
const SHAPE_BY_CLASS: Form =
    Form::Either(&[Form::Table(&[DISTRIBUTION]), Form::Named(&Form::Table(&[DISTRIBUTION]))]);
/// A distribution.
const SHAPE: Form = Form::Table(&[DISTRIBUTION]);
/// A square matrix.
const ROWS: Form = Form::Special("a list of lists of numbers, one for each phase");
/// Any whole number; bounds are the model's, which say why.
const WHOLE: Form = Form::Count { from: 0, to: 9_000_000_000_000_000 };

/// The whole file.
pub const MODEL: &[Key] = &[
    Key::text("name", "its name").or("''"),
    Key::text("description", "free text for the reader of the file").optional(),
    Key::new("classes", Form::Tables(&[CLASS]), "kinds of customers").optional(),
    Key::number("arrival_rate_per_s", "of the only class, which is open"),
    Key::new("population", WHOLE, "of the only class, which is closed").optional(),
    Key::number("think_time_s", "of the only class"),
    Key::new("stations", Form::Tables(&[STATION]), "where customers are served"),
    Key::new("routes", Form::Tables(&[ROUTE]), "where customers go next").optional(),
    Key::new("pools", Form::Tables(&[POOL]), "tokens held while stations are visited").optional(),
    Key::choice(
        "solver",
        &[
            "auto",
            "mva",
            "convolution",
            "schweitzer",
            "seidmann",
            "seidmann-mva",
            "bard",
            "linearizer",
            "allen-cunneen",
            "kraemer-langenbach-belz",
            "whitt",
            "marchal",
            "kingman",
            "simulation",
        ],
        "how it is solved",
    )
    .or("'auto'"),
    Key::new("percentiles", Form::Numbers, "percentiles of response and waiting time").optional(),
    Key::number(
        "arrival_rate_before_per_s",
        "of the only class, before it stepped to its own: how the number settles",
    ),
    Key::new(
        "population_before",
        WHOLE,
        "the same of a closed class, whose further clients begin by thinking",
    )
    .optional(),
    Key::new("simulation", Form::Table(&[SIMULATION]), "what a simulation does").optional(),
];

/// `[[classes]]`.
pub const CLASS: &[Key] = &[
    Key::text("name", "its name"),
    Key::number("arrival_rate_per_s", "an open class: λ of customers, not of batches"),
    Key::new(
        "interarrival_time",
        SHAPE,
        "a distribution; its mean follows the rate when both are given",
    )
    .optional(),
    Key::new(
        "batch_size",
        Form::Special(
            "a number, probabilities of 1, 2, …, or { distribution = \"geometric\", mean = 3 }",
        ),
        "how many arrive together",
    )
    .optional(),
    Key::new("population", WHOLE, "a closed class: N").optional(),
    Key::number("think_time_s", "a closed class: Z, the mean"),
    Key::new("think_time", SHAPE, "a closed class: Z as a distribution").optional(),
    Key::new("priority", Form::Count { from: 0, to: 4_294_967_295 }, "1 goes first").or("1"),
    Key::number("arrival_rate_before_per_s", "an open class: λ before it stepped to its own"),
    Key::new(
        "population_before",
        WHOLE,
        "a closed class: N before further clients began by thinking",
    )
    .optional(),
];

/// `[[stations]]`.
pub const STATION: &[Key] = &[
    Key::text("name", "its name"),
    Key::choice("type", &["queue", "delay"], "whether customers wait for servers").or("'queue'"),
    Key::new("servers", WHOLE, "m").or("1"),
    Key::new("capacity", WHOLE, "B, those in service included; no limit unless given").optional(),
    Key::choice(
        "when_full",
        &WHEN_FULL_NAMES,
        "what becomes of customers of other stations who would come: they are lost; they keep the \
         server that served them; they are not served there before there is a free place; they are served \
         there again",
    )
    .or("'lost'"),
    Key::choice(
        "discipline",
        &DISCIPLINE_NAMES,
        "who is served next; `fcfs` unless it is a delay",
    )
    .optional(),
    Key::new(
        "weight",
        BY_CLASS,
        "of `dps` (each customer) and `gps` (each class): shares of the server are in proportion; 1 \
         unless given",
    )
    .optional(),
    Key::new(
        "deadline_s",
        BY_CLASS,
        "of `edf` and `edf-preemptive`: due so long after it came here",
    )
    .optional(),
    Key::new(
        "service_time_s",
        BY_CLASS,
        "S per visit: a number, or a table with one for each class; a class that the table leaves \
         out does not come here",
    )
    .optional(),
    Key::new("service_rate_per_s", BY_CLASS, "µ of one server instead, likewise").optional(),
    Key::new("service_demand_s", BY_CLASS, "D = V·S instead, likewise").optional(),
    Key::new(
        "service",
        SHAPE_BY_CLASS,
        "a distribution (or a table with one for each class); takes its mean from the keys above \
         unless it has one",
    )
    .optional(),
    Key::new("visits", BY_CLASS, "V per request, 1 unless given; not with routes, which give it")
        .optional(),
    Key::new(
        "rate_multipliers",
        Form::Numbers,
        "load dependence: speed with 1, 2, … customers; the last holds for more",
    )
    .optional(),
    Key::new("service_rates_per_s", Form::Numbers, "load dependence: µ with 1, 2, … customers")
        .optional(),
    Key::number("patience_time_s", "mean time after which waiting customers leave unserved"),
    Key::new("patience", SHAPE, "the same as a distribution").optional(),
    Key::choice("balking", &["never", "reciprocal"], "arrivals join with probability 1/(n+1)")
        .optional(),
    Key::new(
        "join_probabilities",
        Form::Numbers,
        "arrivals that find 0, 1, … customers join with this probability; the last holds for more",
    )
    .optional(),
    Key::new(
        "branches",
        Form::Either(&[WHOLE, Form::Texts]),
        "fork–join: copies of this station visited at once; or the stations where branches begin (one may \
         come several times), which by `routes` lead back here",
    )
    .optional(),
    Key::new("needed", WHOLE, "fork–join: how many of them must be done; all unless given")
        .optional(),
];

/// `[[routes]]`.
pub const ROUTE: &[Key] = &[
    Key::text("class", "who goes this way, when there are several classes").optional(),
    Key::text("from", "a station, or `in`"),
    Key::new(
        "to",
        Form::Named(&Form::Number),
        "probabilities of stations, or `out`; they add to 1. `\"disk:write\"` continues as class \
         `write`",
    ),
    Key::choice(
        "choose",
        &["random", "shortest-queue", "round-robin", "by-number"],
        "how the next station is chosen: by these probabilities, the one with the fewest \
         customers (where they are unequal, the least (customers + 1)/probability), each in turn (with \
         equal ones), by probabilities times `factors`",
    )
    .or("'random'"),
    Key::new(
        "choices",
        WHOLE,
        "of `shortest-queue`: compares only this many, drawn at random; all unless given",
    )
    .optional(),
    Key::new(
        "factors",
        Form::Named(&Form::Numbers),
        "of `by-number`: for each station what its probability is multiplied by with 0, 1, 2, … customers \
         there; the last holds for more; 1 unless given",
    )
    .optional(),
];

/// `[[pools]]`.
pub const POOL: &[Key] = &[
    Key::text("name", "its name"),
    Key::new("tokens", WHOLE, "how many there are"),
    Key::new("stations", Form::Texts, "held from the first of them to the last"),
    Key::texts("classes", "who needs a token; all unless given"),
    Key::new("queue_capacity", WHOLE, "most customers that wait for a token; more are lost")
        .optional(),
];

/// `[simulation]`.
pub const SIMULATION: &[Key] = &[
    Key::new("seed", WHOLE, "of all random draws").or("1"),
    Key::new("confidence", Form::Number, "of its intervals").or("0.95"),
    Key::new("relative_half_width", Form::Number, "how narrow its intervals must be").or("0.02"),
    Key::count("replications", 1, 1_000_000, "independent ones, at least").or("24"),
    Key::new(
        "most_customers",
        WHOLE,
        "stops after this many that completed or were lost, warm-up included, to within one batch",
    )
    .or("20_000_000"),
];

const SHAPE_NAME: Key = Key::choice("distribution", &SHAPES, "which shape");
const MEAN: Key = Key::number("mean_s", "mean, unless a time or a rate beside it gives it");
const RATE: Key = Key::number("rate_per_s", "1/mean, instead of `mean_s`");
const SCV: Key = Key::number("scv", "squared coefficient of variation");
const STAGES: Key =
    Key::new("stages", Form::Count { from: 1, to: 4_294_967_295 }, "stages of `erlang`").optional();
const WEIGHTS: Key =
    Key::new("probabilities", Form::Numbers, "of the branches of `hyperexponential`").optional();
const MEANS: Key =
    Key::new("means_s", Form::Numbers, "of the branches of `hyperexponential`").optional();
const SHAPE_PARAMETER: Key = Key::number("shape", "of `gamma`, `weibull` and `pareto`");
const SCALE: Key = Key::number("scale_s", "of `weibull`, instead of the mean");
const LOW: Key = Key::number("low_s", "least value of `uniform` and `pareto`");
const HIGH: Key = Key::number("high_s", "greatest value of `uniform` and `pareto`");
const DEVIATION: Key = Key::number("sd_s", "standard deviation of `normal`");
const VALUES: Key =
    Key::new("values_s", Form::Numbers, "measured values of `empirical`, or in order of `trace`")
        .optional();
const INITIAL: Key =
    Key::new("initial", Form::Numbers, "of `phase-type`: probability of each first phase")
        .optional();
const GENERATOR: Key = Key::new(
    "generator",
    ROWS,
    "of `phase-type`: rates between phases, on the diagonal less that of leaving; of `mmpp`: rates \
     between phases",
)
.optional();
const STAGE_RATES: Key =
    Key::new("rates_per_s", Form::Numbers, "of the stages of `coxian`").optional();
const CONTINUES: Key = Key::new(
    "continue_probabilities",
    Form::Numbers,
    "of `coxian`: that the next stage follows each but the last",
)
.optional();
const HIDDEN: Key =
    Key::new("d0", ROWS, "of `map`: rates without an event, the diagonal less that of leaving")
        .optional();
const MARKED: Key = Key::new("d1", ROWS, "of `map`: rates with an event").optional();
const PHASE_RATES: Key =
    Key::new("arrival_rates_per_s", Form::Numbers, "of `mmpp`: in each phase").optional();
const VARIANCE: Key = Key::number("variance_s2", "of `general`, instead of `scv`");
const THIRD: Key = Key::number("third_moment_s3", "E[S³] of `general`");

/// Names of distributions.
pub const SHAPES: [&str; 17] = [
    "exponential",
    "deterministic",
    "erlang",
    "hyperexponential",
    "lognormal",
    "gamma",
    "uniform",
    "weibull",
    "normal",
    "pareto",
    "empirical",
    "trace",
    "phase-type",
    "coxian",
    "map",
    "mmpp",
    "general",
];

/// All keys that some distribution has.
pub const DISTRIBUTION: &[Key] = &[
    SHAPE_NAME,
    MEAN,
    RATE,
    SCV,
    STAGES,
    WEIGHTS,
    MEANS,
    SHAPE_PARAMETER,
    SCALE,
    LOW,
    HIGH,
    DEVIATION,
    VALUES,
    INITIAL,
    GENERATOR,
    STAGE_RATES,
    CONTINUES,
    HIDDEN,
    MARKED,
    PHASE_RATES,
    VARIANCE,
    THIRD,
];

/// The keys of one distribution; of all, when there is none of that name.
pub(super) fn of_shape(name: &str) -> Keys {
    match name {
        "exponential" | "deterministic" => &[&[SHAPE_NAME, MEAN, RATE]],
        "erlang" => &[&[SHAPE_NAME, STAGES, MEAN, RATE]],
        "hyperexponential" => &[&[SHAPE_NAME, SCV, MEAN, RATE, WEIGHTS, MEANS]],
        "lognormal" => &[&[SHAPE_NAME, SCV, MEAN, RATE]],
        "gamma" => &[&[SHAPE_NAME, SCV, SHAPE_PARAMETER, MEAN, RATE]],
        "uniform" => &[&[SHAPE_NAME, LOW, HIGH]],
        "weibull" => &[&[SHAPE_NAME, SHAPE_PARAMETER, SCALE, MEAN, RATE]],
        "normal" => &[&[SHAPE_NAME, MEAN, RATE, DEVIATION]],
        "pareto" => &[&[SHAPE_NAME, SHAPE_PARAMETER, LOW, HIGH]],
        "empirical" | "trace" => &[&[SHAPE_NAME, VALUES]],
        "phase-type" => &[&[SHAPE_NAME, SCV, MEAN, RATE, INITIAL, GENERATOR]],
        "coxian" => &[&[SHAPE_NAME, STAGE_RATES, CONTINUES]],
        "map" => &[&[SHAPE_NAME, HIDDEN, MARKED]],
        "mmpp" => &[&[SHAPE_NAME, PHASE_RATES, GENERATOR]],
        "general" => &[&[SHAPE_NAME, SCV, VARIANCE, THIRD, MEAN, RATE]],
        _ => &[DISTRIBUTION],
    }
}
