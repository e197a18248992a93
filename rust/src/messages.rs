//! What engines do to a chat's messages and tools before the template sees them.
//!
//! The rules are vLLM's (`vllm/entrypoints/chat_utils.py` and the models of its protocol), whose
//! rendered prompts the tests compare with.

use serde_json::{json, Map, Value};

use crate::error::{Error, Result};

/// Stands for the first picture or sound where a text is looked for that is the same whatever the
/// engine makes of it.
pub const MEDIA_MARK: &str = "\u{10fffd}media\u{10fffd}";

pub struct Conversation {
    pub messages: Vec<Value>,
    /// Of which the first picture is replaced by MEDIA_MARK; none where there is no picture.
    pub marked: Option<Vec<Value>>,
}

/// `parts`: the template wants content as a list of parts, else as a text.
pub fn conversation(messages: Vec<Value>, parts: bool) -> Result<Conversation> {
    let mut reader = Reader { parts, media: None };
    let mut read = Vec::with_capacity(messages.len());
    let mut marked_message = None;
    for message in &messages {
        let had_media = reader.media.is_some();
        read.push(reader.message(message)?);
        if let (false, Some(marked)) = (had_media, &reader.media) {
            let mut copy = read[read.len() - 1].clone();
            copy["content"] = marked.clone();
            marked_message = Some((read.len() - 1, copy));
        }
    }
    let marked = marked_message.map(|(index, message)| {
        let mut copy = read.clone();
        copy[index] = message;
        copy
    });
    Ok(Conversation { messages: read, marked })
}

struct Reader {
    parts: bool,
    /// The content of the first message with a picture, with the mark in its place.
    media: Option<Value>,
}

impl Reader {
    fn message(&mut self, message: &Value) -> Result<Value> {
        let Value::Object(message) = message else {
            return Err(bad("a message is not an object"));
        };
        let Some(Value::String(role)) = message.get("role") else {
            return Err(bad("a message has no role"));
        };
        let mut read = Map::new();
        read.insert("role".to_owned(), json!(role));
        let content = self.content(message.get("content").unwrap_or(&Value::Null))?;
        read.insert("content".to_owned(), content);
        match role.as_str() {
            "assistant" => {
                if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
                    if let Some(calls) = tool_calls(calls)? {
                        read.insert("tool_calls".to_owned(), calls);
                    }
                }
                let reasoning = message.get("reasoning").filter(|text| !text.is_null());
                let reasoning = reasoning.or_else(|| message.get("reasoning_content"));
                if let Some(reasoning) = reasoning.filter(|text| !text.is_null()) {
                    read.insert("reasoning".to_owned(), reasoning.clone());
                    read.insert("reasoning_content".to_owned(), reasoning.clone());
                }
            }
            "tool" => {
                if let Some(id) = message.get("tool_call_id") {
                    read.insert("tool_call_id".to_owned(), id.clone());
                }
                join_texts(&mut read["content"]);
            }
            _ => {}
        }
        if let Some(name @ Value::String(_)) = message.get("name") {
            read.insert("name".to_owned(), name.clone());
        }
        if role == "developer" {
            let tools = message.get("tools").cloned().unwrap_or(Value::Null);
            read.insert("tools".to_owned(), tools);
        }
        Ok(Value::Object(read))
    }

    fn content(&mut self, content: &Value) -> Result<Value> {
        let mut parts = Vec::new();
        let mut first_media = None;
        match content {
            Value::Null => {}
            Value::String(text) => parts.push(text_part(text)),
            Value::Array(items) => {
                for item in items {
                    match part(item)? {
                        Part::Text(part) => parts.push(part),
                        Part::Nothing => {}
                        Part::Media(part) => {
                            first_media.get_or_insert(parts.len());
                            parts.push(part);
                        }
                    }
                }
            }
            _ => return Err(bad("a message's content is neither a text nor a list")),
        }
        if self.parts {
            if let (None, Some(at)) = (&self.media, first_media) {
                let mut marked = parts.clone();
                marked[at] = text_part(MEDIA_MARK);
                self.media = Some(Value::Array(marked));
            }
            return Ok(Value::Array(parts));
        }
        // Engines put the tokens of pictures before the message's text.
        let texts = parts.iter().filter_map(|part| part["text"].as_str());
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        let text = texts.join("\n");
        if self.media.is_none() && first_media.is_some() {
            self.media = Some(Value::String(format!("{MEDIA_MARK}{text}")));
        }
        Ok(Value::String(text))
    }
}

