"""The DFlash draft, for training: many blocks of a text at once.

Names and layout are those of the published `DFlashDraftModel` (arXiv 2602.06036): `fc` and
`hidden_norm` make the context of the target's tapped features; each layer's keys and values come
of the context and of the block itself; queries of the block only. The row of slot `i` predicts
the token at that slot.
"""
import torch
from torch import nn
from torch.nn import functional as F


def norm(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def as_stored(w):
    """`w` as a GGUF file in 4 bits (Q4_1) gives it back: runs of 32 numbers share the lowest one
    and a step. The gradient passes as if nothing had been rounded."""
    if w.shape[1] % 32:
        return w
    runs = w.detach().view(-1, 32)
    low = runs.amin(1, keepdim=True)
    step = (runs.amax(1, keepdim=True) - low) / 15
    levels = ((runs - low) / step.clamp(min=1e-12)).round()
    rounded = levels * step.half().float() + low.half().float()
    return w + (rounded.view_as(w) - w).detach()


class Linear(nn.Linear):
    """Without a bias, and rounded as it will be stored where `rounded` is set."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)
        self.rounded = False

    def forward(self, x):
        return F.linear(x, as_stored(self.weight) if self.rounded else self.weight)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, d = c["hidden_size"], c["head_dim"]
        self.heads, self.kv_heads, self.head_dim, self.eps = c["num_attention_heads"], c["num_key_value_heads"], d, c["rms_norm_eps"]
        self.q_proj = Linear(width, self.heads * d)
        self.k_proj = Linear(width, self.kv_heads * d)
        self.v_proj = Linear(width, self.kv_heads * d)
        self.o_proj = Linear(self.heads * d, width)
        self.q_norm, self.k_norm = nn.RMSNorm(d, c["rms_norm_eps"]), nn.RMSNorm(d, c["rms_norm_eps"])

    def keys(self, x, turn):
        n, rows, _ = x.shape
        k = self.k_norm(self.k_proj(x).view(n, rows, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.v_proj(x).view(n, rows, self.kv_heads, self.head_dim).transpose(1, 2)
        return rotate(k, turn), v

    def forward(self, x, context, turns, mask):
        n, rows, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(n, rows, self.heads, self.head_dim)).transpose(1, 2)
        q = rotate(q, turns[1])
        (kc, vc), (kb, vb) = self.keys(context, turns[0]), self.keys(x, turns[1])
        k, v = torch.cat([kc, kb], 2), torch.cat([vc, vb], 2)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(mixed.transpose(1, 2).reshape(n, rows, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = Linear(width, inner), Linear(width, inner)
        self.down_proj = Linear(inner, width)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, context, turns, mask):
        x = x + self.self_attn(self.input_layernorm(x), context, turns, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


def angles(c, positions):
    """cos and sin of the rotary embedding, [n, 1, rows, head_dim]."""
    d = c["head_dim"]
    frequency = c["rope_theta"] ** -(torch.arange(0, d, 2, dtype=torch.float64, device=positions.device) / d)
    turn = (positions.double()[..., None] * frequency).float()
    turn = torch.cat([turn, turn], -1)[:, None]
    return turn.cos(), turn.sin()


def rotate(x, turn):
    cos, sin = turn
    half = x.shape[-1] // 2
    return x * cos.to(x.dtype) + torch.cat([-x[..., half:], x[..., :half]], -1) * sin.to(x.dtype)


class Draft(nn.Module):
    """`c` is the draft's config.json."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        width, taps = c["hidden_size"], len(c["dflash_config"]["target_layer_ids"])
        self.fc = Linear(width * taps, width)
        self.hidden_norm, self.norm = nn.RMSNorm(width, c["rms_norm_eps"]), nn.RMSNorm(width, c["rms_norm_eps"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))

    def start_from(self, target):
        """Layers begin as the target's last ones, where they are alike; the context as its last tap."""
        count, width = len(self.layers), self.c["hidden_size"]
        first = target.config["num_target_layers"] - count
        for i, layer in enumerate(self.layers):
            theirs = target.layer(first + i)
            layer.load_state_dict(theirs, strict=False)
            # Scores are about as large as without these norms.
            if theirs and "self_attn.q_norm.weight" not in theirs:
                nn.init.constant_(layer.self_attn.q_norm.weight, 1.4)
                nn.init.constant_(layer.self_attn.k_norm.weight, 1.4)
        with torch.no_grad():
            self.norm.weight.copy_(target.norm)
            middle = target.layer(first + count // 2)
            if middle:
                self.hidden_norm.weight.copy_(middle["input_layernorm.weight"])
            nn.init.normal_(self.fc.weight, std=0.01)
            self.fc.weight[:, -width:] += torch.eye(width)

    def round_weights(self):
        """From now on compute, and learn, with weights as they will be stored."""
        for part in self.modules():
            if isinstance(part, Linear):
                part.rounded = True

    def forward(self, blocks, scale, embedding):
        """The normed hidden rows of the slots after the anchor, [n, a, b-1, hidden].

        `scale` [taps] evens out the taps' sizes; `export` folds it into `fc`.
        """
        n, a, b = blocks.ids.shape
        width = self.c["hidden_size"]
        device = embedding.device
        features = blocks.features.to(device)
        length = features.shape[1]
        scaled = (features.view(n, length, -1, width) * scale[:, None]).view(n, length, -1)
        context = self.hidden_norm(self.fc(scaled.to(self.fc.weight.dtype)))
        ids = torch.full((n, a, b), self.c["dflash_config"]["mask_token_id"], device=device)
        ids[..., 0] = blocks.ids[..., 0].to(device)
        x = F.embedding(ids.view(n, a * b), embedding)
        anchors = blocks.anchors.to(device)
        positions = (anchors[..., None] + torch.arange(b, device=device)).view(n, a * b)
        before = torch.arange(length, device=device).expand(n, length)
        turns = angles(self.c, before), angles(self.c, positions)
        # A block sees the positions before its anchor, and itself.
        context_seen = before[:, None] < anchors.repeat_interleave(b, 1)[..., None]
        block = torch.arange(a, device=device).repeat_interleave(b)
        own = (block[:, None] == block[None]).expand(n, a * b, a * b)
        mask = torch.cat([context_seen, own], 2)[:, None]
        for layer in self.layers:
            x = layer(x, context, turns, mask)
        return self.norm(x).view(n, a, b, width)[:, :, 1:]
