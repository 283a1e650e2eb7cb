//! Operations of an array, and answers to requests that match none.
//!
//! A thread of the runtime's pool calls the [`ServedArray`] for each request: a request delayed by
//! a member delays no other client. Each request and each request body has a deadline. Only waiting
//! for the end of a stop has no deadline.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::api::{Api, Operation};
use crate::model::{
    Array, Elevators, JobsAnswer, JobsWanted, MembersAnswer, MembersWanted, Settings,
    SettingsAnswer, ShapeAnswer, ShapeWanted, StopPlan, Stopped,
};
use crate::origin_check;
use crate::page;
use crate::passed_descriptors::PassedDescriptors;
use crate::served_array::{Misuse, Refusal, ServedArray, StopListener};

/// Longest body of a request, in bytes: many times the size of all settings together.
pub const BODY_BYTES_MAX: usize = 64 << 10;

const BODY_DEADLINE: Duration = Duration::from_secs(5);

const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// The description of the parameter `dry_run` of operations that change something.
const DRY_RUN: &str = "Change nothing, and return the result that the request would have";

type Shared = Arc<dyn ServedArray>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DryRunQuery {
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StopQuery {
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    detach: bool,
    hand_over_to: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoQuery {}

/// The operation of the page and the operations that the page uses; none of them changes the array.
fn looking_api(served: &Shared) -> Api {
    let page = Operation::new(
        Method::GET,
        "/",
        "getPage",
        "The array's state, as a page that refreshes itself",
    )
    .answers_as::<String>(200, "text/html", "The page, which loads nothing from elsewhere");
    let array = Operation::new(
        Method::GET,
        "/v1/array",
        "getArray",
        "The whole state of the \
                                                                      array",
    )
    .answers::<Array>(200, "The array");
    let elevators = Operation::new(
        Method::GET,
        "/v1/elevators",
        "getElevators",
        "The state of its elevators, and the turns of reads and write-back",
    )
    .answers::<Elevators>(200, "The elevators");
    Api::default()
        .add(&page, page::page)
        .add(&array, looking(served, |served| served.array()))
        .add(&elevators, looking(served, |served| served.elevators()))
}

/// The router for the page and the operations that it uses, for a port with unknown clients. The
/// caller restricts host names ([`crate::guarded`]).
pub fn looking_router(served: &Shared) -> Router {
    looking_api(served).router()
}

/// The operations of an array; the caller may add others.
#[must_use]
pub fn api(served: &Shared, stopped: &StopListener) -> Api {
    let settings = Operation::new(
        Method::GET,
        "/v1/settings",
        "getSettings",
        "The settings of \
                                                                               the array",
    )
    .answers::<SettingsAnswer>(200, "The settings");
    let api = looking_api(served).add(&settings, looking(served, |served| served.settings()));
    let api = with_members(with_jobs(with_set(api, served), served), served);
    with_stop(with_shape(api, served), served, stopped)
}

fn with_set(api: Api, served: &Shared) -> Api {
    let operation = Operation::new(
        Method::PATCH,
        "/v1/settings",
        "setSettings",
        "Changes all of these settings on the running array, or none",
    )
    .query::<bool>("dry_run", DRY_RUN)
    .body::<Settings>("Settings by their keys; sizes as bytes, or as text with a unit")
    .answers::<SettingsAnswer>(200, "The new settings, and the changes");
    let served = Arc::clone(served);
    let handler = move |query: Result<Query<DryRunQuery>, QueryRejection>, request: Request| {
        let served = Arc::clone(&served);
        async move {
            let DryRunQuery { dry_run } = checked(&served, query)?;
            let wanted = read::<Settings>(request.into_body()).await;
            let wanted = wanted.map_err(|misuse| served.misused(&misuse))?;
            ask(&served, move |served| served.set(&wanted, dry_run)).await
        }
    };
    api.add(&operation, handler)
}

fn with_jobs(api: Api, served: &Shared) -> Api {
    let about = "Starts or ends a check, pauses or resumes jobs; answers at once";
    let operation = Operation::new(Method::POST, "/v1/jobs", "requestJob", about)
        .query::<bool>("dry_run", DRY_RUN)
        .body::<JobsWanted>("The request")
        .answers::<JobsAnswer>(200, "The result");
    let served = Arc::clone(served);
    let handler = move |query: Result<Query<DryRunQuery>, QueryRejection>, request: Request| {
        let served = Arc::clone(&served);
        async move {
            let DryRunQuery { dry_run } = checked(&served, query)?;
            let wanted = read::<JobsWanted>(request.into_body()).await;
            let JobsWanted { request } = wanted.map_err(|misuse| served.misused(&misuse))?;
            ask(&served, move |served| served.request_job(request, dry_run)).await
        }
    };
    api.add(&operation, handler)
}

fn with_members(api: Api, served: &Shared) -> Api {
    let about = "Adds devices as members, fails a member, or removes a failed one; answers at \
                 once";
    let operation = Operation::new(Method::POST, "/v1/members", "changeMembers", about)
        .query::<bool>("dry_run", DRY_RUN)
        .body::<MembersWanted>("The request, and its members")
        .answers::<MembersAnswer>(200, "The result");
    with_devices(api, served, &operation, |served, wanted, passed, dry_run| {
        served.change_members(wanted, passed, dry_run)
    })
}

fn with_shape(api: Api, served: &Shared) -> Api {
    let about = "Gives the array another shape, or lets a reshape go back; answers at once";
    let operation = Operation::new(Method::POST, "/v1/shape", "changeShape", about)
        .query::<bool>("dry_run", DRY_RUN)
        .body::<ShapeWanted>("The wanted shape")
        .answers::<ShapeAnswer>(200, "The way to the shape");
    with_devices(api, served, &operation, |served, wanted, passed, dry_run| {
        served.change_shape(wanted, passed, dry_run)
    })
}

/// Adds an operation whose request may pass devices as descriptors.
fn with_devices<W, A>(
    api: Api,
    served: &Shared,
    operation: &Operation,
    change: fn(&dyn ServedArray, &W, &PassedDescriptors, bool) -> Result<A, Refusal>,
) -> Api
where
    W: DeserializeOwned + Send + 'static,
    A: Serialize + Send + 'static,
{
    let served = Arc::clone(served);
    let handler = move |query: Result<Query<DryRunQuery>, QueryRejection>, request: Request| {
        let served = Arc::clone(&served);
        async move {
            let DryRunQuery { dry_run } = checked(&served, query)?;
            let passed =
                request.extensions().get::<PassedDescriptors>().cloned().unwrap_or_default();
            let wanted = read::<W>(request.into_body()).await;
            let wanted = wanted.map_err(|misuse| served.misused(&misuse))?;
            ask(&served, move |served| change(served, &wanted, &passed, dry_run)).await
        }
    };
    api.add(operation, handler)
}

fn with_stop(api: Api, served: &Shared, stopped: &StopListener) -> Api {
    let operation = Operation::new(
        Method::POST,
        "/v1/stop",
        "stop",
        "Stops the array as SIGTERM does, and answers when it has stopped and its members are free",
    )
    .query::<bool>("dry_run", "Do nothing, and return the effect of a stop")
    .query::<bool>("detach", "Answer at once")
    .query::<String>(
        "hand_over_to",
        "The host that takes the array over first; empty for any. Refused unless a store names the \
         owner",
    )
    .answers::<Stopped>(200, "The array has stopped")
    .answers::<StopPlan>(202, "The array is being stopped (detach), or would be (dry_run)");
    let (served, stopped) = (Arc::clone(served), stopped.clone());
    let handler = move |query: Result<Query<StopQuery>, QueryRejection>| {
        let (served, stopped) = (Arc::clone(&served), stopped.clone());
        async move {
            let StopQuery { dry_run, detach, hand_over_to } = checked(&served, query)?;
            let heir = hand_over_to.as_deref();
            if dry_run || detach || heir.is_some() {
                let mut plan = plan(&served, hand_over_to.clone()).await?;
                plan.dry_run = dry_run;
                if detach && !dry_run {
                    served.stop(heir);
                }
                if dry_run || detach {
                    return Ok((StatusCode::ACCEPTED, Json(plan)).into_response());
                }
            }
            // Calls `stop` on this thread: it must work while all answering threads are blocked.
            served.stop(heir);
            match stopped.wait().await {
                Some(Ok(stopped)) => Ok(Json(stopped).into_response()),
                Some(Err(problem)) => {
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    Err(Refusal { status, problem: Box::new(problem) })
                }
                None => Err(served.misused(&Misuse::Panicked)),
            }
        }
    };
    api.add(&operation, handler)
}

async fn plan(served: &Shared, heir: Option<String>) -> Result<StopPlan, Refusal> {
    let plan = move |served: &dyn ServedArray| served.plan_stop(heir.as_deref());
    ask(served, plan).await.map(|Json(plan)| plan)
}

/// A router for all operations and the document at `/openapi.json`; requests for other paths fail.
pub fn router(api: Api, served: &Shared) -> Router {
    let document = api.document();
    let describe = move || {
        let document = document.clone();
        async move { Json(document) }
    };
    let nothing = {
        let served = Arc::clone(served);
        move |uri: Uri| async move { served.misused(&Misuse::NoSuchPath(uri.path().to_owned())) }
    };
    let not_so = {
        let served = Arc::clone(served);
        move |method: Method, uri: Uri| async move {
            let (method, path) = (method.to_string(), uri.path().to_owned());
            served.misused(&Misuse::Method { method, path })
        }
    };
    let guard = {
        let served = Arc::clone(served);
        move |request: Request, next: Next| {
            let misuse = origin_check::check(&request).err();
            let refusal = misuse.map(|misuse| served.misused(&misuse));
            async move {
                match refusal {
                    None => next.run(request).await,
                    Some(refusal) => refusal.into_response(),
                }
            }
        }
    };
    api.router()
        .route("/openapi.json", axum::routing::get(describe))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn(guard))
}

/// A handler that gets a value from the array, and returns it unchanged.
fn looking<T: Serialize + Send + 'static>(
    served: &Shared,
    question: fn(&dyn ServedArray) -> Result<T, Refusal>,
) -> impl Fn(Result<Query<NoQuery>, QueryRejection>) -> Answering + Clone + Send + Sync + 'static + use<T>
{
    let served = Arc::clone(served);
    move |query| {
        let served = Arc::clone(&served);
        Box::pin(async move {
            let NoQuery {} = checked(&served, query)?;
            ask(&served, question).await.map(IntoResponse::into_response)
        })
    }
}

