//! All tests of the server once more, with its connections on io_uring workers.
//!
//! Where io_uring is not allowed they run over threads and say so.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests: a panic is a failure
#![allow(clippy::duplicate_mod)] // each file brings its own `common`, as it does alone

#[path = "clients.rs"]
mod clients;
#[path = "endpoint.rs"]
mod endpoint;
#[path = "hostile.rs"]
mod hostile;
#[path = "server.rs"]
mod server;
#[path = "stop.rs"]
mod stop;
#[path = "stretches.rs"]
mod stretches;

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default()
    };
    tasks.map(name).collect()
}

#[test]
fn no_connection_has_a_thread_of_its_own() {
    let (served, _export) = server::common::serve_memory(4096);
    let mut client = server::common::Client::connect(&served.socket);
    client.read(0, 1).unwrap();
    if server::common::workers().is_some() {
        let own = threads().into_iter().filter(|name| name.starts_with("nbd-read")).count();
        assert_eq!(own, 0);
    }
}
