//! Who may look, and who may act.
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use super::address::{Token, host};
use super::page;
use super::refusal::RequestRefusal;

/// A header that a page of another site cannot send without asking first, which is never granted.
pub(super) const ACTION_HEADER: &str = "x-fedeq-action";

/// Lets requests in, or not.
pub(super) struct Guard {
    token: Option<Token>,
    /// The cookie that keeps the token; other dashboards on this machine have other ports.
    cookie: String,
    /// What this machine is called by somebody who sits at it.
    hosts: [String; 4],
}

/// Why a request is not let in.
enum Objection {
    /// Only those who know the token may look.
    Unknown,
    /// Another site's page talks to us under its own name.
    ForeignHost,
    /// A change was asked for by something that is not our page.
    ForeignAction,
}

impl Guard {
    pub(super) fn new(address: SocketAddr, token: Option<Token>) -> Self {
        let hosts = ["localhost".into(), "127.0.0.1".into(), "[::1]".into(), host(address.ip())];
        Self { token, cookie: format!("fedeq-{}", address.port()), hosts }
    }

    /// Whether only those may look who know a token.
    pub(super) fn asks_for_token(&self) -> bool {
        self.token.is_some()
    }

    fn examine(&self, request: &Request) -> Result<(), Objection> {
        match &self.token {
            Some(token) if !self.knows(token, request) => return Err(Objection::Unknown),
            // A name that leads here but is not ours is how a page elsewhere gets past the browser's walls.
            None if !self.is_our_name(request.headers()) => return Err(Objection::ForeignHost),
            _ => {}
        }
        let is_action = request.method() != Method::GET && request.method() != Method::HEAD;
        if is_action && !request.headers().contains_key(ACTION_HEADER) {
            return Err(Objection::ForeignAction);
        }
        Ok(())
    }

    fn knows(&self, token: &Token, request: &Request) -> bool {
        let headers = request.headers();
        let bearer = text(headers, AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
        let kept = text(headers, COOKIE.as_str()).and_then(|cookies| cookie(cookies, &self.cookie));
        [bearer, kept, given(request.uri())].into_iter().flatten().any(|guess| token.is(guess))
    }

    fn is_our_name(&self, headers: &HeaderMap) -> bool {
        let Some(host) = text(headers, HOST.as_str()) else { return false };
        let is_port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        self.hosts.iter().any(|ours| host.strip_prefix(ours.as_str()).is_some_and(is_port))
    }

    /// Takes a token out of the address, where it would be seen and remembered, and into a cookie. `Lax`: a page on disk that leads here (`--open`) counts as another
    /// site, whose first visit would come without a `Strict` one. What changes anything is a POST with a header of its own, which no other site can send.
    fn keep(&self, token: &Token) -> Response {
        let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Lax", self.cookie, token.reveal());
        (StatusCode::SEE_OTHER, [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)]).into_response()
    }
}

/// Examines every request.
pub(super) async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let is_front_page = request.uri().path() == "/";
    let mut response = match guard.examine(&request) {
        Ok(()) => match &guard.token {
            Some(token) if is_front_page && given(request.uri()).is_some() => guard.keep(token),
            _ => next.run(request).await,
        },
        Err(Objection::Unknown) if is_front_page => (StatusCode::UNAUTHORIZED, Html(page::TOKEN_PAGE)).into_response(),
        Err(objection) => objection.into_response(),
    };
    response.headers_mut().extend(page::safety());
    response
}

impl IntoResponse for Objection {
    fn into_response(self) -> Response {
        match self {
            Self::Unknown => {
                RequestRefusal::forbidden("the token is missing or wrong", "open the address that `fedeq dashboard` printed")
            }
            Self::ForeignHost => RequestRefusal::forbidden(
                "the address is not this machine's own",
                "use `localhost`, or start the dashboard without `--no-token`",
            ),
            Self::ForeignAction => RequestRefusal::forbidden("this did not come from the dashboard's page", "use its buttons"),
        }
        .into_response()
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn cookie<'a>(cookies: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The token in an address. Tokens are made of characters that mean themselves there.
fn given(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}
