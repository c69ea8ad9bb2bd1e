//! An engine that computes nothing: it plays fixed answers as rounds that look like real ones.
//! Everything follows from the script and its seed, so that tests see the same rounds each time.
//! A prompt that contains a keyword of the script gets that answer; `panic` in a prompt makes the
//! engine panic and `fail` makes it report an error, so that both can be tried.

use super::{CancelToken, Engine, EventSink};
use crate::event::*;
use crate::stats::RunStats;
use crate::text::sanitise_line;
use std::time::{Duration, Instant};
use unicode_segmentation::UnicodeSegmentation;

/// What a [`ScriptedEngine`] plays.
#[derive(Debug, Clone)]
pub struct Script {
    /// Keyword and answer; the first whose keyword is in the prompt is played, else the first.
    pub answers: Vec<(String, String)>,
    /// Seed of the rounds' accepted counts and probabilities.
    pub seed: u64,
    /// Share of the drafts that are right, 0 to 1.
    pub acceptance: f32,
    /// Block size of the pretended draft, anchor included.
    pub block_size: usize,
    /// Time of a pretended pass of the draft, and of the target for one row; a row more costs a
    /// tenth of the latter more.
    pub pass_us: (u64, u64),
    /// How long the engine really sleeps, as a multiple of the pretended time; 0 in tests.
    pub pace: f32,
    /// Most tokens that prompt and answer may have.
    pub ctx_limit: usize,
}

impl Default for Script {
    fn default() -> Self {
        let answer = |keyword: &str, text: &str| (keyword.to_string(), text.to_string());
        Script {
            answers: vec![
                answer(
                    "",
                    "Paris is the capital of France. It lies on the Seine, and about two million people live in the city itself.",
                ),
                answer("code", include_str!("scripted/code.md")),
                answer("markdown", include_str!("scripted/markdown.md")),
                answer(
                    "cjk",
                    "日本語とEnglishを混ぜた文です。绝对没有问题。 Emoji: 👩‍👩‍👧‍👦 👍🏽 1️⃣ ☀️ 🇫🇷 and é combined.\n\n| 列 | 値 |\n|---|---|\n| 東京 | 🗼 |\n",
                ),
                answer(
                    "hostile",
                    "before \x1b[2J\x1b]52;c;aGk=\x07 \u{9b}31m \u{202e}reversed\u{202c} tab\there\rdone",
                ),
                answer("long", include_str!("scripted/long.md")),
            ],
            seed: 7,
            acceptance: 0.72,
            block_size: 8,
            pass_us: (2_000, 9_000),
            pace: 1.0,
            ctx_limit: 4096,
        }
    }
}

/// Plays a [`Script`].
#[derive(Debug)]
pub struct ScriptedEngine {
    script: Script,
    cache: Vec<u32>,
    rng: Rng,
}

impl ScriptedEngine {
    /// Tell that the pretended networks are ready, and be ready.
    pub fn load(script: Script, out: &mut EventSink) -> ScriptedEngine {
        let started = Instant::now();
        for done in 0..=4 {
            let stage = "loading the script".to_string();
            out.emit(EngineEvent::LoadProgress { stage, done, total: 4 });
            sleep(40_000, script.pace);
        }
        let network = |name: &str, architecture: &str| NetworkInfo {
            name: name.into(),
            architecture: architecture.into(),
            layers: 30,
            hidden: 576,
            vocabulary: 49_152,
            quantisation: "none".into(),
            bytes: 0,
        };
        out.emit(EngineEvent::ModelReady(Box::new(ModelReady {
            engine: "scripted".into(),
            pair: "scripted".into(),
            target: network("a script", "script"),
            draft: Some(network("the same script", "DFlashDraftModel")),
            draft_missing: None,
            target_asked: None,
            draft_asked: None,
            device: "cpu".into(),
            device_detail: "no computation".into(),
            threads: 1,
            block_size: script.block_size,
            taps: vec![1, 14, 26],
            ctx_limit: script.ctx_limit,
            load_us: started.elapsed().as_micros() as u64,
        })));
        let rng = Rng(script.seed);
        ScriptedEngine { script, cache: Vec::new(), rng }
    }

