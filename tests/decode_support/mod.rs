//! Networks that follow a rule instead of computing, and an engine around them.
#![allow(dead_code)]

use dflash_chat::chat::template::ChatTemplate;
use dflash_chat::decode::block_length::{Learned, Planner};
use dflash_chat::decode::session::Session;
use dflash_chat::engine::load;
use dflash_chat::engine::worker::Worker;
use dflash_chat::engine::{CancelToken, Engine, EventSink};
use dflash_chat::event::{
    EngineCommand, EngineEvent, FinishReason, Generate, Prompt, Round, RunStarted, Totals,
};
use dflash_chat::model::decoder::Decoder;
use dflash_chat::model::draft::Draft;
use dflash_chat::model::networks::{Networks, Proposal};
use dflash_chat::model::ops::cpu::Cpu;
use dflash_chat::model::ops::kernels::cache::KvType;
use dflash_chat::model::ops::{Choice, Quantise};
use dflash_chat::model::pair::Pair;
use dflash_chat::model::tokenizer::{GgufVocabulary, Tokenizer};
use dflash_chat::model::weights::{open_draft, open_target};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

/// One token a byte, and an end token after them.
pub const VOCAB: usize = 257;
/// The end token.
pub const END: u32 = 256;

/// The logits after a prefix: what the target "computes".
pub type Rule = Rc<dyn Fn(&[u32]) -> Vec<f32>>;

/// The answer `answer` to a prompt of `prompt` tokens, whatever they are; then `~` for ever.
pub fn says(prompt: usize, answer: &[u32]) -> Rule {
    let answer = answer.to_vec();
    Rc::new(move |prefix| {
        let mut logits = vec![0.0; VOCAB];
        let at = prefix.len().checked_sub(prompt).and_then(|i| answer.get(i));
        logits[at.map_or(b'~' as usize, |id| *id as usize)] = 50.0;
        logits
    })
}

/// Logits that every token before them changes.
pub fn hashed() -> Rule {
    Rc::new(|prefix| {
        let mut state = prefix.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, id| mix(h ^ *id as u64));
        let mut next = || {
            state = mix(state);
            (state >> 40) as f32 / (1 << 24) as f32 * 6.0
        };
        (0..VOCAB).map(|_| next()).collect()
    })
}

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_add(0x632b_e59b_d9b4_e019)
}

/// Pearson's χ² of `counts` against the chances `expected`, and the bound that it passes by
/// chance once in a thousand times. Cells with few counts expected are taken together.
pub fn chi_square(counts: &[u64], expected: &[f64]) -> (f64, f64) {
    let draws: u64 = counts.iter().sum();
    let total: f64 = expected.iter().sum();
    let mut cells: Vec<(f64, f64)> = Vec::new();
    let mut rare = (0.0, 0.0);
    for (count, p) in counts.iter().zip(expected) {
        let cell = (*count as f64, p / total * draws as f64);
        match cell.1 >= 5.0 {
            true => cells.push(cell),
            false => rare = (rare.0 + cell.0, rare.1 + cell.1),
        }
    }
    match cells.last_mut() {
        Some(last) if rare.1 < 5.0 => *last = (last.0 + rare.0, last.1 + rare.1),
        _ => cells.push(rare),
    }
    let chi = cells.iter().map(|(got, want)| (got - want).powi(2) / want).sum();
    // Wilson and Hilferty's approximation; 3.09 is the normal distribution's 99.9 % point.
    let freedom = (cells.len().max(2) - 1) as f64;
    let step = 2.0 / (9.0 * freedom);
    (chi, freedom * (1.0 - step + 3.09 * step.sqrt()).powi(3))
}

/// What happens at a verify pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mishap {
    None,
    /// The pass fails, its rows half-written.
    Fails,
    /// The person presses Esc meanwhile.
    Cancelled,
}

/// What a test may change while the networks are in a session.
#[derive(Clone)]
pub struct Knobs {
    /// Share of the draft's tokens that are the target's.
    pub accuracy: Rc<Cell<f64>>,
    /// What happens after so many more verify passes.
    pub mishap: Rc<Cell<(usize, Mishap)>>,
    /// Of the answer that is made, or of the next one.
    cancel: Rc<RefCell<CancelToken>>,
}

impl Knobs {
    fn new() -> Knobs {
        Knobs {
            accuracy: Rc::new(Cell::new(1.0)),
            mishap: Rc::new(Cell::new((0, Mishap::None))),
            cancel: Rc::default(),
        }
    }

