//! Typed reading of a JSON object, with errors that name the key.

use super::{MAX_LAYERS, bounded};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// An object of `config.json`. Keys that are missing or `null` read as `None`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(Option<&'a Map<String, Value>>);

impl<'a> Fields<'a> {
    pub(super) fn new(value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self(Some(map))),
            _ => bail!("it is not a JSON object"),
        }
    }

    pub(super) const fn empty() -> Self {
        Self(None)
    }

    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.0.and_then(|map| map.get(key)).filter(|v| !v.is_null())
    }

    pub(super) fn has(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_none_or(Map::is_empty)
    }

    /// The value under `key` as `read` takes it; `wanted` names that for the error.
    fn typed<T>(
        self,
        key: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.get(key)
            .map(|value| {
                read(value)
                    .with_context(|| format!("{key} should be {wanted} but is {}", brief(value)))
            })
            .transpose()
    }

    pub(super) fn count(self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a count", |v| v.as_u64().and_then(|v| usize::try_from(v).ok()))
    }

    pub(super) fn need_count(self, key: &str) -> Result<usize> {
        self.count(key)?.with_context(|| missing(key))
    }

    pub(super) fn number(self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", |v| v.as_f64().filter(|v| v.is_finite()))
    }

    pub(super) fn need_number(self, key: &str) -> Result<f64> {
        self.number(key)?.with_context(|| missing(key))
    }

    pub(super) fn flag(self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub(super) fn text(self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    pub(super) fn object(self, key: &str) -> Result<Option<Self>> {
        self.typed(key, "an object", |v| v.as_object().map(|map| Self(Some(map))))
    }

    pub(super) fn list(self, key: &str) -> Result<Option<&'a [Value]>> {
        self.typed(key, "a list", |v| v.as_array().map(Vec::as_slice))
    }

    /// A list of counts.
    pub(super) fn counts(self, key: &str) -> Result<Option<Vec<usize>>> {
        self.typed(key, "a list of counts", |v| {
            v.as_array()?.iter().map(|v| usize::try_from(v.as_u64()?).ok()).collect()
        })
    }

    /// The first entry of `architectures`.
    pub(super) fn architecture(self) -> Result<&'a str> {
        self.list("architectures")?
            .and_then(|list| list.first())
            .and_then(Value::as_str)
            .context("it does not name its architecture (\"architectures\")")
    }

    /// `num_hidden_layers`, small enough to build a list of that length.
    pub(super) fn layer_count(self) -> Result<usize> {
        bounded("num_hidden_layers", self.need_count("num_hidden_layers")?, MAX_LAYERS)
    }

    /// `layer_types` as "is a sliding layer", where the key is there.
    pub(super) fn sliding_layers(self, layers: usize) -> Result<Option<Vec<bool>>> {
        let Some(types) = self.list("layer_types")? else { return Ok(None) };
        if types.len() != layers {
            bail!("layer_types has {} entries, num_hidden_layers is {layers}", types.len());
        }
        types
            .iter()
            .map(|kind| match kind.as_str() {
                Some("full_attention") => Ok(false),
                Some("sliding_attention") => Ok(true),
                Some("linear_attention") => bail!(
                    "it has linear attention layers (a hybrid model); only full and sliding \
                     attention are supported"
                ),
                _ => bail!("layer type {} is not supported", brief(kind)),
            })
            .collect::<Result<_>>()
            .map(Some)
    }
}

fn missing(key: &str) -> String {
    format!("{key} is missing")
}

/// A value for a message, cut to a readable length.
pub(super) fn brief(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        text
    } else {
        text.chars().take(60).collect::<String>() + "…"
    }
}
