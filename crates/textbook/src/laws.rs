//! The operational laws: whatever was measured, and all that follows from it.

use std::collections::{BTreeMap, BTreeSet};

use kendall_keys::{Form, Key, Section};

use crate::{Answer, Case, TextbookError};

/// Center, by its number, and key.
const CENTER: &[Key] = &[
    Key::text("name", "its name").optional(),
    Key::number("busy_time_s", "B"),
    Key::number("utilization", "U, of one server"),
    Key::number("servers", "m; 1 unless given"),
    Key::number("service_time_s", "S"),
    Key::number("service_demand_s", "D"),
    Key::number("visits", "V"),
    Key::number("throughput_per_s", "X of the center"),
    Key::number("completions", "C of the center"),
    Key::number("mean_jobs", "Q"),
    Key::number("residence_time_s", "V·R"),
    Key::number("response_per_visit_s", "R of a visit"),
];

pub(crate) const KEYS: &[Key] = &[
    Key::number("observation_period_s", "T"),
    Key::number("completions", "C of the system"),
    Key::number("arrivals", "A of the system"),
    Key::number("throughput_per_s", "X of the system"),
    Key::number("arrival_rate_per_s", "λ of the system"),
    Key::number("system_response_s", "R of the system"),
    Key::number("think_time_s", "Z"),
    Key::number("population", "N"),
    Key::number("jobs_in_system", "mean number in the system"),
    Key::new("stations", Form::Tables(&[CENTER]), "centers; one center may stand at the top")
        .optional(),
    Key::number("busy_time_s", "B of the only center"),
    Key::number("utilization", "U of the only center"),
    Key::number("servers", "m of the only center"),
    Key::number("service_time_s", "S of the only center"),
    Key::number("service_demand_s", "D of the only center"),
    Key::number("visits", "V of the only center"),
    Key::number("station_throughput_per_s", "X of the only center"),
    Key::number("station_completions", "C of the only center"),
    Key::number("mean_jobs", "Q of the only center"),
    Key::number("residence_time_s", "V·R of the only center"),
    Key::number("response_per_visit_s", "R of a visit to the only center"),
];

/// Keys of the system, and what they are called here.
const SYSTEM: [(&str, &str); 9] = [
    ("observation_period_s", "period"),
    ("completions", "completions"),
    ("arrivals", "arrivals"),
    ("throughput_per_s", "throughput"),
    ("arrival_rate_per_s", "arrival_rate"),
    ("system_response_s", "response"),
    ("think_time_s", "think"),
    ("population", "population"),
    ("jobs_in_system", "jobs"),
];

/// Keys of a center, those at the top first.
const CENTERS: [(&str, &str, &str); 11] = [
    ("busy_time_s", "busy_time_s", "busy"),
    ("utilization", "utilization", "utilization"),
    ("servers", "servers", "servers"),
    ("service_time_s", "service_time_s", "service"),
    ("service_demand_s", "service_demand_s", "demand"),
    ("visits", "visits", "visits"),
    ("station_throughput_per_s", "throughput_per_s", "throughput"),
    ("station_completions", "completions", "completions"),
    ("mean_jobs", "mean_jobs", "jobs"),
    ("residence_time_s", "residence_time_s", "residence"),
    ("response_per_visit_s", "response_per_visit_s", "response"),
];

/// Both sides of a law may differ by as much in what was measured.
const TOLERANCE: f64 = 0.01;

/// A quantity of the system, or of one of its centers.
type Name = (Option<usize>, &'static str);

const X: Name = (None, "throughput");

/// What is known so far.
#[derive(Default)]
struct Known {
    values: BTreeMap<Name, f64>,
    /// What the case says, and under which key.
    given: BTreeMap<Name, String>,
    /// What some law has used.
    used: BTreeSet<Name>,
    centers: usize,
}

/// Applies the laws until nothing new follows.
pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let mut known = Known::default();
    for (key, name) in SYSTEM {
        known.put(section, key, (None, name))?;
    }
    let mut tables = section.sections("stations")?;
    let single = tables.is_empty();
    known.centers = tables.len().max(1);
    for (key, _, name) in CENTERS {
        if single {
            known.put(section, key, (Some(0), name))?;
        } else if section.has(key) && key != "completions" {
            return Err(section.problem(key, "is of a center: write it into `stations`").into());
        }
    }
    for (index, table) in tables.iter_mut().enumerate() {
        table.known()?;
        for (_, key, name) in CENTERS {
            known.put(table, key, (Some(index), name))?;
        }
    }
    if known.given.len() < 2 {
        let what = "there are too few quantities for any law; write two of the three of a law, \
                    such as throughput_per_s and service_time_s";
        return Err(TextbookError::key("kind", what));
    }
    known.settle(single);
    known.check()?;
    let mut answer = Answer::new("operational laws", "exact");
    known.describe(&mut answer, single, case.unit);
    known.all_used()?;
    Ok(answer)
}

