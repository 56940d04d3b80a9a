//! Cases of the operational laws: whatever was measured, and all that follows from it.

use std::collections::BTreeMap;

use super::read::Fields;
use super::{Answer, CaseError};
use crate::model::refused;

/// A quantity of the system, or of one of its centers.
type Name = (Option<usize>, &'static str);

/// What is known so far.
struct Known {
    values: BTreeMap<Name, f64>,
    centers: usize,
}

/// Whether a case is one of the laws.
pub(super) fn is_law(kind: &str) -> bool {
    kind.contains("law") || kind.contains("operational")
}

/// Applies the laws until nothing new follows.
pub(super) fn solve(fields: &Fields<'_>) -> Result<Answer, CaseError> {
    let mut tables = Vec::new();
    for key in ["stations", "devices", "resources", "centers"] {
        if tables.is_empty() {
            tables = fields.tables(key)?;
        }
    }
    let single = tables.is_empty();
    let mut known = Known { values: BTreeMap::new(), centers: tables.len().max(1) };
    known.system(fields)?;
    if single {
        known.center(0, fields, true)?;
    }
    for (index, table) in tables.iter().enumerate() {
        known.center(index, table, false)?;
    }
    known.settle(single);
    let mut answer = Answer {
        solver: "operational laws".to_owned(),
        accuracy: "exact".to_owned(),
        ..Answer::default()
    };
    known.describe(&mut answer, single);
    if answer.outputs.is_empty() {
        return Err(refused(
            "model",
            "too few quantities for any law",
            "two of the three quantities of a law, such as throughput_per_s and service_time_s",
        )
        .into());
    }
    Ok(answer)
}

impl Known {
    fn put(&mut self, name: Name, value: Option<f64>) -> Result<(), CaseError> {
        let Some(value) = value else { return Ok(()) };
        if !(value.is_finite() && value >= 0.0) {
            return Err(refused(name.1, value, "a finite number, 0 or above").into());
        }
        self.values.insert(name, value);
        Ok(())
    }

    fn system(&mut self, fields: &Fields<'_>) -> Result<(), CaseError> {
        let period = fields.time(&[
            "observation_period",
            "observation_time",
            "measurement_interval",
            "measurement_period",
            "monitoring_period",
            "duration",
            "period",
            "interval",
            "T",
        ]);
        self.put((None, "period"), period)?;
        self.put((None, "completions"), fields.number(&["completions", "C", "C0", "jobs_done"]))?;
        self.put((None, "arrivals"), fields.number(&["arrivals", "A"]))?;
        self.put((None, "throughput"), fields.rate(&["throughput", "system_throughput", "X"]))?;
        self.put((None, "arrival_rate"), fields.arrival_rate())?;
        let response =
            ["response_time", "system_response_time", "response", "system_response", "R"];
        self.put((None, "response"), fields.time(&response))?;
        self.put((None, "think"), fields.time(&["think_time", "Z"]))?;
        let population = ["population", "users", "clients", "terminals", "customers", "N"];
        self.put((None, "population"), fields.number(&population))?;
        self.put((None, "jobs"), fields.number(&["jobs_in_system", "mean_jobs_in_system"]))
    }

    fn center(&mut self, at: usize, fields: &Fields<'_>, alone: bool) -> Result<(), CaseError> {
        let mut put = |name, value| self.put((Some(at), name), value);
        put("busy", fields.time(&["busy_time", "busy", "B"]))?;
        put(
            "utilization",
            fields
                .number(&["utilization", "U"])
                .or(fields.number(&["utilization_percent"]).map(|u| u / 100.0)),
        )?;
        put("servers", fields.number(&["servers", "m"]))?;
        put("service", fields.time(&["service_time", "mean_service_time", "S"]))?;
        put("demand", fields.time(&["service_demand", "demand", "D"]))?;
        put("visits", fields.number(&["visits", "visit_ratio", "V"]))?;
        let own = ["station_throughput", "device_throughput", "center_throughput"];
        put("throughput", fields.rate(&own))?;
        put(
            "jobs",
            fields.number(&["mean_jobs", "mean_number", "queue_length", "mean_queue_length", "Q"]),
        )?;
        put("residence", fields.time(&["residence_time"]))?;
        put("response", fields.time(&["response_per_visit", "response_time_per_visit"]))?;
        put("completions", fields.number(&["station_completions", "device_completions"]))?;
        if !alone {
            put("throughput", fields.rate(&["throughput", "X"]))?;
            put("completions", fields.number(&["completions", "C"]))?;
            put("response", fields.time(&["response_time", "response", "R"]))?;
        }
        Ok(())
    }

    fn get(&self, name: Name) -> Option<f64> {
        self.values.get(&name).copied()
    }

    /// left = a·b, for whichever of the three is missing.
    fn product(&mut self, left: Name, a: Name, b: Name) -> bool {
        let found = match (self.get(left), self.get(a), self.get(b)) {
            (None, Some(a), Some(b)) => (left, a * b),
            (Some(value), None, Some(by)) if by > 0.0 => (a, value / by),
            (Some(value), Some(by), None) if by > 0.0 => (b, value / by),
            _ => return false,
        };
        self.values.insert(found.0, found.1);
        true
    }

    fn settle(&mut self, single: bool) {
        const X: Name = (None, "throughput");
        for at in 0..self.centers {
            self.values.entry((Some(at), "servers")).or_insert(1.0);
        }
        let visited = [(Some(0), "visits"), (Some(0), "throughput"), (Some(0), "completions")];
        if single && visited.iter().all(|name| self.get(*name).is_none()) {
            self.values.insert((Some(0), "visits"), 1.0);
        }
        // Each round adds a quantity, and there are few.
        for _ in 0..50 * (self.centers + 1) {
            let mut found = self.product((None, "completions"), X, (None, "period"));
            found |= self.product((None, "arrivals"), (None, "arrival_rate"), (None, "period"));
            found |= self.product((None, "jobs"), X, (None, "response"));
            found |= self.interactive();
            for at in 0..self.centers {
                found |= self.center_laws(at);
            }
            found |= self.sums();
            if !found && self.get(X).is_none() {
                // Balance: what arrives is completed.
                if let Some(rate) = self.get((None, "arrival_rate")) {
                    self.values.insert(X, rate);
                    found = true;
                }
            }
            if !found {
                break;
            }
        }
    }

    fn center_laws(&mut self, at: usize) -> bool {
        const X: Name = (None, "throughput");
        let own = |name| (Some(at), name);
        let mut found = self.product(own("completions"), own("throughput"), (None, "period"));
        found |= self.product(own("busy servers"), own("utilization"), own("servers"));
        found |= self.product(own("busy"), own("busy servers"), (None, "period"));
        found |= self.product(own("busy servers"), own("throughput"), own("service"));
        found |= self.product(own("busy servers"), X, own("demand"));
        found |= self.product(own("throughput"), own("visits"), X);
        found |= self.product(own("completions"), own("visits"), (None, "completions"));
        found |= self.product(own("demand"), own("visits"), own("service"));
        found |= self.product(own("jobs"), own("throughput"), own("response"));
        found |= self.product(own("residence"), own("visits"), own("response"));
        found |= self.product(own("jobs"), X, own("residence"));
        found
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
        true
    }

    /// R = Σ residence times, number = Σ numbers, where all centers are known.
    fn sums(&mut self) -> bool {
        let mut found = false;
        for (whole, part) in [("response", "residence"), ("jobs", "jobs"), ("demand", "demand")] {
            let parts: Option<Vec<f64>> =
                (0..self.centers).map(|at| self.get((Some(at), part))).collect();
            if let (Some(parts), None) = (parts, self.get((None, whole))) {
                self.values.insert((None, whole), parts.iter().sum());
                found = true;
            }
        }
        found
    }

    fn describe(&self, answer: &mut Answer, single: bool) {
        for (name, keys, unit) in [
            ("throughput", &["throughput", "system_throughput"][..], "1/s"),
            ("arrival_rate", &["arrival_rate"], "1/s"),
            ("completions", &["completions"], "jobs"),
            ("response", &["system_response", "response_time", "mean_response"], "s"),
            ("think", &["think_time"], "s"),
            ("population", &["population"], "jobs"),
            ("jobs", &["jobs_in_system", "total_jobs"], "jobs"),
            ("demand", &["total_demand"], "s"),
        ] {
            for key in keys {
                answer.maybe(key, self.get((None, name)), unit);
            }
        }
        for (name, keys, unit) in [
            ("utilization", &["utilization"][..], "1"),
            ("busy servers", &["mean_busy_servers"], "1"),
            ("service", &["service_time", "mean_service_time"], "s"),
            ("demand", &["service_demand", "demand"], "s"),
            ("visits", &["visits"], "1"),
            ("throughput", &["station_throughput"], "1/s"),
            ("completions", &["station_completions"], "jobs"),
            ("jobs", &["mean_jobs"], "jobs"),
            ("residence", &["residence_time"], "s"),
            ("response", &["response_per_visit"], "s"),
            ("busy", &["busy_time"], "s"),
        ] {
            let list: Option<Vec<f64>> =
                (0..self.centers).map(|at| self.get((Some(at), name))).collect();
            let Some(list) = list else { continue };
            for key in keys {
                if single {
                    answer.number(key, list[0], unit);
                } else {
                    answer.list(key, list.clone(), unit);
                }
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
            answer.number("max_throughput", 1.0 / most, "1/s");
            answer.number("n_star", (total + think) / most, "jobs");
            answer.number("saturation_population", (total + think) / most, "jobs");
        }
    }
}
