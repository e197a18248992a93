//! The C interface of `pointsman_tokens.h`, which says what each function does.
//!
//! Only this file is unsafe: it turns what C++ hands over into Rust's types and lets no panic out.

mod chat;
mod disputed;
mod error;
mod messages;
mod python;
mod split;
mod syntax;
mod tokenizer;

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use chat::{Chat, ChatTemplate};
use error::{Error, Result};
use tokenizer::Tokenizer;

type TakeText = unsafe extern "C" fn(*mut c_void, *const u8, usize);
type TakeIds = unsafe extern "C" fn(*mut c_void, *const u32, usize);
type TakeOffset = unsafe extern "C" fn(*mut c_void, usize);

const OK: i32 = 0;
const BAD_INPUT: i32 = 1;
const BROKEN: i32 = 2;

/// Where an error's text goes.
#[derive(Clone, Copy)]
struct ErrorSink {
    take: TakeText,
    target: *mut c_void,
}

impl ErrorSink {
    fn report(self, error: &Error) -> i32 {
        let text = error.to_string();
        unsafe { (self.take)(self.target, text.as_ptr(), text.len()) };
        match error {
            Error::BadInput(_) => BAD_INPUT,
            Error::Broken(_) => BROKEN,
        }
    }
}

/// Runs `work`; a panic in it is an error like any other, and is not printed.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        Err(Error::Broken(format!("the tokenizer library gave up: {text}")))
    })
}

/// # Safety
/// `data` points to `size` bytes that outlive the result, or `size` is 0.
unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        Error::BadInput(format!("not UTF-8 at byte {}", error.valid_up_to()))
    })
}

unsafe fn load<T>(
    path: *const u8,
    size: usize,
    sink: ErrorSink,
    from: impl FnOnce(&str) -> Result<T>,
) -> *mut T {
    match guarded(|| from(utf8(bytes(path, size))?)) {
        Ok(loaded) => Box::into_raw(Box::new(loaded)),
        Err(error) => {
            sink.report(&error);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As `pointsman_tokens.h` says; so for all functions below.
#[no_mangle]
pub unsafe extern "C" fn pm_tokenizer_load(
    path: *const u8,
    path_size: usize,
    take_error: TakeText,
    error: *mut c_void,
) -> *mut Tokenizer {
    let sink = ErrorSink { take: take_error, target: error };
    load(path, path_size, sink, Tokenizer::load)
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_tokenizer_vocabulary_size(tokenizer: *const Tokenizer) -> u32 {
    (*tokenizer).vocabulary_size()
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_tokenizer_around(
    tokenizer: *const Tokenizer,
    take_ids: TakeIds,
    before: *mut c_void,
    after: *mut c_void,
) {
    let (first, last) = (*tokenizer).around();
    take_ids(before, first.as_ptr(), first.len());
    take_ids(after, last.as_ptr(), last.len());
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: *const u8,
    size: usize,
    special: bool,
    take_ids: TakeIds,
    ids: *mut c_void,
    take_error: TakeText,
    error: *mut c_void,
) -> i32 {
    let sink = ErrorSink { take: take_error, target: error };
    let done = guarded(|| {
        (*tokenizer).encode(utf8(bytes(text, size))?, special, |found| {
            take_ids(ids, found.as_ptr(), found.len());
        })
    });
    done.map_or_else(|error| sink.report(&error), |()| OK)
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_tokenizer_cuts(
    tokenizer: *const Tokenizer,
    text: *const u8,
    size: usize,
    take_offset: TakeOffset,
    offsets: *mut c_void,
) {
    // A text that is no UTF-8 is reported where it is encoded.
    let _ = guarded(|| {
        (*tokenizer).cuts(utf8(bytes(text, size))?, |offset| take_offset(offsets, offset));
        Ok(())
    });
}

#[repr(C)]
pub struct RawChat {
    messages: *const u8,
    messages_size: usize,
    tools: *const u8,
    tools_size: usize,
    variables: *const u8,
    variables_size: usize,
    add_generation_prompt: bool,
    continue_final_message: bool,
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_template_load(
    folder: *const u8,
    folder_size: usize,
    take_error: TakeText,
    error: *mut c_void,
) -> *mut ChatTemplate {
    let sink = ErrorSink { take: take_error, target: error };
    load(folder, folder_size, sink, ChatTemplate::load)
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_template_free(chat_template: *mut ChatTemplate) {
    if !chat_template.is_null() {
        drop(Box::from_raw(chat_template));
    }
}

/// # Safety
/// See above.
#[no_mangle]
pub unsafe extern "C" fn pm_template_render(
    chat_template: *const ChatTemplate,
    chat: *const RawChat,
    take_text: TakeText,
    text: *mut c_void,
    exact_bytes: *mut usize,
    take_error: TakeText,
    error: *mut c_void,
) -> i32 {
    let sink = ErrorSink { take: take_error, target: error };
    let chat = &*chat;
    let rendered = guarded(|| {
        (*chat_template).render(&Chat {
            messages: bytes(chat.messages, chat.messages_size),
            tools: bytes(chat.tools, chat.tools_size),
            variables: bytes(chat.variables, chat.variables_size),
            add_generation_prompt: chat.add_generation_prompt,
            continue_final_message: chat.continue_final_message,
        })
    });
    match rendered {
        Ok(rendered) => {
            *exact_bytes = rendered.exact_bytes;
            take_text(text, rendered.text.as_ptr(), rendered.text.len());
            OK
        }
        Err(error) => sink.report(&error),
    }
}
