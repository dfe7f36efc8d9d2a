//! Examples of the help texts.

use std::path::Path;

use super::{World, help_of};
use crate::{root, run};

/// App with the names that the examples use and the flights do not have.
const TRADES: &str = "define stream Trades (symbol string, price double);
define table Last (symbol string, price double);
@info(name = 'average') from Trades[price > 0] select symbol, avg(price) as mean group by symbol insert into Means;
from Trades select symbol, price update or insert into Last on Last.symbol == symbol;
";

fn run_all(world: &World, commands: &[String], wrong: &mut Vec<String>) {
    let place = world.place("help");
    fixtures(&place);
    let data = place.join("trades");
    run(&["run", place.join("app").to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
    for command in commands {
        // only this table is not in the flights' app
        let own = command.replace("--data data", &format!("--data {}", data.display()));
        let text = if command.contains("from Last") { own } else { command.clone() };
        let (printed, code) = world.shell(&place, &text);
        // a cluster is more than the examples have
        let is_refused = command.starts_with("tidemill cluster")
            && ["no node runs", "this server is alone", "is no data directory"]
                .iter()
                .any(|text| printed.contains(text));
        if code != 0 && !is_refused {
            wrong.push(format!("help: {command}\nexit code {code}\n{printed}"));
        }
    }
}

/// Runs the examples of all commands.
pub fn examples(world: &World, wrong: &mut Vec<String>) {
    let overview = help_of(None);
    // groups of commands, each with a heading, stand between the usage and the options
    let listed = overview.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1);
    let lines = listed.take_while(|line| *line != "Options:").filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split_whitespace().next());
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    let mut commands = Vec::new();
    for name in std::iter::once(None).chain(names.iter().copied().map(Some)) {
        let text = help_of(name);
        let behind = text.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
        let mut examples: Vec<String> = Vec::new();
        for line in behind.map(str::trim) {
            match examples.last_mut() {
                // long lines are wrapped
                Some(last) if !line.starts_with("tidemill ") => *last = format!("{last} {line}"),
                _ => examples.push(without_remark(line)),
            }
        }
        if examples.is_empty() {
            wrong.push(format!("help of {name:?}: there is no example"));
        }
        commands.extend(examples);
    }
    assert!(names.len() > 10, "{overview}");
    run_all(world, &commands, wrong);
}

/// Removes the remark in parentheses after a command.
fn without_remark(line: &str) -> String {
    line.split_once("   ").map_or(line, |(command, _)| command).trim().to_owned()
}

/// Creates the files that the examples use.
fn fixtures(place: &Path) {
    std::fs::create_dir(place.join("app")).unwrap();
    std::fs::write(place.join("app/app.siddhi"), TRADES).unwrap();
    std::fs::write(place.join("app.siddhi"), TRADES).unwrap();
    let event = "{\"stream\": \"Trades\", \"timestamp\": 1000, \"data\": [\"A\", 10.0]}\n";
    std::fs::write(place.join("events.jsonl"), event).unwrap();
    std::fs::write(place.join("trades.csv"), "symbol,price\nA,10.0\nB,11.5\n").unwrap();
    std::fs::create_dir(place.join("changed")).unwrap();
    std::os::unix::fs::symlink(root().join("examples/flights"), place.join("changed/flights")).unwrap();
    std::fs::create_dir(place.join("cases")).unwrap();
    let case = serde_json::json!({"app": "define stream S (n int); from S select n insert into O;",
        "inputs": [{"stream": "S", "timestamp": 1, "data": [1]}], "outputs": ["O"],
        "expected": [{"input": 0, "stream": "O", "timestamp": 1, "data": [1]}]});
    std::fs::write(place.join("cases/one.json"), case.to_string()).unwrap();
}
