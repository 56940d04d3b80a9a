//! A first answer before the study itself: every configuration in short runs.

use kendall_units::{Seconds, exact_f64};
use serde_json::json;
use toml::Value;

use crate::factor::Factor;
use crate::file::{Adaptive, DesignKind, DesignSpec, Refusal, StudyFile};
use crate::plan::Plan;
use crate::settings::Repetitions;

/// Time within which there is to be an answer.
pub const FIRST_ANSWER: Seconds = Seconds::new(60.0);

/// Load of a run, and what is cut from its start.
const RUN: (Seconds, Seconds) = (Seconds::new(3.0), Seconds::new(1.0));

/// What starting and stopping a service takes, as long as it is not known.
const STARTING: Seconds = Seconds::new(1.0);

/// Two runs of a configuration tell how runs scatter.
const MOST_REPETITIONS: u32 = 2;

/// Configurations that a pass takes of a design that chooses its runs: as many as are run twice in the time.
const CHOSEN: usize = 7;

/// Levels at the least of the load and of each other factor, in the order in which they are given up.
const LEAST_LEVELS: [(usize, usize); 3] = [(4, 2), (4, 1), (2, 1)];

impl StudyFile {
    /// The same study in short runs, which end within [`FIRST_ANSWER`]. `None` where the study itself is
    /// planned to end by then, for systems that Kendall ships, and where runs cannot be shortened: jobs, loads
    /// by other programs, rates that are shares of a capacity. Of a design that chooses its runs, which it does by runs of
    /// full length, a few levels of each factor.
    pub fn first_pass(&self) -> Result<Option<Self>, Refusal> {
        let measure = &self.base.measure;
        let own = ["processes", "attached"].contains(&self.base.kind.name);
        let workload = &self.base.workload;
        let as_stated =
            workload.is_job() || workload.driver.program.is_some() || self.wants_capacity();
        let mut varied = self.factors.iter().flat_map(Factor::keys);
        let how = varied.any(|key| key.starts_with("measure."));
        let plan = Plan::of(self)?;
        let whole = (measure.under_load() + STARTING) * exact_f64(plan.most());
        if !own || as_stated || how || whole <= FIRST_ANSWER {
            return Ok(None);
        }
        let load = match &self.design.kind {
            DesignKind::Adaptive(Adaptive { factor, .. }) | DesignKind::Calibration { factor } => {
                Some(factor.as_str())
            }
            _ => None,
        };
        let factors =
            load.map_or_else(|| self.factors.clone(), |load| thinned(&self.factors, load));
        let configurations = match load {
            Some(_) => factors.iter().map(|factor| factor.levels.len()).product(),
            None => plan.configurations.len(),
        };
        let round = (RUN.0 + STARTING) * exact_f64(configurations);
        let most = match measure.repetitions {
            Repetitions::Fixed(count) => count.min(MOST_REPETITIONS),
            Repetitions::Until { .. } => MOST_REPETITIONS,
        };
        let repetitions = if round * f64::from(most) <= FIRST_ANSWER { most } else { 1 };
        let mut values = vec![
            ("measure.repetitions", Value::Integer(repetitions.into())),
            ("measure.retries", Value::Integer(0)),
        ];
        if measure.duration > RUN.0 {
            let text = |time: Seconds| Value::String(format!("{}s", time.get()));
            values.extend([
                ("measure.duration", text(RUN.0)),
                ("measure.warm_up", text(RUN.1)),
                ("measure.cool_down", text(Seconds::ZERO)),
            ]);
        }
        if measure.one_client > Seconds::ZERO {
            values.push(("measure.one_client", Value::String("0s".to_owned())));
        }
        let mut pass = self.with_values(&values)?;
        pass.title = format!("{} – first pass, in short runs", self.title);
        pass.fail_if.clear();
        if load.is_some() {
            let (kind, model) = (DesignKind::Full, self.design.model.clone());
            pass.design = DesignSpec { kind, model, effective: json!({ "kind": "full" }) };
            pass.factors = factors;
        }
        pass.within = Some(FIRST_ANSWER);
        Ok(Some(pass))
    }
}

