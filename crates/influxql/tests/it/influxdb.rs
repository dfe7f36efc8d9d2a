//! The replies that the case files have of InfluxDB are those of a real one.

use std::fmt::Write as _;
use std::path::Path;

use crate::case_file::{Case, are_equal, files, read};

struct InfluxDb {
    url: String,
    agent: ureq::Agent,
}

impl InfluxDb {
    /// Returns the body of a reply, whatever its status.
    fn send(&self, path: &str, parameters: &[(&str, &str)], is_csv: bool, body: Option<&str>) -> String {
        let url = format!("{}{path}", self.url);
        let parameters = [("u", "tidemill"), ("p", "tidemill"), ("db", "cases")]
            .into_iter()
            .chain(parameters.iter().copied());
        let accept = if is_csv { "text/csv" } else { "application/json" };
        let response = match body {
            Some(body) => self.agent.post(&url).query_pairs(parameters).header("Accept", accept).send(body),
            None => self.agent.get(&url).query_pairs(parameters).header("Accept", accept).call(),
        };
        response.unwrap().body_mut().read_to_string().unwrap()
    }

    fn reply(&self, case: &Case) -> String {
        let mut parameters: Vec<(&str, &str)> = vec![("q", &case.statements)];
        let others = case.parameters.iter().filter(|(name, _)| !["csv", "differs"].contains(&name.as_str()));
        parameters.extend(others.map(|(name, value)| (name.as_str(), value.as_str())));
        // statements that change something are warned about unless they are posted
        let body = case.statements.starts_with("CREATE").then_some("");
        self.send("/query", &parameters, case.parameter("csv").is_some(), body)
    }
}

#[test]
fn the_case_files_have_the_replies_of_influxdb() {
    let Some(server) = tidemill_test_servers::shared("influxdb") else { return };
    let url = server.address("SERVERS_INFLUXDB").replace("tidemill:tidemill@", "");
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let influxdb = InfluxDb { url, agent: config.into() };
    influxdb.send("/query", &[("q", "DROP DATABASE cases")], false, Some(""));
    influxdb.send("/query", &[("q", "CREATE DATABASE cases")], false, Some(""));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let points = std::fs::read_to_string(dir.join("points.lp")).unwrap();
    assert_eq!(influxdb.send("/write", &[], false, Some(&points)), "");
    let (mut count, mut wrong) = (0, String::new());
    for file in files(&dir) {
        for case in read(&std::fs::read_to_string(&file).unwrap()).1 {
            count += 1;
            let reply = influxdb.reply(&case);
            let expected = case.influxdb.as_ref().unwrap_or(&case.here);
            if !are_equal(reply.trim_end(), expected) {
                write!(
                    wrong,
                    "\n{}\n{}\nexpected: {expected}\nInfluxDB: {reply}\n",
                    case.name, case.statements
                )
                .unwrap();
            }
        }
    }
    assert!(count >= 100, "only {count} cases were found");
    assert!(wrong.is_empty(), "{wrong}");
}
