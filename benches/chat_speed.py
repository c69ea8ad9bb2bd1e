"""Does the screen cost speed? The same prompts in the chat, with the round panel open, and by `run`.

    python3 benches/chat_speed.py target/release/dflash-chat --repeat 3

Both programs answer in turn, so that a slow moment of the machine touches both. The chat is on a
pseudo-terminal whose output is read and dropped; its figures come from the conversation that it
saves. Printed: tokens a second of each, by prompt the median of chat ÷ run, and the median over
prompts. Python's standard library is enough (Linux, macOS).
"""

import argparse
import fcntl
import glob
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import tempfile
import termios
import time

PROMPTS = [
    "Write a Python function that returns the factorial of a number.",
    "A pack holds 6 eggs. How many eggs are in 4 packs? Explain.",
    "Explain in simple words why the sky is blue.",
    "List five things to take on a hike, with a reason for each.",
]


class Chat:
    """The chat on a pseudo-terminal."""

    def __init__(self, program, options, home, size):
        self.home = home
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", DFLASH_CHAT_DATA=home)
            os.execv(program, [program, *options])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read_for(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.terminal], [], [], left)[0]:
                try:
                    os.read(self.terminal, 65536)
                except OSError:  # The chat has ended.
                    return

    def say(self, text):
        """Keys as a person's: the program takes a burst for a paste, in which Enter sends nothing."""
        os.write(self.terminal, b"\x1b[200~" + text.encode() + b"\x1b[201~")
        self.read_for(0.3)
        os.write(self.terminal, b"\r")

    def totals(self):
        """The sums of the finished answers, the newest last."""
        found = []
        saved = glob.glob(os.path.join(self.home, "sessions", "*.jsonl"))
        for path in sorted(saved, key=os.path.getmtime):
            with open(path) as lines:
                found += [json.loads(line)["totals"] for line in lines if '"finished"' in line]
        return found

    def answer(self, prompt):
        self.say("/new")
        self.read_for(0.3)
        before = len(self.totals())
        self.say(prompt)
        while len(self.totals()) == before:
            self.read_for(0.2)
        return self.totals()[-1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--block-size", default="3", help="fixed, so that both do the same rounds")
    p.add_argument("--max-tokens", default="128")
    p.add_argument("--size", default="120x40", help="of the terminal")
    a = p.parse_args()
    options = ["--block-size", a.block_size, "--max-tokens", a.max_tokens]
    with tempfile.TemporaryDirectory() as home:
        chat = Chat(a.program, options, home, [int(n) for n in a.size.split("x")])
        chat.read_for(5)
        ratios = []
        for prompt in PROMPTS:
            rates = []
            for _ in range(a.repeat + 1):
                command = [a.program, "run", prompt, "--format", "json", *options]
                ran = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
                said = chat.answer(prompt)
                rates.append((said["decode_tok_s"], ran["totals"]["decode_tok_s"]))
            # The first of each is for the caches of the machine.
            chatted, ran = (statistics.median(rate[i] for rate in rates[1:]) for i in (0, 1))
            ratio = statistics.median(chat / run for chat, run in rates[1:])
            ratios.append(ratio)
            print(f"chat {chatted:6.1f}  run {ran:6.1f} tok/s  {ratio:.3f}  {prompt}", flush=True)
        print(f"chat ÷ run: median {statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})")
        os.write(chat.terminal, b"\x11")
        chat.read_for(1)


if __name__ == "__main__":
    main()
