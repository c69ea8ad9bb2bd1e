//! The hub's addresses, and which files of a repository are needed.

use super::error::{CatalogError, SourceError};
use super::http::Network;
use super::local::{INDEX, SINGLE};
use super::names::{self, RepoRef};
use super::part::Want;
use serde::Deserialize;

/// The small files that say how the weights are to be used, in the order they are fetched; the
/// first must be there. Weights come last, so that a folder with weights has all of these.
const SMALL: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    INDEX,
];

/// A list of a repository's files is at most a few megabytes.
const LIST_LIMIT: usize = 32 << 20;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RepoFile {
    pub name: String,
    pub want: Want,
}

/// A repository at one commit.
#[derive(Debug)]
pub(super) struct RepoList {
    /// The commit, so that all files are of the same state.
    pub commit: String,
    files: Vec<RepoFile>,
}

impl RepoList {
    /// The file of that name.
    pub fn find(&self, name: &str) -> Option<&RepoFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The small files that are there.
    pub fn small(&self) -> impl Iterator<Item = &RepoFile> {
        SMALL.iter().filter_map(|name| self.find(name))
    }
}

/// The address of a file.
pub(super) fn file_url(network: &Network, repo: &RepoRef, name: &str) -> String {
    let revision = repo.revision.replace('/', "%2F");
    format!("{}/{}/resolve/{revision}/{}", network.endpoint, repo.id, encode(name))
}

/// Ask what a repository holds.
pub(super) fn list(
    network: &Network,
    repo: &RepoRef,
    cancelled: &dyn Fn() -> bool,
) -> Result<RepoList, CatalogError> {
    let revision = repo.revision.replace('/', "%2F");
    let url = format!("{}/api/models/{}/revision/{revision}?blobs=true", network.endpoint, repo.id);
    let what = format!("{repo} on the hub");
    let body = network.get(&url, None, cancelled)?.small(&what, LIST_LIMIT, cancelled)?;
    Ok(read_list(&body).map_err(|why| SourceError::Wrong { what, why })?)
}

fn read_list(body: &[u8]) -> Result<RepoList, String> {
    #[derive(Deserialize)]
    struct Info {
        sha: String,
        siblings: Vec<Sibling>,
    }
    #[derive(Deserialize)]
    struct Sibling {
        rfilename: String,
        size: Option<u64>,
        lfs: Option<Lfs>,
    }
    #[derive(Deserialize)]
    struct Lfs {
        sha256: Option<String>,
        size: Option<u64>,
    }
    let info: Info = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    names::check_word(&info.sha)?;
    let files = info
        .siblings
        .into_iter()
        // What lies in folders or has an odd name is not needed, so it is not seen.
        .filter(|sibling| names::check_file_name(&sibling.rfilename).is_ok())
        .map(|sibling| {
            let (sha256, linked) = sibling.lfs.map_or((None, None), |lfs| (lfs.sha256, lfs.size));
            let want = Want { bytes: linked.or(sibling.size), sha256 };
            RepoFile { name: sibling.rfilename, want }
        })
        .collect();
    let list = RepoList { commit: info.sha, files };
    if list.find("config.json").is_none() {
        let gguf: Vec<&str> =
            list.files.iter().map(|f| f.name.as_str()).filter(|n| n.ends_with(".gguf")).collect();
        return Err(match gguf.first() {
            Some(first) => format!(
                "it holds GGUF files ({}): name one, as in organisation/name/{first}",
                gguf.join(", ")
            ),
            None => "it has no config.json".into(),
        });
    }
    if list.find(INDEX).is_none() && list.find(SINGLE).is_none() {
        return Err(format!("it has neither {SINGLE} nor {INDEX}"));
    }
    Ok(list)
}

/// Percent-encode what may not stand in an address's path.
fn encode(name: &str) -> String {
    name.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'~' | b'+' => {
                char::from(b).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_seen() {
        let list = read_list(
            br#"{"sha":"abc","siblings":[{"rfilename":"config.json","size":3},
            {"rfilename":"../../x","size":3},{"rfilename":"original/consolidated.00.pth"},
            {"rfilename":"pytorch_model.bin"},{"rfilename":"tokenizer.json","size":9},
            {"rfilename":"model.safetensors","size":7,"lfs":{"sha256":"00","size":7}}]}"#,
        )
        .unwrap();
        let small: Vec<&str> = list.small().map(|f| f.name.as_str()).collect();
        assert_eq!(small, ["config.json", "tokenizer.json"]);
        assert_eq!(list.find(SINGLE).unwrap().want.bytes, Some(7));
        assert!(list.find("../../x").is_none());
    }

    #[test]
    fn a_list_without_a_model_says_so() {
        let why = |siblings: &str| {
            read_list(format!(r#"{{"sha":"abc","siblings":[{siblings}]}}"#).as_bytes()).unwrap_err()
        };
        assert!(why(r#"{"rfilename":"m.Q4.gguf"}"#).contains("name one"));
        assert!(why("").contains("config.json"));
        assert!(why(r#"{"rfilename":"config.json"}"#).contains(SINGLE));
        assert!(read_list(br#"{"sha":"../x","siblings":[]}"#).is_err());
        assert!(read_list(b"<html>").is_err());
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encode("a b?#%.gguf"), "a%20b%3F%23%25.gguf");
    }
}
