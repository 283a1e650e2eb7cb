//! The program's bill of materials: the packages that cargo links, in CycloneDX's JSON.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::build::command;

pub(super) fn of_lock(root: &Path, version: &str) -> Result<String> {
    let output = command(&["metadata", "--format-version=1", "--locked"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    Ok(serde_json::to_string_pretty(&bill(&metadata, version).context("cargo metadata")?)? + "\n")
}

fn bill(metadata: &Value, version: &str) -> Option<Value> {
    let packages = metadata["packages"].as_array()?;
    let braid = packages.iter().find(|one| one["name"] == "braid")?["id"].as_str()?;
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let (mut linked, mut next) = (BTreeSet::new(), vec![braid]);
    while let Some(id) = next.pop() {
        if !linked.insert(id) {
            continue;
        }
        let node = nodes.iter().find(|node| node["id"] == id)?;
        // Dependencies of tests and of build scripts are not linked into the program.
        let is_linked = |one: &&Value| {
            one["dep_kinds"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        next.extend(
            node["deps"].as_array()?.iter().filter(is_linked).filter_map(|one| one["pkg"].as_str()),
        );
    }
    let of_it =
        packages.iter().filter(|one| one["id"].as_str().is_some_and(|id| linked.contains(id)));
    let components: Vec<Value> = of_it
        .map(|one| {
            let (name, version) = (
                one["name"].as_str().unwrap_or_default(),
                one["version"].as_str().unwrap_or_default(),
            );
            let mut component = json!({
                "type": "library",
                "bom-ref": one["id"],
                "name": name,
                "version": version,
                "licenses": [{ "expression": one["license"] }],
            });
            if !one["source"].is_null() {
                component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
            }
            component
        })
        .collect();
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "braid", "version": version, "bom-ref": braid } },
        "components": components,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_named_and_what_tests_need_is_not() {
        let package = |name: &str| json!({ "name": name, "id": name, "version": "1.0.0", "license": "MIT", "source": "registry" });
        let node = |id: &str, deps: Value| json!({ "id": id, "deps": deps });
        let to = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("braid"), package("a"), package("b"), package("only-tests")],
            "resolve": { "nodes": [
                node("braid", json!([to("a", Value::Null), to("only-tests", json!("dev"))])),
                node("a", json!([to("b", Value::Null)])),
                node("b", json!([])),
                node("only-tests", json!([])),
            ] },
        });
        let bill = bill(&metadata, "1.0.0").expect("it is whole");
        let names: Vec<&str> = bill["components"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert_eq!(names, ["braid", "a", "b"]);
        assert_eq!(bill["components"][1]["purl"], "pkg:cargo/a@1.0.0");
    }
}