    fn answer(&mut self, request: &Generate, out: &mut EventSink, cancel: &CancelToken) {
        let (prompt, ids) = prompt_text_and_ids(&request.prompt);
        if prompt.contains("panic") {
            panic!("the script said so");
        }
        if prompt.contains("fail") {
            let hint = Some("ask something else".to_string());
            return out.error("the script said that this fails", hint);
        }
        if ids.len() >= self.script.ctx_limit {
            let hint = Some("/new starts a conversation that fits".to_string());
            return out.error("the conversation is longer than the context", hint);
        }
        let reused = ids.iter().zip(&self.cache).take_while(|(a, b)| a == b).count();
        let reused = reused.min(ids.len().saturating_sub(1));
        out.emit(EngineEvent::RunStarted(Box::new(RunStarted {
            mode: request.mode,
            block_size: request.block_size,
            prompt_ids: ids.clone(),
            reused_tokens: reused,
            sampling: request.sampling.clone(),
            seed: request.seed,
            ctx_limit: self.script.ctx_limit,
            max_tokens: request.max_tokens,
        })));
        let mut run = Run {
            tokens: tokenise(self.answer_text(&prompt)),
            next: 0,
            kv_len: ids.len(),
            stats: RunStats::default(),
            ttft_us: 0,
        };
        let new = ids.len() - reused;
        let prefill_us = new as u64 * self.script.pass_us.1 / 8;
        self.cache = ids;
        for part in 1..=4 {
            if cancel.is_cancelled() {
                return run.finish(FinishReason::Cancelled, out);
            }
            sleep(prefill_us / 4, self.script.pace);
            out.emit(EngineEvent::PrefillProgress { done: new * part / 4, total: new });
        }
        run.ttft_us = prefill_us;
        let first = run.tokens[0].clone();
        run.next = 1;
        self.cache.push(first.id);
        out.emit(EngineEvent::PrefillDone {
            tokens: new,
            us: prefill_us,
            first: first.token(),
            text: first.text,
        });
        let reason = loop {
            if cancel.is_cancelled() {
                break FinishReason::Cancelled;
            }
            if run.next >= run.tokens.len() {
                break FinishReason::Eos;
            }
            if run.next >= request.max_tokens {
                break FinishReason::MaxTokens;
            }
            if run.kv_len + 1 >= self.script.ctx_limit {
                break FinishReason::ContextFull;
            }
            let round = self.round(&mut run, request);
            sleep(round.total_us(), self.script.pace);
            self.cache.extend(round.committed.iter().map(|token| token.id));
            out.emit(EngineEvent::Round(Box::new(round)));
        };
        run.finish(reason, out);
    }

    fn answer_text(&self, prompt: &str) -> &str {
        let named = |(keyword, _): &&(String, String)| {
            !keyword.is_empty() && prompt.contains(keyword.as_str())
        };
        let first = self.script.answers.iter().find(named).or(self.script.answers.first());
        first.map_or("…", |(_, answer)| answer)
    }

    fn round(&mut self, run: &mut Run, request: &Generate) -> Round {
        let left = run.tokens.len() - run.next;
        let room = (self.script.ctx_limit - run.kv_len).min(request.max_tokens - run.next);
        let wanted = match (request.mode, request.block_size) {
            (Mode::Baseline, _) => 1,
            (_, BlockSize::Fixed(n)) => n.max(1),
            (_, BlockSize::Auto) if run.stats.rounds % 12 == 11 => 1,
            (_, BlockSize::Auto) => 2 + self.rng.below(self.script.block_size as u64 - 1) as usize,
        };
        let rows = wanted.min(room).max(1);
        let mut accepted = 0;
        while accepted + 1 < rows.min(left) && self.rng.unit() < self.script.acceptance {
            accepted += 1;
        }
        let planned_by = match request.block_size {
            _ if rows < wanted => PlannedBy::Budget,
            BlockSize::Fixed(_) => PlannedBy::Fixed,
            BlockSize::Auto if wanted == 1 => PlannedBy::Probe,
            BlockSize::Auto => PlannedBy::Auto,
        };
        let drafts = rows - 1;
        let wish = |i: usize| run.tokens.get(run.next + i).cloned().unwrap_or_else(Piece::end);
        let drafted = (0..drafts).map(|i| self.draft(i, accepted, wish(i))).collect::<Vec<_>>();
        let unsent = if drafts > 0 && drafts + 2 < self.script.block_size {
            (0..2).map(|_| self.draft(1, 0, Piece::end())).collect()
        } else {
            Vec::new()
        };
        let committed: Vec<Piece> = (0..=accepted).map(wish).collect();
        let anchor = run.tokens[run.next - 1].token();
        let (draft_us, row_us) = self.script.pass_us;
        let jitter = self.rng.below(row_us / 20 + 1);
        let round = Round {
            index: run.stats.rounds,
            position: run.kv_len,
            block_size: rows,
            planned_by,
            source: if drafts > 0 { DraftSource::Draft } else { DraftSource::Plain },
            anchor,
            unsent,
            target: (0..rows).map(|i| wish(i).token()).collect(),
            margins: Vec::new(),
            accepted,
            text: committed.iter().map(|piece| piece.text.as_str()).collect(),
            committed: committed.iter().map(Piece::token).collect(),
            expected: (drafts > 0).then_some(1.0 + drafts as f32 * self.script.acceptance / 2.0),
            draft_us: if drafts > 0 { draft_us + jitter / 4 } else { 0 },
            verify_us: row_us + row_us * drafts as u64 / 10 + jitter,
            other_us: row_us / 40,
            kv_len: run.kv_len + accepted + 1,
            drafted,
        };
        run.next += round.committed.len();
        run.kv_len = round.kv_len;
        run.stats.add(&round);
        round
    }

