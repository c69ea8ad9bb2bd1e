"""Write another quantisation of a GGUF file with llama.cpp's own quantiser.

    pip install llama-cpp-python
    python3 benches/requantise.py FILE.gguf OUT.gguf [--type Q4_0]

Used for the comparison with llama.cpp's fastest 4-bit type on the demo target. The file it starts
from is quantised already, so the result is for measuring speed, not for chatting.
"""

import argparse
import sys

import llama_cpp


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="a GGUF file")
    parser.add_argument("out", help="the file to write")
    parser.add_argument("--type", default="Q4_0", help="a name of llama.cpp's LLAMA_FTYPE_MOSTLY_ constants")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{args.type.upper()}", None)
    if ftype is None:
        sys.exit(f"llama.cpp knows no file type {args.type}")
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = ftype
    params.nthread = args.threads
    params.allow_requantize = True
    status = llama_cpp.llama_model_quantize(args.file.encode(), args.out.encode(), params)
    if status != 0:
        sys.exit(f"llama.cpp could not quantise {args.file} (status {status})")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
