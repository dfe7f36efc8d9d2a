//! Models that one query trains and others predict by: `streamingml`.

use std::sync::Arc;

use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::snapshot::RestoreMode;
use tidemill_flow::{Batch, Column, EvalError, FieldType, Registry, Value};

/// Values of the events of `Out`, and failures.
#[derive(Default)]
struct Lines(Vec<String>);

impl OutputHandler for Lines {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Out" {
            let value = |row: usize| move |column: &Column| column.get(row).to_string();
            let line = |row| events.columns.iter().map(value(row)).collect::<Vec<_>>().join(" ");
            self.0.extend((0..events.len()).map(line));
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.0.push(format!("{query}: {failure}"));
    }
}

/// An app, its output, and the number of the next event.
struct App {
    plan: Arc<tidemill_flow::plan::AppPlan>,
    runtime: AppRuntime,
    lines: Lines,
    now: i64,
}

impl App {
    fn start(text: &str) -> Self {
        Self::start_with(text, &Registry::standard())
    }

    fn start_with(text: &str, registry: &Registry) -> Self {
        let plan = Arc::new(compile("app.siddhi", text, registry, &|_| None).unwrap());
        let (mut runtime, mut lines) = (AppRuntime::new(plan.clone()), Lines::default());
        runtime.start(0, &mut lines);
        Self { plan, runtime, lines, now: 0 }
    }

    fn send(&mut self, stream: &str, values: &[Value]) {
        self.now += 1;
        let stream = self.plan.catalog.find(stream).unwrap();
        let attributes = &self.plan.catalog.streams()[stream].attributes;
        let column = |(value, (_, ty)): (&Value, &(String, FieldType))| {
            let mut column = Column::new(*ty);
            column.push(value.clone());
            column
        };
        let columns = values.iter().zip(attributes).map(column).collect();
        self.runtime.send(stream, columns, vec![self.now], &mut self.lines).unwrap();
    }

    fn restart(&mut self) {
        let mut state = Vec::new();
        self.runtime.save(&mut state).unwrap();
        self.runtime = AppRuntime::new(self.plan.clone());
        self.runtime.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap();
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines.0)
    }
}

/// Returns number `n` of a pattern, from 0 to 1.
fn number(n: i64, k: i64) -> f64 {
    (n * k % 1009) as f64 / 1009.0
}

const TREE: &str = "
define stream Known (a double, b double, kind string);
define stream Unknown (a double, b double);
from Known#streamingml:updateHoeffdingTree('sweets', 2, a, b, kind) select accuracy insert into Trained;
@info(name='classify')
from Unknown#streamingml:hoeffdingTreeClassifier('sweets', a, b) select prediction, confidenceLevel > 0.8 as sure insert into Out;";

#[test]
fn one_query_trains_a_tree_and_another_classifies() {
    for restarts in [false, true] {
        let mut app = App::start(TREE);
        app.send("Unknown", &[Value::Double(0.1), Value::Double(0.1)]);
        assert_eq!(app.take(), ["null false"], "nothing was learnt yet");
        for n in 0..3000 {
            let (a, b) = (number(n, 37), number(n, 53));
            let kind = if b > 0.5 { "candy" } else { "fudge" };
            app.send("Known", &[Value::Double(a), Value::Double(b), Value::text(kind)]);
            if restarts && n % 500 == 7 {
                app.restart();
            }
        }
        app.send("Unknown", &[Value::Double(0.9), Value::Double(0.1)]);
        app.send("Unknown", &[Value::Double(0.1), Value::Double(0.9)]);
        app.send("Unknown", &[Value::Double(f64::NAN), Value::Double(0.9)]);
        assert_eq!(app.take(), ["fudge true", "candy true", "classify: feature 1 of the model is NaN"]);
    }
}

#[test]
fn a_label_too_many_fails_its_event_only() {
    let mut app = App::start(TREE);
    for kind in ["x", "y", "z", "y"] {
        app.send("Known", &[Value::Double(1.0), Value::Double(2.0), Value::text(kind)]);
    }
    let lines = app.take();
    assert!(
        lines.len() == 1 && lines[0].contains("the label `z` is one more than the 2 classes"),
        "{lines:?}"
    );
    app.send("Unknown", &[Value::Double(1.0), Value::Double(2.0)]);
    assert_eq!(app.take(), ["y false"]);
}

