//! Published networks, and identities on random ones.

use kendall_queueing::network::{
    Accuracy, Iteration, Kind, Load, MultiServer, Network, NetworkError, Resource, arrival_bounds,
    asymptotic_bounds, balanced_bounds, bottleneck, convolution, flow_equivalent, geometric_bounds,
    linearizer, mixed, multi_class_bounds, mva_exact, normalization_constants, open, pool_rates,
    proportional_bounds, schweitzer,
};
use kendall_queueing::station::{finite_population, mmm};
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_oneof, proptest};

#[track_caller]
fn near(have: f64, want: f64, relative: f64) {
    assert!((have - want).abs() <= relative * want.abs(), "{have} for {want}");
}

/// Half a unit in the last printed place.
#[track_caller]
fn printed(have: f64, want: f64, half_unit: f64) {
    assert!((have - want).abs() <= half_unit * (1.0 + 1e-9), "{have} for the printed {want}");
}

fn closed(population: u64, think_time: f64) -> Load {
    Load::Closed { population, think_time }
}

fn network(classes: &[Load], resources: Vec<Resource>) -> Network {
    Network { classes: classes.to_vec(), resources }
}

/// [Bolch06 §8.1.1], three stations of which two have several servers; G recomputed in full.
#[test]
fn convolution_gives_the_published_constants() {
    let n = network(
        &[closed(3, 0.0)],
        vec![
            Resource::servers(2, &[1.0 / 0.8]),
            Resource::servers(3, &[0.667 / 0.6]),
            Resource::queue(&[0.2 / 0.4]),
        ],
    );
    let g = normalization_constants(&n).unwrap();
    for (have, want) in
        g[1..].iter().zip([2.861_666_666_666_667, 4.219_568_055_555_555, 4.467_898_389_660_494])
    {
        near(have.exp(), want, 1e-12);
    }
    let s = convolution(&n).unwrap();
    near(s.throughput[0], 0.944_418_983_502_485_5, 1e-12);
    near(s.number[1][0], 1.049_879_103_326_93, 1e-11);
}

/// Two classes that meet at one of two queues, small enough to do by hand: N = (1, 1), demands (1, 2) and
/// (3, 0), no think time. What class 0 finds is class 1 alone, which is at the first queue all the time, and
/// what class 1 finds is class 0 alone, a quarter of its time there: X₀ = 1/(1·2 + 3), X₁ = 1/(2·1.25).
/// One step back knows a customer alone exactly, so both bounds are the value.
#[test]
fn bounds_of_two_customers_are_exact() {
    let resources = vec![Resource::queue(&[1.0, 2.0]), Resource::queue(&[3.0, 0.0])];
    let model = network(&[closed(1, 0.0), closed(1, 0.0)], resources);
    for (bounds, want) in arrival_bounds(&model).unwrap().iter().zip([0.2, 0.4]) {
        near(bounds.throughput.0, want, 1e-12);
        near(bounds.throughput.1, want, 1e-12);
        near(bounds.system_response.0, 1.0 / want, 1e-12);
    }
    // Asymptotic bounds: behind the other at the slowest queue, and alone or with that full.
    let wide = multi_class_bounds(&model).unwrap();
    assert!(wide[0].throughput.0 < 0.15 && wide[0].throughput.1 > 0.24, "{wide:?}");
    let busy = network(&[Load::Open { arrival_rate: 0.1 }], vec![Resource::queue(&[1.0])]);
    assert!(matches!(arrival_bounds(&busy), Err(NetworkError::Unsupported { .. })));
}

/// [LZGS84 ch. 7], mixed example: the printed 4/19, 15/19 …
#[test]
fn a_mixed_network_gives_the_published_fractions() {
    let n = network(
        &[
            Load::Open { arrival_rate: 1.0 },
            Load::Open { arrival_rate: 0.5 },
            closed(1, 0.0),
            closed(1, 0.0),
        ],
        vec![
            Resource::queue(&[0.25, 0.5, 0.5, 1.0]),
            Resource::queue(&[1.0 / 6.0, 1.0, 1.0, 4.0 / 3.0]),
        ],
    );
    let s = mixed(&n).unwrap();
    near(s.number[0][2], 4.0 / 19.0, 1e-12);
    near(s.number[1][3], 14.0 / 19.0, 1e-12);
    near(s.number[0][0], 0.736_842_105_263_157_9, 1e-12);
    near(s.number[1][1], 3.789_473_684_210_526, 1e-12);
    assert_eq!(s.accuracy, Accuracy::Exact);
}

