//! One HTTP request that continues a partial file.
use std::io::Read;
use std::time::Duration;

use ureq::http::header::{CONTENT_RANGE, RANGE};
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use super::observer::{FetchEvent, FetchObserver};
use super::part::Part;
use super::patience::Patience;
use crate::Error;

/// Why an attempt ended before the file was whole.
pub(super) enum Failure {
    /// May pass: trying again makes sense.
    Passing(String),
    /// Will not pass: the server answered, and the answer is no.
    Final(String),
    /// This machine's own trouble.
    Local(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Local(error)
    }
}

type Outcome<T> = std::result::Result<T, Failure>;

/// Asks for what is missing of the file and appends it.
pub(super) fn attempt(
    address: &str,
    total: u64,
    part: &mut Part,
    patience: &Patience,
    time_left: Duration,
    observer: &mut dyn FetchObserver,
) -> Outcome<()> {
    let response = request(address, part.length(), patience, time_left)?;
    match response.status() {
        StatusCode::PARTIAL_CONTENT if continues(&response, part.length()) => {}
        StatusCode::OK => part.clear()?,
        StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
            part.clear()?;
            return Err(Failure::Passing("the server cannot continue the partial file; starting over".into()));
        }
        status => return Err(refused(status)),
    }
    check_length(&response, total - part.length())?;
    receive(response.into_body().into_reader(), total, part, observer)
}

fn request(address: &str, have: u64, patience: &Patience, time_left: Duration) -> Outcome<Response<Body>> {
    let mut request = agent(patience, time_left).get(address);
    if have > 0 {
        request = request.header(RANGE, format!("bytes={have}-"));
    }
    request.call().map_err(|error| failure(&error))
}

fn agent(patience: &Patience, time_left: Duration) -> Agent {
    let config = Agent::config_builder()
        .user_agent(concat!("fedeq/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .http_status_as_error(false)
        .timeout_resolve(Some(patience.connect))
        .timeout_connect(Some(patience.connect))
        .timeout_recv_response(Some(patience.silence))
        .timeout_per_read(Some(patience.silence))
        .timeout_global(Some(time_left))
        .build();
    config.new_agent()
}

/// Whether a partial answer starts where our file ends.
fn continues(response: &Response<Body>, have: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {have}-")))
}

fn check_length(response: &Response<Body>, missing: u64) -> Outcome<()> {
    match response.body().content_length() {
        Some(length) if length != missing => {
            Err(Failure::Final(format!("the server offers `{length}` bytes where `{missing}` were expected")))
        }
        _ => Ok(()),
    }
}

/// Reads no further than one byte past the expected end, so that a server without end cannot fill the disk.
fn receive(body: impl Read, total: u64, part: &mut Part, observer: &mut dyn FetchObserver) -> Outcome<()> {
    let mut body = body.take(total - part.length() + 1);
    let mut buffer = vec![0; 1 << 16];
    observer.observe(&FetchEvent::Downloaded { done: part.length(), total });
    loop {
        match body.read(&mut buffer) {
            Ok(0) if part.length() < total => return Err(cut_off(part.length(), total)),
            Ok(0) => return Ok(()),
            Ok(count) => part.append(&buffer[..count])?,
            Err(error) => return Err(failure(&ureq::Error::from(error))),
        }
        if part.length() > total {
            return Err(Failure::Final(format!("the server sends more than the expected `{total}` bytes")));
        }
        observer.observe(&FetchEvent::Downloaded { done: part.length(), total });
    }
}

fn cut_off(done: u64, total: u64) -> Failure {
    Failure::Passing(format!("the connection ended after `{done}` of `{total}` bytes"))
}

fn refused(status: StatusCode) -> Failure {
    let problem = format!("the server answered `{status}`");
    let passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT;
    if passing { Failure::Passing(problem) } else { Failure::Final(problem) }
}

fn failure(error: &ureq::Error) -> Failure {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => Failure::Final(format!("the address is not valid: {error}")),
        ureq::Error::TooManyRedirects => Failure::Final("the server redirects in circles".into()),
        ureq::Error::Timeout(_) => Failure::Passing("the server did not answer in time".into()),
        ureq::Error::HostNotFound => Failure::Passing("the server's name was not found".into()),
        ureq::Error::Io(error) => Failure::Passing(format!("the connection failed: {error}")),
        other => Failure::Passing(format!("the connection failed: {other}")),
    }
}
