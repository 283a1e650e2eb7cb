//! The array's side of the API: the operations that a served array must have, and its refusals.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use crate::model::{
    Array, Elevators, JobRequest, JobsAnswer, MembersAnswer, MembersWanted, Problem, Settings,
    SettingsAnswer, ShapeAnswer, ShapeWanted, StopPlan, Stopped,
};
use crate::passed_descriptors::PassedDescriptors;

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// A served array, as the API needs it. Threads call it concurrently; all calls except
/// [`ServedArray::stop`] may block.
pub trait ServedArray: Send + Sync + 'static {
    /// The array's full state.
    ///
    /// # Errors
    /// The array has been stopped meanwhile.
    fn array(&self) -> Result<Array, Refusal>;

    /// The array's settings.
    ///
    /// # Errors
    /// The array has been stopped meanwhile.
    fn settings(&self) -> Result<SettingsAnswer, Refusal>;

    /// Sets all of these settings or none. With `dry_run`, changes no setting and returns the
    /// expected result.
    ///
    /// # Errors
    /// A setting is invalid; the error names the setting and the valid values.
    fn set(&self, wanted: &Settings, dry_run: bool) -> Result<SettingsAnswer, Refusal>;

    /// State of the array's elevators.
    ///
    /// # Errors
    /// The array has been stopped meanwhile.
    fn elevators(&self) -> Result<Elevators, Refusal>;

    /// Requests a job. With `dry_run`, starts no job and returns the expected effect.
    ///
    /// # Errors
    /// The array has no such job, or cannot run the job now; nothing is changed.
    fn request_job(&self, request: JobRequest, dry_run: bool) -> Result<JobsAnswer, Refusal>;

    /// Adds, fails or removes members; the client may have passed their devices open. With
    /// `dry_run`, changes no member and returns the expected effect.
    ///
    /// # Errors
    /// The array cannot do without the member, or a device cannot become a member. Devices named
    /// before the refused device may already be members; the refusal then says so.
    fn change_members(
        &self,
        wanted: &MembersWanted,
        passed: &PassedDescriptors,
        dry_run: bool,
    ) -> Result<MembersAnswer, Refusal>;

    /// Changes the array's shape, or on a dry run returns the result that the request would have.
    /// `passed` are the descriptors that came with the request.
    ///
    /// # Errors
    /// The request is refused; nothing changed, or only the named devices became spares.
    fn change_shape(
        &self,
        wanted: &ShapeWanted,
        passed: &PassedDescriptors,
        dry_run: bool,
    ) -> Result<ShapeAnswer, Refusal>;

    /// The effect that a stop would have now, after which the host `heir` takes the array over
    /// first (`Some("")`: any host).
    ///
    /// # Errors
    /// The array has been stopped meanwhile, or no other host can take it over.
    fn plan_stop(&self, heir: Option<&str>) -> Result<StopPlan, Refusal>;

    /// Requests a stop as a signal does, and returns at once; [`StopTeller`] reports the end of the
    /// stop. `heir` is the host that [`Self::plan_stop`] accepted.
    fn stop(&self, heir: Option<&str>);

    /// Turns a misuse of the API into the program's error.
    fn misused(&self, misuse: &Misuse) -> Refusal;
}

/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// No operation has this path.
    #[error("no resource has the path {0}")]
    NoSuchPath(String),
    /// The path does not support this method.
    #[error("{path} does not take {method}")]
    Method {
        /// The method of the request.
        method: String,
        /// The path of the request.
        path: String,
    },
    /// The request's query is invalid.
    #[error("the query is not valid: {0}")]
    Query(String),
    /// The request's body is invalid.
    #[error("the body is not valid: {0}")]
    Body(String),
    /// The request's body is longer than this many bytes.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The request's body did not arrive within this many seconds.
    #[error("the body did not come within {0} s")]
    Slow(u64),
    /// The array did not answer within this many seconds.
    #[error("the array did not answer within {0} s")]
    Late(u64),
    /// The request has this many host names instead of one.
    #[error("the request has {0} Host headers; only one is allowed")]
    Hosts(usize),
    /// The request names a host other than this server's.
    #[error(
        "the request names the host {0:?}; the server answers only to localhost, 127.0.0.1 \
             and [::1]"
    )]
    Host(String),
    /// The browser says that a web page of another site sent the request.
    #[error("a web page of another site ({0:?}) sent the request, and may change nothing")]
    Site(String),
    /// The request's content type is one that a web page could send without the server's consent.
    #[error("a request that may change something needs Content-Type: application/json")]
    NotJson,
    /// The handler of the request panicked.
    #[error("answering failed inside the server")]
    Panicked,
    /// The client at the other end of the connection is another user.
    #[error(
        "the client is user {0}; the server answers only root and the user who serves the \
             array"
    )]
    Stranger(u32),
}

impl Misuse {
    /// The HTTP status of the misuse.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPath(_) => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Query(_) | Self::Body(_) | Self::Hosts(_) => StatusCode::BAD_REQUEST,
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Late(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Host(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Stranger(_) | Self::Site(_) => StatusCode::FORBIDDEN,
        }
    }
}

/// A refusal of a request by the served array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status of the refusal.
    pub status: StatusCode,
    /// The body of the refusal; boxed because refusals are rare.
    pub problem: Box<Problem>,
}

impl Refusal {
    /// A refusal with an HTTP error status.
    ///
    /// # Panics
    /// The status is no HTTP error status.
    #[must_use]
    pub fn new(status: u16, problem: Problem) -> Self {
        let status = StatusCode::from_u16(status).expect("a status of HTTP");
        assert!(status.is_client_error() || status.is_server_error(), "a status for errors");
        Self { status, problem: Box::new(problem) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = serde_json::to_string(&self.problem).expect("it is made of text");
        let mut response = (self.status, text).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        response
    }
}

/// Outcome of a stop.
pub type StopOutcome = Result<Stopped, Problem>;

/// A handle that reports the outcome of a stop to waiting clients.
#[derive(Debug)]
pub struct StopTeller(watch::Sender<Option<StopOutcome>>);

/// A handle that waits for the outcome of a stop.
#[derive(Clone, Debug)]
pub struct StopListener(watch::Receiver<Option<StopOutcome>>);

/// The two handles that report the outcome of a stop and wait for it.
#[must_use]
pub fn stopping() -> (StopTeller, StopListener) {
    let (teller, listener) = watch::channel(None);
    (StopTeller(teller), StopListener(listener))
}

impl StopTeller {
    /// Reports that the array has stopped and released its members, or has failed to stop.
    pub fn tell(self, outcome: StopOutcome) {
        // This is no error if no client waits for the outcome.
        self.0.send_replace(Some(outcome));
    }
}

impl StopListener {
    /// Waits for the outcome; `None` if the `StopTeller` was dropped without an outcome.
    pub(crate) async fn wait(mut self) -> Option<StopOutcome> {
        let outcome = self.0.wait_for(Option::is_some).await.ok()?;
        outcome.clone()
    }
}