type Answering = std::pin::Pin<Box<dyn Future<Output = Result<Response, Refusal>> + Send>>;

fn checked<T>(served: &Shared, query: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    let query = query.map_err(|rejection| served.misused(&Misuse::Query(rejection.body_text())));
    query.map(|Query(query)| query)
}

async fn ask<T: Send + 'static>(
    served: &Shared,
    question: impl FnOnce(&dyn ServedArray) -> Result<T, Refusal> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    let asked = Arc::clone(served);
    let answer = tokio::task::spawn_blocking(move || question(&*asked));
    match timeout(ANSWER_DEADLINE, answer).await {
        Ok(Ok(answer)) => answer.map(Json),
        Ok(Err(_)) => Err(served.misused(&Misuse::Panicked)),
        Err(_) => Err(served.misused(&Misuse::Late(ANSWER_DEADLINE.as_secs()))),
    }
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Misuse> {
    let bytes = whole(body).await?;
    serde_json::from_slice(&bytes).map_err(|error| Misuse::Body(error.to_string()))
}

/// Reads a whole body, if the body arrives before the deadline and within the length limit.
async fn whole(body: Body) -> Result<Bytes, Misuse> {
    let body = timeout(BODY_DEADLINE, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let body = body.map_err(|_| Misuse::Slow(BODY_DEADLINE.as_secs()))?;
    match body {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Misuse::TooLong(BODY_BYTES_MAX)),
        Err(error) => Err(Misuse::Body(error.to_string())),
    }
}
