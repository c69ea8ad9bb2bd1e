//! GGUF files: metadata and tensors.
//!
//! Layout (versions 2 and 3, little-endian): magic, version, counts of tensors and of metadata
//! entries; the entries (key, type, value); the tensors' names, shapes, types and offsets; then,
//! aligned, the numbers. Parsing keeps no copies of values: an entry remembers where its value
//! lies in the file, so that a token table of 260,000 strings costs nothing until asked for.

mod parse;

use super::{Bytes, RawTensor};
use anyhow::{Context, Result, bail};
use candle_core::quantized::GgmlDType;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// The types of a metadata value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    fn from_id(id: u32) -> Option<Self> {
        use Kind::*;
        [U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64]
            .get(usize::try_from(id).ok()?)
            .copied()
    }

    /// Bytes of a value, where that is fixed.
    fn width(self) -> Option<usize> {
        use Kind::*;
        match self {
            U8 | I8 | Bool => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            Text | Array => None,
        }
    }

    fn name(self) -> &'static str {
        use Kind::*;
        match self {
            U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64 => "an integer",
            F32 | F64 => "a float",
            Bool => "a bool",
            Text => "a string",
            Array => "an array",
        }
    }
}

/// Where a metadata value lies.
#[derive(Debug, Clone)]
enum Value {
    Scalar(Kind, Range<usize>),
    Array(Kind, usize, Range<usize>),
}

impl Value {
    fn describe(&self) -> String {
        match self {
            Self::Scalar(kind, _) => kind.name().to_owned(),
            Self::Array(kind, n, _) => format!("an array of {n} × {}", kind.name()),
        }
    }
}

/// A tensor's place in the file.
#[derive(Debug, Clone)]
struct TensorInfo {
    shape: Vec<usize>,
    dtype: GgmlDType,
    range: Range<usize>,
}

/// An open GGUF file. Its getters give `None` for a missing key and an error for a key of
/// another type; errors name the key, what was found and the file's architecture.
#[derive(Debug)]
pub struct GgufFile {
    bytes: Bytes,
    name: String,
    values: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl GgufFile {
    /// Map and parse a file.
    ///
    /// # Errors
    /// When the file cannot be read, or is no GGUF file, or is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_bytes(Bytes::map(path)?, &path.display().to_string())
    }

    /// Parse a file's bytes; `name` is for messages.
    ///
    /// # Errors
    /// When they are no GGUF file, or a damaged one.
    pub fn from_bytes(bytes: Bytes, name: &str) -> Result<Self> {
        let (values, tensors) = parse::parse(&bytes)
            .with_context(|| format!("{name} is not a GGUF file that can be read"))?;
        Ok(Self { bytes, name: name.to_owned(), values, tensors })
    }

    /// The file's name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `general.architecture`: `llama`, `qwen3`, `gemma3`, `dflash`.
    ///
    /// # Errors
    /// When the file does not say.
    pub fn architecture(&self) -> Result<&str> {
        self.text("general.architecture")?
            .with_context(|| format!("{} does not say its general.architecture", self.name))
    }

