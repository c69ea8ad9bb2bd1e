"""Measure llama.cpp, through its Python package, on a GGUF file.

    pip install llama-cpp-python        # CMAKE_ARGS="-DGGML_NATIVE=ON" builds it for this machine
    python3 benches/peer_llama_cpp.py FILE.gguf --threads 2

The figures are the peer's side of the comparison in the README: plain decoding after 128 and
4096 tokens of context, prefill of 512 tokens, and one forward of 1 to 16 rows with the logits of
all rows, which is what verification costs. Every figure is the median of --repeat samples, with
the smallest and the largest beside it; a first sample is not counted. Samples of the different row counts alternate, so that a
busy moment of the machine touches all of them.
"""

import argparse
import json
import statistics
import sys
import time

import llama_cpp
import numpy as np

ROWS = (1, 2, 4, 8, 16)


class Runner:
    """One context on one model; sequence 0 only."""

    def __init__(self, path, threads, context):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit(f"llama.cpp cannot make a context of {context} positions")
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)

    def forward(self, ids, position, all_logits):
        """Pass `ids` (512 at most) through the model at `position`; returns seconds."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for row, token in enumerate(ids):
            batch.token[row] = int(token)
            batch.pos[row] = position + row
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = all_logits or row == len(ids) - 1
        start = time.perf_counter()
        status = llama_cpp.llama_decode(self.context, batch)
        llama_cpp.llama_synchronize(self.context)
        seconds = time.perf_counter() - start
        if status != 0:
            sys.exit(f"llama_decode returned {status} for {len(ids)} rows at position {position}")
        return seconds

    def prefill(self, ids, position=0):
        """Pass any number of tokens through the model, 512 a pass."""
        for start in range(0, len(ids), 512):
            self.forward(ids[start : start + 512], position + start, all_logits=False)

    def choice(self):
        """The greedy choice after the last row."""
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab,)).argmax())

    def rewind(self, length):
        """Forget all positions from `length` on."""
        memory = llama_cpp.llama_get_memory(self.context)
        llama_cpp.llama_memory_seq_rm(memory, 0, length, -1)


def decode(runner, prompt, tokens, repeat):
    """Seconds a token of greedy decoding after `prompt`, one sample a repetition."""
    runner.rewind(0)
    runner.prefill(prompt)
    first = runner.choice()
    samples = []
    for turn in range(repeat + 1):
        token = first
        start = time.perf_counter()
        for step in range(tokens):
            runner.forward([token], len(prompt) + step, all_logits=False)
            token = runner.choice()
        if turn > 0:
            samples.append((time.perf_counter() - start) / tokens)
        runner.rewind(len(prompt))
    return samples


def prefill(runner, ids, repeat):
    """Seconds for one pass over `ids` from an empty cache."""
    samples = []
    for _ in range(repeat + 1):
        runner.rewind(0)
        samples.append(runner.forward(ids, 0, all_logits=False))
    return samples[1:]


def rows(runner, prompt, ids, repeat):
    """Seconds for a forward of each number of rows with all their logits, after `prompt`."""
    runner.rewind(0)
    runner.prefill(prompt)
    samples = {count: [] for count in ROWS}
    for turn in range(repeat + 1):
        for count in ROWS:
            seconds = runner.forward(ids[:count], len(prompt), all_logits=True)
            runner.rewind(len(prompt))
            if turn > 0:
                samples[count].append(seconds)
    return samples


def summary(samples, scale):
    """Median, smallest and largest of `scale(sample)`."""
    values = sorted(scale(sample) for sample in samples)
    return {"median": statistics.median(values), "min": values[0], "max": values[-1], "samples": len(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5, help="samples a figure (rows: four times as many)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens decoded a sample")
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 4096], help="depths of plain decoding")
    parser.add_argument("--format", choices=["table", "json"], default="table")
    args = parser.parse_args()

    llama_cpp.llama_backend_init()
    # Without this llama.cpp writes its loading report to stderr.
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    runner = Runner(args.file, args.threads, max(max(args.contexts), 512) + args.tokens + 16)
    # What the tokens are does not change the time; these only have to exist and to differ.
    ids = np.random.default_rng(1).integers(min(1000, runner.vocab // 2), runner.vocab, max(args.contexts) + 512)

    figures = {}
    for context in args.contexts:
        samples = decode(runner, ids[:context], args.tokens, args.repeat)
        figures[f"decode tok/s at {context}"] = summary(samples, lambda s: 1 / s)
    figures["prefill tok/s, 512 tokens"] = summary(prefill(runner, ids[:512], args.repeat), lambda s: 512 / s)
    by_rows = rows(runner, ids[:128], ids[128:], 4 * args.repeat)
    for count in ROWS:
        figures[f"forward ms, rows {count}"] = summary(by_rows[count], lambda s: 1000 * s)
    one = figures["forward ms, rows 1"]["median"]
    ratios = {count: figures[f"forward ms, rows {count}"]["median"] / one for count in ROWS}

    if args.format == "json":
        json.dump(
            {
                "package": f"llama-cpp-python {llama_cpp.__version__}",
                "system": llama_cpp.llama_print_system_info().decode(),
                "file": args.file,
                "threads": args.threads,
                "figures": figures,
                "rows_ratio": ratios,
            },
            sys.stdout,
            indent=1,
        )
        print()
        return
    print(f"llama-cpp-python {llama_cpp.__version__}, {args.threads} threads, {args.file}")
    for name, figure in figures.items():
        ratio = ""
        if name.startswith("forward"):
            ratio = f"   {figure['median'] / one:5.2f} x one row"
        print(f"  {name:28} {figure['median']:9.2f}  ({figure['min']:.2f} to {figure['max']:.2f}, {figure['samples']}){ratio}")


if __name__ == "__main__":
    main()
