//! What templates of real models do, in small.

use super::*;
use crate::model::tokenizer::GgufVocabulary;
use std::time::{Duration, UNIX_EPOCH};

fn talk(messages: &[(Role, &str)]) -> Vec<ChatMessage> {
    messages.iter().map(|(role, content)| ChatMessage::new(*role, *content)).collect()
}

fn answered(content: &str, ids: &[u32]) -> ChatMessage {
    ChatMessage { ids: Some(ids.to_vec()), ..ChatMessage::new(Role::Assistant, content) }
}

fn render(source: &str, messages: &[ChatMessage]) -> Result<Rendered> {
    ChatTemplate::new(source, "<s>", "</s>")?.render(messages, &RenderOptions::default())
}

fn text(rendered: &Rendered) -> String {
    let part = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Content(text) => text.clone(),
        Piece::Ids(ids) => format!("{ids:?}"),
    };
    rendered.pieces.iter().map(part).collect()
}

/// A template's text for one message of a user.
fn hello(source: &str) -> String {
    text(&render(source, &talk(&[(Role::User, "Hello")])).unwrap())
}

/// A tokenizer of single letters, with ChatML's tokens.
fn letters(template: Option<&str>, add_bos: bool) -> Tokenizer {
    let mut tokens: Vec<String> = (33..127u8).map(|b| (b as char).to_string()).collect();
    tokens.extend(["Ġ", "Ċ", "<s>", "<|im_start|>", "<|im_end|>"].map(String::from));
    let count = tokens.len();
    let mut token_types = vec![1; count];
    token_types[count - 3..].fill(3);
    Tokenizer::from_gguf(GgufVocabulary {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        tokens,
        token_types,
        bos: Some(count as u32 - 3),
        add_bos: Some(add_bos),
        chat_template: template.map(str::to_owned),
        ..GgufVocabulary::default()
    })
    .unwrap()
}

#[test]
fn python_in_templates() {
    assert_eq!(hello("{{ messages[0].content.upper().strip('O') }}"), "HELL");
    assert_eq!(hello("{{ messages[0]['content'].split('l')[-1] }}"), "o");
    assert_eq!(hello("{% if messages[0].content.startswith('H') %}yes{% endif %}"), "yes");
    assert_eq!(hello("{{ messages[0].get('tool_calls', 'none') }}"), "none");
    assert_eq!(hello("{% for k, v in messages[0].items() %}{{ k }} {% endfor %}"), "role content ");
    assert_eq!(hello("{{ messages[::-1][0].content }}{{ messages[-1].role }}"), "Hellouser");
}

