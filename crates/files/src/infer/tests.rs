use std::io::Cursor;

use super::*;

fn csv(text: &str, rows: usize) -> Result<InferredStream> {
    infer_csv(input(text), rows, CsvLayout::default(), &ColumnOptions::default())
}

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
    let stream = csv(text, 10).unwrap();
    assert_eq!(types(&stream), "id long, at time, price double, ok bool, code string, none string");
    assert_eq!(types(&csv(text, 1).unwrap()).split(", ").nth(2), Some("price long"));
    assert_eq!(types(&csv("a\ntrue\n7\n", 10).unwrap()), "a string");
    let wrong = csv("a,b\n1,2\n3\n", 10).unwrap_err().to_string();
    assert_eq!(wrong, "line 3: expected 2 cells as in the header, found 1");
    let twice = csv("a,b,a\n1,2,3\n", 10).unwrap_err().to_string();
    assert!(twice.contains("the column `a` occurs twice, as columns 1 and 3"), "{twice}");
    let empty = csv("", 10).unwrap_err().to_string();
    assert_eq!(empty, "expected a header line with the names of the columns, found nothing");
}

#[test]
fn numbers_that_would_lose_characters_are_text() {
    for (cells, expected) in [
        ("001\n003", "string"),
        ("0\n3", "long"),
        ("+4930\n1", "string"),
        ("-07\n1", "string"),
        ("0.5\n-0.25", "double"),
        ("00.5\n1", "string"),
        ("9223372036854775807\n-9223372036854775808", "long"),
        ("9223372036854775808\n1", "string"),
        ("0.30000000000000004\n1e300", "double"),
        ("0.3000000000000000412\n1", "string"),
        ("TRUE\nfalse", "bool"),
    ] {
        assert_eq!(types(&csv(&format!("a\n{cells}\n"), 10).unwrap()), format!("a {expected}"), "{cells}");
    }
}

#[test]
fn names_that_no_field_can_have_are_replaced() {
    let stream = csv("Station ID,station_id,a.b,_x,\n1,2,3,4,5\n", 10).unwrap();
    assert_eq!(types(&stream), "station_id_2 long, station_id long, a_b long");
    let renames = [("Station ID", "station_id_2"), ("a.b", "a_b")];
    assert_eq!(stream.renames, renames.map(|(from, to)| (from.to_owned(), to.to_owned())));
    let layout = CsvLayout { delimiter: b';', quote: b'\'' };
    let options = ColumnOptions { nulls: vec!["NA".into()], ..ColumnOptions::default() };
    let stream = infer_csv(input("d;t\n'a;b';1\nx;NA\n"), 10, layout, &options).unwrap();
    assert_eq!(types(&stream), "d string, t long");
}

#[test]
fn elements_of_an_array_are_objects() {
    let stream = infer_json_lines(input("[\n {\"a\": 1},\n {\"b c\": \"x\"}\n]\n"), 10).unwrap();
    assert_eq!(types(&stream), "a long, b_c string");
    let wrong = infer_json_lines(input("[{\"a\": 1},\n7]"), 10).unwrap_err();
    assert!(wrong.to_string().starts_with("line 2: expected a JSON object"), "{wrong}");
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
