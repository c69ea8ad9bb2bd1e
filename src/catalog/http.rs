//! HTTP as the downloader needs it: one GET at a time, redirects followed by hand, read on a
//! thread of its own so that a wish to stop is heard while the network is silent.

use super::error::{CatalogError, SourceError};
use hf_hub::Cache;
use std::io::Read;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use ureq::Agent;
use ureq::http::{HeaderMap, Response, Uri};

/// A server that lets us connect and then says nothing at all is as good as none.
const ANSWER: Duration = Duration::from_secs(10);

/// Where the hub is, who asks, and how long to wait.
#[derive(Debug, Clone)]
pub struct Network {
    /// Nothing may be fetched.
    pub offline: bool,
    /// The hub's address; `HF_ENDPOINT`.
    pub endpoint: String,
    /// Sent to the hub only, never to where it redirects; `HF_TOKEN` or the hub's token file.
    pub token: Option<String>,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long a server may be silent.
    pub stall: Duration,
    /// How long to wait after a transfer broke; longer each time.
    pub pause: Duration,
}

impl Network {
    /// As the environment says; `offline` is the person's own wish for this run.
    pub fn from_env(offline: bool, hub_cache: Option<&Cache>) -> Network {
        let text = |name| std::env::var(name).ok().filter(|v: &String| !v.is_empty());
        let switch = |name| text(name).is_some_and(|v| !matches!(v.as_str(), "0" | "false" | "no"));
        Network {
            offline: offline || switch("HF_HUB_OFFLINE") || switch("DFLASH_CHAT_OFFLINE"),
            endpoint: text("HF_ENDPOINT")
                .unwrap_or_else(|| "https://huggingface.co".into())
                .trim_end_matches('/')
                .to_string(),
            token: text("HF_TOKEN").or_else(|| hub_cache.and_then(Cache::token)),
            connect: Duration::from_secs(5),
            stall: Duration::from_secs(30),
            pause: Duration::from_millis(300),
        }
    }

    /// Ask for `url`, from `range.offset` on if a range is given, and wait for the head of the
    /// answer. `cancelled` is asked several times a second.
    pub(super) fn get(
        &self,
        url: &str,
        range: Option<RangeRequest>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answer, CatalogError> {
        // Four chunks ahead of the disk are enough to keep the network busy.
        let (sender, receiver) = mpsc::sync_channel(4);
        let (network, url) = (self.clone(), url.to_string());
        std::thread::Builder::new()
            .name("download".into())
            .spawn(move || network.read_all(&url, range.as_ref(), &sender))
            .map_err(|e| SourceError::Tool(format!("cannot start a thread: {e}")))?;
        match wait(&receiver, cancelled)? {
            Some(Piece::Head(head)) => Ok(Answer { head: *head, receiver }),
            Some(Piece::Failed(e)) => Err(e.into()),
            _ => Err(SourceError::Tool("the download's thread ended".into()).into()),
        }
    }

    fn read_all(&self, url: &str, range: Option<&RangeRequest>, sender: &mpsc::SyncSender<Piece>) {
        // A send fails when nobody listens any more; then there is nothing left to do.
        let (head, mut response) = match self.follow(url, range) {
            Ok(found) => found,
            Err(e) => return drop(sender.send(Piece::Failed(e))),
        };
        if sender.send(Piece::Head(Box::new(head))).is_err() {
            return;
        }
        let mut reader = response.body_mut().as_reader();
        loop {
            let mut chunk = vec![0; 256 * 1024];
            let piece = match reader.read(&mut chunk) {
                Ok(0) => Piece::End,
                Ok(n) => {
                    chunk.truncate(n);
                    Piece::Bytes(chunk)
                }
                Err(e) => Piece::Broken(e.to_string()),
            };
            let last = !matches!(piece, Piece::Bytes(_));
            if sender.send(piece).is_err() || last {
                return;
            }
        }
    }

    /// Follow redirects by hand: the hub's own headers about a file are on the redirect, and the
    /// token must not travel on.
    fn follow(
        &self,
        url: &str,
        range: Option<&RangeRequest>,
    ) -> Result<(Head, Response<ureq::Body>), SourceError> {
        let agent: Agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(self.connect))
            .timeout_connect(Some(self.connect))
            .timeout_recv_response(Some(self.stall.min(ANSWER)))
            .timeout_per_read(Some(self.stall))
            .accept_encoding("identity")
            .user_agent(concat!("dflash-chat/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let mut head = Head::default();
        let mut at = url.to_string();
        for _ in 0..8 {
            let unreachable = |why: String| SourceError::Unreachable { host: host(&at), why };
            let mut request = agent.get(&at);
            if let Some(token) = self.token.as_ref().filter(|_| same_host(&at, &self.endpoint)) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            if let Some(range) = range {
                request = request.header("Range", format!("bytes={}-", range.offset));
                if let Some(etag) = &range.etag {
                    request = request.header("If-Range", etag);
                }
            }
            let response = request.call().map_err(|e| unreachable(plain(&e)))?;
            head.note(response.status().as_u16(), response.headers());
            if !response.status().is_redirection() {
                return Ok((head, response));
            }
            let location = text(response.headers(), "location")
                .ok_or_else(|| unreachable("a redirect to nowhere".into()))?;
            at = redirect(&at, location).ok_or_else(|| unreachable("a bad redirect".into()))?;
        }
        Err(SourceError::Unreachable { host: host(url), why: "too many redirects".into() })
    }
}

/// From where on, and only if the file is still the one with this tag.
#[derive(Debug, Clone)]
pub(super) struct RangeRequest {
    pub offset: u64,
    pub etag: Option<String>,
}

/// What the answers on the way said of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    /// Length of this body.
    pub length: Option<u64>,
    /// First byte and length of the whole file, of a partial answer.
    pub content_range: Option<(u64, u64)>,
    /// A strong tag that may be sent in `If-Range`.
    pub etag: Option<String>,
    /// SHA-256 and length of a large file, as the hub itself knows them.
    pub linked_sha256: Option<String>,
    pub linked_bytes: Option<u64>,
    /// The hub's word for why it refuses.
    pub error_code: Option<String>,
}

impl Head {
    fn note(&mut self, status: u16, headers: &HeaderMap) {
        self.status = status;
        self.length = text(headers, "content-length").and_then(|v| v.parse().ok());
        self.content_range = text(headers, "content-range").and_then(content_range);
        self.etag = text(headers, "etag").filter(|t| t.starts_with('"')).map(String::from);
        self.error_code = text(headers, "x-error-code").map(String::from);
        if let Some(tag) = text(headers, "x-linked-etag") {
            let hash = tag.trim_matches('"');
            if hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()) {
                self.linked_sha256 = Some(hash.to_ascii_lowercase());
            }
        }
        if let Some(bytes) = text(headers, "x-linked-size").and_then(|v| v.parse().ok()) {
            self.linked_bytes = Some(bytes);
        }
    }

