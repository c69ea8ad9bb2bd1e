//! The spine: what a front end may ask of an engine, and everything an engine tells.
//!
//! Screen, JSON, benchmark, recording and replay are all computed from [`Envelope`]s by pure
//! code, so that they can never disagree. The names below are fixed: scripts rely on them
//! (`dflash-chat run --format jsonl` prints one envelope a line).
//!
//! It holds for every finished run that
//! - answer tokens = 1 + the sum of `committed` over its rounds (the first token is prefill's),
//! - `committed[..accepted] == drafted[..accepted]` (ids), and
//! - the concatenated `text` of `prefill_done` and the rounds is the decoding of the answer; after
//!   a stop string ([`FinishReason::Stop`]) it is the beginning of that, for the text ends where
//!   the stop string begins, be that within a token.

use serde::{Deserialize, Serialize};

/// Version of this vocabulary; written into every recording.
pub const EVENT_VERSION: u32 = 1;

/// One event with its place in the stream: `seq` is gapless from 0, `t_us` counts from the
/// engine's start, in microseconds of its own clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Gapless from 0.
    pub seq: u64,
    /// Microseconds since the engine started.
    pub t_us: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: EngineEvent,
}

/// What an engine tells. See the module documentation for what holds between events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EngineEvent {
    /// A step of loading: `stage` in words for a person, `done` of `total` (bytes or tensors).
    LoadProgress {
        /// What is being done, e.g. "loading target".
        stage: String,
        /// Units done.
        done: u64,
        /// Units in all; 0 when not known.
        total: u64,
    },
    /// The networks are ready to answer.
    ModelReady(Box<ModelReady>),
    /// An answer begins.
    RunStarted(Box<RunStarted>),
    /// `done` of `total` prompt tokens have passed through the target.
    PrefillProgress {
        /// Prompt tokens processed in this run (reused ones excluded).
        done: usize,
        /// Prompt tokens to process in this run.
        total: usize,
    },
    /// The prompt is in the cache and the first answer token is known.
    PrefillDone {
        /// Prompt tokens processed (reused ones excluded).
        tokens: usize,
        /// How long that took.
        us: u64,
        /// The first answer token.
        first: Token,
        /// The exact text it adds (empty while a character is incomplete).
        text: String,
    },
    /// A round is under way. Only a slow replay says so: an engine that computes has done the
    /// round before anyone could look at its parts.
    Phase {
        /// What is being done.
        phase: RoundPhase,
        /// The round as it will be.
        round: Box<Round>,
    },
    /// One round of decoding.
    Round(Box<Round>),
    /// The answer ended.
    RunFinished {
        /// Why.
        reason: FinishReason,
        /// Sums over the run.
        totals: Totals,
    },
    /// What one forward pass of the target costs at each number of rows
    /// (`bench verify-cost`).
    VerifyCost(VerifyCost),
    /// Something a person should know; nothing failed.
    Notice(Message),
    /// The current command failed; the engine lives unless it says otherwise.
    Error(Message),
}

/// The answer to "what is loaded, and where does it run".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelReady {
    /// "native", "scripted" or "replay".
    pub engine: String,
    /// Name of the pair, or of the target.
    pub pair: String,
    /// The target.
    pub target: NetworkInfo,
    /// The draft; `None` means plain decoding, and `draft_missing` says why.
    pub draft: Option<NetworkInfo>,
    /// Why there is no draft, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_missing: Option<String>,
    /// The target in the words of the person who named it apart from the pair (`--target`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_asked: Option<String>,
    /// The draft, likewise (`--draft`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft_asked: Option<String>,
    /// "cpu" (this program's kernels, whose answers are the same with a draft and without),
    /// "metal", "cuda", "candle-cpu".
    pub device: String,
    /// Instruction set or device name.
    pub device_detail: String,
    /// Threads that compute (1 on a GPU).
    pub threads: usize,
    /// The draft's block size (anchor included); 1 without a draft.
    pub block_size: usize,
    /// Target layers whose outputs the draft reads (0-based).
    pub taps: Vec<usize>,
    /// Most tokens that prompt and answer may have together.
    pub ctx_limit: usize,
    /// How long loading took.
    pub load_us: u64,
}

impl ModelReady {
    /// Whether a recording plays: nothing new can be asked.
    pub fn is_replay(&self) -> bool {
        self.engine == "replay"
    }

    /// Whether this machine's CPU computes.
    pub fn is_on_cpu(&self) -> bool {
        self.is_exact() || self.device == "candle-cpu"
    }

