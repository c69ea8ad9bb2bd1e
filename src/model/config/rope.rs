//! Rotary embeddings: the angles that a configuration asks for.
//!
//! The formulas are those of transformers' `modeling_rope_utils.py`; YaRN is arXiv 2309.00071.

use super::fields::Fields;
use super::positive;
use crate::model::ops::RopeTable;
use anyhow::{Context, Result, bail};
use std::f64::consts::PI;

/// A way to stretch the angles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scaling {
    /// As they are.
    None,
    /// All angles divided by a factor.
    Linear(f64),
    /// Llama 3: slow pairs divided by a factor, a smooth border to the fast ones.
    Llama3 { factor: f64, low: f64, high: f64, original: f64 },
    /// YaRN: as Llama 3, with other borders and a factor on cosine and sine.
    Yarn {
        factor: f64,
        magnitude: f64,
        beta_fast: f64,
        beta_slow: f64,
        original: f64,
        truncate: bool,
    },
    /// Gemma 4: only this part of the pairs turns, at the speeds of a whole head.
    Proportional { part: f64, factor: f64 },
}

/// The table for heads of `head_dim` with base `theta`.
pub(super) fn table(head_dim: usize, theta: f64, scaling: Scaling) -> Result<RopeTable> {
    if !(theta.is_finite() && theta > 1.0) {
        bail!("rope_theta is {theta}; it must be above 1");
    }
    let pairs = head_dim / 2;
    let plain = |i: usize| theta.powf(-2.0 * i as f64 / head_dim as f64);
    let (inv_freq, magnitude): (Vec<f64>, f64) = match scaling {
        Scaling::None => ((0..pairs).map(plain).collect(), 1.0),
        Scaling::Linear(factor) => ((0..pairs).map(|i| plain(i) / factor).collect(), 1.0),
        Scaling::Llama3 { factor, low, high, original } => {
            let angle = |i| llama3(plain(i), factor, low, high, original);
            ((0..pairs).map(angle).collect(), 1.0)
        }
        Scaling::Yarn { factor, magnitude, beta_fast, beta_slow, original, truncate } => {
            // The pair that makes `rotations` turns over the original context.
            let pair = |rotations: f64| {
                head_dim as f64 * (original / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln())
            };
            let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
            if truncate {
                (low, high) = (low.floor(), high.ceil());
            }
            let (low, high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
            let span = if high == low { 0.001 } else { high - low };
            let angle = |i: usize| {
                let slow = ((i as f64 - low) / span).clamp(0.0, 1.0);
                plain(i) / factor * slow + plain(i) * (1.0 - slow)
            };
            ((0..pairs).map(angle).collect(), magnitude)
        }
        Scaling::Proportional { part, factor } => {
            let turned = ((part * head_dim as f64) as usize / 2).min(pairs);
            ((0..turned).map(|i| plain(i) / factor).collect(), 1.0)
        }
    };
    Ok(RopeTable { inv_freq, magnitude })
}

fn llama3(angle: f64, factor: f64, low: f64, high: f64, original: f64) -> f64 {
    let wavelength = 2.0 * PI / angle;
    if wavelength > original / low {
        angle / factor
    } else if wavelength < original / high {
        angle
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        (1.0 - smooth) * angle / factor + smooth * angle
    }
}

/// YaRN's factor on cosine and sine where the configuration has none.
pub(super) fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

/// The rope parameters for one kind of layer: of `rope_parameters`, flat or with an entry a
/// kind, else of `rope_scaling`, else none.
pub(super) fn parameters<'a>(config: Fields<'a>, kind: &str) -> Result<Fields<'a>> {
    if let Some(parameters) = config.object("rope_parameters")?.filter(|p| !p.is_empty()) {
        let by_kind = parameters.has("full_attention") || parameters.has("sliding_attention");
        return if by_kind {
            parameters
                .object(kind)?
                .with_context(|| format!("rope_parameters has no entry for {kind}"))
        } else {
            Ok(parameters)
        };
    }
    Ok(config.object("rope_scaling")?.unwrap_or(Fields::empty()))
}

