"""Write a run's draft: config.json and model.safetensors in the published DFlash layout (with a
selector DFlash 2's, but without its convolutions, and with codebooks over the draft's vocabulary:
other programs do not read that), and model.gguf, which the program can carry: with matrices in 8
bits, or in 4 (Q4_1) if the run was trained so (`--rounded`).

usage: export.py RUN OUT_DIR [START SHARE]

With START, the draft that the run began with, its weights and SHARE of the run's are averaged: the
mean of a short second run and its start foresees more than either.

Where the draft came from (data, steps, what it began with) is in the config's `training` and in
the GGUF file's `dflash.training`.
"""
import hashlib
import json
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from draft import Draft
from target import Target

# What llama.cpp's converter calls the tensors.
GGUF_NAMES = {
    "fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm",
    "candidate_selector.hidden_projection": "selector_hidden",
    "candidate_selector.predecessor_codebook": "selector_predecessor",
    "candidate_selector.successor_codebook": "selector_successor",
}
GGUF_PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


def scaled(fc, scale):
    """`fc` for taps that are multiplied by `scale` before."""
    width = fc.shape[1] // len(scale)
    return (fc.view(fc.shape[0], -1, width) * scale[None, :, None]).reshape(fc.shape)


def gguf_name(name):
    name = name.removesuffix(".weight")
    if name.startswith("layers."):
        _, layer, part = name.split(".", 2)
        return f"blk.{layer}.{GGUF_PARTS[part]}.weight"
    return f"{GGUF_NAMES[name]}.weight"


def read(path, scale):
    """The weights of a draft (a folder or a GGUF file of ours), for training with taps
    multiplied by `scale`."""
    path = pathlib.Path(path)
    if path.is_dir():
        weights = {name: tensor.float() for name, tensor in load_file(path / "model.safetensors").items()}
    else:
        tensors = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
        parts = [f"layers.{i}.{part}" for i in range(64) for part in GGUF_PARTS]
        # The published codebooks' names have no `.weight`.
        names = [name if name.endswith("codebook") else f"{name}.weight" for name in [*GGUF_NAMES, *parts]]
        weights = {name: torch.tensor(np.array(tensors[gguf_name(name)], np.float32))
                   for name in names if gguf_name(name) in tensors}
    weights["fc.weight"] = scaled(weights["fc.weight"], 1 / scale)
    return weights


def read_config(path):
    """The config.json of a draft (a folder or a GGUF file of ours)."""
    path = pathlib.Path(path)
    if path.is_dir():
        return json.loads((path / "config.json").read_text())
    return json.loads(gguf.GGUFReader(path).fields["dflash.config"].contents())


def config_text(config):
    """JSON with the long list of ids on one line."""
    text = json.dumps(config, indent=2)
    start = text.index('"draft_vocabulary": [')
    end = text.index("]", start)
    return text[:start] + " ".join(text[start:end].split()) + text[end:] + "\n"


def write_gguf(path, config, weights, kind):
    """A GGUF file of architecture `dflash`, with matrices of the type `kind`; target layers are
    named by their inputs there."""
    own = config["dflash_config"]
    w = gguf.GGUFWriter(path, "dflash")
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_rope_freq_base(float(config["rope_theta"]))
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(config["vocab_size"])
    w.add_uint32("dflash.block_size", config["block_size"])
    w.add_array("dflash.target_layers", [tap + 1 for tap in own["target_layer_ids"]])
    w.add_uint32("tokenizer.ggml.mask_token_id", own["mask_token_id"])
    w.add_array("dflash.draft_vocabulary", own["draft_vocabulary"])
    for key in ("selector_rank", "selector_top_k"):
        if key in own:
            w.add_uint32(f"dflash.{key}", own[key])
    w.add_string("dflash.config", json.dumps(config))
    w.add_string("dflash.training", json.dumps(config.get("training", {})))
    for name, tensor in weights.items():
        numbers = tensor.float().numpy()
        if numbers.ndim == 2 and numbers.shape[1] % 32 == 0:
            w.add_tensor(gguf_name(name), gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            w.add_tensor(gguf_name(name), numbers)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write(out, config, weights, kind):
    """All three files; `weights` are for taps as they are."""
    weights = {name: tensor.to(torch.float16).contiguous() for name, tensor in weights.items()}
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(config_text(config))
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    write_gguf(out / "model.gguf", config, weights, kind)
    for file in ("model.safetensors", "model.gguf"):
        data = (out / file).read_bytes()
        print(f"{out / file}: {len(data) / 1e6:.1f} MB, sha256 {hashlib.sha256(data).hexdigest()}")


def averaged(weights, start, share):
    """`share` of `weights` and the rest of the draft `start`; both for taps as they are."""
    taps = weights["fc.weight"].shape[1] // weights["fc.weight"].shape[0]
    before = read(start, torch.ones(taps))
    return {name: share * tensor + (1 - share) * before.get(name, tensor) for name, tensor in weights.items()}


def main(run, out, start=None, share="1"):
    state = torch.load(pathlib.Path(run) / "state.pt", weights_only=False, map_location="cpu")
    draft = Draft(state["config"])
    draft.load_state_dict(state["weights"])
    weights = draft.published(Target(state["arguments"]["target"]).embedding)
    weights["fc.weight"] = scaled(weights["fc.weight"], state["scale"])
    if start:
        weights = averaged(weights, start, float(share))
    commit = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "HEAD"],
                            capture_output=True, text=True)
    history = [*state["config"].get("training", []), {
        **state["done"], "answer_tokens": state["tokens"], "commit": commit.stdout.strip(), "share": float(share),
        "settings": {k: v for k, v in state["arguments"].items() if k not in ("target", "data", "held", "out", "start")},
    }]
    kinds = gguf.GGMLQuantizationType
    kind = kinds.Q4_1 if state["arguments"].get("rounded") == "True" else kinds.Q8_0
    write(out, {**state["config"], "dtype": "float16", "training": history}, weights, kind)


if __name__ == "__main__":
    main(*sys.argv[1:])
