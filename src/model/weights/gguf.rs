//! GGUF files: metadata and tensors.
//!
//! Layout (versions 2 and 3, little-endian): magic, version, counts of tensors and of metadata
//! entries; the entries (key, type, value); the tensors' names, shapes, types and offsets; then,
//! aligned, the numbers. Parsing keeps no copies of values: an entry remembers where its value
//! lies in the file, so that a token table of 260,000 strings costs nothing until asked for.

use super::{Bytes, RawTensor, byte_len};
use anyhow::{Context, Result, bail};
use candle_core::quantized::GgmlDType;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// More metadata entries or tensors than any real file has.
const MAX_ENTRIES: u64 = 1 << 16;
/// Longest key or tensor name.
const MAX_NAME: u64 = 256;
/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

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
        let (values, tensors) =
            parse(&bytes).with_context(|| format!("{name} is not a GGUF file that can be read"))?;
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
                let mut reader = Reader { bytes: self.at(range), at: 0 };
                let mut strings = Vec::with_capacity(*n);
                for _ in 0..*n {
                    let range = reader.string(u64::MAX)?;
                    strings.push(&reader.bytes[range]);
                }
                Ok(Some(strings))
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

type Parsed = (BTreeMap<String, Value>, BTreeMap<String, TensorInfo>);

fn parse(bytes: &[u8]) -> Result<Parsed> {
    let mut reader = Reader { bytes, at: 0 };
    if reader.take(4)? != b"GGUF" {
        bail!("it does not begin with the letters GGUF");
    }
    match reader.u32()? {
        2 | 3 => {}
        1 => bail!("it has GGUF version 1, which is no longer written; convert the model again"),
        v if v.swap_bytes() <= 3 => bail!("it is in big-endian byte order"),
        v => bail!("it has GGUF version {v}; versions 2 and 3 are supported"),
    }
    let tensors = reader.u64()?;
    let entries = reader.u64()?;
    if tensors > MAX_ENTRIES || entries > MAX_ENTRIES {
        bail!("its header claims {tensors} tensors and {entries} metadata entries; it is damaged");
    }
    let values = parse_values(&mut reader, entries)?;
    let tensors = parse_tensors(&mut reader, tensors, alignment(bytes, &values)?)?;
    Ok((values, tensors))
}

fn parse_values(reader: &mut Reader<'_>, entries: u64) -> Result<BTreeMap<String, Value>> {
    let mut values = BTreeMap::new();
    for _ in 0..entries {
        let key = reader.name()?;
        let kind = reader.kind(&key)?;
        let value = if kind == Kind::Array {
            let kind = reader.kind(&key)?;
            let n = usize::try_from(reader.u64()?).context("an array is too long")?;
            let range = reader.array(kind, n).with_context(|| format!("in metadata {key}"))?;
            Value::Array(kind, n, range)
        } else {
            let range = match kind.width() {
                Some(width) => reader.skip(width)?,
                None => reader.string(u64::MAX)?,
            };
            Value::Scalar(kind, range)
        };
        if values.insert(key.clone(), value).is_some() {
            bail!("metadata {key} is there twice; the file is damaged");
        }
    }
    Ok(values)
}

/// `general.alignment`, 32 unless the file says otherwise.
fn alignment(bytes: &[u8], values: &BTreeMap<String, Value>) -> Result<usize> {
    let alignment = match values.get("general.alignment") {
        None => 32,
        Some(Value::Scalar(kind, range)) => integer(*kind, &bytes[range.clone()]).unwrap_or(0),
        Some(Value::Array(..)) => 0,
    };
    match usize::try_from(alignment) {
        // At least 8, as the format asks for: blocks are read in place.
        Ok(a) if a.is_power_of_two() && (8..=1 << 20).contains(&a) => Ok(a),
        _ => bail!("general.alignment is not a power of two from 8 to 2^20; the file is damaged"),
    }
}

