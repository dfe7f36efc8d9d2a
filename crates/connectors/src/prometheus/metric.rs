//! Metrics that events update, and their text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use sketches_ddsketch::{Config, DDSketch};

/// Combinations of labels of one metric. Each one stays in memory, here and in Prometheus.
const SERIES_MAX: usize = 100_000;
/// Buckets of a histogram if none are written: those of Prometheus' client libraries.
pub(super) const BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Quantiles are of the values within this time, which slides in steps.
const QUANTILE_STEP: Duration = Duration::from_secs(120);
const QUANTILE_STEPS: usize = 5;
/// Memory of a quantile sketch: counters at most. Values below the least one count as zero.
const SKETCH_BINS_MAX: u32 = 8192;
const SKETCH_LEAST: f64 = 1e-9;

/// Description of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricSpec {
    pub(super) name: String,
    pub(super) help: String,
    pub(super) kind: MetricKind,
    pub(super) labels: Vec<String>,
}

/// Type of a metric, with what its values need.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MetricKind {
    /// Sum of values, which are not negative.
    Counter,
    /// Sum of values, or the last value.
    Gauge {
        /// True if a value replaces the one before.
        set: bool,
    },
    /// Numbers of values up to each of these limits, which increase.
    Histogram(Vec<f64>),
    /// Quantiles of recent values, with their relative error.
    Summary {
        /// Quantiles from 0 to 1.
        quantiles: Vec<f64>,
        /// Relative error above 0 and below 1.
        error: f64,
    },
}

impl MetricKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge { .. } => "gauge",
            Self::Histogram(_) => "histogram",
            Self::Summary { .. } => "summary",
        }
    }
}

/// Metric with a value for each combination of labels.
pub(super) struct LabelledMetric {
    pub(super) spec: MetricSpec,
    series: BTreeMap<Vec<String>, Series>,
}

#[derive(Default)]
struct Series {
    sum: f64,
    count: u64,
    /// Of a histogram: values in each bucket alone.
    buckets: Vec<u64>,
    quantiles: Option<RecentValues>,
}

impl LabelledMetric {
    pub(super) fn new(spec: MetricSpec) -> Self {
        Self { spec, series: BTreeMap::new() }
    }

    /// Updates the metric with the value of an event. Errors: why the event is refused.
    pub(super) fn update(&mut self, labels: Vec<String>, value: f64, now: Instant) -> Result<(), String> {
        if self.spec.kind == MetricKind::Counter && (value.is_nan() || value < 0.0) {
            return Err(format!("a counter cannot be increased by {value}"));
        }
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&labels) {
            return Err(format!("the metric has {SERIES_MAX} combinations of labels, which is the limit"));
        }
        let series = self.series.entry(labels).or_default();
        series.count += 1;
        match &self.spec.kind {
            MetricKind::Gauge { set: true } => series.sum = value,
            MetricKind::Counter | MetricKind::Gauge { .. } => series.sum += value,
            MetricKind::Histogram(limits) => {
                series.sum += value;
                series.buckets.resize(limits.len() + 1, 0);
                series.buckets[limits.partition_point(|limit| *limit < value)] += 1;
            }
            MetricKind::Summary { error, .. } => {
                series.sum += value;
                series.quantiles.get_or_insert_with(|| RecentValues::new(*error, now)).add(value, now);
            }
        }
        Ok(())
    }

    /// Writes the metric in Prometheus' text format.
    pub(super) fn write(&mut self, now: Instant, out: &mut String) {
        let name = &self.spec.name;
        // writing to a string cannot fail
        let _ = writeln!(out, "# HELP {name} {}", escaped(&self.spec.help, false));
        let _ = writeln!(out, "# TYPE {name} {}", self.spec.kind.name());
        for (values, series) in &mut self.series {
            let labels: Vec<(&str, &str)> =
                self.spec.labels.iter().map(String::as_str).zip(values.iter().map(String::as_str)).collect();
            match &self.spec.kind {
                MetricKind::Counter | MetricKind::Gauge { .. } => {
                    write_sample(out, name, "", &labels, None, series.sum);
                    continue;
                }
                MetricKind::Histogram(limits) => {
                    let mut count = 0;
                    for (limit, values) in limits.iter().copied().chain([f64::INFINITY]).zip(&series.buckets)
                    {
                        count += values;
                        let limit = number(limit);
                        write_sample(out, name, "_bucket", &labels, Some(("le", &limit)), count as f64);
                    }
                }
                MetricKind::Summary { quantiles, .. } => {
                    for quantile in quantiles {
                        let recent = series.quantiles.as_mut();
                        let value =
                            recent.and_then(|recent| recent.quantile(*quantile, now)).unwrap_or(f64::NAN);
                        let quantile = number(*quantile);
                        write_sample(out, name, "", &labels, Some(("quantile", &quantile)), value);
                    }
                }
            }
            write_sample(out, name, "_count", &labels, None, series.count as f64);
            write_sample(out, name, "_sum", &labels, None, series.sum);
        }
    }
}

