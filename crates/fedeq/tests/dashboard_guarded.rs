//! The dashboard on a machine that others use too: what it shows, to whom, and what it may cost.
mod run_support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use run_support::{fedeq, refusal, run, run_command, spawn};
use serde_json::{Value, json};
use tempfile::TempDir;

/// `fedeq dashboard` as a process of its own, until it is dropped.
struct Process {
    child: Child,
    /// The address it printed.
    printed: String,
}

impl Process {
    fn start(folder: &TempDir, options: &[&str]) -> Self {
        Self::of(fedeq(folder).args(["dashboard", ".", "--port", "0"]).args(options))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
        let mut printed = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut printed).expect("an address");
        Self { child, printed: printed.trim().to_owned() }
    }

    fn host(&self) -> &str {
        self.printed.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("an address")
    }

    fn token(&self) -> Option<&str> {
        self.printed.split_once("?token=").map(|(_, token)| token)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.host()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    /// The status and the body of an answer.
    fn ask(&self, request: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let (host, length) = (self.host(), body.len());
        let head =
            format!("{request} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        (head[9..12].parse().expect("a status"), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), "", "")
    }

    fn row(&self, run: &str) -> Value {
        let (status, body) = self.get("/api/runs");
        assert_eq!(status, 200, "{body}");
        let rows: Vec<Value> = serde_json::from_str(&body).expect("JSON");
        rows.into_iter().find(|row| row["run"] == run).unwrap_or_else(|| panic!("no `{run}`: {body}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn on_this_machine_too_nobody_looks_without_the_token() {
    let folder = TempDir::new().expect("a folder");
    let dashboard = Process::start(&folder, &[]);
    let token = dashboard.token().expect("the printed address has a token");
    assert!(token.len() == 32 && dashboard.host().starts_with("127.0.0.1:"), "{}", dashboard.printed);
    assert_eq!(dashboard.get("/api/runs").0, 403);
    assert_eq!(dashboard.get("/").0, 401);
    assert_eq!(dashboard.get(&format!("/?token={token}")).0, 303, "from here on there is a cookie");
    assert_eq!(dashboard.get(&format!("/api/runs?token={token}")).0, 200);
    let other = Process::start(&folder, &[]);
    assert_ne!(other.token(), Some(token), "every dashboard has its own");
}

#[test]
fn whoever_wants_no_token_says_so_and_only_on_this_machine() {
    let folder = TempDir::new().expect("a folder");
    let dashboard = Process::start(&folder, &["--no-token"]);
    assert_eq!((dashboard.token(), dashboard.get("/api/runs").0), (None, 200));
    let (error, hint) = refusal(fedeq(&folder).args(["dashboard", ".", "--no-token", "--bind", "0.0.0.0", "--port", "0"]), 2);
    assert!(error.contains("--no-token") && hint.contains("--bind"), "{error}");
    let both = fedeq(&folder).args(["dashboard", ".", "--no-token", "--token", "correct-horse"]).output().expect("it starts");
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_token_of_ones_own_is_not_printed() {
    let folder = TempDir::new().expect("a folder");
    let mut command = fedeq(&folder);
    command.args(["dashboard", ".", "--port", "0"]).env("FEDEQ_DASHBOARD_TOKEN", "correct-horse");
    let dashboard = Process::of(&mut command);
    assert_eq!((dashboard.token(), dashboard.get("/api/runs").0), (None, 403));
    assert_eq!(dashboard.get("/api/runs?token=correct-horse").0, 200);
}

#[cfg(target_os = "linux")]
#[test]
fn the_browser_is_told_of_a_page_and_not_of_the_token() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().expect("a folder");
    let program = folder.path().join("xdg-open");
    fs::write(&program, "#!/bin/sh\nprintf '%s' \"$*\" > told.partial && mv told.partial told\n").expect("writable");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = fedeq(&folder);
    command.args(["dashboard", ".", "--port", "0", "--open"]).env("PATH", path).env("XDG_RUNTIME_DIR", folder.path());
    let dashboard = Process::of(&mut command);
    let begun = Instant::now();
    while !folder.path().join("told").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no browser was opened");
        sleep(Duration::from_millis(20));
    }
    let page = fs::read_to_string(folder.path().join("told")).expect("readable");
    let token = dashboard.token().expect("a token");
    assert!(!page.contains(token), "arguments are seen by every user of the machine: {page}");
    assert_eq!(fs::metadata(&page).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&page).expect("readable").contains(&format!("url={}\"", dashboard.printed)));
}

/// A copy of a run in which a file is a link to another.
#[cfg(unix)]
fn linked(from: &Path, to: &Path, file: &str, target: &Path) {
    fs::create_dir(to).expect("writable");
    for entry in fs::read_dir(from).expect("readable").flatten().filter(|entry| entry.path().is_file()) {
        if entry.file_name() != file {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("writable");
        }
    }
    std::os::unix::fs::symlink(target, to.join(file)).expect("writable");
}

#[cfg(unix)]
#[test]
fn files_that_are_links_are_not_shown_wherever_they_lead() {
    let (folder, elsewhere) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let sound = run(&folder, "sound", &["model=linear", "plan.rounds=1"]);
    // A private file, and a whole private run, whose every word could be shown.
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, "PRIVATE").expect("writable");
    let private = run(&elsewhere, "private", &["model=linear", "plan.rounds=2", "seed=4711"]);
    let files =
        ["experiment.toml", "status.json", "rounds.jsonl", "evaluations.jsonl", "timings.jsonl", "heads.jsonl", "clients.json"];
    for file in files {
        linked(&sound, &folder.path().join(format!("to-file-{file}")), file, &secret);
        linked(&sound, &folder.path().join(format!("to-run-{file}")), file, &private.join(file));
        linked(&sound, &folder.path().join(format!("to-own-{file}")), file, &sound.join(file));
    }
    let dashboard = Process::start(&folder, &["--no-token"]);
    for (file, kind) in files.into_iter().flat_map(|file| ["to-file", "to-run", "to-own"].map(|kind| (file, kind))) {
        let name = format!("{kind}-{file}");
        let row = dashboard.row(&name);
        let answers = [
            dashboard.get(&format!("/api/experiment?run={name}")),
            dashboard.get(&format!("/api/clients?run={name}")),
            dashboard.get(&format!("/api/client?run={name}&client=0")),
        ];
        for (_, body) in &answers {
            assert!(!body.contains("PRIVATE") && !body.contains("4711"), "{name}: {body}");
        }
        let refused = answers.iter().find(|(status, _)| *status == 422);
        let is_shown_as_broken =
            row["state"] == "malformed" && row["problem"].as_str().is_some_and(|words| words.contains("is a link"));
        let is_refused = refused.is_some_and(|(_, body)| body.contains("is a link"));
        assert!(is_shown_as_broken || is_refused, "{name}: {row} {answers:?}");
    }
    assert_eq!(dashboard.row("sound")["state"], "finished");
    assert_eq!(dashboard.get("/api/client?run=sound&client=0").0, 200);
}

#[cfg(unix)]
#[test]
fn an_order_is_not_written_through_a_link() {
    let (folder, elsewhere) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, "precious").expect("writable");
    let mut child = spawn(&mut run_command(&folder, "live", &["plan.rounds=2000"]));
    let dashboard = Process::start(&folder, &["--no-token"]);
    let begun = Instant::now();
    while !folder.path().join("live/activity.json").exists() || dashboard.row("live")["state"] != "running" {
        assert!(begun.elapsed() < Duration::from_secs(60), "too slow");
        sleep(Duration::from_millis(20));
    }
    std::os::unix::fs::symlink(&secret, folder.path().join("live/control.json.partial")).expect("writable");
    let body = json!({ "run": "live", "action": "stop" }).to_string();
    let (status, text) = dashboard.ask("POST /api/act", "X-Fedeq-Action: yes\r\n", &body);
    assert_eq!(fs::read_to_string(&secret).expect("readable"), "precious");
    assert_eq!(status, 204, "{text}");
    assert_eq!(child.wait().expect("ours").code(), Some(130));
}

