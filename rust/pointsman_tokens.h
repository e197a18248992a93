/* The border between C++ and the Rust library of this folder: token ids and chat templates.
 *
 * Nothing that one side has allocated is freed by the other: results go to functions that the
 * caller names, once or more often, during the call. These functions must not throw. Handles are
 * immutable and may be used by several threads at once. No call lets a panic out; a panic is
 * PM_BROKEN with its text. Written by hand; src/lib.rs says the same. */

#ifndef POINTSMAN_TOKENS_H
#define POINTSMAN_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pm_tokenizer pm_tokenizer;
typedef struct pm_template pm_template;

typedef enum pm_status {
  PM_OK = 0,
  PM_BAD_INPUT = 1, /* what was to be encoded or rendered is at fault */
  PM_BROKEN = 2     /* the model's files are, or the library */
} pm_status;

/* Text is UTF-8 without an end mark. `target` is what the caller has named with the function. */
typedef void pm_take_text(void* target, const char* text, size_t size);
typedef void pm_take_ids(void* target, const uint32_t* ids, size_t count);
typedef void pm_take_offset(void* target, size_t offset);

/* A tokenizer.json, or the folder of a model with one. NULL: `take_error` has got the reason. */
pm_tokenizer* pm_tokenizer_load(const char* path, size_t path_size, pm_take_text* take_error,
                                void* error);
void pm_tokenizer_free(pm_tokenizer* tokenizer);
/* One more than the largest id. */
uint32_t pm_tokenizer_vocabulary_size(const pm_tokenizer* tokenizer);
/* The ids that `special` puts before and after a text. */
void pm_tokenizer_around(const pm_tokenizer* tokenizer, pm_take_ids* take_ids, void* before,
                         void* after);
pm_status pm_tokenizer_encode(const pm_tokenizer* tokenizer, const char* text, size_t size,
                              bool special, pm_take_ids* take_ids, void* ids,
                              pm_take_text* take_error, void* error);
/* Where the text may be cut, rising; nothing where it may not be or is no UTF-8. */
void pm_tokenizer_cuts(const pm_tokenizer* tokenizer, const char* text, size_t size,
                       pm_take_offset* take_offset, void* offsets);

/* The members of a chat request, as JSON. A size of 0: there is none. */
typedef struct pm_chat {
  const char* messages;
  size_t messages_size;
  const char* tools;
  size_t tools_size;
  const char* variables;
  size_t variables_size;
  bool add_generation_prompt;
  bool continue_final_message;
} pm_chat;

/* The chat template of the model in a folder. NULL: `take_error` has got the reason. */
pm_template* pm_template_load(const char* folder, size_t folder_size, pm_take_text* take_error,
                              void* error);
void pm_template_free(pm_template* chat_template);
/* `exact_bytes`: how much of the text does not depend on a picture, sound or the like. */
pm_status pm_template_render(const pm_template* chat_template, const pm_chat* chat,
                             pm_take_text* take_text, void* text, size_t* exact_bytes,
                             pm_take_text* take_error, void* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
