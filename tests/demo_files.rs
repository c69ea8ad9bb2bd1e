//! The real demo target and its draft. Needs `DFLASH_DEMO_TARGET` (the GGUF file's path) and
//! `DFLASH_DEMO_DRAFT` (the draft's directory); without them the tests print that they skip.

use dflash_chat::model::ops::Visibility;
use dflash_chat::model::weights::{Part, Role, open_draft, open_target};
use std::path::PathBuf;

fn path_of(variable: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).map(PathBuf::from);
    if path.is_none() {
        eprintln!("skipped: {variable} is not set");
    }
    path
}

#[test]
fn the_demo_target_opens() {
    let Some(path) = path_of("DFLASH_DEMO_TARGET") else { return };
    let target = open_target(&path).unwrap();
    let config = &target.config;
    assert_eq!(config.architecture, "llama");
    assert_eq!((config.vocab, config.hidden, config.layers.len()), (49152, 576, 30));
    assert_eq!((config.max_positions, config.tied, config.norm_eps), (8192, true, 1e-5));
    let attention = &config.layers[29].attention;
    assert_eq!((attention.heads, attention.kv_heads, attention.head_dim), (9, 3, 64));
    assert_eq!(config.layers[0].rope.inv_freq.len(), 32);
    assert!((config.layers[0].rope.inv_freq[16] - 1e5f64.powf(-0.5)).abs() < 1e-12);
    assert_eq!(target.source.kinds(), "Q4_1, Q8_0");
    assert_eq!(target.end_tokens().unwrap(), [2]);
    assert_eq!(target.tensor(Role::Layer(3, Part::Q)).unwrap().shape, [576, 576]);
    let norm = target.tensor(Role::FinalNorm).unwrap().to_f32().unwrap();
    assert!(norm.len() == 576 && norm.iter().all(|v| v.is_finite()));
    let gguf = target.source.gguf().unwrap();
    assert_eq!(gguf.strings("tokenizer.ggml.tokens").unwrap().unwrap().len(), 49152);
    assert_eq!(gguf.text("tokenizer.ggml.model").unwrap(), Some("gpt2"));
}

#[test]
fn the_demo_draft_fits_it() {
    let Some(path) = path_of("DFLASH_DEMO_TARGET") else { return };
    let Some(draft) = path_of("DFLASH_DEMO_DRAFT") else { return };
    let target = open_target(&path).unwrap();
    let draft = open_draft(&draft, &target.config, None).unwrap();
    assert_eq!(draft.warnings, Vec::<String>::new());
    assert_eq!((draft.config.block_size, draft.config.mask_token_id), (8, 16));
    assert_eq!(draft.config.taps, [1, 8, 14, 20, 27]);
    assert!(
        draft.config.layers.iter().all(|l| l.attention.visibility == Visibility::Bidirectional)
    );
    assert_eq!(draft.tensor(Role::Fc).unwrap().shape, [576, 2880]);
    assert_eq!(draft.source.kinds(), "F16");
    assert!(!draft.has(Role::Embedding));
}
