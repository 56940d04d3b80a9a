//! Speed of the simulator in CPU time of its one thread: `make bench-models`.
//!
//! CPU seconds come from the kernel's own account (`/proc/self/schedstat`), so that others on the
//! machine disturb it little. Through the public function, with all statistics on and the warm-up
//! counted as cost.

use kendall_queueing::model::{Class, Model, Station};
use kendall_queueing::simulation::{Settings, simulate};

#[path = "bench_models/process.rs"]
mod process;

use process::{cpu_seconds, peak_memory_mib};

#[expect(clippy::print_stdout, reason = "it prints what it measured")]
fn measure(name: &str, model: &Model, customers: u64) {
    let settings =
        Settings { relative_half_width: 1e-9, most_customers: customers, ..Settings::of(model) };
    let before = cpu_seconds();
    let simulated = simulate(model, &settings, &mut |_| {}).expect("a stable model");
    let seconds = cpu_seconds() - before;
    let done = kendall_units::exact_f64(simulated.completed_customers);
    let events = kendall_units::exact_f64(simulated.events);
    println!(
        "{name:<44} {:>6.2} M customers in {seconds:>6.2} CPU s: {:>6.2} M customers/s, \
         {:>6.2} M events/s, {:.1} MiB",
        done / 1e6,
        done / seconds / 1e6,
        events / seconds / 1e6,
        peak_memory_mib()
    );
}

fn main() {
    let mm1 = Model::new(
        "mm1",
        vec![Class::open("c", 1.0)],
        vec![Station::queue("q", 1).with_service_time(0, 0.8)],
    );
    let stations = [("cpu", 0.5), ("disk", 0.2), ("net", 0.1)]
        .map(|(name, s)| Station::queue(name, 1).with_service_time(0, s))
        .to_vec();
    // As good as random: without a common divisor, and with the mean of those above.
    let irregular = [("cpu", 0.423_170_9), ("disk", 0.311_804_3), ("net", 0.065_024_8)]
        .map(|(name, s)| Station::queue(name, 1).with_service_time(0, s))
        .to_vec();
    let closed = Model::new("closed", vec![Class::closed("c", 25, 10.0)], stations);
    measure("M/M/1, utilization 0.8", &mm1.expect("a model"), 10_000_000);
    measure("closed, 3 stations and thinking, N = 25", &closed.expect("a model"), 10_000_000);
    let mm1 = Model::new(
        "mm1",
        vec![Class::open("c", 1.0)],
        vec![Station::queue("q", 1).with_service_time(0, 0.764_913_2)],
    );
    let closed = Model::new("closed", vec![Class::closed("c", 25, 10.0)], irregular);
    measure("  M/M/1, an irregular demand", &mm1.expect("a model"), 10_000_000);
    measure("  closed, irregular demands", &closed.expect("a model"), 10_000_000);
}
