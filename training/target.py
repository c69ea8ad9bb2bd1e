"""What training needs of a target: its shape, embedding, head, final norm and last layers."""
import json
import pathlib

import numpy as np
import torch

# Others scale their embeddings, bend their logits or store norms in another way.
FAMILIES = ("llama", "qwen2", "qwen3")

PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


def check(family):
    if family not in FAMILIES:
        raise SystemExit(f"a target of the family {family} cannot be trained for; known are {', '.join(FAMILIES)}")


class Target:
    """Opens a GGUF file or a folder with config.json and safetensors."""

    def __init__(self, path):
        path = pathlib.Path(path)
        (self._open_gguf if path.suffix == ".gguf" else self._open_folder)(path)

    def _open_gguf(self, path):
        import gguf

        reader = gguf.GGUFReader(path)
        tensors = {t.name: t for t in reader.tensors}
        architecture = reader.fields["general.architecture"].contents()
        check(architecture)

        def key(name, default=None):
            field = reader.fields.get(f"{architecture}.{name}")
            return default if field is None else field.contents()

        heads = key("attention.head_count")
        hidden = key("embedding_length")
        self.config = {
            "hidden_size": hidden, "intermediate_size": key("feed_forward_length"),
            "num_attention_heads": heads, "num_key_value_heads": key("attention.head_count_kv", heads),
            "head_dim": key("attention.key_length", hidden // heads), "rms_norm_eps": key("attention.layer_norm_rms_epsilon"),
            "rope_theta": key("rope.freq_base", 10000.0), "max_position_embeddings": key("context_length"),
            "num_target_layers": key("block_count"),
        }

        def read(name):
            t = tensors.get(name)
            if t is None:
                return None
            w = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
            # Llama's queries and keys lie with the two halves of a head interleaved.
            n = {"attn_q.weight": heads, "attn_k.weight": self.config["num_key_value_heads"]}.get(name.split(".", 2)[-1])
            if architecture == "llama" and n:
                w = w.reshape(n, w.shape[0] // n // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
            return torch.from_numpy(np.ascontiguousarray(w))

        self._read = lambda layer, part: read(f"blk.{layer}.{PARTS[part]}.weight")
        self.embedding, self.norm = read("token_embd.weight"), read("output_norm.weight")
        self.head = read("output.weight") if "output.weight" in tensors else self.embedding

    def _open_folder(self, path):
        from safetensors import safe_open

        c = json.loads((path / "config.json").read_text())
        check(c["model_type"])
        files = [safe_open(file, "pt") for file in sorted(path.glob("*.safetensors"))]
        where = {name: file for file in files for name in file.keys()}
        rope = c.get("rope_theta") or (c.get("rope_parameters") or {}).get("rope_theta", 10000.0)
        self.config = {
            "hidden_size": c["hidden_size"], "intermediate_size": c["intermediate_size"],
            "num_attention_heads": c["num_attention_heads"],
            "num_key_value_heads": c.get("num_key_value_heads", c["num_attention_heads"]),
            "head_dim": c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"],
            "rms_norm_eps": c["rms_norm_eps"], "rope_theta": rope,
            "max_position_embeddings": c["max_position_embeddings"], "num_target_layers": c["num_hidden_layers"],
        }

        def read(name):
            return where[name].get_tensor(name).float() if name in where else None

        self._read = lambda layer, part: read(f"model.layers.{layer}.{part}.weight")
        self.embedding, self.norm = read("model.embed_tokens.weight"), read("model.norm.weight")
        self.head = read("lm_head.weight") if "lm_head.weight" in where else self.embedding

    def layer(self, i):
        """The tensors of layer `i` by the names that a draft's layer has; absent ones are left out."""
        tensors = {part: self._read(i, part) for part in PARTS}
        return {f"{part}.weight": tensor for part, tensor in tensors.items() if tensor is not None}
