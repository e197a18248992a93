//! Messages to the text of a prompt, by a model's Jinja template.

use std::fmt;
use std::path::Path;

use minijinja::machinery;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{context, Environment, ErrorKind};
use serde_json::Value as Json;

use crate::error::{read_file, read_json, Error, Result};
use crate::messages::{conversation, tools, MEDIA_MARK};
use crate::{python, syntax};

/// A chat request's members, as JSON.
pub struct Chat<'a> {
    pub messages: &'a [u8],
    pub tools: &'a [u8],
    pub variables: &'a [u8],
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
}

pub struct Rendered {
    pub text: String,
    pub exact_bytes: usize,
}

pub struct ChatTemplate {
    environment: Environment<'static>,
    /// Whether the template by the name of DEFAULT wants content as a list of parts.
    parts: bool,
    /// The same of the one that some models have for requests with tools, TOOL_USE.
    tool_use_parts: Option<bool>,
    /// `bos_token` and the like, which templates may name.
    special_tokens: Vec<(String, Value)>,
}

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// One step of a template each, or 64 bytes of text that it puts together. A rendering that takes
/// all of it needs a tenth of a second or so and 256 MB at the most; ordinary chats take some
/// thousands.
const FUEL: u64 = 4_000_000;

impl ChatTemplate {
    pub fn load(folder: &str) -> Result<Self> {
        let folder = Path::new(folder);
        let config_file = folder.join("tokenizer_config.json");
        let config = if config_file.is_file() { read_json(&config_file)? } else { Json::Null };
        let mut environment = environment()?;
        let (mut parts, mut tool_use_parts) = (false, None);
        let templates = find_templates(folder, &config)?;
        if !templates.iter().any(|(name, _)| name == DEFAULT) {
            return Err(Error::Broken(format!("{}: the model has no chat template", folder.display())));
        }
        for (name, source) in templates {
            if name != DEFAULT && name != TOOL_USE {
                continue;
            }
            let source = syntax::without_generation_tags(&source);
            let broken = |error: minijinja::Error| {
                Error::Broken(format!("{}: chat template: {}", folder.display(), describe(&error)))
            };
            let tree = machinery::parse(&source, "chat template", syntax_config()?).map_err(broken)?;
            let wanted = syntax::wants_parts(&tree);
            drop(tree);
            if name == DEFAULT {
                parts = wanted;
            } else {
                tool_use_parts = Some(wanted);
            }
            environment.add_template_owned(name, source).map_err(broken)?;
        }
        let special_tokens = special_tokens(folder, &config)?;
        Ok(ChatTemplate { environment, parts, tool_use_parts, special_tokens })
    }

    pub fn render(&self, chat: &Chat) -> Result<Rendered> {
        let messages = parse::<Vec<Json>>("messages", chat.messages)?;
        let tools = match chat.tools {
            [] => Vec::new(),
            text => tools(parse::<Option<Vec<Json>>>("tools", text)?.unwrap_or_default())?,
        };
        let variables = match chat.variables {
            [] => serde_json::Map::new(),
            text => parse::<Option<serde_json::Map<String, Json>>>("chat_template_kwargs", text)?
                .unwrap_or_default(),
        };
        let (name, parts) = match self.tool_use_parts {
            Some(parts) if !tools.is_empty() => (TOOL_USE, parts),
            _ => (DEFAULT, self.parts),
        };
        let conversation = conversation(messages, parts)?;

        let mut names: Vec<(String, Value)> = self.special_tokens.clone();
        let tools = if tools.is_empty() { Value::from(()) } else { value_of_list(tools)? };
        names.push(("documents".to_owned(), Value::from(())));
        for (name, value) in variables {
            names.push((name, value_of(value)?));
        }
        names.push(("tools".to_owned(), tools));
        names.push(("add_generation_prompt".to_owned(), Value::from(chat.add_generation_prompt)));
        let shared = Value::from_pairs(names);
        let mut last = None;
        if chat.continue_final_message {
            last = conversation.messages.last().map(final_text);
        }
        let run = |messages: Vec<Json>| -> Result<String> {
            let messages = value_of_list(messages)?;
            let template = self.environment.get_template(name).map_err(|e| rendering(&e))?;
            let text = template.render(context! { messages, ..shared.clone() });
            let mut text = text.map_err(|e| rendering(&e))?;
            if let Some(last) = &last {
                cut_after(&mut text, last)?;
            }
            Ok(text)
        };
        let marked = match conversation.marked {
            Some(marked) => Some(run(marked)?),
            None => None,
        };
        let text = run(conversation.messages)?;
        let exact_bytes = marked.map_or(text.len(), |marked| common_beginning(&text, &marked));
        Ok(Rendered { text, exact_bytes })
    }
}

