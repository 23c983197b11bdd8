//! The page, embedded in the program: nothing is built, and nothing comes from elsewhere.
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};

/// What visitors without an access token see.
pub(super) const TOKEN_PAGE: &str = include_str!("../assets/token.html");

const INDEX: &str = include_str!("../assets/index.html");

macro_rules! assets {
    ($($name:literal),* $(,)?) => { [$(($name, include_str!(concat!("../assets/", $name)))),*] };
}

const ASSETS: [(&str, &str); 17] = assets![
    "style.css",
    "icon.svg",
    "app.js",
    "actions.js",
    "chart.js",
    "client.js",
    "clients.js",
    "compare.js",
    "dom.js",
    "figures.js",
    "format.js",
    "list.js",
    "run.js",
    "scale.js",
    "state.js",
    "stream.js",
    "workers.js",
];

/// The page itself.
pub(super) async fn index() -> Html<&'static str> {
    Html(INDEX)
}

/// A part of the page.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => ([(CONTENT_TYPE, kind(&name))], *text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// Headers that keep other sites out of the page, and the page to itself.
pub(super) fn safety() -> HeaderMap {
    const OWN: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                       form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    let headers: [(HeaderName, &'static str); 4] = [
        (CONTENT_SECURITY_POLICY, OWN),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    headers.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}
