//! `#streamingml:clusTree(…)`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::clus_tree::ClusTree;
use super::float_bits;
use super::k_means_processors::{check_work, cluster_attributes, push_nearest};
use super::parameters::{Parameters, features_of};
use crate::batch::EventKind;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};
use crate::value::Value;

const FORM: &str = "streamingml:clusTree(no.of.clusters [, max.iterations, no.of.events.to.refresh.macro.model, max.height.of.tree, horizon], feature, …)";
/// Constants behind the number of clusters, all of them or none.
const HYPER_PARAMETERS: usize = 4;
/// Clusters, and levels of the tree, which then has at most `3^8` micro clusters.
const CLUSTERS_MAX: i64 = 1000;
const HEIGHT_MAX: i64 = 8;

#[derive(Debug, Clone, Copy)]
struct Settings {
    clusters: usize,
    iterations: usize,
    /// Events between two runs of k-means.
    refresh: u64,
    height: usize,
    horizon: f64,
    /// Index of the first feature among the arguments.
    first: usize,
    features: usize,
}

/// Binds the processor.
pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(FORM, args);
    let clusters = read.integer("no.of.clusters", 1, CLUSTERS_MAX)? as usize;
    let mut settings = Settings {
        clusters,
        iterations: 40,
        refresh: 100,
        height: 8,
        horizon: 1000.0,
        first: 0,
        features: 0,
    };
    match read.constants() {
        0 => {}
        HYPER_PARAMETERS => {
            settings.iterations = read.integer("max.iterations", 1, 10_000)? as usize;
            let max = i64::from(i32::MAX);
            settings.refresh = read.integer("no.of.events.to.refresh.macro.model", 1, max)? as u64;
            settings.height = read.integer("max.height.of.tree", 1, HEIGHT_MAX)? as usize;
            settings.horizon = read.integer("horizon", 1, max)? as f64;
        }
        count => {
            return Err(read.wrong(&format!("{count} constants behind `no.of.clusters`, expected 0 or 4")));
        }
    }
    settings.first = read.place();
    settings.features = read.features(read.attributes()?)?;
    let micro_clusters = 3_usize.pow(settings.height as u32);
    check_work(&read, [clusters, settings.iterations, micro_clusters, settings.features], "micro clusters")?;
    let added = cluster_attributes(settings.features);
    let tree = move || ClusTree::new(settings.height, settings.horizon);
    let made = move || Clusters { settings, now: State { tree: tree(), events: 0, centroids: vec![] } };
    Ok((Arc::new(move || Box::new(made())), added))
}

struct Clusters {
    settings: Settings,
    now: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    tree: ClusTree,
    events: u64,
    #[serde(with = "float_bits::lists")]
    centroids: Vec<Vec<f64>>,
}

impl StreamProcessor for Clusters {
    fn process(
        &mut self,
        mut event: ProcessorEvent,
        args: &[Value],
        _: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        if event.kind != EventKind::Current {
            out.push(event);
            return Ok(());
        }
        let point = features_of(args.get(self.settings.first..).unwrap_or_default())?;
        self.now.tree.add(&point);
        self.now.events += 1;
        if self.now.events.is_multiple_of(self.settings.refresh) {
            self.now.centroids = self.now.tree.centroids(self.settings.clusters, self.settings.iterations);
        }
        push_nearest(&self.now.centroids, &point, &mut event.values);
        out.push(event);
        Ok(())
    }

    fn save(&self) -> Json {
        json!(self.now)
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = |_| EvalError::state("the saved state does not match this clusTree");
        self.now = State::deserialize(state).map_err(wrong)?;
        Ok(())
    }
}