fn write_sample(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(&str, &str)],
    own: Option<(&str, &str)>,
    value: f64,
) {
    out.push_str(name);
    out.push_str(suffix);
    let mut separator = '{';
    for (label, text) in labels.iter().copied().chain(own) {
        let _ = write!(out, "{separator}{label}=\"{}\"", escaped(text, true));
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {}", number(value));
}

fn escaped(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quoted { text.replace('"', "\\\"") } else { text }
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        value => value.to_string(),
    }
}

/// Sketches of the values within the last steps: each covers one step more than the next one.
struct RecentValues {
    config: Config,
    sketches: Vec<DDSketch>,
    /// When the first sketch is replaced.
    until: Instant,
}

impl RecentValues {
    fn new(error: f64, now: Instant) -> Self {
        let config = Config::new(error, SKETCH_BINS_MAX, SKETCH_LEAST);
        let sketches = (0..QUANTILE_STEPS).map(|_| DDSketch::new(config)).collect();
        Self { config, sketches, until: now + QUANTILE_STEP }
    }

    fn rotate(&mut self, now: Instant) {
        for _ in 0..QUANTILE_STEPS {
            if now < self.until {
                return;
            }
            self.sketches.remove(0);
            self.sketches.push(DDSketch::new(self.config));
            self.until += QUANTILE_STEP;
        }
        // nothing came for longer than all steps
        self.until = self.until.max(now + QUANTILE_STEP);
    }

    fn add(&mut self, value: f64, now: Instant) {
        self.rotate(now);
        if value.is_finite() {
            self.sketches.iter_mut().for_each(|sketch| sketch.add(value));
        }
    }

    fn quantile(&mut self, quantile: f64, now: Instant) -> Option<f64> {
        self.rotate(now);
        self.sketches[0].quantile(quantile).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(kind: MetricKind, labels: &[&str]) -> LabelledMetric {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        LabelledMetric::new(MetricSpec { name: "m".into(), help: "a\\b\nc".into(), kind, labels })
    }

    fn text(metric: &mut LabelledMetric, now: Instant) -> String {
        let mut out = String::new();
        metric.write(now, &mut out);
        out
    }

    #[test]
    fn counters_and_gauges() {
        let now = Instant::now();
        let mut counter = metric(MetricKind::Counter, &["a"]);
        for (label, value) in [("x", 1.0), ("y\"\\\n", 2.5), ("x", 2.0)] {
            counter.update(vec![label.into()], value, now).unwrap();
        }
        for value in [-1.0, f64::NAN] {
            assert!(counter.update(vec!["x".into()], value, now).is_err());
        }
        let expected = "# HELP m a\\\\b\\nc\n# TYPE m counter\nm{a=\"x\"} 3\nm{a=\"y\\\"\\\\\\n\"} 2.5\n";
        assert_eq!(text(&mut counter, now), expected);
        for (set, expected) in [(false, "m -1\n"), (true, "m -3\n")] {
            let mut gauge = metric(MetricKind::Gauge { set }, &[]);
            gauge.update(vec![], 2.0, now).unwrap();
            gauge.update(vec![], -3.0, now).unwrap();
            assert!(text(&mut gauge, now).ends_with(expected));
        }
    }

    #[test]
    fn histograms_accumulate() {
        let now = Instant::now();
        let mut histogram = metric(MetricKind::Histogram(vec![1.0, 5.0]), &[]);
        for value in [0.5, 1.0, 3.0, 9.0] {
            histogram.update(vec![], value, now).unwrap();
        }
        let expected =
            "m_bucket{le=\"1\"} 2\nm_bucket{le=\"5\"} 3\nm_bucket{le=\"+Inf\"} 4\nm_count 4\nm_sum 13.5\n";
        assert!(text(&mut histogram, now).ends_with(expected));
    }

    #[test]
    fn quantiles_are_of_recent_values() {
        let start = Instant::now();
        let mut summary = metric(MetricKind::Summary { quantiles: vec![0.5, 0.99], error: 0.001 }, &[]);
        for value in 1..=1000 {
            summary.update(vec![], f64::from(value), start).unwrap();
        }
        let quantiles = |text: &str| -> Vec<f64> {
            let lines = text.lines().filter(|line| line.contains("quantile"));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
        };
        let first = quantiles(&text(&mut summary, start));
        assert!((first[0] - 500.0).abs() < 2.0 && (first[1] - 990.0).abs() < 2.0, "{first:?}");
        summary.update(vec![], 7.0, start + QUANTILE_STEP * 3).unwrap();
        let later = text(&mut summary, start + QUANTILE_STEP * 6);
        assert!((quantiles(&later)[0] - 7.0).abs() < 0.1, "{later}");
        assert!(later.ends_with("m_count 1001\nm_sum 500507\n"));
        assert!(quantiles(&text(&mut summary, start + QUANTILE_STEP * 60))[0].is_nan());
    }
}
