//! A conversation as a document, with the settings and figures of every answer.

use super::conversation::{Answer, Conversation};
use super::template::environment::strftime;
use serde_json::{Value, json};
use std::fmt::Write;

/// As Markdown. What was said stands as it is.
pub fn markdown(conversation: &Conversation) -> String {
    let mut out = format!("# {}\n\n", conversation.title());
    let began = strftime("%Y-%m-%d %H:%M UTC", conversation.created);
    let _ = writeln!(out, "Conversation `{}`, begun {began}.", conversation.id);
    if let Some(origin) = &conversation.origin {
        let _ = writeln!(out, "A fork of `{}` after turn {}.", origin.id, origin.turns);
    }
    if let Some(system) = &conversation.system {
        let _ = write!(out, "\n## Instructions\n\n{system}\n");
    }
    for turn in &conversation.turns {
        let _ = write!(out, "\n## You\n\n{}\n", turn.user);
        if let Some(answer) = &turn.answer {
            let model = Some(answer.models.pair.as_str()).filter(|name| !name.is_empty());
            let _ = write!(out, "\n## {}\n\n{}\n", model.unwrap_or("Model"), answer.text);
            let _ = write!(out, "\n<sub>{}</sub>\n", figures(answer));
        }
    }
    out
}

/// The line under an answer.
fn figures(answer: &Answer) -> String {
    let run = &answer.run;
    let mut parts = vec![match run.sampling.temperature {
        t if t > 0.0 => format!("{}, temperature {t}, seed {}", run.mode.name(), run.seed),
        _ => format!("{}, greedy", run.mode.name()),
    }];
    parts.push(format!("prompt {} tokens, {} reused", run.prompt_tokens, run.reused_tokens));
    let Some((reason, totals)) = &answer.finished else {
        parts.push(format!("{} tokens, not finished", answer.ids.len()));
        return parts.join(" · ");
    };
    parts.push(format!("{} tokens, {:.1} tok/s", totals.tokens, totals.decode_tok_s));
    if totals.drafted > 0 {
        let accepted = 100.0 * totals.acceptance_rate;
        parts.push(format!(
            "blocks {}, τ {:.2}, {accepted:.0} % of drafts accepted",
            run.block_size, totals.tau
        ));
    }
    parts.push(format!("first token after {:.0} ms", totals.ttft_us as f64 / 1e3));
    parts.push(reason.name().into());
    parts.join(" · ")
}

/// As JSON, everything in it.
pub fn json(conversation: &Conversation) -> Value {
    let answer = |answer: &Answer| {
        json!({
            "text": answer.text,
            "ids": answer.ids,
            "models": answer.models,
            "run": answer.run,
            "reason": answer.finished.as_ref().map(|(reason, _)| reason),
            "totals": answer.finished.as_ref().map(|(_, totals)| totals),
        })
    };
    let turns: Vec<Value> = conversation
        .turns
        .iter()
        .map(|turn| json!({ "user": turn.user, "answer": turn.answer.as_ref().map(answer) }))
        .collect();
    json!({
        "id": conversation.id,
        "title": conversation.title(),
        "created": conversation.created,
        "origin": conversation.origin,
        "system": conversation.system,
        "models": conversation.models,
        "turns": turns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::conversation::{Change, Models, Run};
    use crate::event::{FinishReason, Totals};

    fn conversation() -> Conversation {
        let mut conversation = Conversation::new("c", 1_700_000_000);
        let run = Run { prompt_tokens: 30, reused_tokens: 12, ..Run::default() };
        let totals = Totals { tokens: 9, drafted: 10, tau: 2.5, ..Totals::default() };
        for change in [
            Change::System { text: Some("be brief".into()) },
            Change::Models(Models { pair: "demo".into(), ..Models::default() }),
            Change::User { text: "why?".into() },
            Change::Answer(Box::new(run)),
            Change::Text { ids: vec![4, 5], text: "**because**".into() },
            Change::Finished { reason: FinishReason::Eos, totals: Box::new(totals) },
            Change::User { text: "and?".into() },
            Change::Answer(Box::default()),
        ] {
            conversation.apply(&change);
        }
        conversation
    }

    #[test]
    fn markdown_has_texts_settings_and_figures() {
        insta::assert_snapshot!(markdown(&conversation()), @r"
    # why?

    Conversation `c`, begun 2023-11-14 22:13 UTC.

    ## Instructions

    be brief

    ## You

    why?

    ## demo

    **because**

    <sub>speculative, greedy · prompt 30 tokens, 12 reused · 9 tokens, 0.0 tok/s · blocks auto, τ 2.50, 0 % of drafts accepted · first token after 0 ms · end of turn</sub>

    ## You

    and?

    ## demo



    <sub>speculative, greedy · prompt 0 tokens, 0 reused · 0 tokens, not finished</sub>
    ");
    }

    #[test]
    fn json_has_everything() {
        let json = json(&conversation());
        assert_eq!(json["turns"][0]["answer"]["ids"], json!([4, 5]));
        assert_eq!(json["turns"][0]["answer"]["totals"]["tau"], 2.5);
        assert_eq!(json["turns"][0]["answer"]["run"]["reused_tokens"], 12);
        assert_eq!(json["turns"][1]["answer"]["reason"], Value::Null);
        assert_eq!(json["title"], "why?");
    }
}
