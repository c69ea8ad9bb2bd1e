//! The fixture models (made by `tests/fixtures/generate.py`): what transformers saved opens, and
//! the GGUF files converted from them say the same.

use dflash_chat::model::weights::{
    DraftFiles, Part, RawTensor, Role, TargetFiles, open_draft, open_target,
};
use std::path::{Path, PathBuf};

fn models() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models");
    let mut models: Vec<_> = dir.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    models.sort();
    assert!(models.len() >= 11, "{models:?}");
    models
}

fn open(model: &Path) -> (TargetFiles, DraftFiles) {
    let target = open_target(model).unwrap();
    let draft = open_draft(&model.join("draft"), &target.config, None).unwrap();
    (target, draft)
}

/// The file of the same numbers in GGUF, where there is one.
fn gguf(model: &Path, name: &str) -> Option<PathBuf> {
    let of = |kind| model.join(format!("{name}.{kind}.gguf"));
    ["f32", "f16"].map(of).into_iter().find(|path| path.exists())
}

fn same(a: RawTensor<'_>, b: RawTensor<'_>) {
    assert_eq!(a.shape, b.shape);
    let far =
        a.to_f32().unwrap().into_iter().zip(b.to_f32().unwrap()).any(|(a, b)| (a - b).abs() > 1e-6);
    assert!(!far, "{} and {}", a.name, b.name);
}

#[test]
fn every_fixture_opens_with_its_draft() {
    for model in models() {
        let (target, draft) = open(&model);
        assert!(!target.end_tokens().unwrap().is_empty(), "{}", model.display());
        assert_eq!(draft.warnings, Vec::<String>::new(), "{}", model.display());
    }
}

#[test]
fn gguf_targets_say_what_their_originals_say() {
    let mut compared = 0;
    for model in models() {
        let Some(path) = gguf(&model, "model") else { continue };
        compared += 1;
        let (original, _) = open(&model);
        let gguf = open_target(&path).unwrap();
        let mut expected = original.config.clone();
        // The converter adds the one that Gemma's safetensors leave out, and stores Llama 3's
        // rope scaling in f32.
        expected.norm_adds_one = false;
        for (layer, found) in expected.layers.iter_mut().zip(&gguf.config.layers) {
            let (a, b) = (&mut layer.rope.inv_freq, &found.rope.inv_freq);
            assert_eq!(a.len(), b.len(), "{}", model.display());
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= a * 1e-6), "{a:?} {b:?}");
            a.clone_from(b);
        }
        assert_eq!(gguf.config, expected, "{}", model.display());
        assert_eq!(gguf.end_tokens().unwrap(), original.end_tokens().unwrap());
        for part in [Part::Q, Part::K, Part::Gate, Part::Down] {
            let role = Role::Layer(1, part);
            same(original.tensor(role).unwrap(), gguf.tensor(role).unwrap());
        }
    }
    assert!(compared >= 6);
}

#[test]
fn gguf_drafts_say_what_their_originals_say() {
    let mut compared = 0;
    for model in models() {
        let Some(path) = gguf(&model, "draft/draft") else { continue };
        compared += 1;
        let (target, original) = open(&model);
        let draft = open_draft(&path, &target.config, None).unwrap();
        assert_eq!(draft.config.taps, original.config.taps, "{}", model.display());
        for (a, b) in draft.config.layers.iter().zip(&original.config.layers) {
            assert_eq!(a.attention, b.attention, "{}", model.display());
            let (rope, original) = (&a.rope, &b.rope);
            assert!((rope.magnitude - original.magnitude).abs() < 1e-6, "{}", model.display());
            let pairs = rope.inv_freq.iter().zip(&original.inv_freq);
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= b * 1e-6), "{rope:?}");
        }
        assert_eq!(draft.config.block_size, original.config.block_size);
        assert_eq!(draft.config.mask_token_id, original.config.mask_token_id);
        assert_eq!(draft.config.final_softcap, original.config.final_softcap);
        assert_eq!(draft.config.embedding_scale, original.config.embedding_scale);
        for role in [Role::Fc, Role::HiddenNorm, Role::Layer(0, Part::Q)] {
            same(original.tensor(role).unwrap(), draft.tensor(role).unwrap());
        }
    }
    assert!(compared >= 6);
}
