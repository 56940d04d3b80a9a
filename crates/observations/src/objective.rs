//! What a study must meet: `p99 < 10ms`.

use kendall_units::Seconds;

#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    pub text: String,
    /// Which quantile of the response time, 0 to 1; `None` for its mean.
    pub quantile: Option<f64>,
    /// What it must stay below.
    pub below: Seconds,
}

impl Objective {
    /// Reads `p99 < 10ms`, `p99.9 < 1s` or `mean < 2ms`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "write it like `p99 < 10ms` or `mean < 2ms`";
        let refused = || format!("`{text}` is not an objective; {form}");
        let (metric, limit) = text.split_once('<').ok_or_else(refused)?;
        let quantile = match metric.trim() {
            "mean" => None,
            metric => {
                let percent: f64 =
                    metric.strip_prefix('p').and_then(|p| p.parse().ok()).ok_or_else(refused)?;
                Some(percent / 100.0).filter(|q| *q > 0.0 && *q < 1.0).ok_or_else(refused)?.into()
            }
        };
        let below = kendall_units::parse_seconds(limit.trim())
            .map_err(|error| format!("{error}; {form}"))?;
        if below.get() <= 0.0 {
            return Err(refused());
        }
        Ok(Self { text: text.to_owned(), quantile, below })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_a_metric_and_a_time() {
        let tail = Objective::parse("p99.9 < 10ms").unwrap();
        assert!((tail.quantile.unwrap() - 0.999).abs() < 1e-12);
        assert_eq!(tail.below, Seconds::new(0.01));
        assert_eq!(Objective::parse("mean<2s").unwrap().quantile, None);
        for bad in
            ["p99", "p99 > 1ms", "p0 < 1ms", "p100 < 1ms", "q99 < 1ms", "p99 < 1", "mean < 0"]
        {
            assert!(Objective::parse(bad).is_err(), "{bad}");
        }
    }
}