/// The base: in the parameters or beside them.
pub(super) fn theta(config: Fields<'_>, parameters: Fields<'_>) -> Result<Option<f64>> {
    Ok(match parameters.number("rope_theta")? {
        Some(theta) => Some(theta),
        None => config.number("rope_theta")?,
    })
}

/// How the parameters stretch the angles. `max_positions` stands for a missing original length.
pub(super) fn scaling(
    config: Fields<'_>,
    parameters: Fields<'_>,
    max_positions: usize,
) -> Result<Scaling> {
    let kind = match parameters.text("rope_type")? {
        Some(kind) => kind,
        None => parameters.text("type")?.unwrap_or("default"),
    };
    let part = match parameters.number("partial_rotary_factor")? {
        Some(part) => part,
        None => config.number("partial_rotary_factor")?.unwrap_or(1.0),
    };
    if !(part > 0.0 && part <= 1.0) {
        bail!("partial_rotary_factor is {part}; it must lie between 0 and 1");
    }
    if part != 1.0 && kind != "proportional" {
        bail!("rope on a part of the head (partial_rotary_factor {part}) is not supported");
    }
    let factor = || positive("the rope scaling's factor", parameters.need_number("factor")?);
    let original = || -> Result<f64> {
        let key = "original_max_position_embeddings";
        let length = match config.number(key)? {
            Some(length) => length,
            None => parameters.number(key)?.unwrap_or(max_positions as f64),
        };
        positive(key, length)
    };
    Ok(match kind {
        "default" => Scaling::None,
        "linear" => Scaling::Linear(factor()?),
        "llama3" => {
            let low = positive("low_freq_factor", parameters.need_number("low_freq_factor")?)?;
            let high = positive("high_freq_factor", parameters.need_number("high_freq_factor")?)?;
            if high <= low {
                bail!("high_freq_factor {high} is not above low_freq_factor {low}");
            }
            Scaling::Llama3 { factor: factor()?, low, high, original: original()? }
        }
        "yarn" => yarn(parameters, factor()?, original()?)?,
        "proportional" => Scaling::Proportional {
            part,
            factor: positive(
                "the rope scaling's factor",
                parameters.number("factor")?.unwrap_or(1.0),
            )?,
        },
        other => bail!(
            "rope type {other:?} is not supported; default, linear, llama3, yarn and \
             proportional are"
        ),
    })
}

