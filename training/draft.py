"""The DFlash draft, for training: many blocks of a text at once.

Names and layout are those of the published `DFlashDraftModel` (arXiv 2602.06036): `fc` and
`hidden_norm` make the context of the target's tapped features; each layer's keys and values come
of the context and of the block itself; queries of the block only. The row of slot `i` predicts
the token at that slot. Where the config has one, `DFlash2DraftModel`'s candidate selector is there
(`Selector`); its convolutions are not (README.md says what they brought).
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


class Selector(nn.Module):
    """DFlash 2's candidate selector. A slot's row does not know what the slots before it became;
    the score of token `b` after token `a` adds that: logit(b) + ⟨A[a] ⊙ H(row), B[b]⟩.

    Codebooks A and B have a row for each id of the draft's vocabulary. They are learnt as a table
    and as a map of the target's embedding together, so that rare tokens profit of what is learnt
    of others; `export` writes the sum.
    """

    def __init__(self, c):
        super().__init__()
        own, width = c["dflash_config"], c["hidden_size"]
        rank, rows = own["selector_rank"], len(own["draft_vocabulary"])
        self.candidates = own["selector_top_k"]
        self.hidden_projection = Linear(width, rank)
        self.predecessor_codebook = nn.Parameter(torch.zeros(rows, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(rows, rank))
        self.predecessor_map = nn.Parameter(torch.zeros(width, rank))
        self.successor_map = nn.Parameter(torch.zeros(width, rank))
        self.rounded = False

    def start(self):
        """Scores of pairs begin at zero, and can grow."""
        nn.init.normal_(self.predecessor_map, std=self.predecessor_map.shape[0] ** -0.5)
        nn.init.normal_(self.hidden_projection.weight, std=0.1 * self.hidden_projection.weight.shape[1] ** -0.5)

    def codebooks(self, rows):
        """A and B; `rows` are the vocabulary's rows of the embedding."""
        rows = F.rms_norm(rows, rows.shape[-1:])
        books = self.predecessor_codebook + rows @ self.predecessor_map, self.successor_codebook + rows @ self.successor_map
        return tuple(as_stored(book) for book in books) if self.rounded else books

    def scores(self, hidden, before, books):
        """What pairs add to the logits, [..., vocabulary], after tokens `before` (places in the
        vocabulary; -1 for tokens outside of it, to which nothing is added)."""
        known = (before >= 0)[..., None]
        query = self.hidden_projection(hidden) * F.embedding(before.clamp(min=0), books[0])
        return F.linear(torch.where(known, query, 0), books[1])

    def walk(self, hidden, logits, anchors, books):
        """Fill slot after slot with the best of its likeliest candidates, after what the slot
        before became. All are places in the vocabulary: of `anchors` [...] and the result [..., slots]."""
        before, path = anchors, []
        for slot in range(logits.shape[-2]):
            likeliest, candidates = logits[..., slot, :].topk(min(self.candidates, logits.shape[-1]), -1)
            pairs = self.scores(hidden[..., slot, :], before, books).gather(-1, candidates)
            before = candidates.gather(-1, (likeliest + pairs).argmax(-1, keepdim=True))[..., 0]
            path.append(before)
        return torch.stack(path, -1)


class Draft(nn.Module):
    """`c` is the draft's config.json."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        width, taps = c["hidden_size"], len(c["dflash_config"]["target_layer_ids"])
        self.fc = Linear(width * taps, width)
        self.hidden_norm, self.norm = nn.RMSNorm(width, c["rms_norm_eps"]), nn.RMSNorm(width, c["rms_norm_eps"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.candidate_selector = Selector(c) if c["dflash_config"].get("selector_rank") else None

    def start_from(self, target):
        """Layers begin as the target's last ones, where they are alike; the context as its last tap."""
        if self.candidate_selector:
            self.candidate_selector.start()
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

    def begin_with(self, weights):
        """Take over those of a draft, which may have no selector yet."""
        if self.candidate_selector and "candidate_selector.predecessor_codebook" not in weights:
            self.candidate_selector.start()
        self.load_state_dict(self.state_dict() | weights)

    def published(self, embedding):
        """The weights as published drafts have them; `embedding` is the target's."""
        weights = {name: tensor.detach() for name, tensor in self.state_dict().items() if not name.endswith("_map")}
        if self.candidate_selector:
            books = self.candidate_selector.codebooks(embedding[self.c["dflash_config"]["draft_vocabulary"]])
            for name, book in zip(("predecessor", "successor"), books):
                weights[f"candidate_selector.{name}_codebook"] = book.detach()
        return weights

    def round_weights(self):
        """From now on compute, and learn, with weights as they will be stored."""
        for part in self.modules():
            if isinstance(part, (Linear, Selector)):
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

    def choose(self, hidden, anchors, head, rows):
        """What the slots are filled with, [n, a, b-1]. These and `anchors` [n, a] are places in the
        draft's vocabulary, whose rows of the target's head and embedding are given."""
        logits = F.linear(hidden, head)
        if self.candidate_selector is None:
            return logits.argmax(-1)
        return self.candidate_selector.walk(hidden, logits, anchors, self.candidate_selector.codebooks(rows))
