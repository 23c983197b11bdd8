//! The dashboard as a web server, without a browser.
mod run_support;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use fedeq_dashboard::{Dashboard, Shutdown};
use run_support::{assert_same_files, fedeq, json, refusal, run, run_command, spawn};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Shorter than usual, so that tests need not wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// A dashboard of a folder, until it is dropped.
struct Served {
    address: SocketAddr,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn new(folder: &Path, token: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, shutdown) = (listener.local_addr().expect("bound"), Shutdown::default());
        let token = token.map(|token| token.parse().expect("a good token"));
        let program = vec![env!("CARGO_BIN_EXE_fedeq").into()];
        let dashboard = Dashboard { folder: folder.to_owned(), token, program, patience: PATIENCE };
        let until = shutdown.clone();
        let thread = std::thread::spawn(move || dashboard.serve(listener, &until).expect("it serves"));
        Self { address, shutdown, thread: Some(thread) }
    }

    fn send(&self, request: &str, headers: &[&str], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let given = headers.iter().any(|header| header.to_lowercase().starts_with("host:"));
        let host = if given { String::new() } else { format!("Host: {}\r\n", self.address) };
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        let text = format!("{request} HTTP/1.1\r\n{host}{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes()).expect("it reads");
        stream
    }

    /// The status, the head and the body of an answer.
    fn ask(&self, request: &str, headers: &[&str], body: &str) -> (u16, String, String) {
        let mut text = String::new();
        self.send(request, headers, body).read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        (head[9..12].parse().expect("a status"), head.to_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.ask(&format!("GET {path}"), &[], "");
        (status, body)
    }

    fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).expect("JSON")
    }

    fn row(&self, run: &str) -> Value {
        let rows = self.json("/api/runs");
        rows.as_array()
            .expect("rows")
            .iter()
            .find(|row| row["run"] == run)
            .cloned()
            .unwrap_or_else(|| panic!("no `{run}`: {rows}"))
    }

    fn act(&self, run: &str, action: &str) -> u16 {
        let body = json!({ "run": run, "action": action }).to_string();
        self.ask("POST /api/act", &["X-Fedeq-Action: yes"], &body).0
    }

    fn await_state(&self, run: &str, state: &str) {
        let begun = Instant::now();
        while self.row(run)["state"] != state {
            assert!(begun.elapsed() < Duration::from_secs(60), "`{run}` never was {state}: {}", self.row(run));
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.now();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the dashboard panicked");
        }
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Waits until a run has finished so many rounds.
fn await_rounds(run: &Path, rounds: usize) {
    let begun = Instant::now();
    while lines(&run.join("rounds.jsonl")) < rounds {
        assert!(begun.elapsed() < Duration::from_secs(60), "too slow");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_finished_run_is_listed_with_its_clients_and_their_history() {
    let folder = TempDir::new().expect("a folder");
    let path = run(&folder, "sweep/one", &[]);
    let served = Served::new(folder.path(), None);
    let row = served.row("sweep/one");
    assert_eq!((&row["state"], &row["round"], &row["info"]["method"]), (&"finished".into(), &3.into(), &"fedeq".into()));
    assert_eq!(row["info"]["rounds"], 3);

    let clients = served.json("/api/clients?run=sweep%2Fone");
    let clients = clients["clients"].as_array().expect("rows");
    assert_eq!(clients.len(), 30);
    assert_eq!(clients.iter().filter(|client| client["unseen"] == true).count(), 2);
    assert!(clients.iter().all(|client| client["accuracy"].is_f64()), "unseen clients have been evaluated too");

    let trained = clients.iter().find(|client| client["rounds"].as_u64() > Some(0)).expect("somebody trained");
    let portraits = served.json(&format!("/api/client?run=sweep%2Fone&client={}", trained["client"]));
    let portrait = &portraits["clients"][0];
    assert_eq!((&portrait["name"], &portrait["rounds"]), (&trained["name"], &trained["rounds"]));
    assert_eq!(portrait["heads"]["round"].as_array().map(Vec::len), trained["rounds"].as_u64().map(|rounds| rounds as usize));
    assert!(portrait["heads"]["moved"][0].as_f64() > Some(0.0) && portrait["heads"]["norm"][0].as_f64() > Some(0.0));
    let most = trained["holds"][0][1].as_u64().expect("the most frequent label");
    assert!(trained["holds"].as_array().expect("labels").iter().all(|label| label[1].as_u64() <= Some(most)));
    let held: u64 = portrait["holds"]["train"]["by_class"].as_array().expect("counts").iter().filter_map(Value::as_u64).sum();
    assert_eq!(Some(held), trained["samples"].as_u64());
    assert_eq!(portrait["evaluations"]["round"].as_array().map(Vec::len), Some(2));

    let (status, text) = served.get("/api/experiment?run=sweep%2Fone");
    assert_eq!((status, text), (200, fs::read_to_string(path.join("experiment.toml")).expect("written")));
    assert_eq!(served.get("/api/client?run=sweep%2Fone&client=30").0, 404);
    let (status, words) = served.get("/api/confusion?run=sweep%2Fone");
    assert!(status == 403 && words.contains("--no-token"), "whoever reaches it sees no data from elsewhere: {words}");
}

#[test]
fn a_confusion_matrix_counts_all_a_client_is_evaluated_by() {
    let folder = TempDir::new().expect("a folder");
    let path = run(&folder, "one", &[]);
    let served = Served::new(folder.path(), Some("0123456789abcdef0123456789abcdef"));
    let get = |path: &str| {
        let (status, _, body) =
            served.ask(&format!("GET {path}"), &["Authorization: Bearer 0123456789abcdef0123456789abcdef"], "");
        (status, serde_json::from_str::<Value>(&body).expect("JSON"))
    };
    let (_, clients) = get("/api/clients?run=one");
    let (status, matrix) = get("/api/confusion?run=one&view=local");
    assert_eq!((status, &matrix["view"]), (200, &"local".into()), "{matrix}");
    let row = &clients["clients"][matrix["client"].as_u64().expect("a number") as usize];
    assert_eq!((&matrix["name"], &matrix["accuracy"]), (&row["name"], &row["local"]));
    let counts: Vec<Vec<u64>> = serde_json::from_value(matrix["counts"].clone()).expect("counts");
    let (all, right) = (counts.iter().flatten().sum::<u64>(), (0..counts.len()).map(|class| counts[class][class]).sum::<u64>());
    assert_eq!(Some(all), row["test"].as_u64());
    assert!((right as f64 / all as f64 - row["local"].as_f64().expect("a share")).abs() < 1e-9, "{matrix}");
    assert_eq!(get("/api/confusion?run=one&client=29").0, 200, "an unseen client too");
    assert_eq!(get("/api/confusion?run=one&client=30").0, 422);
    fs::remove_dir_all(path.join("checkpoints")).expect("removed");
    let (status, refusal) = get("/api/confusion?run=one");
    assert!(status == 422 && refusal["problem"].as_str().is_some_and(|words| words.contains("not kept")), "{refusal}");
}

#[test]
fn the_first_events_are_the_list_and_the_whole_story() {
    let folder = TempDir::new().expect("a folder");
    run(&folder, "one", &[]);
    let served = Served::new(folder.path(), None);
    let mut stream = served.send("GET /api/events?runs=%5B%22one%22%5D", &[], "");
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !(text.contains("event: stories\n") && text.contains("\"activity\"")) {
        let read = stream.read(&mut buffer).expect("an event");
        assert!(read > 0, "it ended with {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert!(text.contains("text/event-stream") && text.contains("event: runs\n"));
    let story = text.split("event: stories\n").nth(1).and_then(|rest| rest.strip_prefix("data: ")).expect("data");
    let stories: Value = serde_json::from_str(story.lines().next().expect("a line")).expect("JSON");
    let story = &stories[0];
    assert_eq!(story["anew"], true);
    for (key, rows) in [("rounds", 3), ("evaluations", 2), ("timings", 3)] {
        assert_eq!(story[key]["round"].as_array().map(Vec::len), Some(rows), "{key}");
    }
    assert!(story["rounds"]["steps"][0].as_f64() >= Some(1.0));
    assert_eq!(story["settings"]["method.name"], "\"fedeq\"");
    assert!(story["rounds"].get("epsilon").is_none(), "a column without a number is not sent");
}

#[test]
fn damaged_folders_are_listed_with_what_is_wrong() {
    let folder = TempDir::new().expect("a folder");
    let sound = run(&folder, "sound", &[]);
    let damage = |name: &str, file: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).expect("writable");
        for kept in ["experiment.toml", "status.json", "rounds.jsonl"] {
            fs::copy(sound.join(kept), path.join(kept)).expect("writable");
        }
        fs::write(path.join(file), text).expect("writable");
    };
    damage("journal", "rounds.jsonl", "{\"round\":0}\n");
    damage("settings", "experiment.toml", "<script>");
    damage("status", "status.json", "[]");
    fs::create_dir(folder.path().join("empty")).expect("writable");
    let served = Served::new(folder.path(), None);
    for (run, file) in [("journal", "rounds.jsonl"), ("settings", "experiment.toml"), ("status", "status.json")] {
        let row = served.row(run);
        assert_eq!(row["state"], "malformed", "{row}");
        assert!(row["problem"].as_str().is_some_and(|problem| problem.contains(file)), "{row}");
        assert_eq!(served.act(run, "resume"), 409);
    }
    assert_eq!(served.json("/api/runs").as_array().map(Vec::len), Some(4), "an empty folder is no run");
    fs::remove_file(folder.path().join("journal/clients.json")).ok();
    assert_eq!(served.get("/api/clients?run=journal").0, 422, "it says so instead of failing");
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let folder = TempDir::new().expect("a folder");
    run(&folder, "outside", &["model=linear", "plan.rounds=1"]);
    fs::create_dir(folder.path().join("inside")).expect("writable");
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.path().join("outside"), folder.path().join("inside/link")).expect("writable");
    let served = Served::new(&folder.path().join("inside"), None);
    let absolute = folder.path().join("outside").display().to_string().replace('/', "%2F");
    for name in ["..%2Foutside", "%2E%2E%2Foutside", "link", ".", "", "..", absolute.as_str()] {
        assert_eq!(served.get(&format!("/api/experiment?run={name}")).0, 404, "{name}");
    }
    for path in ["/assets/..%2Findex.html", "/assets/%2Fetc%2Fpasswd", "/assets/../../Cargo.toml", "/etc/passwd"] {
        assert_eq!(served.get(path).0, 404, "{path}");
    }
    assert_eq!(served.act("../outside", "resume"), 404);
    assert_eq!(served.json("/api/runs"), json!([]));
}

#[test]
fn the_page_and_its_parts_are_there_and_keep_to_themselves() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::new(folder.path(), None);
    let (status, head, page) = served.ask("GET /", &[], "");
    assert_eq!(status, 200);
    assert!(head.contains("content-security-policy: default-src 'none'") && head.contains("nosniff"), "{head}");
    let assets = page.split('"').filter(|part| part.starts_with("/assets/"));
    let mut wanted: Vec<String> = assets.map(str::to_owned).collect();
    assert!(wanted.len() >= 3, "{page}");
    while let Some(path) = wanted.pop() {
        let (status, body) = served.get(&path);
        assert_eq!(status, 200, "{path}");
        let outside = body.replace("http://www.w3.org/2000/svg", "").replace("https://github.com/leeoniya/uPlot", "");
        assert!(!outside.contains("http://") && !outside.contains("https://"), "{path} reaches out");
    }
}

#[test]
fn only_this_machines_own_names_and_only_the_page_may_act() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::new(folder.path(), None);
    let status = |host: &str| served.ask("GET /api/runs", &[&format!("Host: {host}")], "").0;
    assert_eq!(["localhost", "localhost:7333", "127.0.0.1:80", "[::1]:7333"].map(status), [200; 4]);
    assert_eq!(["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:7333", ""].map(status), [403; 4]);
    let body = json!({ "run": "one", "action": "stop" }).to_string();
    let (status, _, text) = served.ask("POST /api/act", &["Content-Type: application/json"], &body);
    assert!(status == 403 && text.contains("did not come from"), "{text}");
    assert_eq!(served.ask("POST /api/act", &["X-Fedeq-Action: yes"], &body).0, 404, "ours is let in, but there is no such run");
    assert_eq!(served.ask("POST /api/act", &["X-Fedeq-Action: yes"], "{}").0, 400);
}