#[test]
fn blocks_namespaces_and_loops() {
    let loops = "{% set ns = namespace(n=0) %}{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}";
    assert_eq!(hello(loops), "8");
    let macros = "{% macro turn(m) -%}[{{ m.role }}|{{ m.content | trim }}]{%- endmacro %}{{ turn(messages[0]) }}";
    assert_eq!(hello(macros), "[user|Hello]");
    assert_eq!(hello("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
    assert_eq!(hello("{%- generation -%} x {% endgeneration %}"), "x ");
    assert_eq!(hello("{{ bos_token }}{{ nothing }}{{ eos_token }}"), "<s></s>");
}

/// bugs.md B21: what SmolLM3's template asks of its engine: the date, marks for training, thinking
/// switched by the instructions, Python's methods on them.
#[test]
fn a_template_in_the_manner_of_smollm3() {
    let source = r#"{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- set mode = "/think" if enable_thinking else "/no_think" -%}
{%- if messages[0].role == "system" -%}
  {%- set instructions = messages[0].content -%}
  {%- if "/no_think" in instructions -%}{%- set mode = "/no_think" -%}{%- endif -%}
  {%- set own = instructions.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "<|im_start|>system\nToday: " ~ strftime_now("%d %B %Y") ~ ", " ~ mode -}}
{%- if own %}{{ "\n" + own }}{% endif -%}{{ "<|im_end|>\n" -}}
{%- for message in messages -%}
  {%- set content = message.content if message.content is string else "" -%}
  {%- if message.role == "assistant" -%}
    {% generation %}{{ "<|im_start|>assistant\n" + content.lstrip("\n") + "<|im_end|>\n" }}{% endgeneration %}
  {%- elif message.role == "user" -%}
    {{ "<|im_start|>" + message.role + "\n" + content + "<|im_end|>\n" }}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<|im_start|>assistant\n" }}{%- endif -%}"#;
    let messages = talk(&[
        (Role::System, "Be brief. /no_think"),
        (Role::User, "Hi"),
        (Role::Assistant, "\nHello"),
        (Role::User, "/think of me"),
    ]);
    let template = ChatTemplate::new(source, "", "").unwrap();
    let now = Some(UNIX_EPOCH + Duration::from_secs(1_721_952_000));
    let options = RenderOptions { now, thinking: true, ..RenderOptions::default() };
    assert_eq!(
        text(&template.render(&messages, &options).unwrap()),
        "<|im_start|>system\nToday: 26 July 2024, /no_think\nBe brief.<|im_end|>\n\
         <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n\
         <|im_start|>user\n/think of me<|im_end|>\n<|im_start|>assistant\n"
    );
}

/// B21: Mistral's and Granite's: lists that are filtered, roles that must alternate, a default
/// for instructions.
#[test]
fn a_template_in_the_manner_of_mistral_and_granite() {
    let source = r#"{%- if messages[0]["role"] == "system" %}
{%- set instructions, rest = messages[0]["content"], messages[1:] %}
{%- else %}{%- set instructions, rest = none, messages %}{%- endif %}
{%- set asked = rest | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in rest %}
  {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
    {{- raise_exception("roles must alternate user/assistant/user/assistant/...") }}
  {%- endif %}{%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
  {%- if message["role"] == "user" %}
    {%- if message == asked[-1] and instructions is not none %}{{- "[INST] " + instructions + "\n\n" + message["content"] + "[/INST]" }}
    {%- else %}{{- "[INST] %s[/INST]" | format(message["content"]) }}{%- endif %}
  {%- else %}{{- " " + (message["content"] | trim) + eos_token }}{%- endif %}
{%- endfor %}"#;
    let two = talk(&[
        (Role::System, "S"),
        (Role::User, "a"),
        (Role::Assistant, " b "),
        (Role::User, "c"),
    ]);
    assert_eq!(
        text(&render(source, &two).unwrap()),
        "<s>[INST] a[/INST] b</s>[INST] S\n\nc[/INST]"
    );
    let twice = talk(&[(Role::User, "a"), (Role::User, "b")]);
    let said = render(source, &twice).unwrap_err().to_string();
    assert!(said.ends_with("roles must alternate user/assistant/user/assistant/..."), "{said}");
}

/// B22: a switch that a person types is a text like any other.
#[test]
fn a_typed_switch_is_text() {
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}|{{ enable_thinking }}";
    assert_eq!(
        text(&render(source, &talk(&[(Role::User, "x /think")])).unwrap()),
        "x /think|False"
    );
    let template = ChatTemplate::new(source, "", "").unwrap();
    let options = RenderOptions { thinking: true, ..RenderOptions::default() };
    let rendered = template.render(&talk(&[(Role::User, "x /no_think")]), &options).unwrap();
    assert!(text(&rendered).starts_with("x /no_think|"));
}

#[test]
fn json_is_spaced_as_in_python() {
    let source = "{% set d = {'a': none, 'b': [1, 'é<']} %}{{ d | tojson }}";
    assert_eq!(hello(source), r#"{"a": null, "b": [1, "é<"]}"#);
    let source = "{{ {'a': [1, {}]} | tojson(indent=2) }}";
    assert_eq!(hello(source), "{\n  \"a\": [\n    1,\n    {}\n  ]\n}");
}

#[test]
fn the_date_is_told() {
    let template = ChatTemplate::new("Today: {{ strftime_now('%d %B %Y') }}", "", "").unwrap();
    let now = Some(UNIX_EPOCH + Duration::from_secs(1_721_952_000));
    let rendered = template.render(&[], &RenderOptions { now, ..Default::default() }).unwrap();
    assert_eq!(text(&rendered), "Today: 26 July 2024");
}

#[test]
fn thinking_is_off_unless_asked_for() {
    let source = "{% if enable_thinking is defined and enable_thinking is false %}off{% endif %}";
    assert_eq!(hello(source), "off");
    let template = ChatTemplate::new(source, "", "").unwrap();
    let options = RenderOptions { thinking: true, ..RenderOptions::default() };
    assert_eq!(text(&template.render(&[], &options).unwrap()), "");
}

const NO_SYSTEM: &str = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}";

#[test]
fn a_refused_system_message_is_folded() {
    let messages = talk(&[(Role::System, "Be kind."), (Role::User, "Hi")]);
    let rendered = render(NO_SYSTEM, &messages).unwrap();
    assert_eq!(text(&rendered), "user:Be kind.\n\nHi;");
    assert!(rendered.warning.unwrap().contains("no system message"));
    let alone = render(NO_SYSTEM, &messages[..1]).unwrap_err().to_string();
    assert!(alone.ends_with("refuses this conversation: System role not supported"), "{alone}");
}

#[test]
fn failures_are_messages() {
    let said = |source| render(source, &talk(&[(Role::User, "x")])).unwrap_err().to_string();
    assert!(said("{% if %}").starts_with("the chat template is not understood"));
    assert!(said("{{ messages[0].a.b }}").starts_with("the model's chat template failed"));
    assert!(said("{{ no_such_function() }}").contains("no_such_function"));
    let endless =
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ '' }}{% endfor %}{% endfor %}";
    assert!(said(endless).starts_with("the model's chat template failed"));
    assert!(!said("{{ raise_exception('two\nlines') }}").contains('\n'));
}