    /// Whether a row has the same bits whatever rows stand beside it (this program's kernels), so
    /// that any difference between an answer with a draft and one without is a defect.
    pub fn is_exact(&self) -> bool {
        self.device == "cpu"
    }
}

/// What a person wants to know of one network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkInfo {
    /// File or repository.
    pub name: String,
    /// As the file says: `llama`, `qwen3`, `DFlashDraftModel`.
    pub architecture: String,
    /// Number of layers.
    pub layers: usize,
    /// Hidden width.
    pub hidden: usize,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// The kinds of weights, e.g. "Q4_1, Q8_0".
    pub quantisation: String,
    /// Bytes of weights in memory.
    pub bytes: u64,
}

/// How an answer is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Draft, verify, commit.
    #[default]
    Speculative,
    /// One token a forward pass.
    Baseline,
}

impl Mode {
    /// The word for it on screens and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Speculative => "speculative",
            Mode::Baseline => "baseline",
        }
    }
}

/// How long a block may be (the anchor included).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum BlockSize {
    /// As long as it pays, chosen before each round.
    #[default]
    Auto,
    /// Always this long (cut by what room and budget allow).
    Fixed(usize),
}

impl std::str::FromStr for BlockSize {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(BlockSize::Auto),
            n => match n.parse::<usize>() {
                Ok(n) if (1..=64).contains(&n) => Ok(BlockSize::Fixed(n)),
                _ => Err(format!("a block size is `auto` or a number from 1 to 64, not `{n}`")),
            },
        }
    }
}

impl std::fmt::Display for BlockSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BlockSize::Auto => f.write_str("auto"),
            BlockSize::Fixed(n) => write!(f, "{n}"),
        }
    }
}

/// How the next token is chosen from the target's logits. `temperature` 0 is greedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the smallest set of tokens with at least this much probability; 1 keeps all.
    pub top_p: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Drop tokens less likely than this share of the most likely one; 0 keeps all.
    #[serde(default)]
    pub min_p: f32,
    /// Divide the logits of tokens already in the context by this; 1 changes nothing.
    #[serde(default = "one")]
    pub repetition_penalty: f32,
}

fn one() -> f32 {
    1.0
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0, repetition_penalty: 1.0 }
    }
}

/// The facts of a run, before it computes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// How it decodes.
    pub mode: Mode,
    /// The block length asked for.
    pub block_size: BlockSize,
    /// The whole prompt.
    pub prompt_ids: Vec<u32>,
    /// Tokens of it that were already in the cache.
    pub reused_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed of the random numbers (unused when greedy).
    pub seed: u64,
    /// Most tokens that prompt and answer may have together.
    pub ctx_limit: usize,
    /// Most tokens the answer may have.
    pub max_tokens: usize,
}

/// A token with the text that it stands for when shown alone: control characters and partial
/// characters made visible, so that it may go to a terminal as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// For display only; the exact text of an answer is in the events' `text`.
    pub text: String,
}

/// A token that the draft proposed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct DraftedToken {
    /// Its id.
    pub id: u32,
    /// For display only.
    pub text: String,
    /// The probability that the draft gave it.
    pub prob: f32,
}

/// Why a round had the block size that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum PlannedBy {
    /// The person asked for this size.
    #[default]
    Fixed,
    /// The size with the best expected tokens per unit of time.
    Auto,
    /// To learn what a size costs or brings.
    Probe,
    /// Few answer tokens are left.
    Budget,
    /// Little context is left.
    Room,
}

/// Where a round's drafts came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum DraftSource {
    /// Nothing was drafted: a plain step.
    #[default]
    Plain,
    /// The DFlash draft.
    Draft,
    /// A continuation seen earlier in the context.
    Ngram,
}

