//! Checks written events against the shipped schema.
//!
//! The check implements the keywords of JSON Schema that occur in the shipped schema, and fails at
//! other keywords.

use serde_json::{Value, json};

use crate::event::SCHEMA;
use crate::samples;

const SHIPPED: &str = include_str!("../../../../../docs/event.schema.json");

fn schema() -> Value {
    serde_json::from_str(SHIPPED).expect("JSON")
}

/// The errors of `value` against `schema`; empty if there are none.
fn complaints(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    let properties = &schema["properties"];
    for (keyword, wanted) in schema.as_object().expect("a schema is an object") {
        let is_met = match keyword.as_str() {
            "$schema" | "title" | "description" | "properties" => true,
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|one| is_of(value, one)),
                one => is_of(value, one),
            },
            "enum" => wanted.as_array().expect("a list").contains(value),
            "minimum" => value.as_i64() >= wanted.as_i64(),
            "required" => {
                let mut names = wanted.as_array().expect("a list").iter();
                names.all(|name| value.get(name.as_str().expect("a name")).is_some())
            }
            "additionalProperties" => {
                let others = value.as_object().into_iter().flatten();
                let others = others.filter(|(name, _)| properties.get(name).is_none());
                for (name, other) in others {
                    match wanted {
                        Value::Bool(may) if *may => {}
                        Value::Bool(_) => {
                            found.push(format!("{place}.{name} is not in the schema"))
                        }
                        inner => found.extend(complaints(inner, other, &format!("{place}.{name}"))),
                    }
                }
                true
            }
            other => panic!("the keyword {other} is not known here"),
        };
        if !is_met {
            found.push(format!("{place}: {keyword} {wanted} is not met by {value}"));
        }
    }
    for (name, inner) in properties.as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            found.extend(complaints(inner, value, &format!("{place}.{name}")));
        }
    }
    found
}

fn is_of(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a type is a word") {
        "object" => value.is_object(),
        "integer" => value.is_i64() || value.is_u64(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        other => panic!("the type {other} is not known here"),
    }
}

#[test]
fn every_event_fits_the_shipped_schema() {
    let schema = schema();
    for event in samples::events() {
        let value: Value = serde_json::from_str(&event.to_json()).expect("JSON");
        let found = complaints(&schema, &value, "event");
        assert!(found.is_empty(), "{found:?}: {value}");
    }
    assert_eq!(schema["properties"]["schema"]["enum"], json!([SCHEMA]));
}

#[test]
fn the_schema_refuses_what_is_no_event() {
    let schema = schema();
    let good: Value = serde_json::from_str(&samples::events()[0].to_json()).expect("JSON");
    for (pointer, wrong) in [
        ("/id", json!("1")),
        ("/id", json!(0)),
        ("/severity", json!("bad")),
        ("/schema", json!(2)),
        ("/subject", json!({})),
        ("/subject/slot", json!(-1)),
        ("/cause/operation", json!("seek")),
        ("/subject", json!({ "member": "a", "colour": "red" })),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} in {good}")) = wrong;
        assert!(!complaints(&schema, &bad, "event").is_empty(), "{pointer}");
    }
    let mut bad = good;
    bad["colour"] = json!("red");
    assert!(!complaints(&schema, &bad, "event").is_empty());
}
