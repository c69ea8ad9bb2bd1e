//! Lets a target answer prompts, many at once, and keeps what a draft is trained on.
//!
//! ```text
//! cargo run --release --example collect -- --target FILE --prompts prompts.jsonl --out data/part0
//! ```
//!
//! Prompts are lines of `{"user": "…"}`, with optional
//! - `system`: instructions,
//! - `imagine`: the target itself continues `user` to a whole question, at temperature 1,
//! - `turns`: questions and answers in all; those after the first are imagined,
//! - `temperature`: of the answers (0).
//!
//! `OUT.jsonl` gets one line a conversation: `line` of the prompt, the `questions`, `ids`,
//! `answers` as pairs [first, end) of indices into `ids` (end tokens included), and `row`, where
//! the features of its first position are. `OUT.features` has, for every position but the last,
//! the outputs of the tapped layers and then of the last layer, as f16. `OUT.json` tells the
//! shape. A run that was stopped goes on after the last prompt that it kept the conversation of;
//! those that were under way are lost.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dflash_chat::chat::template::{ChatTemplate, Piece, RenderOptions};
use dflash_chat::decode::sampler::Sampler;
use dflash_chat::engine::load::tokenizer;
use dflash_chat::event::{ChatMessage, Role, Sampling};
use dflash_chat::model::decoder::{Decoder, Pass, Sequence};
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::{Ops, Quantise};
use dflash_chat::model::tokenizer::{Special, Tokenizer};
use dflash_chat::model::weights::open_target;
use half::f16;
use half::slice::HalfFloatSliceExt;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Collect what a draft is trained on.
#[derive(Parser)]
struct Arguments {
    /// The target's file or folder.
    #[arg(long)]
    target: PathBuf,
    /// Prompts, a JSON object a line.
    #[arg(long)]
    prompts: PathBuf,
    /// Names of the results, without an ending.
    #[arg(long)]
    out: PathBuf,
    /// Questions that measurements ask, lines of `{"turns": ["…"]}`: a conversation ends before
    /// one of them.
    #[arg(long, num_args = 1..)]
    apart: Vec<PathBuf>,
    /// Layers whose outputs a draft sees.
    #[arg(long, value_delimiter = ',')]
    taps: Vec<usize>,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Conversations at a time.
    #[arg(long, default_value_t = 32)]
    lanes: usize,
    /// Tokens of an answer, at most.
    #[arg(long, default_value_t = 224)]
    max_tokens: usize,
    /// Stop after this many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Take only prompts whose line number leaves this remainder …
    #[arg(long, default_value_t = 0)]
    part: usize,
    /// … by this divisor.
    #[arg(long, default_value_t = 1)]
    parts: usize,
}

/// Tokens of an imagined question, at most.
const LONGEST_QUESTION: usize = 120;

#[derive(Deserialize)]
struct Prompt {
    user: String,
    #[serde(default)]
    system: Option<String>,
    #[serde(default)]
    imagine: bool,
    #[serde(default = "one")]
    turns: usize,
    #[serde(default)]
    temperature: f32,
}

fn one() -> usize {
    1
}

#[derive(Serialize, Deserialize)]
struct Line {
    line: usize,
    questions: Vec<String>,
    ids: Vec<u32>,
    answers: Vec<(usize, usize)>,
    row: usize,
}

/// Questions that measurements ask, in whatever spacing and case.
struct Apart(HashSet<String>);

impl Apart {
    fn read(files: &[PathBuf]) -> Result<Apart> {
        #[derive(Deserialize)]
        struct Asked {
            turns: Vec<String>,
        }
        let mut questions = HashSet::new();
        for file in files {
            let name = || file.display().to_string();
            for line in std::fs::read_to_string(file).with_context(name)?.lines() {
                let asked: Asked = serde_json::from_str(line).with_context(name)?;
                questions.extend(asked.turns.iter().map(|question| Apart::key(question)));
            }
        }
        Ok(Apart(questions))
    }

    fn key(question: &str) -> String {
        question.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
    }

    fn has(&self, question: &str) -> bool {
        self.0.contains(&Apart::key(question))
    }
}

/// What is being said.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Question,
    Answer,
}

