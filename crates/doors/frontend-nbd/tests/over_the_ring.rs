//! Runs all tests of the server once more, with the connections on io_uring workers.
//!
//! Without io_uring the tests run over threads and print that.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure

mod clients;
mod common;
mod endpoint;
mod hostile;
mod server;
mod stop;
mod stretches;

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks.map(name).collect()
}

#[test]
fn no_connection_has_a_thread_of_its_own() {
    let (served, _export) = common::serve_memory(4096);
    let mut client = common::Client::connect(&served.socket);
    client.read(0, 1).unwrap();
    if common::workers().is_some() {
        let own = threads().into_iter().filter(|name| name.starts_with("nbd-read")).count();
        assert_eq!(own, 0);
    }
}
