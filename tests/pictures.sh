#!/usr/bin/env bash
# Makes the README's pictures (assets/pictures) with the program itself: it is run in tmux, asked
# something, and told to write its screen into a file (F12). Needs tmux; fetches the demo pair.
set -euo pipefail
cd "$(dirname "$0")/.."
pictures="$PWD/assets/pictures"
program="$PWD/target/release/dflash-chat"
cargo build --release --locked
if [ -z "${DFLASH_DEMO_TARGET:-}" ]; then
  DFLASH_CHAT_DATA="$PWD/target/data" "$program" models pull smollm2-135m
  DFLASH_DEMO_TARGET="$PWD/target/data/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
fi

# Its own server and folders, so that nobody's conversations or settings show or change.
work="$(mktemp -d)"
screen() { tmux -L "dflash-pictures-$$" -f /dev/null "$@"; }
trap 'screen kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

# start THEME: the chat in a window of 116 x 36.
start() {
  screen new-session -d -x 116 -y 36 -c "$work" env \
    COLORTERM=truecolor LANG=C.UTF-8 LC_ALL= NO_COLOR= \
    DFLASH_CHAT_CONFIG="$work" DFLASH_CHAT_CACHE="$work/cache" DFLASH_CHAT_DATA="$work/data" \
    DFLASH_CHAT_THEME="$1" DFLASH_DEMO_TARGET="$DFLASH_DEMO_TARGET" "$program"
  wait_for '^ ready'
}

# wait_for PATTERN [COUNT]: until so many lines of the window have it, one unless said.
wait_for() {
  for _ in $(seq 600); do
    if [ "$(screen capture-pane -p | grep -c -- "$1")" -ge "${2:-1}" ]; then return; fi
    sleep 0.2
  done
  echo "never saw '$1' in:" >&2
  screen capture-pane -p >&2
  exit 1
}

# say TEXT: write it and send it.
say() {
  screen send-keys -l "$1"
  sleep 0.3
  screen send-keys Enter
}

# take NAME: a picture of the window.
take() {
  screen send-keys F12
  for _ in $(seq 50); do
    if [ -s "$work/dflash-chat-1.svg" ]; then break; fi
    sleep 0.1
  done
  mv "$work/dflash-chat-1.svg" "$pictures/$1.svg"
}

finish() {
  screen send-keys C-q
  while screen has-session 2>/dev/null; do sleep 0.1; done
}

mkdir -p "$pictures"
for theme in dark light; do
  start "$theme"
  # Plain steps first, so that the gauges have something to compare with.
  screen send-keys F7
  say "What is the capital of France?"
  wait_for ' tok/s ·'
  screen send-keys F7
  say "/new"
  sleep 0.5
  say "Write a Python function that returns the factorial of a number."
  wait_for ' tok/s ·'
  take "chat-$theme"
  # The round behind a token, with what each part means: one with some of everything.
  screen send-keys F3 C-t Home
  for _ in $(seq 60); do
    screen send-keys C-Right
    sleep 0.1
    if screen capture-pane -p | grep -q 'kept [12] of [3-9]'; then break; fi
  done
  take "round-$theme"
  screen send-keys F3 Escape
  sleep 0.5
  say "/race A pack holds 6 eggs. How many eggs are in 4 packs? Explain."
  wait_for 'the race is over'
  take "race-$theme"
  finish
done
