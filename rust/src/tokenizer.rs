//! Text to ids.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{json, Value};
use tokenizers::pipeline::{
    encode_options::Override, normalize_all, EncodeOptions, Model, PipelineModelScratch,
    PipelineToken, PipelineTokenizer, PreTokenizerScratch, Segment, Span, SpecialSegmentIterator,
};

use crate::disputed::Disputed;
use crate::error::{read_json, Error, Result};
use crate::split::Splitter;

pub struct Tokenizer {
    pipeline: PipelineTokenizer,
    /// Where the library cannot split as the model wants.
    splitter: Option<Splitter>,
    /// Each stretch of text begins with a space, as if it had one before it.
    prefix_space: bool,
    disputed: Option<Disputed>,
    /// What is used again from call to call, one for each thread at work.
    scratches: Mutex<Vec<Scratch>>,
    before: Vec<u32>,
    after: Vec<u32>,
    vocabulary_size: u32,
    can_cut: bool,
}

struct Scratch {
    model: PipelineModelScratch,
    split: PreTokenizerScratch,
    spans: Vec<Span>,
}

/// A buffer that has grown beyond this many ids is given back after use.
const KEPT_IDS: usize = 1 << 20;

thread_local! {
    static FOUND: RefCell<Vec<PipelineToken>> = const { RefCell::new(Vec::new()) };
}

impl Tokenizer {
    pub fn load(path: &str) -> Result<Self> {
        let path = Path::new(path);
        let file = if path.is_dir() { path.join("tokenizer.json") } else { path.to_path_buf() };
        let broken = |text: String| Error::Broken(format!("{}: {text}", file.display()));
        let mut definition = read_json(&file)?;
        add_configured_tokens(&mut definition, &file.with_file_name("tokenizer_config.json"))?;
        check_ids(&definition).map_err(broken)?;
        let disputed = Disputed::of(&definition).map_err(broken)?;
        let prefix_space = take_prefix_space(&mut definition);
        tokenizers::canonicalize_value(&mut definition).map_err(|e| broken(e.to_string()))?;
        let vocabulary_size = vocabulary_size(&definition);
        let whole_words = added_tokens(&definition).any(|token| token["single_word"] == json!(true));
        let special = added_tokens(&definition)
            .find(|token| token["normalized"] != json!(true))
            .and_then(|token| Some(token["content"].as_str()?.to_owned()));
        let pipeline =
            tokenizers::from_json(&definition.to_string()).map_err(|e| broken(e.to_string()))?;
        let given = pipeline.get_pre_tokenizer();
        let mut splitter = Splitter::instead_of(given).map_err(broken)?;
        if prefix_space && splitter.is_none() {
            splitter = Some(Splitter::around(given));
        }
        let mut tokenizer = Tokenizer {
            pipeline,
            splitter,
            prefix_space,
            disputed: None,
            scratches: Mutex::default(),
            before: Vec::new(),
            after: Vec::new(),
            vocabulary_size,
            can_cut: false,
        };
        let word = if tokenizer.splitter.is_none() { "a" } else { "" };
        tokenizer.find_around(special.as_deref().unwrap_or(word))?;
        if let (false, Some(special)) = (whole_words, special) {
            tokenizer.can_cut = tokenizer.pieces_are_independent(&special)?;
        }
        tokenizer.disputed = disputed;
        Ok(tokenizer)
    }

    pub fn vocabulary_size(&self) -> u32 {
        self.vocabulary_size
    }

    /// What `special` puts before and after a text.
    pub fn around(&self) -> (&[u32], &[u32]) {
        (&self.before, &self.after)
    }

    /// Gives the ids of `text` to `take`.
    pub fn encode(&self, text: &str, special: bool, take: impl FnOnce(&[u32])) -> Result<()> {
        if let Some((at, character)) = self.disputed.as_ref().and_then(|all| all.find(text)) {
            return Err(Error::BadInput(format!(
                "U+{:04X} at byte {at}: the ids of a text with it depend on the version of Unicode \
                 that the engine's tokenizer knows",
                u32::from(character)
            )));
        }
        // Not borrowed while the library runs: if it panics, the buffer is merely lost.
        let mut found = FOUND.take();
        found.clear();
        let (before, after) = if special { self.around() } else { (&[][..], &[][..]) };
        found.extend(before.iter().copied().map(PipelineToken::from));
        match &self.splitter {
            None => self.pipeline.encode_into(text, &options(false), &mut found),
            Some(splitter) => self.encode_splitting(splitter, text, &mut found),
        }
        .map_err(|error| Error::Broken(error.to_string()))?;
        found.extend(after.iter().copied().map(PipelineToken::from));
        take(PipelineToken::cast_slice(&found));
        if found.capacity() <= KEPT_IDS {
            FOUND.set(found);
        }
        Ok(())
    }

