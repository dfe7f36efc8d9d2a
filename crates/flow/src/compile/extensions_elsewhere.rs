//! Extensions of other SiddhiQL systems that there are not here, and what to use instead.

/// Names or namespaces, and what to use instead.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "rdbms:cud",
        "write the rows with `insert into`, `update` or `delete` of a table with `@store(type='rdbms')`",
    ),
    ("rdbms:query", "join a table with `@store(type='rdbms')`"),
    (
        "file",
        "queries are repeated after a crash, and what they did to files would be done twice, perhaps to other files: move and \
         delete files by `action.after.process` of a source of type `file`, and let a program that reads a sink do the rest",
    ),
    (
        "streamingml",
        "there are k-means, the perceptron, Bayesian regression, the Hoeffding tree, AMRules and clusTree; train other models \
         elsewhere, and score events by a service with `@sink(type='http-call')`",
    ),
    (
        "ml",
        "train models elsewhere, and score events by `pmml:predict` or by a service with `@sink(type='http-call')`",
    ),
    ("pmml", "there is `pmml:predict`"),
    (
        "tensorFlow",
        "export trees and regressions as PMML for `pmml:predict`, or score events by a service with `@sink(type='http-call')`",
    ),
    (
        "tensorflow",
        "export trees and regressions as PMML for `pmml:predict`, or score events by a service with `@sink(type='http-call')`",
    ),
    (
        "geo",
        "there are `geo:distance`, `within`, `contains`, `intersects`, `disjoint`, `touches`, `overlaps`, `equals` and \
         `withinDistance`; compare events by a pattern or a join with them",
    ),
    ("gpl", "ask a service with `@sink(type='http-call')`"),
    ("nlp", "ask a service with `@sink(type='http-call')`"),
    (
        "sentiment",
        "join the words of `#str:tokenize(text, ' ')` with a table of rated words, or ask a service with \
         `@sink(type='http-call')`",
    ),
    ("markov", "there is `markov:markovChain`"),
    ("graph", "ask a service with `@sink(type='http-call')`"),
    ("timeseries", "use `timeseries:regress`, `forecast` and `outlier`, or a pattern over the values"),
    (
        "r",
        "functions of R do not run here: write them in JavaScript, or ask a service with `@sink(type='http-call')`",
    ),
    ("eventTable", "define a table"),
    ("evalscript", "define a function: `define function f[javascript] return int { … }`"),
];

/// Returns what to use instead of an extension that there is not here.
pub(crate) fn instead_of(name: &str) -> Option<&'static str> {
    let namespace = name.split_once(':').map(|(namespace, _)| namespace);
    let is_it = |known: &str| known == name || namespace.is_some_and(|namespace| known == namespace);
    ELSEWHERE.iter().find(|(known, _)| is_it(known)).map(|(_, instead)| *instead)
}
