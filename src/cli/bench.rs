//! `dflash-chat bench`: baseline against speculative, the same prompts, in turn.

mod report;

use super::options::{
    Asked, ConversationOptions, DecodeOptions, ModelOptions, of_compared_answers, of_lanes,
};
use super::{
    Cancelled, Interrupt, WrongUsage, engine_error, interrupt, start_engine, wait_until_ready,
};
use crate::engine::EngineHandle;
use crate::event::{
    ChatMessage, EngineCommand, EngineEvent, Mode, ModelReady, Prompt, Role, VerifyCost,
};
use crate::race::{Transcript, compare};
use crate::stats::RunStats;
use crate::text::sanitise_line;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use report::{Lane, PromptResult, Report, keep_worse};
use serde::Deserialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Options of `bench`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(mut_arg("max_tokens", of_compared_answers), mut_arg("mode", of_lanes))]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    /// Prompts of one's own: a JSONL file of {"turns": ["…"], "category": "…"}
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Only this category (may be given more than once)
    #[arg(long, value_name = "NAME")]
    category: Vec<String>,
    /// Only the first N prompts of each category
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Runs of each prompt and mode
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// What to print
    #[arg(long, value_enum, default_value_t = BenchFormat::Table)]
    format: BenchFormat,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    decode: DecodeOptions,
    /// System prompt [default: the prompt's own, else the pair's]
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

#[derive(Debug, Clone, Subcommand)]
enum BenchCommand {
    /// What one forward pass costs at 1 to 5, 8 and 16 rows
    VerifyCost {
        /// Numbers of rows
        #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 4, 5, 8, 16])]
        rows: Vec<usize>,
        /// Tokens in the cache meanwhile
        #[arg(long, default_value_t = 128)]
        context: usize,
        /// Passes a number of rows
        #[arg(long, default_value_t = 20)]
        repeats: usize,
        /// What to print
        #[arg(long, value_enum, default_value_t = BenchFormat::Table)]
        format: BenchFormat,
        #[command(flatten)]
        model: ModelOptions,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchFormat {
    /// A table
    Table,
    /// One JSON object
    Json,
}

/// One prompt of a set.
#[derive(Debug, Clone, Deserialize)]
struct BenchPrompt {
    #[serde(default = "other")]
    category: String,
    turns: Vec<String>,
    #[serde(default)]
    system: Option<String>,
}

fn other() -> String {
    "other".into()
}

/// The built-in set.
const BUILT_IN: [&str; 3] = [
    include_str!("../../assets/prompts/math.jsonl"),
    include_str!("../../assets/prompts/code.jsonl"),
    include_str!("../../assets/prompts/chat.jsonl"),
];

/// Run the command.
pub fn run(args: &BenchArgs) -> Result<()> {
    if let Some(BenchCommand::VerifyCost { rows, context, repeats, format, model }) = &args.command
    {
        return verify_cost(rows, *context, *repeats, *format, model);
    }
    ensure!(
        args.decode.mode.is_none(),
        WrongUsage("bench has no --mode; it runs every prompt in both".into())
    );
    let prompts = prompts(args)?;
    let asked = Asked::new(&args.model, &args.decode, &ConversationOptions::default())?;
    let mut bench = Bench::start(&asked)?;
    let progress = std::io::stderr().is_terminal();
    bench.warm_up(args, &asked, &prompts[0])?;
    let mut results = Vec::with_capacity(prompts.len());
    for (i, prompt) in prompts.iter().enumerate() {
        if progress {
            write!(std::io::stderr(), "\r\x1b[2Kprompt {} of {}", i + 1, prompts.len())?;
        }
        results.push(bench.prompt(args, &asked, prompt)?);
    }
    if progress {
        write!(std::io::stderr(), "\r\x1b[2K")?;
    }
    let values = &asked.settings.values;
    let settings = (values.sampling.clone(), values.seed);
    let report = Report::new(bench.ready, results, args.repeat as usize, settings);
    match args.format {
        BenchFormat::Json => println_json(&report)?,
        BenchFormat::Table => write!(std::io::stdout(), "{report}")?,
    }
    let mismatches = report.mismatches();
    ensure!(mismatches == 0, "{mismatches} answers differ between the modes");
    Ok(())
}

fn println_json<T: serde::Serialize>(value: &T) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn prompts(args: &BenchArgs) -> Result<Vec<BenchPrompt>> {
    let mut all = match &args.prompts {
        Some(path) => read_prompts(path)?,
        None => {
            let mut all = Vec::new();
            for text in BUILT_IN {
                all.extend(parse_prompts(text)?);
            }
            all
        }
    };
    if !args.category.is_empty() {
        all.retain(|prompt| args.category.contains(&prompt.category));
    }
    if let Some(limit) = args.limit {
        let mut seen = std::collections::HashMap::<String, usize>::new();
        all.retain(|prompt| {
            let n = seen.entry(prompt.category.clone()).or_default();
            *n += 1;
            *n <= limit
        });
    }
    ensure!(!all.is_empty(), "no prompt is left to run; see --category, --limit and --prompts");
    Ok(all)
}

fn read_prompts(path: &Path) -> Result<Vec<BenchPrompt>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the prompts {}", path.display()))?;
    parse_prompts(&text).with_context(|| format!("in {}", path.display()))
}

fn parse_prompts(text: &str) -> Result<Vec<BenchPrompt>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let prompt: BenchPrompt =
                serde_json::from_str(line).with_context(|| format!("line {}", i + 1))?;
            ensure!(!prompt.turns.is_empty(), "line {}: there are no turns", i + 1);
            Ok(prompt)
        })
        .collect()
}

