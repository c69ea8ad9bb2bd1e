//! Threads that share out the parts of one piece of work after another.
//!
//! Inside a forward pass a piece of work takes microseconds, so idle workers watch for the next
//! one: they spin, then give way to other programs, and sleep when nothing has come for a while.
//! Nobody waits for a worker that has not joined in: a worker that the system has taken off
//! its core costs nothing, unless it holds one unfinished part.

use super::shared::Shared;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most threads that a pool has.
pub const MAX_THREADS: usize = 256;

/// Rounds of spinning before a waiting thread gives way: some ten microseconds.
const SPINS: u32 = 500;
/// A worker without work sleeps after this time.
const AWAKE: Duration = Duration::from_millis(2);

/// The parts that one participant begins with; others take from it when theirs are done.
#[repr(align(128))]
struct Share {
    next: AtomicUsize,
    end: AtomicUsize,
}

/// The work at hand, borrowed from the caller of [`Pool::run`] for as long as it waits.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn(usize) + Sync));

struct Board {
    /// `epoch · 2^32 + OPEN + participants`. Workers join while it is open.
    state: AtomicU64,
    work: UnsafeCell<Option<Work>>,
    shares: Vec<Share>,
    panicked: AtomicBool,
    stop: AtomicBool,
    /// Workers that sleep or are about to.
    sleepers: AtomicUsize,
    bed: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `work` is written by the thread that holds the pool's lock while `state` is closed and
// without participants, and read by workers that joined through `state` after it was opened.
unsafe impl Sync for Board {}
// SAFETY: the pointer in `work` leads to a `Sync` closure.
unsafe impl Send for Board {}

const OPEN: u64 = 1 << 31;
const PARTICIPANTS: u64 = OPEN - 1;

/// A pool; the thread that calls [`Pool::run`] is one of its threads.
pub struct Pool {
    board: Arc<Board>,
    workers: Vec<JoinHandle<()>>,
    /// One piece of work at a time.
    turn: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` (between 1 and [`MAX_THREADS`]), the caller's included. Where the
    /// system gives fewer, it has fewer.
    pub fn new(threads: usize) -> Pool {
        let threads = threads.clamp(1, MAX_THREADS);
        let share = || Share { next: AtomicUsize::new(0), end: AtomicUsize::new(0) };
        let board = Arc::new(Board {
            state: AtomicU64::new(0),
            work: UnsafeCell::new(None),
            shares: (0..threads).map(|_| share()).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::new(()),
            wake: Condvar::new(),
        });
        let workers = (1..threads)
            .map_while(|index| {
                let board = board.clone();
                std::thread::Builder::new()
                    .name(format!("compute-{index}"))
                    .spawn(move || board.work_until_stopped(index))
                    .ok()
            })
            .collect();
        Pool { board, workers, turn: Mutex::new(()) }
    }

    /// Threads that work, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Call `work` once for each of `0..parts`, spread over the threads, and return when all
    /// is done. Neighbouring parts mostly go to the same thread in rising order.
    pub fn run(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        if parts <= 1 || self.workers.is_empty() {
            return (0..parts).for_each(work);
        }
        let _turn = lock(&self.turn);
        let board = &*self.board;
        let threads = self.threads();
        for (i, share) in board.shares.iter().enumerate() {
            let i = i.min(threads);
            share.next.store(parts * i / threads, Ordering::Relaxed);
            share.end.store(parts * (i + 1).min(threads) / threads, Ordering::Relaxed);
        }
        // SAFETY: the state is closed and without participants, so nobody reads `work`. The
        // lifetime is erased; the closure outlives all use, for this function returns only
        // after the state is closed and the last participant has left.
        unsafe {
            *board.work.get() = Some(Work(std::mem::transmute::<
                *const (dyn Fn(usize) + Sync + '_),
                *const (dyn Fn(usize) + Sync + 'static),
            >(work)));
        }
        let epoch = (board.state.load(Ordering::Relaxed) >> 32) + 1;
        board.state.store(epoch << 32 | OPEN, Ordering::SeqCst);
        if board.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&board.bed));
            board.wake.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(|| board.take_parts(0, work)));
        board.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut patience = Patience::default();
        while board.state.load(Ordering::Acquire) & PARTICIPANTS != 0 {
            patience.wait();
        }
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        if board.panicked.swap(false, Ordering::Relaxed) {
            panic!("a compute thread panicked");
        }
    }

    /// As [`Pool::run`], for `items` in chunks of at least `least`, enough of them to even out
    /// the threads' speeds.
    pub fn ranges(&self, items: usize, least: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let chunk = items.div_ceil(8 * self.threads()).max(least).max(1);
        self.run(items.div_ceil(chunk), &|i| work(i * chunk..((i + 1) * chunk).min(items)));
    }

    /// Call `work` once for each row of `data`, `width` long.
    pub fn rows<T: Send>(
        &self,
        data: &mut [T],
        width: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let rows = data.len() / width.max(1);
        let shared = Shared::new(data);
        self.ranges(rows, 1, &|range| {
            for i in range {
                // SAFETY: each row is one part of the work, and rows do not overlap.
                work(i, unsafe { shared.part(i * width..(i + 1) * width) });
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.board.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.board.bed));
        self.board.wake.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Board {
    fn work_until_stopped(&self, index: usize) {
        let mut seen = 0;
        while let Some(epoch) = self.next_work(seen) {
            seen = epoch;
            if !self.join(epoch) {
                continue;
            }
            // SAFETY: this thread is a participant, so the caller of `run` keeps the closure.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe {
                if let Some(Work(work)) = *self.work.get() {
                    self.take_parts(index, &*work);
                }
            }));
            if done.is_err() {
                self.panicked.store(true, Ordering::Relaxed);
            }
            self.state.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Wait for an epoch after `seen`; none when the pool ends.
    fn next_work(&self, seen: u64) -> Option<u64> {
        let mut patience = Patience::default();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let state = self.state.load(Ordering::Acquire);
            if state >> 32 != seen && state & OPEN != 0 {
                return Some(state >> 32);
            }
            if patience.wait() {
                self.sleep(seen);
                patience = Patience::default();
            }
        }
    }

    fn sleep(&self, seen: u64) {
        let mut bed = lock(&self.bed);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // `run` opens the state before it looks for sleepers, so one of the two sees the other.
        while !self.stop.load(Ordering::SeqCst) {
            let state = self.state.load(Ordering::SeqCst);
            if state >> 32 != seen && state & OPEN != 0 {
                break;
            }
            bed = self.wake.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Become a participant, if the work of `epoch` is still open.
    fn join(&self, epoch: u64) -> bool {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| {
                (state >> 32 == epoch && state & OPEN != 0).then_some(state + 1)
            })
            .is_ok()
    }

    /// The parts of one's own share, then what others have left.
    fn take_parts(&self, index: usize, work: &(dyn Fn(usize) + Sync)) {
        let count = self.shares.len();
        for share in (0..count).map(|i| &self.shares[(index + i) % count]) {
            let end = share.end.load(Ordering::Relaxed);
            while share.next.load(Ordering::Relaxed) < end {
                let part = share.next.fetch_add(1, Ordering::Relaxed);
                if part >= end {
                    break;
                }
                work(part);
            }
        }
    }
}

/// Waiting that begins eager and becomes considerate.
#[derive(Default)]
struct Patience {
    spins: u32,
    since: Option<Instant>,
}

impl Patience {
    /// Wait a little; true when it has lasted long.
    fn wait(&mut self) -> bool {
        if self.spins < SPINS {
            self.spins += 1;
            std::hint::spin_loop();
            return false;
        }
        std::thread::yield_now();
        self.since.get_or_insert_with(Instant::now).elapsed() > AWAKE
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_done_once() {
        for threads in [1, 2, 3, 9] {
            let pool = Pool::new(threads);
            for parts in [0, 1, 2, 3, 7, 64, 1000] {
                for _ in 0..20 {
                    let counts: Vec<AtomicUsize> =
                        (0..parts).map(|_| AtomicUsize::new(0)).collect();
                    pool.run(parts, &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(counts.iter().all(|n| n.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = Pool::new(2);
        std::thread::sleep(4 * AWAKE);
        let both = AtomicUsize::new(0);
        let start = Instant::now();
        // Each part waits for the other: only two threads can finish it.
        pool.run(2, &|_| {
            both.fetch_add(1, Ordering::SeqCst);
            while both.load(Ordering::SeqCst) < 2 && start.elapsed() < Duration::from_secs(20) {
                std::thread::yield_now();
            }
        });
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(3);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(50, &|i| assert_ne!(i, 31, "on purpose"));
        }));
        assert!(outcome.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(10, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 45);
    }
}
