use super::*;
use crate::tui::action::Action;
use crate::tui::app::{Colouring, EngineState, Event};
use crate::tui::events::Input;
use crate::tui::glyphs::ASCII;
use crate::tui::testing::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Style};
use std::fmt::Write as _;

const SIZES: [(u16, u16); 4] = [(60, 16), (80, 24), (120, 40), (200, 50)];

fn drawn(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal.backend().buffer().clone()
}

/// The text of a screen, a row a line.
fn grid(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut skip = 0;
        let mut line = String::new();
        for x in buffer.area.left()..buffer.area.right() {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            skip = crate::tui::wrap::width(symbol).saturating_sub(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The styles of a screen, runs of cells that look the same: `row: from-to style`.
fn styles(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut runs: Vec<(u16, u16, Style)> = Vec::new();
        for x in buffer.area.left()..buffer.area.right() {
            let style = buffer[(x, y)].style();
            match runs.last_mut() {
                Some((_, end, last)) if *last == style => *end = x,
                _ => runs.push((x, x, style)),
            }
        }
        let plain = |style: &Style| {
            let colour = |colour: Option<Color>| matches!(colour, None | Some(Color::Reset));
            colour(style.fg) && colour(style.bg) && style.add_modifier.is_empty()
        };
        let shown = runs.iter().filter(|(_, _, style)| !plain(style)).map(|(from, to, style)| {
            let colour = style.fg.filter(|fg| *fg != Color::Reset);
            let colour = colour.map_or(String::new(), |fg| fg.to_string());
            let bits = style.add_modifier;
            let bits = if bits.is_empty() { String::new() } else { format!("+{bits:?}") };
            format!("{from}-{to} {colour}{bits}")
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        if !shown.is_empty() {
            let _ = writeln!(out, "{y}: {shown}");
        }
    }
    out
}

fn snapshot(name: &str, app: &mut App) {
    for (width, height) in SIZES {
        let screen = grid(&drawn(app, width, height));
        insta::assert_snapshot!(format!("{name}_{width}x{height}"), screen);
    }
}

#[test]
fn the_first_screen() {
    let mut loading = new_app();
    let event = play(None).remove(2);
    happen(&mut loading, Event::Engine(event));
    insta::assert_snapshot!("loading_80x24", grid(&drawn(&mut loading, 80, 24)));
    snapshot("welcome", &mut ready_app());
}

#[test]
fn an_answer_in_progress() {
    let mut app = ready_app();
    ask_partly(&mut app, "show me some code", 30);
    snapshot("answering", &mut app);
    insta::assert_snapshot!("answering_styles_120x40", styles(&drawn(&mut app, 120, 40)));
}

/// In slow motion a round fills up: blanks, what the draft guessed, what became of it.
#[test]
fn a_round_under_way_fills_up() {
    let mut app = ready_app();
    ask_partly(&mut app, "show me some code", 30);
    let (answer, ..) = app.shown_round().unwrap();
    let round = answer.rounds.iter().find(|round| round.rejected()).unwrap().clone();
    for phase in [crate::event::RoundPhase::Draft, crate::event::RoundPhase::Verify] {
        let event = crate::event::EngineEvent::Phase { phase, round: Box::new(round.clone()) };
        happen(&mut app, Event::Engine(event));
        for (width, height) in [(80, 24), (120, 40)] {
            let name = format!("under_way_{phase:?}_{width}x{height}").to_lowercase();
            insta::assert_snapshot!(name, grid(&drawn(&mut app, width, height)));
        }
    }
    let before = app.shown_round().unwrap().0.rounds.len();
    happen(&mut app, Event::Engine(crate::event::EngineEvent::Round(Box::new(round))));
    assert!(app.phase().is_none());
    assert_eq!(app.shown_round().unwrap().0.rounds.len(), before + 1);
}

#[test]
fn the_other_panels() {
    let mut app = ready_app();
    ask(&mut app, "a long answer");
    app.panel = Panel::Timeline;
    snapshot("timeline", &mut app);
    let command = sent(&submit(&mut app, "/cost")).unwrap();
    for event in play(Some(command)) {
        happen(&mut app, Event::Engine(event));
    }
    snapshot("cost", &mut app);
    app.panel = Panel::Hidden;
    insta::assert_snapshot!("no_panel_120x40", grid(&drawn(&mut app, 120, 40)));
}

#[test]
fn markdown_answered() {
    let mut app = ready_app();
    ask(&mut app, "show me some markdown");
    snapshot("markdown", &mut app);
}

/// The requests of a race, begun with `/race`.
fn race(app: &mut App, command: &str) -> Vec<crate::event::Generate> {
    let requests = submit(app, command).into_iter().find_map(|effect| match effect {
        crate::tui::effect::Effect::Race { requests, .. } => Some(requests),
        _ => None,
    });
    requests.expect("a race begins")
}

#[test]
fn a_race_at_every_size() {
    let mut app = ready_app();
    let requests = race(&mut app, "/race show me some code");
    for (width, height) in [(60, 20), (120, 40)] {
        let screen = grid(&drawn(&mut app, width, height));
        insta::assert_snapshot!(format!("race_begins_{width}x{height}"), screen);
    }
    run_lanes(&mut app, &requests, 20);
    for (width, height) in [(60, 16), (60, 20), (80, 24), (120, 40), (200, 50)] {
        let screen = grid(&drawn(&mut app, width, height));
        insta::assert_snapshot!(format!("race_{width}x{height}"), screen);
    }
    insta::assert_snapshot!("race_styles_120x40", styles(&drawn(&mut app, 120, 40)));
    let mut app = ready_app();
    let requests = race(&mut app, "/race cjk 日本語 --repeat 2");
    run_lanes(&mut app, &requests, usize::MAX);
    run_lanes(&mut app, &requests, usize::MAX);
    app.explain = true;
    for (width, height) in [(60, 20), (80, 24), (120, 40)] {
        let screen = grid(&drawn(&mut app, width, height));
        insta::assert_snapshot!(format!("race_over_{width}x{height}"), screen);
    }
    act(&mut app, Action::Back);
    insta::assert_snapshot!("race_left_80x24", grid(&drawn(&mut app, 80, 24)));
}

#[test]
fn a_demo_has_its_caption_below() {
    let mut app = new_app();
    let playlist = crate::record::demo::Playlist::open("tour").unwrap();
    app.demo = Some(crate::tui::app::Demo::new(playlist));
    app.begin();
    let recording = crate::record::demo::trace("math").unwrap().recording();
    let mut ready = recording.ready.unwrap();
    ready.engine = "replay".into();
    let ready = crate::event::EngineEvent::ModelReady(Box::new(ready));
    for event in std::iter::once(ready).chain(recording.runs[0].events.clone()).take(20) {
        happen(&mut app, Event::Engine(event));
    }
    for (width, height) in [(60, 20), (80, 24), (120, 40)] {
        let screen = grid(&drawn(&mut app, width, height));
        insta::assert_snapshot!(format!("demo_{width}x{height}"), screen);
    }
}

/// What a race says when it is lost, stopped or failed.
#[test]
fn a_race_that_goes_wrong_says_so() {
    use crate::race::Verdict;
    let mut app = ready_app();
    let requests = race(&mut app, "/race a long answer");
    run_lanes(&mut app, &requests, usize::MAX);
    let verdicts = [
        (Verdict::Mismatch { at: 3, baseline: Some(1), other: None }, "MISMATCH at token 3"),
        (Verdict::NearTie { at: 9, margin: 0.01 }, "near tie at token 9 (margin 0.0100)"),
        (Verdict::NotComparable { why: "so".into() }, "not comparable: so"),
    ];
    for (verdict, says) in verdicts {
        let report = app.race.as_mut().unwrap().report.as_mut().unwrap();
        report.lanes[1].verdict = verdict;
        report.lanes[1].speedup.median = 0.76;
        let screen = grid(&drawn(&mut app, 60, 20));
        assert!(screen.contains(says), "{screen}");
        assert!(screen.contains("0.76×: slower than baseline"), "{screen}");
    }
    app.race.as_mut().unwrap().stage = crate::tui::app::RaceStage::Failed("no memory".into());
    assert!(grid(&drawn(&mut app, 60, 20)).contains("no memory"));
}

/// B44: wide, joined and combining characters keep every border straight.
#[test]
fn wide_text_keeps_its_columns() {
    let mut app = ready_app();
    ask(&mut app, "cjk 日本語の質問です。 👩‍👩‍👧‍👦");
    app.composer.set("書いている👍🏽");
    snapshot("cjk", &mut app);
    for (width, height) in SIZES {
        let screen = drawn(&mut app, width, height);
        let side = (width >= 110).then(|| width - (width * 2 / 5).clamp(48, 76) - 1);
        for y in 2..height - 4 {
            if let Some(x) = side {
                assert_eq!(screen[(x, y)].symbol(), "│", "{width}x{height}, row {y}");
            }
        }
    }
}

#[test]
fn everything_open_and_too_much_of_it() {
    let mut app = ready_app();
    for _ in 0..3 {
        ask(&mut app, "a long answer please");
    }
    for i in 0..50 {
        happen(&mut app, Event::Input(Input::Paste(format!("line {i}\n"))));
    }
    app.explain = true;
    act(&mut app, Action::PageUp);
    snapshot("overfull", &mut app);
}

#[test]
fn windows_over_the_screen() {
    let mut app = ready_app();
    ask(&mut app, "hello");
    app.composer.set("/t");
    insta::assert_snapshot!("popup_80x24", grid(&drawn(&mut app, 80, 24)));
    app.composer.set("");
    submit(&mut app, "/theme");
    insta::assert_snapshot!("themes_80x24", grid(&drawn(&mut app, 80, 24)));
    act(&mut app, Action::Back);
    act(&mut app, Action::Stats);
    insta::assert_snapshot!("stats_80x24", grid(&drawn(&mut app, 80, 24)));
    act(&mut app, Action::Help);
    insta::assert_snapshot!("help_80x24", grid(&drawn(&mut app, 80, 24)));
    insta::assert_snapshot!("help_120x40", grid(&drawn(&mut app, 120, 40)));
}

#[test]
fn a_walked_token_is_marked_and_its_round_shown() {
    let mut app = ready_app();
    ask(&mut app, "show me some code");
    act(&mut app, Action::Walk);
    act(&mut app, Action::LineStart);
    (0..3).for_each(|_| drop(act(&mut app, Action::WordRight)));
    app.ghosts = true;
    app.colouring = Colouring::Rounds;
    let screen = drawn(&mut app, 120, 40);
    insta::assert_snapshot!("walk_120x40", grid(&screen));
    insta::assert_snapshot!("walk_styles_120x40", styles(&screen));
}

/// Where a plain step is known and speculation does not pay, the screen says so in words.
#[test]
fn a_loss_is_said() {
    let mut app = ready_app();
    (0..64).for_each(|_| app.plain.add(3_000));
    ask(&mut app, "hello");
    let screen = grid(&drawn(&mut app, 120, 40));
    assert!(screen.contains("slower than plain"), "{screen}");
}

/// The list of conversations, one of them being renamed; and a crowded context.
#[test]
fn conversations_to_choose_from() {
    use crate::chat::conversation::Change;
    use crate::chat::store::Store;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    for text in ["why is the sky blue?", "a question that is much too long for its column, really"]
    {
        let mut saved = store.open_or_begin(&text[..1]).unwrap().saved;
        saved.record(&Change::User { text: text.into() }).unwrap();
    }
    let mut listing = store.list();
    listing.sessions.sort_by(|a, b| b.id.cmp(&a.id));
    for (day, session) in listing.sessions.iter_mut().enumerate() {
        session.changed = 1_700_000_000 + 90_000 * day as u64;
    }
    let mut app = ready_app();
    ask(&mut app, "hello");
    let EngineState::Ready(model) = &mut app.engine else { panic!("not ready") };
    model.ctx_limit = app.context_used * 100 / 85;
    happen(&mut app, Event::Listed(listing));
    insta::assert_snapshot!("conversations_80x24", grid(&drawn(&mut app, 80, 24)));
    insta::assert_snapshot!("conversations_60x16", grid(&drawn(&mut app, 60, 16)));
    act(&mut app, Action::Rename);
    insta::assert_snapshot!("renaming_60x16", grid(&drawn(&mut app, 60, 16)));
}

#[test]
fn what_may_follow_a_command() {
    let mut app = ready_app();
    ask(&mut app, "code please");
    happen(&mut app, Event::Input(Input::Paste("/copy ".into())));
    insta::assert_snapshot!("copy_80x24", grid(&drawn(&mut app, 80, 24)));
}

/// B45: nothing that the model says reaches the terminal as a control.
#[test]
fn hostile_text_is_shown_and_does_nothing() {
    let mut app = ready_app();
    ask(&mut app, "hostile\x1b[2J");
    for (width, height) in SIZES {
        let screen = grid(&drawn(&mut app, width, height));
        assert!(screen.contains("␛[2J"), "{screen}");
        assert!(!screen.chars().any(|c| c.is_control() && c != '\n'), "{screen:?}");
        assert!(!screen.contains('\u{202e}'));
    }
}

/// B42: every size, small and large, in every state: no panic.
#[test]
fn every_size_is_drawn() {
    let mut states = vec![new_app(), ready_app()];
    let mut app = ready_app();
    ask_partly(&mut app, "show me some markdown", 40);
    states.push(app.clone());
    app.explain = true;
    act(&mut app, Action::Walk);
    states.push(app.clone());
    for panel in [Panel::Timeline, Panel::Cost, Panel::Hidden] {
        app.panel = panel;
        app.panel_extra = -60;
        states.push(app.clone());
    }
    let mut racing = ready_app();
    let requests = race(&mut racing, "/race show me some markdown");
    states.push(racing.clone());
    run_lanes(&mut racing, &requests, 60);
    racing.explain = true;
    states.push(racing);
    act(&mut app, Action::Help);
    states.push(app.clone());
    app.overlay = Some(Overlay::Stats);
    app.dress.glyphs = &ASCII;
    app.composer.set("/");
    states.push(app);
    for mut app in states {
        let mut sizes: Vec<(u16, u16)> = (1..20).flat_map(|w| [(w, 1), (w, w), (2, w)]).collect();
        sizes.extend((55..130).step_by(5).flat_map(|w| [(w, 15), (w, 16), (w, 23), (w, 41)]));
        sizes.extend([(10, 3), (500, 200), (60, 200), (500, 16)]);
        for (width, height) in sizes {
            drawn(&mut app, width, height);
        }
    }
}

/// As long as a message is written in the place of another, the screen says so.
#[test]
fn an_edit_is_seen() {
    let mut app = ready_app();
    ask(&mut app, "one");
    ask(&mut app, "two");
    submit(&mut app, "/edit 1");
    app.notice = None;
    for (width, height) in SIZES {
        let screen = grid(&drawn(&mut app, width, height));
        assert!(screen.contains("─ editing message 1 ─"), "{screen}");
    }
    act(&mut app, Action::DeleteToStart);
    assert!(!grid(&drawn(&mut app, 80, 24)).contains("editing message"));
}

/// The first row says how answers are made, not what was asked for.
#[test]
fn the_title_tells_the_mode_in_use() {
    let title =
        |app: &mut App| grid(&drawn(app, 120, 40)).lines().next().unwrap_or_default().to_string();
    let mut app = ready_app();
    let mut ready = app.model().unwrap().clone();
    ready.draft = None;
    ready.draft_missing = Some("it was not asked for".into());
    let event = crate::event::EngineEvent::ModelReady(Box::new(ready.clone()));
    happen(&mut app, Event::Engine(event));
    assert!(title(&mut app).contains("baseline, no draft"), "{}", title(&mut app));

    // Of a recording the mode is what was recorded, and what it does not tell is not shown.
    let mut app = new_app();
    app.generate.sampling.temperature = 0.7;
    let prompt = String::new();
    app.replay = Some(crate::tui::app::Replay { prompt, rounds: 0, speed: 1.0, paused: false });
    ready.engine = "replay".into();
    ready.draft_missing = None;
    ready.ctx_limit = 0;
    happen(&mut app, Event::Engine(crate::event::EngineEvent::ModelReady(Box::new(ready))));
    let first = title(&mut app);
    assert!(!first.contains("speculative") && !first.contains("context"), "{first}");
    let generate = crate::event::Generate {
        block_size: crate::event::BlockSize::Fixed(4),
        ..Default::default()
    };
    let command = crate::event::EngineCommand::Generate(Box::new(generate));
    for event in play(Some(command)).into_iter().take(20) {
        happen(&mut app, Event::Engine(event));
    }
    let first = title(&mut app);
    assert!(first.contains("speculative, block 4") && !first.contains("0.7"), "{first}");
}

#[test]
fn too_small_a_screen_says_so() {
    insta::assert_snapshot!(grid(&drawn(&mut ready_app(), 40, 4)));
}

/// The ASCII marks are complete: the program's own part of the screen needs nothing else.
#[test]
fn ascii_screens_are_ascii() {
    let mut app = ready_app();
    app.dress.glyphs = &ASCII;
    app.explain = true;
    ask(&mut app, "show me some code");
    for (width, height) in SIZES {
        for window in [None, Some(Overlay::Help(0)), Some(Overlay::Stats)] {
            app.overlay = window;
            let screen = grid(&drawn(&mut app, width, height));
            let odd: String = screen.chars().filter(|c| !c.is_ascii()).collect();
            assert_eq!(odd, "", "{width}x{height}\n{screen}");
        }
    }
    app.overlay = None;
    let requests = race(&mut app, "/race show me some code");
    for events in [5, usize::MAX] {
        run_lanes(&mut app, &requests, events);
        let screen = grid(&drawn(&mut app, 120, 40));
        assert!(screen.is_ascii(), "{screen}");
    }
}

/// B49: the place is held while text streams, and the rest is counted.
#[test]
fn scrolled_text_stays_while_more_arrives() {
    let mut app = ready_app();
    ask_partly(&mut app, "a long answer", 120);
    drawn(&mut app, 80, 24);
    act(&mut app, Action::PageUp);
    let before = grid(&drawn(&mut app, 80, 24));
    let command = crate::event::EngineCommand::Generate(Box::new(crate::event::Generate {
        prompt: crate::event::Prompt::Text("a long answer".into()),
        ..Default::default()
    }));
    for event in play(Some(command)).into_iter().skip(120).take(60) {
        happen(&mut app, Event::Engine(event));
    }
    let after = grid(&drawn(&mut app, 80, 24));
    let top = |screen: &str| screen.lines().skip(1).take(8).map(str::to_string).collect::<Vec<_>>();
    assert_eq!(top(&before), top(&after));
    assert!(after.contains("more ↓"), "{after}");
    act(&mut app, Action::Follow);
    assert!(!grid(&drawn(&mut app, 80, 24)).contains("more ↓"));
}

/// The same state gives the same cells, and a cached row is the row rendered anew.
#[test]
fn caches_change_nothing() {
    let mut app = ready_app();
    ask_partly(&mut app, "show me some markdown", 60);
    drawn(&mut app, 200, 50);
    let cached = drawn(&mut app, 80, 24);
    app.dress.epoch += 1;
    assert_eq!(cached, drawn(&mut app, 80, 24));
}

/// The median and the least time of drawing, in microseconds.
fn draw_us(app: &mut App, width: u16, height: u16) -> (u128, u128) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let mut times: Vec<u128> = (0..51)
        .map(|_| {
            let start = std::time::Instant::now();
            terminal.draw(|frame| draw(frame, app)).unwrap();
            start.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    (times[times.len() / 2], times[0])
}

/// What the screen may cost: the medians are printed, and the fastest draws are bounded, for other
/// work on the machine only adds to them.
#[test]
fn drawing_is_cheap() {
    let mut app = ready_app();
    app.explain = true;
    app.ghosts = true;
    ask(&mut app, "show me some code");
    let (open, open_least) = draw_us(&mut app, 120, 40);
    let mut one = ready_app();
    ask(&mut one, "a long answer");
    let tokens = one.transcript.last_answer().unwrap().tokens.len();
    for _ in 0..100_000 / tokens {
        app.transcript.items.extend(one.transcript.items.iter().cloned());
    }
    let (long, long_least) = draw_us(&mut app, 200, 60);
    submit(&mut app, "a long answer");
    let events = play(Some(sent(&submit(&mut ready_app(), "a long answer")).unwrap()));
    let count = events.len() as u128;
    let start = std::time::Instant::now();
    for event in events {
        happen(&mut app, Event::Engine(event));
    }
    let update = start.elapsed().as_micros() / count;
    println!("draw 120x40 {open} us, 200x60 after 100,000 tokens {long} us; update {update} us");
    assert!(open_least < 2_000, "{open_least} us");
    assert!(long_least < 4_000, "{long_least} us");
    assert!(update < 200, "{update} us");
}
