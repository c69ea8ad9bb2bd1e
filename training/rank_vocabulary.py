"""Rank the target's vocabulary by use and write the draft's own vocabulary into its config.

The draft's head is its largest product. A draft that proposes only from the tokens that the
target really uses is as good and much faster; verification always uses the whole head, so that
nothing is lost. Tokens are counted in answers of the target itself; the rest is filled up in the
order of ids, which for byte-pair vocabularies is the order of the merges, most frequent first.

usage: rank_vocabulary.py PROGRAM DRAFT_DIR [--size 8192] [--prompts 600] [--keep counts.json]
"""
import argparse
import collections
import json
import pathlib
import subprocess

from prompts import prompts

p = argparse.ArgumentParser()
p.add_argument("program")
p.add_argument("draft", type=pathlib.Path)
p.add_argument("--size", type=int, default=8192)
p.add_argument("--prompts", type=int, default=600)
p.add_argument("--tokens", type=int, default=160)
p.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("counts.json"))
a = p.parse_args()

if a.keep.exists():
    counts = collections.Counter({int(k): v for k, v in json.loads(a.keep.read_text()).items()})
else:
    counts = collections.Counter()
    for i, text in enumerate(prompts(a.prompts)):
        run = subprocess.run([a.program, "run", text, "--format", "json", "--mode", "baseline",
                              "--max-tokens", str(a.tokens)], capture_output=True, check=True)
        counts.update(json.loads(run.stdout)["ids"])
        if i % 20 == 0:
            print(f"{i} of {a.prompts} prompts, {sum(counts.values())} tokens, {len(counts)} different", flush=True)
            a.keep.write_text(json.dumps(counts))
    a.keep.write_text(json.dumps(counts))

path = a.draft / "config.json"
config = json.loads(path.read_text())
vocab = config["vocab_size"]
ranked = [id for id, _ in counts.most_common()] + [id for id in range(vocab) if id not in counts]
chosen = sorted(ranked[: a.size])
total = sum(counts.values())
print(f"{a.size} of {vocab} ids cover {sum(counts[id] for id in chosen) / max(total, 1):.4f} of {total} tokens")
config["dflash_config"]["draft_vocabulary"] = chosen
text = json.dumps(config, indent=2)
# One line for the long list.
start = text.index('"draft_vocabulary": [')
end = text.index("]", start)
text = text[:start] + " ".join(text[start:end].split()) + text[end:]
path.write_text(text + "\n")
