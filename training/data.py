"""What `collect` wrote, as batches of blocks."""
import json
import pathlib
import random

import numpy as np
import torch


class Conversation:
    """Ids, the spans that the target said, and where the features lie."""

    def __init__(self, features, line):
        self.features, self.row = features, line["row"]
        self.ids = np.array(line["ids"], dtype=np.int64)
        # Anchors: a block's anchor is a token of an answer that has one after it. Its slots may
        # only hold what the target itself said.
        self.line = line["line"]
        self.spans = [(first, end) for first, end in line["answers"] if end - first > 1]
        self.said = sum(end - first for first, end in self.spans)

    def anchors(self):
        return [i for first, end in self.spans for i in range(first, end - 1)]

    def end_of(self, anchor):
        return next(end for first, end in self.spans if first <= anchor < end)


class Collected:
    """All parts that match a path like data/part. They may grow while training reads them."""

    def __init__(self, path):
        self.path, self.shape = pathlib.Path(path), None
        self.seen, self.conversations = {}, []
        self.refresh()

    def refresh(self):
        """Take in what was added since."""
        for shape in sorted(self.path.parent.glob(self.path.name + "*.json")):
            told = json.loads(shape.read_text())
            self.shape = self.shape or told
            if any(told[key] != self.shape[key] for key in ("taps", "hidden", "vocabulary")):
                raise SystemExit(f"{shape} has other taps or another target than the parts before it")
            lines, features = shape.with_suffix(".jsonl"), shape.with_suffix(".features")
            if not features.exists() or features.stat().st_size == 0:
                continue
            width = (len(self.shape["taps"]) + 1) * self.shape["hidden"]
            available = features.stat().st_size // (2 * width)
            halves = np.memmap(features, dtype=np.float16, mode="r", shape=(available, width))
            with lines.open("rb") as file:
                file.seek(self.seen.get(lines, 0))
                for text in file:
                    line = json.loads(text) if text.endswith(b"\n") else None
                    if line is None or line["row"] + len(line["ids"]) - 1 > available:
                        break
                    self.seen[lines] = self.seen.get(lines, 0) + len(text)
                    conversation = Conversation(halves, line)
                    if conversation.said:
                        self.conversations.append(conversation)
        if not self.conversations:
            raise SystemExit(f"nothing was collected yet in {self.path}*.jsonl")
        self.conversations.sort(key=lambda c: len(c.ids))
        self.weights = np.cumsum([c.said for c in self.conversations], dtype=np.float64)
        self.tokens = int(self.weights[-1])

    def counts(self):
        """How often each token was said."""
        counts = np.zeros(self.shape["vocabulary"], dtype=np.int64)
        for c in self.conversations:
            for first, end in c.spans:
                np.add.at(counts, c.ids[first:end], 1)
        return counts

    def tap_scale(self, sample=200):
        """1 / rms of each tap, over positions after the first (whose activations are huge)."""
        taps, hidden = len(self.shape["taps"]), self.shape["hidden"]
        r = random.Random(1)
        squares = []
        for c in r.sample(self.conversations, min(sample, len(self.conversations))):
            rows = np.asarray(c.features[c.row + 1 : c.row + len(c.ids) - 1, : taps * hidden], np.float32)
            squares.append((rows.reshape(-1, taps, hidden) ** 2).mean(axis=2))
        return torch.from_numpy(1 / np.sqrt(np.concatenate(squares).mean(axis=0)))

    def pick(self, r, count):
        """Conversations of about one length, the more likely the more was said in them."""
        i = int(np.searchsorted(self.weights, r.random() * self.weights[-1]))
        low = max(0, min(i - 32, len(self.conversations) - 64))
        near = self.conversations[low : low + 64]
        return [self.conversations[i], *r.choices(near, [c.said for c in near], k=count - 1)]


class Blocks:
    """A batch: `n` conversations with `a` blocks of `b` slots each.

    features [n, s, taps·hidden], ids [n, a, b] (the anchor and what follows), labelled
    [n, a, b-1] (whether a slot's token was said by the target), anchors [n, a], and last
    [n, a, b-1, hidden]: the target's last hidden state that led to each slot's token.
    """

    def __init__(self, conversations, anchors, size, shape, hidden_wanted):
        n, a = len(conversations), max(len(some) for some in anchors)
        width, hidden = len(shape["taps"]) * shape["hidden"], shape["hidden"]
        length = max(max(some) for some in anchors)
        self.features = torch.zeros(n, length, width)
        self.ids = torch.zeros(n, a, size, dtype=torch.int64)
        self.labelled = torch.zeros(n, a, size - 1, dtype=torch.bool)
        self.anchors = torch.zeros(n, a, dtype=torch.int64)
        self.last = torch.zeros(n, a, size - 1, hidden) if hidden_wanted else None
        for i, (c, some) in enumerate(zip(conversations, anchors)):
            rows = np.asarray(c.features[c.row : c.row + len(c.ids) - 1])
            known = min(length, len(rows))
            self.features[i, :known] = torch.from_numpy(rows[:known, :width].astype(np.float32))
            slots = np.array(some)[:, None] + np.arange(size)[None]
            ends = np.array([c.end_of(anchor) for anchor in some])
            inside = slots < ends[:, None]
            slots = np.minimum(slots, ends[:, None] - 1)
            self.ids[i, : len(some)] = torch.from_numpy(c.ids[slots])
            self.labelled[i, : len(some)] = torch.from_numpy(inside[:, 1:])
            self.anchors[i, : len(some)] = torch.tensor(some)
            if hidden_wanted:
                before = np.minimum(slots[:, 1:] - 1, len(rows) - 1)
                self.last[i, : len(some)] = torch.from_numpy(rows[before, width:].astype(np.float32))


def batch(data, r, conversations, blocks, size, hidden_wanted):
    """Random anchors, spread evenly over each conversation."""
    some = data.pick(r, conversations)
    anchors = []
    for c in some:
        all_ = c.anchors()
        if len(all_) >= blocks:
            step = len(all_) / blocks
            anchors.append([all_[min(int((k + r.random()) * step), len(all_) - 1)] for k in range(blocks)])
        else:
            anchors.append(all_ + r.choices(all_, k=blocks - len(all_)))
    return Blocks(some, anchors, size, data.shape, hidden_wanted)