    /// Stop the answer that is made, or the next one.
    pub fn cancel(&self) {
        self.cancel.borrow().cancel();
    }

    /// A verify pass is over: let happen what is due.
    fn after_pass(&self) -> anyhow::Result<()> {
        let (wait, mishap) = self.mishap.get();
        self.mishap.set(match wait {
            0 => (0, Mishap::None),
            _ => (wait - 1, mishap),
        });
        match (wait, mishap) {
            (0, Mishap::Fails) => anyhow::bail!("the device went away"),
            (0, Mishap::Cancelled) => self.cancel(),
            _ => {}
        }
        Ok(())
    }
}

/// A target and a draft that follow a rule and insist on the invariants of a round.
pub struct Fake {
    rule: Rule,
    block: usize,
    max_positions: usize,
    /// A rewind by more than this forgets everything.
    window: usize,
    cache: Vec<u32>,
    committed: usize,
    drafted: usize,
    /// Prefixes whose logits the last pass made; whether it kept features.
    rows: Vec<usize>,
    taps: bool,
    verified: bool,
    random: u64,
    knobs: Knobs,
}

impl Fake {
    fn argmax(&self, prefix: &[u32]) -> u32 {
        let logits = (self.rule)(prefix);
        let best = (0..logits.len()).fold(0, |b, i| if logits[i] > logits[b] { i } else { b });
        best as u32
    }

    fn pass(&mut self, ids: &[u32]) {
        assert_eq!(self.cache.len(), self.committed, "uncommitted rows are in the cache");
        assert!(!ids.is_empty() && self.committed + ids.len() <= self.max_positions);
        self.cache.extend_from_slice(ids);
    }

    fn learn(&mut self, rows: usize, taps: bool) {
        if taps && self.drafted == self.committed {
            self.drafted += rows;
        }
        self.committed += rows;
    }
}

impl Networks for Fake {
    fn vocab(&self) -> usize {
        VOCAB
    }
    fn block_size(&self) -> usize {
        self.block
    }
    fn max_positions(&self) -> usize {
        self.max_positions
    }
    fn len(&self) -> usize {
        self.committed
    }
    fn drafted_len(&self) -> usize {
        self.drafted
    }
    fn rewind(&mut self, len: usize) -> usize {
        let len = len.min(self.committed);
        let len = if self.committed - len > self.window { 0 } else { len };
        self.cache.truncate(len);
        self.committed = len;
        self.drafted = self.drafted.min(len);
        (self.rows, self.verified) = (Vec::new(), false);
        len
    }
    fn prefill(&mut self, ids: &[u32], taps: bool, last: bool) -> anyhow::Result<()> {
        assert!(!self.verified, "a prefill between verify and commit");
        self.pass(ids);
        self.learn(ids.len(), taps);
        self.rows = if last { vec![self.committed] } else { Vec::new() };
        Ok(())
    }
    fn propose(&mut self, anchor: u32, drafts: usize) -> anyhow::Result<Vec<Proposal>> {
        assert_eq!(self.drafted, self.committed, "a gap between the draft and the target");
        assert!((1..self.block).contains(&drafts), "{drafts} drafts of a block of {}", self.block);
        let accuracy = self.knobs.accuracy.get();
        let mut prefix = self.cache.clone();
        prefix.push(anchor);
        let mut propose = || {
            self.random = mix(self.random);
            let right = ((self.random >> 11) as f64 / (1u64 << 53) as f64) < accuracy;
            let id = (self.argmax(&prefix) + u32::from(!right)) % VOCAB as u32;
            prefix.push(id);
            Proposal { id, prob: accuracy as f32 }
        };
        Ok((0..drafts).map(|_| propose()).collect())
    }
    fn verify(&mut self, ids: &[u32], taps: bool) -> anyhow::Result<()> {
        assert!(ids.len() <= self.block.max(1), "more rows than a block has");
        self.pass(ids);
        self.knobs.after_pass()?;
        self.rows = (self.committed + 1..=self.cache.len()).collect();
        (self.taps, self.verified) = (taps, true);
        Ok(())
    }
    fn commit(&mut self, rows: usize) -> anyhow::Result<()> {
        assert!(self.verified && rows <= self.rows.len(), "{rows} rows of {}", self.rows.len());
        self.learn(rows, self.taps);
        self.cache.truncate(self.committed);
        (self.rows, self.verified) = (Vec::new(), false);
        Ok(())
    }
    fn choices(&mut self) -> anyhow::Result<Vec<Choice>> {
        let choice = |&end: &usize| {
            let id = self.argmax(&self.cache[..end]);
            Choice { id, margin: 1.0, prob: f32::NAN }
        };
        Ok(self.rows.iter().map(choice).collect())
    }
    fn logits(&mut self) -> anyhow::Result<Vec<f32>> {
        Ok(self.rows.iter().flat_map(|&end| (self.rule)(&self.cache[..end])).collect())
    }
}

