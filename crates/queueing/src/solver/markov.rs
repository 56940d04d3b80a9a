//! Markov chains of few states, and their steady states.

use std::collections::BTreeMap;

use kendall_units::exact_f64;

/// Change of all probabilities together in a round at which a steady state counts as found.
const FOUND: f64 = 1e-14;
/// Most moves that are followed to find it.
const MOST_WORK: f64 = 2e9;

/// States, and the moves between them.
pub(super) struct Chain<S> {
    pub(super) states: Vec<S>,
    /// From, to, and how often: before and after a step, where there is one.
    pub(super) moves: Vec<(usize, usize, [f64; 2])>,
}

impl<S: Clone + Ord> Chain<S> {
    /// All that the moves lead to from one state; none where that is more than `most` states.
    pub(super) fn of(
        start: S,
        most: usize,
        moves: impl Fn(&S) -> Vec<(S, [f64; 2])>,
    ) -> Option<Self> {
        let mut index = BTreeMap::from([(start.clone(), 0)]);
        let mut chain = Self { states: vec![start], moves: Vec::new() };
        let mut at = 0;
        while let Some(state) = chain.states.get(at).cloned() {
            for (next, rates) in moves(&state) {
                let known = chain.states.len();
                let states = &mut chain.states;
                let target = *index.entry(next).or_insert_with_key(|next| {
                    states.push(next.clone());
                    known
                });
                if target == most {
                    return None;
                }
                chain.moves.push((at, target, rates));
            }
            at += 1;
        }
        Some(chain)
    }

    /// How often it goes from each state, before (0) or after (1) the step.
    pub(super) fn leaves(&self, when: usize) -> Vec<f64> {
        let mut leaves = vec![0.0; self.states.len()];
        for (from, _, rates) in &self.moves {
            leaves[*from] += rates[when];
        }
        leaves
    }

    /// Probabilities in the steady state; none where it takes too long.
    ///
    /// # Source
    /// Gauss–Seidel rounds over the equations of balance (Stewart 1994, ch. 3).
    pub(super) fn steady(&self, when: usize) -> Option<Vec<f64>> {
        let leaves = self.leaves(when);
        let states = self.states.len();
        // Where nothing leads on it stays in the first.
        if leaves[0] <= 0.0 {
            return Some((0..states).map(|state| if state == 0 { 1.0 } else { 0.0 }).collect());
        }
        let mut steady = vec![1.0 / exact_f64(states); states];
        let mut into = vec![Vec::new(); states];
        for (from, to, rates) in &self.moves {
            into[*to].push((*from, rates[when] / leaves[*to]));
        }
        let cost = exact_f64(self.moves.len() + states);
        let mut work = 0.0;
        while work < MOST_WORK {
            let before = steady.clone();
            let mut round = |state: usize| {
                steady[state] = into[state].iter().map(|(from, share)| steady[*from] * share).sum();
            };
            (0..states).for_each(&mut round);
            (0..states).rev().for_each(&mut round);
            let all: f64 = steady.iter().sum();
            steady.iter_mut().for_each(|p| *p /= all);
            let change: f64 = steady.iter().zip(&before).map(|(p, old)| (p - old).abs()).sum();
            if change <= FOUND {
                return Some(steady);
            }
            if change.is_nan() {
                return None;
            }
            work += 2.0 * cost;
        }
        None
    }

    /// The mean of what is said of each state.
    pub(super) fn mean(&self, probabilities: &[f64], of: impl Fn(&S) -> f64) -> f64 {
        self.states.iter().zip(probabilities).map(|(state, p)| of(state) * p).sum()
    }
}