/// How much of `text` comes before what the mark in `marked` stands for.
fn common_beginning(text: &str, marked: &str) -> usize {
    let before = &marked[..marked.find(MEDIA_MARK).unwrap_or(0)];
    let same = text.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
    (0..=same).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// The templates of a model by name, the first source that has any.
fn find_templates(folder: &Path, config: &Json) -> Result<Vec<(String, String)>> {
    let default = |source: String| vec![(DEFAULT.to_owned(), source)];
    let file = folder.join("chat_template.jinja");
    if file.is_file() {
        let mut found = default(read_file(&file)?);
        let tool_use = folder.join("additional_chat_templates").join("tool_use.jinja");
        if tool_use.is_file() {
            found.push((TOOL_USE.to_owned(), read_file(&tool_use)?));
        }
        return Ok(found);
    }
    let file = folder.join("chat_template.json");
    let other = if file.is_file() { read_json(&file)? } else { Json::Null };
    for source in [&other["chat_template"], &config["chat_template"]] {
        match source {
            Json::String(source) => return Ok(default(source.clone())),
            Json::Array(named) => {
                let named = named.iter().filter_map(|entry| {
                    let name = entry["name"].as_str()?.to_owned();
                    Some((name, entry["template"].as_str()?.to_owned()))
                });
                return Ok(named.collect());
            }
            _ => {}
        }
    }
    Ok(Vec::new())
}

/// Those that a tokenizer's configuration names, as transformers gives them to templates.
fn special_tokens(folder: &Path, config: &Json) -> Result<Vec<(String, Value)>> {
    let map_file = folder.join("special_tokens_map.json");
    let map = if map_file.is_file() { read_json(&map_file)? } else { Json::Null };
    let mut found = Vec::new();
    for name in [
        "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
    ] {
        let text = |source: &Json| match &source[name] {
            Json::String(text) => Some(text.clone()),
            Json::Object(token) => token.get("content").and_then(Json::as_str).map(str::to_owned),
            _ => None,
        };
        if let Some(text) = text(config).or_else(|| text(&map)) {
            found.push((name.to_owned(), Value::from(text)));
        }
    }
    Ok(found)
}

fn syntax_config() -> Result<SyntaxConfig> {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|error| Error::Broken(error.to_string()))
}

/// What transformers gives to chat templates.
fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax_config()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(false);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, _state, value| {
        match value.as_str() {
            Some(text) => out.write_str(text)?,
            None => out.write_str(&python::string(value))?,
        }
        Ok(())
    });
    environment.add_filter("string", |value: &Value| python::string(value));
    environment.add_filter("tojson", |value: &Value, indent: Option<Value>, options: Kwargs| {
        python::tojson(value, indent, options)
    });
    environment.add_function("strftime_now", |format: &str| python::strftime_now(format));
    environment.add_function("raise_exception", |message: &str| -> std::result::Result<(), minijinja::Error> {
        let raised = Raised(message.to_owned());
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, "the template raised").with_source(raised))
    });
    Ok(environment)
}

/// A template's own complaint about messages.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn rendering(error: &minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref::<Raised>() {
            return Error::BadInput(message.clone());
        }
        if let Some(inner) = inner.downcast_ref::<minijinja::Error>() {
            if inner.kind() == ErrorKind::OutOfFuel {
                let text = "the chat template takes too many steps or makes too much text";
                return Error::Broken(text.to_owned());
            }
        }
        cause = inner.source();
    }
    Error::BadInput(format!("the chat template fails: {}", describe(error)))
}

fn describe(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    error.line().map_or_else(|| what.clone(), |line| format!("line {line}: {what}"))
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| Error::BadInput(format!("{what}: {error}")))
}

fn value_of_list(list: Vec<Json>) -> Result<Value> {
    let values: Result<Vec<Value>> = list.into_iter().map(value_of).collect();
    Ok(Value::from(values?))
}

/// Whole numbers stay whole, however large, as they do in Python.
fn value_of(json: Json) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(flag),
        Json::String(text) => Value::from(text),
        Json::Array(list) => value_of_list(list)?,
        Json::Object(members) => {
            let pairs = members.into_iter().map(|(name, value)| Ok((name, value_of(value)?)));
            Value::from_pairs(pairs.collect::<Result<Vec<_>>>()?)
        }
        Json::Number(number) => {
            let written = number.as_str();
            if let Ok(whole) = written.parse::<i64>() {
                Value::from(whole)
            } else if let Ok(whole) = written.parse::<i128>() {
                Value::from(whole)
            } else if written.contains(['.', 'e', 'E']) {
                Value::from(written.parse::<f64>().unwrap_or(f64::INFINITY))
            } else {
                return Err(Error::BadInput(format!("the number {written} is too large")));
            }
        }
    })
}

/// The text of the last message, which an engine is asked to continue.
fn final_text(message: &Json) -> String {
    match &message["content"] {
        Json::String(text) => text.clone(),
        Json::Array(parts) => {
            let last = parts.iter().rev().find_map(|part| part["text"].as_str());
            last.unwrap_or_default().to_owned()
        }
        _ => String::new(),
    }
}

/// Drops what the template has put behind the last message's text, so that the model goes on with
/// it. As transformers does: the last occurrence counts, with the white space at its end if that is
/// there.
fn cut_after(rendered: &mut String, message: &str) -> Result<()> {
    let Some(at) = rendered.rfind(message.trim()) else {
        return Err(Error::BadInput("the final message is not in the rendered chat".to_owned()));
    };
    let full = message.trim_start();
    let kept = if rendered[at..].starts_with(full) { full } else { message.trim() };
    rendered.truncate(at + kept.len());
    Ok(())
}
