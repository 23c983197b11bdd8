//! The page as it is sent, and what keeps it to itself.
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use fedeq_viewer::page;

/// What visitors without an access token see.
pub(super) const TOKEN_PAGE: &str = include_str!("../assets/token.html");

/// The page itself.
pub(super) async fn index() -> Html<&'static str> {
    Html(page::INDEX)
}

/// A part of the page.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let (kind, text): (_, &str) = match name.as_str() {
        "page.js" => ("text/javascript; charset=utf-8", &page::SCRIPT),
        "library.js" => ("text/javascript; charset=utf-8", page::LIBRARY),
        "page.css" => ("text/css; charset=utf-8", &page::STYLES),
        "icon.svg" => ("image/svg+xml", page::ICON),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    ([(CONTENT_TYPE, kind)], text).into_response()
}

/// Headers that keep other sites out of the page, and the page to itself.
pub(super) fn safety() -> HeaderMap {
    // `blob:` is what the page itself makes, when it saves a picture.
    const OWN: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
                       form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let headers: [(HeaderName, &'static str); 4] = [
        (CONTENT_SECURITY_POLICY, OWN),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}
