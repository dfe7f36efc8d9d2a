//! Batched functions give the results of row-at-a-time evaluation.

use proptest::prelude::*;
use tidemill_flow::expr::NoContext;
use tidemill_flow::registry::{ArgumentType, ColumnarValue, FunctionContext};
use tidemill_flow::{Column, Registry, Value};
use tidemill_types::FieldType;

/// One argument of all rows; the flag tells whether it is constant.
type Texts = (bool, Vec<Option<String>>);

fn argument(values: &'static str) -> impl Strategy<Value = Texts> {
    (any::<bool>(), prop::collection::vec(prop::option::weighted(0.95, values), 6))
}

/// Calls a function on six rows batched and row at a time; returns whether it supports the batched call.
fn same(name: &str, arguments: &[Texts]) -> Result<bool, TestCaseError> {
    let value = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::text);
    let declared: Vec<ArgumentType> = arguments
        .iter()
        .map(|(constant, texts)| {
            let constant = constant.then(|| value(&texts[0])).filter(|v| !v.is_null());
            ArgumentType { ty: FieldType::String, constant }
        })
        .collect();
    let registry = Registry::standard();
    let built = registry.find_function(name).expect("it is built in");
    let Ok((function, ty)) = built(&declared) else { return Ok(false) };
    let columns: Vec<Column> = arguments
        .iter()
        .map(|(_, texts)| {
            let mut column = Column::new(FieldType::String);
            texts.iter().for_each(|text| column.push(value(text)));
            column
        })
        .collect();
    let given: Vec<ColumnarValue<'_>> = declared
        .iter()
        .zip(&columns)
        .map(|(arg, column)| {
            arg.constant.as_ref().map_or(ColumnarValue::Array(column), ColumnarValue::Scalar)
        })
        .collect();
    let Some(at_once) = function.call_batch(&given, 6) else { return Ok(false) };
    prop_assert_eq!(at_once.ty(), ty);
    prop_assert_eq!(at_once.len(), 6);
    for row in 0..6 {
        let values: Vec<Value> = declared
            .iter()
            .zip(&columns)
            .map(|(arg, column)| arg.constant.clone().unwrap_or_else(|| column.get(row)))
            .collect();
        let alone = function.call(&values, &FunctionContext { now: 0, time: 0, host: &NoContext });
        prop_assert_eq!(format!("{:?}", Ok::<_, ()>(at_once.get(row))), format!("{alone:?}"));
    }
    Ok(true)
}

proptest! {
    #[test]
    fn searches(regex in argument(r"(\(\.\*\))?[ab.]{1,3}|a+|\("), text in argument("[ab.\n]{0,8}")) {
        for name in ["regex:find", "regex:matches", "regex:lookingAt"] {
            same(name, &[regex.clone(), text.clone()])?;
        }
    }

    #[test]
    fn replacements(
        text in argument("[ab ]{0,8}"),
        regex in argument("[ab]{1,2}|a+|b.|x"),
        by in argument(r"[abc]{0,3}|\$0|\$1"),
    ) {
        for name in ["str:replaceAll", "str:replaceFirst"] {
            same(name, &[text.clone(), regex.clone(), by.clone()])?;
        }
    }
}

#[test]
fn the_common_calls_are_done_at_once() {
    let constant = |text: &str| (true, vec![Some(text.to_owned()); 6]);
    let column = |text: &str| (false, vec![Some(text.to_owned()); 6]);
    assert!(same("regex:find", &[column("(.*)@enron.com"), column("a@enron.com")]).unwrap());
    assert!(same("regex:find", &[constant("^a+$"), column("aa")]).unwrap());
    assert!(
        same("str:replaceAll", &[column("Kenneth Lay"), constant("Kenneth Lay"), constant("x")]).unwrap()
    );
    assert!(same("str:replaceAll", &[column("nobody"), constant("Kenneth Lay"), constant("x")]).unwrap());
}