/// PDQ's demos and JMT's stored models (docs/references.md); recomputed there to these digits.
#[test]
fn other_tools_figures_are_met() {
    let s = mva_exact(&Network::closed(&[0.0098, 0.0025, 0.000_72, 0.0098], 10, 0.0)).unwrap();
    printed(s.throughput[0], 92.394_525, 0.5e-6);
    let mut demands = vec![0.0109];
    demands.extend([0.000_275; 16]);
    let s = mva_exact(&Network::closed(&demands, 5, 0.0)).unwrap();
    printed(s.throughput[0], 91.733_459, 0.5e-6);
    let n = network(&[closed(400, 0.0)], vec![Resource::servers(300, &[0.444])]);
    let s = convolution(&n).unwrap();
    printed(s.throughput[0], 675.675_68, 0.5e-5);
    printed(s.system_response[0], 0.592, 0.5e-3);
    // allen: three classes at three centers.
    let n = network(
        &[closed(5, 20.0), closed(10, 30.0), closed(5, 0.0)],
        vec![
            Resource::queue(&[0.5, 0.4, 1.2]),
            Resource::queue(&[0.04, 0.2, 0.05]),
            Resource::queue(&[0.06, 0.3, 0.06]),
        ],
    );
    let s = mva_exact(&n).unwrap();
    for (have, want) in s.throughput.iter().zip([0.209_977_21, 0.297_996_64, 0.646_510_3]) {
        printed(*have, want, 0.5e-7);
    }
    // JMT testSingleClosedLI_1.
    let s = mva_exact(&Network::closed(&[0.605, 1.35, 2.1], 10, 15.0)).unwrap();
    printed(s.throughput[0], 0.400_205, 0.5e-6);
    printed(s.number[2][0], 2.656_17, 0.5e-5);
    // JMT randomModel_closed: one station visited 0.3176 times, with its throughput per visit.
    let visits = 0.317_621_60;
    let s = mva_exact(&Network::closed(&[0.277_269_24 * visits], 40, 0.0)).unwrap();
    // The last digit of the input moves the output by as much again.
    printed(s.throughput[0] * visits, 3.606_602_8, 1.2e-7);
    printed(s.system_response[0], 3.522_667_9, 1.2e-7);
}

/// The models of docs/models.md's speed table; values on which the field's tools agree.
#[test]
fn the_measured_models_have_their_agreed_results() {
    let demands: Vec<f64> = (0..20).map(|k| 0.01 * f64::from(1 + k % 7)).collect();
    let s = mva_exact(&Network::closed(&demands, 10_000, 1.0)).unwrap();
    printed(s.throughput[0], 14.284_279_006, 0.5e-9);
    let demands = |c: u32| (1..=50).map(move |k| 0.01 * f64::from(1 + (7 * c + 3 * k) % 11));
    let rows: Vec<Vec<f64>> = (1..=20).map(|c| demands(c).collect()).collect();
    let n = network(
        &(1..=20).map(|c| closed(5 + 7 * c % 19, 1.0)).collect::<Vec<_>>(),
        (0..50)
            .map(|k| Resource::queue(&rows.iter().map(|row| row[k]).collect::<Vec<_>>()))
            .collect(),
    );
    let s = schweitzer(&n, Iteration::default()).unwrap();
    printed(s.throughput[0], 0.609_302_29, 0.5e-8);
}

/// Four classes of 12; also 30 in `make bench-models`.
#[test]
fn four_classes_are_the_same_by_convolution() {
    let demands = [
        [0.1, 0.2, 0.05, 0.15],
        [0.05, 0.02, 0.2, 0.1],
        [0.3, 0.1, 0.15, 0.05],
        [0.02, 0.08, 0.06, 0.2],
        [0.12, 0.12, 0.12, 0.12],
    ];
    let resources: Vec<Resource> = demands.iter().map(|d| Resource::queue(d)).collect();
    let n = network(&[closed(4, 1.0); 4], resources);
    let (c, m) = (convolution(&n).unwrap(), mva_exact(&n).unwrap());
    for (a, b) in c.throughput.iter().zip(&m.throughput) {
        near(*a, *b, 1e-11);
    }
}

