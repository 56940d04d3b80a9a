//! G/G/m: approximations from two moments of inter-arrival and service times.

use kendall_units::exact_f64;

use super::law::TimeLaw;
use super::{
    Accuracy, Moments, StationError, StationSolution, erlang_c, mmm, positive, servers_of, stable,
};
use crate::Distribution;

/// Which formula approximates (or bounds) the mean wait of G/G/m.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GgmFormula {
    /// The right one: exact where one exists, else Kraemer–Langenbach-Belz for one server and
    /// Whitt for several.
    Best,
    /// (c_a² + c_s²)/2 times the wait of M/M/m.
    AllenCunneen,
    /// Kraemer and Langenbach-Belz 1976, with Allen–Cunneen's M/M/m wait for several servers.
    KraemerLangenbachBelz,
    /// Whitt 1993.
    Whitt,
    /// Marchal 1976: exact for M/G/1, with the M/M/m wait for several servers.
    Marchal,
    /// Upper bound for one server: λ·(σ_a² + σ_s²)/(2(1 − ρ)).
    Kingman,
}

impl GgmFormula {
    /// As it is written on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::AllenCunneen => "allen-cunneen",
            Self::KraemerLangenbachBelz => "kraemer-langenbach-belz",
            Self::Whitt => "whitt",
            Self::Marchal => "marchal",
            Self::Kingman => "kingman",
        }
    }
}

/// The largest errors of a formula over random G/G/m queues that were simulated: gaps and services
/// lognormal, Weibull, gamma, Erlang or hyper-exponential, utilization 0.3 to 0.9
/// (`tests/all/measured.rs`, docs/models.md).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredWait {
    /// Of the mean waiting time, in percent.
    pub waiting_percent: f64,
    /// Of the mean response time, in percent.
    pub response_percent: f64,
}

impl MeasuredWait {
    const fn new(waiting_percent: f64, response_percent: f64) -> Self {
        Self { waiting_percent, response_percent }
    }
}

const KLB: &str = "Kraemer–Langenbach-Belz [KLB76]";
const WHITT: &str = "Whitt [Whitt93]";
/// With c_a² up to 1, and up to 4.
const KLB_ERRORS: [MeasuredWait; 2] =
    [MeasuredWait::new(98.0, 10.5), MeasuredWait::new(58.0, 33.0)];
/// The same at 2 to 8 servers.
const WHITT_ERRORS: [MeasuredWait; 2] =
    [MeasuredWait::new(335.0, 9.0), MeasuredWait::new(77.0, 18.5)];
/// Squared coefficients of variation of the gaps that were measured; of the services up to the same.
const MEASURED_SCV: std::ops::RangeInclusive<f64> = 0.1..=4.0;

/// How far a solution of [`ggm`] was off at most over random queues like it.
pub(crate) fn measured_wait(
    solved: &StationSolution,
    (interarrival, service): (&Distribution, &Distribution),
    servers: u64,
) -> Option<MeasuredWait> {
    let errors = match (solved.method, servers) {
        (KLB, 1) => KLB_ERRORS,
        (WHITT, 2..=8) => WHITT_ERRORS,
        _ => return None,
    };
    let (ca2, rho) = (interarrival.scv(), solved.utilization);
    let like = MEASURED_SCV.contains(&ca2)
        && service.scv() <= *MEASURED_SCV.end()
        && (0.3..=0.9).contains(&rho);
    like.then_some(errors[usize::from(ca2 > 1.0)])
}

/// G/G/m, first come, first served, inter-arrival and service times independent.
///
/// # Errors
/// [`StationError::Unstable`] when λ·E\[S\] ≥ m; [`StationError::Number`] for Kingman's bound with
/// more than one server.
///
/// # Source
/// [Bolch06 §6.3], Kraemer and Langenbach-Belz 1976 \[KLB76\], Whitt 1993 \[Whitt93\],
/// Kingman 1962 \[Kingman62\], Marchal 1976.
pub fn ggm(
    interarrival: &Distribution,
    service: &Distribution,
    servers: u64,
    formula: GgmFormula,
) -> Result<StationSolution, StationError> {
    let gap = positive("mean inter-arrival time", interarrival.mean())?;
    let mean = positive("mean service time", service.mean())?;
    let servers = servers_of(servers)?;
    let lambda = 1.0 / gap;
    let a = mean / gap;
    stable(a, servers, lambda)?;
    if formula == GgmFormula::Best
        && let Some(exact) = exact(lambda, interarrival, service, servers)
    {
        return exact;
    }
    let input = Input {
        lambda,
        mean,
        servers,
        ca2: interarrival.scv(),
        cs2: service.scv(),
        queueing: erlang_c(a, servers)?,
    };
    let (wait, method, accuracy) = input.wait(formula)?;
    Ok(input.solution(interarrival, service, wait, method, accuracy))
}

fn exact(
    lambda: f64,
    interarrival: &Distribution,
    service: &Distribution,
    servers: u64,
) -> Option<Result<StationSolution, StationError>> {
    if !interarrival.is_exponential() {
        let exponential = servers == 1 && service.is_exponential();
        return exponential
            .then(|| super::gm1(interarrival, 1.0 / service.mean()))
            .filter(Result::is_ok);
    }
    if service.is_exponential() {
        return Some(mmm(lambda, 1.0 / service.mean(), servers));
    }
    (servers == 1).then(|| super::mg1(lambda, service))
}

