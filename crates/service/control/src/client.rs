//! Sends one request to a running array, and receives its answer; every command of braid uses this
//! client.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::model::Problem;
use crate::passed_descriptors::{self, StartedStream};

const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Deadline for a connection, which the server only has to accept.
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);

/// Interval between tries to connect while the socket's queue of clients is full.
const CONNECT_EVERY: Duration = Duration::from_millis(10);

/// Why a request got no answer, or an unexpected answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The control socket does not exist, no process listens on it, or it belongs to another user.
    #[error("{0}")]
    Connect(#[source] io::Error),
    /// The server did not answer before the deadline.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The connection ended before the answer arrived.
    #[error("the connection ended before the answer")]
    Ended(#[source] hyper::Error),
    /// The answer is not braid's.
    #[error("the answer is not valid: {0}")]
    Answer(String),
    /// The server refused the request.
    #[error("{}", .0.title)]
    Refused(Box<Problem>),
    /// A thread of this process could not start.
    #[error("the request cannot be built: {0}")]
    System(#[source] io::Error),
}

/// A client of an array's control socket.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    path: &'a Path,
    /// Deadline for each answer; with `None` the client waits indefinitely.
    deadline: Option<Duration>,
}

impl<'a> Client<'a> {
    /// A client of the socket at `path`. Each answer has a deadline; with `None` the client waits
    /// indefinitely.
    #[must_use]
    pub fn new(path: &'a Path, deadline: Option<Duration>) -> Self {
        Self { path, deadline }
    }

    /// Sends a GET request and returns the answer.
    ///
    /// # Errors
    /// Every [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, target, None)
    }

    /// Sends a POST request without a body, and returns the answer.
    ///
    /// # Errors
    /// Every [`ClientError`].
    pub fn post<T: DeserializeOwned>(&self, target: &str) -> Result<T, ClientError> {
        self.ask(Method::POST, target, None)
    }

    /// Sends a POST request with a body, and returns the answer.
    ///
    /// # Errors
    /// Every [`ClientError`].
    pub fn post_with<T: DeserializeOwned>(
        &self,
        target: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("it is made of text and numbers");
        self.ask(Method::POST, target, Some(body))
    }

    /// Sends a POST request with a body and descriptors, and returns the answer.
    ///
    /// # Errors
    /// Every [`ClientError`].
    pub fn post_passing<T: DeserializeOwned>(
        &self,
        target: &str,
        body: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("it is made of text and numbers");
        self.ask_passing((Method::POST, target, Some(body)), descriptors)
    }

    /// Sends a PATCH request and returns the answer.
    ///
    /// # Errors
    /// Every [`ClientError`].
    pub fn patch<T: DeserializeOwned>(
        &self,
        target: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).expect("it is made of text and numbers");
        self.ask(Method::PATCH, target, Some(body))
    }

    /// Sends a GET request, and calls `line` with each line of a continuing answer until `line`
    /// returns false. Calls `began` once the answer has begun. The deadline covers the connection
    /// and the answer's head.
    ///
    /// # Errors
    /// Every [`ClientError`]; the end of the answer is no error.
    pub fn follow(
        &self,
        target: &str,
        began: impl FnOnce(),
        mut line: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ClientError::System)?;
        runtime.block_on(async {
            let response = self.send(request(Method::GET, target, None), &[]);
            let response = match self.deadline {
                None => response.await,
                Some(deadline) => {
                    timeout(deadline, response).await.unwrap_or(Err(ClientError::Late(deadline)))
                }
            }?;
            let status = response.status();
            if !status.is_success() {
                return Err(ClientError::Answer(format!("its status is {status}")));
            }
            began();
            let mut body = response.into_body();
            let mut rest = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(ClientError::Ended)?;
                rest.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes));
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let goes_on = line(&rest[..end]);
                    rest.drain(..=end);
                    if !goes_on {
                        return Ok(());
                    }
                }
                if rest.len() > ANSWER_BYTES_MAX {
                    let why = format!("a line is longer than {ANSWER_BYTES_MAX} bytes");
                    return Err(ClientError::Answer(why));
                }
            }
            Ok(())
        })
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, ClientError> {
        self.ask_passing((method, target, body), &[])
    }

    fn ask_passing<T: DeserializeOwned>(
        &self,
        (method, target, body): (Method, &str, Option<Vec<u8>>),
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<T, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ClientError::System)?;
        let request = request(method, target, body);
        let (is_well, bytes) = runtime.block_on(async {
            let exchange = self.exchange(request, descriptors);
            match self.deadline {
                None => exchange.await,
                Some(deadline) => {
                    timeout(deadline, exchange).await.unwrap_or(Err(ClientError::Late(deadline)))
                }
            }
        })?;
        let not_understood = |error: serde_json::Error| ClientError::Answer(error.to_string());
        if is_well {
            return serde_json::from_slice(&bytes).map_err(not_understood);
        }
        let problem = serde_json::from_slice(&bytes).map_err(not_understood)?;
        Err(ClientError::Refused(problem))
    }

    /// Connects, sends a request, and waits for the answer's head.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = timeout(CONNECT_DEADLINE, connect(self.path)).await;
        let stream = stream.map_err(|_| ClientError::Late(CONNECT_DEADLINE))?;
        let stream = stream.map_err(ClientError::Connect)?;
        let passes = !descriptors.is_empty();
        if passes {
            // Descriptors can only be sent with a byte: the first byte of the request's method.
            let first = request.method().as_str().as_bytes()[0];
            passed_descriptors::send(&stream, first, descriptors)
                .await
                .map_err(ClientError::Connect)?;
        }
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(StartedStream::new(stream, passes)))
                .await
                .map_err(ClientError::Ended)?;
        // This task may drop the connection's errors, since `sender` returns them as well.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(ClientError::Ended)
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(bool, Bytes), ClientError> {
        let response = self.send(request, descriptors).await?;
        let is_well = response.status().is_success();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        match body {
            Ok(body) => Ok((is_well, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ClientError::Answer(format!("it is longer than {ANSWER_BYTES_MAX} bytes")))
            }
            Err(error) => match error.downcast() {
                Ok(error) => Err(ClientError::Ended(*error)),
                Err(error) => Err(ClientError::Answer(error.to_string())),
            },
        }
    }
}

/// Connects as soon as the socket's queue has room: the kernel returns EAGAIN for a full queue.
async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(CONNECT_EVERY).await,
            connected => return connected,
        }
    }
}

fn request(method: Method, target: &str, body: Option<Vec<u8>>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(target).header(HOST, "braid");
    // The server demands this content type of every request that may change state, even without a
    // body.
    let request = request.header(CONTENT_TYPE, "application/json");
    let body = Full::new(Bytes::from(body.unwrap_or_default()));
    request.body(body).expect("our own paths are paths")
}
