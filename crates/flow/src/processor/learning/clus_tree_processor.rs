//! `#streamingml:clusTree(…)`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::clus_tree::ClusTree;
use super::float_bits;
use super::k_means_processors::{ClusterState, Clusters, check_work, cluster_attributes, push_nearest};
use super::parameters::Parameters;
use crate::columns::value::Value;
use crate::expr::ArgumentType;
use crate::registry::BoundStreamProcessor;

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
    let now = move || TreeClusters { tree: tree(), events: 0, centroids: vec![] };
    let made = move || Clusters { first: settings.first, settings, now: now() };
    Ok((Arc::new(move || Box::new(made())), added))
}

#[derive(Serialize, Deserialize)]
struct TreeClusters {
    tree: ClusTree,
    events: u64,
    #[serde(with = "float_bits::lists")]
    centroids: Vec<Vec<f64>>,
}

impl ClusterState for TreeClusters {
    const NAME: &'static str = "clusTree";
    type Settings = Settings;

    fn learn(&mut self, settings: &Settings, point: Vec<f64>, values: &mut Vec<Value>) {
        self.tree.add(&point);
        self.events += 1;
        if self.events.is_multiple_of(settings.refresh) {
            self.centroids = self.tree.centroids(settings.clusters, settings.iterations);
        }
        push_nearest(&self.centroids, &point, values);
    }
}
