//! Explanations of events whose traces are no longer retained, by running the rules again over stored events.

use serde_json::json;
use tidemill::{App, Document, EventSelector, Explanation, Tidemill};

const RULES: &str = "
    event Order { id: string, customer: string, amount: double, share: float } key customer id customer, id;
    event Big { customer: string, order: string } key customer;
    event Far { order: string } key order;
    entity Customer key id;
    entity Region key id;
    relation Order.who(): Customer by customer;
    relation Big.who(): Customer by customer;
    relation Order.region(): Region by customer;
    rule First priority 2 { when { o: Order(); not o.who(); } then { insert Customer { id: o.customer, orders: 0, big: 0 }; } }
    rule Count priority 1 { when { o: Order(); c: o.who(); } then { update c.orders += 1; } }
    rule Huge { when { o: Order(amount > 100); c: o.who()(orders < 7); } then { emit Big { customer: o.customer, order: o.id }; emit Far { order: o.id }; } }
    rule Noted { when { b: Big(); c: b.who(); } then { update c.big += 1; } }
    rule Abroad { when { o: Order(); r: o.region()(abroad == true); } then { update r.orders += 1; } }
";

fn open(dir: &std::path::Path, why_events: usize) -> Tidemill {
    let mut app = App::from_rules("shop", RULES);
    app.settings.why_events = why_events;
    Tidemill::open_with(dir, app).unwrap()
}

/// Returns what rules did with an event, without notes on how that was determined.
fn outcomes(why: &Explanation) -> serde_json::Value {
    let mut rules = serde_json::to_value(&why.rules).unwrap();
    // emitted events of the live run have ids that a re-evaluation does not assign
    for rule in rules.as_array_mut().unwrap() {
        for firing in rule.get_mut("firings").and_then(|f| f.as_array_mut()).into_iter().flatten() {
            firing["emitted"] = json!([]);
        }
    }
    rules
}

#[test]
fn what_is_evaluated_again_is_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = Vec::new();
    {
        let tidemill = open(dir.path(), 10_000);
        for n in 0..60 {
            let event = json!({"id": format!("o{n}"), "customer": format!("c{}", n % 7), "amount": n * 5, "share": n as f32 / 10.0});
            let reply = tidemill.send("Order", &event).unwrap();
            let id: EventSelector = reply.events.unwrap()[0].as_ref().unwrap().parse().unwrap();
            let why = tidemill.engine().why(None, &id).unwrap();
            assert_eq!(why[0].evaluated_again, None);
            live.push((id, why));
        }
        tidemill.close().unwrap();
    }
    // an app that retains no traces
    let tidemill = open(dir.path(), 0);
    for (id, before) in live.iter().step_by(7) {
        let again = tidemill.engine().why(None, id).unwrap();
        assert_eq!(outcomes(&again[0]), outcomes(&before[0]), "{}", again[0]);
        let told = again[0].evaluated_again.as_ref().unwrap();
        assert!(told.events >= 1 && told.notes[0].contains("exactly the documents of Customer"), "{told:?}");
        assert!(again[0].to_string().contains("evaluated again over"), "{}", again[0]);
    }
    // by field values: the latest event of each partition
    let by_field = tidemill.engine().why(Some("Huge"), &"id=o30".parse().unwrap()).unwrap();
    assert_eq!(by_field.len(), 1);
    assert!(by_field[0].to_string().contains("Huge fired"), "{}", by_field[0]);
    // 3.1 as a float differs from 3.1 as a double
    let by_float = tidemill.engine().why(Some("Count"), &"share=3.1".parse().unwrap()).unwrap();
    assert_eq!(by_float[0].event["id"], json!("o31"));
    let of_customer = tidemill.engine().why(Some("Count"), &"customer=c3".parse().unwrap()).unwrap();
    assert_eq!(of_customer[0].event["id"], json!("o59"));
    let none = tidemill.engine().why(None, &"id=o99".parse().unwrap()).unwrap_err();
    assert!(none.to_string().contains("no event id=o99"), "{none}");
    tidemill.close().unwrap();
}

#[test]
fn what_cannot_be_known_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let tidemill = open(dir.path(), 0);
    let document = |value: serde_json::Value| -> Document { serde_json::from_value(value).unwrap() };
    tidemill
        .collection("Region")
        .insert(&document(json!({"id": "c1", "abroad": true, "orders": 0})))
        .unwrap();
    for n in 0..3 {
        tidemill.send("Order", &json!({"id": format!("o{n}"), "customer": "c1", "amount": 1})).unwrap();
    }
    let why = |rule: &str, id: &str| {
        let event = format!("id={id}").parse().unwrap();
        tidemill.engine().why(Some(rule), &event).unwrap().remove(0)
    };
    let abroad = why("Abroad", "o0");
    let notes = &abroad.evaluated_again.as_ref().unwrap().notes;
    assert!(notes[0].contains("1 Region documents come neither from events nor from files"), "{notes:?}");
    assert!(abroad.to_string().contains("Abroad fired"), "as the document is now: {abroad}");
    // a rule that does not read regions needs no note about them
    let notes = why("Count", "o1").evaluated_again.unwrap().notes;
    assert_eq!(notes, ["events and files make exactly the documents of Customer that are there now"]);
    let customer = tidemill.collection("Customer");
    customer.update(&document(json!({"id": "c1"})), &document(json!({"$set": {"orders": 50}}))).unwrap();
    let count = why("Count", "o1");
    let notes = &count.evaluated_again.as_ref().unwrap().notes;
    assert!(
        notes[0].contains("1 Customer documents are not now what events and files make of them"),
        "{notes:?}"
    );
    assert!(count.to_string().contains("\"orders\":1"), "what the events made of it: {count}");
    customer.delete(&document(json!({"id": "c1"}))).unwrap();
    let notes = why("Count", "o1").evaluated_again.unwrap().notes;
    assert!(
        notes[0].contains("1 Customer documents that events and files make are not there any more"),
        "{notes:?}"
    );
    tidemill.close().unwrap();
}
