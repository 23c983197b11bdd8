//! Requests that are not met, and why.
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use fedeq_core::Error;
use fedeq_run::run::RunState;
use serde_json::json;

use super::answer::Json;

/// Why a request is not met.
#[derive(Debug)]
pub(super) struct RequestRefusal {
    status: StatusCode,
    problem: String,
    hint: String,
}

impl RequestRefusal {
    pub(super) fn unknown(run: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no run `{run}`"), "choose one from the list of runs")
    }

    pub(super) fn unknown_client(client: usize) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no client `{client}`"), "choose one from the list of clients")
    }

    pub(super) fn out_of_place(run: &str, state: RunState) -> Self {
        let problem = format!("`{run}` {}", state.words());
        Self::new(StatusCode::CONFLICT, problem, "look at its state, and try again")
    }

    pub(super) fn not_understood(problem: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, problem, "load the page again")
    }

    pub(super) fn failed(problem: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, problem, "look at the terminal of the dashboard")
    }

    pub(super) fn forbidden(problem: &str, hint: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, problem.to_owned(), hint)
    }

    fn new(status: StatusCode, problem: String, hint: &str) -> Self {
        Self { status, problem, hint: hint.to_owned() }
    }
}

impl From<Error> for RequestRefusal {
    fn from(error: Error) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, problem: error.to_string(), hint: error.hint() }
    }
}

impl IntoResponse for RequestRefusal {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "problem": self.problem, "hint": self.hint }))).into_response()
    }
}
