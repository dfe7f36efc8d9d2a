//! InfluxQL over HTTP: the case files of the crate `influxql`, whose replies a real InfluxDB has given, over SQL and from files.

#[path = "../../../influxql/src/tests/case_file.rs"]
mod case_file;

use std::fmt::Write as _;
use std::path::Path;

use self::case_file::{Case, are_equal, files, read};
use crate::{Serving, interrupt, run, serve_data, sql};

struct World {
    _dir: tempfile::TempDir,
    data: String,
    /// Token of a user who may read one of the streams.
    reader: String,
    serving: Serving,
    agent: ureq::Agent,
}

impl World {
    fn new() -> Self {
        let cases = cases();
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let app = cases.join("streams.rules");
        run(&["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
        let directory = ["--data", data.to_str().unwrap()];
        let user = ["users", "add", "reader", "--no-password", "--grant", "read stream:mem"];
        run(&[&user[..], &directory].concat(), 0);
        let (reader, _) = run(&[&["tokens", "new", "reader"][..], &directory].concat(), 0);
        let serving = serve_data(&data);
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let world = Self {
            data: data.to_str().unwrap().to_owned(),
            _dir: dir,
            reader: reader.trim().to_owned(),
            serving,
            agent: config.into(),
        };
        let points = std::fs::read_to_string(cases.join("points.lp")).unwrap();
        let url = format!("{}/write?db=any&p={}", world.serving.base, world.serving.token);
        assert_eq!(world.agent.post(url).send(points).unwrap().status(), 204);
        world
    }

    /// Returns status and body of the reply to a statement.
    fn ask(&self, token: &str, statement: &str, parameters: &[(&str, &str)], is_csv: bool) -> (u16, String) {
        let request = self.agent.get(format!("{}/query", self.serving.base)).query("q", statement);
        let request = request
            .query_pairs(parameters.iter().copied())
            .header("Authorization", format!("Token {token}"))
            .header("Accept", if is_csv { "text/csv" } else { "application/json" });
        let mut response = request.call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    fn differences(&self) -> String {
        let (mut count, mut wrong) = (0, String::new());
        for file in files(&cases()) {
            for case in read(&std::fs::read_to_string(&file).unwrap()).1 {
                count += 1;
                let Case { name, statements, here, influxdb, .. } = &case;
                assert_ne!(influxdb.as_ref(), Some(here), "{name}");
                let sent =
                    case.parameters.iter().filter(|(name, _)| !["csv", "differs"].contains(&name.as_str()));
                let sent: Vec<(&str, &str)> =
                    sent.map(|(name, value)| (name.as_str(), value.as_str())).collect();
                let is_csv = case.parameter("csv").is_some();
                let (status, reply) = self.ask(&self.serving.token, statements, &sent, is_csv);
                assert_eq!(status == 400, here.starts_with("{\"error\""), "{name}: {status} {reply}");
                if !are_equal(reply.trim_end(), here) {
                    write!(wrong, "\n{name}\n{statements}\nexpected: {here}\nfound:    {reply}\n").unwrap();
                }
            }
        }
        assert!(count >= 100, "only {count} cases were found");
        wrong
    }
}

fn cases() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../influxql/tests/cases")
}

#[test]
fn replies_are_those_of_influxdb_in_memory_and_from_files() {
    let mut world = World::new();
    let wrong = world.differences();
    assert!(wrong.is_empty(), "{wrong}");
    // a stop writes what is in memory to files
    interrupt(world.serving.pid());
    world.serving.child.wait().unwrap();
    world.serving = serve_data(Path::new(&world.data));
    let in_files = "select count(*) as n from system.streams where tail_rows = 0 and tablets > 0";
    assert_eq!(sql(&world.data, in_files), [serde_json::json!({"n": 4})]);
    let wrong = world.differences();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn streams_that_a_caller_may_not_read_do_not_exist() {
    let world = World::new();
    let ask = |statement: &str| {
        let (status, reply) = world.ask(&world.reader, statement, &[], false);
        assert_eq!(status, 200, "{reply}");
        reply.trim_end().to_owned()
    };
    let nothing = "{\"results\":[{\"statement_id\":0}]}";
    for statement in [
        "SELECT usage FROM cpu",
        "SELECT count(usage) FROM cpu GROUP BY host",
        "SELECT * FROM /cpu/",
        "SELECT nosuch FROM nosuch",
        "SELECT mean(usage) FROM (SELECT usage FROM cpu)",
        "SHOW TAG VALUES FROM cpu WITH KEY = host",
        "SHOW FIELD KEYS FROM cpu",
        "SHOW SERIES FROM cpu",
        "SHOW MEASUREMENTS WITH MEASUREMENT = cpu",
    ] {
        assert_eq!(ask(statement), nothing, "{statement}");
    }
    assert_eq!(
        ask("SHOW MEASUREMENTS"),
        "{\"results\":[{\"statement_id\":0,\"series\":[{\"name\":\"measurements\",\"columns\":[\"name\"],\"values\":[[\"mem\"]]}]}]}"
    );
    assert!(ask("SELECT count(used) FROM mem, cpu").contains("[[\"1970-01-01T00:00:00Z\",24]]"));
    assert!(!ask("SHOW SERIES; SHOW TAG KEYS; SHOW FIELD KEYS").contains("cpu"));
}
