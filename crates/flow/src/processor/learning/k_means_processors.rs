//! `#streamingml:kMeansIncremental(…)` and `#streamingml:kMeansMiniBatch(…)`.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use super::float_bits;
use super::k_means::{k_means_from, nearest};
use super::parameters::{Parameters, features_of};
use crate::columns::batch::EventKind;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};

const INCREMENTAL: &str = "streamingml:kMeansIncremental(no.of.clusters [, decay.rate], feature, …)";
const MINI_BATCH: &str = "streamingml:kMeansMiniBatch(no.of.clusters [, decay.rate] [, maximum.iterations, no.of.events.to.retrain], feature, …)";
const CLUSTERS_MAX: i64 = 1000;
/// Events of a batch, and turns of k-means over it.
const BATCH_MAX: i64 = 100_000;
const ITERATIONS_MAX: i64 = 10_000;
/// Differences that one run of k-means computes at most: about two seconds. One event must not hold up the others for longer.
const WORK_MAX: u128 = 2_000_000_000;

/// Returns the attributes that tell the nearest centroid of a point with so many features.
pub(super) fn cluster_attributes(features: usize) -> Vec<(String, FieldType)> {
    let coordinates = (1..=features).map(|n| format!("closestCentroidCoordinate{n}"));
    let names = std::iter::once("euclideanDistanceToClosestCentroid".to_owned()).chain(coordinates);
    names.map(|name| (name, FieldType::Double)).collect()
}

/// Appends the distance to the nearest centroid and its coordinates, or nulls before the first centroid.
pub(super) fn push_nearest(centroids: &[Vec<f64>], point: &[f64], to: &mut Vec<Value>) {
    match nearest(centroids, point) {
        Some((at, square)) => {
            to.push(Value::Double(square.sqrt()));
            to.extend(centroids[at].iter().map(|x| Value::Double(*x)));
        }
        None => to.extend(vec![Value::Null; point.len() + 1]),
    }
}

/// Refuses a run of k-means over so many points, `points` by name, that would hold up other events.
pub(super) fn check_work(read: &Parameters<'_>, factors: [usize; 4], points: &str) -> Result<(), String> {
    let work = factors.iter().map(|n| *n as u128).product::<u128>();
    let [clusters, iterations, count, features] = factors;
    match work > WORK_MAX {
        true => Err(read.wrong(&format!(
            "{clusters} clusters, {iterations} iterations, {count} {points} and {features} features multiply to {work}; \
             the limit is {WORK_MAX}"
        ))),
        false => Ok(()),
    }
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    clusters: usize,
    decay: f64,
    /// Turns of k-means over a batch, and events of a batch; `None` for one event after the other.
    batch: Option<(usize, usize)>,
    /// Index of the first feature among the arguments.
    first: usize,
}

/// Binds `kMeansIncremental`.
pub(super) fn incremental(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(INCREMENTAL, args);
    let clusters = read.integer("no.of.clusters", 1, CLUSTERS_MAX)? as usize;
    let decay = match read.next_constant() {
        Some(_) => read.threshold("decay.rate")?,
        None => 0.01,
    };
    build(&read, Settings { clusters, decay, batch: None, first: read.place() })
}

/// Binds `kMeansMiniBatch`.
pub(super) fn mini_batch(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(MINI_BATCH, args);
    let clusters = read.integer("no.of.clusters", 1, CLUSTERS_MAX)? as usize;
    let decay = if read.is_fraction_next() { read.threshold("decay.rate")? } else { 0.01 };
    let (mut iterations, mut events) = (50, 20);
    match read.constants() {
        0 => {}
        2 => {
            iterations = read.integer("maximum.iterations", 1, ITERATIONS_MAX)? as usize;
            events = read.integer("no.of.events.to.retrain", 1, BATCH_MAX)? as usize;
        }
        count => {
            return Err(read.wrong(&format!(
                "{count} whole numbers behind `no.of.clusters`, expected both `maximum.iterations` and `no.of.events.to.retrain`, or none"
            )));
        }
    }
    let features = read.features(read.attributes()?)?;
    check_work(&read, [clusters, iterations, events, features], "events")?;
    build(&read, Settings { clusters, decay, batch: Some((iterations, events)), first: read.place() })
}

