//! A first answer before the study itself: every configuration in short runs.

use kendall_units::{Seconds, exact_f64};
use toml::Value;

use crate::factor::Factor;
use crate::file::{DesignKind, Refusal, StudyFile};
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

impl StudyFile {
    /// The same study in short runs, which end within [`FIRST_ANSWER`]. `None` where the study itself is
    /// planned to end by then, for systems that Kendall ships, and where runs cannot be shortened: jobs, loads
    /// by other programs, rates that are shares of a capacity, designs that choose their runs.
    pub fn first_pass(&self) -> Result<Option<Self>, Refusal> {
        let measure = &self.base.measure;
        let own = ["processes", "attached"].contains(&self.base.kind.name);
        let chooses =
            matches!(self.design.kind, DesignKind::Adaptive(_) | DesignKind::Calibration { .. });
        let workload = &self.base.workload;
        let as_stated =
            workload.is_job() || workload.driver.program.is_some() || self.wants_capacity();
        let mut varied = self.factors.iter().flat_map(Factor::keys);
        let how = varied.any(|key| key.starts_with("measure."));
        let plan = Plan::of(self)?;
        let whole = (measure.under_load() + STARTING) * exact_f64(plan.most());
        if !own || chooses || as_stated || how || whole <= FIRST_ANSWER {
            return Ok(None);
        }
        let round = (RUN.0 + STARTING) * exact_f64(plan.configurations.len());
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
        pass.within = Some(FIRST_ANSWER);
        Ok(Some(pass))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