#[test]
fn a_template_that_cannot_be_used_is_replaced() {
    let ask = talk(&[(Role::User, "Hi")]);
    let chosen = |tokenizer: &Tokenizer| {
        let (template, warning) = ChatTemplate::of(tokenizer).unwrap();
        (text(&template.render(&ask, &RenderOptions::default()).unwrap()), warning.unwrap())
    };
    let chatml = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
    let (rendered, warning) = chosen(&letters(Some("{% broken"), false));
    assert_eq!(rendered, chatml);
    assert!(warning.ends_with("ChatML is used instead"), "{warning}");
    let (rendered, warning) = chosen(&letters(None, false));
    assert_eq!(rendered, chatml);
    assert!(warning.contains("no chat template"));
    let plain = Tokenizer::from_gguf(GgufVocabulary {
        model: "gpt2".into(),
        tokens: vec!["a".into()],
        ..GgufVocabulary::default()
    });
    assert_eq!(chosen(&plain.unwrap()).0, "user: Hi\n\nassistant:");
}

/// B24: one, whoever asks for it.
#[test]
fn bos_comes_once() {
    let messages = talk(&[(Role::User, "a")]);
    for (template, add_bos) in [
        ("{{ bos_token }}{{ messages[0].content }}", true),
        ("{{ messages[0].content }}", true),
        ("{{ bos_token }}{{ bos_token }}{{ messages[0].content }}", true),
        ("{{ bos_token }}{{ messages[0].content }}", false),
    ] {
        let tokenizer = letters(Some(template), add_bos);
        let (template, _) = ChatTemplate::of(&tokenizer).unwrap();
        let (ids, _) =
            template.encode_prompt(&tokenizer, &messages, &RenderOptions::default()).unwrap();
        let letter = tokenizer.encode("a", Special::Parse).unwrap()[0];
        assert_eq!(ids, [tokenizer.bos().unwrap(), letter]);
    }
}

#[test]
fn special_tokens_in_messages_stay_text() {
    let tokenizer = letters(Some(CHATML), false);
    let (template, _) = ChatTemplate::of(&tokenizer).unwrap();
    let end = tokenizer.special_id("<|im_end|>").unwrap();
    let count = |content: &str| {
        let messages = talk(&[(Role::User, content)]);
        let options = RenderOptions::default();
        let (ids, _) = template.encode_prompt(&tokenizer, &messages, &options).unwrap();
        ids.iter().filter(|&&id| id == end).count()
    };
    assert_eq!(count("plain"), 1);
    assert_eq!(count("<|im_end|>"), 1);
    // A name that the template completes, and marks that a person typed.
    assert_eq!(count("a<|im_end|"), 1);
    assert_eq!(count("\u{f0000}0\u{f0001}<|im_end|>"), 1);
}

#[test]
fn answers_keep_their_ids() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";
    let messages =
        [talk(&[(Role::User, "Hi")]), vec![answered("Hello. \n", &[7, 8]), answered("", &[])]]
            .concat();
    assert_eq!(
        render(source, &messages).unwrap().pieces,
        [
            Piece::Text("<user>".into()),
            Piece::Content("Hi".into()),
            Piece::Text("<assistant>".into()),
            Piece::Ids(vec![7, 8]),
            Piece::Text("<assistant>".into()),
        ]
    );
}

#[test]
fn an_answer_that_the_template_changes_is_text() {
    let source = "{% for m in messages %}[{{ m.content.split('|')[-1] }}]{% endfor %}";
    let messages = [answered("thought|said", &[1]), answered("whole", &[2])];
    assert_eq!(
        render(source, &messages).unwrap().pieces,
        [Piece::Text("[said][".into()), Piece::Ids(vec![2]), Piece::Text("]".into())]
    );
    let twice = "{{ messages[0].content }}{{ messages[0].content }}";
    assert_eq!(
        render(twice, &messages).unwrap().pieces,
        [Piece::Text("thought|saidthought|said".into())]
    );
}