fn build(read: &Parameters<'_>, settings: Settings) -> Result<BoundStreamProcessor, String> {
    let features = read.features(read.attributes()?)?;
    let made = move || Clusters { first: settings.first, settings, now: KMeans::default() };
    Ok((Arc::new(move || Box::new(made())), cluster_attributes(features)))
}

#[derive(Default, Serialize, Deserialize)]
struct KMeans {
    #[serde(with = "float_bits::lists")]
    centroids: Vec<Vec<f64>>,
    /// Points since the last run of k-means.
    #[serde(with = "float_bits::lists")]
    batch: Vec<Vec<f64>>,
}

impl KMeans {
    /// Moves the nearest centroid towards a point. The first points that differ are the first centroids.
    fn learn_point(&mut self, point: Vec<f64>, settings: Settings) {
        match nearest(&self.centroids, &point) {
            Some((at, square)) if self.centroids.len() >= settings.clusters || square == 0.0 => {
                move_towards(&mut self.centroids[at], &point, settings.decay);
            }
            _ => self.centroids.push(point),
        }
    }

    /// Runs k-means over the batch, and moves each centroid towards the one that became of it.
    fn learn_batch(&mut self, settings: Settings, iterations: usize) {
        let points: Vec<_> = std::mem::take(&mut self.batch).into_iter().map(|point| (point, 1.0)).collect();
        let mut reached =
            k_means_from(self.centroids.clone(), &points, settings.clusters, iterations).into_iter();
        for (centroid, target) in self.centroids.iter_mut().zip(reached.by_ref()) {
            move_towards(centroid, &target, settings.decay);
        }
        self.centroids.extend(reached);
    }
}

fn move_towards(centroid: &mut [f64], target: &[f64], share: f64) {
    centroid.iter_mut().zip(target).for_each(|(old, new)| *old = *old * (1.0 - share) + new * share);
}

impl ClusterState for KMeans {
    const NAME: &'static str = "k-means";
    type Settings = Settings;

    fn learn(&mut self, settings: &Settings, point: Vec<f64>, values: &mut Vec<Value>) {
        push_nearest(&self.centroids, &point, values);
        match settings.batch {
            None => self.learn_point(point, *settings),
            Some((iterations, events)) => {
                self.batch.push(point);
                if self.batch.len() >= events {
                    self.learn_batch(*settings, iterations);
                }
            }
        }
    }
}

/// Clusters of points that a processor learns, as they are saved.
pub(super) trait ClusterState: Serialize + DeserializeOwned + Send {
    /// Name in errors.
    const NAME: &'static str;
    /// Parameters of the processor.
    type Settings: Send;

    /// Learns a point, and appends the attributes of its nearest centroid to `values`.
    fn learn(&mut self, settings: &Self::Settings, point: Vec<f64>, values: &mut Vec<Value>);
}

/// Processor that adds the nearest centroid to each event.
pub(super) struct Clusters<S: ClusterState> {
    /// Index of the first feature among the arguments.
    pub(super) first: usize,
    pub(super) settings: S::Settings,
    pub(super) now: S,
}

impl<S: ClusterState> StreamProcessor for Clusters<S> {
    fn process(
        &mut self,
        mut event: ProcessorEvent,
        args: &[Value],
        _: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        if event.kind == EventKind::Current {
            let point = features_of(args.get(self.first..).unwrap_or_default())?;
            self.now.learn(&self.settings, point, &mut event.values);
        }
        out.push(event);
        Ok(())
    }

    fn save(&self) -> Json {
        json!(self.now)
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = |_| EvalError::state(format!("the saved state does not match this {}", S::NAME));
        self.now = S::deserialize(state).map_err(wrong)?;
        Ok(())
    }
}