    /// Draft `i` of a round that keeps `accepted`: right up to there, wrong at it, else either.
    fn draft(&mut self, i: usize, accepted: usize, wish: Piece) -> DraftedToken {
        const WRONG: [&str; 8] = [" the", " a", ",", "\n", " is", " 的", "(", " which"];
        let right = i < accepted || (i > accepted && self.rng.unit() < 0.4);
        let piece = if right {
            wish
        } else {
            let at = self.rng.below(WRONG.len() as u64) as usize;
            let other = if WRONG[at] == wish.text { (at + 1) % WRONG.len() } else { at };
            Piece::new(WRONG[other])
        };
        let prob = if right { 0.6 + 0.4 * self.rng.unit() } else { 0.1 + 0.5 * self.rng.unit() };
        let token = piece.token();
        DraftedToken { id: token.id, text: token.text, prob }
    }
}

impl Engine for ScriptedEngine {
    fn handle(&mut self, command: EngineCommand, out: &mut EventSink, cancel: &CancelToken) {
        match command {
            EngineCommand::Generate(request) => self.answer(&request, out, cancel),
            EngineCommand::Forget => self.cache.clear(),
            EngineCommand::MeasureVerifyCost { rows, context, repeats: _ } => {
                let (draft_us, row_us) = self.script.pass_us;
                let point = |rows: usize| {
                    let verify_us = row_us as f64 * (1.0 + 0.1 * rows.saturating_sub(1) as f64);
                    let draft_us = draft_us as f64;
                    CostPoint { rows, verify_us, draft_us, spread_us: (verify_us, verify_us) }
                };
                let points = rows.into_iter().map(point).collect();
                let cost = VerifyCost { context, points, weights: 0, memory_rate: None };
                out.emit(EngineEvent::VerifyCost(cost));
            }
            EngineCommand::Replay { .. } | EngineCommand::Shutdown => {}
        }
    }
}

/// One answer on its way.
struct Run {
    tokens: Vec<Piece>,
    next: usize,
    kv_len: usize,
    stats: RunStats,
    ttft_us: u64,
}

impl Run {
    fn finish(&self, reason: FinishReason, out: &mut EventSink) {
        let mut totals = self.stats.totals(self.ttft_us, self.kv_len, self.ttft_us);
        totals.tokens = self.next;
        out.emit(EngineEvent::RunFinished { reason, totals });
    }
}

/// A token of the script: a word with the space before it, a character, or the end.
#[derive(Debug, Clone)]
struct Piece {
    id: u32,
    text: String,
}

impl Piece {
    fn new(text: &str) -> Piece {
        // FNV-1a: the same text has the same id on every machine.
        let hash = text
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Piece { id: 1 + hash % 49_000, text: text.into() }
    }

    fn end() -> Piece {
        Piece { id: 0, text: String::new() }
    }

    fn token(&self) -> Token {
        let text = if self.id == 0 { "<end>".into() } else { sanitise_line(&self.text) };
        Token { id: self.id, text }
    }
}