fn parse_tensors(
    reader: &mut Reader<'_>,
    count: u64,
    alignment: usize,
) -> Result<BTreeMap<String, TensorInfo>> {
    let mut places = BTreeMap::new();
    for _ in 0..count {
        let name = reader.name()?;
        let dims = reader.u32()?;
        if dims == 0 || dims > MAX_DIMS {
            bail!("tensor {name} has {dims} dimensions; the file is damaged");
        }
        let mut shape = Vec::with_capacity(MAX_DIMS as usize);
        for _ in 0..dims {
            shape.push(usize::try_from(reader.u64()?).context("a dimension is too large")?);
        }
        // The file lists the innermost dimension first.
        shape.reverse();
        let dtype = dtype(&name, reader.u32()?)?;
        let len = byte_len(&name, &shape, dtype)?;
        let offset = usize::try_from(reader.u64()?).context("an offset is too large")?;
        if offset % alignment != 0 {
            bail!("tensor {name} begins at {offset}, not a multiple of {alignment}");
        }
        let info = TensorInfo { shape, dtype, range: offset..offset.saturating_add(len) };
        if places.insert(name.clone(), info).is_some() {
            bail!("tensor {name} is there twice; the file is damaged");
        }
    }
    let start = reader.at.next_multiple_of(alignment);
    for (name, info) in &mut places {
        let end = start.checked_add(info.range.end).filter(|&end| end <= reader.bytes.len());
        let Some(end) = end else {
            bail!(
                "tensor {name} lies beyond the file's end ({} bytes); the file is cut short: \
                 download it again",
                reader.bytes.len()
            );
        };
        info.range = start + info.range.start..end;
    }
    Ok(places)
}

/// The type of a tensor from its number in `ggml.h`.
fn dtype(tensor: &str, id: u32) -> Result<GgmlDType> {
    Ok(match id {
        0 => GgmlDType::F32,
        1 => GgmlDType::F16,
        2 => GgmlDType::Q4_0,
        3 => GgmlDType::Q4_1,
        6 => GgmlDType::Q5_0,
        7 => GgmlDType::Q5_1,
        8 => GgmlDType::Q8_0,
        10 => GgmlDType::Q2K,
        11 => GgmlDType::Q3K,
        12 => GgmlDType::Q4K,
        13 => GgmlDType::Q5K,
        14 => GgmlDType::Q6K,
        30 => GgmlDType::BF16,
        _ => {
            let name = match id {
                16 => "IQ2_XXS",
                17 => "IQ2_XS",
                18 => "IQ3_XXS",
                19 => "IQ1_S",
                20 => "IQ4_NL",
                21 => "IQ3_S",
                22 => "IQ2_S",
                23 => "IQ4_XS",
                29 => "IQ1_M",
                34 => "TQ1_0",
                35 => "TQ2_0",
                39 => "MXFP4",
                _ => "unknown",
            };
            bail!(
                "tensor {tensor} is of type {name} ({id}); take a file in Q4_0, Q4_1, Q5, Q8_0, \
                 a K type, F16, BF16 or F32"
            )
        }
    })
}

/// Reads little-endian values in order; every step is checked against the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, n: usize) -> Result<Range<usize>> {
        let start = self.at;
        let end = start.checked_add(n).filter(|&end| end <= self.bytes.len());
        self.at = end.context("it ends in the middle; download it again")?;
        Ok(start..self.at)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let range = self.skip(n)?;
        Ok(&self.bytes[range])
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into()?))
    }

    fn string(&mut self, longest: u64) -> Result<Range<usize>> {
        let n = self.u64()?;
        if n > longest {
            bail!("a name of {n} bytes; the file is damaged");
        }
        self.skip(usize::try_from(n)?)
    }

    fn name(&mut self) -> Result<String> {
        let range = self.string(MAX_NAME)?;
        Ok(std::str::from_utf8(&self.bytes[range]).context("a name is not UTF-8")?.to_owned())
    }

    fn kind(&mut self, key: &str) -> Result<Kind> {
        let id = self.u32()?;
        Kind::from_id(id).with_context(|| format!("metadata {key} has unknown type {id}"))
    }

    /// Pass over `n` values.
    fn array(&mut self, kind: Kind, n: usize) -> Result<Range<usize>> {
        let start = self.at;
        match kind.width() {
            Some(width) => {
                self.skip(n.checked_mul(width).context("an array is too long")?)?;
            }
            None if kind == Kind::Text => {
                for _ in 0..n {
                    self.string(u64::MAX)?;
                }
            }
            None => bail!("arrays of arrays are not supported"),
        }
        Ok(start..self.at)
    }
}
