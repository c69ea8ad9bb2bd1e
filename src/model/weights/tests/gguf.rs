use crate::model::config::DecoderConfig;
use crate::model::weights::Bytes;
use crate::model::weights::gguf::GgufFile;
use crate::model::weights::testing::{GgufWriter, tiny};
use candle_core::quantized::GgmlDType;
use proptest::prelude::*;
use std::time::Instant;

fn open(bytes: Vec<u8>) -> anyhow::Result<GgufFile> {
    GgufFile::from_bytes(Bytes::Owned(bytes), "a.gguf")
}

fn message<T>(result: anyhow::Result<T>) -> String {
    result.err().map(|e| format!("{e:#}")).expect("an error")
}

fn sample() -> GgufWriter {
    let mut writer = tiny("llama").1;
    writer
        .texts("tokenizer.ggml.tokens", &["a", "ünï", ""])
        .f32s("tokenizer.ggml.scores", &[0.5, -1.0, 2.0])
        .i32s("tokenizer.ggml.token_type", &[1, 3, -6])
        .flag("tokenizer.ggml.add_bos_token", true)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .tensor("token_embd.weight", &[64, 32], &[0.25; 64 * 32])
        .raw("blk.0.attn_q.weight", &[2, 32], 8, &[1; 68]);
    writer
}