/// A running engine under measurement.
struct Bench {
    engine: EngineHandle,
    interrupted: Interrupt,
    ready: ModelReady,
}

impl Bench {
    fn start(asked: &Asked) -> Result<Self> {
        asked.check()?;
        let mut engine = start_engine(asked);
        let interrupted = interrupt(engine.cancel.clone())?;
        let ready = wait_until_ready(&mut engine, &interrupted, true)?;
        Ok(Bench { engine, interrupted, ready })
    }

    fn warm_up(&mut self, args: &BenchArgs, asked: &Asked, prompt: &BenchPrompt) -> Result<()> {
        for mode in [Mode::Baseline, Mode::Speculative] {
            self.run(args, asked, prompt, mode, 0, Some(32))?;
        }
        Ok(())
    }

    /// All runs of one prompt, the modes in turn; which goes first alternates too.
    fn prompt(
        &mut self,
        args: &BenchArgs,
        asked: &Asked,
        prompt: &BenchPrompt,
    ) -> Result<PromptResult> {
        let exact = self.ready.is_exact();
        let mut lanes = [Lane::default(), Lane::default()];
        let mut verdicts = Vec::new();
        for repeat in 0..args.repeat as usize {
            let order = if repeat % 2 == 0 { [0, 1] } else { [1, 0] };
            let mut transcripts = [Vec::new(), Vec::new()];
            for lane in order {
                let mode = [Mode::Baseline, Mode::Speculative][lane];
                let (stats, texts) = self.run(args, asked, prompt, mode, repeat as u64, None)?;
                lanes[lane].add(stats);
                transcripts[lane] = texts;
            }
            let [plain, drafted] = transcripts;
            let turns = plain.iter().zip(&drafted).map(|(a, b)| compare(a, b, exact));
            keep_worse(&mut verdicts, turns.collect());
        }
        let [baseline, speculative] = lanes;
        Ok(PromptResult {
            category: prompt.category.clone(),
            prompt: prompt.turns[0].clone(),
            baseline,
            speculative,
            verdicts,
        })
    }

    /// One run over all turns of a prompt, from an empty cache. Each repeat has its own seed.
    fn run(
        &mut self,
        args: &BenchArgs,
        asked: &Asked,
        prompt: &BenchPrompt,
        mode: Mode,
        repeat: u64,
        most: Option<usize>,
    ) -> Result<(RunStats, Vec<Transcript>)> {
        self.engine.send(EngineCommand::Forget);
        let mut messages = Vec::new();
        let system = args.system.clone().or(prompt.system.clone()).or_else(|| asked.system());
        messages.extend(system.map(|system| ChatMessage::new(Role::System, system)));
        let mut stats = RunStats::default();
        let mut transcripts = Vec::new();
        for turn in &prompt.turns {
            messages.push(ChatMessage::new(Role::User, turn));
            let mut run = asked.compared(Prompt::Messages(messages.clone()));
            run.mode = mode;
            run.seed = run.seed.wrapping_add(repeat);
            if let Some(most) = most {
                run.max_tokens = run.max_tokens.min(most);
            }
            self.engine.send(EngineCommand::Generate(Box::new(run)));
            let transcript = self.collect(&mut stats)?;
            let Transcript { text, ids, reason, .. } = &transcript;
            messages.push(ChatMessage::answer(text, ids, reason.as_ref()));
            transcripts.push(transcript);
        }
        Ok((stats, transcripts))
    }