/// left = a·b.
type Law = (Name, Name, Name);

impl Known {
    fn put(
        &mut self,
        section: &mut Section<'_>,
        key: &str,
        name: Name,
    ) -> Result<(), TextbookError> {
        let Some(value) = section.number(key)? else { return Ok(()) };
        if value < 0.0 {
            return Err(section.problem(key, format!("`{value}` is below 0")).into());
        }
        self.values.insert(name, value);
        self.given.insert(name, section.path_of(key));
        Ok(())
    }

    fn get(&self, name: Name) -> Option<f64> {
        self.values.get(&name).copied()
    }

    fn laws(&self) -> Vec<Law> {
        let system = |name| (None, name);
        let mut laws = vec![
            (system("completions"), X, system("period")),
            (system("arrivals"), system("arrival_rate"), system("period")),
            (system("jobs"), X, system("response")),
        ];
        for at in 0..self.centers {
            let own = |name| (Some(at), name);
            laws.extend([
                (own("completions"), own("throughput"), system("period")),
                (own("busy servers"), own("utilization"), own("servers")),
                (own("busy"), own("busy servers"), system("period")),
                (own("busy servers"), own("throughput"), own("service")),
                (own("busy servers"), X, own("demand")),
                (own("throughput"), own("visits"), X),
                (own("completions"), own("visits"), system("completions")),
                (own("demand"), own("visits"), own("service")),
                (own("jobs"), own("throughput"), own("response")),
                (own("residence"), own("visits"), own("response")),
                (own("jobs"), X, own("residence")),
            ]);
        }
        laws
    }

    /// left = a·b, for whichever of the three is missing.
    fn product(&mut self, (left, a, b): Law) -> bool {
        let found = match (self.get(left), self.get(a), self.get(b)) {
            (None, Some(a), Some(b)) => (left, a * b),
            (Some(value), None, Some(by)) if by > 0.0 => (a, value / by),
            (Some(value), Some(by), None) if by > 0.0 => (b, value / by),
            _ => return false,
        };
        self.values.insert(found.0, found.1);
        self.used.extend([left, a, b]);
        true
    }

    fn settle(&mut self, single: bool) {
        for at in 0..self.centers {
            self.values.entry((Some(at), "servers")).or_insert(1.0);
        }
        let visited = [(Some(0), "visits"), (Some(0), "throughput"), (Some(0), "completions")];
        if single && visited.iter().all(|name| self.get(*name).is_none()) {
            self.values.insert((Some(0), "visits"), 1.0);
        }
        let laws = self.laws();
        // Each round adds a quantity, and there are few.
        for _ in 0..50 * (self.centers + 1) {
            let mut found = false;
            for law in &laws {
                found |= self.product(*law);
            }
            found |= self.interactive();
            found |= self.sums();
            if !found && self.get(X).is_none() {
                // Balance: what arrives is completed.
                if let Some(rate) = self.get((None, "arrival_rate")) {
                    self.values.insert(X, rate);
                    self.used.insert((None, "arrival_rate"));
                    found = true;
                }
            }
            if !found {
                break;
            }
        }
    }

    /// Quantities that contradict each other are refused: one of them is wrong.
    fn check(&mut self) -> Result<(), TextbookError> {
        for (left, a, b) in self.laws() {
            let values = (self.get(left), self.get(a), self.get(b));
            let (Some(value), Some(x), Some(y)) = values else { continue };
            let gap = (value - x * y).abs();
            if gap > TOLERANCE * value.abs().max((x * y).abs()) {
                let say = |name: Name| match (self.given.get(&name), name.0) {
                    (Some(key), _) => key.clone(),
                    (None, Some(at)) => format!("{} of center {at}", name.1),
                    (None, None) => name.1.to_owned(),
                };
                let place = self.given.get(&left).or(self.given.get(&a)).or(self.given.get(&b));
                let what = format!(
                    "the quantities contradict each other: {} is {value}, and {} times {} is {}",
                    say(left),
                    say(a),
                    say(b),
                    x * y
                );
                return Err(TextbookError::key(place.map_or("kind", String::as_str), what));
            }
            self.used.extend([left, a, b]);
        }
        Ok(())
    }

