//! One server that takes who is due first.

use nalgebra::{DMatrix, DVector};

use super::{
    MeasuredWait, PriorityClass, PriorityResult, Scheduling, StationError, positive, stable,
};

/// Most classes that are solved together.
const MOST_CLASSES: usize = 64;
const MOST_ROUNDS: u32 = 500;

/// How far the times were off at most over random queues of two and three classes whose busy share was 0.3 to
/// 0.9 and whose services had c² to 4 (`tests/all/measured.rs`, docs/models.md).
const ERRORS: MeasuredWait = MeasuredWait { waiting_percent: 20.0, response_percent: 8.0 };

/// What each class sees, and how far such times were off at most where that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct ByDeadline {
    /// By class.
    pub classes: Vec<PriorityResult>,
    /// Of the means.
    pub measured: Option<MeasuredWait>,
}

/// M/G/1 whose customers are served by their deadlines, each so long after it came; exponential service where
/// newcomers interrupt. `None` for other service then, and for more than 64 classes.
///
/// The equations of the means are exact: a customer waits for those with earlier deadlines who are there, who
/// for class j are those who have waited for more than the difference of the deadlines if theirs is longer, and
/// for those who come while it waits, no later than that difference if theirs is shorter. How often a wait is
/// longer than a difference is an approximation: the wait is taken as exponential for those who wait.
///
/// # Errors
/// [`StationError::Unstable`] when the classes together offer 1 erlang or more.
///
/// # Source
/// Little's law for the customers that have waited for some time, and Poisson arrivals; the rule of Jackson
/// 1960. The limits are FCFS (equal deadlines) and Cobham's priorities (deadlines far apart).
pub fn mg1_deadlines(
    classes: &[PriorityClass],
    deadlines: &[f64],
    scheduling: Scheduling,
) -> Result<Option<ByDeadline>, StationError> {
    let (mut load, mut rate, mut residual) = (0.0, 0.0, 0.0);
    for class in classes {
        let mean = positive("mean service time", class.service.mean())?;
        rate += class.arrival_rate;
        load += class.arrival_rate * mean;
        residual += class.arrival_rate * mean * mean * (1.0 + class.service.scv()) / 2.0;
    }
    stable(load, 1, rate)?;
    let interrupts = scheduling == Scheduling::PreemptiveResume;
    let exponential = classes.iter().all(|class| class.service.is_exponential());
    if classes.len() > MOST_CLASSES || interrupts && !exponential {
        return Ok(None);
    }
    let means = DVector::from_iterator(classes.len(), classes.iter().map(|c| c.service.mean()));
    // Waits, or responses where who is in service is interrupted.
    let alone = if interrupts { means.clone() } else { means.map(|_| residual) };
    let waits = if interrupts { 1.0 } else { load };
    let loads: Vec<f64> = classes.iter().map(|c| c.arrival_rate * c.service.mean()).collect();
    let mut times = &alone / (1.0 - load);
    for _ in 0..MOST_ROUNDS {
        let Some(next) = round(&loads, deadlines, &alone, &times, waits) else { return Ok(None) };
        let change = (&next - &times).amax() / next.amax().max(f64::MIN_POSITIVE);
        times = (&next + &times) / 2.0;
        if change < 1e-12 {
            break;
        }
    }
    let result = |index: usize| {
        let (class, mean) = (&classes[index], means[index]);
        let waiting_time = (if interrupts { times[index] - mean } else { times[index] }).max(0.0);
        PriorityResult {
            utilization: loads[index],
            waiting_time,
            response_time: waiting_time + mean,
            number: class.arrival_rate * (waiting_time + mean),
            number_waiting: class.arrival_rate * waiting_time,
        }
    };
    let like = (0.3..=0.9).contains(&load)
        && classes.len() <= 3
        && classes.iter().all(|class| class.service.scv() <= 4.0 + 1e-9);
    let classes = (0..classes.len()).map(result).collect();
    Ok(Some(ByDeadline { classes, measured: like.then_some(ERRORS) }))
}

/// The times that follow where the shares of them that exceed each difference of deadlines do from `times`.
fn round(
    loads: &[f64],
    deadlines: &[f64],
    alone: &DVector<f64>,
    times: &DVector<f64>,
    waits: f64,
) -> Option<DVector<f64>> {
    let count = loads.len();
    let mut matrix = DMatrix::identity(count, count);
    for i in 0..count {
        for j in 0..count {
            let later = deadlines[j] - deadlines[i];
            let of = if later > 0.0 { times[j] } else { times[i] };
            let exceeding = if of > 0.0 { (-waits * later.abs() / of).exp() } else { 1.0 };
            if later > 0.0 {
                matrix[(i, j)] -= loads[j] * exceeding;
            } else {
                matrix[(i, j)] -= loads[j];
                matrix[(i, i)] -= loads[j] * (1.0 - exceeding);
            }
        }
    }
    matrix.lu().solve(alone).filter(|times| times.iter().all(|time| *time >= 0.0))
}
