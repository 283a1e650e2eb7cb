//! `GET /metrics`, for the control socket and for the server on a port ([`super::server`]).
//!
//! Scrapes run one at a time, so that a silent array blocks one thread only; a scrape that waits
//! too long gets a 503.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Query;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;

use super::render::{CONTENT_TYPE, render};
use super::snapshot::Source;

/// How long a scrape waits for earlier scrapes and for the array. Prometheus gives up after ten
/// seconds.
const PATIENCE: Duration = Duration::from_secs(8);

#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct ScrapeQuery {
    /// `1` adds `node_md_*`, `0` leaves them out; without a value the server's setting decides.
    node_md: Option<u8>,
}

/// The route to the metrics of these arrays. `with_node_md` applies to requests that do not say
/// whether they want node_exporter's metrics. Needs a runtime with timers.
pub(super) fn routes(sources: Vec<Arc<dyn Source>>, with_node_md: bool) -> Router {
    Router::new().route("/metrics", get(scraping(sources, with_node_md)))
}

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

pub(crate) fn scraping(
    sources: Vec<Arc<dyn Source>>,
    with_node_md: bool,
) -> impl Fn(Query<ScrapeQuery>) -> Answering + Clone + Send + Sync + 'static {
    let sources: Arc<[Arc<dyn Source>]> = sources.into();
    let turn = Arc::new(Semaphore::new(1));
    move |Query(query)| {
        let (sources, turn) = (Arc::clone(&sources), Arc::clone(&turn));
        let node_md = query.node_md.map_or(with_node_md, |query| query != 0);
        Box::pin(scrape(sources, turn, node_md))
    }
}

async fn scrape(sources: Arc<[Arc<dyn Source>]>, turn: Arc<Semaphore>, node_md: bool) -> Response {
    let rendered = async {
        let turn = turn.acquire_owned().await.ok()?;
        let ask = move || {
            let text = render(sources.iter().map(|source| source.snapshot()).collect(), node_md);
            drop(turn);
            text
        };
        tokio::task::spawn_blocking(ask).await.ok()
    };
    match tokio::time::timeout(PATIENCE, rendered).await {
        Ok(Some(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the array does not answer\n").into_response(),
    }
}
