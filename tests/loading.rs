//! Loading: each matrix is told, it can be stopped at each, and no more than one is in memory
//! twice. (One test, for the peak of memory is the whole process's.)

use dflash_chat::model::decoder::Decoder;
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::{Ops, Quantise};
use dflash_chat::model::weights::{TargetFiles, open_target};
use std::fs;
use std::path::Path;

const HIDDEN: usize = 1024;
const FFN: usize = 8192;
const VOCAB: usize = 24_000;
const LAYERS: usize = 3;
/// Bytes of the largest matrix in the file: the embedding.
const LARGEST: u64 = (VOCAB * HIDDEN * 2) as u64;

/// A Llama of zeros in bf16, in a file that takes no space.
fn write_model(folder: &Path) -> TargetFiles {
    let config = format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "vocab_size": {VOCAB}, "hidden_size": {HIDDEN},
        "num_hidden_layers": {LAYERS}, "num_attention_heads": 8, "num_key_value_heads": 8,
        "intermediate_size": {FFN}, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"}}"#
    );
    fs::write(folder.join("config.json"), config).unwrap();
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_owned(), vec![VOCAB, HIDDEN]),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
    ];
    for layer in 0..LAYERS {
        let mut add = |name: &str, shape: &[usize]| {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape.to_vec()));
        };
        add("input_layernorm", &[HIDDEN]);
        add("post_attention_layernorm", &[HIDDEN]);
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            add(&format!("self_attn.{name}"), &[HIDDEN, HIDDEN]);
        }
        add("mlp.gate_proj", &[FFN, HIDDEN]);
        add("mlp.up_proj", &[FFN, HIDDEN]);
        add("mlp.down_proj", &[HIDDEN, FFN]);
    }
    let mut end = 0;
    let entries: Vec<String> = shapes
        .iter()
        .map(|(name, shape)| {
            let start = end;
            end += 2 * shape.iter().product::<usize>();
            format!(
                r#""{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{start},{end}]}}"#
            )
        })
        .collect();
    let mut header = format!("{{{}}}", entries.join(","));
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    let path = folder.join("model.safetensors");
    fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len((8 + header.len() + end) as u64).unwrap();
    open_target(folder).unwrap()
}

/// A figure of `/proc/self/status` in bytes.
fn status(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib << 10)
}

#[test]
fn matrices_are_told_one_by_one_and_are_in_memory_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = write_model(folder.path());
    let source = files.source.bytes();
    assert!(source > 3 * LARGEST);
    let before = status("VmHWM");
    let cpu = Cpu::new(2, Quantise::Q4, KvType::F16);
    let mut told = Vec::new();
    let decoder = Decoder::load(&cpu, &files, 64, &mut |done, total| {
        told.push((done, total));
        Ok(())
    })
    .unwrap();
    let total = 1 + 4 * LAYERS;
    assert_eq!(told, (1..=total).map(|done| (done, total)).collect::<Vec<_>>());
    let bytes = decoder.bytes(&cpu);
    // Five bits of sixteen.
    assert_eq!(bytes, (source - 2 * (HIDDEN * (2 * LAYERS + 1)) as u64) * 5 / 16);
    if let (Some(before), Some(after)) = (before, status("VmHWM")) {
        let grown = after.saturating_sub(before);
        let most = bytes + LARGEST + (48 << 20);
        assert!(most < source, "the test is too lax");
        assert!(grown < most, "{grown} bytes at the peak for weights of {bytes}");
    }

    // An error of the listener, such as a person's wish to stop, ends it at once.
    let mut seen = 0;
    let stopped = Decoder::load(&cpu, &files, 64, &mut |done, _| {
        seen = done;
        anyhow::ensure!(done < 3, "enough");
        Ok(())
    });
    assert_eq!((stopped.err().unwrap().to_string().as_str(), seen), ("enough", 3));

    // What was given back can be read again.
    let again = files.tensor(dflash_chat::model::weights::Role::Embedding).unwrap();
    assert!(again.bytes.iter().all(|byte| *byte == 0));
    assert_eq!(cpu.notes(), Vec::<String>::new());
}
