//! Parsing of a GGUF file's header, every step checked against the end of the file.

use super::{Kind, TensorInfo, Value, integer};
use crate::model::weights::byte_len;
use anyhow::{Context, Result, bail};
use candle_core::quantized::GgmlDType;
use std::collections::BTreeMap;
use std::ops::Range;

/// More metadata entries or tensors than any real file has.
const MAX_ENTRIES: u64 = 1 << 16;
/// More values in an array than any tokenizer has entries or merges. In memory a value takes more
/// than in the file: a byte becomes an integer of eight, an empty string three of them.
const MAX_ARRAY: usize = 1 << 22;
/// Longest key or tensor name.
const MAX_NAME: u64 = 256;
/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

pub(super) type Parsed = (BTreeMap<String, Value>, BTreeMap<String, TensorInfo>);

/// Metadata and tensors of a file.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed> {
    let mut reader = Reader::new(bytes);
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
    check_overlap(&places, reader.bytes.len().saturating_sub(start))?;
    Ok(places)
}

/// Refuse tensors that take more than the `room` that the file has for them all. Each of them is
/// read into memory of its own, so that a small file could ask for any amount.
fn check_overlap(places: &BTreeMap<String, TensorInfo>, room: usize) -> Result<()> {
    let sum = places.values().fold(0usize, |sum, info| sum.saturating_add(info.range.len()));
    if sum > room {
        bail!("its tensors overlap: {sum} bytes in all, in {room}; the file is damaged");
    }
    Ok(())
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
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

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

    /// A string's place.
    pub(super) fn string(&mut self, longest: u64) -> Result<Range<usize>> {
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
        if n > MAX_ARRAY {
            bail!("an array of {n} values; the file is damaged");
        }
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
