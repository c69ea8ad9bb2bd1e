//! The operations in candle, for any device that candle has: Metal, CUDA, and the CPU (there
//! only to compare with [`super::cpu`]).
//!
//! Activations are f32 tensors `[rows, width]`. Quantised matrices stay quantised; dense ones
//! are kept as their file has them, and their input is cast for the product. The libraries
//! choose the order of sums by shape here, so that a row's last bits may depend on how many
//! rows stand beside it.

use super::{
    Activation, AttentionSpec, Choice, HeadNorms, Ops, Quantise, RopeTable, TAKE_BACK, Visibility,
    kept_positions,
};
use crate::model::weights::RawTensor;
use anyhow::{Context, Result, ensure};
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{D, DType, Device, IndexOp, Module, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// The operations on one of candle's devices.
#[derive(Debug)]
pub struct DeviceOps {
    device: Device,
    quantise: Quantise,
}

/// A matrix: parts whose outputs stand side by side.
#[derive(Debug)]
pub struct Linear {
    parts: Vec<Matrix>,
    bias: Option<Tensor>,
    shape: (usize, usize),
    bytes: u64,
    /// For a quantised table: its rows on the CPU, where single rows can be read.
    table: Option<RawTensor<'static>>,
}

#[derive(Debug)]
enum Matrix {
    Quantised(QMatMul),
    Dense(Tensor),
}

/// An RMS norm.
#[derive(Debug)]
pub struct Norm {
    weight: Tensor,
    eps: f32,
}

/// Keys and values `[1, kv_heads, room, head_dim]` of the positions from `first` to `len`.
#[derive(Debug)]
pub struct Cache {
    keys: Tensor,
    values: Tensor,
    /// What was before is forgotten.
    first: usize,
    len: usize,
    capacity: usize,
    /// How far queries look back, themselves included.
    window: Option<usize>,
}

/// Cosines and sines `[positions, head_dim / 2]`.
#[derive(Debug)]
pub struct Rope {
    cos: Tensor,
    sin: Tensor,
}

/// Positions by which a cache grows.
const GROWTH: usize = 512;

impl DeviceOps {
    /// Operations on `device`.
    pub fn new(device: Device, quantise: Quantise) -> Self {
        DeviceOps { device, quantise }
    }

    fn matrix(&self, part: &RawTensor<'_>) -> Result<(Matrix, u64)> {
        let dense = matches!(part.dtype, GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16);
        let small = |bits: usize| 8 * part.dtype.type_size() <= bits * part.dtype.block_size();
        let wanted = match self.quantise {
            Quantise::None => None,
            Quantise::AsStored if dense => None,
            Quantise::AsStored => Some(part.dtype),
            // What has as few bits already would only lose by being rounded again.
            Quantise::Q8 if small(9) => Some(part.dtype),
            Quantise::Q4 if small(5) => Some(part.dtype),
            Quantise::Q8 => Some(GgmlDType::Q8_0),
            Quantise::Q4 => Some(GgmlDType::Q4_0),
        };
        let width = part.shape.last().copied().unwrap_or(0);
        let wanted = wanted.filter(|dtype| width % dtype.block_size() == 0);
        match wanted {
            Some(dtype) => {
                let tensor = if dtype == part.dtype {
                    part.to_qtensor(&self.device)?
                } else {
                    let dense =
                        Tensor::from_vec(part.to_f32()?, part.shape.as_slice(), &Device::Cpu)?;
                    QTensor::quantize_onto(&dense, dtype, &self.device)?
                };
                let bytes = tensor.storage_size_in_bytes() as u64;
                Ok((Matrix::Quantised(QMatMul::QTensor(Arc::new(tensor))), bytes))
            }
            None => {
                // f32 on the CPU, whose products have no fast 16-bit form.
                let dtype = match part.dtype {
                    GgmlDType::BF16 if !self.device.is_cpu() => DType::BF16,
                    GgmlDType::F16 if !self.device.is_cpu() => DType::F16,
                    _ => DType::F32,
                };
                let tensor = Tensor::from_vec(part.to_f32()?, part.shape.as_slice(), &Device::Cpu)?
                    .to_dtype(dtype)?
                    .to_device(&self.device)?;
                let bytes = (tensor.elem_count() * dtype.size_in_bytes()) as u64;
                Ok((Matrix::Dense(tensor), bytes))
            }
        }
    }

    fn heads(&self, rows: &Tensor, heads: usize, head_dim: usize) -> Result<Tensor> {
        let n = rows.dim(0)?;
        Ok(rows.reshape((1, n, heads, head_dim))?.transpose(1, 2)?.contiguous()?)
    }

    fn turn(&self, x: &Tensor, rope: &Rope, position: usize) -> Result<Tensor> {
        let n = x.dim(2)?;
        let cos = rope.cos.narrow(0, position, n)?;
        let sin = rope.sin.narrow(0, position, n)?;
        Ok(candle_nn::rotary_emb::rope(x, &cos, &sin)?)
    }

    fn head_norm(&self, x: &Tensor, norm: Option<&Norm>) -> Result<Tensor> {
        match norm {
            Some(norm) => Ok(candle_nn::ops::rms_norm(&x.contiguous()?, &norm.weight, norm.eps)?),
            None => Ok(x.clone()),
        }
    }

    /// What `append` and `attend` do with keys and values.
    fn store(
        &self,
        (keys, values): (&Tensor, &Tensor),
        spec: &AttentionSpec,
        norms: &HeadNorms<Self>,
        rope: &Rope,
        cache: &mut Cache,
        position: usize,
    ) -> Result<()> {
        ensure!(
            position == cache.len,
            "rows for position {position} do not continue a cache of {} positions",
            cache.len
        );
        let keys = self.heads(keys, spec.kv_heads, spec.head_dim)?;
        let mut values = match spec.values_are_keys {
            true => keys.clone(),
            false => self.heads(values, spec.kv_heads, spec.head_dim)?,
        };
        if let Some(eps) = spec.value_norm {
            let one = Tensor::ones(spec.head_dim, DType::F32, &self.device)?;
            values = candle_nn::ops::rms_norm(&values.contiguous()?, &one, eps)?;
        }
        let keys = self.turn(&self.head_norm(&keys, norms.k.as_ref())?, rope, position)?;
        cache.append(&keys, &values)
    }

    /// 0 where a row may look, −∞ where not, by row and key of `keys`; `None` where all may.
    fn mask(
        &self,
        spec: &AttentionSpec,
        position: usize,
        rows: usize,
        keys: Range<usize>,
    ) -> Result<Option<Tensor>> {
        let total = keys.len();
        let hidden = |query: usize, key: usize| {
            let after = key > query;
            let distance = query.abs_diff(key);
            (after && spec.visibility == Visibility::Causal)
                || spec.window.is_some_and(|window| distance >= window)
        };
        let mut any = false;
        let mut mask = vec![0f32; rows * total];
        for row in 0..rows {
            for (i, key) in keys.clone().enumerate() {
                if hidden(position + row, key) {
                    mask[row * total + i] = f32::NEG_INFINITY;
                    any = true;
                }
            }
        }
        any.then(|| Ok(Tensor::from_vec(mask, (rows, total), &self.device)?)).transpose()
    }
}

impl Cache {
    fn append(&mut self, keys: &Tensor, values: &Tensor) -> Result<()> {
        let rows = keys.dim(2)?;
        let end = self.len + rows;
        ensure!(end <= self.capacity, "position {end} is beyond the cache's {}", self.capacity);
        let most = kept_positions(self.window, rows).min(self.capacity);
        if end - self.first > most {
            self.forget()?;
        }
        let (wanted, room) = (end - self.first, self.keys.dim(2)?);
        if wanted > room {
            // Double, so that growing costs a constant share.
            let more = wanted.max(2 * room).next_multiple_of(GROWTH).min(most.max(wanted)) - room;
            let larger = |slab: &Tensor| slab.pad_with_zeros(2, 0, more)?.contiguous();
            // Both or none, should there be no memory for the second.
            (self.keys, self.values) = (larger(&self.keys)?, larger(&self.values)?);
        }
        let at = self.len - self.first;
        self.keys.slice_set(&keys.contiguous()?, 2, at)?;
        self.values.slice_set(&values.contiguous()?, 2, at)?;
        self.len = end;
        Ok(())
    }

    /// Drop the positions that no query from the end on sees, nor one of those before it that an
    /// answer may be taken back to.
    fn forget(&mut self) -> Result<()> {
        let Some(window) = self.window else { return Ok(()) };
        let first = self.len.saturating_sub(window).saturating_sub(TAKE_BACK);
        if first <= self.first {
            return Ok(());
        }
        // A copy: what is left must lie together for `slice_set`.
        let rest = |slab: &Tensor| slab.narrow(2, first - self.first, self.len - first)?.copy();
        let (keys, values) = (rest(&self.keys)?, rest(&self.values)?);
        (self.keys, self.values, self.first) = (keys, values, first);
        Ok(())
    }
}

impl Ops for DeviceOps {
    type Rows = Tensor;
    type Linear = Linear;
    type Norm = Norm;
    type Cache = Cache;
    type Rope = Rope;

    fn device(&self) -> &'static str {
        match &self.device {
            // Not "cpu": rows are not computed alike whatever stands beside them.
            Device::Cpu => "candle-cpu",
            Device::Cuda(_) => "cuda",
            Device::Metal(_) => "metal",
        }
    }

    fn device_detail(&self) -> String {
        format!("candle {:?}", self.device.location())
    }

    fn threads(&self) -> usize {
        1
    }

    fn linear(&self, parts: &[RawTensor<'_>], bias: Option<Vec<f32>>) -> Result<Linear> {
        let width = parts.first().and_then(|part| part.shape.last().copied()).unwrap_or(0);
        let mut matrices = Vec::with_capacity(parts.len());
        let (mut out, mut bytes) = (0, 0);
        for part in parts {
            ensure!(
                part.shape.len() == 2 && part.shape[1] == width,
                "{} has the shape {:?}, which does not stand beside a width of {width}",
                part.name,
                part.shape
            );
            let (matrix, size) = self.matrix(part).with_context(|| part.name.clone())?;
            matrices.push(matrix);
            out += part.shape[0];
            bytes += size;
        }
        let bias = bias.map(|bias| Tensor::from_vec(bias, out, &self.device)).transpose()?;
        Ok(Linear { parts: matrices, bias, shape: (out, width), bytes, table: None })
    }

    fn table(&self, part: RawTensor<'_>) -> Result<Linear> {
        let mut linear = self.linear(std::slice::from_ref(&part), None)?;
        if matches!(linear.parts.first(), Some(Matrix::Quantised(_))) {
            linear.table = Some(part.into_owned());
        }
        Ok(linear)
    }

    fn linear_shape(&self, linear: &Linear) -> (usize, usize) {
        linear.shape
    }

    fn linear_bytes(&self, linear: &Linear) -> u64 {
        linear.bytes
    }

    fn select_rows(&self, linear: &Linear, ids: &[u32]) -> Result<Linear> {
        let (rows, width) = linear.shape;
        ensure!(
            ids.iter().all(|id| (*id as usize) < rows),
            "a row beyond the head's {rows} was asked for"
        );
        match (&linear.table, linear.parts.as_slice()) {
            (Some(table), _) => self.linear(&[table.select_rows(ids)?], None),
            (None, [Matrix::Dense(tensor)]) => {
                let index = Tensor::new(ids, &self.device)?;
                let tensor = tensor.index_select(&index, 0)?;
                let bytes = (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64;
                let parts = vec![Matrix::Dense(tensor)];
                Ok(Linear { parts, bias: None, shape: (ids.len(), width), bytes, table: None })
            }
            (None, [Matrix::Quantised(QMatMul::QTensor(tensor))]) => {
                let raw = RawTensor {
                    name: "head".into(),
                    shape: vec![rows, width],
                    dtype: tensor.dtype(),
                    bytes: tensor.data()?,
                };
                self.linear(&[raw.select_rows(ids)?], None)
            }
            _ => anyhow::bail!("rows of a matrix in parts cannot be selected"),
        }
    }

    fn norm(&self, weight: Vec<f32>, eps: f32) -> Result<Norm> {
        let n = weight.len();
        Ok(Norm { weight: Tensor::from_vec(weight, n, &self.device)?, eps })
    }

    fn rope(&self, table: &RopeTable, max_positions: usize) -> Result<Rope> {
        let pairs = table.inv_freq.len();
        let angles = |turn: fn(f64) -> f64| {
            let values: Vec<f32> = (0..max_positions)
                .flat_map(|p| {
                    let magnitude = table.magnitude;
                    table.inv_freq.iter().map(move |f| (turn(p as f64 * f) * magnitude) as f32)
                })
                .collect();
            Tensor::from_vec(values, (max_positions, pairs), &self.device)
        };
        Ok(Rope { cos: angles(f64::cos)?, sin: angles(f64::sin)? })
    }

    fn cache(&self, spec: &AttentionSpec, capacity: usize) -> Result<Cache> {
        let shape = (1, spec.kv_heads, GROWTH.min(capacity.max(1)), spec.head_dim);
        Ok(Cache {
            keys: Tensor::zeros(shape, DType::F32, &self.device)?,
            values: Tensor::zeros(shape, DType::F32, &self.device)?,
            first: 0,
            len: 0,
            capacity,
            window: spec.window,
        })
    }

    fn embed(&self, table: &Linear, ids: &[u32], scale: f32) -> Result<Tensor> {
        let (rows, width) = table.shape;
        ensure!(
            ids.iter().all(|id| (*id as usize) < rows),
            "a token beyond the embedding's {rows} rows"
        );
        let embedded = match (&table.table, table.parts.as_slice()) {
            (Some(raw), _) => {
                let values = raw.select_rows(ids)?.to_f32()?;
                Tensor::from_vec(values, (ids.len(), width), &self.device)?
            }
            (None, [Matrix::Dense(tensor)]) => {
                let index = Tensor::new(ids, &self.device)?;
                tensor.index_select(&index, 0)?.to_dtype(DType::F32)?
            }
            _ => anyhow::bail!("this matrix was not loaded as a table"),
        };
        Ok(if scale == 1.0 { embedded } else { (embedded * f64::from(scale))? })
    }

    fn upload(&self, values: &[f32], width: usize) -> Result<Tensor> {
        Ok(Tensor::from_slice(values, (values.len() / width.max(1), width), &self.device)?)
    }

    fn download(&self, rows: &Tensor) -> Result<Vec<f32>> {
        Ok(rows.flatten_all()?.to_vec1()?)
    }

    fn count(&self, rows: &Tensor) -> usize {
        rows.dims()[0]
    }

    fn slice(&self, rows: &Tensor, range: Range<usize>) -> Result<Tensor> {
        Ok(rows.i(range)?.contiguous()?)
    }

    fn beside(&self, parts: &[&Tensor]) -> Result<Tensor> {
        Ok(Tensor::cat(parts, 1)?)
    }

    fn stack(&self, parts: &[&Tensor]) -> Result<Tensor> {
        Ok(Tensor::cat(parts, 0)?)
    }

    fn copy(&self, rows: &Tensor) -> Result<Tensor> {
        Ok(rows.clone())
    }

    fn normed(&self, x: &Tensor, norm: &Norm) -> Result<Tensor> {
        self.head_norm(x, Some(norm))
    }

    fn project(&self, x: &Tensor, norm: Option<&Norm>, linear: &Linear) -> Result<Tensor> {
        let x = self.head_norm(x, norm)?;
        let outputs = linear
            .parts
            .iter()
            .map(|part| match part {
                // Three dimensions: on Metal two would be taken for a batch of vectors.
                Matrix::Quantised(matrix) => matrix.forward(&x.unsqueeze(0)?)?.squeeze(0),
                Matrix::Dense(matrix) => {
                    x.to_dtype(matrix.dtype())?.matmul(&matrix.t()?)?.to_dtype(DType::F32)
                }
            })
            .collect::<candle_core::Result<Vec<_>>>()?;
        let output = match outputs.as_slice() {
            [one] => one.clone(),
            many => Tensor::cat(many, 1)?,
        };
        match &linear.bias {
            Some(bias) => Ok(output.broadcast_add(bias)?),
            None => Ok(output),
        }
    }

    fn project_add(
        &self,
        into: &mut Tensor,
        x: &Tensor,
        linear: &Linear,
        post: Option<&Norm>,
    ) -> Result<()> {
        let output = self.head_norm(&self.project(x, None, linear)?, post)?;
        *into = (&*into + output)?;
        Ok(())
    }

    fn gated(
        &self,
        x: &Tensor,
        norm: Option<&Norm>,
        gate_up: &Linear,
        activation: Activation,
    ) -> Result<Tensor> {
        let both = self.project(x, norm, gate_up)?;
        let half = gate_up.shape.0 / 2;
        let gate = both.narrow(1, 0, half)?;
        let gate = match activation {
            Activation::Silu => gate.silu()?,
            Activation::GeluTanh => gate.gelu()?,
        };
        Ok((gate * both.narrow(1, half, half)?)?)
    }

    fn add(&self, into: &mut Tensor, more: &Tensor) -> Result<()> {
        *into = (&*into + more)?;
        Ok(())
    }

    fn convolve(
        &self,
        x: &Tensor,
        base: &Tensor,
        change: &Tensor,
        group: usize,
        side: usize,
    ) -> Result<Tensor> {
        let ((rows, width), taps) = (x.dims2()?, base.dim(0)?);
        let groups = width / group;
        let mut mixed = x.zeros_like()?;
        for tap in 0..taps.min(rows) {
            let before = x.narrow(0, 0, rows - tap)?.pad_with_zeros(0, tap, 0)?;
            let change = change.narrow(1, (side * taps + tap) * groups, groups)?;
            let change = change.unsqueeze(2)?.broadcast_as((rows, groups, group))?;
            let weights = change.reshape((rows, width))?.broadcast_add(&base.narrow(0, tap, 1)?)?;
            mixed = (mixed + (weights * before)?)?;
        }
        Ok(mixed)
    }

    fn scale(&self, into: &mut Tensor, factor: f32) -> Result<()> {
        *into = (&*into * f64::from(factor))?;
        Ok(())
    }

    fn append(
        &self,
        kv: &Tensor,
        spec: &AttentionSpec,
        norms: &HeadNorms<Self>,
        rope: &Rope,
        cache: &mut Cache,
        position: usize,
    ) -> Result<()> {
        let width = spec.kv_heads * spec.head_dim;
        let keys = kv.narrow(1, 0, width)?;
        let values = if spec.values_are_keys { keys.clone() } else { kv.narrow(1, width, width)? };
        self.store((&keys, &values), spec, norms, rope, cache, position)
    }

    fn attend(
        &self,
        qkv: &Tensor,
        spec: &AttentionSpec,
        norms: &HeadNorms<Self>,
        rope: &Rope,
        cache: &mut Cache,
        position: usize,
    ) -> Result<Tensor> {
        let rows = qkv.dim(0)?;
        let (queries, width) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let kv = qkv.narrow(1, queries, spec.kv_width())?;
        let keys = kv.narrow(1, 0, width)?;
        let values = if spec.values_are_keys { keys.clone() } else { kv.narrow(1, width, width)? };
        self.store((&keys, &values), spec, norms, rope, cache, position)?;

        let q = self.heads(&qkv.narrow(1, 0, queries)?, spec.heads, spec.head_dim)?;
        let q = self.turn(&self.head_norm(&q, norms.q.as_ref())?, rope, position)?;
        let group = spec.heads / spec.kv_heads;
        // The queries of a group share their keys: lay them out as more rows of one head.
        let q = q.reshape((spec.kv_heads, group * rows, spec.head_dim))?;
        let held = cache.len - cache.first;
        let keys = cache.keys.narrow(2, 0, held)?.squeeze(0)?;
        let values = cache.values.narrow(2, 0, held)?.squeeze(0)?;
        let mut scores = (q.matmul(&keys.t()?.contiguous()?)? * f64::from(spec.scale))?;
        if let Some(cap) = spec.softcap {
            self.softcap(&mut scores, cap)?;
        }
        if let Some(mask) = self.mask(spec, position, rows, cache.first..cache.len)? {
            let shape = (spec.kv_heads, group, rows, held);
            scores = scores.reshape(shape)?.broadcast_add(&mask)?;
            scores = scores.reshape((spec.kv_heads, group * rows, held))?;
        }
        let weights = candle_nn::ops::softmax_last_dim(&scores)?;
        let mixed = weights.matmul(&values.contiguous()?)?;
        Ok(mixed
            .reshape((spec.heads, rows, spec.head_dim))?
            .transpose(0, 1)?
            .reshape((rows, queries))?
            .contiguous()?)
    }

    fn cache_len(&self, cache: &Cache) -> usize {
        cache.len
    }

    fn shortest(&self, cache: &Cache) -> usize {
        match (cache.first, cache.window) {
            (1.., Some(window)) => cache.first.saturating_add(window) - 1,
            _ => 0,
        }
    }

    fn truncate(&self, cache: &mut Cache, len: usize) {
        if len < self.shortest(cache) {
            (cache.len, cache.first) = (0, 0);
        } else {
            cache.len = cache.len.min(len);
        }
    }

    fn cache_bytes(&self, spec: &AttentionSpec, positions: usize) -> u64 {
        let positions = kept_positions(spec.window, 0).min(positions);
        2 * (positions * spec.kv_heads * spec.head_dim * DType::F32.size_in_bytes()) as u64
    }

    fn softcap(&self, rows: &mut Tensor, cap: f32) -> Result<()> {
        let cap = f64::from(cap);
        *rows = ((&*rows / cap)?.tanh()? * cap)?;
        Ok(())
    }

    fn choose(&self, logits: &Tensor, with_prob: bool) -> Result<Vec<Choice>> {
        let ids: Vec<u32> = logits.argmax(D::Minus1)?.to_vec1()?;
        let best = logits.max_keepdim(D::Minus1)?;
        let lowest = Tensor::full(f32::NEG_INFINITY, logits.shape(), &self.device)?;
        let rest = logits.broadcast_eq(&best)?.where_cond(&lowest, logits)?;
        let margins: Vec<f32> = (best.squeeze(1)? - rest.max(D::Minus1)?)?.to_vec1()?;
        let probs: Vec<f32> = match with_prob {
            true => logits.broadcast_sub(&best)?.exp()?.sum(D::Minus1)?.recip()?.to_vec1()?,
            false => vec![f32::NAN; ids.len()],
        };
        let rows = ids.into_iter().zip(margins).zip(probs);
        Ok(rows.map(|((id, margin), prob)| Choice { id, margin, prob }).collect())
    }
}
