//! The structure of a system at one configuration, and the work that a request is.

/// A host whose cores all of its processes share.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub name: String,
    pub cores: u32,
    /// Speed of a core relative to those that were calibrated on: 2 does the work in half the time.
    pub speed: f64,
}

/// A process: threads that share a queue of work.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    pub name: String,
    /// Index of its host.
    pub host: usize,
    /// Threads that may work at the same time.
    pub threads: u32,
    /// How single pieces of its work vary.
    pub spread: Spread,
}

/// How a time varies around its mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spread {
    /// Not at all.
    Constant,
    /// With a squared coefficient of variation of 1.
    Exponential,
    /// Lognormally, with this squared coefficient of variation.
    Lognormal { scv: f64 },
    /// As it was measured: values at [`Spread::LEVELS`], relative to their mean, straight between
    /// them.
    Measured([f64; 15]),
}

impl Spread {
    /// Quantiles that describe a measured distribution. Its tail ends at the last.
    pub const LEVELS: [f64; 15] =
        [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0];

    /// A measured distribution by its values at [`Spread::LEVELS`], in any unit; `None` where they
    /// do not rise or have no mean.
    pub fn measured(values: [f64; 15]) -> Option<Self> {
        let rises = values.windows(2).all(|pair| pair[0] <= pair[1]) && values[0] >= 0.0;
        let mean: f64 = (1..values.len())
            .map(|i| {
                let width = Self::LEVELS[i] - Self::LEVELS[i - 1];
                width * f64::midpoint(values[i], values[i - 1])
            })
            .sum();
        (rises && mean > 0.0 && mean.is_finite())
            .then(|| Self::Measured(values.map(|value| value / mean)))
    }
}

/// Tokens that are held while something else goes on: workers, connections.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub name: String,
    pub tokens: u32,
    /// Most requests that one token serves together, of those that wait when it is free; 1 without
    /// batches.
    pub batch: u32,
}

/// A resource that serves all who wait when it begins, together: a commit, a flush.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    pub name: String,
    /// Time of one, in s; 0 where the calibration must find it.
    pub time_s: f64,
    /// How many times as fast it is as where it was calibrated.
    pub speed: f64,
}

/// One step of a request. Indices are those of [`System`]'s lists.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A visit to a process.
    Work(Work),
    /// Time that no processor is needed for, in s.
    Delay(f64),
    /// The same, where it varies: a disk, a timer, a service elsewhere.
    Wait {
        /// Mean, in s.
        time_s: f64,
        /// What each of those that are served together makes it longer, in s.
        each_s: f64,
        spread: Spread,
    },
    /// The inner steps are done for this share of the requests, 0 to 1.
    Sometimes { share: f64, inside: Vec<Step> },
    /// A token is held while the inner steps are done.
    Hold { pool: usize, inside: Vec<Step> },
    /// Waits for the next commit to end.
    Commit(usize),
}

/// A visit to a process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    pub process: usize,
    /// Share of the process's work for a request that this visit is; the shares of a process add
    /// to 1.
    pub share: f64,
}

/// What brings requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workload {
    /// Clients that think (exponentially, with this mean, or not at all), then wait for their answer.
    Closed { clients: u32, think_time_s: f64 },
    /// A Poisson process.
    Open { rate_per_s: f64 },
}

impl Workload {
    /// N of a closed load, λ of an open one.
    pub fn load(self) -> f64 {
        match self {
            Self::Closed { clients, .. } => f64::from(clients),
            Self::Open { rate_per_s } => rate_per_s,
        }
    }
}

/// A system at one configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    pub hosts: Vec<Host>,
    /// Processes, the load generator and links included.
    pub processes: Vec<Process>,
    pub pools: Vec<Pool>,
    pub commits: Vec<Commit>,
    /// What a request does, in order.
    pub steps: Vec<Step>,
    /// What brings requests.
    pub workload: Workload,
}