/// Tables IV and V of [CMS08] and [HL87], as in the Octave package.
#[test]
fn bounds_give_the_published_tables() {
    let n = Network::closed(&[0.1, 0.1, 0.09, 0.08], 20, 0.0);
    let b = geometric_bounds(&n).unwrap().throughput;
    printed(b.0, 9.0947, 0.5e-4);
    printed(b.1, 9.2431, 0.5e-4);
    let b = proportional_bounds(&n).unwrap().throughput;
    printed(b.0, 8.8672, 0.5e-4);
    printed(b.1, 9.3387, 0.5e-4);
    // Table V: think time 1.
    let n = Network::closed(&[0.1, 0.1, 0.09, 0.08], 20, 1.0);
    let b = geometric_bounds(&n).unwrap().throughput;
    printed(b.0, 8.0856, 0.5e-4);
    printed(b.1, 8.6467, 0.5e-4);
    // Terminal bounds: N 20, D 9.2 and 8, Z 120.
    let n = Network::closed(&[9.2, 8.0], 20, 120.0);
    let b = asymptotic_bounds(&n).unwrap();
    printed(b.throughput.1, 0.109, 0.5e-3);
    printed(b.system_response.0, 64.0, 0.5);
}

/// models.md: selector, handler, database; the database saturates at 6.273/ms.
#[test]
fn the_closed_example_saturates_at_its_database() {
    let demands = [4.4e-6, 1.1221e-3 / 8.0, 2.5505e-3 / 16.0];
    let n = Network::closed(&demands, 600, 0.05);
    let neck = bottleneck(&n, 0).unwrap();
    assert_eq!(neck.resource, 2);
    printed(neck.demand * 1e3, 0.1594, 0.5e-4);
    printed(neck.most_throughput / 1e3, 6.273, 0.5e-3);
    let s = mva_exact(&n).unwrap();
    assert!(s.throughput[0] < neck.most_throughput && s.throughput[0] > 0.999 * 6_273.0);
}

#[test]
fn one_station_with_think_time_is_the_finite_population_station() {
    for (m, n) in [(1, 20), (4, 60), (64, 1_000), (8, 100)] {
        let s =
            convolution(&network(&[closed(n, 3.0)], vec![Resource::servers(m, &[0.7])])).unwrap();
        let f = finite_population(1.0 / 3.0, 1.0 / 0.7, m, n, None).unwrap();
        near(s.throughput[0], f.throughput, 1e-11);
        near(s.system_response[0], f.response_time.mean, 1e-10);
        let p = s.marginals[0].as_ref().unwrap();
        near(p.iter().sum(), 1.0, 1e-10);
    }
    // Without a think time all servers are always busy, at any population.
    let all =
        mixed(&network(&[closed(1_000_000, 0.0)], vec![Resource::servers(3, &[0.005])])).unwrap();
    assert_eq!(all.accuracy, Accuracy::Exact);
    near(all.throughput[0], 600.0, 1e-12);
    near(all.utilization[0][0], 1.0, 1e-12);
    near(all.system_response[0], 1_000_000.0 / 600.0, 1e-9);
}

/// Plain multi-server recursion goes negative here; convolution must stay between the bounds and
/// be what a birth–death process gives (one station), at 64 servers and 1,000 customers.
#[test]
fn large_multi_servers_stay_stable() {
    let n = network(
        &[closed(1_000, 5.0)],
        vec![
            Resource::servers(64, &[0.2]),
            Resource::servers(256, &[0.9]),
            Resource::queue(&[0.002]),
        ],
    );
    let s = convolution(&n).unwrap();
    let total: f64 = s.number.iter().flatten().sum::<f64>() + s.throughput[0] * 5.0;
    near(total, 1_000.0, 1e-10);
    let b = asymptotic_bounds(&n).unwrap();
    assert!(s.throughput[0] <= b.throughput.1 && s.throughput[0] >= b.throughput.0);
}

#[test]
fn a_flow_equivalent_replaces_its_part_exactly() {
    let part = [Resource::queue(&[0.3]), Resource::servers(2, &[0.5])];
    let rest = Resource::queue(&[0.2]);
    let whole = network(&[closed(9, 1.0)], vec![part[0].clone(), part[1].clone(), rest.clone()]);
    let aggregate = flow_equivalent(&part, 9).unwrap().resource();
    let outer = network(&[closed(9, 1.0)], vec![aggregate, rest]);
    let (a, b) = (convolution(&whole).unwrap(), convolution(&outer).unwrap());
    near(a.throughput[0], b.throughput[0], 1e-11);
    near(a.number[2][0], b.number[1][0], 1e-10);
    // As many tokens as customers: the pool is not a limit.
    let pool = pool_rates(&part, 50, 9).unwrap();
    near(pool.rates[8], flow_equivalent(&part, 9).unwrap().rates[8], 1e-12);
}

