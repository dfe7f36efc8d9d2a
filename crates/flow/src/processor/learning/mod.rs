//! The extensions `streamingml` and `markov`: models that learn from each event and predict for the next, without a pass over stored data.
//!
//! A model has a name, which the query that trains it shares with those that predict by it: see [`crate::models`].
//! Nothing is random, so equal events make equal models. Models are bounded in memory and part of the saved state.

mod adwin;
mod am_rules;
mod am_rules_processors;
mod bayesian;
mod bayesian_processors;
mod clus_tree;
mod clus_tree_processor;
mod float_bits;
mod gaussian;
mod hoeffding;
mod hoeffding_processors;
mod k_means;
mod k_means_processors;
mod leaf;
mod markov;
mod model_processor;
mod parameters;
mod perceptron_processors;
mod regression;

use std::collections::BTreeMap;

use crate::registry::Registry;

/// Registers the processors.
pub(super) fn register(registry: &mut Registry) {
    registry.stream_processor("streamingml:updateHoeffdingTree", hoeffding_processors::train);
    registry.stream_processor("streamingml:hoeffdingTreeClassifier", hoeffding_processors::classify);
    registry.stream_processor("streamingml:updateAMRulesRegressor", am_rules_processors::train);
    registry.stream_processor("streamingml:AMRulesRegressor", am_rules_processors::predict);
    registry.stream_processor("streamingml:updatePerceptronClassifier", perceptron_processors::train);
    registry.stream_processor("streamingml:perceptronClassifier", perceptron_processors::classify);
    registry.stream_processor("streamingml:updateBayesianRegression", bayesian_processors::train);
    registry.stream_processor("streamingml:bayesianRegression", bayesian_processors::predict);
    registry.stream_processor("streamingml:kMeansIncremental", k_means_processors::incremental);
    registry.stream_processor("streamingml:kMeansMiniBatch", k_means_processors::mini_batch);
    registry.stream_processor("streamingml:clusTree", clus_tree_processor::build);
    // the documentation of the original writes both
    registry.stream_processor("streamingml:ClusTree", clus_tree_processor::build);
}

/// Registers the processors that read files.
pub(super) fn set_model_files(registry: &mut Registry, files: &BTreeMap<String, String>) {
    let files = files.clone();
    registry.stream_processor("markov:markovChain", move |args| markov::build(args, &files));
}