/// Writes a journal of so many lines, each made from its number.
fn write_lines(path: PathBuf, lines: u64, line: impl Fn(u64) -> Value) {
    let mut file = BufWriter::new(File::create(path).expect("writable"));
    (0..lines).for_each(|number| writeln!(file, "{}", line(number)).expect("writable"));
}

/// The most memory that a process has held.
#[cfg(target_os = "linux")]
fn peak_memory(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.child.id())).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

/// A run whose journals are long.
#[cfg(target_os = "linux")]
fn long_run(folder: &TempDir, lines: u64) -> PathBuf {
    let path = run(folder, "long", &["model=linear", "plan.rounds=1"]);
    let first = |journal: &str| -> Value {
        let text = fs::read_to_string(path.join(journal)).expect("written");
        serde_json::from_str(text.lines().next().expect("a line")).expect("JSON")
    };
    let numbered = |mut line: Value, number: u64| {
        line["round"] = number.into();
        line
    };
    let (rounds, evaluations, timings, heads) =
        (first("rounds.jsonl"), first("evaluations.jsonl"), first("timings.jsonl"), first("heads.jsonl"));
    write_lines(path.join("rounds.jsonl"), lines, |number| numbered(rounds.clone(), number));
    write_lines(path.join("evaluations.jsonl"), lines, |number| numbered(evaluations.clone(), number + 1));
    write_lines(path.join("timings.jsonl"), lines, |number| numbered(timings.clone(), number + 1));
    write_lines(path.join("heads.jsonl"), lines, |number| numbered(heads.clone(), number + 1));
    path
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_journals() {
    const LINES: u64 = 100_000;
    let folder = TempDir::new().expect("a folder");
    let path = long_run(&folder, LINES);
    let journals = ["rounds", "evaluations", "timings", "heads"].map(|name| path.join(format!("{name}.jsonl")));
    let bytes: u64 = journals.iter().map(|path| fs::metadata(path).expect("written").len()).sum();
    let cohort: Value =
        serde_json::from_str(fs::read_to_string(path.join("rounds.jsonl")).expect("written").lines().next().expect("a line"))
            .expect("JSON");
    let client = cohort["cohort"][0].as_u64().expect("a client");
    let dashboard = Process::start(&folder, &["--no-token"]);
    assert_eq!(dashboard.row("long")["round"], LINES);
    let answers: Vec<(u16, String)> = std::thread::scope(|scope| {
        let ask = |path: String| {
            scope.spawn(|| {
                let path = path;
                dashboard.get(&path)
            })
        };
        let portraits = (0..3).map(|_| ask(format!("/api/client?run=long&client={client}")));
        let asked: Vec<_> = portraits.chain([ask("/api/clients?run=long".into())]).collect();
        asked.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert!(
        answers.iter().all(|(status, _)| *status == 200),
        "{:?}",
        answers.iter().map(|(status, _)| status).collect::<Vec<_>>()
    );
    let portraits: Value = serde_json::from_str(&answers[0].1).expect("JSON");
    let portrait = &portraits["clients"][0];
    assert_eq!(portrait["rounds"], LINES, "every round was counted");
    for curve in ["evaluations", "heads"] {
        let rounds = portrait[curve]["round"].as_array().expect("points");
        assert!((1_000..=2_001).contains(&rounds.len()), "{curve}: {}", rounds.len());
        assert_eq!((&rounds[0], &rounds[rounds.len() - 1]), (&1.into(), &LINES.into()), "{curve}");
    }
    let story = first_story(&dashboard);
    let told = |journal: &Value| journal["round"].as_array().expect("rounds").clone();
    assert!((1_000..=2_000).contains(&told(&story["rounds"]).len()), "as many as can be told apart");
    let last = told(&story["tail"]["evaluations"]).pop().or_else(|| told(&story["evaluations"]).pop());
    assert_eq!(last, Some(LINES.into()));
    let peak = peak_memory(&dashboard);
    assert!(bytes > 100 << 20 && peak < 160 << 20, "{} MB of journals, {} MB of memory", bytes >> 20, peak >> 20);
}

/// What a page is told first of the long run.
#[cfg(target_os = "linux")]
fn first_story(dashboard: &Process) -> Value {
    let mut stream = dashboard.connect();
    let host = dashboard.host();
    write!(stream, "GET /api/events?runs=%5B%22long%22%5D HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it reads");
    let is_story = |line: &String| line.starts_with("data: [{") && line.contains("\"totals\"");
    // The connection is kept alive: a story that never comes would be waited for for ever.
    let begun = std::time::Instant::now();
    let in_time = |_: &String| begun.elapsed().as_secs() < 60;
    let line = BufReader::new(stream).lines().map_while(Result::ok).take_while(in_time).find(is_story).expect("a story");
    let stories: Value = serde_json::from_str(line.strip_prefix("data: ").expect("data")).expect("JSON");
    stories[0].clone()
}
