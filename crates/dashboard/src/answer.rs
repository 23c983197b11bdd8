//! Values as JSON. (axum has the same, but asks for a feature of `serde_json` that would have every other crate built anew.)
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A value to be sent as JSON.
pub(super) struct Json<V>(pub(super) V);

impl<V: Serialize> IntoResponse for Json<V> {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], text(&self.0)).into_response()
    }
}

/// A value as JSON. What is sent from here has only text for keys, and so can always be written.
pub(super) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