/// One round: what was drafted, what the target wanted, what was committed, what it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Round {
    /// 0 for the first round of a run.
    pub index: usize,
    /// Absolute position of the anchor.
    pub position: usize,
    /// Rows that were verified: the anchor and the drafts sent with it; 1 in a plain round.
    pub block_size: usize,
    /// Why that many.
    pub planned_by: PlannedBy,
    /// Where the drafts came from.
    #[serde(default)]
    pub source: DraftSource,
    /// The last committed token, which is not in the target's cache yet.
    pub anchor: Token,
    /// The drafts that were verified (`block_size - 1`).
    pub drafted: Vec<DraftedToken>,
    /// Drafts that were proposed after those but not sent: their tail was not worth verifying.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsent: Vec<DraftedToken>,
    /// The target's choice at each verified row (`block_size`); those after the first mismatch
    /// are conditioned on a rejected draft.
    pub target: Vec<Token>,
    /// The gap between the target's best and second logit at each row, where known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub margins: Vec<f32>,
    /// Drafts that were kept.
    pub accepted: usize,
    /// Tokens added to the answer.
    pub committed: Vec<Token>,
    /// The exact text that they add.
    pub text: String,
    /// Tokens that the planner expected to commit, where it had an expectation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<f32>,
    /// Time of the draft's pass, absorbing the target's features included.
    pub draft_us: u64,
    /// Time of the target's pass.
    pub verify_us: u64,
    /// All other time of the round.
    pub other_us: u64,
    /// Tokens in the target's cache after the round.
    pub kv_len: usize,
}

impl Round {
    /// The time of the whole round, in microseconds.
    pub fn total_us(&self) -> u64 {
        self.draft_us + self.verify_us + self.other_us
    }

    /// Whether a draft was rejected (the round's last committed token is then a correction). A
    /// round that was cut at an accepted token (an end token, the budget) judged no further.
    pub fn rejected(&self) -> bool {
        self.accepted < self.drafted.len() && !self.is_cut()
    }

    /// Whether the answer's end cut the round at an accepted token: it has no token of the
    /// target's own then.
    pub fn is_cut(&self) -> bool {
        self.committed.len() <= self.accepted
    }

    /// What happened to each committed token, in order.
    pub fn outcomes(&self) -> impl Iterator<Item = Outcome> + '_ {
        let last = if self.drafted.is_empty() {
            Outcome::Plain
        } else if self.rejected() {
            Outcome::Correction
        } else {
            Outcome::Bonus
        };
        (0..self.committed.len()).map(
            move |i| {
                if i < self.accepted { Outcome::Accepted } else { last }
            },
        )
    }
}

/// What a token of an answer is: how it got there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Drafted, and the target agreed.
    Accepted,
    /// The target's own token, after every draft of the block was accepted.
    Bonus,
    /// The target's own token, in the place of the first rejected draft.
    Correction,
    /// A plain step's token, or the first token of an answer.
    Plain,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end token.
    Eos,
    /// A stop string.
    Stop,
    /// The asked number of tokens.
    MaxTokens,
    /// No position is left.
    ContextFull,
    /// The person stopped it.
    Cancelled,
    /// An error; an `error` event came before.
    Failed,
}

impl FinishReason {
    /// The word for it on screens.
    pub fn name(&self) -> &'static str {
        match self {
            FinishReason::Eos => "end of turn",
            FinishReason::Stop => "stop string",
            FinishReason::MaxTokens => "token limit",
            FinishReason::ContextFull => "context full",
            FinishReason::Cancelled => "stopped",
            FinishReason::Failed => "failed",
        }
    }
}

/// Sums over one run. Rates that would divide by zero are 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Totals {
    /// Answer tokens: 1 + the committed ones.
    pub tokens: usize,
    /// Rounds.
    pub rounds: usize,
    /// Drafts that were verified.
    pub drafted: usize,
    /// Drafts that were kept.
    pub accepted: usize,
    /// Committed tokens ÷ rounds.
    pub tau: f64,
    /// Accepted ÷ drafted.
    pub acceptance_rate: f64,
    /// The chance that draft i is accepted given that all before it were, by i.
    pub position_acceptance: Vec<f64>,
    /// From the command to the first answer token.
    pub ttft_us: u64,
    /// Prompt tokens a second.
    pub prefill_tok_s: f64,
    /// Tokens a second after the first; prefill excluded.
    pub decode_tok_s: f64,
    /// Sum over the rounds.
    pub draft_us: u64,
    /// Sum over the rounds.
    pub verify_us: u64,
    /// Sum over the rounds.
    pub other_us: u64,
}

/// What is being done within a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundPhase {
    /// The draft fills the block.
    Draft,
    /// The target verifies it.
    Verify,
}

/// What one forward pass of the target costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerifyCost {
    /// Tokens in the cache while it was measured.
    pub context: usize,
    /// One entry a number of rows.
    pub points: Vec<CostPoint>,
    /// Bytes of weights that a pass of one row reads; 0 where that is not known.
    #[serde(default)]
    pub weights: u64,
    /// Bytes a second at which memory can be read here, measured at the same time; `None` on
    /// devices where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_rate: Option<f64>,
}

