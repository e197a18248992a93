//! What Python prints where templates rely on it: `json.dumps`, `str`, `repr`, `strftime`.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// `json.dumps(value, ensure_ascii=..., indent=..., separators=..., sort_keys=...)`, which is the
/// filter `tojson` that engines give to chat templates: unlike Jinja's own it escapes no HTML.
pub fn tojson(value: &Value, indent: Option<Value>, options: Kwargs) -> Result<String, Error> {
    let ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let indent = match options.get::<Option<Value>>("indent")?.or(indent) {
        Some(value) if !value.is_none() => Some(Indent::of(&value)?),
        _ => None,
    };
    let (mut item, mut key) = (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned());
    if let Some(separators) = options.get::<Option<Vec<String>>>("separators")? {
        let [first, second] = <[String; 2]>::try_from(separators)
            .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators must be two texts"))?;
        (item, key) = (first, second);
    }
    options.assert_all_used()?;
    let mut writer = JsonWriter { out: String::new(), indent, item, key, ensure_ascii, sort_keys };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Indent(String);

impl Indent {
    fn of(value: &Value) -> Result<Self, Error> {
        if let Some(text) = value.as_str() {
            return Ok(Indent(text.to_owned()));
        }
        match value.as_i64() {
            Some(width) if width <= 64 => Ok(Indent(" ".repeat(width.max(0) as usize))),
            _ => Err(Error::new(ErrorKind::InvalidOperation, "indent must be a small number or text")),
        }
    }
}

struct JsonWriter {
    out: String,
    indent: Option<Indent>,
    item: String,
    key: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

/// Values are as deep as the JSON that they come from, or as a template has nested them.
const MAX_DEPTH: usize = 200;

impl JsonWriter {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => push_number(&mut self.out, value, "NaN", "Infinity"),
            ValueKind::String => push_json_text(&mut self.out, value.as_str().unwrap_or(""), self.ensure_ascii),
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Seq | ValueKind::Iterable => self.list(value, depth)?,
            kind => {
                let text = format!("a value of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
        }
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.before_item(empty, depth);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.after_items(empty, depth);
        self.out.push(']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        for (index, key) in keys.iter().enumerate() {
            self.before_item(index == 0, depth);
            match key.kind() {
                ValueKind::String => {
                    push_json_text(&mut self.out, key.as_str().unwrap_or(""), self.ensure_ascii);
                }
                _ => {
                    self.out.push('"');
                    self.value(key, depth + 1)?;
                    self.out.push('"');
                }
            }
            self.out.push_str(&self.key);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.after_items(keys.is_empty(), depth);
        self.out.push('}');
        Ok(())
    }

    fn before_item(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.item);
        }
        self.new_line(depth + 1);
    }

    fn after_items(&mut self, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(Indent(indent)) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }
}

fn push_json_text(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    let mut kept = 0;
    for (at, character) in text.char_indices() {
        let short = match character {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\0'..='\u{1f}' => "",
            '\u{7f}'.. if ensure_ascii => "",
            _ => continue,
        };
        out.push_str(&text[kept..at]);
        kept = at + character.len_utf8();
        out.push_str(short);
        if short.is_empty() {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out.push_str(&text[kept..]);
    out.push('"');
}

/// A number as Python writes it: `1.0`, `1e-05`, `1e+16`.
fn push_number(out: &mut String, value: &Value, nan: &str, infinity: &str) {
    if value.is_integer() {
        let _ = write!(out, "{value}");
        return;
    }
    let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    if number.is_nan() {
        out.push_str(nan);
    } else if number.is_infinite() {
        out.push_str(if number < 0.0 { "-" } else { "" });
        out.push_str(infinity);
    } else if number != 0.0 && !(1e-4..1e16).contains(&number.abs()) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
    } else {
        let _ = write!(out, "{number:?}");
    }
}

/// `str(value)`.
pub fn push_str(out: &mut String, value: &Value) {
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(value.as_str().unwrap_or("")),
        _ => push_repr(out, value, 0),
    }
}

fn push_repr(out: &mut String, value: &Value, depth: usize) {
    if depth > MAX_DEPTH {
        out.push_str("...");
        return;
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => push_number(out, value, "nan", "inf"),
        ValueKind::String => push_text_repr(out, value.as_str().unwrap_or("")),
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                push_repr(out, &key, depth + 1);
                out.push_str(": ");
                push_repr(out, &value.get_item(&key).unwrap_or_default(), depth + 1);
            }
            out.push('}');
        }
        ValueKind::Seq => {
            let (open, close) = if value.is_tuple() { ("(", ")") } else { ("[", "]") };
            out.push_str(open);
            for (index, item) in value.try_iter().into_iter().flatten().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                push_repr(out, &item, depth + 1);
            }
            out.push_str(if value.is_tuple() && value.len() == Some(1) { "," } else { "" });
            out.push_str(close);
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
}

fn push_text_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", character as u32);
            }
            '\u{80}'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", character as u32);
            }
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}

/// The filter `string`.
pub fn string(value: &Value) -> String {
    let mut out = String::new();
    push_str(&mut out, value);
    out
}

/// `datetime.now().strftime(format)`: the one thing of the outside that a template may see.
pub fn strftime_now(format: &str) -> Result<String, Error> {
    let bad = || Error::new(ErrorKind::InvalidOperation, "strftime_now: not a usable format");
    if format.len() > 256 {
        return Err(bad());
    }
    let format = std::ffi::CString::new(format).map_err(|_| bad())?;
    let mut text = [0_u8; 4096];
    // Of C's functions these are the ones that know the time zone; the buffers are ours.
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut fields: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut fields).is_null() {
            return Err(bad());
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &fields)
    };
    Ok(String::from_utf8_lossy(&text[..size]).into_owned())
}