/// One conversation.
struct Lane {
    line: usize,
    prompt: Prompt,
    phase: Phase,
    questions: Vec<String>,
    ids: Vec<u32>,
    answers: Vec<(usize, usize)>,
    /// Where the running question or answer begins.
    start: usize,
    features: Vec<f16>,
    sequence: Sequence<Cpu>,
    /// Ids that come between a question and its answer, and between an answer and a question.
    asked: Vec<u32>,
    answered: Vec<u32>,
}

struct Collector {
    ops: Cpu,
    target: Decoder<Cpu>,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    end_tokens: Vec<u32>,
    taps: Vec<usize>,
    max_tokens: usize,
    apart: Apart,
}

impl Collector {
    /// Text that the template writes around contents, as ids.
    fn ids(&self, pieces: &[Piece]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => ids.extend(self.tokenizer.encode(text, Special::Parse)?),
                Piece::Content(text) => ids.extend(self.tokenizer.encode(text, Special::AsText)?),
                Piece::Ids(known) => ids.extend(known),
            }
        }
        Ok(ids)
    }

    /// Begin a conversation: everything up to where the target goes on.
    fn open(&self, line: usize, prompt: Prompt) -> Result<(Lane, u32)> {
        let mut messages: Vec<ChatMessage> =
            prompt.system.iter().map(|text| ChatMessage::new(Role::System, text)).collect();
        messages.push(ChatMessage::new(Role::User, &prompt.user));
        let options = RenderOptions::default();
        let pieces = self.template.render(&messages, &options)?.pieces;
        let content = |piece: &Piece| matches!(piece, Piece::Content(_));
        let last = pieces.iter().rposition(content).context("the template drops the question")?;
        let asked = self.ids(&pieces[last + 1..])?;
        // The same once more with an answer and another question shows what lies between.
        let mut more = messages.clone();
        more.push(ChatMessage { ids: Some(vec![0]), ..ChatMessage::new(Role::Assistant, "a") });
        more.push(ChatMessage::new(Role::User, "b"));
        let both = self.template.render(&more, &options)?.pieces;
        let answer = both.iter().position(|piece| matches!(piece, Piece::Ids(_)));
        let next = both.iter().rposition(content);
        let answered = match (answer, next) {
            (Some(answer), Some(next)) if answer < next => self.ids(&both[answer + 1..next])?,
            _ => Vec::new(),
        };
        let mut ids = self.tokenizer.with_bos(self.ids(&pieces[..=last])?);
        let mut questions = Vec::new();
        let phase = if prompt.imagine { Phase::Question } else { Phase::Answer };
        if phase == Phase::Answer {
            ids.extend(&asked);
            questions.push(prompt.user.clone());
        }
        let mut lane = Lane {
            line,
            prompt,
            phase,
            questions,
            start: ids.len(),
            ids: Vec::new(),
            answers: Vec::new(),
            features: Vec::new(),
            sequence: self.target.sequence(&self.ops)?,
            asked,
            answered,
        };
        let next = self.feed(&mut lane, &ids)?;
        Ok((lane, next))
    }

    /// Pass `ids` of one conversation; the token that is chosen after them.
    fn feed(&self, lane: &mut Lane, ids: &[u32]) -> Result<u32> {
        let pass = self.target.forward_in(&self.ops, ids, &mut lane.sequence, &self.taps)?;
        lane.ids.extend(ids);
        lane.features.extend(self.features(&pass)?);
        let last = self.ops.slice(&pass.hidden, ids.len() - 1..ids.len())?;
        let mut logits = self.ops.download(&self.target.logits(&self.ops, &last)?)?;
        Ok(choose(lane, &mut logits))
    }

    fn features(&self, pass: &Pass<Cpu>) -> Result<Vec<f16>> {
        let rows: Vec<_> = pass.taps.iter().chain([&pass.hidden]).collect();
        let numbers = self.ops.download(&self.ops.beside(&rows)?)?;
        let mut halves = vec![f16::ZERO; numbers.len()];
        halves.convert_from_f32_slice(&numbers);
        Ok(halves)
    }

    /// One step of all lanes. `next` holds each lane's chosen token, and then the one after.
    fn step(&self, lanes: &mut [Lane], next: &mut [u32]) -> Result<()> {
        let mut sequences: Vec<_> = lanes.iter_mut().map(|lane| &mut lane.sequence).collect();
        let pass = self.target.step_each(&self.ops, next, &mut sequences, &self.taps)?;
        let features = self.features(&pass)?;
        let mut logits = self.ops.download(&self.target.logits(&self.ops, &pass.hidden)?)?;
        let (width, vocabulary) = (features.len() / next.len(), logits.len() / next.len());
        let rows = features.chunks(width).zip(logits.chunks_mut(vocabulary));
        for ((lane, next), (features, logits)) in lanes.iter_mut().zip(next).zip(rows) {
            lane.ids.push(*next);
            lane.features.extend(features);
            *next = choose(lane, logits);
        }
        Ok(())
    }

    /// The question that was imagined last.
    fn question(&self, lane: &Lane) -> String {
        let imagined = self.tokenizer.decode(&lane.ids[lane.start..]);
        let opening = if lane.questions.is_empty() { lane.prompt.user.as_str() } else { "" };
        format!("{opening}{imagined}")
    }

    /// After a choice: goes on to the next phase where one is over. Returns whether the
    /// conversation is.
    fn turn(&self, lane: &mut Lane, next: &mut u32) -> Result<bool> {
        let said = lane.ids.len() - lane.start;
        let ended = self.end_tokens.contains(next);
        match lane.phase {
            Phase::Question if ended && said > 0 => {
                let question = self.question(lane);
                if self.apart.has(&question) {
                    return Ok(true);
                }
                lane.questions.push(question);
                let asked = lane.asked.clone();
                *next = self.feed(lane, &asked)?;
                (lane.phase, lane.start) = (Phase::Answer, lane.ids.len());
                Ok(false)
            }
            Phase::Question => Ok(ended || said >= LONGEST_QUESTION),
            Phase::Answer => {
                let over = ended || said >= self.max_tokens;
                let look = over || said.is_multiple_of(16);
                let loops = look.then(|| repeats_from(&lane.ids[lane.start..])).flatten();
                if let Some(cut) = loops {
                    lane.ids.truncate(lane.start + cut);
                    lane.answers.push((lane.start, lane.ids.len()));
                    return Ok(true);
                }
                if !over {
                    return Ok(false);
                }
                // The token that ends it is a part of it.
                lane.answers.push((lane.start, lane.ids.len() + 1));
                let more = ended && lane.answers.len() < lane.prompt.turns;
                if !more || lane.answered.is_empty() {
                    lane.ids.push(*next);
                    return Ok(true);
                }
                let answered = lane.answered.clone();
                *next = self.feed(lane, &answered)?;
                (lane.phase, lane.start) = (Phase::Question, lane.ids.len());
                Ok(false)
            }
        }
    }
}