struct Input {
    lambda: f64,
    mean: f64,
    servers: u64,
    ca2: f64,
    cs2: f64,
    /// Erlang C of the same load.
    queueing: f64,
}

impl Input {
    fn wait(&self, formula: GgmFormula) -> Result<(f64, &'static str, Accuracy), StationError> {
        let m = exact_f64(self.servers);
        let rho = self.lambda * self.mean / m;
        let mmm_wait = self.queueing * self.mean / (m * (1.0 - rho));
        let half = f64::midpoint(self.ca2, self.cs2);
        let chosen = match formula {
            GgmFormula::Best if self.servers == 1 => GgmFormula::KraemerLangenbachBelz,
            GgmFormula::Best => GgmFormula::Whitt,
            other => other,
        };
        Ok(match chosen {
            GgmFormula::AllenCunneen => {
                (half * mmm_wait, "Allen–Cunneen [Bolch06 §6.3.2]", Accuracy::Approximation)
            }
            GgmFormula::KraemerLangenbachBelz => {
                (half * mmm_wait * self.klb(rho), KLB, Accuracy::Approximation)
            }
            GgmFormula::Marchal => {
                let spread = rho * rho * self.cs2;
                let shape = f64::midpoint(1.0, self.cs2);
                let factor = shape * (self.ca2 + spread) / (1.0 + spread);
                (factor * mmm_wait, "Marchal 1976", Accuracy::Approximation)
            }
            GgmFormula::Kingman => {
                if self.servers != 1 {
                    return Err(StationError::Number {
                        name: "servers",
                        value: m,
                        expected: "1 for Kingman's bound; use allen-cunneen or whitt",
                    });
                }
                let gap = 1.0 / self.lambda;
                let variances = self.ca2 * gap * gap + self.cs2 * self.mean * self.mean;
                let wait = self.lambda * variances / (2.0 * (1.0 - rho));
                (wait, "Kingman's upper bound [Kingman62]", Accuracy::Bound)
            }
            GgmFormula::Best | GgmFormula::Whitt => {
                (half * mmm_wait * self.whitt(rho), WHITT, Accuracy::Approximation)
            }
        })
    }

    fn klb(&self, rho: f64) -> f64 {
        let sum = self.ca2 + self.cs2;
        if sum <= 0.0 {
            return 0.0;
        }
        if self.ca2 <= 1.0 {
            let p = self.queueing.max(f64::MIN_POSITIVE);
            (-2.0 * (1.0 - rho) * (1.0 - self.ca2).powi(2) / (3.0 * p * sum)).exp()
        } else {
            (-(1.0 - rho) * (self.ca2 - 1.0) / (self.ca2 + 4.0 * self.cs2)).exp()
        }
    }

    /// φ of [Whitt93, eq. 2.24].
    fn whitt(&self, rho: f64) -> f64 {
        let m = exact_f64(self.servers);
        let gamma =
            ((1.0 - rho) * (m - 1.0) * ((4.0 + 5.0 * m).sqrt() - 2.0) / (16.0 * m * rho)).min(0.24);
        let phi1 = 1.0 + gamma;
        let phi3 = (1.0 - 4.0 * gamma) * (-2.0 * (1.0 - rho) / (3.0 * rho)).exp();
        let phi4 = f64::midpoint(phi1, phi3).min(1.0);
        let c2 = f64::midpoint(self.ca2, self.cs2);
        let psi = if c2 >= 1.0 { 1.0 } else { phi4.powf(2.0 * (1.0 - c2)) };
        let (ca2, cs2) = (self.ca2, self.cs2);
        if ca2 + cs2 <= 0.0 {
            return 0.0;
        }
        if ca2 >= cs2 {
            let bottom = 4.0 * ca2 - 3.0 * cs2;
            4.0 * (ca2 - cs2) / bottom * phi1 + cs2 / bottom * psi
        } else {
            let bottom = 2.0 * ca2 + 2.0 * cs2;
            (cs2 - ca2) / bottom * phi3 + (cs2 + 3.0 * ca2) / bottom * psi
        }
    }

    fn solution(
        &self,
        interarrival: &Distribution,
        service: &Distribution,
        wait: f64,
        method: &'static str,
        accuracy: Accuracy,
    ) -> StationSolution {
        let a = self.lambda * self.mean;
        let queueing = self.queueing.max(f64::MIN_POSITIVE);
        // The wait of those that wait is taken as exponential, as it is in M/M/m.
        let law = TimeLaw::Exponential {
            weight: self.queueing,
            rate: if wait > 0.0 { queueing / wait } else { f64::INFINITY },
        };
        let law = (wait > 0.0 && accuracy != Accuracy::Bound).then_some(law);
        StationSolution {
            notation: format!("{}/{}/{}", interarrival.letter(), service.letter(), self.servers),
            method,
            accuracy,
            // Where neither gaps nor services vary there is no waiting, although Erlang C is positive.
            p_queueing: Some(if wait > 0.0 { self.queueing } else { 0.0 }),
            number: Moments::mean_only(a + self.lambda * wait),
            number_waiting: Moments::mean_only(self.lambda * wait),
            response_time: Moments::mean_only(self.mean + wait),
            waiting_time: Moments::mean_only(wait),
            waiting_law: law,
            more: vec![("interarrival_time_scv", self.ca2), ("service_time_scv", self.cs2)],
            ..StationSolution::lossless(self.lambda, a, self.servers)
        }
    }
}