    fn collect(&mut self, stats: &mut RunStats) -> Result<Transcript> {
        let mut transcript = Transcript::default();
        loop {
            let Some(envelope) = self.engine.next_blocking() else {
                bail!("the engine ended in the middle of an answer")
            };
            transcript.add(&envelope.event);
            match &envelope.event {
                EngineEvent::Round(round) => stats.add(round),
                EngineEvent::RunFinished { .. } | EngineEvent::Error(_)
                    if self.interrupted.happened() =>
                {
                    return Err(Cancelled.into());
                }
                EngineEvent::RunFinished { .. } => return Ok(transcript),
                EngineEvent::Error(message) => return Err(engine_error(message)),
                _ => {}
            }
        }
    }
}

fn verify_cost(
    rows: &[usize],
    context: usize,
    repeats: usize,
    format: BenchFormat,
    model: &ModelOptions,
) -> Result<()> {
    ensure!(
        !rows.is_empty() && rows.iter().all(|n| (1..=512).contains(n)) && repeats > 0,
        WrongUsage("--rows takes numbers from 1 to 512, --repeats at least 1".into())
    );
    let asked = Asked::new(model, &DecodeOptions::default(), &ConversationOptions::default())?;
    let mut bench = Bench::start(&asked)?;
    let most = rows.iter().max().copied().unwrap_or(1);
    ensure!(
        context + most <= bench.ready.ctx_limit,
        "{context} tokens and {most} rows do not fit into the context of {}",
        bench.ready.ctx_limit
    );
    let rows = rows.to_vec();
    bench.engine.send(EngineCommand::MeasureVerifyCost { rows, context, repeats });
    loop {
        match bench.engine.next_blocking().map(|envelope| envelope.event) {
            Some(EngineEvent::VerifyCost(cost)) => {
                match format {
                    BenchFormat::Json => {
                        let mut report = serde_json::to_value(&cost)?;
                        report["model"] = serde_json::to_value(&bench.ready)?;
                        println_json(&report)?;
                    }
                    BenchFormat::Table => {
                        write!(std::io::stdout(), "{}", cost_table(&bench.ready, &cost))?;
                    }
                }
                return Ok(());
            }
            Some(EngineEvent::Error(_)) if bench.interrupted.happened() => {
                return Err(Cancelled.into());
            }
            Some(EngineEvent::Error(message)) => return Err(engine_error(&message)),
            Some(_) => {}
            None => bail!("the engine ended while measuring"),
        }
    }
}

fn cost_table(ready: &ModelReady, cost: &VerifyCost) -> String {
    let mut out = format!(
        "{} on {} ({}), {} threads, {} tokens of context\n\n",
        sanitise_line(&ready.target.name),
        ready.device,
        ready.device_detail,
        ready.threads,
        cost.context
    );
    out.push_str("rows  verify ms  fastest–slowest    ÷ 1 row   draft ms   break-even τ\n");
    let one = cost.one_row_us();
    for point in &cost.points {
        let ms = |us: f64| us / 1e3;
        let ratio = |us: f64| one.map_or("—".into(), |one| format!("{:.2}", us / one));
        let (fast, slow) = point.spread_us;
        out.push_str(&format!(
            "{:4}  {:9.2}  {:6.2}–{:<8.2}  {:>9}  {:9.2}  {:>13}\n",
            point.rows,
            ms(point.verify_us),
            ms(fast),
            ms(slow),
            ratio(point.verify_us),
            ms(point.draft_us),
            ratio(point.verify_us + point.draft_us),
        ));
    }
    if let Some((rate, share)) = cost.weight_rate() {
        let of = match (share, cost.memory_rate) {
            (Some(share), Some(most)) => {
                format!(", {:.0} % of the {:.1} GB/s that memory gives", 100.0 * share, most / 1e9)
            }
            _ => String::new(),
        };
        out.push_str(&format!("\none row reads the weights at {:.1} GB/s{of}\n", rate / 1e9));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::demo::TRACES;

    #[test]
    fn a_targets_name_cannot_drive_the_terminal() {
        let mut ready = TRACES[0].recording().ready.unwrap();
        ready.target.name = "a\x1b[2Jb".into();
        let cost = VerifyCost { context: 8, points: vec![], weights: 0, memory_rate: None };
        let table = cost_table(&ready, &cost);
        assert!(table.starts_with("a␛[2Jb on "), "{table}");
    }
}