#[test]
fn open_networks_are_stations_side_by_side() {
    let n = network(
        &[Load::Open { arrival_rate: 3.0 }, Load::Open { arrival_rate: 1.0 }],
        vec![Resource::servers(4, &[0.5, 1.0]), Resource::delay(&[2.0, 1.0])],
    );
    let s = open(&n).unwrap();
    near(s.total_number(0), mmm(2.5, 1.0, 4).unwrap().number.mean, 1e-12);
    near(s.system_response[0], s.residence[0][0] + 2.0, 1e-12);
    let n = network(
        &[Load::Open { arrival_rate: 0.3 }],
        vec![Resource::queue(&[0.605]), Resource::queue(&[2.1]), Resource::queue(&[1.35])],
    );
    // [LZGS84 table 5.2]: R ≥ D, and D/(1 − λ·D/K) ≤ R ≤ D/(1 − λ·Dmax).
    let asymptotic = asymptotic_bounds(&n).unwrap();
    near(asymptotic.system_response.0, 4.055, 1e-12);
    assert!(asymptotic.system_response.1.is_infinite());
    near(asymptotic.throughput.1, 1.0 / 2.1, 1e-12);
    let balanced = balanced_bounds(&n).unwrap();
    near(balanced.system_response.0, 4.055 / (1.0 - 0.3 * 4.055 / 3.0), 1e-12);
    near(balanced.system_response.1, 4.055 / (1.0 - 0.63), 1e-12);
    assert!(balanced.system_response.0 < 8.683_74 && 8.683_74 < balanced.system_response.1);
    assert!(geometric_bounds(&n).is_err() && proportional_bounds(&n).is_err());
    let error = open(&network(&[Load::Open { arrival_rate: 2.0 }], vec![Resource::queue(&[0.6])]));
    assert!(matches!(error, Err(NetworkError::Unstable { .. })));
}

#[test]
fn a_million_customers_are_solved_by_approximation() {
    let n = network(
        &[closed(1_000_000, 10.0), closed(500_000, 3.0)],
        vec![Resource::servers(64, &[1e-4, 2e-4]), Resource::queue(&[1e-6, 2e-6])],
    );
    let s = mixed(&n).unwrap();
    assert_eq!(s.accuracy, Accuracy::Approximation);
    assert!(s.total_utilization(0) <= 1.0 + 1e-9);
}

