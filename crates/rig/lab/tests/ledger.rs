//! The instruction ledger ([docs/lab.md](../../../docs/lab.md)) of a debug build, which keeps each
//! figure below its ceiling. The ledger shows how a commit changes the cost of a request.
//!
//! The figures are those of the compiler in `rust-toolchain.toml`. If a figure shrinks, its ceiling
//! is lowered to about 3 % above it. If a figure must grow, the commit message says what the cost
//! buys.

use std::process::Command;

use braid_parity::kernel_named;
use braid_test_needs::{Need, needs, skip};

/// Maximum instructions for a request, by case.
const CEILINGS: [(&str, f64); 6] = [
    ("4 KiB read", 2_660.0),
    ("degraded 4 KiB read", 9_040.0),
    ("4 KiB write, rcw", 35_030.0),
    ("4 KiB write, rmw", 34_260.0),
    ("4 KiB write, write-back", 35_900.0),
    ("192 KiB full-stripe write", 124_490.0),
];

#[test]
fn no_request_costs_more_instructions_than_it_did() {
    needs!("valgrind");
    if kernel_named("avx2").is_none() {
        return skip(Need::Other, "no AVX2, by which parity is made in the ledger");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ledger.json");
    let mut lab = Command::new(env!("CARGO_BIN_EXE_braid-lab"));
    let output = lab.args(["ledger", "--json"]).arg(&file).output().expect("the lab");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let text = std::fs::read_to_string(file).expect("rows");
    let written: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let figure = |case: &str| {
        let row = written["rows"].as_array()?.iter().find(|row| row["case"] == case)?;
        row["median"].as_f64()
    };
    let found = CEILINGS.map(|(case, ceiling)| (case, figure(case), ceiling));
    let is_below = |(_, figure, ceiling): &(_, Option<f64>, f64)| {
        figure.is_some_and(|figure| figure > 0.0 && figure <= *ceiling)
    };
    assert!(found.iter().all(is_below), "{found:#?}\n{said}");
}