enum Part {
    Text(Value),
    Media(Value),
    Nothing,
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// One part of a content, as templates get it. Members that the protocol does not know are kept.
fn part(part: &Value) -> Result<Part> {
    let part = match part {
        Value::String(text) => return Ok(Part::Text(text_part(text))),
        Value::Object(part) => part,
        _ => return Err(bad("a content part is neither a text nor an object")),
    };
    let kind = match part.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        _ => ["image_url", "audio_url", "input_audio", "video_url"]
            .into_iter()
            .find(|name| part.contains_key(*name))
            .ok_or_else(|| bad("a content part has no type"))?,
    };
    let text_member = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        "thinking" => "thinking",
        "image_url" | "input_image" | "image_embeds" | "image_pil" => return Ok(media("image", part)),
        "audio_url" | "input_audio" | "audio_embeds" => return Ok(media("audio", part)),
        "video_url" | "video_embeds" => return Ok(media("video", part)),
        _ => return Err(bad(&format!("a content part of type '{kind}' is not known"))),
    };
    match part.get(text_member) {
        Some(Value::String(text)) => {
            let mut read = text_part(text);
            keep_unknown_members(part, &mut read);
            Ok(Part::Text(read))
        }
        None | Some(Value::Null) => Ok(Part::Nothing),
        Some(_) => Err(bad("a content part's text is not a text")),
    }
}

fn media(kind: &str, part: &Map<String, Value>) -> Part {
    let mut read = json!({"type": kind});
    keep_unknown_members(part, &mut read);
    Part::Media(read)
}

fn keep_unknown_members(part: &Map<String, Value>, read: &mut Value) {
    const KNOWN: [&str; 20] = [
        "type", "text", "refusal", "thinking", "image_url", "input_image", "image_embeds",
        "image_pil", "audio_url", "input_audio", "audio_embeds", "video_url", "video_embeds",
        "prompt_embeds", "data", "detail", "uuid", "file", "annotations", "closed",
    ];
    for (name, value) in part {
        if !KNOWN.contains(&name.as_str()) {
            read[name] = value.clone();
        }
    }
}

/// A tool's answer in parts becomes a text, if text is all it is.
fn join_texts(content: &mut Value) {
    let Value::Array(parts) = &*content else { return };
    if parts.iter().all(|part| part["type"] == json!("text")) {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        *content = Value::String(texts.join("\n"));
    }
}

/// The calls with arguments as objects, which clients send as JSON in a text. None: there are none.
fn tool_calls(calls: &Value) -> Result<Option<Value>> {
    let Value::Array(calls) = calls else {
        return Err(bad("tool_calls is not a list"));
    };
    if calls.is_empty() {
        return Ok(None);
    }
    let mut read = calls.clone();
    for call in &mut read {
        let Some(Value::Object(function)) = call.get_mut("function") else {
            return Err(bad("a tool call has no function"));
        };
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => serde_json::from_str(text).unwrap_or(Value::Null),
            Some(value) => value.clone(),
            None => Value::Null,
        };
        let arguments = if arguments.is_object() { arguments } else { json!({}) };
        function.insert("arguments".to_owned(), arguments);
    }
    Ok(Some(Value::Array(read)))
}

/// Tools with the members of vLLM's protocol in its order, absent ones as null.
pub fn tools(tools: Vec<Value>) -> Result<Vec<Value>> {
    tools.into_iter().map(tool).collect()
}

fn tool(tool: Value) -> Result<Value> {
    let Value::Object(mut tool) = tool else {
        return Err(bad("a tool is not an object"));
    };
    let Some(Value::Object(mut function)) = tool.shift_remove("function") else {
        return Err(bad("a tool has no function"));
    };
    let mut read_function = Map::new();
    for name in ["name", "description", "parameters"] {
        let value = function.shift_remove(name).unwrap_or(Value::Null);
        read_function.insert(name.to_owned(), value);
    }
    read_function.extend(function);
    let mut read = Map::new();
    read.insert("type".to_owned(), tool.shift_remove("type").unwrap_or(json!("function")));
    read.insert("function".to_owned(), Value::Object(read_function));
    read.extend(tool);
    Ok(Value::Object(read))
}

fn bad(text: &str) -> Error {
    Error::BadInput(text.to_owned())
}
