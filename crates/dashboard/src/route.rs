//! Requests and who answers them.
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use super::answer::Json;
use super::connection::{body, hold_clock};
use super::events::{Followed, follow};
use super::guard::{Guard, check};
use super::page;
use super::refusal::RequestRefusal;
use super::run_index::{Action, RunIndex};
use fedeq_core::View;
use fedeq_run::run::RunFolder;
use fedeq_viewer::{client_confusion, client_views, clients};

/// All there is to ask for.
pub(super) fn router(index: Arc<RunIndex>, guard: Guard) -> Router {
    // An experiment says where its data is. In a folder that others write to, that may be a file which only the owner of this process may read; so its class names are
    // shown to nobody but who was given the token.
    let matrices = if guard.asks_for_token() { get(confusion) } else { get(no_confusion) };
    Router::new()
        .route("/", get(page::index))
        .route("/assets/{name}", get(page::asset))
        .route("/api/runs", get(runs))
        .route("/api/events", get(events))
        .route("/api/experiment", get(experiment))
        .route("/api/clients", get(all_clients))
        .route("/api/client", get(one_client))
        .route("/api/confusion", matrices)
        .route("/api/act", post(act))
        .layer(from_fn_with_state(Arc::new(guard), check))
        .layer(from_fn(hold_clock))
        .with_state(index)
}

/// Points a curve of one client.
const POINTS: usize = 2_000;

type Answer<V> = Result<Json<V>, RequestRefusal>;

#[derive(Deserialize)]
struct OfRun {
    run: String,
}

#[derive(Deserialize)]
struct OfClient {
    run: String,
    client: usize,
}

#[derive(Deserialize)]
struct OfMatrix {
    run: String,
    /// The least accurate if nobody is named.
    client: Option<usize>,
    /// The model by which the method is evaluated if nobody says by which.
    view: Option<View>,
}

#[derive(Deserialize)]
struct Wanted {
    /// Names of runs as a JSON array, or `all`: an address has no other way to hold several of anything.
    runs: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionRequest {
    run: String,
    action: Action,
}

async fn runs(State(index): State<Arc<RunIndex>>) -> Answer<impl Serialize> {
    beside(move || Ok(index.rows())).await.map(Json)
}

async fn events(State(index): State<Arc<RunIndex>>, Query(wanted): Query<Wanted>) -> Response {
    let runs = wanted.runs.as_deref().unwrap_or("[]");
    if runs == "all" {
        return follow(index, Followed::All).into_response();
    }
    match serde_json::from_str(runs) {
        Ok(runs) => follow(index, Followed::Named(runs)).into_response(),
        Err(error) => RequestRefusal::not_understood(format!("`runs` is no list of names: {error}")).into_response(),
    }
}

async fn experiment(State(index): State<Arc<RunIndex>>, Query(OfRun { run }): Query<OfRun>) -> Result<String, RequestRefusal> {
    of_run(index, run, |folder| Ok(folder.experiment_text()?)).await
}

async fn all_clients(State(index): State<Arc<RunIndex>>, Query(OfRun { run }): Query<OfRun>) -> Answer<impl Serialize> {
    of_run(index, run, |folder| Ok(clients(folder)?)).await.map(Json)
}

async fn one_client(
    State(index): State<Arc<RunIndex>>,
    Query(OfClient { run, client }): Query<OfClient>,
) -> Answer<impl Serialize> {
    let views = move |folder: &RunFolder| {
        let found = client_views(folder, &[client], POINTS)?;
        if found.clients.is_empty() { Err(RequestRefusal::unknown_client(client)) } else { Ok(found) }
    };
    of_run(index, run, views).await.map(Json)
}

/// Loads the data and the models of a finished run, so a page asks for it only when somebody wants to see it.
async fn confusion(
    State(index): State<Arc<RunIndex>>,
    Query(OfMatrix { run, client, view }): Query<OfMatrix>,
) -> Answer<impl Serialize> {
    of_run(index, run, move |folder| Ok(client_confusion(folder, client, view)?)).await.map(Json)
}

async fn no_confusion() -> RequestRefusal {
    RequestRefusal::forbidden(
        "a dashboard that asks for no token computes no confusion matrices, since they tell of data outside its folder",
        "start it without `--no-token`",
    )
}

async fn act(State(index): State<Arc<RunIndex>>, request: Request) -> Result<StatusCode, RequestRefusal> {
    let body = body(request, index.patience).await;
    let body = body.ok_or_else(|| RequestRefusal::not_understood("this is too long or too slow for an action".into()))?;
    let action_request =
        serde_json::from_str(&body).map_err(|error| RequestRefusal::not_understood(format!("this is no action: {error}")))?;
    let ActionRequest { run, action } = action_request;
    beside(move || index.act(&run, action)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Reads something of a run. That may take a while and some memory, so only few do so at a time.
async fn of_run<V: Send + 'static>(
    index: Arc<RunIndex>,
    run: String,
    read: impl FnOnce(&RunFolder) -> Result<V, RequestRefusal> + Send + 'static,
) -> Result<V, RequestRefusal> {
    let _turn = index.readers.acquire().await;
    let index = Arc::clone(&index);
    beside(move || read(&index.folder(&run)?)).await
}

/// Does what may take a while on a thread where it holds up nobody.
async fn beside<V: Send + 'static>(
    work: impl FnOnce() -> Result<V, RequestRefusal> + Send + 'static,
) -> Result<V, RequestRefusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(RequestRefusal::failed("something went wrong while the run was read".into())))
}
