//! `models inspect`: what is known of a pair, and what its files say.

use super::{CONTEXT, answer, selection};
use crate::catalog::download::size;
use crate::catalog::fit::{fit, free_on_device};
use crate::catalog::{self, DraftPlace, Pair, Role, Store};
use crate::model::config::DecoderConfig;
use crate::model::ops::Quantise;
use crate::model::weights::{
    DraftFiles, TargetFiles, open_draft, open_embedded_draft, open_target,
};
use crate::text::sanitise_line;
use anyhow::Result;
use std::io::Write;
use std::process::ExitCode;

/// One fact a line, its name first.
struct Facts<W>(W);

impl<W: Write> Facts<W> {
    fn add(&mut self, name: &str, value: impl AsRef<str>) -> Result<()> {
        Ok(writeln!(self.0, "{name:12} {}", sanitise_line(value.as_ref()))?)
    }
}

/// Print the facts of a pair, or of a model in files.
pub fn run(name: &str, store: &Store) -> Result<ExitCode> {
    let pair = catalog::resolve(&selection(name), store)?;
    let mut facts = Facts(std::io::stdout().lock());
    facts.add("name", &pair.name)?;
    if let Some(known) = pair.known {
        known_facts(&mut facts, known, store)?;
    }
    let here = |role| pair.missing.iter().all(|missing| missing.role != role);
    facts.add("target", place(pair.target.path().display(), here(Role::Target)))?;
    let target = here(Role::Target).then(|| open_target(pair.target.path())).transpose()?;
    if let Some(target) = &target {
        target_facts(&mut facts, target)?;
    }
    match (&pair.draft, target) {
        (DraftPlace::None(why), _) => facts.add("draft", why)?,
        (DraftPlace::Embedded(draft), target) => {
            facts.add("draft", format!("{} (in the program)", draft.name))?;
            if let Some(target) = target {
                let files = open_embedded_draft(draft.file, &target.config, None)?;
                draft_facts(&mut facts, &files)?;
            }
        }
        (DraftPlace::At(draft), target) => {
            facts.add("draft", place(draft.path().display(), here(Role::Draft)))?;
            if let Some(target) = target.filter(|_| here(Role::Draft)) {
                draft_facts(&mut facts, &open_draft(draft.path(), &target.config, None)?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn place(path: impl std::fmt::Display, here: bool) -> String {
    if here { path.to_string() } else { format!("not here yet; it goes to {path}") }
}

fn known_facts(facts: &mut Facts<impl Write>, pair: &Pair, store: &Store) -> Result<()> {
    facts.add("title", &pair.title)?;
    facts.add("licence", &pair.licence)?;
    facts.add("origin", &pair.origin)?;
    facts.add("parameters", &pair.parameters)?;
    facts.add("state", store.state(pair).name())?;
    let Some(free) = free_on_device(true) else { return Ok(()) };
    let fit = fit(&pair.into(), free, CONTEXT, Quantise::AsStored);
    facts.add("fits", format!("{} at {CONTEXT} tokens", answer(&fit)))?;
    let parts = fit.parts;
    let [weights, cache, draft, work] =
        [parts.weights, parts.cache, parts.draft, parts.work].map(size);
    let memory = format!("weights {weights}, cache {cache}, draft {draft}, working {work}");
    facts.add("memory", memory)
}

fn target_facts(facts: &mut Facts<impl Write>, files: &TargetFiles) -> Result<()> {
    let DecoderConfig { architecture, layers, hidden, vocab, max_positions, .. } = &files.config;
    let layers_text = match layers.first().map(|layer| &layer.attention) {
        Some(a) => {
            let (count, heads, kv, width) = (layers.len(), a.heads, a.kv_heads, a.head_dim);
            format!("{count}, {hidden} wide; {heads} query and {kv} key heads of {width}")
        }
        None => "none".into(),
    };
    facts.add("  is", architecture)?;
    facts.add("  layers", layers_text)?;
    facts.add("  vocabulary", vocab.to_string())?;
    facts.add("  positions", max_positions.to_string())?;
    let kinds = files.source.kinds();
    facts.add("  weights", format!("{} in {kinds}", size(files.source.bytes())))?;
    files.warnings.iter().try_for_each(|warning| facts.add("  note", warning))
}

fn draft_facts(facts: &mut Facts<impl Write>, files: &DraftFiles) -> Result<()> {
    let config = &files.config;
    facts.add("  is", &config.architecture)?;
    facts.add("  layers", format!("{}, {} wide", config.layers.len(), config.hidden))?;
    let block = format!("{} (mask token {})", config.block_size, config.mask_token_id);
    facts.add("  block", block)?;
    let taps: Vec<String> = config.taps.iter().map(usize::to_string).collect();
    facts.add("  reads", format!("outputs of the target's layers {}", taps.join(", ")))?;
    if let Some(selector) = config.selector {
        let how = format!("{} candidates a slot, by the token before it", selector.candidates);
        facts.add("  selects", how)?;
    }
    let kinds = files.source.kinds();
    facts.add("  weights", format!("{} in {kinds}", size(files.source.bytes())))?;
    files.warnings.iter().try_for_each(|warning| facts.add("  note", warning))
}
