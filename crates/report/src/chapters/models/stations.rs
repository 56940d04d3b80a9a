//! All that M/M/1 and M/M/m say of a station at each load, each beside what was measured.

use kendall_fit::score::{Comparison, Variable};
use kendall_observations::{Configuration, Curve, Observations};
use kendall_queueing::station::StationSolution;

use crate::document::{Cell, Table, Unit};

/// Place of the 90th percentile among those of a distribution.
const P90: usize = 3;

/// One row a curve, model and load.
pub(super) fn table(data: &Observations, compared: &[(&Curve, &[Comparison])]) -> Table {
    let mut table = Table::new(
        "model-stations",
        "M/M/1 and M/M/m at every load, each quantity beside what was measured",
    )
    .column("curve", "Curve", Unit::Text)
    .column("model", "Model", Unit::Text)
    .column("load", "Load", Unit::Level)
    .column("arrival_rate_per_s", "λ measured (1/s)", Unit::PerSecond)
    .column("throughput_per_s", "X measured (1/s)", Unit::PerSecond)
    .column("service_rate_per_s", "µ (1/s)", Unit::PerSecond)
    .column("servers", "m", Unit::Level)
    .column("utilization", "ρ (%)", Unit::Percent)
    .column("utilization_measured", "measured", Unit::Percent)
    .column("p0", "p₀", Unit::Plain(3))
    .column("p_queueing", "P(queueing)", Unit::Plain(3))
    .column("number", "E[n]", Unit::Plain(4))
    .column("number_measured", "measured", Unit::Plain(4))
    .column("number_waiting", "E[n_q]", Unit::Plain(4))
    .column("number_waiting_measured", "measured", Unit::Plain(4))
    .column("response_time_s", "E[r] (ms)", Unit::Milliseconds)
    .column("response_time_measured_s", "measured", Unit::Milliseconds)
    .column("response_time_variance_s2", "Var[r] (s²)", Unit::Plain(3))
    .column("response_time_variance_measured_s2", "measured", Unit::Plain(3))
    .column("waiting_time_s", "E[w] (ms)", Unit::Milliseconds)
    .column("waiting_time_measured_s", "measured", Unit::Milliseconds)
    .column("waiting_time_variance_s2", "Var[w] (s²)", Unit::Plain(3))
    .column("waiting_time_variance_measured_s2", "measured", Unit::Plain(3))
    .column("response_time_p90_s", "p90 of r (ms)", Unit::Milliseconds)
    .column("response_time_p90_measured_s", "measured", Unit::Milliseconds)
    .column("waiting_time_p90_s", "p90 of w (ms)", Unit::Milliseconds)
    .column("waiting_time_p90_measured_s", "measured", Unit::Milliseconds)
    .column("remark", "Remark", Unit::Text)
    .folded();
    for (curve, comparisons) in compared {
        let of_stations = comparisons.iter().filter(|one| !one.solutions.is_empty());
        for comparison in of_stations {
            let points = comparison.points.iter().zip(&comparison.solutions);
            for ((point, solution), configuration) in points.zip(data.along(curve)) {
                let measured = Measured::of(configuration, comparison.variable);
                let remark = match &point.predicted {
                    Err(why) => why.clone(),
                    Ok(_) if point.calibration => "calibrated here".to_owned(),
                    Ok(_) => String::new(),
                };
                let mut row = vec![
                    curve.name.as_str().into(),
                    comparison.model.as_str().into(),
                    point.load.into(),
                ];
                row.extend(cells(comparison, solution.as_ref(), &measured));
                row.push(remark.into());
                table.push(row);
            }
        }
    }
    table
}

/// The same quantities as they were measured; `None` where they were not.
#[derive(Default)]
struct Measured {
    arrival_rate_per_s: f64,
    throughput_per_s: f64,
    utilization: Option<f64>,
    number: Option<f64>,
    number_waiting: Option<f64>,
    response_s: Option<f64>,
    response_variance: Option<f64>,
    waiting_s: Option<f64>,
    waiting_variance: Option<f64>,
    response_p90_s: Option<f64>,
    waiting_p90_s: Option<f64>,
}

