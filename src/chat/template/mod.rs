//! A conversation as the text that a model was trained on: its chat template.
//!
//! Answers are spliced in as the ids that the model produced, so that history is never tokenised
//! again, and what people wrote is kept apart from what the template wrote, so that a special
//! token typed by a person stays text. Both are done with *marks*: the template is rendered a
//! second time with a mark in the place of each content. A mark counts only if putting the
//! content back gives the first rendering exactly; a template that rewrites a content (one that
//! drops old thinking, say) has its way with it.

pub(crate) mod environment;
mod marks;

use crate::event::{ChatMessage, Role};
use crate::model::tokenizer::{Special, Tokenizer};
use anyhow::{Result, anyhow, bail};
use marks::Marks;
use minijinja::{Environment, context};
use std::time::SystemTime;

/// The name under which a template is kept in its environment.
const NAME: &str = "chat";

/// The form used by many models, for those whose own template cannot be had.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// A form without special tokens.
const PLAIN: &str = "{{ bos_token }}{% for message in messages %}{{ message.role + ': ' + message.content + '\\n\\n' }}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

/// A piece of a rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Written by the template; names of special tokens in it are special tokens.
    Text(String),
    /// Written by a person; names of special tokens in it are letters.
    Content(String),
    /// An answer's own ids.
    Ids(Vec<u32>),
}

/// How to render.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderOptions {
    /// End with the opening of an answer.
    pub add_generation_prompt: bool,
    /// Whether the model may think first (`enable_thinking`).
    pub thinking: bool,
    /// The time that `strftime_now` tells; the clock's if absent.
    pub now: Option<SystemTime>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        RenderOptions { add_generation_prompt: true, thinking: false, now: None }
    }
}

/// A rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// In order; put together they are the template's text.
    pub pieces: Vec<Piece>,
    /// What was done that the person may not expect.
    pub warning: Option<String>,
}

