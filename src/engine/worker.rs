//! The engine that computes: prompt → ids → decode session → events.

use super::learned::LearnedFile;
use super::narrate::Narrator;
use super::{CancelToken, Engine, EventSink};
use crate::chat::conversation::drop_oldest_turn;
use crate::chat::template::{ChatTemplate, RenderOptions};
use crate::decode::session::{Prefill, RunSettings, Session};
use crate::event::{
    ChatMessage, CostPoint, EngineCommand, EngineEvent, FinishReason, Generate, Level, Mode,
    Prompt, RunStarted, Totals, VerifyCost,
};
use crate::model::tokenizer::{Special, Tokenizer};
use crate::stats::Spread;
use anyhow::{Context, Result};
use std::time::Instant;

/// The engine that computes.
pub struct Worker {
    /// The decode session.
    pub session: Session,
    /// The target's tokenizer.
    pub tokenizer: Tokenizer,
    /// The target's chat template.
    pub template: ChatTemplate,
    /// Tokens that end an answer.
    pub end_tokens: Vec<u32>,
    /// Most positions for prompt and answer.
    pub ctx_limit: usize,
    /// Where what the planner learns is kept.
    pub learned: Option<LearnedFile>,
}

impl Engine for Worker {
    fn handle(&mut self, command: EngineCommand, out: &mut EventSink, cancel: &CancelToken) {
        match command {
            EngineCommand::Generate(asked) => match self.generate(&asked, out, cancel) {
                Ok(()) => self.keep_learned(asked.mode),
                Err(error) => {
                    self.session.recover();
                    out.error(format!("{error:#}"), None);
                }
            },
            EngineCommand::Forget => self.session.forget(),
            EngineCommand::MeasureVerifyCost { rows, context, repeats } => {
                // No further than the rows still fit.
                let most = rows.iter().max().copied().unwrap_or(1);
                let room = self.session.networks().max_positions().saturating_sub(most);
                let context = context.min(room);
                match self.verify_cost(&rows, context, repeats, cancel) {
                    Ok(points) => {
                        let networks = self.session.networks();
                        let weights = networks.pass_bytes();
                        let rates = networks.memory_rates(weights);
                        let memory_rate = (!rates.is_empty()).then(|| Spread::of(&rates).median);
                        let cost = VerifyCost { context, points, weights, memory_rate };
                        out.emit(EngineEvent::VerifyCost(cost));
                    }
                    Err(error) => out.error(format!("{error:#}"), None),
                }
            }
            EngineCommand::Replay { .. } | EngineCommand::Shutdown => {}
        }
    }
}

impl Worker {
    /// Keep what a run taught the planner. Plain runs teach it nothing of drafts, and in a race
    /// they would overwrite what the speculative lane learned meanwhile.
    fn keep_learned(&self, mode: Mode) {
        if let (Mode::Speculative, Some(file)) = (mode, &self.learned) {
            file.write(self.session.planner().learned());
        }
    }

    /// How answers are decoded: without a draft by plain steps, whatever is asked for.
    fn mode(&mut self, asked: &Generate) -> Mode {
        match self.session.networks().block_size() {
            ..=1 => Mode::Baseline,
            _ => asked.mode,
        }
    }

    fn prompt_ids(&self, asked: &Generate, out: &mut EventSink) -> Result<Vec<u32>> {
        match &asked.prompt {
            Prompt::Ids(ids) => Ok(ids.clone()),
            Prompt::Text(text) => {
                Ok(self.tokenizer.with_bos(self.tokenizer.encode(text, Special::Parse)?))
            }
            Prompt::Messages(messages) => self.conversation_ids(messages, asked, out),
        }
    }

    /// The ids of a conversation. If it leaves no room for an answer and that is wanted, its
    /// oldest turns are left out: whole quarters of the context at once, so that the turns
    /// that follow find the same beginning in the cache.
    fn conversation_ids(
        &self,
        messages: &[ChatMessage],
        asked: &Generate,
        out: &mut EventSink,
    ) -> Result<Vec<u32>> {
        let options = RenderOptions { thinking: asked.thinking, ..RenderOptions::default() };
        let encode = |messages: &[ChatMessage]| {
            self.template.encode_prompt(&self.tokenizer, messages, &options)
        };
        let (mut ids, warning) = encode(messages)?;
        if let Some(warning) = warning {
            out.notice(Level::Warning, warning, None);
        }
        let quarter = (self.ctx_limit / 4).max(1);
        let room = self.ctx_limit.saturating_sub(quarter.min(asked.max_tokens));
        if !asked.drop_oldest || ids.len() <= room {
            return Ok(ids);
        }
        let whole = ids.len();
        let surplus = (whole - room).next_multiple_of(quarter);
        let mut rest = messages.to_vec();
        let mut dropped = Vec::new();
        while whole - ids.len() < surplus
            && let Some(turn) = drop_oldest_turn(&mut rest)
        {
            dropped.push(format!("“{turn}”"));
            ids = encode(&rest)?.0;
        }
        if let (Some(first), Some(last)) = (dropped.first(), dropped.last()) {
            let turns = match dropped.len() {
                1 => format!("its oldest turn is left out: {first}"),
                n => format!("its {n} oldest turns are left out, from {first} to {last}"),
            };
            out.notice(
                Level::Warning,
                format!("the conversation fills the context; {turns}"),
                None,
            );
        }
        Ok(ids)
    }

