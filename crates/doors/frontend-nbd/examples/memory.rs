//! Example program that serves memory over NBD until its standard input ends, to measure the server
//! without storage.
//!
//! ```text
//!   memory SOCKET MEBIBYTES WORKERS       0 workers: two threads for each connection
//! ```

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{Endpoint, Export, Server, Settings};
use braid_ring::Workers;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, mebibytes, workers] = arguments.as_slice() else {
        return Err("memory SOCKET MEBIBYTES WORKERS".into());
    };
    let export: Arc<dyn Export> =
        Arc::new(MemoryExport::new("memory", mebibytes.parse::<usize>()? << 20));
    let (exports, endpoints) = (vec![export], [Endpoint::Unix(socket.into())]);
    let workers = match workers.parse()? {
        0 => None,
        workers => {
            let settings = braid_ring::Settings { workers, ..Default::default() };
            Some(Arc::new(Workers::start(&settings)?))
        }
    };
    let server = match &workers {
        None => Server::start(exports, &endpoints, Settings::default())?,
        Some(workers) => Server::start_on(workers, exports, &endpoints, Settings::default())?,
    };
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:#?}", server.counts());
    println!("{:#?}", workers.as_ref().map(|workers| workers.counters()));
    let report = server.stop(Duration::from_secs(1));
    println!("{report:?}");
    Ok(())
}
