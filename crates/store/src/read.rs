//! Rows out of the database.

use kendall_protocols::topology::{Graph, TierNode};
use rusqlite::params;

use crate::columns::{RequestRow, RunKey, StageRow, int, select};
use crate::rows::{
    Extent, Generator, HostSample, Process, ProcessSample, Purpose, Run, RunId, RunRecord,
    SearchLine, SpeedSample, StoredPrediction, Study, SummaryRow, Tier, TierPeriod,
};
use crate::{Results, StoreError};

impl Results {
    pub fn study(&self) -> Result<Study, StoreError> {
        let found = select(&self.connection, "study", [])?.pop();
        found.ok_or_else(|| StoreError::Corrupt { what: "there is no study in it".to_owned() })
    }

    /// How far an adaptive design came, line by line; empty for other designs.
    pub fn searches(&self) -> Result<Vec<SearchLine>, StoreError> {
        select(&self.connection, "searches ORDER BY line", [])
    }

    /// What the last report said of each configuration that got no run since, by configuration and
    /// variable.
    pub fn summary(&self) -> Result<Vec<SummaryRow>, StoreError> {
        select(&self.connection, "summary ORDER BY configuration, variable", [])
    }

    /// All runs of the design in the order in which they ended: every attempt, usable or not.
    pub fn runs(&self) -> Result<Vec<Run>, StoreError> {
        self.runs_for(Purpose::Design)
    }

    /// Runs that verified predictions, and those beside them, in the order in which they ended.
    pub fn verifications(&self) -> Result<Vec<Run>, StoreError> {
        self.runs_for(Purpose::Verification)
    }

    /// What was asked of the study's model and kept, oldest first.
    pub fn predictions(&self) -> Result<Vec<StoredPrediction>, StoreError> {
        select(&self.connection, "predictions ORDER BY id", [])
    }

    /// What one client alone did before the loads of runs, of the design and others, in the order of these.
    pub fn one_client_runs(&self) -> Result<Vec<Run>, StoreError> {
        self.runs_where("one_client_of IS NOT NULL", [])
    }

    fn runs_for(&self, purpose: Purpose) -> Result<Vec<Run>, StoreError> {
        self.runs_where("purpose = ?1 AND one_client_of IS NULL", [purpose.as_str()])
    }

    fn runs_where(
        &self,
        condition: &str,
        values: impl rusqlite::Params,
    ) -> Result<Vec<Run>, StoreError> {
        let from = format!(
            "runs JOIN environments ON environments.id = runs.environment WHERE {condition}
             ORDER BY runs.id"
        );
        let found: Vec<(RunKey, Run)> = select(&self.connection, &from, values)?;
        let whole = |(key, run): (RunKey, Run)| {
            let query = "run_factors WHERE run = ?1 ORDER BY ordinal";
            let factors = select(&self.connection, query, [key.id.0])?;
            Ok(Run { id: key.id, environment: key.environment, factors, ..run })
        };
        found.into_iter().map(whole).collect()
    }

    /// What runs ran on, each that was stored once, the newest first.
    pub fn environments(&self) -> Result<Vec<serde_json::Value>, StoreError> {
        let found: Vec<RunKey> =
            select(&self.connection, "environments AS runs ORDER BY id DESC", [])?;
        Ok(found.into_iter().map(|key| key.environment).collect())
    }

    /// The last attempt at each planned run, ordered by configuration and repetition.
    pub fn latest_runs(&self) -> Result<Vec<Run>, StoreError> {
        let mut runs = self.runs()?;
        runs.sort_by_key(|run| (run.configuration, run.repetition, std::cmp::Reverse(run.attempt)));
        runs.dedup_by_key(|run| (run.configuration, run.repetition));
        Ok(runs)
    }

    pub fn run(&self, id: RunId) -> Result<Run, StoreError> {
        self.runs_where("runs.id = ?1", [id.0])?.pop().ok_or(StoreError::NoSuchRun(id.0))
    }

    /// Everything about one run, as it was stored.
    pub fn record(&self, id: RunId) -> Result<RunRecord, StoreError> {
        Ok(RunRecord {
            run: self.run(id)?,
            graph: self.graph(id)?,
            generators: self.generators(id, None)?,
            tiers: self.tiers(id, None)?,
            processes: self.processes(id)?,
            hosts: self.hosts(id)?,
            speeds: self.speeds(id)?,
        })
    }

    /// The system of a run: its tiers by their distance from the clients, and who talks to whom.
    pub fn graph(&self, id: RunId) -> Result<Graph, StoreError> {
        let query = "graph_tiers WHERE run = ?1 ORDER BY position";
        let mut tiers: Vec<TierNode> = select(&self.connection, query, [id.0])?;
        for node in &mut tiers {
            let query = "graph_pools WHERE run = ?1 AND tier = ?2 ORDER BY ordinal";
            node.pools = select(&self.connection, query, params![id.0, node.tier.as_str()])?;
        }
        let query = "graph_edges WHERE run = ?1 ORDER BY ordinal";
        Ok(Graph { tiers, edges: select(&self.connection, query, [id.0])? })
    }

