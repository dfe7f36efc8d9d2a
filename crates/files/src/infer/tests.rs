use std::io::Cursor;

use super::*;

fn input(text: &str) -> Box<dyn Read + Send> {
    Box::new(Cursor::new(text.to_owned().into_bytes()))
}

fn types(stream: &InferredStream) -> String {
    let fields: Vec<String> = stream.fields.iter().map(|f| format!("{} {}", f.name, f.ty)).collect();
    fields.join(", ")
}

#[test]
fn cells_of_a_column_have_one_type() {
    let text =
        "id,at,price,ok,code,none,_x\n1,2016-01-01T00:00:00Z,1,true,7,,1\n2,2016-01-02,2.5,false,x7,,2\n";
    let stream = infer_csv(input(text), 10).unwrap();
    assert_eq!(types(&stream), "id long, at time, price double, ok bool, code string, none string");
    assert_eq!(types(&infer_csv(input(text), 1).unwrap()).split(", ").nth(2), Some("price long"));
    assert_eq!(types(&infer_csv(input("a\ntrue\n7\n"), 10).unwrap()), "a string");
    let wrong = infer_csv(input("a,b\n1,2\n3\n"), 10).unwrap_err().to_string();
    assert!(wrong.contains("line: 3") && wrong.contains("1 fields"), "{wrong}");
    let empty = infer_csv(input(""), 10).unwrap_err().to_string();
    assert_eq!(empty, "expected a header line with the names of the columns, found nothing");
}

#[test]
fn members_of_objects_are_fields_in_order_of_appearance() {
    let text =
        "{\"a\": 1, \"b\": {\"c\": 1}}\n\n{\"a\": \"x\", \"d\": null, \"e\": \"2016-01-01T00:00:00Z\"}\n";
    let stream = infer_json_lines(input(text), 10).unwrap();
    assert_eq!(types(&stream), "a object, b object, d string, e time");
    let wrong = infer_json_lines(input("{\"a\": 1}\n[1]\n"), 10).unwrap_err();
    assert!(wrong.to_string().starts_with("line 2: expected a JSON object"), "{wrong}");
}

#[test]
fn measurements_are_streams() {
    let text = "readings,name=t1 speed=1.5,n=2i 1\nnotes text=\"x\" 2\nreadings ok=true 3\n";
    let streams = infer_line_protocol(input(text), 10).unwrap();
    let found: Vec<String> =
        streams.iter().map(|s| format!("{}: {}", s.name.as_deref().unwrap(), types(s))).collect();
    assert_eq!(
        found,
        ["readings: time time, name string, speed double, n long, ok bool", "notes: time time, text string"]
    );
}
