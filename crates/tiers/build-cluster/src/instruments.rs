//! Counters, levels and durations with labels, as Prometheus text: what the shared tier
//! instruments, which know no labels, do not say.
//!
//! A family is asked for its series once, at the start; what is counted after that is one relaxed
//! addition.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kendall_tier::{Exposition, Labels, Metric};
use kendall_units::exact_f64;
use parking_lot::Mutex;

/// Series that are counted. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Families {
    families: Arc<Mutex<BTreeMap<&'static str, Family>>>,
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    series: BTreeMap<Vec<(String, String)>, Series>,
}

enum Series {
    Counter(Counter),
    Durations(Durations),
    Read(Box<dyn Fn() -> f64 + Send + Sync>),
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter(_) => "counter",
            Self::Durations(_) => "durations",
            Self::Read(_) => "read",
        })
    }
}

/// A count that only grows. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

/// A histogram of durations, or of other quantities. Clones share it.
#[derive(Debug, Clone)]
pub struct Durations(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Upper bounds in the unit of what is recorded, and what divides it for printing.
    bounds: &'static [u64],
    divisor: f64,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// Upper bounds of durations in nanoseconds: 10 µs to 10,000 s, three a decade, so that a hit in
/// memory and an hour of compiling are both seen.
pub const DURATION_BOUNDS_NS: &[u64] = &{
    let (mut bounds, mut decade) = ([0; 28], 10_000);
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = [1, 2, 5][at % 3] * decade;
        at += 1;
        if at % 3 == 0 {
            decade *= 10;
        }
    }
    bounds
};

/// Upper bounds of sizes in bytes: powers of four from 64 B to 4 GiB.
pub const SIZE_BOUNDS: &[u64] = &{
    let (mut bounds, mut at) = ([0; 14], 0);
    while at < bounds.len() {
        bounds[at] = 64 << (2 * at);
        at += 1;
    }
    bounds
};

impl Families {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn counter(&self, name: &'static str, help: &'static str, labels: Labels<'_>) -> Counter {
        let counter = Counter::default();
        self.add(name, help, "counter", labels, Series::Counter(counter.clone()));
        counter
    }

    /// The durations of these labels, recorded in nanoseconds and printed in seconds.
    pub fn durations(
        &self,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
    ) -> Durations {
        let durations = Durations::new(DURATION_BOUNDS_NS, 1e9);
        self.add(name, help, "histogram", labels, Series::Durations(durations.clone()));
        durations
    }

    /// The sizes of these labels, in bytes.
    pub fn sizes(&self, name: &'static str, help: &'static str, labels: Labels<'_>) -> Durations {
        let sizes = Durations::new(SIZE_BOUNDS, 1.0);
        self.add(name, help, "histogram", labels, Series::Durations(sizes.clone()));
        sizes
    }

    /// A level that `read` tells when it is asked for.
    pub fn level(
        &self,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.add(name, help, "gauge", labels, Series::Read(Box::new(read)));
    }

    /// A count that `read` tells when it is asked for.
    pub fn count(
        &self,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let read = move || exact_f64(read());
        self.add(name, help, "counter", labels, Series::Read(Box::new(read)));
    }

    fn add(
        &self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        labels: Labels<'_>,
        series: Series,
    ) {
        let mut families = self.families.lock();
        let new = || Family { help, kind, series: BTreeMap::new() };
        let family = families.entry(name).or_insert_with(new);
        assert_eq!(family.kind, kind, "{name} is of one kind");
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        family.series.insert(labels.collect(), series);
    }

    /// All of it as Prometheus text.
    pub fn text(&self) -> String {
        let families = self.families.lock();
        let mut page = Exposition::default();
        for (name, family) in families.iter() {
            let mut metric = page.metric(name, family.kind, family.help);
            for (labels, series) in &family.series {
                let labels: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                match series {
                    Series::Counter(counter) => metric.sample(&labels, counter.get()),
                    Series::Read(read) => metric.sample(&labels, read()),
                    Series::Durations(durations) => durations.write(&mut metric, &labels),
                }
            }
        }
        page.into_text()
    }
}

impl Counter {
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Durations {
    fn new(bounds: &'static [u64], divisor: f64) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets { bounds, divisor, counts, sum: AtomicU64::new(0) }))
    }

    /// Records one value: nanoseconds of a duration, bytes of a size.
    #[inline]
    pub fn record(&self, value: u64) {
        let bucket = self.0.bounds.partition_point(|bound| *bound < value);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub fn sum(&self) -> u64 {
        self.0.sum.load(Ordering::Relaxed)
    }

    fn write(&self, metric: &mut Metric<'_>, labels: Labels<'_>) {
        let mut total = 0;
        let mut at_most = Vec::new();
        for (bound, count) in self.0.bounds.iter().zip(&self.0.counts) {
            total += count.load(Ordering::Relaxed);
            at_most.push(((exact_f64(*bound) / self.0.divisor).to_string(), total));
        }
        // Added up here, so that the last bucket and the count are the same at any moment.
        total += self.0.counts[self.0.bounds.len()].load(Ordering::Relaxed);
        #[expect(clippy::cast_precision_loss, reason = "a sum may pass 2^53; 53 bits of it do")]
        let sum = self.sum() as f64 / self.0.divisor;
        metric.histogram(labels, at_most, sum, total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_printed_as_prometheus_reads_it() {
        let families = Families::new();
        families.counter("hits_total", "Hits.", &[("storage", "ac")]).add(3);
        families.counter("hits_total", "Hits.", &[("storage", "a\"b")]).add(1);
        families.level("quota_bytes", "Quota.", &[], || 0.5);
        let durations = families.durations("took_seconds", "Time.", &[("operation", "Get")]);
        for nanoseconds in [10_000, 10_001, 3_000_000_000, u64::MAX >> 12] {
            durations.record(nanoseconds);
        }
        let text = families.text();
        for expected in [
            "# TYPE hits_total counter\n",
            "hits_total{storage=\"ac\"} 3\n",
            "hits_total{storage=\"a\\\"b\"} 1\n",
            "quota_bytes 0.5\n",
            "took_seconds_bucket{operation=\"Get\",le=\"0.00001\"} 1\n",
            "took_seconds_bucket{operation=\"Get\",le=\"0.00002\"} 2\n",
            "took_seconds_bucket{operation=\"Get\",le=\"5\"} 3\n",
            "took_seconds_bucket{operation=\"Get\",le=\"+Inf\"} 4\n",
            "took_seconds_count{operation=\"Get\"} 4\n",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
        assert_eq!(text.matches("# TYPE hits_total").count(), 1);
    }
}
