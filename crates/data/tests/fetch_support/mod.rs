//! A small HTTP server on this machine that misbehaves on request, and things to serve.
#![allow(dead_code)]
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fedeq_data::fetch::{FetchEvent, Fingerprint, Patience};

/// How the server treats one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// Honours `Range`.
    Ranges,
    /// Sends the whole file, whatever was asked.
    IgnoresRange,
    /// Honours `Range` but closes the connection after so many bytes.
    CutsAfter(usize),
    /// Says nothing and keeps the connection open.
    Silent,
    /// Sends so many bytes, then nothing more, with the connection open.
    StallsAfter(usize),
    /// Answers with this status line and no body.
    Status(&'static str),
    /// Claims that a partial answer starts elsewhere.
    WrongRange,
    /// Gives no length, honours `Range`, and closes the connection at the end.
    WithoutLength,
}

/// A server that treats its first request by the first manner, and so on; the last manner stays.
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start(content: Vec<u8>, manners: &[Manner]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/set.tar.gz", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, manners) = (requests.clone(), manners.to_vec());
        thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let manner = manners[index.min(manners.len() - 1)];
                let (content, log) = (content.clone(), log.clone());
                thread::spawn(move || answer(stream.unwrap(), &content, manner, &log));
            }
        });
        Self { address, requests }
    }

    /// The `Range` header of each request so far, empty where there was none.
    pub(crate) fn ranges(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Errors are ignored: a client that hangs up is part of the game.
fn answer(mut stream: TcpStream, content: &[u8], manner: Manner, log: &Mutex<Vec<String>>) {
    let range = read_range(&stream);
    log.lock().unwrap().push(range.clone());
    let asked = range.strip_prefix("bytes=").and_then(|range| range.strip_suffix('-')).and_then(|start| start.parse().ok());
    let start: usize = if matches!(manner, Manner::IgnoresRange) { 0 } else { asked.unwrap_or(0) };
    if asked.is_some_and(|start: usize| start >= content.len()) && !matches!(manner, Manner::IgnoresRange) {
        let _ = stream.write_all(b"HTTP/1.1 416 Range Not Satisfiable\r\ncontent-length: 0\r\n\r\n");
        return;
    }
    let rest = &content[start..];
    let sent = match manner {
        Manner::CutsAfter(count) | Manner::StallsAfter(count) => &rest[..count.min(rest.len())],
        _ => rest,
    };
    match manner {
        Manner::Silent => return wait(),
        Manner::Status(line) => {
            let _ = stream.write_all(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n").as_bytes());
            return;
        }
        _ => {}
    }
    let _ = stream.write_all(head(start, content.len(), manner).as_bytes());
    let _ = stream.write_all(sent);
    let _ = stream.flush();
    if matches!(manner, Manner::StallsAfter(_)) {
        wait();
    }
}

/// Longer than any test's patience, short enough not to outlive the test run.
fn wait() {
    thread::sleep(Duration::from_secs(20));
}

fn head(start: usize, total: usize, manner: Manner) -> String {
    let last = total - 1;
    let claimed = if matches!(manner, Manner::WrongRange) { start + 1 } else { start };
    let length = match manner {
        Manner::WithoutLength => String::new(),
        _ => format!("content-length: {}\r\n", total - start),
    };
    match start {
        0 => format!("HTTP/1.1 200 OK\r\n{length}connection: close\r\n\r\n"),
        _ => format!(
            "HTTP/1.1 206 Partial Content\r\n{length}content-range: bytes {claimed}-{last}/{total}\r\nconnection: close\r\n\r\n"
        ),
    }
}

fn read_range(stream: &TcpStream) -> String {
    let lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let headers: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
    headers.iter().find_map(|line| line.strip_prefix("range: ")).unwrap_or_default().to_owned()
}

/// Short enough for tests, long enough for a busy machine.
pub(crate) fn impatient() -> Patience {
    Patience {
        connect: Duration::from_secs(5),
        silence: Duration::from_millis(400),
        total: Duration::from_secs(15),
        attempts: 3,
        pause: Duration::from_millis(5),
    }
}

/// Bytes that do not repeat soon.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

pub(crate) fn fingerprint(content: &[u8]) -> Fingerprint {
    Fingerprint::of(content).unwrap()
}

/// Watches nothing.
pub(crate) fn unwatched(_: &FetchEvent<'_>) {}
