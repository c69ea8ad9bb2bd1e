//! The training pipeline, from prompts to a draft that the program runs, with a tiny target.
//!
//! It needs a Python with torch, numpy, safetensors and gguf: `DFLASH_TRAINING_PYTHON` names it,
//! else `python3` is tried; without one the test is skipped with the reason.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn python() -> Option<String> {
    let python = std::env::var("DFLASH_TRAINING_PYTHON").unwrap_or_else(|_| "python3".into());
    let probe =
        Command::new(&python).args(["-c", "import torch, numpy, safetensors, gguf"]).output();
    match probe {
        Ok(output) if output.status.success() => Some(python),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            eprintln!("skipped: {python} cannot train: {}", why.lines().last().unwrap_or_default());
            None
        }
        Err(error) => {
            eprintln!("skipped: {python} cannot be run: {error}");
            None
        }
    }
}

fn run(command: &mut Command) -> String {
    let output = command.env("OMP_NUM_THREADS", "2").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Cargo builds the example beside the program.
fn collector() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_dflash-chat")).with_file_name("examples").join("collect")
}

#[test]
fn a_tiny_target_gets_a_draft() {
    let Some(python) = python() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (training, target) = (root.join("training"), root.join("tests/fixtures/models/llama-tied"));
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);

    let prompts = run(Command::new(&python).arg(training.join("prompts.py")).arg("20"));
    assert_eq!(prompts.lines().count(), 20);
    std::fs::write(at("prompts.jsonl"), prompts).unwrap();
    let collect = || {
        run(Command::new(collector())
            .arg("--target")
            .arg(&target)
            .arg("--prompts")
            .arg(at("prompts.jsonl"))
            .arg("--out")
            .arg(at("part"))
            .args(["--taps", "0,2", "--max-tokens", "40", "--lanes", "8"]));
    };
    collect();
    // A second call finds everything done and changes nothing.
    let before = std::fs::read(at("part.jsonl")).unwrap();
    assert!(!before.is_empty());
    collect();
    assert_eq!(std::fs::read(at("part.jsonl")).unwrap(), before);

    // What a target with random weights says of one prompt tells nothing of another. So the
    // draft is asked about the answers that it was shown: those it has to learn.
    let train = |minutes: &str, rounded: &[&str]| {
        run(Command::new(&python)
            .arg(training.join("train.py"))
            .arg("--target")
            .arg(&target)
            .arg("--data")
            .arg(at("part"))
            .arg("--held")
            .arg(at("part"))
            .arg("--out")
            .arg(at("run"))
            .args(["--layers", "1", "--block-size", "4", "--mask-token", "318"])
            .args(["--minutes", minutes, "--blocks", "16", "--rate", "5e-3"])
            .args(rounded))
    };
    train("0.05", &[]);
    // Asked for more, it goes on where it was; now with weights as they will be stored.
    train("0.3", &["--rounded"]);
    let log = std::fs::read_to_string(at("run/log.jsonl")).unwrap();
    let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tau = |line: &Value| line["tau"].as_f64().unwrap();
    let (first, last) = (log.first().unwrap(), log.last().unwrap());
    assert!(last["step"].as_u64() > first["step"].as_u64());
    assert!(tau(last) > tau(first) + 0.5, "τ from {} to {}", tau(first), tau(last));

    run(Command::new(&python).arg(training.join("export.py")).arg(at("run")).arg(at("draft")));
    // The program drafts as well as the trainer says, from both forms, and loses nothing.
    for draft in ["draft", "draft/model.gguf"] {
        let report = run(Command::new(env!("CARGO_BIN_EXE_dflash-chat"))
            .args(["bench", "--limit", "3", "--repeat", "1", "--max-tokens", "40"])
            .args(["--block-size", "4", "--quant", "none", "--format", "json", "--target"])
            .arg(&target)
            .arg("--draft")
            .arg(at(draft)));
        let report: Value = serde_json::from_str(&report).unwrap();
        for prompt in report["prompts"].as_array().unwrap() {
            assert_eq!(prompt["verdicts"][0]["verdict"], "identical", "{draft}: {prompt}");
        }
    }
}