    /// The library's own steps, but for how words are cut: special tokens are found in the text as
    /// it is, the rest is normalised, those that are to be found in normalised text are, and the
    /// model gets the words of what is left.
    fn encode_splitting(
        &self,
        splitter: &Splitter,
        text: &str,
        found: &mut Vec<PipelineToken>,
    ) -> tokenizers::Result<()> {
        let model = self.pipeline.get_model();
        let added = self.pipeline.get_added_vocabulary();
        let kept = self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut scratch = kept.unwrap_or_else(|| Scratch {
            model: model.init_scratch(),
            split: PreTokenizerScratch::default(),
            spans: Vec::new(),
        });
        for segment in SpecialSegmentIterator::new(text, added, false, false) {
            let (piece, offset) = match segment {
                Segment::SpecialToken(id) => {
                    found.push(id.into());
                    continue;
                }
                Segment::Text { text, input_offset } => (text, input_offset),
            };
            let normal = normalize_all(self.pipeline.get_normalizers(), piece, offset)?;
            for segment in SpecialSegmentIterator::new(&normal, added, true, false) {
                match segment {
                    Segment::SpecialToken(id) => found.push(id.into()),
                    Segment::Text { text, .. } => {
                        let begun = self.prefix_space && !text.is_empty() && !text.starts_with(' ');
                        let text = match begun {
                            true => Cow::Owned(format!(" {text}")),
                            false => Cow::Borrowed(text),
                        };
                        let text = text.as_ref();
                        if u32::try_from(text.len()).is_err() {
                            return Err("the text is too long".into());
                        }
                        splitter.split(text, &mut scratch.split, &mut scratch.spans)?;
                        model.tokenize_spans(text, &scratch.spans, &mut scratch.model, found)?;
                    }
                }
            }
        }
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        Ok(())
    }

    /// Where `text` may be cut: on both sides of each run of special tokens.
    pub fn cuts(&self, text: &str, mut take: impl FnMut(usize)) {
        if !self.can_cut {
            return;
        }
        let mut last = 0;
        let mut cut = |offset: usize| {
            if offset > last && offset < text.len() {
                last = offset;
                take(offset);
            }
        };
        let added = self.pipeline.get_added_vocabulary();
        for segment in SpecialSegmentIterator::new(text, added, false, false) {
            if let Segment::Text { text: piece, input_offset } = segment {
                cut(input_offset);
                cut(input_offset + piece.len());
            }
        }
    }

    /// Learns what the model puts around a text from `probe`, which the library can encode whatever
    /// the model's way of splitting: a special token where there is one. (With nothing to look for,
    /// all counts as before: tokens that no text can contain are put in front, if anywhere.)
    fn find_around(&mut self, probe: &str) -> Result<()> {
        let encode = |special| -> Result<Vec<u32>> {
            let mut found = Vec::new();
            self.pipeline
                .encode_into(probe, &options(special), &mut found)
                .map_err(|error| Error::Broken(error.to_string()))?;
            Ok(PipelineToken::cast_slice(&found).to_vec())
        };
        let (plain, whole) = (encode(false)?, encode(true)?);
        if plain.is_empty() {
            self.before = whole;
            return Ok(());
        }
        // From behind, since the probe may itself be what stands in front.
        let at = whole.windows(plain.len()).rposition(|ids| ids == plain);
        let Some(at) = at else {
            return Err(Error::Broken("the post-processor changes the text's ids".to_owned()));
        };
        self.before = whole[..at].to_vec();
        self.after = whole[at + plain.len()..].to_vec();
        Ok(())
    }

    /// Whether the ids of a text on one side of a special token depend on what is on the other.
    /// They do where the tokenizer treats the beginning of a text in a way of its own (`Metaspace`
    /// that is prepended to the first word alone).
    fn pieces_are_independent(&self, special: &str) -> Result<bool> {
        let pieces = ["a b", special, "a b", special, " a"];
        let mut whole = Vec::new();
        self.encode(&pieces.concat(), false, |ids| whole.extend_from_slice(ids))?;
        let mut joined = Vec::new();
        for piece in pieces {
            self.encode(piece, false, |ids| joined.extend_from_slice(ids))?;
        }
        Ok(whole == joined)
    }
}