    /// The error that a status other than 2xx stands for.
    pub fn refusal(&self, what: &str) -> SourceError {
        let what = what.to_string();
        match (self.status, self.error_code.as_deref()) {
            (401 | 403, Some("GatedRepo")) => SourceError::Gated { what },
            (401 | 403, _) => SourceError::Refused { what, status: self.status },
            (404, _) => SourceError::NotFound { what },
            _ => SourceError::Status { what, status: self.status },
        }
    }
}

/// An answer whose body is still coming.
pub(super) struct Answer {
    pub head: Head,
    receiver: mpsc::Receiver<Piece>,
}

impl Answer {
    /// The next bytes; `None` at the end of the body. The inner error is a transfer that broke.
    pub fn next(
        &mut self,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Result<Option<Vec<u8>>, String>, CatalogError> {
        Ok(match wait(&self.receiver, cancelled)? {
            Some(Piece::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Piece::End) => Ok(None),
            Some(Piece::Broken(why)) => Err(why),
            Some(Piece::Failed(e)) => Err(e.to_string()),
            Some(Piece::Head(_)) | None => Err("the connection ended".into()),
        })
    }

    /// A whole small body, at most `limit` bytes.
    pub fn small(
        mut self,
        what: &str,
        limit: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<u8>, CatalogError> {
        if self.head.status != 200 {
            return Err(self.head.refusal(what).into());
        }
        let wrong = |why: String| SourceError::Wrong { what: what.into(), why };
        let mut body = Vec::new();
        while let Some(bytes) = self.next(cancelled)?.map_err(wrong)? {
            body.extend_from_slice(&bytes);
            if body.len() > limit {
                return Err(wrong(format!("more than {limit} bytes")).into());
            }
        }
        Ok(body)
    }
}

enum Piece {
    Head(Box<Head>),
    Bytes(Vec<u8>),
    End,
    Broken(String),
    Failed(SourceError),
}

fn wait(
    receiver: &mpsc::Receiver<Piece>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Option<Piece>, CatalogError> {
    loop {
        if cancelled() {
            return Err(CatalogError::Cancelled);
        }
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(piece) => return Ok(Some(piece)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// `bytes 5-9/10` → (5, 10)
fn content_range(value: &str) -> Option<(u64, u64)> {
    let (span, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = span.split_once('-')?;
    Some((first.trim().parse().ok()?, total.trim().parse().ok()?))
}

/// What went wrong, without the library's own prefix.
fn plain(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(e) => e.to_string(),
        e => e.to_string(),
    }
}

fn host(url: &str) -> String {
    url.parse::<Uri>()
        .ok()
        .and_then(|uri| uri.authority().map(|a| a.to_string()))
        .unwrap_or_else(|| "the server".into())
}

fn same_host(a: &str, b: &str) -> bool {
    match (a.parse::<Uri>(), b.parse::<Uri>()) {
        (Ok(a), Ok(b)) => a.authority() == b.authority() && a.scheme() == b.scheme(),
        _ => false,
    }
}

/// Where a redirect leads: an absolute address, or a path on the same host. From https to http is
/// refused.
fn redirect(from: &str, location: &str) -> Option<String> {
    let base: Uri = from.parse().ok()?;
    if location.starts_with('/') && !location.starts_with("//") {
        return Some(format!("{}://{}{location}", base.scheme()?, base.authority()?));
    }
    let target: Uri = location.parse().ok()?;
    match (base.scheme_str()?, target.scheme_str()?) {
        ("http", "http" | "https") | ("https", "https") => Some(location.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_safe() {
        let go = |from, to| redirect(from, to);
        assert_eq!(go("https://a/b?c", "/d?e").as_deref(), Some("https://a/d?e"));
        assert_eq!(go("http://a:1/b", "https://x/y").as_deref(), Some("https://x/y"));
        for to in ["http://x/y", "//x/y", "file:///etc/passwd", "y", ""] {
            assert_eq!(go("https://a/b", to), None, "{to}");
        }
    }

    #[test]
    fn a_token_goes_to_one_host() {
        assert!(same_host("http://h:1/a", "http://h:1"));
        for other in ["http://h:2/a", "https://h:1/a", "http://h:1.evil/a", "http://h:1@evil/a"] {
            assert!(!same_host(other, "http://h:1"), "{other}");
        }
    }

    #[test]
    fn content_ranges() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 10)));
        for bad in ["bytes */10", "5-9/10", "bytes 5-9/*", "bytes x-9/10", ""] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