#[test]
fn one_query_trains_rules_and_another_predicts() {
    let text = "
        define stream Known (a double, b double, y double);
        define stream Unknown (a double, b double);
        from Known#streamingml:updateAMRulesRegressor('m', 1.0E-7, 0.05, 200, 2, 2, a, b, y) select meanSquaredError insert into Trained;
        from Unknown#streamingml:AMRulesRegressor('m', a, b)
        select prediction > 2.9 and prediction < 3.1 as near, meanSquaredError < 0.5 as learnt insert into Out;";
    let outputs = [false, true].map(|restarts| {
        let mut app = App::start(text);
        for n in 0..10_000 {
            let (a, b) = (number(n, 37), number(n, 53));
            let y = 5.0 * a - 3.0 * b + 2.0;
            app.send("Known", &[Value::Double(a), Value::Double(b), Value::Double(y)]);
            if restarts && n % 1000 == 7 {
                app.restart();
            }
        }
        app.send("Unknown", &[Value::Double(0.5), Value::Double(0.5)]);
        app.take()
    });
    assert_eq!(outputs, [["true true"], ["true true"]]);
}

#[test]
fn clusters_are_found_after_the_first_refresh() {
    let text = "
        define stream S (a double, b double);
        from S#streamingml:clusTree(2, 10, 20, 5, 50, a, b)
        select math:round(closestCentroidCoordinate1) as x, math:round(closestCentroidCoordinate2) as y insert into Out;";
    for restarts in [false, true] {
        let mut app = App::start(text);
        for n in 0..200 {
            let shift = if n % 2 == 0 { 0.0 } else { 10.0 };
            let (a, b) = (number(n, 37) - 0.5, number(n, 53) - 0.5);
            app.send("S", &[Value::Double(shift + 0.5 * a), Value::Double(shift + 0.5 * b)]);
            if restarts && n % 30 == 7 {
                app.restart();
            }
        }
        let lines = app.take();
        assert_eq!(lines.iter().take_while(|line| *line == "null null").count(), 19);
        assert_eq!(lines[198..], ["0 0", "10 10"]);
    }
}

/// Two clouds of points, one event from each in turn.
const CLOUDS: [[f64; 2]; 22] = [
    [5.7905, 7.7499],
    [27.458, 23.8848],
    [3.078, 9.1072],
    [28.326, 26.7484],
    [2.2602, 4.6408],
    [27.3099, 26.1816],
    [0.9441, 0.6502],
    [23.9204, 27.6745],
    [2.0499, 9.9546],
    [23.7947, 20.8627],
    [5.8456, 6.8879],
    [26.7315, 25.5368],
    [5.8812, 5.9116],
    [24.5343, 26.77],
    [4.3866, 0.3132],
    [22.7654, 25.1381],
    [7.7824, 9.2299],
    [23.5167, 24.1244],
    [5.3086, 9.7503],
    [25.47, 25.8574],
    [20.2568, 28.7882],
    [2.9951, 3.9887],
];

/// Returns what a k-means appends to each event of the clouds, in units of 0.0001.
fn clustered(call: &str, restarts: bool) -> Vec<String> {
    let mut app = App::start(&format!(
        "define stream S (a double, b double);
         from S#streamingml:{call}
         select math:round(euclideanDistanceToClosestCentroid * 10000.0) as d,
           math:round(closestCentroidCoordinate1 * 10000.0) as x, math:round(closestCentroidCoordinate2 * 10000.0) as y
         insert into Out;"
    ));
    for (n, [a, b]) in CLOUDS.into_iter().enumerate() {
        app.send("S", &[Value::Double(a), Value::Double(b)]);
        if restarts && n % 3 == 1 {
            app.restart();
        }
    }
    app.take()
}

