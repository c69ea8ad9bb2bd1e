//! A small HTTP server that misbehaves as it is told; it stands for the hub.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a client asked.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

impl Request {
    /// The first byte of a `Range` header.
    pub fn offset(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// What it gets.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Close the connection after so many bytes of the body.
    pub cut: Option<usize>,
    /// Be silent for so long after half of the body.
    pub stall: Duration,
    /// The length that is stated; the body's own unless given.
    pub length: Option<Option<usize>>,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            headers: Vec::new(),
            body: body.into(),
            cut: None,
            stall: Duration::ZERO,
            length: None,
        }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Reply {
        self.headers.push((name.into(), value.to_string()));
        self
    }

    pub fn cut(mut self, after: usize) -> Reply {
        self.cut = Some(after);
        self
    }

    /// A file as a good server sends it: ranges honoured.
    pub fn file(data: &[u8], request: &Request) -> Reply {
        match request.offset() {
            Some(from) if from < data.len() => {
                let range = format!("bytes {from}-{}/{}", data.len() - 1, data.len());
                Reply::new(206, &data[from..]).with("Content-Range", range)
            }
            Some(_) => Reply::new(416, "").with("Content-Range", format!("bytes */{}", data.len())),
            None => Reply::new(200, data),
        }
        .with("ETag", "\"tag\"")
    }
}

/// A running server; it ends with the test's process.
pub struct Server {
    pub url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets each request and how many came before it.
    pub fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    let before = {
                        let mut log = log.lock().unwrap();
                        log.push(request.clone());
                        log.len() - 1
                    };
                    // A client that hangs up is part of what is tested.
                    let _ = write(&stream, &answer(&request, before));
                });
            }
        });
        Server { url, seen }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_string();
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_string());
    }
    Some(Request { path, headers })
}

fn write(mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} x\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if let Some(length) = reply.length.unwrap_or(Some(reply.body.len())) {
        head += &format!("Content-Length: {length}\r\n");
    }
    stream.write_all(head.as_bytes())?;
    stream.write_all(b"\r\n")?;
    let body = &reply.body[..reply.cut.unwrap_or(reply.body.len()).min(reply.body.len())];
    let (first, second) = body.split_at(body.len() / 2);
    stream.write_all(first)?;
    stream.flush()?;
    std::thread::sleep(reply.stall);
    stream.write_all(second)?;
    stream.flush()
}