/// Networks with weights, to which the same may happen.
struct Watched {
    networks: Box<dyn Networks>,
    knobs: Knobs,
}

impl Networks for Watched {
    fn vocab(&self) -> usize {
        self.networks.vocab()
    }
    fn block_size(&self) -> usize {
        self.networks.block_size()
    }
    fn max_positions(&self) -> usize {
        self.networks.max_positions()
    }
    fn len(&self) -> usize {
        self.networks.len()
    }
    fn drafted_len(&self) -> usize {
        self.networks.drafted_len()
    }
    fn rewind(&mut self, len: usize) -> usize {
        self.networks.rewind(len)
    }
    fn prefill(&mut self, ids: &[u32], taps: bool, last: bool) -> anyhow::Result<()> {
        self.networks.prefill(ids, taps, last)
    }
    fn propose(&mut self, anchor: u32, drafts: usize) -> anyhow::Result<Vec<Proposal>> {
        self.networks.propose(anchor, drafts)
    }
    fn verify(&mut self, ids: &[u32], taps: bool) -> anyhow::Result<()> {
        self.networks.verify(ids, taps)?;
        self.knobs.after_pass()
    }
    fn commit(&mut self, rows: usize) -> anyhow::Result<()> {
        self.networks.commit(rows)
    }
    fn choices(&mut self) -> anyhow::Result<Vec<Choice>> {
        self.networks.choices()
    }
    fn logits(&mut self) -> anyhow::Result<Vec<f32>> {
        self.networks.logits()
    }
}

/// An engine that computes, around networks that follow a rule.
pub struct Chat {
    pub worker: Worker,
    pub knobs: Knobs,
}

/// What a run's events say.
#[derive(Debug, Default)]
pub struct Outcome {
    pub started: Option<RunStarted>,
    pub first: Option<u32>,
    pub prefilled: usize,
    pub text: String,
    pub rounds: Vec<Round>,
    pub finished: Option<(FinishReason, Totals)>,
    pub errors: Vec<String>,
    pub notices: Vec<String>,
    /// All events, in order.
    pub events: Vec<EngineEvent>,
}

impl Outcome {
    /// All ids of the answer.
    pub fn ids(&self) -> Vec<u32> {
        let committed = self.rounds.iter().flat_map(|round| &round.committed);
        self.first.into_iter().chain(committed.map(|token| token.id)).collect()
    }
    pub fn reason(&self) -> FinishReason {
        self.finished.clone().expect("the run did not finish").0
    }
    pub fn reason_is_cancelled(&self) -> bool {
        self.reason() == FinishReason::Cancelled
    }
    pub fn reused(&self) -> usize {
        self.started.as_ref().expect("the run did not start").reused_tokens
    }
}

impl Chat {
    pub fn new(rule: Rule, block: usize, ctx_limit: usize) -> Chat {
        Chat::with_window(rule, block, ctx_limit, usize::MAX)
    }

    pub fn with_window(rule: Rule, block: usize, ctx_limit: usize, window: usize) -> Chat {
        let knobs = Knobs::new();
        let fake = Fake {
            rule,
            block,
            max_positions: ctx_limit,
            window,
            cache: Vec::new(),
            committed: 0,
            drafted: 0,
            rows: Vec::new(),
            taps: false,
            verified: false,
            random: 1,
            knobs: knobs.clone(),
        };
        let template =
            "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}assistant:";
        let worker = Worker {
            session: Session::new(Box::new(fake), Planner::new(Learned::default())),
            tokenizer: tokenizer(),
            template: ChatTemplate::new(template, "", "").unwrap(),
            end_tokens: vec![END],
            ctx_limit,
            learned: None,
        };
        Chat { worker, knobs }
    }

