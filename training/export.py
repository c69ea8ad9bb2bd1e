"""Write a run's draft in the published DFlash layout: config.json and model.safetensors.

usage: export.py RUN OUT_DIR
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file


def scaled(fc, scale):
    """`fc` for taps that are multiplied by `scale` before."""
    width = fc.shape[1] // len(scale)
    return (fc.view(fc.shape[0], -1, width) * scale[None, :, None]).reshape(fc.shape)


def read(folder, scale):
    """The weights of a draft's folder, for training with taps multiplied by `scale`."""
    weights = {name: tensor.float() for name, tensor in load_file(pathlib.Path(folder) / "model.safetensors").items()}
    weights["fc.weight"] = scaled(weights["fc.weight"], 1 / scale)
    return weights


def config_text(config):
    """JSON with the long list of ids on one line."""
    text = json.dumps(config, indent=2)
    start = text.index('"draft_vocabulary": [')
    end = text.index("]", start)
    return text[:start] + " ".join(text[start:end].split()) + text[end:] + "\n"


def main(run, out):
    state = torch.load(pathlib.Path(run) / "state.pt", weights_only=False, map_location="cpu")
    weights = dict(state["weights"])
    weights["fc.weight"] = scaled(weights["fc.weight"], state["scale"])
    weights = {name: tensor.to(torch.float16).contiguous() for name, tensor in weights.items()}
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())
    config = {**state["config"], "dtype": "float16"}
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(config_text(config))
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    print(f"{out}: {sum(t.numel() for t in weights.values())} weights after {state['done']['blocks']} blocks")


if __name__ == "__main__":
    main(*sys.argv[1:])