    /// How fast the cores of a run were; empty where it was not probed.
    pub fn speeds(&self, id: RunId) -> Result<Vec<SpeedSample>, StoreError> {
        select(&self.connection, "speeds WHERE run = ?1 ORDER BY host, core, at_ns", [id.0])
    }

    /// The generators of a run, with their operations of one extent, or of all.
    pub fn generators(
        &self,
        id: RunId,
        extent: Option<Extent>,
    ) -> Result<Vec<Generator>, StoreError> {
        let query = "generators WHERE run = ?1 ORDER BY generator";
        let mut generators: Vec<Generator> = select(&self.connection, query, [id.0])?;
        for row in &mut generators {
            let query = "generator_threads WHERE run = ?1 AND generator = ?2 ORDER BY thread";
            row.threads = select(&self.connection, query, params![id.0, row.generator])?;
            let query =
                "operations WHERE run = ?1 AND generator = ?2 AND (?3 IS NULL OR extent = ?3)
                         ORDER BY extent, from_ns, operation";
            let values = params![id.0, row.generator, extent.map(Extent::as_str)];
            row.operations = select(&self.connection, query, values)?;
        }
        Ok(generators)
    }

    /// The tiers of a run by their distance from the clients, then the links, with their periods of
    /// one extent, or of all.
    pub fn tiers(&self, id: RunId, extent: Option<Extent>) -> Result<Vec<Tier>, StoreError> {
        let query = "tiers WHERE run = ?1 ORDER BY
                     (SELECT position FROM graph_tiers g WHERE g.run = tiers.run AND g.tier = tiers.tier)
                     NULLS LAST, tier, instance";
        let mut tiers: Vec<Tier> = select(&self.connection, query, [id.0])?;
        for tier in &mut tiers {
            let query = "tier_periods WHERE run = ?1 AND tier = ?2 AND instance = ?3
                         AND (?4 IS NULL OR extent = ?4) ORDER BY extent, from_ns";
            let values = params![id.0, tier.tier, tier.instance, extent.map(Extent::as_str)];
            let mut periods: Vec<TierPeriod> = select(&self.connection, query, values)?;
            for period in &mut periods {
                self.requests_and_backends(id, tier, period)?;
            }
            tier.periods = periods;
        }
        Ok(tiers)
    }

    fn requests_and_backends(
        &self,
        id: RunId,
        tier: &Tier,
        period: &mut TierPeriod,
    ) -> Result<(), StoreError> {
        let (extent, from) = (period.extent.as_str(), int("from_ns", period.from_ns)?);
        let of_period = params![id.0, extent, tier.tier, tier.instance, from];
        let query = "tier_requests
             WHERE run = ?1 AND extent = ?2 AND tier = ?3 AND instance = ?4 AND from_ns = ?5";
        for row in select::<RequestRow>(&self.connection, query, of_period)? {
            let requests = period.requests.entry(row.request).or_default();
            (requests.arrivals, requests.completions) = (row.arrivals, row.completions);
        }
        let query = "tier_stages
             WHERE run = ?1 AND extent = ?2 AND tier = ?3 AND instance = ?4 AND from_ns = ?5";
        for row in select::<StageRow>(&self.connection, query, of_period)? {
            let requests = period.requests.entry(row.request).or_default();
            requests.stages.insert(row.stage, row.histogram);
        }
        let query = "tier_backends
             WHERE run = ?1 AND extent = ?2 AND tier = ?3 AND instance = ?4 AND from_ns = ?5
             ORDER BY backend";
        period.backends = select(&self.connection, query, of_period)?;
        Ok(())
    }

    pub fn processes(&self, id: RunId) -> Result<Vec<Process>, StoreError> {
        let query = "process_samples WHERE run = ?1 ORDER BY role, name, instance, at_ns";
        let mut processes: Vec<Process> = Vec::new();
        for (process, sample) in
            select::<(Process, ProcessSample)>(&self.connection, query, [id.0])?
        {
            match processes.last_mut() {
                Some(last) if last.part == process.part && last.instance == process.instance => {
                    last.samples.push(sample);
                }
                _ => processes.push(Process { samples: vec![sample], ..process }),
            }
        }
        for process in &mut processes {
            let query =
                "thread_samples WHERE run = ?1 AND role = ?2 AND name = ?3 AND instance = ?4
                         ORDER BY thread, at_ns";
            let (role, name) = (process.part.role.as_str(), &process.part.name);
            let values = params![id.0, role, name, process.instance];
            process.threads = select(&self.connection, query, values)?;
        }
        Ok(processes)
    }

    pub fn hosts(&self, id: RunId) -> Result<Vec<HostSample>, StoreError> {
        select(&self.connection, "host_samples WHERE run = ?1 ORDER BY host, at_ns", [id.0])
    }
}