impl Measured {
    fn of(configuration: &Configuration, variable: Variable) -> Self {
        let point = &configuration.point;
        let tier = point.first_tier();
        match (variable, tier) {
            (Variable::BackendResponseTime, Some(tier)) => {
                let Some(of) = &tier.connections else { return Self::default() };
                let servers = f64::from(of.connections.max(1));
                Self {
                    arrival_rate_per_s: of.exchanges_per_s,
                    throughput_per_s: of.exchanges_per_s,
                    utilization: Some(of.busy() / servers),
                    number: Some(of.exchanges_per_s * of.response_time_s()),
                    number_waiting: Some(of.exchanges_per_s * of.waiting_time_s),
                    response_s: Some(of.response_time_s()),
                    waiting_s: Some(of.waiting_time_s),
                    ..Self::default()
                }
            }
            (_, Some(tier)) => {
                let seen = configuration.tier.as_ref();
                let waited = configuration.waiting.as_ref();
                let workers = f64::from(tier.workers);
                Self {
                    arrival_rate_per_s: point.arrivals_per_s(Some(tier)),
                    throughput_per_s: tier.view.throughput_per_s,
                    utilization: (workers > 0.0).then(|| tier.workers_busy / workers),
                    number: Some(tier.queue_length + tier.workers_busy),
                    number_waiting: Some(tier.queue_length),
                    response_s: Some(tier.view.response_time_s),
                    response_variance: seen.map(|d| d.standard_deviation_s.powi(2)),
                    waiting_s: Some(tier.waiting_time_s),
                    waiting_variance: waited.map(|d| d.standard_deviation_s.powi(2)),
                    response_p90_s: seen.and_then(|d| d.percentile(P90).ok()),
                    waiting_p90_s: waited.and_then(|d| d.percentile(P90).ok()),
                }
            }
            (_, None) => Self {
                arrival_rate_per_s: point.arrivals_per_s(None),
                throughput_per_s: point.client.throughput_per_s,
                number: Some(point.client.throughput_per_s * point.client.response_time_s),
                response_s: Some(point.client.response_time_s),
                response_variance: Some(configuration.client.standard_deviation_s.powi(2)),
                response_p90_s: configuration.client.percentile(P90).ok(),
                ..Self::default()
            },
        }
    }
}

fn cells(
    comparison: &Comparison,
    solution: Option<&StationSolution>,
    measured: &Measured,
) -> Vec<Cell> {
    let device = comparison.devices.first();
    let none = "no steady state";
    let by = |value: fn(&StationSolution) -> Option<f64>| {
        Cell::number_or(solution.and_then(value), none)
    };
    let seen = |value: Option<f64>| Cell::number_or(value, "not measured");
    let service_rate = device.map(|d| 1.0 / d.service_time_s);
    vec![
        measured.arrival_rate_per_s.into(),
        measured.throughput_per_s.into(),
        Cell::number_or(service_rate, none),
        Cell::number_or(device.and_then(|d| d.servers), none),
        by(|s| Some(s.utilization)),
        seen(measured.utilization),
        by(|s| s.p0),
        by(|s| s.p_queueing),
        by(|s| Some(s.number.mean)),
        seen(measured.number),
        by(|s| Some(s.number_waiting.mean)),
        seen(measured.number_waiting),
        by(|s| Some(s.response_time.mean)),
        seen(measured.response_s),
        by(|s| s.response_time.variance),
        seen(measured.response_variance),
        by(|s| Some(s.waiting_time.mean)),
        seen(measured.waiting_s),
        by(|s| s.waiting_time.variance),
        seen(measured.waiting_variance),
        by(|s| s.response_quantile(0.9)),
        seen(measured.response_p90_s),
        by(|s| s.waiting_quantile(0.9)),
        seen(measured.waiting_p90_s),
    ]
}
