//! Engines answer commands with events. There are three: the [`worker`], which computes;
//! [`scripted`], which plays a fixed script (tests); and [`replay`], which plays a recording.
//! A front end sees an [`EngineHandle`] and cannot tell them apart, but for the name in
//! `model_ready`. Several engines can race as [`lanes`].

pub mod lanes;
pub mod learned;
pub mod load;
mod narrate;
pub mod pacer;
pub mod replay;
pub mod scripted;
pub mod worker;

use crate::event::{EngineCommand, EngineEvent, Envelope, Level, Message};
use crate::text::panic_text;
use pacer::Pacer;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc as events;

/// The name of the engine's thread; the panic hook of the screen leaves its panics alone.
pub const ENGINE_THREAD: &str = "engine";

/// Asks the work in progress to end as soon as it can: between rounds, between prefill chunks.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Ask the current work to end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the current work should end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn reset(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Where an engine puts its events: numbers them, times them, sends them. In a race it also
/// makes the engine wait for its turn (see [`pacer`]).
#[derive(Debug)]
pub struct EventSink {
    seq: u64,
    start: Instant,
    sender: events::UnboundedSender<Envelope>,
    pacer: Pacer,
}

impl EventSink {
    /// A sink and the end from which its envelopes are read.
    pub fn channel() -> (EventSink, events::UnboundedReceiver<Envelope>) {
        let (sender, receiver) = events::unbounded_channel();
        let pacer = Pacer::default();
        (EventSink { seq: 0, start: Instant::now(), sender, pacer }, receiver)
    }

    /// Send one event. A front end that has gone is not an error: the engine ends with its
    /// command channel.
    pub fn emit(&mut self, event: EngineEvent) {
        let t_us = self.start.elapsed().as_micros() as u64;
        let turn = pacer::Turn::after(&event);
        // Who hears of the end may start the next race at once: leave this one first.
        if turn == Some(pacer::Turn::Leave) {
            self.pacer.take(pacer::Turn::Leave);
        }
        let _ = self.sender.send(Envelope { seq: self.seq, t_us, event });
        self.seq += 1;
        if let Some(turn @ pacer::Turn::Spend(_)) = turn {
            self.pacer.take(turn);
        }
    }

    /// Send a notice.
    pub fn notice(&mut self, level: Level, message: impl Into<String>, hint: Option<String>) {
        self.emit(EngineEvent::Notice(Message { level, message: message.into(), hint }));
    }

    /// Send an error.
    pub fn error(&mut self, message: impl Into<String>, hint: Option<String>) {
        self.emit(EngineEvent::Error(Message {
            level: Level::Error,
            message: message.into(),
            hint,
        }));
    }
}

/// Something that answers commands with events.
pub trait Engine {
    /// Carry out one command; `Shutdown` never arrives here. A failure is told as an `error`
    /// event and leaves the engine usable.
    fn handle(&mut self, command: EngineCommand, out: &mut EventSink, cancel: &CancelToken);

    /// What there is to do while no command comes. Returns after how long it wants to be asked
    /// again; `None` until the next command.
    fn idle(&mut self, _out: &mut EventSink, _cancel: &CancelToken) -> Option<Duration> {
        None
    }
}

/// A front end's hold on an engine that runs on a thread of its own. Dropping it ends the
/// engine, after the round in progress.
#[derive(Debug)]
pub struct EngineHandle {
    commands: mpsc::Sender<EngineCommand>,
    /// Events, in order; closed when the engine has ended.
    pub events: events::UnboundedReceiver<Envelope>,
    /// Asks the current work to end.
    pub cancel: CancelToken,
    /// Makes the engine a lane of a race.
    pub pacer: Pacer,
    thread: Option<JoinHandle<()>>,
}

impl EngineHandle {
    /// Ask for something; an earlier wish to cancel is forgotten. A command to an engine that
    /// has ended is lost; its `events` are closed then, and no race waits for it.
    pub fn send(&self, command: EngineCommand) {
        self.cancel.reset();
        if self.commands.send(command).is_err() {
            self.pacer.take(pacer::Turn::Leave);
        }
    }

    /// The next event, waiting for it; `None` when the engine has ended.
    pub fn next_blocking(&mut self) -> Option<Envelope> {
        self.events.blocking_recv()
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.pacer.leave();
        let _ = self.commands.send(EngineCommand::Shutdown);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Start an engine on a thread of its own. `load` makes it there (so that the screen stays
/// alive meanwhile) and returns `None` after telling why it could not; the thread then ends.
///
/// A panic in `load` or in a command becomes an `error` event. After a panic the engine is
/// dropped, since its caches may be half-written, and the handle's events close.
pub fn spawn<F>(load: F) -> EngineHandle
where
    F: FnOnce(&mut EventSink, &CancelToken) -> Option<Box<dyn Engine>> + Send + 'static,
{
    let (sink, receiver) = EventSink::channel();
    let (commands, inbox) = mpsc::channel();
    let cancel = CancelToken::default();
    let token = cancel.clone();
    let pacer = sink.pacer.clone();
    let thread = std::thread::Builder::new()
        .name(ENGINE_THREAD.into())
        .spawn(move || run(load, sink, inbox, token))
        .ok();
    EngineHandle { commands, events: receiver, cancel, pacer, thread }
}

fn run<F>(load: F, mut sink: EventSink, inbox: mpsc::Receiver<EngineCommand>, cancel: CancelToken)
where
    F: FnOnce(&mut EventSink, &CancelToken) -> Option<Box<dyn Engine>>,
{
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let Some(mut engine) = load(&mut sink, &cancel) else { return };
        loop {
            let command = match engine.idle(&mut sink, &cancel) {
                None => inbox.recv().ok(),
                Some(wait) => match inbox.recv_timeout(wait) {
                    Err(mpsc::RecvTimeoutError::Timeout) => continue,
                    received => received.ok(),
                },
            };
            match command {
                None | Some(EngineCommand::Shutdown) => return,
                Some(command) => engine.handle(command, &mut sink, &cancel),
            }
        }
    }));
    if let Err(panic) = outcome {
        let what = panic_text(panic.as_ref());
        sink.error(
            format!("the engine stopped: {what}"),
            Some("this is a bug; what was said is kept, and /pair starts the engine again".into()),
        );
    }
    // A command is either refused from here on, or was sent before the race is left: both ways
    // nobody waits for what will never be answered.
    drop(inbox);
    sink.pacer.take(pacer::Turn::Leave);
}