    /// Around a small model with weights and its draft, in full precision
    /// (`tests/fixtures/models`).
    pub fn with_weights(model: &str) -> Chat {
        let folder = format!("{}/tests/fixtures/models/{model}", env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(&folder);
        let ops = Cpu::new(1, Quantise::None, KvType::F32);
        let files = open_target(folder).unwrap();
        let ctx_limit = files.config.max_positions;
        let target = Decoder::load(&ops, &files, ctx_limit, &mut |_, _| Ok(())).unwrap();
        let draft = open_draft(&folder.join("draft"), &files.config, None).unwrap();
        let draft =
            Draft::load(&ops, &draft, &target, ctx_limit, false, &mut |_, _| Ok(())).unwrap();
        let tokenizer = load::tokenizer(&files).unwrap();
        let (template, fallback) = ChatTemplate::of(&tokenizer).unwrap();
        assert_eq!(fallback, None);
        let knobs = Knobs::new();
        let pair = Pair::new(ops, target, Some(draft), ctx_limit);
        let networks = Watched { networks: Box::new(pair), knobs: knobs.clone() };
        let worker = Worker {
            session: Session::new(Box::new(networks), Planner::new(Learned::default())),
            tokenizer,
            template,
            end_tokens: files.end_tokens().unwrap(),
            ctx_limit,
            learned: None,
        };
        Chat { worker, knobs }
    }

    /// Answer, and check what holds for every run.
    pub fn ask(&mut self, asked: Generate) -> Outcome {
        let (mut sink, mut events) = EventSink::channel();
        let cancel = self.knobs.cancel.borrow().clone();
        self.worker.handle(EngineCommand::Generate(Box::new(asked)), &mut sink, &cancel);
        *self.knobs.cancel.borrow_mut() = CancelToken::default();
        drop(sink);
        let mut outcome = Outcome::default();
        while let Ok(envelope) = events.try_recv() {
            outcome.events.push(envelope.event.clone());
            match envelope.event {
                EngineEvent::RunStarted(run) => outcome.started = Some(*run),
                EngineEvent::PrefillDone { tokens, first, text, .. } => {
                    outcome.prefilled = tokens;
                    outcome.first = Some(first.id);
                    outcome.text.push_str(&text);
                }
                EngineEvent::Round(round) => {
                    outcome.text.push_str(&round.text);
                    outcome.rounds.push(*round);
                }
                EngineEvent::RunFinished { reason, totals } => {
                    outcome.finished = Some((reason, totals));
                }
                EngineEvent::Error(message) => outcome.errors.push(message.message),
                EngineEvent::Notice(message) => outcome.notices.push(message.message),
                _ => {}
            }
        }
        self.check(&outcome);
        outcome
    }

    pub fn ask_ids(&mut self, ids: &[u32], asked: Generate) -> Outcome {
        self.ask(Generate { prompt: Prompt::Ids(ids.to_vec()), ..asked })
    }

    fn check(&mut self, outcome: &Outcome) {
        for round in &outcome.rounds {
            let drafted: Vec<u32> = round.drafted.iter().map(|draft| draft.id).collect();
            let committed: Vec<u32> = round.committed.iter().map(|token| token.id).collect();
            assert!(round.accepted <= committed.len() && committed.len() <= round.accepted + 1);
            assert_eq!(committed[..round.accepted], drafted[..round.accepted]);
            assert_eq!(round.block_size, drafted.len() + 1);
            assert_eq!(round.kv_len, round.position + committed.len());
        }
        if let (Some(started), Some((reason, totals))) = (&outcome.started, &outcome.finished) {
            let len = self.worker.session.ids().len();
            assert_eq!(self.worker.session.networks().len(), len);
            if outcome.first.is_some() {
                let committed: usize = outcome.rounds.iter().map(|r| r.committed.len()).sum();
                assert_eq!(totals.tokens, 1 + committed);
                assert_eq!(started.reused_tokens + outcome.prefilled, started.prompt_ids.len());
                // The last token of an answer is not in the cache.
                let whole = [started.prompt_ids.clone(), outcome.ids()].concat();
                let kept = if *reason == FinishReason::Stop { len } else { whole.len() - 1 };
                assert_eq!(self.worker.session.ids(), &whole[..kept]);
                assert!(whole.len() <= started.ctx_limit, "more tokens than the context has");
                assert!(outcome.ids().len() <= started.max_tokens);
            }
        }
    }
}

/// One token for each byte, in the byte's place, and an end token.
pub fn tokenizer() -> Tokenizer {
    let tokens = (0..=255).map(|byte| format!("<0x{byte:02X}>")).chain(["</s>".into()]);
    Tokenizer::from_gguf(GgufVocabulary {
        model: "llama".into(),
        tokens: tokens.collect(),
        token_types: [vec![6; 256], vec![3]].concat(),
        scores: vec![0.0; VOCAB],
        add_space_prefix: Some(false),
        add_bos: Some(false),
        ..GgufVocabulary::default()
    })
    .unwrap()
}