#[test]
fn centroids_follow_one_event_after_the_other() {
    // the values that Siddhi's own tests expect
    for restarts in [false, true] {
        let lines = clustered("kMeansIncremental(2, 0.2, a, b)", restarts);
        assert_eq!(lines[0], "null null null", "no centroid yet");
        assert_eq!(lines[2..5], ["30331 57905 77499", "29923 274580 238848", "45117 52480 80214"]);
        assert_eq!(lines[19..], ["10700 249670 249130", "60607 250676 251019", "35680 51086 68634"]);
        let lines = clustered("kMeansIncremental(2, a, b)", restarts);
        assert_eq!(lines[19..], ["25900 272743 239992", "84705 272562 240178", "45032 56539 76232"]);
    }
}

#[test]
fn centroids_follow_batches() {
    for restarts in [false, true] {
        for call in ["kMeansMiniBatch(2, 0.2, 10, 20, a, b)", "kMeansMiniBatch(2, a, b)"] {
            let lines = clustered(call, restarts);
            assert!(lines[..20].iter().all(|line| line == "null null null"), "{call}: {lines:?}");
            assert_eq!(lines[20..], ["62127 253827 252779", "27746 43327 64196"], "{call}");
        }
    }
    // three batches of six: what became of the first two moves a quarter of the way with the third
    let means = |events: std::ops::Range<usize>, parity: usize| {
        let of: Vec<_> = events.filter(|n| n % 2 == parity).map(|n| CLOUDS[n]).collect();
        [0, 1].map(|axis| of.iter().map(|point| point[axis]).sum::<f64>() / of.len() as f64)
    };
    let expected = [0, 1].map(|parity| {
        let [a, b, c] = [means(0..6, parity), means(6..12, parity), means(12..18, parity)];
        [0, 1].map(|axis| ((a[axis] * 0.75 + b[axis] * 0.25) * 0.75 + c[axis] * 0.25) * 10_000.0)
    });
    let line = |n: usize, to: [f64; 2]| {
        let d = (CLOUDS[n][0] * 1e4 - to[0]).hypot(CLOUDS[n][1] * 1e4 - to[1]);
        format!("{} {} {}", d.round(), to[0].round(), to[1].round())
    };
    let lines = clustered("kMeansMiniBatch(2, 0.25, 10, 6, a, b)", false);
    assert_eq!(lines[18..20], [line(18, expected[0]), line(19, expected[1])]);
}

const PERCEPTRON: &str = "
define stream Known (a double, b double, c double, d double, kind string);
define stream Unknown (a double, b double, c double, d double);
from Known#streamingml:updatePerceptronClassifier('m', kind, a, b, c, d)
select featureWeight1 as a, featureWeight2 as b, featureWeight3 as c, featureWeight4 as d insert into Trained;
@info(name='classify')
from Unknown#streamingml:perceptronClassifier('m', 0.0, 0.5, a, b, c, d) select prediction, confidenceLevel insert into Out;";

fn send_known(app: &mut App, [a, b, c, d]: [f64; 4], kind: &str) {
    let mut values = [a, b, c, d].map(Value::Double).to_vec();
    values.push(Value::text(kind));
    app.send("Known", &values);
}

#[test]
fn a_perceptron_learns_and_learns_anew() {
    let known = [
        ([1.0, 1.0, 0.2, 0.13], "true"),
        ([0.9, 0.89, 0.3, 0.02], "true"),
        ([0.0, 0.0, 1.0, 0.82], "false"),
        ([0.01, 0.4, 0.77, 0.92], "false"),
        ([0.80, 0.81, 0.11, 0.13], "true"),
        ([0.02, 0.30, 0.88, 0.76], "false"),
        ([0.93, 0.71, 0.02, 0.122], "true"),
        ([0.29, 0.24, 0.98, 0.65], "FALSE"),
    ];
    let changed = [
        ([0.88, 1.0, 0.2, 0.13], "false"),
        ([0.9, 0.79, 0.3, 0.02], "false"),
        ([0.0, 0.0, 0.90, 0.72], "true"),
        ([0.01, 0.4, 0.87, 0.62], "true"),
        ([0.90, 0.91, 0.11, 0.13], "false"),
        ([0.02, 0.30, 0.88, 0.66], "true"),
        ([0.83, 0.79, 0.02, 0.122], "false"),
        ([0.29, 0.24, 0.98, 0.77], "true"),
    ];
    let unknown = [[0.8, 0.67, 0.1, 0.03], [0.33, 0.23, 0.632, 0.992]].map(|x| x.map(Value::Double));
    for restarts in [false, true] {
        let mut app = App::start(PERCEPTRON);
        app.send("Unknown", &unknown[0]);
        assert_eq!(app.take(), ["null null"], "nothing was learnt yet");
        for (events, expected) in [
            (known, ["true 0.5263760000000001", "false 0.2779144"]),
            (changed, ["false 0.333926", "true 0.5128304"]),
        ] {
            for (features, kind) in events {
                send_known(&mut app, features, kind);
                if restarts {
                    app.restart();
                }
            }
            unknown.iter().for_each(|values| app.send("Unknown", values));
            assert_eq!(app.take(), expected);
        }
    }
}