fn yarn(parameters: Fields<'_>, factor: f64, original: f64) -> Result<Scaling> {
    let beta = |key, default| -> Result<f64> {
        // 0 counts as absent, as in transformers.
        let value = parameters.number(key)?.filter(|&v| v != 0.0).unwrap_or(default);
        positive(key, value)
    };
    let mscale = |key| -> Result<Option<f64>> { Ok(parameters.number(key)?.filter(|&v| v != 0.0)) };
    let magnitude = match parameters.number("attention_factor")? {
        Some(given) => given,
        None => match (mscale("mscale")?, mscale("mscale_all_dim")?) {
            (Some(one), Some(all)) => yarn_magnitude(factor, one) / yarn_magnitude(factor, all),
            _ => yarn_magnitude(factor, 1.0),
        },
    };
    Ok(Scaling::Yarn {
        factor,
        magnitude: positive("YaRN's attention factor", magnitude)?,
        beta_fast: beta("beta_fast", 32.0)?,
        beta_slow: beta("beta_slow", 1.0)?,
        original,
        truncate: parameters.flag("truncate")?.unwrap_or(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn built(config: &Value, head_dim: usize) -> Result<RopeTable> {
        let fields = Fields::new(config)?;
        let parameters = parameters(fields, "full_attention")?;
        let theta = theta(fields, parameters)?.context("rope_theta is missing")?;
        table(head_dim, theta, scaling(fields, parameters, 131_072)?)
    }

    /// Angles of pairs 0, 1, 5, 10, 16, 20, 24, 28 and 31 of a head of 64 as transformers
    /// 5.24 computes them (in f32).
    fn assert_angles(config: &Value, magnitude: f64, expected: [f64; 9]) {
        let table = built(config, 64).unwrap();
        assert!((table.magnitude - magnitude).abs() < 1e-9, "{}", table.magnitude);
        for (pair, expected) in [0, 1, 5, 10, 16, 20, 24, 28, 31].into_iter().zip(expected) {
            let found = table.inv_freq.get(pair).copied().unwrap_or(0.0);
            assert!((found - expected).abs() <= expected * 1e-6, "{pair}: {found} {expected}");
        }
    }

    #[test]
    fn angles_are_those_of_transformers() {
        let llama3 = json!({"rope_theta": 500000.0, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}});
        assert_angles(
            &llama3,
            1.0,
            [
                1.0,
                0.663601279258728,
                0.12868738174438477,
                0.016560440883040428,
                0.0005248460220173001,
                3.428102354519069e-05,
                6.647869668086059e-06,
                1.289173155782919e-06,
                3.76732259610435e-07,
            ],
        );
        let yarn = json!({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6,
            "factor": 4.0, "original_max_position_embeddings": 32768}});
        assert_angles(
            &yarn,
            1.138629436111989,
            [
                1.0,
                0.6493816375732422,
                0.11547820270061493,
                0.01333521492779255,
                0.0005833333707414567,
                4.4456985051510856e-05,
                7.905693564680405e-06,
                1.405853367941745e-06,
                3.8498163235090033e-07,
            ],
        );
        let yarn = json!({"rope_theta": 150000.0, "rope_scaling": {"type": "yarn",
            "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": false,
            "mscale": 1.0, "mscale_all_dim": 0.707}});
        assert_angles(
            &yarn,
            1.0815612985589222,
            [
                1.0,
                0.6890442967414856,
                0.15532298386096954,
                0.019334999844431877,
                0.0004564839182421565,
                1.818833698052913e-05,
                4.099978468730114e-06,
                9.242089618055616e-07,
                3.023511396804679e-07,
            ],
        );
        let linear = json!({"rope_parameters": {
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}});
        assert_angles(
            &linear,
            1.0,
            [
                0.125,
                0.08117270469665527,
                0.014434775337576866,
                0.0016669018659740686,
                0.0001250000059371814,
                2.2228492525755428e-05,
                3.9528467823402025e-06,
                7.029266839708725e-07,
                1.9249081617545016e-07,
            ],
        );
        let proportional = json!({"rope_parameters": {"full_attention": {
            "rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}}});
        assert_angles(
            &proportional,
            1.0,
            [1.0, 0.6493816375732422, 0.11547820270061493, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        );
        assert_eq!(built(&proportional, 64).unwrap().inv_freq.len(), 8);
    }

    #[test]
    fn what_cannot_be_turned_is_refused() {
        let refused = |config: Value| built(&config, 64).unwrap_err().to_string();
        let with = |scaling: Value| json!({"rope_theta": 1e4, "rope_scaling": scaling});
        assert!(refused(json!({"rope_theta": 0.5})).contains("rope_theta is 0.5"));
        assert!(
            refused(with(json!({"type": "longrope"}))).contains("\"longrope\" is not supported")
        );
        assert!(refused(with(json!({"rope_type": "dynamic", "factor": 2}))).contains("dynamic"));
        assert!(refused(with(json!({"type": "linear"}))).contains("factor is missing"));
        assert!(refused(with(json!({"type": "linear", "factor": -1}))).contains("positive"));
        let partial = json!({"rope_theta": 1e4, "partial_rotary_factor": 0.5});
        assert!(refused(partial).contains("part of the head"));
        let swapped = json!({"type": "llama3", "factor": 8, "low_freq_factor": 4,
            "high_freq_factor": 1});
        assert!(refused(with(swapped)).contains("not above"));
        let other = json!({"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}});
        assert!(refused(other).contains("no entry for full_attention"));
    }
}
