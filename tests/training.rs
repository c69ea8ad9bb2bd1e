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

/// The pipeline's steps for a tiny target, in a folder of their own.
struct Pipeline {
    python: String,
    target: PathBuf,
    folder: tempfile::TempDir,
}

impl Pipeline {
    /// For a model of `tests/fixtures/models`; `None` without a Python that can train.
    fn of(target: &str) -> Option<Pipeline> {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models");
        let folder = tempfile::tempdir().unwrap();
        Some(Pipeline { python: python()?, target: models.join(target), folder })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(training().join(name));
        command
    }

    /// Let the target answer `prompts.jsonl`.
    fn collect(&self) {
        self.collect_to("part", &[]);
    }

    fn collect_to(&self, name: &str, more: &[&str]) {
        // Cargo builds the example beside the program.
        let program = Path::new(env!("CARGO_BIN_EXE_dflash-chat"));
        run(Command::new(program.with_file_name("examples").join("collect"))
            .arg("--target")
            .arg(&self.target)
            .arg("--prompts")
            .arg(self.at("prompts.jsonl"))
            .arg("--out")
            .arg(self.at(name))
            .args(["--taps", "0,2", "--max-tokens", "40", "--lanes", "8"])
            .args(more));
    }

    /// Train, and evaluate on what was trained on: what a target with random weights says of one
    /// prompt tells nothing of another, so the draft is asked what it was shown. Returns τ and
    /// steps at every checkpoint so far.
    fn train(&self, minutes: &str, more: &[&str]) -> Vec<(f64, u64)> {
        run(self
            .script("train.py")
            .arg("--target")
            .arg(&self.target)
            .arg("--data")
            .arg(self.at("part"))
            .arg("--held")
            .arg(self.at("part"))
            .arg("--out")
            .arg(self.at("run"))
            .args(["--layers", "1", "--block-size", "4", "--mask-token", "318"])
            .args(["--minutes", minutes, "--blocks", "16", "--rate", "5e-3"])
            .args(more));
        let log = std::fs::read_to_string(self.at("run/log.jsonl")).unwrap();
        let point = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            (line["tau"].as_f64().unwrap(), line["step"].as_u64().unwrap())
        };
        log.lines().map(point).collect()
    }

    fn export(&self) {
        run(self.script("export.py").arg(self.at("run")).arg(self.at("draft")));
    }

    /// The program's own measurement with `draft`: nothing is lost. Returns τ over all prompts.
    fn bench(&self, draft: &str, prompts: &[&str]) -> f64 {
        let report = run(Command::new(env!("CARGO_BIN_EXE_dflash-chat"))
            .args(["bench", "--repeat", "1", "--max-tokens", "40", "--block-size", "4"])
            .args(["--quant", "none", "--format", "json", "--target"])
            .arg(&self.target)
            .arg("--draft")
            .arg(self.at(draft))
            .args(prompts));
        let report: Value = serde_json::from_str(&report).unwrap();
        let (mut tokens, mut rounds) = (0.0, 0.0);
        for prompt in report["prompts"].as_array().unwrap() {
            assert_eq!(prompt["verdicts"][0]["verdict"], "identical", "{draft}: {prompt}");
            let said = prompt["tokens"].as_f64().unwrap();
            tokens += said;
            rounds += said / prompt["tau"].as_f64().unwrap();
        }
        tokens / rounds
    }
}

fn training() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("training")
}

#[test]
fn a_tiny_target_gets_a_draft() {
    let Some(pipeline) = Pipeline::of("llama-tied") else { return };
    let prompts = run(pipeline.script("prompts.py").arg("20"));
    assert_eq!(prompts.lines().count(), 20);
    std::fs::write(pipeline.at("prompts.jsonl"), prompts).unwrap();
    let collected = || std::fs::read(pipeline.at("part.jsonl")).unwrap();
    pipeline.collect();
    // A second call finds everything done and changes nothing.
    let before = collected();
    assert!(!before.is_empty());
    pipeline.collect();
    assert_eq!(collected(), before);
    // Nor does it ask again what was not kept, where something later was.
    let first = before.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    std::fs::write(pipeline.at("part.jsonl"), &before[first..]).unwrap();
    pipeline.collect();
    assert_eq!(collected(), before[first..]);
    std::fs::write(pipeline.at("part.jsonl"), &before).unwrap();

    // A conversation that is about to ask what is kept apart ends before it.
    let text = String::from_utf8(before).unwrap();
    let questions = |line: &str| serde_json::from_str::<Value>(line).unwrap()["questions"].take();
    let apart: Vec<String> =
        text.lines().map(|line| json!({ "turns": questions(line) }).to_string()).collect();
    std::fs::write(pipeline.at("apart.jsonl"), apart.join("\n")).unwrap();
    pipeline.collect_to("other", &["--apart", pipeline.at("apart.jsonl").to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(pipeline.at("other.jsonl")).unwrap(), "");

    pipeline.train("0.05", &[]);
    // Asked for more, it goes on where it was; now with longer blocks, weights as they will be
    // stored, and products in 16 bits.
    let points = pipeline.train("0.3", &["--rounded", "--bf16", "--block-size", "5"]);
    let (first, last) = (points[0], points[points.len() - 1]);
    assert!(last.1 > first.1);
    assert!(last.0 > first.0 + 0.5, "τ from {} to {}", first.0, last.0);

    pipeline.export();
    let config = std::fs::read_to_string(pipeline.at("draft/config.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&config).unwrap()["block_size"], 5);
    for draft in ["draft", "draft/model.gguf"] {
        pipeline.bench(draft, &["--limit", "3"]);
    }
}

/// Gemma scales its embedding and bends its logits: what training takes them for is what the
/// program computes with.
#[test]
fn a_gemma_gets_a_draft() {
    let Some(pipeline) = Pipeline::of("gemma4-text") else { return };
    let questions = ["Who are you?", "Name a river.", "2 + 3?", "Write a line.", "Is it late?"];
    let lines = |line: fn(&str) -> Value| -> String {
        questions.iter().map(|question| format!("{}\n", line(question))).collect()
    };
    let prompts = lines(|question| json!({ "user": question }));
    std::fs::write(pipeline.at("prompts.jsonl"), prompts).unwrap();
    let asked = pipeline.at("asked.jsonl");
    std::fs::write(&asked, lines(|question| json!({ "turns": [question] }))).unwrap();
    pipeline.collect();

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
    let text = run(Command::new(&pipeline.python)
        .args(["-c", script])
        .arg(training())
        .arg(&pipeline.target)
        .arg(pipeline.at("part")));
    let counts: Vec<usize> = text.split_whitespace().map(|x| x.parse().unwrap()).collect();
    assert!(counts[0] > 50 && counts[1] * 100 >= counts[0] * 98, "{text}");

    let points = pipeline.train("0.1", &[]);
    let trained = points[points.len() - 1].0;
    pipeline.export();
    // Drafts of the same text, in other rounding.
    let played = pipeline.bench("draft", &["--prompts", asked.to_str().unwrap()]);
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
    let text = run(Command::new(python).args(["-c", script]).arg(training()));
    let figures: Vec<f64> = text.split_whitespace().map(|x| x.parse().unwrap()).collect();
    assert!(figures[0] < 1e-6 && figures[1] > 0.01, "{text}");
}