/// A structure that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SystemError {
    #[error("the system has no {what}")]
    Empty { what: &'static str },
    #[error("{what} {index} is not there: there are {count}")]
    Missing { what: &'static str, index: usize, count: usize },
    #[error("{what} of `{name}` is {value}; it must be {expected}")]
    Number { name: String, what: &'static str, value: f64, expected: &'static str },
}

impl System {
    /// Checks indices and numbers.
    ///
    /// # Errors
    /// [`SystemError`] for the first that makes no sense.
    pub fn check(&self) -> Result<(), SystemError> {
        for (what, empty) in [
            ("hosts", self.hosts.is_empty()),
            ("processes", self.processes.is_empty()),
            ("steps", self.steps.is_empty()),
        ] {
            if empty {
                return Err(SystemError::Empty { what });
            }
        }
        let number = |name: &str, what, value: f64, fits: bool, expected| {
            if fits && value.is_finite() {
                return Ok(());
            }
            Err(SystemError::Number { name: name.to_owned(), what, value, expected })
        };
        for host in &self.hosts {
            number(&host.name, "cores", f64::from(host.cores), host.cores > 0, "1 or above")?;
            number(&host.name, "speed", host.speed, host.speed > 0.0, "above 0")?;
        }
        for process in &self.processes {
            reach("host", process.host, self.hosts.len())?;
            let threads = f64::from(process.threads);
            number(&process.name, "threads", threads, process.threads > 0, "1 or above")?;
        }
        for pool in &self.pools {
            number(&pool.name, "tokens", f64::from(pool.tokens), pool.tokens > 0, "1 or above")?;
            number(&pool.name, "batch", f64::from(pool.batch), pool.batch > 0, "1 or above")?;
        }
        for commit in &self.commits {
            number(&commit.name, "time", commit.time_s, commit.time_s >= 0.0, "0 or above")?;
            number(&commit.name, "speed", commit.speed, commit.speed > 0.0, "above 0")?;
        }
        let (name, value, fits) = match self.workload {
            Workload::Closed { clients, think_time_s } => {
                number("clients", "number", f64::from(clients), clients > 0, "1 or above")?;
                ("clients", think_time_s, think_time_s >= 0.0)
            }
            Workload::Open { rate_per_s } => ("arrivals", rate_per_s, rate_per_s > 0.0),
        };
        number(name, "time or rate", value, fits, "a finite time, or a rate above 0")?;
        self.check_steps(&self.steps)
    }

    fn check_steps(&self, steps: &[Step]) -> Result<(), SystemError> {
        for step in steps {
            match step {
                Step::Work(work) => reach("process", work.process, self.processes.len())?,
                Step::Delay(time) => is_time(*time)?,
                Step::Wait { time_s, each_s, .. } => {
                    is_time(*time_s)?;
                    is_time(*each_s)?;
                }
                Step::Sometimes { share, inside } => {
                    if !(0.0..=1.0).contains(share) {
                        return Err(SystemError::Number {
                            name: "what is done sometimes".to_owned(),
                            what: "share",
                            value: *share,
                            expected: "from 0 to 1",
                        });
                    }
                    self.check_steps(inside)?;
                }
                Step::Hold { pool, inside } => {
                    reach("pool", *pool, self.pools.len())?;
                    self.check_steps(inside)?;
                }
                Step::Commit(commit) => reach("commit", *commit, self.commits.len())?,
            }
        }
        Ok(())
    }

    /// Time that a request spends in delays, in s.
    pub fn delay_s(&self) -> f64 {
        delays(&self.steps)
    }

    /// Visits to processes that a request makes: each may wait for a core to wake up.
    pub fn visits(&self) -> u32 {
        visits(&self.steps)
    }

    /// Most requests that are served together anywhere.
    pub fn largest_batch(&self) -> u32 {
        self.pools.iter().map(|pool| pool.batch).max().unwrap_or(1)
    }
}

fn reach(what: &'static str, index: usize, count: usize) -> Result<(), SystemError> {
    if index < count { Ok(()) } else { Err(SystemError::Missing { what, index, count }) }
}

fn is_time(value: f64) -> Result<(), SystemError> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    let (name, expected) = ("delay".to_owned(), "a finite time, 0 or above");
    Err(SystemError::Number { name, what: "time", value, expected })
}

fn delays(steps: &[Step]) -> f64 {
    steps
        .iter()
        .map(|step| match step {
            Step::Delay(time) => *time,
            Step::Wait { time_s, each_s, .. } => time_s + each_s,
            Step::Sometimes { share, inside } => share * delays(inside),
            Step::Hold { inside, .. } => delays(inside),
            Step::Work(_) | Step::Commit(_) => 0.0,
        })
        .sum()
}

fn visits(steps: &[Step]) -> u32 {
    steps
        .iter()
        .map(|step| match step {
            Step::Work(_) => 1,
            Step::Hold { inside, .. } | Step::Sometimes { inside, .. } => visits(inside),
            Step::Delay(_) | Step::Wait { .. } | Step::Commit(_) => 0,
        })
        .sum()
}
