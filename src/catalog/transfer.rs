//! One file over HTTP, resumed as long as it gets on.

use super::error::{CatalogError, SourceError};
use super::http::{Answer, Network, RangeRequest};
use super::part::{Part, Want};
use super::progress::{Meter, size};
use std::path::Path;
use std::time::{Duration, Instant};

/// Tries that brought next to nothing, one after another, before a source is given up.
const TRIES: u32 = 4;
/// A try that brought this much is not counted.
const GAIN: u64 = 1 << 20;

/// Fetch `url` to `whole`; `what` names it in messages. `want` is what must come; what the server
/// says beyond that is checked too. `base` bytes of the meter belong to files before this one.
/// Returns what came.
pub(super) fn fetch(
    network: &Network,
    url: &str,
    what: &str,
    whole: &Path,
    want: &Want,
    base: u64,
    meter: &mut Meter<'_>,
) -> Result<Want, CatalogError> {
    let mut part = Part::open(whole, want, &|| meter.watch.cancelled())?;
    meter.start_at(base + part.len());
    let mut failures = 0;
    let mut came = false;
    loop {
        let before = part.len();
        let mut want = want.clone();
        let why = match try_once(network, url, what, &mut part, &mut want, base, meter) {
            // Once bytes have come, the host is there: silence is an interruption.
            Err(CatalogError::Source(SourceError::Unreachable { why, .. })) if came => why,
            Err(e) => return Err(e),
            Ok(Try::Whole) => {
                let (bytes, resumed) = (part.len(), part.resumed);
                meter.at(base + bytes);
                match part.finish(what, &want) {
                    Ok(sha256) => return Ok(Want { bytes: Some(bytes), sha256: Some(sha256) }),
                    // The old bytes may have been at fault: once more without them.
                    Err(CatalogError::Source(SourceError::Wrong { .. })) if resumed => {
                        part = Part::open(whole, &want, &|| meter.watch.cancelled())?;
                        meter.start_at(base);
                        continue;
                    }
                    Err(e) => return Err(e),
                }
            }
            Ok(Try::Broke(why)) => why,
        };
        came |= part.len() > before;
        failures = if part.len() >= before.saturating_add(GAIN) { 0 } else { failures + 1 };
        if failures >= TRIES {
            let got = size(part.len());
            return Err(SourceError::Broken { what: what.into(), got, why }.into());
        }
        pause(network.pause * failures, meter)?;
    }
}

enum Try {
    Whole,
    Broke(String),
}

fn try_once(
    network: &Network,
    url: &str,
    what: &str,
    part: &mut Part,
    want: &mut Want,
    base: u64,
    meter: &mut Meter<'_>,
) -> Result<Try, CatalogError> {
    if part.len() > 0 && want.bytes == Some(part.len()) && want.sha256.is_some() {
        return Ok(Try::Whole);
    }
    let range = (part.len() > 0)
        .then(|| RangeRequest { offset: part.len(), etag: part.etag().map(String::from) });
    let mut answer = network.get(url, range, &|| meter.watch.cancelled())?;
    let head = &answer.head;
    let total = match head.status {
        200 => {
            if part.len() > 0 {
                part.restart()?;
                meter.start_at(base);
            }
            head.length
        }
        206 => match head.content_range {
            Some((first, total))
                if first == part.len()
                    && (part.etag().is_none() || part.etag() == head.etag.as_deref()) =>
            {
                Some(total)
            }
            _ => {
                part.restart()?;
                return Ok(Try::Broke("the server sent another part than asked".into()));
            }
        },
        // What is there cannot be continued: it may be whole already, or of another file.
        416 if part.len() > 0 => {
            part.restart()?;
            return Ok(Try::Broke("the server has no such part".into()));
        }
        408 | 429 | 500..=599 => return Ok(Try::Broke(format!("HTTP {}", head.status))),
        _ => return Err(head.refusal(what).into()),
    };
    want.sha256 = want.sha256.take().or_else(|| head.linked_sha256.clone());
    let said = total.or(head.linked_bytes);
    if let (Some(said), Some(wanted)) = (said, want.bytes)
        && said != wanted
    {
        let why = format!("the server has {said} bytes, {wanted} are expected");
        return Err(SourceError::Wrong { what: what.into(), why }.into());
    }
    want.bytes = want.bytes.or(said);
    if want.bytes.is_none() {
        let why = "the server does not say how long it is".into();
        return Err(SourceError::Wrong { what: what.into(), why }.into());
    }
    meter.total = meter.total.or(want.bytes.map(|bytes| base + bytes));
    part.note(answer.head.etag.clone(), want)?;
    read_body(&mut answer, part, want, base, meter)
}

fn read_body(
    answer: &mut Answer,
    part: &mut Part,
    want: &Want,
    base: u64,
    meter: &mut Meter<'_>,
) -> Result<Try, CatalogError> {
    let limit = want.bytes.unwrap_or(u64::MAX);
    loop {
        let next = answer.next(&|| meter.watch.cancelled())?;
        match next {
            Ok(Some(bytes)) if part.len() + bytes.len() as u64 > limit => {
                part.restart()?;
                return Ok(Try::Broke(format!("more came than the promised {limit} bytes")));
            }
            Ok(Some(bytes)) => {
                part.append(&bytes)?;
                meter.at(base + part.len());
            }
            Ok(None) if part.len() < limit => {
                return Ok(Try::Broke("the connection ended early".into()));
            }
            Ok(None) => return Ok(Try::Whole),
            Err(_) if part.len() == limit => return Ok(Try::Whole),
            Err(why) => return Ok(Try::Broke(why)),
        }
    }
}

/// Wait, but hear a wish to stop.
fn pause(time: Duration, meter: &Meter<'_>) -> Result<(), CatalogError> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if meter.watch.cancelled() {
            return Err(CatalogError::Cancelled);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