impl VerifyCost {
    /// Time of a pass of one row, in microseconds, where that was measured.
    pub fn one_row_us(&self) -> Option<f64> {
        self.points.iter().find(|point| point.rows == 1).map(|point| point.verify_us)
    }

    /// How fast a pass of one row reads the weights, in bytes a second; and the share of what
    /// memory gives, where both are known.
    pub fn weight_rate(&self) -> Option<(f64, Option<f64>)> {
        let us = self.one_row_us().filter(|us| *us > 0.0 && self.weights > 0)?;
        let rate = self.weights as f64 / us * 1e6;
        let most = self.memory_rate.filter(|most| *most > 0.0);
        Some((rate, most.map(|most| rate / most)))
    }
}

/// What a forward pass at `rows` rows costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostPoint {
    /// Rows in the pass.
    pub rows: usize,
    /// Median time of the target's pass, in microseconds.
    pub verify_us: f64,
    /// Median time of the draft's pass that proposes `rows - 1` tokens; 0 without a draft.
    pub draft_us: f64,
    /// Fastest and slowest of the target's passes.
    pub spread_us: (f64, f64),
}

/// A line for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// How much it matters.
    pub level: Level,
    /// What happened.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// How much a message matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Good to know.
    Info,
    /// Something is not as asked.
    Warning,
    /// It failed.
    Error,
}

/// Who speaks in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The word that chat templates use.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// The text.
    pub content: String,
    /// An answer's token ids (end token excluded), so that it is never tokenised again; `None`
    /// where they say more than the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<u32>>,
}

impl ChatMessage {
    /// A message without known ids.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        ChatMessage { role, content: content.into(), ids: None }
    }

    /// An answer that ended for `reason`, with its ids where they say what its text says: the end
    /// token is the template's to write, and a stop string may have cut the text within a token.
    pub fn answer(content: &str, ids: &[u32], reason: Option<&FinishReason>) -> Self {
        let ids = match (reason, ids) {
            (Some(FinishReason::Stop), _) => None,
            (Some(FinishReason::Eos), [ids @ .., _]) | (_, ids) => Some(ids.to_vec()),
        };
        ChatMessage { role: Role::Assistant, content: content.into(), ids }
    }
}

/// What to answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    /// A conversation, rendered by the model's chat template.
    Messages(Vec<ChatMessage>),
    /// Text as it is, special tokens in it honoured (`--no-chat-template`).
    Text(String),
    /// Token ids as they are.
    Ids(Vec<u32>),
}

/// Everything that shapes one answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generate {
    /// What to answer.
    pub prompt: Prompt,
    /// How to decode.
    pub mode: Mode,
    /// How long blocks may be.
    pub block_size: BlockSize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Most tokens the answer may have.
    pub max_tokens: usize,
    /// Text at which the answer ends; the stop text itself is not part of the answer.
    pub stop: Vec<String>,
    /// Whether the template opens a thinking block.
    pub thinking: bool,
    /// Leave the oldest turns out of a conversation that is too long for the context.
    #[serde(default)]
    pub drop_oldest: bool,
}

impl Default for Generate {
    fn default() -> Self {
        Generate {
            prompt: Prompt::Ids(Vec::new()),
            mode: Mode::Speculative,
            block_size: BlockSize::Auto,
            sampling: Sampling::default(),
            seed: 0,
            max_tokens: 1024,
            stop: Vec::new(),
            thinking: false,
            drop_oldest: false,
        }
    }
}

/// How a replay is steered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayControl {
    /// Stand still.
    Pause,
    /// Go on.
    Resume,
    /// Stand still after the next round.
    Step,
    /// Go to the start of this round (0 is the first); past the last one, to the end.
    Seek(usize),
    /// Times the recorded speed.
    Speed(f32),
}

/// What a front end may ask. Cancelling is not a command, since the engine's thread is busy
/// then: see [`crate::engine::CancelToken`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EngineCommand {
    /// Answer a prompt.
    Generate(Box<Generate>),
    /// Forget the cache, so that the next prompt is processed whole (benchmarks).
    Forget,
    /// Measure a forward pass at each number of rows, with `context` tokens in the cache.
    MeasureVerifyCost {
        /// Numbers of rows.
        rows: Vec<usize>,
        /// Tokens in the cache meanwhile.
        context: usize,
        /// Passes a number of rows.
        repeats: usize,
    },
    /// Steer a replay; other engines do nothing.
    Replay {
        /// What to do.
        control: ReplayControl,
    },
    /// End the engine's thread.
    Shutdown,
}
