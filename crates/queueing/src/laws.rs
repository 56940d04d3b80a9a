//! Operational laws: true of any system that was measured, whatever its distributions are.
//!
//! Each can be used in every direction (give all quantities but one), and as a check of a
//! measurement (give all: [`Law::residual`]).
//!
//! # Source
//! Denning and Buzen 1978; [LZGS84 ch. 3], [Jain91 ch. 33].

/// A law that relates a few quantities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// U = X·S: utilization of one server.
    Utilization {
        /// U.
        utilization: Option<f64>,
        /// X in 1/s.
        throughput: Option<f64>,
        /// S in s.
        service_time: Option<f64>,
    },
    /// N = X·R.
    Little {
        /// N.
        number: Option<f64>,
        /// X in 1/s.
        throughput: Option<f64>,
        /// R in s.
        response_time: Option<f64>,
    },
    /// X_k = V_k·X.
    ForcedFlow {
        /// X_k in 1/s.
        center_throughput: Option<f64>,
        /// V_k.
        visits: Option<f64>,
        /// X in 1/s.
        throughput: Option<f64>,
    },
    /// D = V·S.
    ServiceDemand {
        /// D in s.
        demand: Option<f64>,
        /// V.
        visits: Option<f64>,
        /// S in s.
        service_time: Option<f64>,
    },
    /// U·m = X·D: demand from the utilization of m servers.
    DemandFromUtilization {
        /// D in s.
        demand: Option<f64>,
        /// Mean number of busy servers, U·m.
        busy_servers: Option<f64>,
        /// X in 1/s.
        throughput: Option<f64>,
    },
    /// N = X·(R + Z).
    InteractiveResponse {
        /// N.
        population: Option<f64>,
        /// X in 1/s.
        throughput: Option<f64>,
        /// R in s.
        response_time: Option<f64>,
        /// Z in s.
        think_time: Option<f64>,
    },
}

/// Why a law gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum LawError {
    /// Not exactly one quantity is unknown.
    #[error("{unknown} quantities are unknown; leave out exactly one")]
    Unknowns {
        /// How many.
        unknown: usize,
    },
    /// A quantity makes no sense.
    #[error("{value} is refused; quantities are finite, 0 or above")]
    Quantity {
        /// Its value.
        value: f64,
    },
    /// What would be divided by is 0.
    #[error("a quantity that must be divided by is 0, so that the other can be anything")]
    Undetermined,
    /// The answer would be negative.
    #[error("the answer would be {value}: the quantities contradict one another")]
    Contradiction {
        /// The negative answer.
        value: f64,
    },
}

impl Law {
    /// Left side, and the two factors of the right side.
    const fn product(&self) -> Option<[Option<f64>; 3]> {
        Some(match *self {
            Self::Utilization { utilization, throughput, service_time } => {
                [utilization, throughput, service_time]
            }
            Self::Little { number, throughput, response_time } => {
                [number, throughput, response_time]
            }
            Self::ForcedFlow { center_throughput, visits, throughput } => {
                [center_throughput, visits, throughput]
            }
            Self::ServiceDemand { demand, visits, service_time } => [demand, visits, service_time],
            Self::DemandFromUtilization { demand, busy_servers, throughput } => {
                [busy_servers, demand, throughput]
            }
            Self::InteractiveResponse { .. } => return None,
        })
    }

    /// The one quantity that was left out.
    ///
    /// # Errors
    /// [`LawError`] when not exactly one is left out, or the others do not determine it.
    ///
    /// # Example
    /// ```
    /// use kendall_queueing::laws::Law;
    ///
    /// // 30 clients, 2 s of thinking, 10 requests/s: each takes 1 s.
    /// let law = Law::InteractiveResponse {
    ///     population: Some(30.0), throughput: Some(10.0), response_time: None,
    ///     think_time: Some(2.0),
    /// };
    /// assert_eq!(law.solve().unwrap(), 1.0);
    /// ```
    pub fn solve(&self) -> Result<f64, LawError> {
        let Some([left, a, b]) = self.product() else { return self.interactive() };
        known(&[left, a, b], 1)?;
        match (left, a, b) {
            (None, Some(a), Some(b)) => Ok(a * b),
            (Some(left), None, Some(other)) | (Some(left), Some(other), None) => {
                divided(left, other)
            }
            _ => Err(LawError::Unknowns { unknown: 0 }),
        }
    }

