//! Events, a rule, documents and SQL in one process: `cargo run --example embedded`.

use bson::doc;
use serde_json::json;
use tidemill::{App, Tidemill};

const RULES: &str = r#"
    event TakeOffEvent { flight_id: string, sched: time, actual: time } key flight_id id flight_id time actual;
    event FlightDelayEvent { flight_id: string, delay_min: double } key flight_id;
    entity Flight key id;
    relation flight(): Flight by flight_id;

    rule LateTakeOff {
      when { toe: TakeOffEvent(sched + 20 min < now); flight: toe.flight(); }
      then {
        update flight.on_time = false;
        emit new FlightDelayEvent(toe.flight_id, (toe.actual - toe.sched) / 1 min);
      }
    }
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("tidemill-embedded-{}", std::process::id()));
    let tidemill = Tidemill::open_with(&dir, App::from_rules("flights", RULES))?;
    let delays = tidemill.subscribe("FlightDelayEvent")?;
    tidemill.collection("Flight").insert(&doc! {"id": "HA51", "on_time": true})?;
    let event =
        json!({"flight_id": "HA51", "sched": "2013-01-09T14:00:00Z", "actual": "2013-01-10T11:41:00Z"});
    let reply = tidemill.send("TakeOffEvent", &event)?;
    println!("emitted: {}", serde_json::to_string(&reply.emitted)?);
    println!("document: {:?}", tidemill.collection("Flight").get("HA51")?);
    println!("subscriber saw {} row", delays.recv()?.num_rows());
    println!("SQL sees {} row", tidemill.sql("SELECT * FROM events.FlightDelayEvent")?.num_rows());
    tidemill.close()?;
    Ok(std::fs::remove_dir_all(dir)?)
}
