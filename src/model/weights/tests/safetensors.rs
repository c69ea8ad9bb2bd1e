use crate::model::weights::safetensors::SafetensorsFiles;
use crate::model::weights::testing::{numbers, safetensors_bytes, write_safetensors};
use crate::model::weights::{Bytes, read_json};
use proptest::prelude::*;
use serde_json::json;
use std::fs;

fn message<T>(result: anyhow::Result<T>) -> String {
    result.err().map(|e| format!("{e:#}")).expect("an error")
}

fn two() -> [(String, Vec<usize>); 2] {
    [("a".to_owned(), vec![2, 3]), ("b".to_owned(), vec![4])]
}

#[test]
fn a_single_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write_safetensors(&dir.path().join("model.safetensors"), &two());
    let files = SafetensorsFiles::open(dir.path()).unwrap();
    let tensor = files.tensor("a").unwrap();
    assert_eq!(tensor.shape, [2, 3]);
    assert_eq!(tensor.to_f32().unwrap(), numbers("a", 6));
    assert!(message(files.tensor("c")).contains("has no tensor c"));
}

#[test]
fn half_types_are_read_and_others_named() {
    let view = |dtype, bytes: &'static [u8]| {
        safetensors::tensor::TensorView::new(dtype, vec![2], bytes).unwrap()
    };
    use safetensors::Dtype::{BF16, F16, I16};
    let (f16, bf16) = (&[0x00, 0x3c, 0x00, 0xc0], &[0x80, 0x3f, 0x00, 0xc0]);
    let tensors = [("h", view(F16, f16)), ("b", view(BF16, bf16)), ("i", view(I16, &[0; 4]))];
    let bytes = safetensors::serialize(tensors, None).unwrap();
    let files = SafetensorsFiles::from_bytes(Bytes::Owned(bytes), "m").unwrap();
    assert_eq!(files.tensor("h").unwrap().to_f32().unwrap(), [1.0, -2.0]);
    assert_eq!(files.tensor("b").unwrap().to_f32().unwrap(), [1.0, -2.0]);
    assert!(message(files.tensor("i")).contains("tensor i is of type I16"));
}

#[test]
fn shards_are_found_by_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two();
    write_safetensors(&dir.path().join("one.safetensors"), &[a]);
    write_safetensors(&dir.path().join("two.safetensors"), &[b]);
    let index = |map: serde_json::Value| {
        let path = dir.path().join("model.safetensors.index.json");
        fs::write(path, json!({"metadata": {}, "weight_map": map}).to_string()).unwrap();
        SafetensorsFiles::open(dir.path())
    };
    let files = index(json!({"a": "one.safetensors", "b": "two.safetensors"})).unwrap();
    assert_eq!(files.tensor("b").unwrap().to_f32().unwrap(), numbers("b", 4));

    let lacking = index(json!({"a": "one.safetensors", "c": "two.safetensors"}));
    assert!(message(lacking).contains("lists tensor c, but no file has it"));
    let absent = index(json!({"a": "one.safetensors", "b": "three.safetensors"}));
    assert!(message(absent).contains("three.safetensors"));
    for outside in ["../one.safetensors", "/etc/passwd", "sub\\one.safetensors", "one.bin"] {
        assert!(message(index(json!({ "a": outside }))).contains("names a file"));
    }
    fs::write(dir.path().join("model.safetensors.index.json"), "{}").unwrap();
    assert!(message(SafetensorsFiles::open(dir.path())).contains("no weight_map"));
}

/// B35: what an interrupted download leaves behind.
#[test]
fn half_downloads_are_not_taken_for_models() {
    let dir = tempfile::tempdir().unwrap();
    assert!(message(SafetensorsFiles::open(dir.path())).contains("download it again"));
    let path = dir.path().join("model.safetensors");
    fs::write(dir.path().join("model.safetensors.part"), safetensors_bytes(&two())).unwrap();
    assert!(message(SafetensorsFiles::open(dir.path())).contains("neither"));
    fs::write(&path, b"").unwrap();
    assert!(message(SafetensorsFiles::open(dir.path())).contains("is empty"));
    let whole = safetensors_bytes(&two());
    for len in 1..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(SafetensorsFiles::open(dir.path()).is_err(), "{len} bytes");
    }
    let config = dir.path().join("config.json");
    fs::write(&config, b"").unwrap();
    assert!(message(read_json(&config)).contains("is empty; download it again"));
    fs::write(&config, b"{\"hidden_size\": 1").unwrap();
    assert!(message(read_json(&config)).contains("not whole JSON"));
}

proptest! {
    #[test]
    fn damaged_files_never_panic(flips in prop::collection::vec((0usize..180, any::<u8>()), 1..6)) {
        let mut bytes = safetensors_bytes(&two());
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if let Ok(files) = SafetensorsFiles::from_bytes(Bytes::Owned(bytes), "m") {
            let names: Vec<String> = files.tensors().map(|(name, ..)| name.to_owned()).collect();
            for name in names {
                let _ = files.tensor(&name).unwrap().to_f32();
            }
        }
    }
}
