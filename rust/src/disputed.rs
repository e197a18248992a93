//! Characters that a tokenizer treats in one way with one version of Unicode and in another with the
//! next.
//!
//! The versions of the library that engines run bring tables from Unicode 8 (punctuation of BERT), 9
//! (normalisation) and 15 or later (patterns, classes). Where a character came, or changed, between
//! these, or is yet to come, its ids depend on the engine's version, and there are none of it here.

use regex_automata::meta;
use serde_json::Value;

/// In later tables alone, if in any: what splits words by its class may do so in two ways.
const NEW: &str = r"[\p{any}--\p{Age=15.0}]";
/// What Unicode 9 has no order or composition for, as far as such characters have one.
const NEW_MARKS: &str = r"[[\p{L}\p{M}]--\p{Age=9.0}]";
/// The same with compatible forms: digits, and symbols that stand for letters.
const NEW_FORMS: &str =
    r"[[\p{L}\p{M}\p{N}\u{32FF}\u{1F100}-\u{1F2FF}\u{1FB00}-\u{1FBFF}]--\p{Age=9.0}]";
/// The two singles are punctuation no more.
const NEW_PUNCTUATION: &str = r"[[\p{P}--\p{Age=8.0}]\u{166D}\u{111C9}]";

pub struct Disputed {
    class: meta::Regex,
}

impl Disputed {
    /// None: the tokenizer of `definition` has no need of Unicode's tables.
    pub fn of(definition: &Value) -> Result<Option<Self>, String> {
        let mut classes = Vec::new();
        let mut add = |more: &[&'static str]| {
            for class in more {
                if !classes.contains(class) {
                    classes.push(*class);
                }
            }
        };
        for kind in kinds(&definition["normalizer"]) {
            match kind {
                "NFC" | "NFD" | "StripAccents" | "Precompiled" => add(&[NEW, NEW_MARKS]),
                "NFKC" | "NFKD" => add(&[NEW, NEW_FORMS]),
                "BertNormalizer" => add(&[NEW, NEW_MARKS, NEW_PUNCTUATION]),
                "Lowercase" | "Nmt" => add(&[NEW]),
                _ => {}
            }
        }
        for kind in kinds(&definition["pre_tokenizer"]) {
            match kind {
                "BertPreTokenizer" | "Punctuation" => add(&[NEW, NEW_PUNCTUATION]),
                "Split" | "ByteLevel" | "Whitespace" | "Digits" | "UnicodeScripts" => add(&[NEW]),
                _ => {}
            }
        }
        if classes.is_empty() {
            return Ok(None);
        }
        let class = meta::Regex::new(&classes.join("|")).map_err(|error| error.to_string())?;
        Ok(Some(Disputed { class }))
    }

    /// The first such character of `text`, and where it is.
    pub fn find(&self, text: &str) -> Option<(usize, char)> {
        if text.is_ascii() {
            return None;
        }
        let start = self.class.find(text)?.start();
        Some((start, text[start..].chars().next()?))
    }
}

/// The types of a step and of all that it is made of.
fn kinds(step: &Value) -> Vec<&str> {
    let mut found: Vec<&str> = step["type"].as_str().into_iter().collect();
    for members in ["normalizers", "pretokenizers"] {
        found.extend(step[members].as_array().into_iter().flatten().flat_map(kinds));
    }
    found
}