    /// Answer a prompt. An error before the first round is the caller's to tell.
    fn generate(
        &mut self,
        asked: &Generate,
        out: &mut EventSink,
        cancel: &CancelToken,
    ) -> Result<()> {
        let start = Instant::now();
        let mode = self.mode(asked);
        let prompt = self.prompt_ids(asked, out).context("the prompt could not be prepared")?;
        let settings = RunSettings {
            mode,
            block_size: asked.block_size,
            sampling: asked.sampling.clone(),
            seed: asked.seed,
            max_tokens: asked.max_tokens,
            end_tokens: self.end_tokens.clone(),
            ctx_limit: self.ctx_limit,
        };
        let reused_tokens = self.session.begin(&prompt, settings)?;
        out.emit(EngineEvent::RunStarted(Box::new(RunStarted {
            mode,
            block_size: asked.block_size,
            prompt_ids: prompt,
            reused_tokens,
            sampling: asked.sampling.clone(),
            seed: asked.seed,
            ctx_limit: self.ctx_limit,
            max_tokens: asked.max_tokens,
        })));
        let mut narrator = Narrator::new(&self.tokenizer, &asked.stop, start);

        let prefill = Instant::now();
        loop {
            if cancel.is_cancelled() {
                self.session.stop(FinishReason::Cancelled);
                let totals = Totals::default();
                out.emit(EngineEvent::RunFinished { reason: FinishReason::Cancelled, totals });
                return Ok(());
            }
            let Prefill { done, total, first } = self.session.prefill_next()?;
            out.emit(EngineEvent::PrefillProgress { done, total });
            if let Some(first) = first {
                let took = prefill.elapsed();
                let (first, mut text) = narrator.first(first, total, took);
                stop_if(cancel, &mut self.session);
                text.push_str(&end_of_text(&mut self.session, &mut narrator));
                let us = took.as_micros() as u64;
                out.emit(EngineEvent::PrefillDone { tokens: total, us, first, text });
                break;
            }
        }
        let reason = loop {
            if let Some(reason) = self.session.finished() {
                break reason;
            }
            // Text that is held back for a stop string can only go with a round: there is one more.
            if !narrator.holds_back() && stop_if(cancel, &mut self.session) {
                continue;
            }
            let record = match self.session.round() {
                Ok(record) => record,
                Err(error) => {
                    self.session.recover();
                    out.error(format!("{error:#}"), None);
                    break FinishReason::Failed;
                }
            };
            let mut round = narrator.round(record, self.session.ids().len());
            stop_if(cancel, &mut self.session);
            round.text.push_str(&end_of_text(&mut self.session, &mut narrator));
            out.emit(EngineEvent::Round(Box::new(round)));
        };
        out.emit(narrator.finished(reason));
        Ok(())
    }

    /// Time passes of the target and of the draft at each number of rows, in turn, so that a
    /// slow spell of the machine falls on all of them. The caches are emptied.
    fn verify_cost(
        &mut self,
        rows: &[usize],
        context: usize,
        repeats: usize,
        cancel: &CancelToken,
    ) -> Result<Vec<CostPoint>> {
        self.session.forget();
        let networks = self.session.networks();
        let vocab = networks.vocab() as u32;
        let id = |i: usize| (i as u32).wrapping_mul(7919) % vocab;
        let filler: Vec<u32> = (0..context.max(1)).map(id).collect();
        for chunk in filler.chunks(networks.prefill_rows()) {
            if cancel.is_cancelled() {
                anyhow::bail!("stopped");
            }
            networks.prefill(chunk, true, false)?;
        }
        let mut times = vec![(Vec::new(), Vec::new()); rows.len()];
        // One pass more than asked: the first warms up.
        for repeat in 0..=repeats {
            for (&n, (verify, draft)) in rows.iter().zip(&mut times) {
                if cancel.is_cancelled() {
                    anyhow::bail!("stopped");
                }
                let block: Vec<u32> = (0..n).map(|i| id(i + 31)).collect();
                let drafts = n.min(networks.block_size()).saturating_sub(1);
                let start = Instant::now();
                if drafts > 0 {
                    networks.propose(block[0], drafts)?;
                }
                let drafted = start.elapsed();
                let start = Instant::now();
                networks.verify(&block, false)?;
                networks.choices()?;
                let verified = start.elapsed();
                networks.commit(0)?;
                if repeat > 0 {
                    verify.push(verified.as_secs_f64() * 1e6);
                    draft.push(if drafts > 0 { drafted.as_secs_f64() * 1e6 } else { 0.0 });
                }
            }
        }
        self.session.forget();
        Ok(rows
            .iter()
            .zip(times)
            .map(|(&rows, (verify, draft))| {
                let spread = Spread::of(&verify);
                CostPoint {
                    rows,
                    verify_us: spread.median,
                    draft_us: Spread::of(&draft).median,
                    spread_us: (spread.min, spread.max),
                }
            })
            .collect())
    }
}

/// End an answer that is not finished, if that was asked for; whether it was.
fn stop_if(cancel: &CancelToken, session: &mut Session) -> bool {
    let stops = cancel.is_cancelled() && session.finished().is_none();
    if stops {
        session.stop(FinishReason::Cancelled);
    }
    stops
}

/// Cut the answer at a stop string, if one was met; else, if the answer is finished, the
/// text that was held back for one.
fn end_of_text(session: &mut Session, narrator: &mut Narrator<'_>) -> String {
    match narrator.stopped() {
        Some(cut) => {
            session.cut(cut, FinishReason::Stop);
            String::new()
        }
        None if session.finished().is_some() => narrator.rest(),
        None => String::new(),
    }
}
