"""Train a draft on what `collect` wrote.

usage: train.py --target FILE --data data/part --held data/held --out run --minutes 60

Each step takes random anchors of a few conversations; the draft fills the slots after each, and
learns from the tokens that the target said there and from the target's own distribution. The
vocabulary is the draft's ranked one. Every few minutes and at the end the run's folder gets a
checkpoint (`state.pt`), from which the same command goes on, and a line in `log.jsonl` with
the τ of a greedy loop simulated over the held-out answers.
"""
import argparse
import json
import math
import pathlib
import random
import time

import torch
from torch.nn import functional as F

from data import Blocks, Collected, batch
from draft import Draft
from export import read, read_config
from target import Target


def arguments():
    p = argparse.ArgumentParser(description="Train a DFlash draft.", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--target", required=True, help="GGUF file, or folder with safetensors")
    p.add_argument("--data", required=True, help="what collect wrote, without its ending")
    p.add_argument("--held", required=True, help="the same of prompts to evaluate on")
    p.add_argument("--out", required=True, type=pathlib.Path, help="folder of the run")
    p.add_argument("--minutes", type=float, default=60, help="of computing, over all resumed runs: of a busy machine only the time that it gives")
    p.add_argument("--start", type=pathlib.Path, help="begin with this draft: its folder, or a GGUF file that export wrote")
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--mask-token", type=int, default=16, help="an id that the target never says")
    p.add_argument("--vocabulary", type=int, default=4096, help="ids that the draft proposes from; with --start at most its own, and just those of a draft with a selector")
    p.add_argument("--block-size", type=int, help="slots of a block, the anchor included; may change when a run goes on [default: of --start's, else 6]")
    p.add_argument("--conversations", type=int, default=8, help="in a step")
    p.add_argument("--blocks", type=int, default=32, help="of each conversation in a step")
    p.add_argument("--rate", type=float, default=1e-3, help="learning rate at its highest")
    p.add_argument("--warmup", type=float, default=0.03, help="share of the time")
    p.add_argument("--decay", type=float, default=3.0, help="slots until the loss weighs 1/e")
    p.add_argument("--soft", type=float, default=0.5, help="share of the target's distribution in the loss")
    p.add_argument("--selector", type=int, default=128, help="rank of the candidate selector; 0 for none")
    p.add_argument("--alone", type=float, default=0.3, help="weight of the loss of the logits without the selector, which find its candidates")
    p.add_argument("--rounded", action="store_true", help="train with the weights as the GGUF file will hold them; for a last, slow run")
    p.add_argument("--bf16", action="store_true", help="multiply in 16 bits; the weights stay in 32. Quicker where the processor can (AVX-512 BF16, GPUs)")
    p.add_argument("--every", type=float, default=8, help="minutes between checkpoints")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--threads", type=int, default=2)
    return p.parse_args()


class Vocabulary:
    """The ids that the draft proposes from, and the target's head and embedding over them."""

    def __init__(self, ids, target, device):
        self.ids = torch.tensor(ids, device=device)
        self.head, self.rows = target.head[ids].to(device), target.embedding[ids].to(device)
        self.norm = target.norm.to(device)
        self.eps, self.softcap = target.config["rms_norm_eps"], target.softcap
        self.place = torch.full((target.head.shape[0],), -1, device=device)
        self.place[self.ids] = torch.arange(len(ids), device=device)

    def of_target(self, last):
        """The target's log-probabilities, from its last layer's outputs."""
        logits = F.linear(F.rms_norm(last, last.shape[-1:], self.norm, self.eps), self.head)
        if self.softcap:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits.log_softmax(-1)


def ranked(counts, size, known):
    """The `size` most frequent of the ids `known`; where fewer were seen, the lowest others (of
    byte-pair vocabularies the most frequent merges)."""
    order = sorted(known, key=lambda id: (-counts[id], id))
    return sorted(order[:size])


def loss(draft, blocks, scale, embedding, vocabulary, a):
    """The step's loss, and how often each slot was right."""
    hidden = draft(blocks, scale, embedding)
    device = hidden.device
    labels = vocabulary.place[blocks.ids[..., 1:].to(device)]
    used = blocks.labelled.to(device) & (labels >= 0)
    slots = torch.arange(labels.shape[-1], device=device)
    weight = torch.exp(-slots / a.decay).expand(labels.shape)[used]
    hidden, said = hidden[used], labels[used]
    logits, selector, each = F.linear(hidden, vocabulary.head), draft.candidate_selector, 0
    if selector:
        each = a.alone * F.cross_entropy(logits.float(), said, reduction="none")
        # After the right token: where the one before is wrong, nothing after it matters.
        before = vocabulary.place[blocks.ids[..., :-1].to(device)][used]
        logits = logits + selector.scores(hidden, before, selector.codebooks(vocabulary.rows))
    total = logits.float().log_softmax(-1)
    each = each - (1 - a.soft) * total.gather(1, said[:, None])[:, 0]
    if a.soft > 0:
        with torch.no_grad():
            wanted = vocabulary.of_target(blocks.last.to(device)[used]).exp()
        each = each - a.soft * (wanted * total).sum(-1)
    with torch.no_grad():
        right = torch.zeros(labels.shape, device=device)
        right[used] = (logits.argmax(-1) == said).float()
        rates = right.sum((0, 1)) / blocks.labelled.to(device).sum((0, 1)).clamp(min=1)
    return (each * weight).sum() / weight.sum(), rates


@torch.no_grad()
def evaluate(draft, held, scale, embedding, vocabulary, size):
    """A greedy loop over the held-out answers: tokens and rounds by line of the prompt, and how
    often each slot is right."""
    rounds, right, counted = {}, torch.zeros(size - 1), torch.zeros(size - 1)
    for c in held.conversations:
        anchors = c.anchors()
        accepted = {}
        for i in range(0, len(anchors), 64):
            some = anchors[i : i + 64]
            blocks = Blocks([c], [some], size, held.shape, hidden_wanted=False)
            hidden = draft(blocks, scale, embedding)[0]
            places = vocabulary.place[blocks.ids[0].to(hidden.device)]
            chosen = draft.choose(hidden, places[:, 0], vocabulary.head, vocabulary.rows)
            hit = ((chosen == places[:, 1:]) & (places[:, 1:] >= 0)).cpu() & blocks.labelled[0]
            right += hit.sum(0)
            counted += blocks.labelled[0].sum(0)
            accepted.update(zip(some, hit.long().cumprod(1).sum(1).tolist()))
        tokens = played = 0
        for first, end in c.spans:
            at = first
            while at < end - 1:
                step = min(accepted[at] + 1, end - 1 - at)
                tokens, played, at = tokens + step, played + 1, at + step
        rounds[c.line] = (tokens, played)
    return rounds, (right / counted.clamp(min=1)).tolist()


def config(a, data, target):
    counts, everything = data.counts(), range(data.shape["vocabulary"])
    if a.start:
        c = read_config(a.start)
        own = c["dflash_config"]
        if own["target_layer_ids"] != data.shape["taps"]:
            raise SystemExit(f"{a.start} reads layers {own['target_layer_ids']}, but {data.shape['taps']} were collected")
        size = a.block_size or c["block_size"]
    else:
        own = {"target_layer_ids": data.shape["taps"], "mask_token_id": a.mask_token}
        c = target.config | {
            "model_type": "qwen3", "hidden_act": "silu", "attention_bias": False, "num_hidden_layers": a.layers,
            "vocab_size": data.shape["vocabulary"], "layer_types": ["full_attention"] * a.layers,
            "tie_word_embeddings": True,
        }
        size = a.block_size or 6
    # Codebooks keep their rows; without them ids that a draft never proposed it does not know.
    if "selector_rank" not in own:
        own["draft_vocabulary"] = ranked(counts, a.vocabulary, own.get("draft_vocabulary", everything))
        if a.selector:
            own |= {"selector_rank": a.selector, "selector_top_k": 16}
    kind = "DFlash2DraftModel" if "selector_rank" in own else "DFlashDraftModel"
    return c | {"architectures": [kind], "block_size": size, "dflash_config": own}


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a.out.mkdir(parents=True, exist_ok=True)
    saved = a.out / "state.pt"
    state = torch.load(saved, weights_only=False) if saved.exists() else None
    target, data, held = Target(a.target), Collected(a.data), Collected(a.held)
    c = state["config"] if state else config(a, data, target)
    # Else a run would begin with the batches that the run before it began with.
    seed = a.seed + sum(run["step"] for run in c.get("training", []))
    r = random.Random(seed)
    c["block_size"] = a.block_size = a.block_size or c["block_size"]
    scale = (state["scale"] if state else data.tap_scale()).to(device)
    draft = Draft(c)
    if state:
        draft.load_state_dict(state["weights"])
    elif a.start:
        draft.begin_with(read(a.start, scale.cpu()))
    else:
        draft.start_from(target)
    if a.rounded:
        draft.round_weights()
    draft.to(device)
    embedding = target.embedding.to(device)
    vocabulary = Vocabulary(c["dflash_config"]["draft_vocabulary"], target, device)
    matrices = [p for p in draft.parameters() if p.dim() > 1]
    others = [p for p in draft.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=a.rate, betas=(0.9, 0.98), fused=True)
    done = {"step": 0, "blocks": 0, "seconds": 0.0}
    if state:
        optimizer.load_state_dict(state["optimizer"])
        done = state["done"]
        r.seed(seed + done["step"])

    def checkpoint():
        draft.eval()
        rounds, right = evaluate(draft, held, scale, embedding, vocabulary, a.block_size)
        draft.train()
        tokens, played = (sum(x[i] for x in rounds.values()) for i in (0, 1))
        line = {**done, "tokens": data.tokens, "tau": tokens / played, "slots": right,
                "by_line": {str(k): v for k, v in sorted(rounds.items())}}
        with (a.out / "log.jsonl").open("a") as log:
            log.write(json.dumps(line) + "\n")
        torch.save({"config": c, "scale": scale.cpu(), "weights": draft.state_dict(),
                    "optimizer": optimizer.state_dict(), "done": done, "tokens": data.tokens,
                    "arguments": {k: str(v) for k, v in vars(a).items()}}, saved.with_suffix(".new"))
        saved.with_suffix(".new").replace(saved)
        print(f"{done['seconds'] / 60:.1f} min  {done['blocks']} blocks  held-out tau {line['tau']:.3f}  "
              + " ".join(f"{x:.3f}" for x in right), flush=True)

    # The learning rate follows the time spent; time in which other programs ran is not.
    clock = time.time if device == "cuda" else lambda: time.process_time() / a.threads
    total, told = a.minutes * 60, time.time()
    # How often each slot was right, over its last twenty steps or so.
    mean, steps = torch.zeros(2, a.block_size - 1, device=device)
    if not state:
        checkpoint()
    since = done["seconds"]
    while done["seconds"] < total:
        start = clock()
        share = done["seconds"] / total
        warm = min(1.0, (share + 1e-3) / a.warmup) if a.warmup else 1.0
        rate = a.rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        # The program plays blocks of any length, mostly short ones.
        size = r.randint(min(3, a.block_size), a.block_size)
        blocks = batch(data, r, a.conversations, a.blocks, size, a.soft > 0)
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=a.bf16):
            value, right = loss(draft, blocks, scale, embedding, vocabulary, a)
        value.backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        done["step"] += 1
        done["blocks"] += blocks.ids.shape[0] * blocks.ids.shape[1]
        done["seconds"] += clock() - start
        steps[: size - 1] += 1
        mean[: size - 1] += (right - mean[: size - 1]) / steps[: size - 1].clamp(max=20)
        if time.time() - told > 30:
            told = time.time()
            print(f"{done['seconds'] / 60:.1f} min  step {done['step']}  {done['blocks']} blocks  loss {value.item():.3f}  right "
                  + " ".join(f"{x:.2f}" for x in mean.tolist())
                  + f"  {done['blocks'] / done['seconds']:.0f} blocks/s", flush=True)
        if done["seconds"] - since > a.every * 60 or done["seconds"] >= total:
            since = done["seconds"]
            data.refresh()
            checkpoint()


if __name__ == "__main__":
    main()