/// A chat template, parsed.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Parse a template. `bos` and `eos` are the names of those tokens, empty where there are
    /// none.
    ///
    /// # Errors
    /// What in the template is not understood.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<ChatTemplate> {
        let mut environment = environment::environment();
        environment.add_template_owned(NAME, environment::adapted(source)).map_err(|e| {
            anyhow!("the chat template is not understood: {}", one_line(&e.to_string()))
        })?;
        Ok(ChatTemplate { environment, bos: bos.into(), eos: eos.into() })
    }

    /// The template of the model's files; where there is none or it cannot be used, ChatML if
    /// the vocabulary has its tokens, else a plain form. What was chosen instead, and why, is
    /// the second value.
    pub fn of(tokenizer: &Tokenizer) -> Result<(ChatTemplate, Option<String>)> {
        let bos = tokenizer.special_name(tokenizer.bos());
        let eos = tokenizer.special_name(tokenizer.eos());
        let reason = match tokenizer.chat_template() {
            Some(source) => match ChatTemplate::new(source, &bos, &eos) {
                Ok(template) => return Ok((template, None)),
                Err(error) => error.to_string(),
            },
            None => "the model's files have no chat template".into(),
        };
        let (name, source) = match tokenizer.special_id("<|im_start|>") {
            Some(_) => ("ChatML", CHATML),
            None => ("a plain form", PLAIN),
        };
        let template = ChatTemplate::new(source, &bos, &eos)?;
        Ok((template, Some(format!("{reason}; {name} is used instead"))))
    }

    /// Render a conversation. Where the template refuses a system message, its text goes in
    /// front of the first user message, with a warning.
    ///
    /// # Errors
    /// What the template says against the conversation.
    pub fn render(&self, messages: &[ChatMessage], options: &RenderOptions) -> Result<Rendered> {
        let refusal = match self.pieces(messages, options) {
            Ok(pieces) => return Ok(Rendered { pieces, warning: None }),
            Err(refusal) => refusal,
        };
        let Some(folded) = fold_system(messages) else { return Err(refusal) };
        let Ok(pieces) = self.pieces(&folded, options) else { return Err(refusal) };
        let warning = "this model's template takes no system message; its text was put in front of the first message";
        Ok(Rendered { pieces, warning: Some(warning.into()) })
    }

    /// The ids of a conversation, BOS exactly once where the vocabulary wants it, and a warning
    /// for the person if there is one.
    pub fn encode_prompt(
        &self,
        tokenizer: &Tokenizer,
        messages: &[ChatMessage],
        options: &RenderOptions,
    ) -> Result<(Vec<u32>, Option<String>)> {
        let rendered = self.render(messages, options)?;
        let mut ids = Vec::new();
        let mut run: Vec<(&str, Special)> = Vec::new();
        for piece in &rendered.pieces {
            match piece {
                Piece::Text(text) => run.push((text, Special::Parse)),
                Piece::Content(text) => run.push((text, Special::AsText)),
                Piece::Ids(known) => {
                    ids.extend(tokenizer.encode_parts(&std::mem::take(&mut run))?);
                    ids.extend(known);
                }
            }
        }
        ids.extend(tokenizer.encode_parts(&run)?);
        Ok((tokenizer.with_bos(ids), rendered.warning))
    }

    fn pieces(&self, messages: &[ChatMessage], options: &RenderOptions) -> Result<Vec<Piece>> {
        let contents: Vec<&str> = messages.iter().map(|m| m.content.as_str()).collect();
        let text = self.text(messages, &contents, options)?;
        let marks = Marks::new(messages);
        let try_marking = |chosen: &[usize]| {
            let marked: Vec<String> = marks.contents(messages, chosen);
            let marked: Vec<&str> = marked.iter().map(String::as_str).collect();
            marks.split(&self.text(messages, &marked, options).ok()?, &text, messages)
        };
        let worth: Vec<usize> = marks.worth_marking(messages);
        if let Some(pieces) = try_marking(&worth) {
            return Ok(pieces);
        }
        let untouched: Vec<usize> =
            worth.into_iter().filter(|&m| try_marking(&[m]).is_some()).collect();
        Ok(try_marking(&untouched).unwrap_or_else(|| vec![Piece::Text(text)]))
    }

    fn text(
        &self,
        messages: &[ChatMessage],
        contents: &[&str],
        options: &RenderOptions,
    ) -> Result<String> {
        let list: Vec<_> = messages
            .iter()
            .zip(contents)
            .map(|(m, content)| context! { role => m.role.name(), content => content })
            .collect();
        let now = options.now.unwrap_or_else(SystemTime::now);
        let rendered = self.environment.get_template(NAME).and_then(|t| {
            t.render(context! {
                messages => list,
                bos_token => self.bos,
                eos_token => self.eos,
                add_generation_prompt => options.add_generation_prompt,
                enable_thinking => options.thinking,
                strftime_now => environment::strftime_at(now),
            })
        });
        match rendered {
            Ok(text) => Ok(text),
            Err(error) => match environment::raised(&error) {
                Some(said) => {
                    bail!("the model's chat template refuses this conversation: {}", one_line(said))
                }
                None => bail!("the model's chat template failed: {}", one_line(&error.to_string())),
            },
        }
    }
}

/// The conversation with the system message's text in front of the first user message; `None`
/// where there is nothing to fold.
fn fold_system(messages: &[ChatMessage]) -> Option<Vec<ChatMessage>> {
    let (system, rest) = messages.split_first().filter(|(m, _)| m.role == Role::System)?;
    let mut folded = rest.to_vec();
    let user = folded.first_mut().filter(|m| m.role == Role::User)?;
    user.content = format!("{}\n\n{}", system.content, user.content);
    Some(folded)
}

fn one_line(message: &str) -> String {
    message.replace('\n', " ")
}

#[cfg(test)]
mod tests;