/// Gemma scales its embedding and bends its logits: what training takes them for is what the
/// program computes with.
#[test]
fn a_gemma_gets_a_draft() {
    let Some(python) = python() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (training, target) =
        (root.join("training"), root.join("tests/fixtures/models/gemma4-text"));
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let questions = ["Who are you?", "Name a river.", "2 + 3?", "Write a line.", "Is it late?"];
    let lines = |key: &str, wrap: fn(&str) -> Value| -> String {
        questions.iter().map(|q| format!("{}\n", json!({ key: wrap(q) }))).collect()
    };
    std::fs::write(at("prompts.jsonl"), lines("user", |q| json!(q))).unwrap();
    std::fs::write(at("asked.jsonl"), lines("turns", |q| json!([q]))).unwrap();
    run(Command::new(collector())
        .arg("--target")
        .arg(&target)
        .arg("--prompts")
        .arg(at("prompts.jsonl"))
        .arg("--out")
        .arg(at("part"))
        .args(["--taps", "0,2", "--max-tokens", "40"]));

    // What was chosen without chance is what the distribution that is learned from points at.
    let script = r#"
import sys, numpy as np, torch
sys.path.insert(0, sys.argv[1])
from data import Collected
from target import Target
from train import Vocabulary
data = Collected(sys.argv[3])
vocabulary = Vocabulary(list(range(data.shape["vocabulary"])), Target(sys.argv[2]), "cpu")
said = same = 0
for c in data.conversations:
    for first, end in c.spans:
        rows = np.asarray(c.features[c.row + first - 1 : c.row + end - 1, -data.shape["hidden"]:], np.float32)
        likeliest = vocabulary.of_target(torch.from_numpy(rows)).argmax(-1).numpy()
        said, same = said + end - first, same + int((likeliest == c.ids[first:end]).sum())
print(said, same)
"#;
    let text =
        run(Command::new(&python).args(["-c", script]).arg(&training).arg(&target).arg(at("part")));
    let counts: Vec<usize> = text.split_whitespace().map(|x| x.parse().unwrap()).collect();
    assert!(counts[0] > 50 && counts[1] * 100 >= counts[0] * 98, "{text}");

    run(Command::new(&python)
        .arg(training.join("train.py"))
        .arg("--target")
        .arg(&target)
        .arg("--data")
        .arg(at("part"))
        .arg("--held")
        .arg(at("part"))
        .arg("--out")
        .arg(at("run"))
        .args(["--layers", "1", "--block-size", "4", "--mask-token", "318", "--minutes", "0.1"])
        .args(["--blocks", "16", "--rate", "5e-3"]));
    let log = std::fs::read_to_string(at("run/log.jsonl")).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let trained = last["tau"].as_f64().unwrap();

    run(Command::new(&python).arg(training.join("export.py")).arg(at("run")).arg(at("draft")));
    let report = run(Command::new(env!("CARGO_BIN_EXE_dflash-chat"))
        .args(["bench", "--repeat", "1", "--max-tokens", "40", "--block-size", "4"])
        .args(["--quant", "none", "--format", "json", "--prompts"])
        .arg(at("asked.jsonl"))
        .arg("--target")
        .arg(&target)
        .arg("--draft")
        .arg(at("draft")));
    let report: Value = serde_json::from_str(&report).unwrap();
    let (mut tokens, mut rounds) = (0.0, 0.0);
    for prompt in report["prompts"].as_array().unwrap() {
        assert_eq!(prompt["verdicts"][0]["verdict"], "identical", "{prompt}");
        let said = prompt["tokens"].as_f64().unwrap();
        tokens += said;
        rounds += said / prompt["tau"].as_f64().unwrap();
    }
    // Drafts of the same text, in other rounding.
    let played = tokens / rounds;
    assert!(played > 1.2 && (played / trained - 1.0).abs() < 0.05, "{played} for {trained}");
}

/// What `--rounded` trains with is what the exported file holds.
#[test]
fn weights_are_rounded_as_they_are_stored() {
    let Some(python) = python() else { return };
    let script = r#"
import sys, gguf, torch
sys.path.insert(0, sys.argv[1])
from draft import as_stored
torch.manual_seed(0)
w = torch.randn(64, 96) * torch.logspace(-6, 2, 64)[:, None]
w[3], w[4, :32] = 0.25, 0
kind = gguf.GGMLQuantizationType.Q4_1
stored = torch.from_numpy(gguf.dequantize(gguf.quants.quantize(w.numpy(), kind), kind))
apart = (as_stored(w) - stored).abs() / w.abs().amax(1, keepdim=True)
rounding = (w - stored).abs() / w.abs().amax(1, keepdim=True)
print(apart.max().item(), rounding.max().item())
"#;
    let training = Path::new(env!("CARGO_MANIFEST_DIR")).join("training");
    let text = run(Command::new(python).args(["-c", script]).arg(training));
    let figures: Vec<f64> = text.split_whitespace().map(|x| x.parse().unwrap()).collect();
    assert!(figures[0] < 1e-6 && figures[1] > 0.01, "{text}");
}