#[test]
fn a_perceptron_tells_its_weights_and_refuses_other_labels() {
    let text = "
        define stream Known (a double, b double, c double, d double, kind string);
        @info(name='train')
        from Known#streamingml:updatePerceptronClassifier('m', kind, 0.01, a, b, c, d)
        select featureWeight1, featureWeight2, featureWeight3, featureWeight4 insert into Out;";
    let mut app = App::start(text);
    send_known(&mut app, [0.1, 0.8, 0.2, 0.03], "true");
    send_known(&mut app, [0.2, 0.95, 0.22, 0.1], "true");
    // predicted, so nothing changes
    send_known(&mut app, [0.8, 0.1, 0.65, 0.92], "false");
    send_known(&mut app, [0.1, 0.8, 0.2, 0.03], "truee");
    assert_eq!(
        app.take(),
        [
            "0.001 0.008 0.002 3.0E-4",
            "0.003 0.0175 0.004200000000000001 0.0013",
            "0.003 0.0175 0.004200000000000001 0.0013",
            "train: the label of `m` must be true or false, found `truee`"
        ]
    );
}

#[test]
fn a_bayesian_regression_narrows_its_predictions() {
    let text = "
        define stream Known (a double, b double, y double);
        define stream Unknown (a double, b double);
        from Known#streamingml:updateBayesianRegression('m', y, 2, 'NADAM', 0.01, a, b) select loss insert into Trained;
        @info(name='predict')
        from Unknown#streamingml:bayesianRegression('m', 1000, a, b)
        select math:round(prediction * 1000000.0) as y, math:round(confidence * 1000000.0) as confidence insert into Out;";
    for restarts in [false, true] {
        let mut app = App::start(text);
        app.send("Unknown", &[Value::Double(0.5), Value::Double(0.5)]);
        for known in [[1.0, 2.0, 3.0], [2.0, -1.0, 0.5], [0.0, 1.5, 2.0], [-1.0, 0.5, -1.0]] {
            app.send("Known", &known.map(Value::Double));
            if restarts {
                app.restart();
            }
        }
        app.send("Unknown", &[Value::Double(0.5), Value::Double(0.5)]);
        app.send("Unknown", &[Value::Double(0.5), Value::Null]);
        // the closed form of the posterior, computed with numpy
        assert_eq!(app.take(), ["null null", "805438 1163624", "predict: feature 2 of the model is null"]);
    }
}

const CHAIN: &str = "
define stream S (id string, state string, train bool);
@info(name='chain')
from S#markov:markovChain(id, state, 60 min, 0.2, 5, train)
select id, lastState, transitionProbability, notify insert into Out;";

fn change(app: &mut App, id: &str, state: &str, train: bool) {
    app.send("S", &[Value::text(id), Value::text(state), Value::Bool(train)]);
}

#[test]
fn a_markov_chain_tells_unlikely_changes() {
    // the values that Siddhi's own tests expect
    for (restarts, trains, last) in
        [(false, true, "0.5"), (true, true, "0.5"), (true, false, "0.3333333333333333")]
    {
        let mut app = App::start(CHAIN);
        let changes = [
            ("1", "a"),
            ("2", "b"),
            ("1", "c"),
            ("3", "a"),
            ("3", "b"),
            ("1", "a"),
            ("1", "b"),
            ("2", "a"),
            ("2", "c"),
            ("4", "a"),
            ("4", "c"),
        ];
        for (n, (id, state)) in changes.into_iter().enumerate() {
            change(&mut app, id, state, trains || n < 8);
            if restarts {
                app.restart();
            }
        }
        assert_eq!(
            app.take(),
            [
                "1 c 0.0 true",
                "1 a 0.5 false",
                "2 b 0.0 true",
                "2 a 0.3333333333333333 false",
                "4 null 0.0 false",
                &format!("4 a {last} false")
            ]
        );
    }
}

