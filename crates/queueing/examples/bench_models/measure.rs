//! CPU time of a task, and the row that it becomes.

use crate::process::{cpu_seconds, peak_memory_mib};

/// CPU seconds that every task is repeated for.
const LEAST_SECONDS: f64 = 0.2;
/// Numbers of a list that are printed.
const SHOWN: usize = 4;

/// Mean CPU milliseconds of a task (no number where the kernel does not say), and its answer.
pub(crate) fn timed<T>(task: impl Fn() -> T) -> (f64, T) {
    let mut answer = std::hint::black_box(task());
    let before = cpu_seconds();
    if before <= 0.0 {
        return (f64::NAN, answer);
    }
    let (mut times, mut seconds) = (0_u32, 0.0);
    while seconds < LEAST_SECONDS {
        // As many again as so far: to ask the kernel costs more than the shortest tasks.
        let again = times.max(1);
        for _ in 0..again {
            answer = std::hint::black_box(task());
        }
        times += again;
        seconds = cpu_seconds() - before;
    }
    (seconds / f64::from(times) * 1e3, answer)
}

/// A model that was solved.
#[derive(Debug, Default)]
pub(crate) struct Row {
    /// By which `scripts/bench-models-peers` knows it; empty where no peer is asked.
    pub(crate) id: String,
    pub(crate) family: String,
    pub(crate) name: String,
    pub(crate) cpu_ms: f64,
    /// CPU time that it may take.
    pub(crate) bar_ms: Option<f64>,
    /// What the answer is: exact, an approximation.
    pub(crate) accuracy: &'static str,
    /// X by class; of what settles, the number before and after.
    pub(crate) throughput: Vec<f64>,
    /// R by class; of what settles, the time.
    pub(crate) response: Vec<f64>,
    /// How far X and R are off, in per cent, where they are compared.
    pub(crate) errors: Option<(f64, Option<f64>)>,
    /// Half-width of the R that it is compared with, in per cent.
    pub(crate) certain_to: Option<f64>,
}

/// Prints rows as they come, and keeps them as lines of JSON.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) lines: String,
    family: String,
}

impl Rows {
    #[expect(clippy::print_stdout, reason = "printing is what it is for")]
    pub(crate) fn add(&mut self, row: &Row) {
        if row.family != self.family {
            println!("{}", row.family);
            self.family.clone_from(&row.family);
        }
        let list = |values: &[f64]| {
            let shown = values.iter().take(SHOWN).map(|x| format!("{x:.6}"));
            shown.collect::<Vec<_>>().join(" ")
        };
        let bar = row.bar_ms.map(|bar| format!(" (wanted {bar} ms)")).unwrap_or_default();
        let certain = row.certain_to.map(|c| format!(" ± {c:.2} %")).unwrap_or_default();
        let errors = match row.errors {
            Some((x, Some(r))) => format!("; X {x:+.2} %, R {r:+.2} %{certain} off"),
            Some((x, None)) => format!("; X {x:+.2} % off"),
            None => String::new(),
        };
        println!(
            "  {:<52} {:>10.4} ms CPU{bar}, peak {:>5.1} MiB, {}{errors}, X {}, R {}",
            row.name,
            row.cpu_ms,
            peak_memory_mib(),
            row.accuracy,
            list(&row.throughput),
            list(&row.response),
        );
        let line = serde_json::json!({
            "id": row.id,
            "family": row.family,
            "model": row.name,
            "cpu_ms": row.cpu_ms,
            "accuracy": row.accuracy,
            "throughput": row.throughput,
            "response": row.response,
            "throughput_error_percent": row.errors.map(|(x, _)| x),
            "response_error_percent": row.errors.and_then(|(_, r)| r),
            "certain_to_percent": row.certain_to,
        });
        self.lines += &format!("{line}\n");
    }
}
