//! What the array's side of the API must be able to do, and how it says no.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use crate::model::{
    Array, Elevators, JobRequest, JobsAnswer, MembersAnswer, MembersWanted, Problem, Settings,
    SettingsAnswer, StopPlan, Stopped,
};
use crate::passing::Passed;

/// The media type of a [`Problem`].
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The array, as the API needs it. Called by threads that may be kept waiting, several at once, but for [`Served::stop`].
pub trait Served: Send + Sync + 'static {
    /// All that is known of it.
    ///
    /// # Errors
    /// It has been stopped meanwhile.
    fn array(&self) -> Result<Array, Refusal>;

    /// What it is set to.
    ///
    /// # Errors
    /// It has been stopped meanwhile.
    fn settings(&self) -> Result<SettingsAnswer, Refusal>;

    /// Sets all of these, or none; with `dry_run` none, and the answer says what would be.
    ///
    /// # Errors
    /// One of them cannot be set so; it says which, and what could be.
    fn set(&self, wanted: &Settings, dry_run: bool) -> Result<SettingsAnswer, Refusal>;

    /// What its elevators do.
    ///
    /// # Errors
    /// It has been stopped meanwhile.
    fn elevators(&self) -> Result<Elevators, Refusal>;

    /// Asks something of its jobs; with `dry_run` it does not, and the answer says what would be.
    ///
    /// # Errors
    /// It has no such job, or cannot do it as it is; nothing is changed.
    fn request_job(&self, request: JobRequest, dry_run: bool) -> Result<JobsAnswer, Refusal>;

    /// Has members come, fail or go; with `dry_run` it does not, and the answer says what would be. Devices may have come open.
    ///
    /// # Errors
    /// The array cannot do without the member, or a device cannot become one. Of several devices those before the one that is
    /// refused may have come, and the refusal says so.
    fn change_members(
        &self,
        wanted: &MembersWanted,
        passed: &Passed,
        dry_run: bool,
    ) -> Result<MembersAnswer, Refusal>;

    /// What a stop would do now.
    ///
    /// # Errors
    /// It has been stopped meanwhile.
    fn plan_stop(&self) -> Result<StopPlan, Refusal>;

    /// Has it stopped as a signal would. Returns at once; the end is told by [`StopTeller`].
    fn stop(&self);

    /// Puts a misuse of the API in the words that the program has for it.
    fn misused(&self, misuse: &Misuse) -> Refusal;
}

/// How a request was no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// There is nothing by this path.
    #[error("there is nothing at {0}")]
    NoSuchPath(String),
    /// What is there does not take this method.
    #[error("{path} does not take {method}")]
    Method {
        /// The method.
        method: String,
        /// The path.
        path: String,
    },
    /// The part behind the question mark.
    #[error("the query is not understood: {0}")]
    Query(String),
    /// The body.
    #[error("the body is not understood: {0}")]
    Body(String),
    /// The body is too long.
    #[error("the body is longer than {0} bytes")]
    TooLong(usize),
    /// The body did not come.
    #[error("the body did not come within {0} s")]
    Slow(u64),
    /// The array did not answer.
    #[error("the array did not answer within {0} s")]
    Late(u64),
    /// More than one name of a server is in the request.
    #[error("the request has {0} Host headers; it may have one")]
    Hosts(usize),
    /// It was asked by a name that is not its own.
    #[error("it was asked as {0:?}, and answers as localhost, 127.0.0.1 and [::1] only")]
    Host(String),
    /// A web page of another site asks, as the browser says.
    #[error("a web page of another site ({0:?}) asked, which may change nothing")]
    Site(String),
    /// A web page could have sent it without the server's leave.
    #[error("what may change something is asked as Content-Type: application/json")]
    NotJson,
    /// Answering failed by a mistake of the program.
    #[error("answering failed inside the server")]
    Panicked,
    /// The peer of the connection is another user.
    #[error("the client is user {0}, and only the user who serves the array and root are answered")]
    Stranger(u32),
}

impl Misuse {
    /// The HTTP status for it.
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

/// How the array's side says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body. Boxed, for it is the rare case.
    pub problem: Box<Problem>,
}

impl Refusal {
    /// With an HTTP status, which must be one of those for errors.
    ///
    /// # Panics
    /// When it is none.
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

/// How a stop went.
pub type StopOutcome = Result<Stopped, Problem>;

/// Tells those who wait for a stop how it went.
#[derive(Debug)]
pub struct StopTeller(watch::Sender<Option<StopOutcome>>);

/// Waits for a stop.
#[derive(Clone, Debug)]
pub struct StopListener(watch::Receiver<Option<StopOutcome>>);

/// Both ends.
#[must_use]
pub fn stopping() -> (StopTeller, StopListener) {
    let (teller, listener) = watch::channel(None);
    (StopTeller(teller), StopListener(listener))
}

impl StopTeller {
    /// The array has stopped, and its members are let go of; or it has not.
    pub fn tell(self, outcome: StopOutcome) {
        // There may be no client that waits.
        self.0.send_replace(Some(outcome));
    }
}

impl StopListener {
    /// Waits; nothing if it will never be told.
    pub(crate) async fn wait(mut self) -> Option<StopOutcome> {
        let outcome = self.0.wait_for(Option::is_some).await.ok()?;
        outcome.clone()
    }
}