    fn interactive(&self) -> Result<f64, LawError> {
        let Self::InteractiveResponse { population, throughput, response_time, think_time } = *self
        else {
            return Err(LawError::Undetermined);
        };
        known(&[population, throughput, response_time, think_time], 1)?;
        match (population, throughput, response_time, think_time) {
            (None, Some(x), Some(r), Some(z)) => Ok(x * (r + z)),
            (Some(n), None, Some(r), Some(z)) => divided(n, r + z),
            (Some(n), Some(x), Some(other), None) | (Some(n), Some(x), None, Some(other)) => {
                let value = divided(n, x)? - other;
                if value < 0.0 { Err(LawError::Contradiction { value }) } else { Ok(value) }
            }
            _ => Err(LawError::Unknowns { unknown: 0 }),
        }
    }

    /// By how much a measurement breaks the law: (left − right)/max of both; all quantities given.
    ///
    /// # Errors
    /// [`LawError`] when a quantity is left out or makes no sense.
    ///
    /// # Example
    /// ```
    /// use kendall_queueing::laws::Law;
    ///
    /// let law = Law::Little {
    ///     number: Some(5.0), throughput: Some(100.0), response_time: Some(0.05),
    /// };
    /// assert_eq!(law.residual().unwrap(), 0.0);
    /// ```
    pub fn residual(&self) -> Result<f64, LawError> {
        let (left, right) = match *self {
            Self::InteractiveResponse { population, throughput, response_time, think_time } => {
                known(&[population, throughput, response_time, think_time], 0)?;
                let time = response_time.unwrap_or(0.0) + think_time.unwrap_or(0.0);
                (population.unwrap_or(0.0), throughput.unwrap_or(0.0) * time)
            }
            _ => {
                let Some([left, a, b]) = self.product() else {
                    return Err(LawError::Undetermined);
                };
                known(&[left, a, b], 0)?;
                (left.unwrap_or(0.0), a.unwrap_or(0.0) * b.unwrap_or(0.0))
            }
        };
        let scale = left.max(right);
        Ok(if scale > 0.0 { (left - right) / scale } else { 0.0 })
    }
}

fn known(quantities: &[Option<f64>], unknown: usize) -> Result<(), LawError> {
    for value in quantities.iter().flatten() {
        if !(value.is_finite() && *value >= 0.0) {
            return Err(LawError::Quantity { value: *value });
        }
    }
    let missing = quantities.iter().filter(|q| q.is_none()).count();
    if missing == unknown { Ok(()) } else { Err(LawError::Unknowns { unknown: missing }) }
}

fn divided(left: f64, by: f64) -> Result<f64, LawError> {
    if by == 0.0 { Err(LawError::Undetermined) } else { Ok(left / by) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_law_works_in_every_direction() {
        let law = |u, x, s| Law::Utilization { utilization: u, throughput: x, service_time: s };
        assert_eq!(law(None, Some(4.0), Some(0.1)).solve(), Ok(0.4));
        assert_eq!(law(Some(0.5), None, Some(0.1)).solve(), Ok(5.0));
        assert_eq!(law(Some(0.5), Some(5.0), None).solve(), Ok(0.1));
        assert_eq!(law(Some(0.5), None, None).solve(), Err(LawError::Unknowns { unknown: 2 }));
        assert_eq!(law(Some(0.5), Some(0.0), None).solve(), Err(LawError::Undetermined));
        let error = law(Some(f64::NAN), Some(1.0), None).solve().unwrap_err();
        assert!(matches!(error, LawError::Quantity { .. }));
    }

    #[test]
    fn a_contradiction_is_said() {
        let law = Law::InteractiveResponse {
            population: Some(1.0),
            throughput: Some(10.0),
            response_time: None,
            think_time: Some(2.0),
        };
        assert!(matches!(law.solve(), Err(LawError::Contradiction { .. })));
    }
}
