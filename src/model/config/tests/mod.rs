//! Families, drafts, and everything that is refused.

mod drafts;
mod targets;

use serde_json::Value;

/// Lay the keys of `over` over `base`, objects key by key; `null` removes.
fn laid_over(base: &Value, over: &Value) -> Value {
    let (Value::Object(base), Value::Object(over)) = (base, over) else { return over.clone() };
    let mut merged = base.clone();
    for (key, value) in over {
        if value.is_null() {
            merged.remove(key);
        } else {
            let under = merged.get(key).cloned().unwrap_or_default();
            merged.insert(key.clone(), laid_over(&under, value));
        }
    }
    Value::Object(merged)
}

fn message<T>(result: anyhow::Result<T>) -> String {
    result.err().map(|e| format!("{e:#}")).expect("an error")
}
