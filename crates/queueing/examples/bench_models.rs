//! Speed of the exact and approximate solvers in CPU time: `make bench-models`.
//!
//! Each task is done again and again until 0.2 CPU seconds are gone, by the kernel's own account
//! (`/proc/thread-self/schedstat`, which moves in ticks of some milliseconds), so that others on
//! the machine disturb it little. The mean is printed.

use kendall_queueing::network::{
    Iteration, Load, Network, NetworkSolution, Resource, convolution, linearizer, mva_exact,
    schweitzer,
};

/// CPU seconds that every task is repeated for.
const LEAST_SECONDS: f64 = 0.2;
/// Most repetitions, where the kernel says nothing.
const MOST_TIMES: u32 = 100_000;

/// CPU seconds used so far by this thread; 0 where the kernel does not say.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// Largest resident memory so far, in MiB.
fn peak_memory_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|first| first.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

#[expect(clippy::print_stdout, reason = "printing is what it is for")]
fn measure(name: &str, wanted_ms: f64, solve: impl Fn() -> NetworkSolution) {
    let mut x = std::hint::black_box(solve()).throughput;
    let before = cpu_seconds();
    let mut times = 0_u32;
    let mut seconds = 0.0;
    while seconds < LEAST_SECONDS && times < MOST_TIMES {
        x = std::hint::black_box(solve()).throughput;
        times += 1;
        seconds = cpu_seconds() - before;
    }
    let shown: Vec<String> = x.iter().take(4).map(|x| format!("{x:.9}")).collect();
    println!(
        "{name:<52} {:>9.3} ms CPU (wanted {wanted_ms} ms), peak {:>6.1} MiB, X {}",
        seconds / f64::from(times.max(1)) * 1e3,
        peak_memory_mib(),
        shown.join(" ")
    );
}

fn closed(population: u64) -> Load {
    Load::Closed { population, think_time: 1.0 }
}

/// Numbers from 0 to 1 from a fixed seed: published demands repeat, and iterations settle earlier on
/// those.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        let multiplier = 6_364_136_223_846_793_005;
        self.0 = self.0.wrapping_mul(multiplier).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap_or(0)) / 2.0_f64.powi(32)
    }

    fn demands(&mut self, count: usize, most: f64) -> Vec<f64> {
        (0..count).map(|_| most * self.next()).collect()
    }

    fn network(&mut self, classes: &[Load], stations: usize, most: f64) -> Network {
        let mut queue = || Resource::queue(&self.demands(classes.len(), most));
        let resources = (0..stations).map(|_| queue()).collect();
        Network { classes: classes.to_vec(), resources }
    }
}

fn main() {
    let mut random = Random(1);
    exact(&mut random);
    approximate(&mut random);
    load_dependent(&mut random);
}

fn exact(random: &mut Random) {
    let demands: Vec<f64> = (0..20_u32).map(|k| 0.01 * f64::from(1 + k % 7)).collect();
    let single = Network::closed(&demands, 10_000, 1.0);
    measure("exact MVA, 20 stations, 10,000 customers", 1.0, || {
        mva_exact(&single).expect("a closed network")
    });
    let single = Network::closed(&random.demands(20, 0.07), 10_000, 1.0);
    measure("  the same with random demands", 1.0, || {
        mva_exact(&single).expect("a closed network")
    });
    let rows: [[f64; 4]; 5] = [
        [0.1, 0.2, 0.05, 0.15],
        [0.05, 0.02, 0.2, 0.1],
        [0.3, 0.1, 0.15, 0.05],
        [0.02, 0.08, 0.06, 0.2],
        [0.12, 0.12, 0.12, 0.12],
    ];
    // The published table has one line a class; both readings are solved.
    let by_class = Network {
        classes: vec![closed(30); 4],
        resources: rows.iter().map(|row| Resource::queue(row)).collect(),
    };
    measure("exact MVA, 4 classes × 30 customers, 5 stations", 60.0, || {
        mva_exact(&by_class).expect("a closed network")
    });
    let by_class = random.network(&[closed(30); 4], 5, 0.3);
    measure("  the same with random demands", 60.0, || {
        mva_exact(&by_class).expect("a closed network")
    });
}

fn approximate(random: &mut Random) {
    let many = Network {
        classes: (1..=20_u64).map(|c| closed(5 + 7 * c % 19)).collect(),
        resources: (1..=50_u32)
            .map(|k| {
                let demand = |c: u32| 0.01 * f64::from(1 + (7 * c + 3 * k) % 11);
                Resource::queue(&(1..=20).map(demand).collect::<Vec<f64>>())
            })
            .collect(),
    };
    let nine = Iteration { tolerance: 1e-9, ..Iteration::default() };
    measure("Bard–Schweitzer, 20 classes, 50 stations", 1.0, || {
        schweitzer(&many, nine).expect("a closed network")
    });
    measure("Linearizer, 20 classes, 50 stations", 940.0, || {
        linearizer(&many, nine).expect("a closed network")
    });
    let irregular = random.network(&many.classes, 50, 0.1);
    measure("  Bard–Schweitzer, random demands", 1.0, || {
        schweitzer(&irregular, nine).expect("a closed network")
    });
    measure("  Linearizer, random demands", 940.0, || {
        linearizer(&irregular, nine).expect("a closed network")
    });
}

fn load_dependent(random: &mut Random) {
    let multi = Network {
        classes: vec![closed(1_000)],
        resources: vec![
            Resource::servers(256, &[0.5]),
            Resource::queue(&[0.002]),
            Resource::queue(&[0.0015]),
        ],
    };
    measure("convolution, 256 servers, 1,000 customers", 50.0, || {
        convolution(&multi).expect("a closed network")
    });
    let multi = Network {
        classes: vec![closed(1_000)],
        resources: vec![
            Resource::servers(256, &[random.next()]),
            Resource::queue(&random.demands(1, 0.004)),
            Resource::queue(&random.demands(1, 0.004)),
        ],
    };
    measure("  the same with random demands", 50.0, || {
        convolution(&multi).expect("a closed network")
    });
}