fn prompt_text_and_ids(prompt: &Prompt) -> (String, Vec<u32>) {
    let ids = |text: &str| tokenise(text).into_iter().map(|piece| piece.id).collect::<Vec<_>>();
    match prompt {
        Prompt::Ids(ids) => (String::new(), ids.clone()),
        Prompt::Text(text) => (text.clone(), ids(text)),
        Prompt::Messages(messages) => {
            let last = messages.iter().rev().find(|message| message.role == Role::User);
            let all = messages.iter().flat_map(|message| {
                let own = message.ids.clone().unwrap_or_else(|| ids(&message.content));
                std::iter::once(Piece::new(message.role.name()).id).chain(own)
            });
            (last.map(|message| message.content.clone()).unwrap_or_default(), all.collect())
        }
    }
}

/// Words of at most four graphemes a piece, each with the space before it; ends with the end.
fn tokenise(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_inclusive(' ').flat_map(|word| word.split_inclusive('\n')) {
        let graphemes: Vec<&str> = word.graphemes(true).collect();
        for chunk in graphemes.chunks(4) {
            pieces.push(chunk.concat());
        }
    }
    // A space belongs to the token after it, as in most vocabularies.
    for i in 1..pieces.len() {
        if pieces[i - 1].len() > 1 && pieces[i - 1].ends_with(' ') {
            pieces[i - 1].pop();
            pieces[i].insert(0, ' ');
        }
    }
    pieces.iter().map(|piece| Piece::new(piece)).chain([Piece::end()]).collect()
}

fn sleep(us: u64, pace: f32) {
    if pace > 0.0 {
        std::thread::sleep(Duration::from_micros((us as f32 * pace) as u64));
    }
}

/// SplitMix64: small, and the same everywhere.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::spawn;

    fn play(request: Generate, script: Script) -> Vec<EngineEvent> {
        let mut handle = spawn(move |out, _| Some(Box::new(ScriptedEngine::load(script, out))));
        handle.send(EngineCommand::Generate(Box::new(request)));
        let mut events = Vec::new();
        while let Some(envelope) = handle.next_blocking() {
            let last = matches!(envelope.event, EngineEvent::RunFinished { .. });
            events.push(envelope.event);
            if last {
                break;
            }
        }
        events
    }

    fn script() -> Script {
        Script { pace: 0.0, ..Script::default() }
    }

    fn ask(text: &str) -> Generate {
        Generate { prompt: Prompt::Text(text.into()), ..Generate::default() }
    }

    /// What holds between the events of every run (see [`crate::event`]).
    #[test]
    fn its_rounds_keep_the_invariants() {
        for keyword in ["capital", "code", "markdown", "cjk", "hostile"] {
            let script = script();
            let expected = script.answers.iter().find(|(k, _)| k == keyword).cloned();
            let expected = expected.unwrap_or_else(|| script.answers[0].clone()).1;
            let mut text = String::new();
            let mut tokens = 0;
            for event in play(ask(keyword), script) {
                match event {
                    EngineEvent::PrefillDone { text: first, .. } => {
                        text += &first;
                        tokens += 1;
                    }
                    EngineEvent::Round(round) => {
                        text += &round.text;
                        tokens += round.committed.len();
                        assert_eq!(round.drafted.len() + 1, round.block_size);
                        assert_eq!(round.target.len(), round.block_size);
                        assert_eq!(round.committed.len(), round.accepted + 1);
                        for i in 0..round.accepted {
                            assert_eq!(round.committed[i].id, round.drafted[i].id);
                        }
                        if round.rejected() {
                            let slot = round.accepted;
                            assert_ne!(round.drafted[slot].id, round.target[slot].id);
                        }
                    }
                    EngineEvent::RunFinished { reason, totals } => {
                        assert_eq!((reason, totals.tokens), (FinishReason::Eos, tokens));
                    }
                    _ => {}
                }
            }
            assert_eq!(text, expected, "{keyword}");
        }
    }

    #[test]
    fn both_modes_say_the_same_and_the_limit_is_kept() {
        let baseline = Generate { mode: Mode::Baseline, max_tokens: 9, ..ask("code") };
        let speculative = Generate { max_tokens: 9, ..ask("code") };
        let committed = |request| {
            let mut ids = Vec::new();
            for event in play(request, script()) {
                match event {
                    EngineEvent::PrefillDone { first, .. } => ids.push(first.id),
                    EngineEvent::Round(round) => ids.extend(round.committed.iter().map(|t| t.id)),
                    _ => {}
                }
            }
            ids
        };
        let ids = committed(baseline);
        assert_eq!(ids, committed(speculative));
        assert_eq!(ids.len(), 9);
    }
}
