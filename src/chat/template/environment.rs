//! What the templates of real models expect of their engine.

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use std::time::{SystemTime, UNIX_EPOCH};

/// Steps of a template's program after which it is stopped: far above what a long conversation
/// takes, and a fraction of a second's work.
const FUEL: u64 = 5_000_000;

/// An engine with the settings that templates are written for: blocks leave no white space
/// behind, Python's string and dictionary methods, `raise_exception`, JSON as Python writes it.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_filter("tojson", to_json);
    environment
}

/// The marker by which an error is known as the template's own.
const RAISED: &str = "raise_exception: ";

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

/// What a template said with `raise_exception`, if that is what the error is.
pub(super) fn raised(error: &Error) -> Option<&str> {
    error.detail()?.strip_prefix(RAISED)
}

/// A template's source without what the engine does not know. `{% generation %}` marks an answer
/// for training; it becomes a block that always holds, which keeps the white space rules written
/// in it. A backslash at the end of a line joins the lines of a string.
pub(super) fn adapted(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{').filter(|at| at + 1 < rest.len()) {
        let close = match rest.as_bytes()[at + 1] {
            b'%' => "%}",
            b'{' => "}}",
            _ => "",
        };
        let end = rest[at + 1..].find(close).map_or(rest.len(), |end| at + 1 + end + close.len());
        let tag = rest[at..end].replace("\\\n", "");
        out.push_str(&rest[..at]);
        match (close, tag.trim_matches(['{', '}', '%', '-', '+']).trim()) {
            ("%}", word @ "generation") => out.push_str(&tag.replace(word, "if true")),
            ("%}", word @ "endgeneration") => out.push_str(&tag.replace(word, "endif")),
            _ => out.push_str(&tag),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// JSON with Python's spacing; `indent` as in `json.dumps`.
fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let failed = |e| Error::new(ErrorKind::BadSerialization, "not JSON").with_source(e);
    let json = serde_json::to_value(&value).map_err(failed)?;
    let mut out = String::new();
    write_json(&json, indent, 0, &mut out);
    Ok(out)
}

fn write_json(json: &serde_json::Value, indent: Option<usize>, depth: usize, out: &mut String) {
    use serde_json::Value as Json;
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width.min(16) * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match json {
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { comma } else { "" });
                line(out, depth + 1);
                write_json(item, indent, depth + 1, out);
            }
            line(out, depth);
            out.push(']');
        }
        Json::Object(entries) if !entries.is_empty() => {
            out.push('{');
            for (i, (key, item)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { comma } else { "" });
                line(out, depth + 1);
                out.push_str(&Json::from(key.as_str()).to_string());
                out.push_str(": ");
                write_json(item, indent, depth + 1, out);
            }
            line(out, depth);
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

/// `strftime_now(format)` as templates call it, telling the time `now` (UTC).
pub(super) fn strftime_at(now: SystemTime) -> Value {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    Value::from_function(move |format: String| strftime(&format, seconds))
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// The date and time codes that templates use; others are left as they are.
pub(crate) fn strftime(format: &str, seconds: u64) -> String {
    let days = seconds / 86_400;
    let (year, month, day) = civil_date(days);
    let (month_name, day_name) = (MONTHS[month - 1], DAYS[(days % 7) as usize]);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&format!("{:02}", year % 100)),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('e') => out.push_str(&format!("{day:2}")),
            Some('B') => out.push_str(month_name),
            Some('b') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(&day_name[..3]),
            Some('H') => out.push_str(&format!("{hour:02}")),
            Some('M') => out.push_str(&format!("{minute:02}")),
            Some('S') => out.push_str(&format!("{second:02}")),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Year, month and day of a number of days after 1970-01-01.
fn civil_date(mut days: u64) -> (u64, usize, u64) {
    // Whole cycles of 400 years first, so that the loops below are short for any clock.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(strftime("%d %b %Y %H:%M:%S %A", 0), "01 Jan 1970 00:00:00 Thursday");
        assert_eq!(strftime("%Y-%m-%d %a", 951_782_400), "2000-02-29 Tue");
        assert_eq!(strftime("%e. %B %y, 100%%%q%", 1_735_689_599), "31. December 24, 100%%q%");
        assert_eq!(civil_date(u64::MAX / 86_400).1, 11);
    }

    #[test]
    fn generation_tags_become_blocks() {
        let source =
            "a {%- generation -%} b {% endgeneration %}{% if generation %}c{% endif %}{% x";
        let expected = "a {%- if true -%} b {% endif %}{% if generation %}c{% endif %}{% x";
        assert_eq!(adapted(source), expected);
        for unchanged in
            ["", "{", "{{", "é{é", "{generation}", "{{ {'a': 1} }}", "{{ generation }}"]
        {
            assert_eq!(adapted(unchanged), unchanged);
        }
    }

    #[test]
    fn lines_of_strings_are_joined() {
        assert_eq!(adapted("\\\n{{ 'a\\\nb' }}\\\n"), "\\\n{{ 'ab' }}\\\n");
    }
}
