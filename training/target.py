"""What training needs of a target: its shape, embedding, head, final norm and last layers."""
import json
import pathlib

import numpy as np
import torch

# The program loads these.
PLAIN, GEMMA = ("llama", "qwen2", "qwen3"), ("gemma3", "gemma4")

PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


# What Gemma's config.json may leave out.
GEMMA_DEFAULTS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
                  "rope_theta": 1e6, "max_position_embeddings": 131072}

# Where a decoder's tensors begin in safetensors; files that hold more than text have longer names.
PREFIXES = ("model.", "language_model.model.", "model.language_model.")


def family_of(name):
    """`gemma4_unified_text` → `gemma4`."""
    family = next((family for family in PLAIN + GEMMA if name == family or name.startswith(family + "_")), None)
    if family is None:
        raise SystemExit(f"a target of the family {name} cannot be trained for; known are {', '.join(PLAIN + GEMMA)}")
    return family


def first(number):
    """Of a number that each layer may have its own of."""
    return number[0] if isinstance(number, list) else number


class Target:
    """Opens a GGUF file or a folder with config.json and safetensors.

    `embedding` [vocabulary, hidden] is as decoding uses it, Gemma's factor √hidden included; `head`
    and `norm` make logits, which are bent to ±`softcap` where that is not None. `config` has the
    fields that a draft takes over.
    """

    def __init__(self, path):
        path = pathlib.Path(path)
        (self._open_gguf if path.suffix == ".gguf" else self._open_folder)(path)

    def _open_gguf(self, path):
        import gguf

        reader = gguf.GGUFReader(path)
        tensors = {t.name: t for t in reader.tensors}
        architecture = reader.fields["general.architecture"].contents()
        self.family = family_of(architecture)

        def key(name, default=None):
            field = reader.fields.get(f"{architecture}.{name}")
            return default if field is None else field.contents()

        heads = first(key("attention.head_count"))
        hidden = key("embedding_length")
        width = key("attention.key_length", hidden // heads)
        self.config = {
            "hidden_size": hidden, "intermediate_size": first(key("feed_forward_length")),
            "num_attention_heads": heads, "num_key_value_heads": first(key("attention.head_count_kv", heads)),
            "head_dim": key("attention.key_length_swa", width), "rms_norm_eps": key("attention.layer_norm_rms_epsilon"),
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
        self.softcap = key("final_logit_softcapping") or None
        if self.family in GEMMA:
            self._scale_embedding(torch.float32)

    def _open_folder(self, path):
        from safetensors import safe_open

        whole = json.loads((path / "config.json").read_text())
        text = whole.get("text_config", whole)
        self.family = family_of(text["model_type"])
        c = (GEMMA_DEFAULTS if self.family in GEMMA else {}) | text
        files = [safe_open(file, "pt") for file in sorted(path.glob("*.safetensors"))]
        where = {name: file for file in files for name in file.keys()}
        prefix = next((prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in where), None)
        if prefix is None:
            raise SystemExit(f"{path} has no safetensors with a decoder's embedding (model.embed_tokens.weight)")
        rope = c.get("rope_parameters") or {}
        rope = rope.get("full_attention", rope)
        heads = c["num_attention_heads"]
        self.config = {
            "hidden_size": c["hidden_size"], "intermediate_size": c["intermediate_size"],
            "num_attention_heads": heads, "num_key_value_heads": c.get("num_key_value_heads", heads),
            "head_dim": c.get("head_dim") or c["hidden_size"] // heads, "rms_norm_eps": c["rms_norm_eps"],
            "rope_theta": rope.get("rope_theta") or c.get("rope_theta", 10000.0),
            "max_position_embeddings": c["max_position_embeddings"], "num_target_layers": c["num_hidden_layers"],
        }

        def read(name):
            return where[name].get_tensor(name).float() if name in where else None

        self._read = lambda layer, part: read(f"{prefix}layers.{layer}.{part}.weight")
        self.embedding, self.norm = read(f"{prefix}embed_tokens.weight"), read(f"{prefix}norm.weight")
        if self.family == "gemma3":
            self.norm = self.norm + 1
        head = next((name for name in ("lm_head.weight", "language_model.lm_head.weight") if name in where), None)
        self.head = read(head) if head else self.embedding
        self.softcap = c.get("final_logit_softcapping") or None
        if self.family in GEMMA:
            # The factor is rounded to the type that the model computes in.
            dtype = c.get("dtype") or c.get("torch_dtype") or whole.get("dtype") or whole.get("torch_dtype") or "bfloat16"
            self._scale_embedding(getattr(torch, dtype))

    def _scale_embedding(self, dtype):
        self.embedding = self.embedding * torch.tensor(self.config["hidden_size"] ** 0.5, dtype=dtype).float()

    def layer(self, i):
        """The tensors of layer `i` by the names that a draft's layer has; absent ones are left out.
        None of Gemma's, whose layers are built in another way."""
        if self.family in GEMMA:
            return {}
        tensors = {part: self._read(i, part) for part in PARTS}
        return {f"{part}.weight": tensor for part, tensor in tensors.items() if tensor is not None}