    /// A key from which nothing follows is refused: it would not count.
    fn all_used(&self) -> Result<(), TextbookError> {
        match self.given.iter().find(|(name, _)| !self.used.contains(*name)) {
            None => Ok(()),
            Some((_, key)) => Err(TextbookError::key(
                key,
                "nothing follows from it beside the other quantities; leave it out, or add what \
                 its law needs",
            )),
        }
    }

    /// N = X·(R + Z).
    fn interactive(&mut self) -> bool {
        let names = ["population", "throughput", "response", "think"].map(|name| (None, name));
        let [n, x, r, z] = names.map(|name| self.get(name));
        let (name, value) = match (n, x, r, z) {
            (None, Some(x), Some(r), Some(z)) => (names[0], x * (r + z)),
            (Some(n), None, Some(r), Some(z)) if r + z > 0.0 => (names[1], n / (r + z)),
            (Some(n), Some(x), None, Some(z)) if x > 0.0 && n / x >= z => (names[2], n / x - z),
            (Some(n), Some(x), Some(r), None) if x > 0.0 && n / x >= r => (names[3], n / x - r),
            _ => return false,
        };
        self.values.insert(name, value);
        self.used.extend(names);
        true
    }

    /// R = Σ residence times, number = Σ numbers, where all centers are known.
    fn sums(&mut self) -> bool {
        let mut found = false;
        for (whole, part) in [("response", "residence"), ("jobs", "jobs"), ("demand", "demand")] {
            let names: Vec<Name> = (0..self.centers).map(|at| (Some(at), part)).collect();
            let parts: Option<Vec<f64>> = names.iter().map(|name| self.get(*name)).collect();
            if let (Some(parts), None) = (parts, self.get((None, whole))) {
                self.values.insert((None, whole), parts.iter().sum());
                if whole != "demand" {
                    self.used.extend(names);
                }
                found = true;
            }
        }
        found
    }

    fn describe(&mut self, answer: &mut Answer, single: bool, unit: crate::unit::Unit) {
        let per = unit.per();
        let scaled = |value: f64, of: &str| match of {
            "s" => (unit.time(value), unit.name.to_owned()),
            "1/s" => (unit.rate(value), per.clone()),
            other => (value, other.to_owned()),
        };
        for (name, key, of) in [
            ("throughput", "throughput", "1/s"),
            ("arrival_rate", "arrival_rate", "1/s"),
            ("completions", "completions", "jobs"),
            ("response", "system_response", "s"),
            ("think", "think_time", "s"),
            ("population", "population", "jobs"),
            ("jobs", "jobs_in_system", "jobs"),
            ("demand", "total_demand", "s"),
        ] {
            if let Some(value) = self.get((None, name)) {
                let (value, unit) = scaled(value, of);
                answer.number(key, value, &unit);
            }
        }
        for (name, key, of) in [
            ("utilization", "utilization", "1"),
            ("busy servers", "mean_busy_servers", "1"),
            ("service", "service_time", "s"),
            ("demand", "service_demand", "s"),
            ("visits", "visits", "1"),
            ("throughput", "station_throughput", "1/s"),
            ("completions", "station_completions", "jobs"),
            ("jobs", "mean_jobs", "jobs"),
            ("residence", "residence_time", "s"),
            ("response", "response_per_visit", "s"),
            ("busy", "busy_time", "s"),
        ] {
            let list: Option<Vec<f64>> =
                (0..self.centers).map(|at| self.get((Some(at), name))).collect();
            let Some(list) = list else { continue };
            let list: Vec<f64> = list.iter().map(|value| scaled(*value, of).0).collect();
            let unit = scaled(0.0, of).1;
            if single {
                answer.number(key, list[0], &unit);
            } else {
                answer.list(key, list, &unit);
            }
        }
        let demands: Option<Vec<f64>> = (0..self.centers)
            .map(|at| {
                let m = self.get((Some(at), "servers"))?;
                Some(self.get((Some(at), "demand"))? / m)
            })
            .collect();
        let Some(demands) = demands else { return };
        let most = demands.iter().copied().fold(0.0, f64::max);
        if most > 0.0 {
            let total = self.get((None, "demand")).unwrap_or(most);
            let think = self.get((None, "think")).unwrap_or(0.0);
            self.used.insert((None, "think"));
            self.used.extend((0..self.centers).map(|at| (Some(at), "demand")));
            self.used.extend((0..self.centers).map(|at| (Some(at), "servers")));
            answer.number("max_throughput", unit.rate(1.0 / most), &per);
            answer.number("n_star", (total + think) / most, "jobs");
        }
    }
}