fn options(special: bool) -> EncodeOptions {
    EncodeOptions {
        add_special_tokens: special,
        encode_special_tokens: false,
        padding: Override::Off,
        truncation: Override::Off,
    }
}

fn added_tokens(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["added_tokens"].as_array().into_iter().flatten()
}

/// The library makes a table as long as the largest id. Ids of real models have few gaps.
fn check_ids(definition: &Value) -> std::result::Result<(), String> {
    let vocabulary = &definition["model"]["vocab"];
    let entries = vocabulary.as_object().map_or(0, |ids| ids.len())
        + vocabulary.as_array().map_or(0, Vec::len)
        + added_tokens(definition).count();
    let limit = (8 * entries as u64).max(1 << 20);
    let in_model = vocabulary.as_object().into_iter().flatten();
    let in_model = in_model.map(|(content, id)| (content.as_str(), id));
    let added = added_tokens(definition)
        .map(|token| (token["content"].as_str().unwrap_or_default(), &token["id"]));
    for (content, id) in in_model.chain(added) {
        // What is no whole number at all the library itself refuses.
        if id.as_u64().is_some_and(|id| id >= limit) || id.as_f64().is_some_and(|id| id >= limit as f64) {
            return Err(format!(
                "the id {id} of {content:?} is too large: {entries} entries may have ids below {limit}"
            ));
        }
    }
    Ok(())
}

/// The library has no `add_prefix_space` of a `ByteLevel` pre-tokenizer; where that stands alone it is
/// done here. (After other pre-tokenizers each of their words would get a space.)
fn take_prefix_space(definition: &mut Value) -> bool {
    let Some(step) = definition.get_mut("pre_tokenizer").and_then(Value::as_object_mut) else {
        return false;
    };
    let wanted = step.get("type") == Some(&json!("ByteLevel"))
        && step.get("add_prefix_space") == Some(&json!(true));
    if wanted {
        step.insert("add_prefix_space".to_owned(), json!(false));
    }
    wanted
}

fn vocabulary_size(definition: &Value) -> u32 {
    let vocabulary = &definition["model"]["vocab"];
    let model = match vocabulary {
        Value::Object(ids) => ids.values().filter_map(Value::as_u64).max().map_or(0, |id| id + 1),
        Value::Array(pieces) => pieces.len() as u64,
        _ => 0,
    };
    let added = added_tokens(definition).filter_map(|token| token["id"].as_u64()).max();
    u32::try_from(model.max(added.map_or(0, |id| id + 1))).unwrap_or(u32::MAX)
}

/// Some models name added tokens, or what is particular about them, in tokenizer_config.json alone.
/// Engines read both files; there, that one has the last word.
fn add_configured_tokens(definition: &mut Value, config: &Path) -> Result<()> {
    if !config.is_file() {
        return Ok(());
    }
    let config = read_json(config)?;
    let Some(configured) = config["added_tokens_decoder"].as_object() else {
        return Ok(());
    };
    let Some(root) = definition.as_object_mut() else {
        return Ok(());
    };
    let tokens = root.entry("added_tokens").or_insert_with(|| json!([]));
    let Some(tokens) = tokens.as_array_mut() else {
        return Ok(());
    };
    let content = |token: &Value| token["content"].as_str().unwrap_or_default().to_owned();
    let mut places: HashMap<String, usize> =
        tokens.iter().enumerate().map(|(place, token)| (content(token), place)).collect();
    for (id, token) in configured {
        let (Ok(id), Some(members)) = (id.parse::<u32>(), token.as_object()) else {
            continue;
        };
        let mut token = members.clone();
        token.insert("id".to_owned(), json!(id));
        for flag in ["single_word", "lstrip", "rstrip", "normalized", "special"] {
            token.entry(flag).or_insert_with(|| json!(false));
        }
        token.retain(|name, _| {
            ["id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"]
                .contains(&name.as_str())
        });
        let content = token["content"].as_str().unwrap_or_default().to_owned();
        match places.get(&content) {
            Some(&place) => {
                token.insert("id".to_owned(), tokens[place]["id"].clone());
                tokens[place] = Value::Object(token);
            }
            None => {
                places.insert(content, tokens.len());
                tokens.push(Value::Object(token));
            }
        }
    }
    tokens.sort_by_key(|token| token["id"].as_u64());
    Ok(())
}