#[test]
fn with_a_token_nobody_looks_without_it() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::new(folder.path(), Some("correct-horse"));
    assert_eq!(served.get("/api/runs").0, 403);
    assert_eq!(served.get("/api/runs?token=correct-hors").0, 403);
    assert_eq!(served.get("/assets/page.js").0, 403);
    let (status, page) = served.get("/");
    assert!(status == 401 && page.contains("asks for its access token"), "{page}");
    assert_eq!(served.get("/api/runs?token=correct-horse").0, 200);
    assert_eq!(served.ask("GET /api/runs", &["Authorization: Bearer correct-horse"], "").0, 200);
    let (status, head, _) = served.ask("GET /?token=correct-horse", &[], "");
    assert!(status == 303 && head.contains("location: /\r\n"), "{head}");
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    assert!(cookie.contains("httponly") && cookie.contains("samesite=lax"), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair");
    assert_eq!(served.ask("GET /api/runs", &[&format!("Cookie: other=1; {pair}")], "").0, 200);
    // With a token, other names of this machine are fine.
    assert_eq!(served.ask("GET /api/runs", &["Host: workstation", &format!("Cookie: {pair}")], "").0, 200);
}

#[test]
fn a_run_is_paused_resumed_stopped_and_started_again_to_the_same_bytes() {
    let folder = TempDir::new().expect("a folder");
    // Enough rounds that the run is still under way when it is told to stop.
    let settings = ["plan.rounds=100"];
    let whole = run(&folder, "whole", &settings);
    let path = folder.path().join("live");
    let mut child = spawn(&mut run_command(&folder, "live", &settings));
    await_rounds(&path, 1);
    let served = Served::new(folder.path(), None);
    assert_eq!(served.act("live", "pause"), 204);
    served.await_state("live", "paused");
    let held = lines(&path.join("rounds.jsonl"));
    sleep(Duration::from_millis(600));
    assert!(lines(&path.join("rounds.jsonl")) <= held + 1, "a paused run goes on");
    assert_eq!(json(&path.join("status.json"))["state"], "paused");
    assert_eq!(served.act("live", "pause"), 409, "it is paused already");

    assert_eq!(served.act("live", "resume"), 204);
    await_rounds(&path, held + 2);
    assert_eq!(served.act("live", "stop"), 204);
    assert_eq!(child.wait().expect("ours").code(), Some(130));
    served.await_state("live", "stopped");
    assert!(!path.join("activity.json").exists(), "nobody is at work");

    assert_eq!(served.act("live", "resume"), 204);
    served.await_state("live", "finished");
    assert_same_files(&whole, &path, "after a pause and a stop");
    assert_eq!(served.act("live", "stop"), 409);
}