#[test]
fn a_markov_chain_forgets_states_after_their_time() {
    let mut app = App::start(&CHAIN.replace("0.2, 5,", "0.2, 0,"));
    change(&mut app, "1", "a", true);
    app.now += 3_599_998;
    change(&mut app, "1", "b", true);
    app.now += 3_599_999;
    change(&mut app, "1", "c", true);
    app.send("S", &[Value::text("1"), Value::Null, Value::Bool(true)]);
    assert_eq!(
        app.take(),
        [
            "1 null 0.0 false",
            "1 a 0.0 true",
            "1 null 0.0 false",
            "chain: `state` of the Markov chain is null"
        ]
    );
}

/// Returns a registry with a matrix in the file `matrix.csv`.
fn with_matrix(text: &str) -> Registry {
    let mut registry = Registry::standard();
    registry.set_model_files([("matrix.csv".to_owned(), text.to_owned())].into());
    registry
}

#[test]
fn a_markov_chain_begins_with_a_matrix() {
    let text = "
        define stream S (id string, state string);
        from S#markov:markovChain(id, state, 60 min, 0.2, 'matrix.csv', TRAIN)
        select lastState, transitionProbability, notify insert into Out;";
    let changes = [
        ("1", "c"),
        ("2", "a"),
        ("1", "b"),
        ("3", "c"),
        ("3", "a"),
        ("1", "c"),
        ("1", "a"),
        ("2", "c"),
        ("2", "b"),
    ];
    let run = |matrix: &str, train: &str, restarts: bool| {
        let mut app = App::start_with(&text.replace("TRAIN", train), &with_matrix(matrix));
        for (id, state) in changes {
            app.send("S", &[Value::text(id), Value::text(state)]);
            if restarts {
                app.restart();
            }
        }
        app.take()
    };
    // the values that Siddhi's own tests expect: a row is divided by its sum in the order of the columns
    let shares = "c, a, b\n0.1,0.6,0.3\n0.3,0.5,0.2\n0.6,0.3,0.1\n";
    for restarts in [false, true] {
        assert_eq!(
            run(shares, "false", restarts),
            [
                "null 0.0 false",
                "null 0.0 false",
                "c 0.3 false",
                "null 0.0 false",
                "c 0.6 false",
                "b 0.6000000000000001 false",
                "c 0.6 false",
                "a 0.3 false",
                "c 0.3 false"
            ]
        );
    }
    // counts, to which the events add
    let counts = "c,a,b\n2,12,6\n6,10,4\n12,6,2\n";
    let lines = run(counts, "true", true);
    assert_eq!(lines[2], "c 0.3 false");
    assert_eq!(lines[4], format!("c {} false", 12.0 / 21.0));
    assert_eq!(lines[6], format!("c {} false", 13.0 / 22.0));
}

#[test]
fn a_matrix_that_is_wrong_is_refused_with_its_line() {
    let text = "define stream S (id string, state string);
        from S#markov:markovChain(id, state, 60 min, 0.2, 'matrix.csv') select notify insert into Out;";
    for (matrix, expected) in [
        ("", "matrix.csv: the file has no line with states"),
        ("a,b\n1,2\n", "there is no line for the state `b`"),
        ("a,b\n1,2\n1,x\n", "line 3: `x` is neither a probability nor a count"),
        ("a,b\n1,2\n1,-1\n", "line 3: `-1` is neither a probability nor a count"),
        ("a,b\n1,2\n1\n", "line 3: 1 values for 2 states"),
        ("a,a\n1,2\n1,2\n", "the state `a` is there twice"),
        ("a\n1\n\n1\n", "line 4: a line more than there are states"),
    ] {
        let why = compile("app.siddhi", text, &with_matrix(matrix), &|_| None).err().expect("refused");
        assert!(why.contains(expected) && why.contains("app.siddhi:2:16"), "{why}");
    }
}