fn choose(lane: &Lane, logits: &mut [f32]) -> u32 {
    let sampling = match lane.phase {
        Phase::Question => Sampling { temperature: 1.0, top_k: 64, ..Sampling::default() },
        Phase::Answer => Sampling { temperature: lane.prompt.temperature, ..Sampling::default() },
    };
    Sampler::new(sampling, lane.line as u64).choose(logits, &lane.ids).id
}

/// Where an answer begins to say nothing but what it said before: 30 tokens in a row whose
/// last six stand earlier in it. A few of them are kept.
fn repeats_from(ids: &[u32]) -> Option<usize> {
    let (gram, streak, kept) = (6, 30, 10);
    let mut seen = HashSet::new();
    let mut run = 0;
    for (i, window) in ids.windows(gram).enumerate() {
        run = if seen.insert(window) { 0 } else { run + 1 };
        if run >= streak {
            return Some(i + gram - run + kept);
        }
    }
    None
}

/// Files that grow by whole conversations.
struct Output {
    lines: BufWriter<File>,
    features: BufWriter<File>,
    rows: usize,
    width: usize,
    /// Lines of prompts before this one are done.
    next_line: usize,
}

impl Output {
    /// Open, and forget what an earlier run left unfinished.
    fn open(path: &Path, width: usize) -> Result<Output> {
        let name = |ending: &str| path.with_extension(ending);
        let mut options = OpenOptions::new();
        options.create(true).read(true).append(true);
        let mut lines = options.open(name("jsonl"))?;
        let features = options.open(name("features"))?;
        let (mut rows, mut bytes, mut next_line) = (0, 0u64, 0);
        let available = features.metadata()?.len() / (2 * width as u64);
        let mut reader = BufReader::new(&mut lines);
        let mut text = String::new();
        while reader.read_line(&mut text)? > 0 {
            let Ok(line) = serde_json::from_str::<Line>(&text) else { break };
            let end = line.row + line.ids.len() - 1;
            if !text.ends_with('\n') || end as u64 > available {
                break;
            }
            rows = end;
            bytes += text.len() as u64;
            next_line = next_line.max(line.line + 1);
            text.clear();
        }
        lines.set_len(bytes)?;
        features.set_len((rows * width * 2) as u64)?;
        let (lines, features) = (BufWriter::new(lines), BufWriter::new(features));
        Ok(Output { lines, features, rows, width, next_line })
    }

