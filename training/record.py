"""Record what a draft does in f32, round by round, for the program's tests to compare with.

usage: record.py TARGET.gguf DRAFT PROMPTS.json OUT.json

PROMPTS.json is an earlier record: its prompts' texts and ids are taken over. The target is
computed by transformers from the dequantised file, the draft by draft.py.
"""
import hashlib
import json
import pathlib
import sys
from types import SimpleNamespace

import torch

from draft import Draft
from export import read, read_config
from target import Target

NEW_TOKENS = 48


def main(target_path, draft_path, prompts, out):
    from transformers import AutoModelForCausalLM

    path = pathlib.Path(target_path).resolve()
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    target, c = Target(path), read_config(draft_path)
    own, size = c["dflash_config"], c["block_size"]
    taps, ids = own["target_layer_ids"], torch.tensor(own["draft_vocabulary"])
    draft = Draft(c).eval()
    draft.begin_with(read(draft_path, torch.ones(len(taps))))
    end = model.config.eos_token_id

    def passed(tokens):
        result = model(torch.tensor([tokens]), output_hidden_states=True)
        features = torch.cat([result.hidden_states[tap + 1][0] for tap in taps], -1)
        return result.logits[0], features

    def propose(tokens, features, count):
        anchor = len(tokens) - 1
        blocks = SimpleNamespace(
            ids=torch.tensor([[[tokens[-1]] + [0] * count]]), anchors=torch.tensor([[anchor]]), features=features[None, :anchor])
        hidden = draft(blocks, torch.ones(len(taps)), target.embedding)[0, 0]
        place = (ids == tokens[-1]).nonzero().flatten()
        anchor = place[0] if len(place) else torch.tensor(-1)
        return ids[draft.choose(hidden[None], anchor[None], target.head[ids], target.embedding[ids])[0]].tolist()

    record = {"note": "f32; start is the anchor's position, draft_ids the proposals for the positions after it, "
                      "accepted how many agree, emitted that and one more unless the answer ends",
              "gguf_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "max_new_tokens": NEW_TOKENS, "prompts": []}
    with torch.no_grad():
        for old in json.loads(pathlib.Path(prompts).read_text())["prompts"]:
            tokens = list(old["prompt_ids"])
            first = len(tokens)
            logits, features = passed(tokens)
            tokens.append(int(logits[-1].argmax()))
            rounds = []
            while len(tokens) - first < NEW_TOKENS and tokens[-1] != end:
                left = NEW_TOKENS - (len(tokens) - first)
                # The round's own token takes a place too.
                count = min(size - 1, left - 1)
                proposed = propose(tokens, features, count) if count else []
                logits, seen = passed(tokens + proposed)
                own_choice = logits[len(tokens) - 1 :].argmax(-1).tolist()
                accepted = 0
                while accepted < len(proposed) and proposed[accepted] == own_choice[accepted]:
                    accepted += 1
                new = (proposed[:accepted] + [own_choice[accepted]])[:left]
                if end in new:
                    new = new[: new.index(end) + 1]
                rounds.append({"start": len(tokens) - 1, "anchor": tokens[-1], "draft_ids": proposed,
                               "accepted": accepted, "emitted": len(new)})
                tokens += new
                features = seen
            record["prompts"].append({"category": old["category"], "prompt": old["prompt"], "prompt_ids": old["prompt_ids"],
                                      "greedy_ids": tokens[first:], "block_size": size, "rounds": rounds, "text": old["text"]})
            print(old["category"], f"tau {(len(tokens) - first - 1) / len(rounds):.2f}", tokens[first:] == old["greedy_ids"])
    pathlib.Path(out).write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
