//! Predictions by models in `tests/cases/pmml`. The expected values are those of JPMML, and of arithmetic by hand.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Column, EvalError, Registry, Value, model_paths};

fn model(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/pmml").join(name);
    std::fs::read_to_string(path).expect("a model")
}

fn registry(text: &str) -> Registry {
    let mut registry = Registry::standard();
    registry.set_model_files(BTreeMap::from([("models/m.pmml".to_owned(), text.to_owned())]));
    registry
}

#[derive(Default)]
struct Lines(Vec<String>);

impl OutputHandler for Lines {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Out" {
            let value = |row: usize| move |column: &Column| column.get(row).to_string();
            let line = |row| events.columns.iter().map(value(row)).collect::<Vec<_>>().join(" | ");
            self.0.extend((0..events.len()).map(line));
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, _: &str, failure: &EvalError) {
        self.0.push(failure.to_string());
    }
}

/// Runs a query that reads `S` with these attributes, and returns what comes out for each event.
fn run(text: &str, attributes: &str, query: &str, events: &[Vec<Value>]) -> Vec<String> {
    let app = format!("define stream S ({attributes});\n{query}\n");
    let plan =
        Arc::new(compile("app.siddhi", &app, &registry(text), &|_| None).unwrap_or_else(|e| panic!("{e}")));
    let (mut runtime, mut lines) = (AppRuntime::new(plan.clone()), Lines::default());
    runtime.start(0, &mut lines);
    let stream = plan.catalog.find("S").expect("a stream");
    for (event, now) in events.iter().zip(1..) {
        let columns = event.iter().zip(&plan.catalog.streams()[stream].attributes).map(|(value, (_, ty))| {
            let mut column = Column::new(*ty);
            column.push(value.clone());
            column
        });
        runtime.send(stream, columns.collect(), vec![now], &mut lines).expect("an event");
    }
    lines.0
}

const WEATHER: &str = "temperature double, humidity double, windy bool, outlook string";

fn weather(strategy: &str, childless: &str) -> Vec<String> {
    let text = model("tree.pmml").replace("STRATEGY", strategy).replace("CHILDLESS", childless);
    let day = |temperature: Option<f64>, humidity: Option<f64>, outlook: Option<&str>| {
        let number = |x: Option<f64>| x.map_or(Value::Null, Value::Double);
        vec![
            number(temperature),
            number(humidity),
            Value::Bool(true),
            outlook.map_or(Value::Null, Value::text),
        ]
    };
    run(
        &text,
        WEATHER,
        "from S#pmml:predict('models/m.pmml') select Predicted_play, Probability_will, Probability_own insert into Out;",
        &[
            day(Some(75.0), Some(55.0), Some("sunny")),
            day(Some(95.0), Some(85.0), Some("sunny")),
            day(Some(75.0), Some(55.0), Some("rain")),
            day(Some(95.0), Some(10.0), Some("sunny")),
            day(None, Some(85.0), Some("sunny")),
            day(Some(75.0), None, None),
            day(Some(75.0), Some(55.0), Some("snow")),
        ],
    )
}

#[test]
fn trees_classify_and_treat_missing_values_as_they_say() {
    let invalid = "pmml:predict: `snow` is not a valid value of `outlook`";
    assert_eq!(
        weather("none", "returnNullPrediction"),
        [
            "will play | 1.0 | 1.0",
            "no play | 0.0 | 0.2",
            "may play | 0.4 | 0.44",
            "null | null | null",
            "no play | 0.0 | 0.2",
            "null | null | null",
            invalid
        ]
    );
    assert_eq!(
        weather("lastPrediction", "returnLastPrediction"),
        [
            "will play | 1.0 | 1.0",
            "no play | 0.0 | 0.2",
            "may play | 0.4 | 0.44",
            "will play | 0.8 | 0.8",
            "will play | 0.8 | 0.8",
            "will play | 0.6 | 0.6",
            invalid
        ]
    );
    assert_eq!(weather("defaultChild", "returnNullPrediction")[4..6], ["will play | 1.0 | 1.0"; 2]);
    assert_eq!(weather("nullPrediction", "returnLastPrediction")[4..6], ["null | null | null"; 2]);
}

#[test]
fn regressions_add_powers_products_and_categories() {
    let lines = run(
        &model("linear.pmml"),
        "years double, age double, salary int, car_location string",
        "from S#pmml:predict('models/m.pmml', age, salary, car_location)
         select math:round(claims * 1000000.0) as claims insert into Out;",
        &[
            vec![Value::Null, Value::Double(20.0), Value::Int(20_000), Value::text("carpark")],
            vec![Value::Null, Value::Double(20.0), Value::Int(20_000), Value::text("street")],
            vec![Value::Null, Value::Null, Value::Int(20_000), Value::text("street")],
            vec![Value::Null, Value::Double(7.0), Value::Int(20_000), Value::Null],
            vec![Value::Null, Value::Double(7.0), Value::Null, Value::Null],
        ],
    );
    assert_eq!(lines, ["433470000", "717400000", "822400000", "377370000", "null"]);
}

#[test]
fn classifications_have_probabilities() {
    let lines = run(
        &model("logistic.pmml"),
        "x double",
        "from S#pmml:predict('models/m.pmml')
         select kind, math:round(p1 * 1000000.0) as p1, math:round(convert(p3, 'double') * 1000000.0) as p3 insert into Out;",
        &[vec![Value::Double(0.0)], vec![Value::Double(2.5)], vec![Value::Double(4.0)], vec![Value::Double(10.0)]],
    );
    assert_eq!(
        lines,
        [
            "1 | 797876 | 24094",
            "2 | 163475 | 392155",
            "3 | 21599 | 715268",
            "pmml:predict: `10` is not a valid value of `x`"
        ]
    );
}