#[test]
fn getters_return_what_was_written() {
    let file = open(sample().build()).unwrap();
    assert_eq!(file.architecture().unwrap(), "llama");
    let tokens = file.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens, ["a", "ünï", ""]);
    assert_eq!(file.floats("tokenizer.ggml.scores").unwrap().unwrap(), [0.5, -1.0, 2.0]);
    assert_eq!(file.integers("tokenizer.ggml.token_type").unwrap().unwrap(), [1, 3, -6]);
    assert_eq!(file.flag("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
    assert_eq!(file.id("tokenizer.ggml.eos_token_id").unwrap(), Some(2));
    assert_eq!(file.float("llama.rope.freq_base").unwrap(), Some(1e6));
    assert_eq!(file.text("tokenizer.chat_template").unwrap(), None);
    let tensor = file.tensor("token_embd.weight").unwrap();
    assert_eq!((tensor.shape.clone(), tensor.dtype), (vec![64, 32], GgmlDType::F32));
    assert!(tensor.to_f32().unwrap().iter().all(|&v| v == 0.25));
    // A Q8_0 block: a scale in f16 (0x0101), then 32 numbers of 1.
    let quantised = file.tensor("blk.0.attn_q.weight").unwrap().to_f32().unwrap();
    assert_eq!(quantised, [half::f16::from_bits(0x0101).to_f32(); 64]);
}

#[test]
fn errors_name_key_found_type_and_architecture() {
    let file = open(sample().build()).unwrap();
    assert_eq!(
        message(file.count("tokenizer.ggml.tokens")),
        "a.gguf: tokenizer.ggml.tokens should be a count but is an array of 3 × a string \
         (architecture llama)"
    );
    assert!(message(file.text("llama.block_count")).contains("should be text but is an integer"));
    assert!(message(file.count("llama.rope.freq_base")).contains("a count but is a float"));
    assert!(message(file.flag("llama.block_count")).contains("a bool but is an integer"));
    assert!(message(file.strings("tokenizer.ggml.scores")).contains("array of strings"));
    assert!(message(file.tensor("output.weight")).contains("a.gguf has no tensor output.weight"));
}

/// B31: sizes in the header must not drive allocations.
#[test]
fn a_header_that_claims_billions_is_refused_at_once() {
    let started = Instant::now();
    for (tensors, entries) in
        [(1u64 << 32, 0u64), (0, 1 << 32), (u64::MAX, u64::MAX), (65000, 65000)]
    {
        let header = [
            b"GGUF".as_slice(),
            &3u32.to_le_bytes(),
            &tensors.to_le_bytes(),
            &entries.to_le_bytes(),
        ];
        let mut bytes = header.concat();
        bytes.resize(64, 0);
        assert!(message(open(bytes)).starts_with("a.gguf is not a GGUF file that can be read"));
    }
    // An array that claims 2^61 numbers, or strings.
    for kind in [4u32, 8, 10] {
        let mut bytes =
            [b"GGUF".as_slice(), &3u32.to_le_bytes(), &[0; 8], &1u64.to_le_bytes()].concat();
        bytes.extend([&1u64.to_le_bytes()[..], b"k", &9u32.to_le_bytes()].concat());
        bytes.extend([&kind.to_le_bytes()[..], &(1u64 << 61).to_le_bytes()].concat());
        open(bytes).unwrap_err();
    }
    assert!(started.elapsed().as_secs_f32() < 1.0);
}

#[test]
fn other_versions_byte_orders_and_types_are_named() {
    let with_version = |version: u32| {
        let mut bytes = sample().build();
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        message(open(bytes))
    };
    assert!(with_version(1).contains("version 1"));
    assert!(with_version(3u32.swap_bytes()).contains("big-endian"));
    assert!(with_version(9).contains("versions 2 and 3 are supported"));
    assert!(message(open(b"PK\x03\x04zip".to_vec())).contains("letters GGUF"));
    let mut writer = tiny("llama").1;
    writer.raw("x.weight", &[1, 256], 23, &[0; 136]);
    assert!(message(open(writer.build())).contains("x.weight is of type IQ4_XS"));
}

#[test]
fn shapes_offsets_and_alignment_are_checked() {
    let refused = |change: &dyn Fn(&mut GgufWriter)| {
        let mut writer = tiny("llama").1;
        change(&mut writer);
        message(open(writer.build()))
    };
    let huge = [1usize << 40, 1 << 40];
    assert!(refused(&|w| _ = w.raw("t", &huge, 0, &[])).contains("too large"));
    assert!(refused(&|w| _ = w.raw("t", &[1 << 40], 0, &[])).contains("beyond the file's end"));
    assert!(refused(&|w| _ = w.raw("t", &[0, 4], 0, &[])).contains("is empty"));
    assert!(refused(&|w| _ = w.raw("t", &[2, 33], 8, &[0; 68])).contains("not whole Q8_0 blocks"));
    assert!(refused(&|w| _ = w.raw("t", &[1; 5], 0, &[0; 4])).contains("5 dimensions"));
    for alignment in [0, 3, 4, 1 << 30] {
        assert!(refused(&|w| _ = w.u32("general.alignment", alignment)).contains("alignment"));
    }
    assert!(
        refused(&|w| _ = w.tensor("t", &[1], &[1.0]).tensor("t", &[1], &[1.0])).contains("twice")
    );
}

/// Everything that a program would do with a file.
fn use_it(file: &GgufFile) {
    let _ = DecoderConfig::from_gguf(file);
    let _ = file.strings("tokenizer.ggml.tokens");
    let _ = file.floats("tokenizer.ggml.scores");
    let _ = file.integers("tokenizer.ggml.token_type");
    let names: Vec<String> = file.tensors().map(|(name, ..)| name.to_owned()).collect();
    for name in names {
        let _ = file.tensor(&name).unwrap().to_f32();
    }
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = sample().build();
    // The last tensor has 68 bytes, then come 28 of padding.
    let end = bytes.len() - 28;
    for len in (0..end).filter(|len| *len < 2000 || len % 97 == 0 || *len > end - 100) {
        assert!(open(bytes[..len].to_vec()).is_err(), "{len} of {end} bytes");
    }
    open(bytes[..end].to_vec()).unwrap();
}

proptest! {
    #[test]
    fn damaged_files_never_panic(flips in prop::collection::vec((0usize..1200, any::<u8>()), 1..8)) {
        let mut bytes = sample().build();
        for (at, value) in flips {
            bytes[at] = value;
        }
        if let Ok(file) = open(bytes) {
            use_it(&file);
        }
    }
}