    /// Whether the key is there.
    pub fn has_key(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Whether the key is there with an array.
    pub fn is_array(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Value::Array(..)))
    }

    /// Entries of an array.
    pub fn array_len(&self, key: &str) -> Option<usize> {
        match self.values.get(key) {
            Some(Value::Array(_, n, _)) => Some(*n),
            _ => None,
        }
    }

    /// A string.
    ///
    /// # Errors
    /// When the value has another type or is not UTF-8.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Scalar(Kind::Text, range)) => std::str::from_utf8(self.at(range))
                .map(Some)
                .map_err(|_| self.wrong(key, "text", "bytes that are not UTF-8")),
            Some(other) => Err(self.wrong(key, "text", &other.describe())),
        }
    }

    /// A non-negative integer of any width.
    ///
    /// # Errors
    /// When the value has another type, is negative or does not fit.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Scalar(kind, range)) => integer(*kind, self.at(range))
                .and_then(|v| usize::try_from(v).ok())
                .map(Some)
                .ok_or_else(|| self.wrong(key, "a count", kind.name())),
            Some(other) => Err(self.wrong(key, "a count", &other.describe())),
        }
    }

    /// A token id.
    ///
    /// # Errors
    /// As [`GgufFile::count`].
    pub fn id(&self, key: &str) -> Result<Option<u32>> {
        self.count(key)?
            .map(|v| u32::try_from(v).map_err(|_| self.wrong(key, "a token id", &v.to_string())))
            .transpose()
    }

    /// A float, or an integer taken as one.
    ///
    /// # Errors
    /// When the value has another type.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Scalar(kind, range)) => float(*kind, self.at(range))
                .map(Some)
                .ok_or_else(|| self.wrong(key, "a number", kind.name())),
            Some(other) => Err(self.wrong(key, "a number", &other.describe())),
        }
    }

    /// A flag.
    ///
    /// # Errors
    /// When the value has another type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Scalar(Kind::Bool, range)) => Ok(Some(self.at(range) != [0])),
            Some(other) => Err(self.wrong(key, "a bool", &other.describe())),
        }
    }

    /// An array of integers.
    ///
    /// # Errors
    /// When the value has another type or an entry does not fit.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>> {
        self.numbers(key, "an array of integers", integer)
    }

    /// An array of floats (or integers taken as such).
    ///
    /// # Errors
    /// When the value has another type.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.numbers(key, "an array of numbers", |kind, bytes| float(kind, bytes).map(|v| v as f32))
    }

    /// An array of flags.
    ///
    /// # Errors
    /// When the value has another type.
    pub fn flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        self.numbers(key, "an array of bools", |kind, bytes| {
            (kind == Kind::Bool).then(|| bytes != [0])
        })
    }

    /// An array of strings, as bytes (they may not be UTF-8).
    ///
    /// # Errors
    /// When the value has another type.
    pub fn byte_strings(&self, key: &str) -> Result<Option<Vec<&[u8]>>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(Value::Array(Kind::Text, n, range)) => {
                let bytes = self.at(range);
                let mut reader = parse::Reader::new(bytes);
                (0..*n)
                    .map(|_| Ok(&bytes[reader.string(u64::MAX)?]))
                    .collect::<Result<_>>()
                    .map(Some)
            }
            Some(other) => Err(self.wrong(key, "an array of strings", &other.describe())),
        }
    }

    /// An array of strings.
    ///
    /// # Errors
    /// When the value has another type or one of the strings is not UTF-8.
    pub fn strings(&self, key: &str) -> Result<Option<Vec<&str>>> {
        let Some(strings) = self.byte_strings(key)? else { return Ok(None) };
        strings
            .into_iter()
            .map(std::str::from_utf8)
            .collect::<Result<_, _>>()
            .map(Some)
            .map_err(|_| self.wrong(key, "an array of text", "strings that are not UTF-8"))
    }

    /// A tensor.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn tensor(&self, name: &str) -> Result<RawTensor<'_>> {
        let Some(info) = self.tensors.get(name) else {
            bail!("{} has no tensor {name}", self.name);
        };
        Ok(RawTensor {
            name: name.to_owned(),
            shape: info.shape.clone(),
            dtype: info.dtype,
            bytes: Cow::Borrowed(self.at(&info.range)),
        })
    }

    /// Give back the memory that holds a tensor, until it is read again.
    pub fn release(&self, name: &str) {
        if let Some(info) = self.tensors.get(name) {
            self.bytes.release(info.range.clone());
        }
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// A tensor's shape, outermost first.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|info| info.shape.as_slice())
    }

    /// Names, types and bytes of all tensors.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, GgmlDType, u64)> {
        self.tensors.iter().map(|(name, t)| (name.as_str(), t.dtype, t.range.len() as u64))
    }

    fn at(&self, range: &Range<usize>) -> &[u8] {
        // Ranges were checked against the file's length when it was parsed.
        &self.bytes[range.clone()]
    }

    fn numbers<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl Fn(Kind, &[u8]) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        match self.values.get(key) {
            None => Ok(None),
            Some(value @ Value::Array(kind, _, range)) => kind
                .width()
                .and_then(|width| {
                    self.at(range).chunks_exact(width).map(|b| read(*kind, b)).collect()
                })
                .map(Some)
                .ok_or_else(|| self.wrong(key, wanted, &value.describe())),
            Some(other) => Err(self.wrong(key, wanted, &other.describe())),
        }
    }

    fn wrong(&self, key: &str, wanted: &str, found: &str) -> anyhow::Error {
        let architecture = match self.values.get("general.architecture") {
            Some(Value::Scalar(Kind::Text, range)) => String::from_utf8_lossy(self.at(range)),
            _ => Cow::Borrowed("unknown"),
        };
        anyhow::anyhow!(
            "{}: {key} should be {wanted} but is {found} (architecture {architecture})",
            self.name
        )
    }
}

fn integer(kind: Kind, bytes: &[u8]) -> Option<i64> {
    Some(match kind {
        Kind::U8 => i64::from(*bytes.first()?),
        Kind::I8 => i64::from(i8::from_le_bytes(bytes.try_into().ok()?)),
        Kind::U16 => i64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
        Kind::I16 => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        Kind::U32 => i64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        Kind::I32 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        Kind::U64 => i64::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()?,
        Kind::I64 => i64::from_le_bytes(bytes.try_into().ok()?),
        Kind::F32 | Kind::F64 | Kind::Bool | Kind::Text | Kind::Array => return None,
    })
}

fn float(kind: Kind, bytes: &[u8]) -> Option<f64> {
    match kind {
        Kind::F32 => Some(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))),
        Kind::F64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        _ => integer(kind, bytes).map(|v| v as f64),
    }
}