/// The factors with few enough levels for so many configurations.
fn thinned(factors: &[Factor], load: &str) -> Vec<Factor> {
    let mut kept: Vec<usize> = factors.iter().map(|factor| factor.levels.len()).collect();
    for (of_load, of_others) in LEAST_LEVELS {
        while kept.iter().product::<usize>() > CHOSEN {
            let least = |at: usize| if factors[at].key == load { of_load } else { of_others };
            let most = (0..kept.len()).filter(|at| kept[*at] > least(*at));
            let Some(most) = most.max_by_key(|at| kept[*at]) else { break };
            kept[most] -= 1;
        }
    }
    if let Some(at) = factors.iter().position(|factor| factor.key == load) {
        let others = kept.iter().product::<usize>() / kept[at];
        kept[at] = kept[at].max(CHOSEN / others).min(factors[at].levels.len());
    }
    factors.iter().zip(kept).map(|(factor, kept)| factor.with_levels(kept)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search and a calibration, whose own runs take minutes: their whole range in steps of one ratio.
    #[test]
    fn a_design_that_chooses_its_runs_begins_with_a_few_levels() {
        let duration = "duration = '12s'\nrepetitions = 3\n[design]\nkind = ";
        for kind in ["'adaptive'", "'calibration'"] {
            let measure = format!("{duration}{kind}");
            let study = study("processes", &measure, "{ from = 1, to = 64, step = 1 }");
            let pass = study.first_pass().unwrap().unwrap();
            assert_eq!(pass.design.kind, DesignKind::Full);
            let levels = (0..pass.factors[0].levels.len()).map(|at| pass.factors[0].level(at).text);
            assert_eq!(levels.collect::<Vec<_>>(), ["1", "2", "4", "8", "16", "32", "64"]);
            assert!(planned(&pass).0 <= FIRST_ANSWER.get());
            assert!(pass.settings(&[Some(6)]).is_ok());
            assert_ne!(pass.fingerprint(), study.fingerprint());
        }
        // Beside another factor, each of its values at as many loads as there is time for.
        let loads = "[1, 2, 4, 8, 16]\n'workload.think_time' = ['0s', '1ms', '2ms']";
        let pass = study("processes", &format!("{duration}'adaptive'"), loads);
        let pass = pass.first_pass().unwrap().unwrap();
        let counts: Vec<usize> = pass.factors.iter().map(|factor| factor.levels.len()).collect();
        assert_eq!(counts, [5, 1]);
    }

    fn study(kind: &str, measure: &str, clients: &str) -> StudyFile {
        let system = match kind {
            "processes" => {
                "kind = 'processes'\n[[system.tiers]]\nname = 'web'\ncommand = ['web', '{port}']\n\
                 ready = 'tcp'\n[workload]\nprotocol = 'http'\n"
            }
            _ => "kind = 'memcached'\n[workload]\nmix = { get = 1 }\n",
        };
        let text = format!(
            "name = 'x'\n[system]\n{system}[measure]\n{measure}\n[factors]\n'workload.clients' = {clients}"
        );
        StudyFile::parse("x.toml", text, false, &[]).unwrap()
    }

    /// What is planned of a pass, in seconds, and its repetitions.
    fn planned(pass: &StudyFile) -> (f64, u32) {
        let Repetitions::Fixed(repetitions) = pass.base.measure.repetitions else { panic!() };
        let runs = exact_f64(Plan::of(pass).unwrap().total().unwrap());
        (((pass.base.measure.under_load() + STARTING) * runs).get(), repetitions)
    }

    #[test]
    fn a_pass_is_planned_to_end_within_a_minute() {
        for (clients, repetitions) in
            [("[1, 4, 16, 64]", 2), ("{ from = 1, to = 12, step = 1 }", 1)]
        {
            let study = study("processes", "duration = '12s'", clients);
            let pass = study.first_pass().unwrap().unwrap();
            let (seconds, of_each) = planned(&pass);
            assert!(seconds <= FIRST_ANSWER.get(), "{clients}: {seconds} s");
            assert_eq!(of_each, repetitions, "{clients}");
            assert_ne!(pass.fingerprint(), study.fingerprint());
        }
        // So many configurations that only the clock ends it.
        let study = study("processes", "duration = '60s'", "{ from = 1, to = 40, step = 1 }");
        let pass = study.first_pass().unwrap().unwrap();
        assert!(planned(&pass).0 > 60.0 && pass.within == Some(FIRST_ANSWER));
        assert_eq!(study.within, None);
    }

    #[test]
    fn there_is_none_where_it_tells_nothing_sooner() {
        let own = |measure| study("processes", measure, "[1, 2]");
        assert!(own("duration = '12s'\nrepetitions = 3").first_pass().unwrap().is_some());
        assert!(own("duration = '5s'\nrepetitions = 3").first_pass().unwrap().is_none());
        let shipped = study("memcached", "duration = '12s'\nrepetitions = 3", "[1, 2]");
        assert!(shipped.first_pass().unwrap().is_none());
    }
}