#[test]
fn a_killed_run_is_shown_as_such() {
    let folder = TempDir::new().expect("a folder");
    let mut child = spawn(&mut run_command(&folder, "victim", &["plan.rounds=500"]));
    await_rounds(&folder.path().join("victim"), 1);
    let served = Served::new(folder.path(), None);
    served.await_state("victim", "running");
    child.kill_now();
    served.await_state("victim", "killed");
}

#[test]
fn a_run_that_cannot_be_resumed_says_why() {
    let folder = TempDir::new().expect("a folder");
    let mut child = spawn(&mut run_command(&folder, "victim", &["plan.rounds=500"]));
    let path = folder.path().join("victim");
    await_rounds(&path, 2);
    child.kill_now();
    for entry in fs::read_dir(path.join("checkpoints")).expect("a folder").flatten() {
        fs::write(entry.path(), "{}").expect("writable");
    }
    let served = Served::new(folder.path(), None);
    served.await_state("victim", "killed");
    assert_eq!(served.act("victim", "resume"), 204);
    let begun = Instant::now();
    while served.row("victim")["trouble"].is_null() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no word");
        sleep(Duration::from_millis(50));
    }
    assert!(served.row("victim")["trouble"].as_str().is_some_and(|trouble| trouble.contains("checkpoints")));
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let (error, _) = refusal(fedeq(&folder).args(["dashboard", "nowhere"]), 2);
    assert_eq!(error, "`nowhere` is not a folder");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let (error, hint) = refusal(fedeq(&folder).args(["dashboard", "--port", &port]), 2);
    assert!(error.contains(&port) && hint.contains("--port"), "{error}");
    let output = fedeq(&folder).args(["dashboard", "--token", "short"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
}

/// The answer to a request for the list, on a dashboard that others sit on.
fn is_answered(served: &Served) -> bool {
    served.get("/api/runs").0 == 200
}

#[test]
fn connections_that_say_nothing_are_ended_and_others_are_answered() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::new(folder.path(), None);
    let mut held: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(served.address).expect("it listens")).collect();
    for (number, stream) in held.iter_mut().enumerate() {
        let begun = ["", "GET", "GET / HTTP/1.1\r\nHost: localhost\r\n"][number % 3];
        // It may have been ended already.
        let _ = stream.write_all(begun.as_bytes());
    }
    assert!(is_answered(&served));
    let silent = &mut held[0];
    silent.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut rest = Vec::new();
    // Ended in order or torn down: it is over.
    let _ = silent.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&rest));
}

#[test]
fn whoever_speaks_slowly_is_not_waited_for_for_ever() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::new(folder.path(), None);
    let mut slow = TcpStream::connect(served.address).expect("it listens");
    let begun = Instant::now();
    let head = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".bytes().chain(std::iter::repeat(b'a'));
    for byte in head {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        assert!(begun.elapsed() < 20 * PATIENCE, "it listens for ever");
        sleep(Duration::from_millis(50));
    }
    let mut body = served.send("POST /api/act", &["X-Fedeq-Action: yes", "Transfer-Encoding: chunked"], "");
    let mut text = String::new();
    let _ = body.read_to_string(&mut text);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
}

#[test]
fn a_page_that_is_open_stays_open() {
    let folder = TempDir::new().expect("a folder");
    let served = Served::new(folder.path(), None);
    let mut stream = served.send("GET /api/events", &[], "");
    let (begun, mut buffer) = (Instant::now(), [0; 4096]);
    while begun.elapsed() < 3 * PATIENCE {
        assert!(stream.read(&mut buffer).expect("a sign of life") > 0, "it was ended after {:?}", begun.elapsed());
    }
}
