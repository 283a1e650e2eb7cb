//! Additions of events to the control API: the stream `GET /v1/events`, and `GET /metrics`.
//!
//! Invariants
//! - from the head of its answer on, a follower gets each event once, in order, and the follower's
//!   stream ends with the teller `[check: the_stream_has_each_event_once_and_ends_with_telling]`;
//! - followers are limited, so that they leave connections for other clients
//!   `[check: followers_are_limited]`.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use braid_control::api::{Api, Operation};
use hyper::body::Frame;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::event::Event;
use crate::metrics::{CONTENT_TYPE, Source, scraping};
use crate::teller::Voice;

/// Most followers at a time: the control socket has four times as many connections.
pub const FOLLOWERS_MAX: usize = 8;

/// The media type of a stream of JSON lines.
const LINES: &str = "application/x-ndjson";

/// The shipped schema of an event, which the API document contains unchanged.
const SHIPPED: &str = include_str!("../../../../docs/event.schema.json");

impl JsonSchema for Event {
    fn schema_name() -> Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut schema: Schema = serde_json::from_str(SHIPPED).expect("it is a schema");
        schema.remove("$schema");
        schema
    }
}

/// Adds the operations of events and metrics to an API.
#[must_use]
pub fn with_telling(api: Api, voice: &Voice, source: Arc<dyn Source>) -> Api {
    let events = Operation::new(
        Method::GET,
        "/v1/events",
        "followEvents",
        "Events from now on, one in each line, until the array has stopped",
    )
    .answers_as::<Event>(200, LINES, "An event in each line; the stream ends with the array");
    let metrics = Operation::new(Method::GET, "/metrics", "getMetrics", "Metrics, for Prometheus")
        .query::<u8>("node_md", "1: also with node_exporter's names for md's arrays")
        .answers_as::<String>(200, CONTENT_TYPE, "OpenMetrics");
    api.add(&events, following(voice)).add(&metrics, scraping(vec![source], false))
}

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Returns the handler of requests for the stream of events.
fn following(voice: &Voice) -> impl Fn() -> Answering + Clone + Send + Sync + 'static + use<> {
    let (voice, room) = (voice.clone(), Arc::new(Semaphore::new(FOLLOWERS_MAX)));
    move || {
        let (voice, room) = (voice.clone(), Arc::clone(&room));
        Box::pin(async move {
            let Ok(place) = room.try_acquire_owned() else {
                let text = format!("{FOLLOWERS_MAX} follow already\n");
                return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
            };
            let lines = Lines { events: voice.follow(), _place: place };
            ([(header::CONTENT_TYPE, LINES)], Body::new(lines)).into_response()
        })
    }
}

/// Events as a response body.
struct Lines {
    events: mpsc::Receiver<Arc<Event>>,
    _place: OwnedSemaphorePermit,
}

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let line = |event: Arc<Event>| Frame::data(Bytes::from(event.to_json() + "\n"));
        self.events.poll_recv(context).map(|event| event.map(|event| Ok(line(event))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::HttpBody;

    use super::*;
    use crate::event::Change;
    use crate::kind::Kind;
    use crate::samples::identity;
    use crate::teller::Teller;

    fn teller() -> Teller {
        let listener: crate::Listener = Arc::new(|_| {});
        Teller::start(identity(), None, Vec::new(), &listener).expect("a thread")
    }

    async fn rest(response: Response) -> String {
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(frame) =
            std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            text.extend_from_slice(&frame.expect("a frame").into_data().expect("bytes"));
        }
        String::from_utf8(text).expect("text")
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }

    #[test]
    fn the_stream_has_each_event_once_and_ends_with_telling() {
        let teller = teller();
        let voice = teller.voice();
        let follow = following(&voice);
        runtime().block_on(async {
            let response = follow().await;
            assert_eq!(response.headers()[header::CONTENT_TYPE], LINES);
            for number in 0..100_u64 {
                voice.tell(Change::now(Kind::SlowDisk, "m").with("number", number));
            }
            teller.end(Duration::ZERO);
            let text = rest(response).await;
            let events: Vec<Event> =
                text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            let ids: Vec<u64> = events.iter().map(|event| event.id).collect();
            assert_eq!(ids, (1..=100).collect::<Vec<_>>());
            // A follower that comes after the teller has ended gets an empty stream.
            assert_eq!(rest(follow().await).await, "");
        });
    }

    #[test]
    fn followers_are_limited() {
        let teller = teller();
        let follow = following(&teller.voice());
        runtime().block_on(async {
            let mut followers = Vec::new();
            for _ in 0..FOLLOWERS_MAX {
                followers.push(follow().await);
                assert_eq!(followers.last().expect("one").status(), StatusCode::OK);
            }
            assert_eq!(follow().await.status(), StatusCode::SERVICE_UNAVAILABLE);
            followers.pop();
            assert_eq!(follow().await.status(), StatusCode::OK, "one has left");
        });
    }
}
