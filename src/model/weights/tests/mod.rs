//! Files good, damaged and hostile.

mod gguf;
mod pairs;
mod safetensors;
