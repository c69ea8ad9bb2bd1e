//! What `bench` prints.

use crate::event::{ModelReady, Sampling};
use crate::race::Verdict;
use crate::stats::{RunStats, Spread, ratio};
use crate::text::sanitise_line;
use serde::{Serialize, Serializer};
use std::fmt;

/// The runs of one mode on one prompt.
#[derive(Debug, Clone, Default)]
pub struct Lane {
    runs: Vec<RunStats>,
}

impl Lane {
    /// Take one run into account.
    pub fn add(&mut self, stats: RunStats) {
        self.runs.push(stats);
    }

    /// Microseconds a token after the first, by run; runs of one token have none.
    fn us_per_token(&self) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| run.committed > 0);
        runs.map(|run| run.total_us() as f64 / run.committed as f64).collect()
    }

    /// Every run adds up the same rounds where the block size is fixed; with `auto` they may
    /// differ, so figures other than times are of all runs together.
    fn sum(&self) -> RunStats {
        sum(self.runs.iter())
    }
}

fn sum<'a>(runs: impl Iterator<Item = &'a RunStats>) -> RunStats {
    let mut all = RunStats::default();
    for run in runs {
        all.rounds += run.rounds;
        all.committed += run.committed;
        all.drafted += run.drafted;
        all.accepted += run.accepted;
        all.draft_us += run.draft_us;
        all.verify_us += run.verify_us;
        all.other_us += run.other_us;
        if all.slots.len() < run.slots.len() {
            all.slots.resize(run.slots.len(), (0, 0));
        }
        for (slot, more) in all.slots.iter_mut().zip(&run.slots) {
            slot.0 += more.0;
            slot.1 += more.1;
        }
        all.plain.0 += run.plain.0;
        all.plain.1 += run.plain.1;
        all.speculative.0 += run.speculative.0;
        all.speculative.1 += run.speculative.1;
        all.speculative.2 += run.speculative.2;
        all.repeats += run.repeats;
    }
    all
}

/// Both modes on one prompt.
#[derive(Debug, Clone)]
pub struct PromptResult {
    /// Of the prompt.
    pub category: String,
    /// Its first turn.
    pub prompt: String,
    /// One token a pass.
    pub baseline: Lane,
    /// With drafts.
    pub speculative: Lane,
    /// One a turn: the worst of all repeats.
    pub verdicts: Vec<Verdict>,
}

/// Take the verdicts of one more repeat into account, one a turn: of each turn the worst is kept,
/// so that a repeat that went well hides none that did not.
pub fn keep_worse(kept: &mut Vec<Verdict>, repeat: Vec<Verdict>) {
    if kept.is_empty() {
        *kept = repeat;
        return;
    }
    for (kept, new) in kept.iter_mut().zip(repeat) {
        if new.badness() > kept.badness() {
            *kept = new;
        }
    }
}

impl PromptResult {
    /// Median time a token of the baseline ÷ that of speculative decoding.
    fn speedup(&self) -> Option<f64> {
        let plain = Spread::of(&self.baseline.us_per_token()).median;
        let speculative = Spread::of(&self.speculative.us_per_token()).median;
        (plain > 0.0 && speculative > 0.0).then(|| plain / speculative)
    }
}

/// Everything that was measured.
pub struct Report {
    ready: ModelReady,
    results: Vec<PromptResult>,
    repeat: usize,
    /// How tokens are chosen, and the first repeat's seed.
    settings: (Sampling, u64),
}

/// The figures of a category, or of all prompts.
#[derive(Debug, Clone, Serialize)]
struct Summary {
    category: String,
    prompts: usize,
    baseline_tok_s: Spread,
    speculative_tok_s: Spread,
    /// By prompt: the median and the spread over prompts.
    speedup: Spread,
    tau: f64,
    /// Mean time of a round with drafts ÷ mean plain step of the baseline.
    break_even_tau: Option<f64>,
    acceptance_rate: f64,
    /// Conditional: draft i, given that all before it were accepted.
    position_acceptance: Vec<f64>,
    #[serde(serialize_with = "shares")]
    time: [f64; 3],
    /// Shares of the rounds, which all count in τ: of the draft, of a repeat of the text, plain.
    #[serde(serialize_with = "sources")]
    rounds: [f64; 3],
    tokens: usize,
}

fn shares<S: Serializer>(time: &[f64; 3], serializer: S) -> Result<S::Ok, S::Error> {
    let [draft, verify, other] = time;
    serde_json::json!({"draft": draft, "verify": verify, "other": other}).serialize(serializer)
}