#[test]
fn constants_give_the_throughput_of_every_population() {
    let demands = [0.02, 0.08, 0.08, 0.06];
    let g = normalization_constants(&Network::closed(&demands, 6, 0.0)).unwrap();
    for (i, population) in (1..=6).enumerate() {
        let exact = mva_exact(&Network::closed(&demands, population, 0.0)).unwrap();
        near((g[i] - g[i + 1]).exp(), exact.throughput[0], 1e-13);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn bounds_bracket_the_exact_solution(
        demands in prop::collection::vec(0.001..2.0_f64, 1..8), n in 1..60_u64, z in 0.0..20.0_f64,
    ) {
        let model = Network::closed(&demands, n, z);
        let x = mva_exact(&model).unwrap().throughput[0];
        let slack = 1e-9 * x;
        let mut bounds = vec![
            asymptotic_bounds(&model).unwrap(), balanced_bounds(&model).unwrap(),
            geometric_bounds(&model).unwrap(),
        ];
        bounds.push(multi_class_bounds(&model).unwrap()[0]);
        bounds.push(proportional_bounds(&model).unwrap());
        for b in bounds {
            prop_assert!(b.throughput.0 <= x + slack && x <= b.throughput.1 + slack, "{b:?} {x}");
        }
        // Never above the exact throughput [ES84]; otherwise the errors of docs/models.md, which
        // tests/approximations.rs measures, with a small margin for other networks.
        let s = schweitzer(&model, Iteration::default()).unwrap();
        prop_assert!(s.throughput[0] <= x + slack, "{} {x}", s.throughput[0]);
        prop_assert!(s.throughput[0] >= 0.92 * x, "{} {x}", s.throughput[0]);
        let l = linearizer(&model, Iteration::default()).unwrap();
        prop_assert!((l.throughput[0] - x).abs() <= 0.015 * x, "{} {x}", l.throughput[0]);
        let c = convolution(&model).unwrap();
        prop_assert!((c.throughput[0] - x).abs() <= 1e-10 * x);
        for k in 0..demands.len() {
            let exact = mva_exact(&model).unwrap().number[k][0];
            prop_assert!((c.number[k][0] - exact).abs() <= 1e-8 * (1.0 + exact));
        }
    }

    /// Never beyond the exact value, and never wider than the asymptotic bounds; demands of 0 and classes
    /// without customers or think time are among them.
    #[test]
    fn bounds_of_several_classes_bracket_the_exact_solution(
        rows in prop::collection::vec(
            prop::collection::vec(prop_oneof![Just(0.0), 0.001..3.0_f64], 3), 1..6,
        ),
        n in [0..7_u64, 0..6, 1..5], z in [0.0..10.0_f64, 0.0..1.0, 0.0..50.0], delay in 0.0..2.0_f64,
    ) {
        // Each class has some work.
        let mut resources = vec![Resource::queue(&[0.01, 0.02, 0.0]), Resource::delay(&[0.0, delay, 0.1])];
        resources.extend(rows.iter().map(|d| Resource::queue(d)));
        let classes = [closed(n[0], z[0]), closed(n[1], z[1]), closed(n[2], z[2])];
        let model = network(&classes, resources);
        let exact = mva_exact(&model).unwrap();
        let wide = multi_class_bounds(&model).unwrap();
        for (c, bounds) in arrival_bounds(&model).unwrap().iter().enumerate() {
            let (x, slack) = (exact.throughput[c], 1e-9 * exact.throughput[c]);
            let (low, high) = bounds.throughput;
            prop_assert!(low <= x + slack && x <= high + slack, "{c}: {bounds:?}, exact {x}");
            let (wide_low, wide_high) = wide[c].throughput;
            prop_assert!(wide_low <= low + slack && high <= wide_high + slack, "{c}: {bounds:?}");
            if n[c] > 0 {
                let response = exact.system_response[c];
                let (low, high) = bounds.system_response;
                let slack = 1e-9 * (response + z[c]);
                prop_assert!(low <= response + slack && response <= high + slack, "{c}: {bounds:?}");
            }
        }
    }

    #[test]
    fn several_classes_keep_the_laws(
        rows in prop::collection::vec([0.0..2.0_f64, 0.001..2.0, 0.0..1.0], 1..4),
        n in [1..5_u64, 1..5, 0..4], z in [0.0..5.0_f64, 0.0..5.0, 0.1..5.0], m in 1..4_u64,
        rate in 0.0..0.2_f64,
    ) {
        let classes = [closed(n[0], z[0] + 0.01), closed(n[1], z[1]), closed(n[2], z[2])];
        let plain: Vec<Resource> = rows.iter().map(|d| Resource::queue(d)).collect();
        let a = mva_exact(&network(&classes, plain.clone())).unwrap();
        let b = convolution(&network(&classes, plain.clone())).unwrap();
        for c in 0..3 {
            prop_assert!((a.throughput[c] - b.throughput[c]).abs() <= 1e-9 * a.throughput[c].max(1e-9));
            for k in 0..rows.len() {
                prop_assert!((a.number[k][c] - b.number[k][c]).abs() <= 1e-8);
            }
        }
        // m servers by convolution: one server is the same network.
        let many: Vec<Resource> = rows.iter().map(|d| Resource {
            kind: Kind::Servers(m), demands: d.to_vec(),
        }).collect();
        let s = convolution(&network(&classes, many.clone())).unwrap();
        if m == 1 {
            prop_assert!((s.throughput[0] - a.throughput[0]).abs() <= 1e-9);
        } else {
            prop_assert!(s.throughput[1] >= 0.0);
        }
        for bounds in multi_class_bounds(&network(&classes, many.clone())).unwrap().iter().zip(&s.throughput) {
            prop_assert!(*bounds.1 <= bounds.0.throughput.1 * (1.0 + 1e-9));
        }
        // One or two customers in three classes are the worst case: docs/models.md.
        for method in [MultiServer::Conditional, MultiServer::Seidmann] {
            let iteration = Iteration { multi_server: method, ..Iteration::default() };
            let approximate = schweitzer(&network(&classes, many.clone()), iteration).unwrap();
            for c in 0..2 {
                let gap = (approximate.throughput[c] - s.throughput[c]).abs() / s.throughput[c];
                prop_assert!(gap <= 0.25, "{method:?} {gap}");
            }
        }
        // Mixed: an open class takes its share of single servers, and what is left is a closed
        // network with demands that are longer by it.
        let mut with_open = classes.to_vec();
        with_open.push(Load::Open { arrival_rate: rate });
        let widened: Vec<Resource> = rows.iter().map(|d| Resource::queue(&[d[0], d[1], d[2], 1.0])).collect();
        let x = mixed(&network(&with_open, widened)).unwrap();
        let longer = rows.iter().map(|d| Resource::queue(&d.map(|d| d / (1.0 - rate)))).collect();
        let y = mva_exact(&network(&classes, longer)).unwrap();
        for c in 0..3 {
            prop_assert!((x.throughput[c] - y.throughput[c]).abs() <= 1e-9 * y.throughput[c].max(1e-9));
        }
        for (k, row) in y.number.iter().enumerate() {
            let closed: f64 = row.iter().sum();
            let open = rate * (1.0 + closed) / (1.0 - rate);
            prop_assert!((x.number[k][3] - open).abs() <= 1e-8, "{} {open}", x.number[k][3]);
        }
    }

    #[test]
    fn hostile_networks_are_errors_and_never_panics(
        demands in prop::collection::vec(any::<f64>(), 0..4), n in any::<u64>(), z in any::<f64>(),
        rate in any::<f64>(), m in 0..5_u64,
    ) {
        let small = n % 50;
        for population in [small, n] {
            let model = Network::closed(&demands, population, z);
            if population == small {
                drop(mva_exact(&model));
                drop(convolution(&model));
                drop(linearizer(&model, Iteration::default()));
            } else if population > 1 << 40 {
                prop_assert!(mva_exact(&model).is_err() && convolution(&model).is_err());
            }
            drop(schweitzer(&model, Iteration::default()));
            drop(asymptotic_bounds(&model));
            drop(balanced_bounds(&model));
            drop(geometric_bounds(&model));
        }
        let resources = demands.iter().map(|d| Resource::servers(m, &[*d, 1.0])).collect();
        let model = network(&[Load::Open { arrival_rate: rate }, closed(small, z)], resources);
        drop(mixed(&model));
        drop(open(&model));
    }
}

/// G is the sum over all states of the products of the demands, here counted out: two classes at two
/// single servers, one with three, and thinking.
#[test]
fn the_constant_of_several_classes_is_the_sum_over_the_states() {
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    let power = |base: f64, n: u32| base.powf(f64::from(n));
    let (think, demands) = ([2.0, 0.7], [[0.4, 0.9], [1.3, 0.2], [0.8, 1.1]]);
    let most = [3_u32, 4];
    let kinds = [Kind::Queue, Kind::Queue, Kind::Servers(3)];
    let factor = |kind: &Kind, d: &[f64; 2], n: [u32; 2]| {
        let all = n[0] + n[1];
        let speed =
            |j: u32| if matches!(kind, Kind::Servers(_)) { f64::from(j.min(3)) } else { 1.0 };
        let work = power(d[0], n[0]) * power(d[1], n[1]);
        factorial(all) / (factorial(n[0]) * factorial(n[1])) * work
            / (1..=all).map(speed).product::<f64>()
    };
    let splits = |total: u32| {
        let mut all = Vec::new();
        for a in 0..=total {
            for b in 0..=total - a {
                for c in 0..=total - a - b {
                    all.push([a, b, c, total - a - b - c]);
                }
            }
        }
        all
    };
    let mut g = 0.0;
    for first in splits(most[0]) {
        for second in splits(most[1]) {
            let mut product = power(think[0], first[3]) * power(think[1], second[3])
                / (factorial(first[3]) * factorial(second[3]));
            for at in 0..3 {
                product *= factor(&kinds[at], &demands[at], [first[at], second[at]]);
            }
            g += product;
        }
    }
    let network = |population: [u32; 2], kinds: &[Kind; 3]| Network {
        classes: (0..2)
            .map(|c| Load::Closed { population: population[c].into(), think_time: think[c] })
            .collect(),
        resources: kinds
            .iter()
            .zip(&demands)
            .map(|(kind, d)| Resource { kind: kind.clone(), demands: d.to_vec() })
            .collect(),
    };
    let solved = convolution(&network(most, &kinds)).unwrap();
    assert!(
        (solved.ln_g.unwrap() - g.ln()).abs() < 1e-12 * g.ln().abs(),
        "{:?} {}",
        solved.ln_g,
        g.ln()
    );
    // X of a class is G of one customer fewer over G, as mean value analysis has it.
    let single = [Kind::Queue, Kind::Queue, Kind::Queue];
    let of = |population| convolution(&network(population, &single)).unwrap().ln_g.unwrap();
    let mva = mva_exact(&network(most, &single)).unwrap();
    for (class, fewer) in [[2, 4], [3, 3]].into_iter().enumerate() {
        let x = (of(fewer) - of(most)).exp();
        assert!((x / mva.throughput[class] - 1.0).abs() < 1e-12);
    }
}

/// Open networks: geometric numbers at single servers (ρ/(1 − ρ)² [Jain91 table 31.1]), Poisson ones at
/// delays; all against a simulation.
#[test]
fn numbers_in_open_networks_vary_as_simulations_do() {
    use kendall_queueing::Model;
    use kendall_queueing::simulation::{Settings, simulate};
    use kendall_queueing::solver::{Solver, solve};
    let text = "classes = [{ name = 'a', arrival_rate_per_s = 1 }, { name = 'b', arrival_rate_per_s = \
                2 }]\nstations = [{ name = 'ps', discipline = 'ps', service_time_s = { a = 0.2, b = 0.15 \
                } }, { name = 'three', servers = 3, service_time_s = 0.5 }, { name = 'd', type = \
                'delay', service_time_s = 2 }]";
    let model = Model::read(&text.parse().unwrap()).unwrap();
    let exact = solve(&model, Solver::Auto).unwrap();
    // Of the two at the first station on average, 0.4 belong to the first class: Var = p²·2 + p(1 − p), p = 0.4, and a
    // Poisson number at the delay.
    let of_class = exact.classes[0].number_variance.unwrap();
    let numbers: Vec<f64> = exact.stations.iter().map(|s| s.number.iter().sum()).collect();
    let three = exact.stations[1].number_variance.unwrap() / 9.0 + numbers[1] * 2.0 / 9.0;
    assert!(
        (of_class - (0.16 * 2.0 + 0.24 * numbers[0] + three + 2.0)).abs() < 1e-12,
        "{of_class}"
    );
    let variances: Vec<f64> = exact.stations.iter().map(|s| s.number_variance.unwrap()).collect();
    assert!((variances[0] - 2.0).abs() < 1e-12, "{variances:?}");
    assert!((variances[2] - 6.0).abs() < 1e-12, "{variances:?}");
    let settings = Settings {
        confidence: 0.999,
        relative_half_width: 0.01,
        most_customers: 2_000_000,
        ..Settings::of(&model)
    };
    let simulated = simulate(&model, &settings, &mut |_| {}).unwrap();
    for (station, variance) in simulated.stations.iter().zip(variances) {
        let found = station.number_variance.unwrap();
        assert!(found.covers(variance), "{}: {found:?} for {variance}", station.name);
    }
}

/// Numbers of a class and times of a series, of which the variances add up, as the simulator finds them.
#[test]
fn variances_of_open_classes_are_what_a_simulation_finds() {
    use kendall_queueing::Model;
    use kendall_queueing::simulation::{Settings, simulate};
    use kendall_queueing::solver::{Solver, solve};
    let read = |text: &str| Model::read(&text.parse().unwrap()).unwrap();
    let series = read(
        "arrival_rate_per_s = 2\nstations = [{ name = 'a', servers = 3, service_time_s = 1 }, { name = 'b', \
         service_time_s = 0.2 }, { name = 'c', type = 'delay', service_time_s = 0.5 }]",
    );
    let exact = solve(&series, Solver::Auto).unwrap().classes[0].clone();
    // The wait of M/M/3 is positive with probability 4/9, then with mean 1 s; Var = 1 + c(2 − c).
    let wait = 4.0 / 9.0 * (2.0 - 4.0 / 9.0);
    let times = 1.0 + wait + (0.2_f64 / 0.6).powi(2) + 0.25;
    assert!((exact.system_response_variance.unwrap() - times).abs() < 1e-12, "{exact:?}");
    let settings =
        Settings { confidence: 0.999, relative_half_width: 0.01, ..Settings::of(&series) };
    let simulated = simulate(&series, &settings, &mut |_| {}).unwrap();
    let found = simulated.classes[0].response_time_variance_s2.unwrap();
    assert!(found.covers(times), "{found:?} for {times}");
    // Without a variance: closed classes, other services, class switching.
    for text in [
        "population = 3\nthink_time_s = 1\nstations = [{ name = 'a', service_time_s = 1 }, { name = 'b', \
         service_time_s = 1 }]",
        "arrival_rate_per_s = 0.5\nstations = [{ name = 'a', service = { distribution = 'erlang', mean_s = 1, \
         stages = 2 } }, { name = 'b', service_time_s = 1 }]",
    ] {
        let class = &solve(&read(text), Solver::Auto).unwrap().classes[0];
        assert!(class.number_variance.is_none() && class.system_response_variance.is_none());
    }
    let single = read("arrival_rate_per_s = 0.5\nstations = [{ name = 'a', service_time_s = 1 }]");
    let class = &solve(&single, Solver::Auto).unwrap().classes[0];
    assert!((class.number_variance.unwrap() - 2.0).abs() < 1e-12);
    assert!((class.system_response_variance.unwrap() - 4.0).abs() < 1e-12);
}

/// Two classes in a row of queues are one stream of the sum of their rates; a class that skips the second queue
/// overtakes there, and percentiles of who passes all three are not known.
#[test]
fn classes_that_pass_the_same_queues_have_percentiles_of_their_own() {
    let text = |routes: &str| {
        format!(
            "percentiles = [50, 99]\nclasses = [{{ name = 'a', arrival_rate_per_s = 0.2 }}, {{ name = 'b', \
             arrival_rate_per_s = 0.3 }}]\nstations = [{{ name = 's', service_time_s = 1 }}, {{ name = 't', \
             service_time_s = 0.5 }}, {{ name = 'u', service_time_s = 0.25 }}]\nroutes = [{routes}]"
        )
    };
    let leg = |class: &str, from: &str, to: &str| {
        format!("{{ class = '{class}', from = '{from}', to = {{ {to} = 1 }} }}, ")
    };
    let way = |class: &str, stations: &[&str]| -> String {
        let places = [&["in"][..], stations, &["out"][..]].concat();
        places.windows(2).map(|pair| leg(class, pair[0], pair[1])).collect()
    };
    let solved = |routes: &str| {
        let model: kendall_queueing::model::Model = toml::from_str(&text(routes)).unwrap();
        kendall_queueing::solver::solve(&model, kendall_queueing::solver::Solver::Auto).unwrap()
    };
    let found = solved(&(way("a", &["s", "t"]) + &way("b", &["s"])));
    // `b` has M/M/1 with 0.5/s: −ln(1 − p)/(1 − 0.5). `a` a sum of rates 0.5 and 2 − 0.2.
    for (quantile, time) in &found.classes[1].response_quantiles {
        assert!((time / (-(1.0 - quantile).ln() / 0.5) - 1.0).abs() < 1e-7, "{quantile} {time}");
    }
    let (x, y) = (0.5_f64, 1.8_f64);
    for (quantile, time) in &found.classes[0].response_quantiles {
        let beyond = (y * (-x * time).exp() - x * (-y * time).exp()) / (y - x);
        assert!((1.0 - quantile - beyond).abs() < 1e-7, "{quantile} {time}");
    }
    assert_eq!(found.classes[0].response_quantiles.len(), 2);
    assert!(found.caveats.is_empty(), "{:?}", found.caveats);
    let variance = found.classes[0].system_response_variance.unwrap();
    assert!((variance - (x.powi(-2) + y.powi(-2))).abs() < 1e-9, "{variance}");

    let found = solved(&(way("a", &["s", "t", "u"]) + &way("b", &["s", "u"])));
    assert!(found.classes[0].response_quantiles.is_empty());
    assert_eq!(found.classes[1].response_quantiles.len(), 2);
    assert!(found.caveats[0].to_string().contains("simulation"), "{:?}", found.caveats);
    let found = solved(&(way("a", &["s", "t"]) + &way("b", &["t", "s"])));
    assert!(found.classes.iter().all(|class| class.response_quantiles.is_empty()));
}
