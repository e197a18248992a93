//! Cutting a text into words before the model sees it, where the library has no way of its own.
//!
//! The library has hand-written code for the patterns of the well-known families of models. For all
//! other patterns its reader of tokenizer.json leaves a hole; this fills it.

use regex_automata::meta;
use tokenizers::pipeline::{PipelinePreTokenizer, PreTokenizer, PreTokenizerScratch, Span};
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::SplitDelimiterBehavior;

/// The steps of a tokenizer's splitting, each of which cuts up what the one before has left.
pub struct Splitter {
    steps: Vec<Step>,
}

enum Step {
    Library(PipelinePreTokenizer),
    Regex(FastRegex),
}

impl Splitter {
    /// None: the library can do by itself what `given` says.
    pub fn instead_of(given: &PipelinePreTokenizer) -> Result<Option<Self>, String> {
        let members = match given {
            PipelinePreTokenizer::Sequence(sequence) if sequence.is_deepseek() => return Ok(None),
            PipelinePreTokenizer::Sequence(sequence) => sequence.pre_tokenizers(),
            single => std::slice::from_ref(single),
        };
        if !members.iter().any(lacks_engine) {
            return Ok(None);
        }
        let steps = members.iter().map(Step::of).collect::<Result<_, _>>()?;
        Ok(Some(Splitter { steps }))
    }

    /// The same as `given`, where the words are to be had one by one.
    pub fn around(given: &PipelinePreTokenizer) -> Self {
        Splitter { steps: vec![Step::Library(given.clone())] }
    }

    /// Replaces `spans` by the pieces of `text`; `text` is below 4 GiB.
    pub fn split(
        &self,
        text: &str,
        scratch: &mut PreTokenizerScratch,
        spans: &mut Vec<Span>,
    ) -> tokenizers::Result<()> {
        spans.clear();
        spans.push(Span::new(0, text.len() as u32));
        for step in &self.steps {
            let before = std::mem::take(spans);
            for outer in before {
                let first = spans.len();
                let piece = &text[outer.range()];
                match step {
                    Step::Library(library) => library.pre_tokenize(piece, scratch, spans)?,
                    Step::Regex(regex) => regex.split(piece, spans),
                }
                for span in &mut spans[first..] {
                    *span = Span::new(span.start + outer.start, span.end + outer.start);
                }
            }
        }
        Ok(())
    }
}

fn lacks_engine(member: &PipelinePreTokenizer) -> bool {
    match member {
        PipelinePreTokenizer::Split(split) => {
            split.grammar().is_none() && matches!(split.pattern, SplitPattern::Regex(_))
        }
        PipelinePreTokenizer::Sequence(sequence) => {
            sequence.pre_tokenizers().iter().any(lacks_engine)
        }
        _ => false,
    }
}

impl Step {
    fn of(member: &PipelinePreTokenizer) -> Result<Self, String> {
        let split = match member {
            PipelinePreTokenizer::Split(split) if lacks_engine(member) => split,
            PipelinePreTokenizer::Sequence(_) if lacks_engine(member) => {
                return Err("a sequence of pre-tokenizers in another is not supported".to_owned());
            }
            other => return Ok(Step::Library(other.clone())),
        };
        if let SplitPattern::Regex(pattern) = &split.pattern {
            if split.behavior == SplitDelimiterBehavior::Isolated && !split.invert {
                if let Some(regex) = FastRegex::new(pattern) {
                    return Ok(Step::Regex(regex));
                }
            }
        }
        let split = Split::new(split.pattern.clone(), split.behavior, split.invert);
        let split = split.map_err(|error| error.to_string())?;
        Ok(Step::Library(PipelinePreTokenizer::Split(split)))
    }
}

/// A pattern without looking around, or with only the customary end `\s+(?!\S)|\s+`, as an automaton
/// that takes linear time: "white space, but for its last character if a word follows" needs no
/// backtracking where the longest run of white space is known.
struct FastRegex {
    /// Of two patterns the second, where there is one, is `\s+`, for runs that the first leaves.
    automaton: meta::Regex,
}

const CUSTOMARY_END: &str = r"|\s+(?!\S)|\s+";

impl FastRegex {
    fn new(pattern: &str) -> Option<Self> {
        let automaton = match pattern.strip_suffix(CUSTOMARY_END) {
            Some(head) => meta::Regex::new_many(&[head, r"\s+"]),
            None => meta::Regex::new(pattern),
        };
        Some(FastRegex { automaton: automaton.ok()? })
    }

    /// Appends the matches and what lies between them.
    fn split(&self, text: &str, spans: &mut Vec<Span>) {
        let mut push = |start: usize, end: usize| {
            if start < end {
                spans.push(Span::new(start as u32, end as u32));
            }
        };
        let mut done = 0;
        let mut input = regex_automata::Input::new(text);
        while let Some(found) = self.automaton.search(&input) {
            let (start, mut end) = (found.start(), found.end());
            if found.pattern().as_usize() == 1 && end < text.len() {
                let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
                if end - last > start {
                    end -= last;
                }
            }
            push(done, start);
            push(start, end);
            done = end;
            // An empty match cuts nothing and must not be found again.
            let next = if end > start { end } else { end + text[end..].chars().next().map_or(1, char::len_utf8) };
            if next > text.len() {
                break;
            }
            input.set_start(next);
        }
        push(done, text.len());
    }
}