    fn keep(&mut self, lane: Lane) -> Result<usize> {
        let Lane { line, questions, ids, answers, features, .. } = lane;
        let tokens: usize = answers.iter().map(|(first, end)| end - first).sum();
        // Too short to learn from.
        if tokens < 6 {
            return Ok(0);
        }
        let positions = ids.len() - 1;
        ensure!(features.len() >= positions * self.width, "fewer features than positions");
        for x in &features[..positions * self.width] {
            self.features.write_all(&x.to_le_bytes())?;
        }
        // The features first: a line promises them.
        self.features.flush()?;
        let line = Line { line, questions, ids, answers, row: self.rows };
        serde_json::to_writer(&mut self.lines, &line)?;
        self.lines.write_all(b"\n")?;
        self.lines.flush()?;
        self.rows += positions;
        Ok(tokens)
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let files = open_target(&arguments.target)?;
    let ops = Cpu::new(arguments.threads, Quantise::AsStored, KvType::F16);
    let tokenizer = tokenizer(&files)?;
    let (template, _) = ChatTemplate::of(&tokenizer)?;
    let target = Decoder::load(&ops, &files, 2048, &mut |_, _| Ok(()))?;
    let mut end_tokens = files.end_tokens()?;
    end_tokens.extend(tokenizer.end_tokens());
    let (layers, hidden) = (files.config.layers.len(), files.config.hidden);
    ensure!(arguments.taps.iter().all(|&tap| tap < layers), "taps of {layers} layers");
    let width = (arguments.taps.len() + 1) * hidden;
    let shape = serde_json::json!({
        "taps": arguments.taps, "hidden": hidden, "vocabulary": files.config.vocab,
        "end_tokens": end_tokens, "target": arguments.target.file_name().map(|n| n.to_string_lossy()),
    });
    std::fs::write(arguments.out.with_extension("json"), shape.to_string())?;
    let mut out = Output::open(&arguments.out, width)?;
    let (max_tokens, taps) = (arguments.max_tokens, arguments.taps);
    let apart = Apart::read(&arguments.apart)?;
    let collector =
        Collector { ops, target, tokenizer, template, end_tokens, taps, max_tokens, apart };

    let prompts = BufReader::new(File::open(&arguments.prompts)?);
    let first = out.next_line;
    let mut prompts = prompts
        .lines()
        .enumerate()
        .filter(|(line, _)| line % arguments.parts == arguments.part && *line >= first);
    let (start, mut told, mut kept, mut conversations) = (Instant::now(), Instant::now(), 0, 0);
    let (mut lanes, mut next) = (Vec::new(), Vec::new());
    loop {
        while lanes.len() < arguments.lanes
            && let Some((line, text)) = prompts.next()
        {
            let prompt: Prompt =
                serde_json::from_str(&text?).with_context(|| format!("line {line}"))?;
            if collector.apart.has(&prompt.user) {
                continue;
            }
            let (lane, token) = collector.open(line, prompt)?;
            lanes.push(lane);
            next.push(token);
        }
        let over = arguments.seconds.is_some_and(|s| start.elapsed().as_secs() >= s);
        if lanes.is_empty() || over {
            break;
        }
        let mut i = 0;
        while i < lanes.len() {
            if collector.turn(&mut lanes[i], &mut next[i])? {
                next.swap_remove(i);
                kept += out.keep(lanes.swap_remove(i))?;
                conversations += 1;
            } else {
                i += 1;
            }
        }
        if !lanes.is_empty() {
            collector.step(&mut lanes, &mut next)?;
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            let rate = kept as f64 / start.elapsed().as_secs_f64();
            eprintln!(
                "{conversations} conversations, {kept} tokens of answers, {rate:.0} a second"
            );
        }
    }
    eprintln!("{conversations} conversations, {kept} tokens of answers in {:.0?}", start.elapsed());
    Ok(())
}
