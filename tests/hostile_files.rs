//! Files whose headers claim the world (bugs.md B31): a clean error at once, little memory.

use dflash_chat::model::weights::open_target;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most memory that this process ever used, in KiB; `None` where the system does not tell.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn refused_cheaply(path: &Path) -> String {
    let (before, started) = (peak_memory(), Instant::now());
    let error = format!("{:#}", open_target(path).unwrap_err());
    assert!(started.elapsed() < Duration::from_secs(1), "{error}");
    assert!(error.lines().count() <= 2, "{error}");
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        // The kernel's peak is not exact, and may even shrink.
        let grown = after.saturating_sub(before);
        assert!(grown < 100 << 10, "{grown} KiB: {error}");
    }
    error
}

/// Make a file longer without taking space.
fn grow(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// The beginning of a GGUF file.
fn header(tensors: u64, entries: u64) -> Vec<u8> {
    [b"GGUF".as_slice(), &3u32.to_le_bytes(), &tensors.to_le_bytes(), &entries.to_le_bytes()]
        .concat()
}

#[test]
fn claims_of_billions_cost_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = dir.path().join("m.gguf");
    for (tensors, entries) in [(1 << 32, 1 << 32), (u64::MAX, 0), (0, u64::MAX), (1 << 16, 1 << 16)]
    {
        fs::write(&gguf, header(tensors, entries)).unwrap();
        refused_cheaply(&gguf);
    }
    // One entry: an array of 2^26 empty strings, or of bytes that would be read as whole integers,
    // in a sparse file that is long enough for it.
    for kind in [8u32, 0] {
        let mut bytes = header(0, 1);
        bytes.extend([&1u64.to_le_bytes()[..], b"k", &9u32.to_le_bytes()].concat());
        bytes.extend(kind.to_le_bytes());
        bytes.extend((1u64 << 26).to_le_bytes());
        fs::write(&gguf, bytes).unwrap();
        grow(&gguf, 1 << 30);
        assert!(refused_cheaply(&gguf).contains("an array of 67108864 values"));
    }
}

#[test]
fn tensors_that_share_their_bytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = dir.path().join("m.gguf");
    // 1000 tensors of 4 MB, all of them at the beginning of a file that holds two.
    let mut bytes = header(1000, 0);
    for i in 0..1000 {
        let name = format!("t{i:03}");
        bytes.extend([&4u64.to_le_bytes()[..], name.as_bytes(), &1u32.to_le_bytes()].concat());
        bytes.extend([&(1u64 << 20).to_le_bytes()[..], &[0; 4], &[0; 8]].concat());
    }
    fs::write(&gguf, &bytes).unwrap();
    grow(&gguf, bytes.len() as u64 + (8 << 20));
    assert!(refused_cheaply(&gguf).contains("overlap"));
}

#[test]
fn safetensors_headers_and_configurations_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.json");
    let weights = dir.path().join("model.safetensors");
    fs::write(
        &config,
        r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 8,
            "num_hidden_layers": 512, "num_attention_heads": 1, "intermediate_size": 8,
            "max_position_embeddings": 8, "rms_norm_eps": 1e-5}"#,
    )
    .unwrap();
    for claimed in [1u64 << 62, u64::MAX, 90_000_000, 0] {
        fs::write(&weights, [&claimed.to_le_bytes()[..], b"{}      "].concat()).unwrap();
        refused_cheaply(dir.path());
    }
    grow(&config, 1 << 30);
    refused_cheaply(dir.path());
}