fn sources<S: Serializer>(rounds: &[f64; 3], serializer: S) -> Result<S::Ok, S::Error> {
    let [draft, repeat, plain] = rounds;
    serde_json::json!({"draft": draft, "repeat": repeat, "plain": plain}).serialize(serializer)
}

impl Summary {
    /// The category as a terminal may show it: it comes from the file of prompts.
    fn name(&self) -> String {
        sanitise_line(&self.category)
    }

    fn of(category: &str, results: &[&PromptResult]) -> Summary {
        let tok_s = |lane: fn(&PromptResult) -> &Lane| {
            let figures: Vec<f64> =
                results.iter().flat_map(|r| lane(r).us_per_token()).map(|us| 1e6 / us).collect();
            Spread::of(&figures)
        };
        let speculative = sum(results.iter().flat_map(|r| &r.speculative.runs));
        let baseline = sum(results.iter().flat_map(|r| &r.baseline.runs));
        let speedups: Vec<f64> = results.iter().filter_map(|r| r.speedup()).collect();
        let total = speculative.total_us() as f64;
        let share = |us: u64| ratio(us as f64, total);
        Summary {
            category: category.into(),
            prompts: results.len(),
            baseline_tok_s: tok_s(|r| &r.baseline),
            speculative_tok_s: tok_s(|r| &r.speculative),
            speedup: Spread::of(&speedups),
            tau: speculative.tau(),
            break_even_tau: baseline
                .plain_step_us()
                .and_then(|plain| speculative.break_even_tau(plain)),
            acceptance_rate: speculative.acceptance_rate(),
            position_acceptance: speculative.position_acceptance(),
            time: [
                share(speculative.draft_us),
                share(speculative.verify_us),
                share(speculative.other_us),
            ],
            rounds: [
                speculative.speculative.0 - speculative.repeats,
                speculative.repeats,
                speculative.plain.0,
            ]
            .map(|rounds| ratio(rounds as f64, speculative.rounds as f64)),
            tokens: speculative.committed,
        }
    }
}

impl Report {
    /// Of all results; `settings` are how tokens were chosen, and the first repeat's seed.
    pub fn new(
        ready: ModelReady,
        results: Vec<PromptResult>,
        repeat: usize,
        settings: (Sampling, u64),
    ) -> Self {
        Report { ready, results, repeat, settings }
    }

    /// Answers that differ without excuse.
    pub fn mismatches(&self) -> usize {
        self.verdicts().filter(|verdict| matches!(verdict, Verdict::Mismatch { .. })).count()
    }

    fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.results.iter().flat_map(|result| &result.verdicts)
    }

    fn summaries(&self) -> Vec<Summary> {
        let mut categories: Vec<&str> = Vec::new();
        for result in &self.results {
            if !categories.contains(&result.category.as_str()) {
                categories.push(&result.category);
            }
        }
        let mut summaries: Vec<Summary> = categories
            .iter()
            .map(|category| {
                let of: Vec<_> = self.results.iter().filter(|r| r.category == *category).collect();
                Summary::of(category, &of)
            })
            .collect();
        if summaries.len() > 1 {
            summaries.push(Summary::of("all", &self.results.iter().collect::<Vec<_>>()));
        }
        summaries
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let prompts: Vec<_> = self
            .results
            .iter()
            .map(|result| {
                let tau = result.speculative.sum().tau();
                serde_json::json!({
                    "category": result.category,
                    "prompt": result.prompt,
                    "speedup": result.speedup(),
                    "tau": tau,
                    "tokens": result.speculative.sum().committed / self.repeat.max(1),
                    "baseline_us_per_token": Spread::of(&result.baseline.us_per_token()),
                    "speculative_us_per_token": Spread::of(&result.speculative.us_per_token()),
                    "verdicts": result.verdicts,
                })
            })
            .collect();
        serde_json::json!({
            "model": self.ready,
            "repeat": self.repeat,
            "sampling": self.settings.0,
            "seed": self.settings.1,
            "categories": self.summaries(),
            "prompts": prompts,
        })
        .serialize(serializer)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ready = &self.ready;
        writeln!(
            f,
            "{} on {} ({}), {} threads; {} runs a prompt and mode, in turn; {}",
            sanitise_line(&ready.pair),
            ready.device,
            ready.device_detail,
            ready.threads,
            self.repeat,
            match &self.settings {
                (sampling, _) if sampling.temperature <= 0.0 => "greedy".to_owned(),
                (sampling, seed) =>
                    format!("temperature {}, seeds from {seed}", sampling.temperature),
            }
        )?;
        if let Some(why) = &ready.draft_missing {
            writeln!(f, "plain decoding in both modes: {}", sanitise_line(why))?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "category  prompts  baseline tok/s     speculative tok/s  speed-up (least–most)      \
             τ  break-even  draft/verify/other"
        )?;
        let summaries = self.summaries();
        for s in &summaries {
            let range = |spread: &Spread| {
                format!("{:.1} ({:.0}–{:.0})", spread.median, spread.min, spread.max)
            };
            writeln!(
                f,
                "{:<9} {:>7}  {:<17}  {:<17}  {:<21}  {:>5.2}  {:>10}  {:>3.0}/{:.0}/{:.0} %",
                s.name(),
                s.prompts,
                range(&s.baseline_tok_s),
                range(&s.speculative_tok_s),
                format!("{:.2}× ({:.2}–{:.2})", s.speedup.median, s.speedup.min, s.speedup.max),
                s.tau,
                s.break_even_tau.map_or("—".into(), |tau| format!("{tau:.2}")),
                100.0 * s.time[0],
                100.0 * s.time[1],
                100.0 * s.time[2],
            )?;
        }
        writeln!(f, "\nacceptance by slot, given that the slots before it were accepted:")?;
        for s in &summaries {
            let slots: Vec<String> =
                s.position_acceptance.iter().map(|p| format!("{:3.0} %", 100.0 * p)).collect();
            writeln!(f, "{:<9} {}", s.name(), slots.join("  "))?;
        }
        writeln!(f, "\nrounds: of the draft, of a repeat of the text, plain (all count in τ):")?;
        for s in &summaries {
            let [draft, repeat, plain] = s.rounds.map(|share| 100.0 * share);
            writeln!(f, "{:<9} {draft:3.0} %  {repeat:3.0} %  {plain:3.0} %", s.name())?;
        }
        let identical = self.verdicts().filter(|v| matches!(v, Verdict::Identical { .. })).count();
        let answers = self.verdicts().count();
        writeln!(f, "\nlossless: {identical} of {answers} answers identical in every run")?;
        for result in &self.results {
            for verdict in &result.verdicts {
                if !matches!(verdict, Verdict::Identical { .. }) {
                    writeln!(f, "  {verdict}: {}", sanitise_line(&result.prompt))?;
                }
            }
        }
        if let Some(all) = summaries.last() {
            let words = if all.speedup.median < 1.0 {
                format!("SLOWER than plain: {:.2}×", all.speedup.median)
            } else {
                format!("{:.2}× plain", all.speedup.median)
            };
            writeln!(f, "speculative decoding is {words} at the median prompt")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::demo::TRACES;

    fn report(verdicts: Vec<Verdict>) -> Report {
        let result = PromptResult {
            category: "odd\x1b[31m".into(),
            prompt: "why\x07".into(),
            baseline: Lane::default(),
            speculative: Lane::default(),
            verdicts,
        };
        let mut ready = TRACES[0].recording().ready.unwrap();
        ready.pair = "a\x1b[2Jb".into();
        ready.draft_missing = Some("no\rdraft".into());
        Report::new(ready, vec![result], 2, (Sampling::default(), 0))
    }

    #[test]
    fn a_repeat_that_differs_is_not_hidden_by_a_later_one() {
        let same = || Verdict::Identical { tokens: 3 };
        let differs = || Verdict::Mismatch { at: 1, baseline: Some(2), other: Some(9) };
        let tie = || Verdict::NearTie { at: 2, margin: 0.01 };
        let mut kept = Vec::new();
        for repeat in [[same(), same()], [differs(), tie()], [tie(), same()], [same(), same()]] {
            keep_worse(&mut kept, repeat.into());
        }
        assert_eq!(kept, [differs(), tie()]);
        let report = report(kept);
        assert_eq!(report.mismatches(), 1);
        assert!(report.to_string().contains("lossless: 0 of 2 answers identical in every run"));
    }

    #[test]
    fn names_and_reasons_cannot_drive_the_terminal() {
        let text =
            report(vec![Verdict::NotComparable { why: "it was stopped".into() }]).to_string();
        assert!(!text.contains(['\x1b', '\x07', '\r']), "{text}");
        for shown in ["a␛[2Jb on ", "modes: no␍draft", "odd␛[31m", "stopped: why␇"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