#[test]
fn ensembles_are_one_prediction() {
    let events: Vec<Vec<Value>> =
        [(1.0, 1.0), (3.0, -1.0), (6.0, 2.0)].map(|(a, b)| vec![Value::Double(a), Value::Double(b)]).into();
    let query = "from S#pmml:predict('models/m.pmml') select y insert into Out;";
    let forest = |method: &str| {
        run(&model("forest.pmml").replace("METHOD", method), "a double, b double", query, &events)
    };
    assert_eq!(forest("sum"), ["8.5", "14.0", "22.0"]);
    assert_eq!(forest("average"), ["4.25", "7.0", "7.333333333333333"]);
    assert_eq!(forest("weightedAverage"), ["5.625", "8.5", "7.833333333333333"]);
    assert_eq!(forest("median"), ["4.25", "7.0", "7.0"]);
    assert_eq!(forest("selectFirst"), ["1.5", "4.0", "4.0"]);
    let votes = |method: &str| {
        run(&model("votes.pmml").replace("METHOD", method), "a double, b double", query, &events)
    };
    assert_eq!(votes("majorityVote"), ["no", "yes", "yes"]);
    assert_eq!(votes("weightedMajorityVote"), ["maybe", "no", "yes"]);
    assert_eq!(votes("selectFirst"), ["no", "yes", "yes"]);
}

#[test]
fn what_a_model_has_and_is_not_known_is_refused() {
    let tree = model("tree.pmml").replace("STRATEGY", "none").replace("CHILDLESS", "returnLastPrediction");
    let linear = model("linear.pmml");
    let refused = |text: &str, attributes: &str, call: &str| {
        let app = format!("define stream S ({attributes});\nfrom S#{call} select * insert into Out;\n");
        let why = compile("app.siddhi", &app, &registry(text), &|_| None).err().expect("refused");
        why.lines().take(2).collect::<Vec<_>>().join("")
    };
    let call = "pmml:predict('models/m.pmml')";
    for (text, attributes, call, expected) in [
        (
            tree.clone(),
            WEATHER,
            "pmml:predict('other.pmml')",
            "there is no file `other.pmml`; paths count from",
        ),
        (tree.clone(), WEATHER, "pmml:predict()", "the path must be a constant text --> app.siddhi:2:8"),
        (tree.clone(), WEATHER, "pmml:predict('models/m.pmml', 1.0)", "argument 2 is no attribute"),
        (
            tree.clone(),
            "temperature double",
            call,
            "the model reads `humidity`, and there is no attribute `humidity`",
        ),
        (
            linear.clone(),
            "age bool, salary int, car_location string",
            call,
            "`age` is a double, and the attribute a bool",
        ),
        (
            tree.replace("<TreeModel", "<ClusteringModel").replace("</TreeModel", "</ClusteringModel"),
            WEATHER,
            call,
            "line 15: <ClusteringModel>: is not known here; there are TreeModel",
        ),
        (
            tree.replace("STRATEGY", "")
                .replace("missingValueStrategy=\"none\"", "missingValueStrategy=\"weightedConfidence\""),
            WEATHER,
            call,
            "line 15: <TreeModel>: the strategy `weightedConfidence`",
        ),
        (
            tree.replace("feature=\"predictedValue\"", "feature=\"affinity\""),
            WEATHER,
            call,
            "<OutputField>: the feature `affinity` is not known here",
        ),
        (
            tree.replace("operator=\"lessThan\" value=\"90\"", "operator=\"lessThan\" value=\"warm\""),
            WEATHER,
            call,
            "line 37: <SimplePredicate>: `warm` is no number",
        ),
        (
            tree.replace("field=\"humidity\"", "field=\"humid\""),
            WEATHER,
            call,
            "the data dictionary has no field `humid`",
        ),
        (
            linear.replace(
                "<MiningSchema>",
                "<LocalTransformations><DerivedField name=\"d\"/></LocalTransformations><MiningSchema>",
            ),
            WEATHER,
            call,
            "<DerivedField>: derived fields are not known here",
        ),
        (
            linear.replace("version=\"4.1\"", "version=\"2.1\""),
            WEATHER,
            call,
            "line 1: <PMML>: the version is `2.1`",
        ),
        (linear.replace("</PMML>", ""), WEATHER, call, "the text ends inside of an element"),
        (
            model("forest.pmml").replace("METHOD", "modelChain"),
            "a double, b double",
            call,
            "the method `modelChain` is not known here for a regression",
        ),
        ("no XML".to_owned(), WEATHER, call, "there is no element"),
    ] {
        let why = refused(&text, attributes, call);
        assert!(why.contains(expected), "{expected}\n{why}");
    }
}

#[test]
fn paths_are_found_in_texts() {
    let text =
        "from S#pmml:predict('a/b.pmml', x) from T#pmml : predict ( \"c.pmml\" ) from U#pmml:predict(x)";
    assert_eq!(model_paths(text), ["a/b.pmml", "c.pmml"]);
    let text = "from S#markov:markovChain(id, state, 60 min, 0.2, 'm.csv', false) from S#markov:markovChain(id, state, 1 sec, 0.2, 5)";
    assert_eq!(model_paths(text), ["m.csv"]);
}
