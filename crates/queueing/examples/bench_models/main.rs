//! Speed of the exact and approximate solvers in CPU time: `make bench-models`.
//!
//! Each task is done again and again until 0.2 CPU seconds are gone, by the kernel's own account
//! (`/proc/thread-self/schedstat`, which moves in ticks of some milliseconds), so that others on
//! the machine disturb it little. The mean is printed. A file that is named gets a line of JSON for each model, which
//! `scripts/bench-models-peers` reads.

mod families;
mod measure;
mod process;

use kendall_queueing::network::{
    Iteration, Load, Network, NetworkSolution, Resource, convolution, linearizer, mva_exact,
    schweitzer,
};
use measure::{Row, Rows, timed};

/// Solves a network of demands, known to peers by its id; it may take so many ms.
fn measure(
    rows: &mut Rows,
    (id, name, bar_ms): (&str, &str, Option<f64>),
    solve: impl Fn() -> NetworkSolution,
) {
    let (cpu_ms, solution) = timed(solve);
    rows.add(&Row {
        id: id.to_owned(),
        family: "closed networks of demands".to_owned(),
        name: name.to_owned(),
        cpu_ms,
        bar_ms,
        accuracy: solution.accuracy.name(),
        throughput: solution.throughput,
        response: solution.system_response,
        ..Row::default()
    });
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
    let (mut rows, mut random) = (Rows::default(), Random(1));
    exact(&mut rows, &mut random);
    approximate(&mut rows, &mut random);
    load_dependent(&mut rows, &mut random);
    families::all(&mut rows);
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(&path, &rows.lines).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

fn exact(rows: &mut Rows, random: &mut Random) {
    let demands: Vec<f64> = (0..20_u32).map(|k| 0.01 * f64::from(1 + k % 7)).collect();
    let single = Network::closed(&demands, 10_000, 1.0);
    measure(rows, ("mva-20x10000", "exact MVA, 20 stations, 10,000 customers", Some(1.0)), || {
        mva_exact(&single).expect("a closed network")
    });
    let single = Network::closed(&random.demands(20, 0.07), 10_000, 1.0);
    measure(rows, ("", "  the same with random demands", Some(1.0)), || {
        mva_exact(&single).expect("a closed network")
    });
    let demands: [[f64; 4]; 5] = [
        [0.1, 0.2, 0.05, 0.15],
        [0.05, 0.02, 0.2, 0.1],
        [0.3, 0.1, 0.15, 0.05],
        [0.02, 0.08, 0.06, 0.2],
        [0.12, 0.12, 0.12, 0.12],
    ];
    // The published table has one line a class; both readings are solved.
    for (id, population, bar) in [("mva-4x12", 12, None), ("mva-4x30", 30, Some(60.0))] {
        let by_class = Network {
            classes: vec![closed(population); 4],
            resources: demands.iter().map(|row| Resource::queue(row)).collect(),
        };
        let name = format!("exact MVA, 4 classes × {population} customers, 5 stations");
        measure(rows, (id, name.as_str(), bar), || mva_exact(&by_class).expect("a closed network"));
    }
    let by_class = random.network(&[closed(30); 4], 5, 0.3);
    measure(rows, ("", "  the same with random demands", Some(60.0)), || {
        mva_exact(&by_class).expect("a closed network")
    });
}

fn approximate(rows: &mut Rows, random: &mut Random) {
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
    measure(
        rows,
        ("schweitzer-20x50", "Bard–Schweitzer, 20 classes, 50 stations", Some(1.0)),
        || schweitzer(&many, nine).expect("a closed network"),
    );
    measure(rows, ("linearizer-20x50", "Linearizer, 20 classes, 50 stations", Some(940.0)), || {
        linearizer(&many, nine).expect("a closed network")
    });
    let irregular = random.network(&many.classes, 50, 0.1);
    measure(rows, ("", "  Bard–Schweitzer, random demands", Some(1.0)), || {
        schweitzer(&irregular, nine).expect("a closed network")
    });
    measure(rows, ("", "  Linearizer, random demands", Some(940.0)), || {
        linearizer(&irregular, nine).expect("a closed network")
    });
}

fn load_dependent(rows: &mut Rows, random: &mut Random) {
    let multi = Network {
        classes: vec![closed(1_000)],
        resources: vec![
            Resource::servers(256, &[0.5]),
            Resource::queue(&[0.002]),
            Resource::queue(&[0.0015]),
        ],
    };
    measure(rows, ("servers-256", "convolution, 256 servers, 1,000 customers", Some(50.0)), || {
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
    measure(rows, ("", "  the same with random demands", Some(50.0)), || {
        convolution(&multi).expect("a closed network")
    });
}
